package work

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// IdleAction says what may be done with a task whose GPUs idle.
type IdleAction string

// What may be done with an idle task.
const (
	IdleDefault IdleAction = ""      // what its pool does with tasks of its class
	IdleKeep    IdleAction = "keep"  // nothing
	IdleShare   IdleAction = "share" // others of its tenant come to its GPU
	IdlePark    IdleAction = "park"  // it is suspended and its GPUs are lent, until someone wakes it
	IdleStop    IdleAction = "stop"  // it is ended, as if by its user
)

// ResizeAction says how a task takes another size, or another place, while it runs.
type ResizeAction string

// How a running task is resized or moved.
const (
	ResizeLive    ResizeAction = ""        // only where its process need not know: a share of a GPU
	ResizeRestart ResizeAction = "restart" // it is told by a signal, saves its work, ends within its grace and starts again
)

// Elastic is what a task lets be done with it while it runs.
type Elastic struct {
	OnIdle    IdleAction        `json:"on_idle,omitempty"`
	OnResize  ResizeAction      `json:"on_resize,omitempty"`
	Signal    string            `json:"resize_signal,omitempty"` // that tells it to save its work and end, "USR1"; "" = TERM
	MinMilli  int               `json:"min_milli,omitempty"`     // of GPUs, in thousandths: each member can run with so little; 0 = as requested
	MaxMilli  int               `json:"max_milli,omitempty"`     // each member can make use of so much; 0 = as requested
	NoShare   bool              `json:"no_share,omitempty"`      // it is never put beside others, nor made smaller for them
	NoPreempt bool              `json:"no_preempt,omitempty"`    // it never has to yield to others, and so never is a guest
	Labels    map[string]string `json:"labels,omitempty"`        // for exemptions and for people
}

// Signals that may tell a task to save its work.
func Signals() []string { return []string{"TERM", "INT", "HUP", "USR1", "USR2"} }

// MaxLabels is the number of labels of a task at most.
const MaxLabels = 32

// Validate checks what a task allows, beside what it asks for.
func (x Elastic) Validate(r Request) error {
	switch x.OnIdle {
	case IdleDefault, IdleKeep, IdleShare, IdlePark, IdleStop:
	default:
		return Errorf(CodeInvalid, "on-idle %q is not known: use keep, share, park or stop", x.OnIdle)
	}
	switch {
	case x.OnResize != ResizeLive && x.OnResize != ResizeRestart:
		return Errorf(CodeInvalid, "on-resize %q is not known: use restart, or leave it out", x.OnResize)
	case x.Signal != "" && !slices.Contains(Signals(), x.Signal):
		return Errorf(CodeInvalid, "signal %q is not known: use one of %s", x.Signal, strings.Join(Signals(), ", "))
	case x.Signal != "" && x.OnResize != ResizeRestart:
		return Errorf(CodeInvalid, "a signal is for tasks that are resized by a restart: add --on-resize restart")
	case x.OnIdle == IdleShare && x.NoShare:
		return Errorf(CodeInvalid, "on-idle share and no-share contradict each other: leave one out")
	}
	if x.NoShare && r.Isolation == IsolationShared {
		return Errorf(CodeInvalid, "a task that is never put beside others cannot ask for a share: leave out --no-share, or ask for a slice (--isolation mig) or for a whole GPU")
	}
	if err := x.validSizes(r); err != nil {
		return err
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

// validSizes checks the least and the most that a member can run with.
func (x Elastic) validSizes(r Request) error {
	asked, one := r.Milli, 1
	if r.GPUs > 0 {
		asked, one = 1000*r.GPUs, 1000
	}
	least, most := cmp.Or(x.MinMilli, asked), cmp.Or(x.MaxMilli, asked)
	switch {
	case x.MinMilli == 0 && x.MaxMilli == 0:
	case asked == 0:
		return Errorf(CodeInvalid, "the least and the most are for whole GPUs or a fraction of one; this asks for %s", r)
	case least < 0 || most > 1000*MaxGPUsPerMember || least > asked || most < asked:
		return Errorf(CodeInvalid, "a task that asks for %g GPUs cannot have %g at the least and %g at the most", float64(asked)/1000, float64(least)/1000, float64(most)/1000)
	case least%one != 0 || most%one != 0:
		return Errorf(CodeInvalid, "whole GPUs are resized to whole GPUs: expected whole numbers, got %g to %g", float64(least)/1000, float64(most)/1000)
	case r.GPUs == 0 && most > 999:
		return Errorf(CodeInvalid, "a fraction of a GPU is resized to a fraction: expected at most 0.999, got %g", float64(most)/1000)
	case r.GPUs > 0 && x.OnResize != ResizeRestart && least != most:
		return Errorf(CodeInvalid, "another number of GPUs takes a restart: add --on-resize restart, with a --grace in which the task can save its work")
	}
	return nil
}

// Resized is the request of a task with another size for each member, in thousandths of
// GPUs: one that it agreed to.
func (s Spec) Resized(milli int) (Request, error) {
	r, asked := s.Request, s.Request.Milli
	if r.GPUs > 0 {
		asked = 1000 * r.GPUs
	}
	least, most := cmp.Or(s.MinMilli, asked), cmp.Or(s.MaxMilli, asked)
	switch {
	case asked == 0:
		return r, Errorf(CodeConflict, "a task that asks for %s has no other size: only whole GPUs and fractions of one have", r)
	case milli != asked && least == most:
		return r, Errorf(CodeConflict, "the task agreed to no other size than %g GPUs: submit it with --min and --max", float64(asked)/1000)
	case milli < least || milli > most:
		return r, Errorf(CodeConflict, "the task agreed to %g to %g GPUs, not to %g: submit it with --min and --max", float64(least)/1000, float64(most)/1000, float64(milli)/1000)
	case r.GPUs > 0 && milli%1000 != 0:
		return r, Errorf(CodeInvalid, "whole GPUs are resized to whole GPUs: expected a whole number, got %g", float64(milli)/1000)
	case r.GPUs > 0:
		r.GPUs = milli / 1000
	default:
		r.Milli = milli
	}
	return r, nil
}

// MoveKind names what is done to a running task to make better use of its GPUs.
type MoveKind string

// The kinds of moves.
const (
	MovePark    MoveKind = "park"
	MoveWake    MoveKind = "wake"
	MoveResize  MoveKind = "resize"  // another size on the same GPUs, live
	MoveRestart MoveKind = "restart" // another size by a restart
	MoveAway    MoveKind = "move"    // another place by a restart
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
	Smallest  int                     `json:"smallest,omitempty"`   // thousandths of a GPU that a light task is given at the least; default a seventh
	Largest   int                     `json:"largest,omitempty"`    // and at the most: one that needs more keeps what it has; default a half
	Warn      time.Duration           `json:"warn,omitempty"`       // between the announcement of a move that takes something and the move; default 30 s
	PerHour   int                     `json:"per_hour,omitempty"`   // restarts for a resize or a move in any hour; default 60
	PerTask   int                     `json:"per_task,omitempty"`   // of one task in any hour; default 2
	Guard     Guard                   `json:"guard,omitzero"`       // when it falls back to static
}
