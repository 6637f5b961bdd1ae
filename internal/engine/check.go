package engine

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// Check verifies every invariant of DESIGN.md that a state can show, and returns
// the first that is broken. It walks everything: for tests, and for production
// behind the build tag invariants (package host). What only a history can show (replay, no epoch twice) is
// checked by Ledger.
func (e *Engine) Check() error {
	if err := e.cluster.Check(); err != nil { // overlap, legal layouts, sharers, the index
		return err
	}
	for _, check := range []func() error{e.checkKept, e.checkHealth, e.checkParked, e.checkMoves, e.checkDebts, e.checkOwners, e.checkTenants, e.checkLeases, e.checkTasks, e.checkSums, e.checkCounts, e.checkGuards, e.checkShadows, e.checkRollout, e.checkBooks} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// checkOwners: a lease's slices exist and belong to it alone, and nothing stands
// for nobody.
func (e *Engine) checkOwners() error {
	stands := map[work.Owner]int{}
	for _, g := range e.cluster.GPUs {
		for _, h := range g.Held {
			_, p := e.part(h.Owner)
			if p == nil || p.Phase == PhaseFreed {
				return fmt.Errorf("GPU %d: %s stands for owner %v, which has no lease", g.Number, h.Slice, h.Owner)
			}
			stands[h.Owner]++
		}
	}
	for _, l := range e.sortedLeases() {
		for i, p := range l.Parts {
			if want := len(p.Slices); p.Phase != PhaseFreed && stands[l.owner(i)] != want {
				return fmt.Errorf("lease %d.%d: member %d holds %d slices, %d stand", l.Task, l.Epoch, i, want, stands[l.owner(i)])
			}
		}
	}
	return nil
}

// checkTenants: no GPU serves two tenants except by MIG, and none holds more
// than it may.
func (e *Engine) checkTenants() error {
	for _, g := range e.cluster.GPUs {
		for _, h := range g.Held {
			first, this := e.tasks[g.Held[0].Owner.Task], e.tasks[h.Owner.Task]
			if g.Mode != gpu.ModeMIG && first.Spec.Tenant != this.Spec.Tenant {
				return fmt.Errorf("GPU %d in mode %s serves tenants %s and %s", g.Number, g.Mode, first.Spec.Tenant, this.Spec.Tenant)
			}
		}
	}
	held := map[string]int{}
	for _, l := range e.sortedLeases() {
		for _, p := range l.Parts {
			if p.Phase != PhaseFreed && e.cluster.Hosts[p.Host].Up {
				held[e.tasks[l.Task].Spec.Tenant] += p.Milli()
			}
		}
	}
	for _, t := range e.Tenants() {
		if held[t.Name] != e.use[t.Name].milli {
			return fmt.Errorf("tenant %s holds %d thousandths, the sum says %d", t.Name, held[t.Name], e.use[t.Name].milli)
		}
	}
	return nil
}

// checkLeases: a gang is whole or absent.
func (e *Engine) checkLeases() error {
	current := map[work.TaskID]int{}
	for _, l := range e.sortedLeases() {
		t := e.tasks[l.Task]
		if t == nil {
			return fmt.Errorf("lease %d.%d has no task", l.Task, l.Epoch)
		}
		if want := t.Spec.Request.Count(); len(l.Parts) != want {
			return fmt.Errorf("lease %d.%d has %d parts for a gang of %d", l.Task, l.Epoch, len(l.Parts), want)
		}
		if t.lease == l {
			current[l.Task]++
		} else if !l.Settled {
			return fmt.Errorf("lease %d.%d is neither its task's nor settled", l.Task, l.Epoch)
		}
		starting := 0
		for i, p := range l.Parts {
			if !l.Closing && (p.Phase == PhaseFreeing || p.Phase == PhaseFreed) {
				return fmt.Errorf("lease %d.%d: member %d is %s while the gang is held", l.Task, l.Epoch, i, p.Phase)
			}
			if p.Phase != PhaseCarving && p.Phase != PhaseReady {
				starting++
			}
		}
		if !l.Closing && starting != 0 && starting != len(l.Parts) {
			return fmt.Errorf("lease %d.%d: %d of %d members were started", l.Task, l.Epoch, starting, len(l.Parts))
		}
	}
	for id, n := range current { // order: only a yes or no comes out
		if n > 1 {
			return fmt.Errorf("task %d holds %d leases at once", id, n)
		}
	}
	return nil
}

// checkTasks: every task is where its state says, and every waiting task has a
// reason.
func (e *Engine) checkTasks() error {
	waiting := map[work.TaskID]bool{}
	for _, name := range e.order {
		for _, l := range e.pools[name].queue.AllLines() { // order: a set
			for _, x := range l.Items() {
				waiting[x.ID] = true
			}
		}
	}
	for _, t := range e.sortedTasks() {
		holds := t.lease != nil
		switch {
		case (t.State == work.Queued && !t.back() || e.sleeps(t) && t.Awake) != waiting[t.ID]:
			return fmt.Errorf("task %d is %s, in line: %v", t.ID, t.State, waiting[t.ID])
		case holds != (t.State == work.Starting || t.State == work.StateRunning || t.State == work.Yielding || t.State == work.Parked):
			return fmt.Errorf("task %d is %s, with a lease: %v", t.ID, t.State, holds)
		case t.inLine != waiting[t.ID]:
			return fmt.Errorf("task %d says it is in line: %v", t.ID, t.inLine)
		case t.State == work.Queued && e.whyWaiting(t).Code == "":
			return fmt.Errorf("task %d waits without a reason", t.ID)
		}
		if t.State == work.Queued {
			if err := e.checkAwaits(t); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkSums: free + leased + cordoned + broken = all.
func (e *Engine) checkSums() error {
	var free, leased, cordoned, unusable int
	for _, g := range e.cluster.GPUs {
		h := e.cluster.Hosts[g.Host]
		switch {
		case len(g.Held) > 0:
			leased++
		case g.Health == gpu.HealthCordoned || g.Health == gpu.HealthDraining || g.Health == gpu.HealthDrained:
			cordoned++
		case g.Health != gpu.HealthOK || g.Kept || !h.Up || h.Cordoned:
			unusable++
		default:
			free++
		}
	}
	inIndex := 0
	for _, name := range e.order {
		inIndex += e.cluster.FreeGPUs(name)
	}
	if free != inIndex || free+leased+cordoned+unusable != len(e.cluster.GPUs) {
		return fmt.Errorf("%d GPUs are free by count and %d by the index; with %d leased, %d cordoned and %d unusable there are %d", free, inIndex, leased, cordoned, unusable, len(e.cluster.GPUs))
	}
	return nil
}

// Ledger watches the facts of a history for what a single state cannot show:
// that every arrow is legal, no task ends twice or is lost, no member runs twice
// at one epoch, and that replaying the facts gives the same state.
type Ledger struct {
	cfg     Config
	shadow  *Engine
	states  map[work.TaskID]work.State
	started map[work.Owner]bool
	epochs  map[work.TaskID]uint32
}

// NewLedger makes a ledger for an engine with this configuration.
func NewLedger(cfg Config) *Ledger {
	return &Ledger{cfg: cfg, shadow: New(cfg), states: map[work.TaskID]work.State{}, started: map[work.Owner]bool{}, epochs: map[work.TaskID]uint32{}}
}

// Add takes the facts of one Step of e.
func (l *Ledger) Add(e *Engine, facts []Fact) error {
	for _, f := range facts {
		if err := l.one(e.now, f); err != nil {
			return fmt.Errorf("%s %+v: %w", f.Kind(), f, err)
		}
		b, err := Encode(e.now, f)
		if err != nil {
			return err
		}
		at, decoded, err := Decode(b)
		if err != nil {
			return err
		}
		if err := l.shadow.Replay(at, decoded); err != nil {
			return err
		}
	}
	l.shadow.now = e.now
	return nil
}

func (l *Ledger) one(now work.Time, f Fact) error {
	switch f := f.(type) {
	case Submitted:
		if _, known := l.states[f.Task]; known {
			return fmt.Errorf("task %d was accepted twice", f.Task)
		}
		l.states[f.Task] = work.Queued
	case Placed:
		if f.Epoch <= l.epochs[f.Task] {
			return fmt.Errorf("epoch %d was used before", f.Epoch)
		}
		l.epochs[f.Task] = f.Epoch
		if err := l.mayBePlaced(f); err != nil {
			return err
		}
		if err := l.onSound(f); err != nil {
			return err
		}
		if err := l.withinLimit(f); err != nil {
			return err
		}
	case Resizing:
		return l.growsSound(f)
	case Faulted:
		return l.countedOnce(f)
	case Reserved:
		l.shadow.now = max(l.shadow.now, now)
		return l.mayYield(f)
	case Started:
		if l.started[f.Owner] {
			return fmt.Errorf("owner %v was started twice", f.Owner)
		}
		l.started[f.Owner] = true
	case Became:
		was, known := l.states[f.Task]
		if !known || !was.CanBecome(f.State) {
			return fmt.Errorf("task %d may not go from %q to %q", f.Task, was, f.State)
		}
		l.states[f.Task] = f.State
	case RolloutEnded:
		l.shadow.now = max(l.shadow.now, now)
		return l.shadow.checkBack(f)
	case Forgotten:
		for _, id := range f.Tasks {
			if !l.states[id].Terminal() {
				return fmt.Errorf("task %d was forgotten while it was %s", id, l.states[id])
			}
		}
	}
	return nil
}

// withinLimit: a placement never takes a tenant past its limit at that time.
func (l *Ledger) withinLimit(f Placed) error {
	t := l.shadow.tasks[f.Task]
	if t == nil {
		return fmt.Errorf("placed task %d is not known", f.Task)
	}
	milli := l.shadow.use[t.Spec.Tenant].milli
	for _, p := range f.Parts {
		milli += p.Milli()
	}
	if x := l.shadow.tenants[t.Spec.Tenant]; x != nil && x.LimitGPUs > 0 && float64(milli) > x.LimitGPUs*1000 {
		return fmt.Errorf("tenant %s now holds %d thousandths, its limit is %g GPUs", x.Name, milli, x.LimitGPUs)
	}
	return nil
}

// Same compares the replayed state with the live one, byte for byte, and both
// with what a restored snapshot says; and the deadlines that all three keep.
func (l *Ledger) Same(e *Engine) error {
	live, err := e.Snapshot()
	if err != nil {
		return err
	}
	replayed, err := l.shadow.Snapshot()
	if err != nil {
		return err
	}
	if !bytes.Equal(live, replayed) {
		return fmt.Errorf("replaying the journal gives another state:\nlive     %s\nreplayed %s", live, replayed)
	}
	restored, err := Restore(l.cfg, live)
	if err != nil {
		return err
	}
	again, err := restored.Snapshot()
	if err != nil {
		return err
	}
	if !bytes.Equal(live, again) {
		return fmt.Errorf("restoring the snapshot gives another state:\nlive     %s\nrestored %s", live, again)
	}
	if a, b, c := e.deadlines(), l.shadow.deadlines(), restored.deadlines(); !slices.Equal(a, b) || !slices.Equal(a, c) {
		return fmt.Errorf("other deadlines are kept:\nlive     %v\nreplayed %v\nrestored %v", a, b, c)
	}
	return nil
}
