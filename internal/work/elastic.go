package work

import (
	"strings"
	"time"
)

// IdleAction says what may be done with a task whose GPUs idle.
type IdleAction string

// What may be done with an idle task.
const (
	IdleDefault IdleAction = ""      // what its pool does with tasks of its class
	IdleKeep    IdleAction = "keep"  // nothing
	IdleShare   IdleAction = "share" // other tasks of its tenant may use what it leaves of its GPU
	IdlePark    IdleAction = "park"  // it is suspended and its GPUs are lent, until someone wakes it
	IdleStop    IdleAction = "stop"  // it is ended, as if by its user
)

// ResizeBy says how a task can be given more or less of GPUs while it runs.
type ResizeBy string

// How a task may be resized.
const (
	ResizeNever   ResizeBy = ""        // not at all, except that a share may be changed in place
	ResizeRestart ResizeBy = "restart" // it gets SIGTERM and its grace, saves its work, and starts again at another size or place
)

// Elastic is what a task allows to be done with it while it runs.
type Elastic struct {
	OnIdle    IdleAction        `json:"on_idle,omitempty"`
	OnResize  ResizeBy          `json:"on_resize,omitempty"`
	MinMilli  int               `json:"min_milli,omitempty"` // of GPUs, thousandths, that each member keeps at least; 0 = what it asks for
	MaxMilli  int               `json:"max_milli,omitempty"` // of GPUs that it may be given at most; 0 = what it asks for
	NoShare   bool              `json:"no_share,omitempty"`  // nobody else on its GPUs
	NoPreempt bool              `json:"no_preempt,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"` // for exemptions and for people
}

// MaxLabels is the number of labels of a task at most.
const MaxLabels = 32

// validate checks what a task allows against what it asks for.
func (x Elastic) validate(r Request) error {
	switch x.OnIdle {
	case IdleDefault, IdleKeep, IdleShare, IdlePark, IdleStop:
	default:
		return Errorf(CodeInvalid, "on-idle %q is not known: use keep, share, park or stop", x.OnIdle)
	}
	switch x.OnResize {
	case ResizeNever, ResizeRestart:
	default:
		return Errorf(CodeInvalid, "on-resize %q is not known: use restart, or leave it out", x.OnResize)
	}
	if x.NoShare && x.OnIdle == IdleShare {
		return Errorf(CodeInvalid, "no-share and on-idle share contradict each other: leave one out")
	}
	if len(x.Labels) > MaxLabels {
		return Errorf(CodeInvalid, "a task may have %d labels, this has %d", MaxLabels, len(x.Labels))
	}
	for k := range x.Labels { // order: any fault will do
		if k == "" || strings.ContainsAny(k, "= \t\n") {
			return Errorf(CodeInvalid, "label %q is not usable: expected KEY=VALUE with one word as the key", k)
		}
	}
	return x.validateSizes(r)
}

func (x Elastic) validateSizes(r Request) error {
	if x.MinMilli == 0 && x.MaxMilli == 0 {
		return nil
	}
	asked := 1000*r.GPUs + r.Milli
	switch {
	case x.MinMilli < 0 || x.MaxMilli < 0:
		return Errorf(CodeInvalid, "the least and the most of GPUs must not be negative")
	case asked == 0:
		return Errorf(CodeInvalid, "a least and a most go with a number of GPUs or a fraction, not with %s", r)
	case x.MinMilli > asked || x.MaxMilli != 0 && x.MaxMilli < asked:
		return Errorf(CodeInvalid, "the least (%g) and the most (%g) must lie around what is asked for (%g GPUs)", float64(x.MinMilli)/1000, float64(x.MaxMilli)/1000, float64(asked)/1000)
	case r.GPUs > 0 && (x.MinMilli%1000 != 0 || x.MaxMilli%1000 != 0):
		return Errorf(CodeInvalid, "a task of whole GPUs is resized by whole GPUs: expected a whole least and most")
	case r.GPUs > 0 && x.MaxMilli > MaxGPUsPerMember*1000:
		return Errorf(CodeInvalid, "at most %d GPUs in one host, and the most is %g", MaxGPUsPerMember, float64(x.MaxMilli)/1000)
	case r.Milli > 0 && x.MaxMilli > 1000:
		return Errorf(CodeInvalid, "a part of a GPU can grow to one GPU at most, and the most is %g", float64(x.MaxMilli)/1000)
	}
	return nil
}

// MoveKind names what is done to a running task to make better use of its GPUs.
type MoveKind string

// The kinds of moves.
const (
	MovePark   MoveKind = "park"
	MoveWake   MoveKind = "wake"
	MoveShrink MoveKind = "shrink" // in place or by a restart
	MoveGrow   MoveKind = "grow"
	MoveShift  MoveKind = "move" // to another place, so that the GPUs it leaves are whole
	MoveStop   MoveKind = "stop" // idle, and its user wants it ended then
	MoveApart  MoveKind = "apart"
)

// PoolElastic is what a pool does with tasks that leave their GPUs idle. Zero values
// mean the defaults.
type PoolElastic struct {
	Low          float64                 `json:"low,omitempty"`            // mark of use, 0 to 1, under which a task is light; default 0.6
	High         float64                 `json:"high,omitempty"`           // over which it needs more; default 0.9
	Spare        float64                 `json:"spare,omitempty"`          // under which a GPU has capacity to share; default 0.7
	IdleBelow    float64                 `json:"idle_below,omitempty"`     // use that counts as none; default 0.05
	OnIdle       map[Class]IdleAction    `json:"on_idle,omitempty"`        // by class, for tasks that do not say; default keep
	After        map[Class]time.Duration `json:"after,omitempty"`          // idle for so long before anything is done although nobody waits for the GPUs
	Cooldown     time.Duration           `json:"cooldown,omitempty"`       // between two moves of one task; default 2 min
	MovesPerTask int                     `json:"moves_per_task,omitempty"` // in any hour at most; default 12
	MovesPerHour int                     `json:"moves_per_hour,omitempty"` // of the whole pool; 0 = no limit
	MaxSlowdown  float64                 `json:"max_slowdown,omitempty"`   // of tasks that share, p95, over which the pool goes static; default 1.25
	MaxFailed    float64                 `json:"max_failed,omitempty"`     // share of moves that fail, likewise; default 0.2
	Exempt       []string                `json:"exempt,omitempty"`         // tenants, and labels as key=value, that nothing is taken from
}
