package engine

import (
	"github.com/gpupool/gpupool/internal/elastic"
	"github.com/gpupool/gpupool/internal/work"
)

// plantedInModes has the bugs of modes: the guard, the tally of shadow mode, rollouts.
var plantedInModes = []plantedBug{
	{"a guard knows how many tasks its pool has", "one that goes back to the queue is still counted", after(func(e *Engine, f Became) {
		if f.State == work.Queued {
			e.tasks[f.Task].pool.guard.jitter.Active++
		}
	}), "the guard of pool", false},
	{"a guard knows how many tasks were woken", "one that is woken is not counted", after(func(e *Engine, f Became) {
		if t := e.tasks[f.Task]; wasParked(t) {
			t.pool.guard.jitter.Woken--
		}
	}), "the guard of pool", false},
	{"a shadow is what its tasks come to", "what idles is lent at once and not when it is worth it", after(func(e *Engine, f Judged) {
		s := &e.tasks[f.Task].pool.shadow
		for _, x := range s.pending {
			s.tally.NeedNow -= x.t.Shade.Milli
		}
	}), "the shadow of pool", false},
	{"a shadow is what its tasks come to", "it is not seen that a task is used again", after(func(e *Engine, f Judged) {
		if t := e.tasks[f.Task]; f.Use.Kind == elastic.Steady && t.Shade.Milli > 0 {
			t.Shade.Until = e.now
			t.pool.shadow.tally.BusyNow -= t.Shade.Milli
			t.pool.shadow.tally.NeedNow -= t.Shade.Milli
		}
	}), "in the shadow of pool", false},
	{"a shadow is what its tasks come to", "who has ended is still counted", after(func(e *Engine, f Became) {
		if f.State.Terminal() {
			e.tasks[f.Task].pool.shadow.tally.HeldNow += 1000
		}
	}), "its tasks come to", false},
	{"a shadow is what its tasks come to", "a task that dynamic would move is counted while it is moved", after(func(e *Engine, f ModeSet) {
		for _, t := range e.sortedTasks() {
			if t.pool.Name == f.Pool && f.Mode == work.Dynamic {
				t.Shade.Milli = 1000
			}
		}
	}), "in the shadow of pool", true},
	{"a rollout says which modes are in force", "what is on trial stays as it was", drop(func(f Fact) bool {
		m, ok := f.(ModeSet)
		return ok && m.By == byRollout && m.Mode == work.Dynamic
	}), "rollout of dynamic at step", true},
	{"a rollout takes back what it changed", "it is not noted what was before", after(func(e *Engine, _ RolloutStepped) {
		for i := range e.rollout.Steps {
			e.rollout.Steps[i].Was = e.rollout.Mode
		}
	}), "was rolled back, and", true},
	{"replaying the journal gives the same state", "a move is counted by who decides it and not by the fact", before(func(e *Engine, f Suspending) {
		e.noteMove(f.Owner.Task, elastic.Count{Moves: 1}, "is suspended", "")
	}), "replaying the journal gives another state", false},
}
