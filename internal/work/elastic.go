package work

import (
	"strings"
	"time"
)

// IdleAction says what may be done with a task whose GPUs idle.
type IdleAction string

// What may be done with an idle task.
const (
	IdleDefault IdleAction = ""     // what its pool does with tasks of its class
	IdleKeep    IdleAction = "keep" // nothing
	IdlePark    IdleAction = "park" // it is suspended and its GPUs are lent, until someone wakes it
	IdleStop    IdleAction = "stop" // it is ended, as if by its user
)

// Elastic is what a task lets be done with it while it runs.
type Elastic struct {
	OnIdle    IdleAction        `json:"on_idle,omitempty"`
	NoPreempt bool              `json:"no_preempt,omitempty"` // it never has to yield to others, and so never is a guest
	Labels    map[string]string `json:"labels,omitempty"`     // for exemptions and for people
}

// MaxLabels is the number of labels of a task at most.
const MaxLabels = 32

// validate checks what a task allows.
func (x Elastic) validate() error {
	switch x.OnIdle {
	case IdleDefault, IdleKeep, IdlePark, IdleStop:
	default:
		return Errorf(CodeInvalid, "on-idle %q is not known: use keep, park or stop", x.OnIdle)
	}
	if len(x.Labels) > MaxLabels {
		return Errorf(CodeInvalid, "a task may have %d labels, this has %d", MaxLabels, len(x.Labels))
	}
	for k := range x.Labels { // order: any fault will do
		if k == "" || strings.ContainsAny(k, "= \t\n") {
			return Errorf(CodeInvalid, "label %q is not usable: expected KEY=VALUE with one word as the key", k)
		}
	}
	return nil
}

// MoveKind names what is done to a running task to make better use of its GPUs.
type MoveKind string

// The kinds of moves.
const (
	MovePark MoveKind = "park"
	MoveWake MoveKind = "wake"
)

// PoolElastic is what a pool does with tasks that leave their GPUs idle. Zero values
// mean the defaults.
type PoolElastic struct {
	Low       float64                 `json:"low,omitempty"`        // mark of use, 0 to 1, under which a task is judged light; default 0.6
	High      float64                 `json:"high,omitempty"`       // over which it needs more; default 0.9
	Spare     float64                 `json:"spare,omitempty"`      // under which a GPU has capacity to share; default 0.7
	IdleBelow float64                 `json:"idle_below,omitempty"` // use that counts as none; default 0.05
	OnIdle    map[Class]IdleAction    `json:"on_idle,omitempty"`    // by class, for tasks that do not say; default keep
	After     map[Class]time.Duration `json:"after,omitempty"`      // idle for so long before anything is done although nobody waits for the GPUs
	Cooldown  time.Duration           `json:"cooldown,omitempty"`   // between two moves of one task; default 2 min
	Exempt    []string                `json:"exempt,omitempty"`     // tenants, and labels as key=value, that nothing is taken from
}
