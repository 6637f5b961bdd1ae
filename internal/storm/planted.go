package storm

import (
	"github.com/gpupool/gpupool/internal/engine"
)

// planted is a deliberate bug, which only tests have: the storm must find it. Of the zero
// value there is none.
type planted struct {
	retries     bool                                        // a failed append is tried again without a look at what is stored
	trustsTail  bool                                        // what a torn append left is taken for whole
	read        func([]byte) []byte                         // what is read of the journal after a crash; nil = nothing
	startsAgain bool                                        // a runner starts whatever it is told to
	eager       bool                                        // replies and commands leave before the append
	answer      func(*world, engine.Event) engine.Event     // what arrives of an answer; nil = nothing
	order       func(*world, engine.Command) engine.Command // what is carried out; nil = nothing
	unordered   bool                                        // commands of one owner are carried out in any order
	blind       bool                                        // whole states are not compared: other checks are what is tested
}
