package engine

import (
	"fmt"
	"slices"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// checkMoves: only what runs is resized, on the GPUs that it has; only what runs is
// announced to be moved; nobody is put beside one that wants no neighbours; and nobody is
// restarted that did not agree, or more often than may be.
func (e *Engine) checkMoves() error {
	for _, l := range e.sortedLeases() {
		for i, p := range l.Parts {
			switch {
			case (p.To == nil) != (p.Back == nil):
				return fmt.Errorf("lease %d.%d: member %d is resized to %v from %v", l.Task, l.Epoch, i, p.To, p.Back)
			case p.To != nil && (l.Closing || p.Phase != PhaseRunning):
				return fmt.Errorf("lease %d.%d: member %d is resized and %s", l.Task, l.Epoch, i, p.Phase)
			case p.To != nil && !sameGPUs(p.To, p.Back):
				return fmt.Errorf("lease %d.%d: member %d is resized from %v to other GPUs: %v", l.Task, l.Epoch, i, p.Back, p.To)
			case p.To != nil && milli(p.Slices) < max(milli(p.To), milli(p.Back)):
				return fmt.Errorf("lease %d.%d: member %d is resized from %v to %v, and the smaller is what it holds", l.Task, l.Epoch, i, p.Back, p.To)
			}
		}
		if s, ok := l.of.onlySlice(); ok && l.of.lease == l && l.of.Spec.NoShare && s.Mode == gpu.ModeShared && l.of.pool.modeFor(l.of.Spec.Tenant) == work.Dynamic {
			return fmt.Errorf("task %d wants no neighbours and has a share of GPU %d", l.Task, s.GPU)
		}
	}
	for _, t := range e.sortedTasks() {
		if t.Plan != nil && (t.State != work.StateRunning || t.lease == nil || t.lease.Closing || t.Spec.OnResize != work.ResizeRestart) {
			return fmt.Errorf("task %d is announced to be moved, is %s and agreed to %q", t.ID, t.State, t.Spec.OnResize)
		}
		if len(t.Again) > 0 && t.Spec.OnResize != work.ResizeRestart {
			return fmt.Errorf("task %d was restarted to be moved and did not agree", t.ID)
		}
		_, listed := slices.BinarySearchFunc(t.pool.supple, t, byNumber)
		if want := t.State == work.StateRunning && e.supple(t); listed != want {
			return fmt.Errorf("task %d is %s and listed as one that may be moved: %v", t.ID, t.State, listed)
		}
	}
	return nil
}

func sameGPUs(a, b []work.Slice) bool {
	return slices.EqualFunc(a, b, func(x, y work.Slice) bool { return x.GPU == y.GPU })
}

// checkDebts: what a pool has lent is what the tasks of each other pool hold of it, and
// no more than it lends.
func (e *Engine) checkDebts() error {
	held := map[[2]string]int{}
	for _, l := range e.sortedLeases() {
		for _, p := range l.Parts {
			if h := e.cluster.Hosts[p.Host]; p.Phase != PhaseFreed && h.Up && h.Pool != l.of.pool.Name {
				held[[2]string{h.Pool, l.of.pool.Name}] += p.Milli()
			}
		}
	}
	for _, d := range e.Debts() {
		key := [2]string{d.Lender, d.Borrower}
		if held[key] != d.Milli {
			return fmt.Errorf("pool %s is said to have lent %d thousandths to %s, whose tasks hold %d of it", d.Lender, d.Milli, d.Borrower, held[key])
		}
		delete(held, key)
	}
	for key, milli := range held { // order: any fault will do
		if milli > 0 && e.pools[key[0]] != nil {
			return fmt.Errorf("tasks of pool %s hold %d thousandths of pool %s, and nobody owes it anything", key[1], milli, key[0])
		}
	}
	return nil
}
