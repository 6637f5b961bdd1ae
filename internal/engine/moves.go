package engine

import (
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/elastic"
	"github.com/gpupool/gpupool/internal/work"
)

// Plan is a move of a running task that was announced: it is looked at again when its
// time has come, and made if it is still of use.
type Plan struct {
	Move   work.MoveKind `json:"move"`
	At     work.Time     `json:"at"`
	To     *work.Request `json:"to,omitempty"`  // its new size; nil = as it is
	For    work.TaskID   `json:"for,omitempty"` // who waits for what it gives up
	Price  elastic.Price `json:"price"`
	Reason work.Reason   `json:"reason"`
}

// applyPlan applies the facts about announced moves and about sizes.
func (e *Engine) applyPlan(f Fact) {
	switch f := f.(type) {
	case Sized:
		e.tasks[f.Task].Size = f.Request
	case Planned:
		t := e.tasks[f.Task]
		plan := f.Plan
		t.Plan = &plan
		e.timers.add(plan.At, timerPlan, work.Owner{Task: t.ID, Epoch: t.Epoch})
	case Dropped:
		e.tasks[f.Task].Plan = nil
	case Resizing:
		_, p := e.mustPart(f.Owner)
		p.To = f.Slices
	case Resized:
		e.applyResized(f.Owner)
	case Parted:
		e.parted[f.Pair] = f.Until
	}
}

func (e *Engine) applyResized(work.Owner)   {}
func (e *Engine) resizeDone(ResizeDone)     {}
func (e *Engine) resizeFailed(ResizeFailed) {}
func (e *Engine) resizeAsked(Resize) error  { return work.Errorf(work.CodeConflict, "not yet") }
func (e *Engine) makePlan(*Task)            {}

// restartsLately counts restarts of the last hour.
func lately(at []work.Time, now work.Time) int {
	i := slices.IndexFunc(at, func(t work.Time) bool { return t.Add(time.Hour) > now })
	if i < 0 {
		return 0
	}
	return len(at) - i
}
