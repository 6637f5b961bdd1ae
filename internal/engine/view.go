package engine

import (
	"cmp"
	"slices"

	"github.com/gpupool/gpupool/internal/placement"
	"github.com/gpupool/gpupool/internal/work"
)

// The methods in this file read. What they return by pointer belongs to the
// engine: callers copy what they keep and change nothing.

// Task returns a task, or nil.
func (e *Engine) Task(id work.TaskID) *Task { return e.tasks[id] }

// Lease is the lease that a task holds now, or nil.
func (t *Task) Lease() *Lease { return t.lease }

// Tasks lists all kept tasks by number.
func (e *Engine) Tasks() []*Task { return e.sortedTasks() }

// LastTask is the highest task number given so far.
func (e *Engine) LastTask() work.TaskID { return e.lastID }

// Leases lists all leases that still hold something, by task and epoch.
func (e *Engine) Leases() []*Lease { return e.sortedLeases() }

// Hosts lists all hosts by number.
func (e *Engine) Hosts() []*placement.Host { return e.cluster.Hosts }

// GPUs lists all GPUs by number.
func (e *Engine) GPUs() []*placement.GPU { return e.cluster.GPUs }

// Cluster gives read access to placement.
func (e *Engine) Cluster() *placement.Cluster { return e.cluster }

// Tenants lists all tenants by name.
func (e *Engine) Tenants() []work.Tenant {
	out := make([]work.Tenant, 0, len(e.tenants))
	for _, t := range e.tenants { // order: sorted below
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b work.Tenant) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Tenant returns a tenant by name.
func (e *Engine) Tenant(name string) (work.Tenant, bool) {
	t := e.tenants[name]
	if t == nil {
		return work.Tenant{}, false
	}
	return *t, true
}

// HeldMilli is what a tenant holds, in thousandths of GPUs.
func (e *Engine) HeldMilli(tenant string) int { return e.use[tenant].milli }

// PoolView is a pool and what waits in it.
type PoolView struct {
	work.Pool
	InForce work.PoolMode // its mode now, which may have been set beside its settings
	Waiting int
	Idle    int // running tasks that are judged idle
	Parked  int // tasks that are suspended

	Tenants   map[string]work.PoolMode // whom it serves in a mode of their own
	Change    *ModeChange              // when its mode was last set beside its settings; nil = never
	Fallbacks int                      // how often it fell back to static by itself
	Unsettled string                   // why it is static, if it fell back; "" = it did not
}

// Pools lists all pools in their order.
func (e *Engine) Pools() []PoolView {
	var out []PoolView
	for _, name := range e.order {
		out = append(out, e.pools[name].view())
	}
	return out
}

func (p *pool) view() PoolView {
	return PoolView{Pool: p.Pool, InForce: p.mode(), Waiting: p.waiting, Idle: len(p.idle), Parked: p.parked,
		Tenants: p.byTenant, Change: p.guard.change, Fallbacks: p.guard.falls, Unsettled: p.whyStatic()}
}

// Explanation says why a task is where it is.
type Explanation struct {
	Task   *Task
	Reason work.Reason
	Ahead  int      // tasks before it in the line of its pool; only while queued
	Start  Start    // when it is expected to start; only while queued
	Sooner []string // what would let it start sooner, in sentences; only while queued
	Pool   string   // that its pool fell back to static, and why; "" = it did not
	Faults string   // what the hardware reported of its program; "" = nothing
}

// Why says why a task is where it is, without what could be done about it: for lists.
func (e *Engine) Why(t *Task) work.Reason {
	if t.State == work.Queued {
		return e.whyWaiting(t)
	}
	return t.Reason
}

// Explain says why a task waits, or where it sits, or how it ended.
func (e *Engine) Explain(id work.TaskID) (Explanation, error) {
	t := e.tasks[id]
	if t == nil {
		return Explanation{}, work.Errorf(work.CodeNotFound, "task %d is not known; ended tasks are forgotten after a while", id)
	}
	x := Explanation{Task: t, Reason: e.Why(t), Faults: t.faultWords()}
	if !t.State.Terminal() {
		x.Pool = t.pool.whyStatic()
	}
	switch {
	case t.State == work.Queued:
		if x.Reason.Code == work.WaitGPUs || x.Reason.Code == work.WaitReserved {
			x.Reason.Msg += e.roomFor(t)
		}
		if t.inLine {
			x.Start, x.Sooner = e.Starts(t.Spec.Pool)[id], e.sooner(t)
			x.Ahead = t.pool.queue.Ahead(t.pool.queue.Line(t.kind), t.item, e.rank(t.pool))
		}
		if t.Reason.Code != "" { // it was placed before
			x.Reason.Msg += "; before that: " + t.Reason.Msg
		}
	case t.State == work.Parked:
		x.Reason = e.whyParked(t)
	case t.State == work.StateRunning && e.onLent(t):
		x.Reason.Msg += "; it is a guest: a parked task has a right to its GPU, and it yields when that is woken"
	case t.State == work.StateRunning && e.onAiling(t) && !t.lease.Closing && !t.lease.Recalled:
		x.Reason.Msg += e.ailingNote(t)
	case t.lease != nil && t.lease.Closing:
		x.Reason = t.lease.Reason
		x.Reason.Msg += "; its members are being ended, then it is " + string(t.lease.Then)
	}
	return x, nil
}
