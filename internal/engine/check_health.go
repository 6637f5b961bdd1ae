package engine

import (
	"fmt"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// checkHealth: the health of a GPU is what the heaviest word on it says; whoever has to
// leave one that is being drained does, and nobody is on one that is drained; a lease is
// recalled exactly while one of its GPUs is being drained; who is suspended has somewhere
// to wake; and no task goes on breaking GPUs.
func (e *Engine) checkHealth() error {
	for _, g := range e.cluster.GPUs {
		health, why := e.ills[g.Number].health(len(g.Held) == 0)
		if g.Health != health || g.Why != why {
			return fmt.Errorf("GPU %d is %s (%s), and what was said of it makes it %s (%s)", g.Number, g.Health, g.Why, health, why)
		}
		if g.Health == gpu.HealthDraining {
			for _, l := range e.leasesAt(g.Number) {
				if !e.leavesGPU(l) {
					return fmt.Errorf("lease %d.%d stays on GPU %d, which is being drained", l.Task, l.Epoch, g.Number)
				}
			}
		}
	}
	for _, l := range e.sortedLeases() {
		if n := e.drains(l); l.Recalled && !l.Closing && n < 0 {
			return fmt.Errorf("lease %d.%d is recalled, and none of its GPUs is being drained", l.Task, l.Epoch)
		}
		if l.Parts[0].Phase == PhaseParked && !l.Closing {
			if left := e.wakeable(l); left < len(l.Parts[0].Was) {
				return fmt.Errorf("task %d is suspended where %d GPUs are left for it to wake on, and needs %d", l.Task, left, len(l.Parts[0].Was))
			}
		}
	}
	for _, t := range e.tasks { // order: any fault will do
		if t.Struck >= e.cfg.AllocRetries && !t.State.Terminal() && (t.lease == nil || !t.lease.Closing) {
			return fmt.Errorf("task %d goes on after %d GPUs failed under it in a row", t.ID, t.Struck)
		}
	}
	return nil
}

// leavesGPU reports whether a lease is leaving the GPUs that it has.
func (e *Engine) leavesGPU(l *Lease) bool {
	p := l.Parts[0].Phase
	return l.Closing || l.Recalled || p == PhaseSuspending || p == PhaseVacating
}

// onSound: nobody is placed on a GPU that may not be given out. It looks at the state before.
func (l *Ledger) onSound(f Placed) error {
	for _, p := range f.Parts {
		for _, s := range p.Slices {
			if g := l.shadow.cluster.GPUs[s.GPU]; g.Health != gpu.HealthOK {
				return fmt.Errorf("task %d is placed on GPU %d, which is %s", f.Task, g.Number, g.Health)
			}
		}
	}
	return nil
}

// growsSound: nobody gets more of a GPU that is out of use.
func (l *Ledger) growsSound(f Resizing) error {
	_, p := l.shadow.mustPart(f.Owner)
	for _, s := range p.Slices {
		if g := l.shadow.cluster.GPUs[s.GPU]; g.Health.Out() && milli(f.Slices) > p.Milli() {
			return fmt.Errorf("task %d gets more of GPU %d, which is %s", f.Owner.Task, g.Number, g.Health)
		}
	}
	return nil
}

// countedOnce: a fault is counted once.
func (l *Ledger) countedOnce(f Faulted) error {
	if last := l.shadow.faults[f.GPU].Last.At; f.At <= last {
		return fmt.Errorf("a fault of GPU %d at %d is counted after one at %d", f.GPU, f.At, last)
	}
	if t := l.shadow.tasks[f.Owner.Task]; f.Owner != (work.Owner{}) && t == nil {
		return fmt.Errorf("a fault of GPU %d is one of task %d, which is not known", f.GPU, f.Owner.Task)
	}
	return nil
}
