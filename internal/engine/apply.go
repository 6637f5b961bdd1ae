package engine

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/placement"
	"github.com/gpupool/gpupool/internal/work"
)

// apply is the only place where the state changes.
func (e *Engine) apply(f Fact) {
	e.countMoves(f)
	e.watchRollout(f)
	switch f := f.(type) {
	case PoolSet:
		e.applyPool(f.Pool)
	case TenantSet:
		t := f.Tenant
		e.tenants[t.Name] = &t
		e.unscaled = true
		e.reweigh()
		e.wakeAll()
	case TenantRemoved:
		delete(e.tenants, f.Name)
		for _, p := range e.lines { // what an ended task still holds is freed by and by
			if a := p.accounts[f.Name]; a != nil && !a.active() {
				delete(p.accounts, f.Name)
			}
		}
		e.unscaled = true
		e.reweigh()
	case TokenSet, TokenRemoved:
		e.applyToken(f)
	case ModelLearned:
		e.cluster.SetModel(f.Model)
		e.learned = slices.DeleteFunc(e.learned, func(m gpu.Model) bool { return m.Key == f.Model.Key })
		e.learned = append(e.learned, f.Model)
		e.wakeAll()
	case HostJoined:
		e.cluster.AddHost(f.Host, f.Pool)
	case HostChanged:
		e.applyHost(f)
	case HostMoved:
		e.applyMoved(f)
	case GPUChanged:
		e.applyGPU(f)
	case HostShares:
		e.cluster.Hosts[f.Host].Info.Sharing = f.Sharing
	case Faulted:
		e.applyFaulted(f)
	case Submitted:
		e.applySubmitted(f)
	case Placed:
		e.applyPlaced(f)
	case Held:
		e.applyHeld(f)
	case Checkpointed:
		e.tasks[f.Task].Checked = e.now
	case Reserved:
		e.applyReserved(f)
	case AskedForMore:
		e.pools[f.Pool].asked = e.now
	case Became:
		e.applyBecame(f)
	case Judged, Suspending, Suspended, Woken, Resuming, Resumed, MoveFailed, ModeSet, Shadowed:
		e.applyMove(f)
	case Sized, Planned, Dropped, Resizing, Resized, Parted:
		e.applyPlan(f)
	case RolloutBegan, RolloutStepped, RolloutEnded:
		e.applyRollout(f)
	case Forgotten:
		e.applyForgotten(f.Tasks)
	default:
		e.applyLease(f)
	}
	e.bookFact(f)
}

func (e *Engine) applyPool(p work.Pool) {
	if old := e.pools[p.Name]; old != nil {
		mode, tenants, weight := old.mode(), len(old.byTenant), old.weight()
		defer e.reviewSupple(old)
		e.forgetModes(old, p)
		again := !reflect.DeepEqual(old.Elastic, p.Elastic) // it says what is lent
		old.Pool = p
		old.full, old.stirred = true, true                                                // it may lend more than before
		if mode != old.mode() || tenants != len(old.byTenant) || weight != old.weight() { // then its tasks ask for something else, or their turns are others
			e.requeue(old)
		}
		if again || mode != old.mode() || tenants != len(old.byTenant) {
			e.reshade(old)
		}
		return
	}
	e.pools[p.Name] = &pool{Pool: p, full: true, accounts: map[string]*account{}, blocked: placement.ModelSet{}, number: len(e.lines), books: newPoolBooks(e.now)}
	e.pools[p.Name].recount(e.now)
	e.pools[p.Name].shadow.tally.Reset(e.now)
	e.order = append(e.order, p.Name)
	e.lines = append(e.lines, e.pools[p.Name])
}

// requeue gives everyone in line a new place.
func (e *Engine) requeue(p *pool) {
	var all []*Task
	for _, l := range p.queue.AllLines() { // order: sorted below
		for _, x := range l.Items() {
			all = append(all, e.tasks[x.ID])
		}
	}
	slices.SortFunc(all, func(a, b *Task) int { return cmp.Compare(a.ID, b.ID) })
	for _, t := range all {
		p.remove(t)
		p.push(e, t)
	}
}

// applyMoved also moves what is held on the host from one pool's accounts to the other's.
func (e *Engine) applyMoved(f HostMoved) {
	e.wakeHost(f.Host)
	for _, p := range e.lines { // what is kept on it is the other pool's from now on
		for _, r := range slices.Clone(p.kept) {
			if slices.ContainsFunc(r.Parts, func(x work.Part) bool { return x.Host == f.Host }) {
				e.unreserve(e.tasks[r.Task])
			}
		}
	}
	e.accountHost(f.Host, -1)
	e.cluster.SetPool(f.Host, f.Pool)
	e.accountHost(f.Host, 1)
	e.unscaled = true
	e.wakeHost(f.Host)
}

func (e *Engine) applySubmitted(f Submitted) {
	p := e.pools[f.Spec.Pool]
	t := &Task{ID: f.Task, Spec: f.Spec, State: work.Queued, Submitted: e.now, Since: e.now, Queued: e.now, Said: f.Said,
		Array: f.Array, Index: f.Index, Held: f.Spec.Hold, pool: p}
	e.tasks[t.ID] = t
	e.lastID = t.ID
	if f.Spec.Key != "" && (f.Array == 0 || f.Array == t.ID) {
		e.keys[idempotency(f.Spec)] = t.ID
		t.keyed = true
	}
	e.enrolArray(t)
	if len(f.Spec.After)+len(f.Spec.AfterAny) > 0 {
		e.await(t)
	}
	e.countWaiting(t, 1)
	e.cluster.Asked(p.Name, p.grants(f.Spec, f.Spec.Request))
	if !t.back() {
		p.push(e, t)
		p.added = append(p.added, t.ID)
		e.startTTL(t)
	}
}

// enrolArray makes a task known to its array.
func (e *Engine) enrolArray(t *Task) {
	if t.Array == 0 {
		return
	}
	a := e.arrays[t.Array]
	if a == nil {
		a = &array{size: t.Spec.Array.Size(), limit: t.Spec.Array.Limit}
		e.arrays[t.Array] = a
	}
	a.tasks = append(a.tasks, t.ID)
}

// countWaiting counts a task that begins or ceases to wait, in line or held back.
func (e *Engine) countWaiting(t *Task, sign int) {
	t.pool.waiting += sign
	e.changeUse(t.Spec.Tenant, func(u *use) { u.waiting += sign })
	e.change(t.pool, t.Spec.Tenant, func(a *account) { a.waiting += sign })
}

// countRunning counts a task that begins or ceases to hold something.
func (e *Engine) countRunning(t *Task, sign int) {
	e.countActive(t, sign)
	e.changeUse(t.Spec.Tenant, func(u *use) { u.running += sign })
	if x := e.tenants[t.Spec.Tenant]; sign < 0 && x != nil && x.MaxRunning > 0 {
		e.wakeAll() // another of the tenant's tasks may go on, in any pool
	}
	if a := e.arrays[t.Array]; a != nil {
		a.running += sign
		t.pool.full = t.pool.full || sign < 0 && a.limit > 0
	}
}

func (e *Engine) changeUse(tenant string, do func(*use)) {
	u := e.use[tenant]
	if do(&u); u == (use{}) {
		delete(e.use, tenant)
		return
	}
	e.use[tenant] = u
}

// leave takes a waiting task out of line, and gives up what is kept for it.
func (e *Engine) leave(t *Task) {
	t.pool.remove(t)
	e.unreserve(t)
}

func (e *Engine) startTTL(t *Task) {
	if ttl := t.Spec.TTL; ttl > 0 && !t.back() {
		e.timers.add(t.Queued.Add(ttl), timerTTL, work.Owner{Task: t.ID})
	}
}

func (e *Engine) applyBecame(f Became) {
	t := e.tasks[f.Task]
	was := t.State
	if was == work.StateRunning && f.State != work.Yielding && f.State != work.Parked { // it ends; one that yields goes on for its grace
		e.stopClock(t, f)
	}
	if f.State != work.StateRunning && f.State != work.Parked {
		e.notIdle(t)
	}
	if f.State != work.StateRunning {
		t.Plan = nil
	}
	e.enrolSupple(t, f.State == work.StateRunning)
	t.State, t.Reason = f.State, f.Reason
	switch {
	case f.State == work.Queued:
		e.applyBack(t, was, f.Reason.Code)
	case f.State == work.StateRunning:
		t.ends = 0
		t.Started, t.Failures, t.Stuck = e.now, 0, 0
		if m := t.Spec.MaxRuntime; m > 0 {
			e.timers.add(e.now.Add(m-t.Ran), timerRun, work.Owner{Task: t.ID, Epoch: t.Epoch})
		}
	case f.State == work.Yielding:
		t.Saved += e.saved(t, e.now)
		t.Ran += e.now.Sub(t.Started)
		t.Carried = 0
		if f.Reason.Code == work.Preempted {
			t.Preempted++
		}
	case f.State == work.Parked:
		t.Carried += e.now.Sub(t.Started)
		t.Ran += e.now.Sub(t.Started)
	case f.State.Terminal():
		t.Ended = e.now
		e.ended = append(e.ended, t.ID)
		if was == work.Queued {
			e.leave(t)
			e.countWaiting(t, -1)
			t.pool.drained.left(e.now)
		}
		e.settle(t)
		e.endedFor(t)
	}
	e.shade(t)
}

// applyBack takes a task back to its old place in line.
func (e *Engine) applyBack(t *Task, was work.State, why work.Code) {
	if why != work.Resized && why != work.Moved && t.SizedBy == "" { // it asks for what it was submitted with
		t.Size = nil
	}
	t.Queued, t.Carried, t.Awake = e.now, 0, false
	if was == work.Starting {
		t.Failures++
	}
	e.countWaiting(t, 1)
	t.pool.push(e, t)
	e.startTTL(t)
	e.settle(t)
}

// stopClock adds up a run that is over and learns from it.
func (e *Engine) stopClock(t *Task, f Became) {
	ran := e.now.Sub(t.Started)
	if (f.State == work.Succeeded || f.State == work.Failed) && !t.Spec.External() {
		e.forecast.Learn(e.job(t.Spec), t.Said, t.Saved+t.Carried+ran)
	}
	t.Ran += ran
}

// applyForgotten drops ended tasks, which are listed in the order they ended in.
func (e *Engine) applyForgotten(ids []work.TaskID) {
	for _, id := range ids {
		t := e.tasks[id]
		if t.keyed {
			delete(e.keys, idempotency(t.Spec))
		}
		if a := e.arrays[t.Array]; a != nil {
			if a.tasks = slices.DeleteFunc(a.tasks, func(x work.TaskID) bool { return x == id }); len(a.tasks) == 0 {
				delete(e.arrays, t.Array)
			}
		}
		delete(e.tasks, id)
	}
	kept := e.ended[:0]
	for i, id := range e.ended { // they stand near its start, so most of it only moves up
		if len(ids) == 0 {
			kept = append(kept, e.ended[i:]...)
			break
		}
		if id == ids[0] {
			ids = ids[1:]
		} else {
			kept = append(kept, id)
		}
	}
	if e.ended = kept; len(ids) > 0 {
		panic(fmt.Sprintf("task %d is forgotten and had not ended, or not in this order", ids[0]))
	}
}

// applyHost also takes what is left on the host off its tenants' accounts, or puts
// it back: a host that is away may never return, and must not eat up their limits.
func (e *Engine) applyHost(f HostChanged) {
	was := e.cluster.Hosts[f.Host].Up
	if was && !f.Up {
		e.accountHost(f.Host, -1)
	}
	e.cluster.SetUsable(f.Host, f.Up, false)
	if !was && f.Up {
		e.accountHost(f.Host, 1)
	}
	e.unscaled = true
	e.wakeAll() // limits are for all pools
}

// accountHost counts everything that is held on a host, or no longer.
func (e *Engine) accountHost(host, sign int) {
	for _, l := range e.leasesOn(host) {
		for _, p := range l.Parts {
			if p.Host == host && p.Phase != PhaseFreed {
				e.count(l.of, p, sign)
			}
		}
	}
}

// count counts a part for its tenant, or no longer, unless its host is away.
func (e *Engine) count(t *Task, p *Part, sign int) {
	if !e.cluster.Hosts[p.Host].Up {
		return
	}
	e.changeUse(t.Spec.Tenant, func(u *use) { u.milli += sign * p.Milli() })
	e.charge(t, p.Part, sign)
	e.book(t, p.Part, sign)
}

// wake asks for a pass over everyone who waits in a pool.
func (e *Engine) wake(name string) {
	if p := e.pools[name]; p != nil {
		p.full, p.stirred = true, true
	}
}

// wakeHost asks for a pass over everyone who may have what came free on a host: those who
// wait in its pool, and those who are suspended there and want to go on, who wait in another
// where the host has moved since.
func (e *Engine) wakeHost(n int) {
	h := e.cluster.Hosts[n]
	e.wake(h.Pool)
	if len(e.liens) == 0 {
		return
	}
	for _, g := range h.GPUs {
		for _, t := range e.liens[g] {
			e.freer(t)
		}
	}
}

func (e *Engine) wakeAll() {
	for _, p := range e.lines {
		p.full, p.stirred = true, true
	}
}

func idempotency(s *work.Spec) string { return s.Tenant + "\x00" + s.Key }
