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
	{"replaying the journal gives the same state", "a move is counted by who decides it and not by the fact", before(func(e *Engine, f Suspending) {
		e.noteMove(f.Owner.Task, elastic.Count{Moves: 1}, "is suspended", "")
	}), "replaying the journal gives another state", false},
}
