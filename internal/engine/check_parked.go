package engine

import (
	"fmt"
	"slices"

	"github.com/gpupool/gpupool/internal/elastic"
	"github.com/gpupool/gpupool/internal/work"
)

// checkParked: a parked task has a right to the GPUs that it left and holds none; who is
// on them can be asked to leave; and pools know who idles and how many are parked.
func (e *Engine) checkParked() error {
	liens := map[int]int{}
	parked := map[*pool]int{}
	for _, l := range e.sortedLeases() {
		for i, p := range l.Parts {
			switch {
			case p.Phase == PhaseParked && (len(p.Was) == 0 || len(p.Slices) > 0 || l.Closing):
				return fmt.Errorf("lease %d.%d: member %d is parked, holds %d slices and left %d", l.Task, l.Epoch, i, len(p.Slices), len(p.Was))
			case p.Phase != PhaseParked && len(p.Was) > 0:
				return fmt.Errorf("lease %d.%d: member %d is %s and has a right to GPUs that it left", l.Task, l.Epoch, i, p.Phase)
			case p.Phase == PhaseParked:
				parked[l.of.pool]++
			}
			for _, s := range p.Was {
				liens[s.GPU]++
				if !slices.Contains(e.liens[s.GPU], l.of) {
					return fmt.Errorf("task %d left GPU %d, and it is not known to have a right to it", l.Task, s.GPU)
				}
			}
		}
	}
	for g, by := range e.liens { // order: any fault will do
		if len(by) != liens[g] {
			return fmt.Errorf("%d tasks are said to have a right to GPU %d, and %d are parked that left it", len(by), g, liens[g])
		}
		for _, h := range e.cluster.GPUs[g].Held {
			t := e.tasks[h.Owner.Task]
			if l := e.leaseAt(h.Owner.Task, h.Owner.Epoch); l.Runs != 0 {
				continue // it came back, to where it had a right before whoever left since
			}
			if t.Spec.NoPreempt || t.Spec.External() {
				return fmt.Errorf("task %d is on GPU %d, which a parked task has a right to, and cannot be asked to leave", t.ID, g)
			}
		}
	}
	idle := map[*pool]int{}
	for _, t := range e.tasks { // order: sums
		if t.Use.Kind == elastic.Idle {
			idle[t.pool]++
		}
	}
	for _, p := range e.lines {
		if p.parked != parked[p] || len(p.idle) != idle[p] || slices.ContainsFunc(p.idle, func(t *Task) bool { return t.State != work.StateRunning }) {
			return fmt.Errorf("pool %s counts %d parked and %d idle tasks, there are %d and %d", p.Name, p.parked, len(p.idle), parked[p], idle[p])
		}
	}
	return nil
}
