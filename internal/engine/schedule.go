package engine

import (
	"slices"
	"strconv"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/placement"
	"github.com/gpupool/gpupool/internal/work"
)

// schedule places whoever can be placed, pool by pool.
//
// Within a pool the line is served in order, GPU model by GPU model: a task that
// does not fit now has the first right to every model it could use, and those
// behind it may only use other models. A task that could not fit even on the
// empty hosts that are usable now, or whose tenant holds as much as it may,
// stands in nobody's way.
func (e *Engine) schedule() {
	for _, p := range e.lines {
		switch {
		case p.full:
			e.fullPass(p)
		case len(p.added) > 0:
			for _, id := range p.added {
				if t := e.tasks[id]; t.State == work.Queued {
					e.try(p, t, p.ahead(t.Spec.Priority))
				}
			}
		}
		p.full, p.added = false, p.added[:0]
	}
}

// fullPass looks at everyone in line until every model is spoken for.
func (e *Engine) fullPass(p *pool) {
	for _, set := range p.blocked {
		clear(set)
	}
	models := e.cluster.PoolModels(p.Name)
	blocked := p.emptyUnion()
	p.queue.Each(func(id work.TaskID) bool {
		e.try(p, e.tasks[id], blocked)
		return len(blocked) < models || p.hostOnly > 0
	})
}

// ahead is what tasks of the same or a higher priority have the first right to.
// A newcomer stands behind all of those and before the rest.
func (p *pool) ahead(pr work.Priority) placement.ModelSet {
	union := p.emptyUnion()
	for i := work.Priority(0); i <= pr; i++ {
		for m := range p.blocked[i] { // order: a union of sets
			union[m] = true
		}
	}
	return union
}

// emptyUnion is p.union, empty.
func (p *pool) emptyUnion() placement.ModelSet {
	if p.union == nil {
		p.union = placement.ModelSet{}
	}
	clear(p.union)
	return p.union
}

// try places a task if it may and can be. If it only cannot yet, its models are
// added to blocked and kept for newcomers.
func (e *Engine) try(p *pool, t *Task, blocked placement.ModelSet) {
	r := p.effective(t.Spec.Request)
	if e.overLimit(t, leastMilli(r)) {
		return
	}
	parts := e.cluster.Find(placement.Query{Pool: p.Name, Tenant: t.Spec.Tenant, Request: r, Blocked: blocked})
	if parts != nil {
		milli := 0
		for _, part := range parts {
			milli += part.Milli()
		}
		if !e.overLimit(t, milli) {
			e.place(t, parts)
		}
		return
	}
	if !e.cluster.Possible(p.Name, r, true) {
		return
	}
	if p.blocked[t.Spec.Priority] == nil {
		p.blocked[t.Spec.Priority] = placement.ModelSet{}
	}
	for _, m := range e.cluster.Wanted(p.Name, r) {
		blocked[m] = true
		p.blocked[t.Spec.Priority][m] = true
	}
}

// overLimit reports whether a tenant would hold more than it may.
func (e *Engine) overLimit(t *Task, milli int) bool {
	x := e.tenants[t.Spec.Tenant]
	return x != nil && x.LimitGPUs > 0 && float64(e.held[t.Spec.Tenant]+milli) > x.LimitGPUs*1000
}

// whyWaiting says why a queued task is not placed, with the arithmetic.
func (e *Engine) whyWaiting(t *Task) work.Reason {
	p := e.pools[t.Spec.Pool]
	r := p.effective(t.Spec.Request)
	if x := e.tenants[t.Spec.Tenant]; e.overLimit(t, leastMilli(r)) {
		return work.Reasonf(work.WaitLimit, "tenant %s holds %g GPUs and may hold %g; this task needs %g more",
			x.Name, float64(e.held[x.Name])/1000, x.LimitGPUs, float64(leastMilli(r))/1000)
	}
	parts := e.cluster.Find(placement.Query{Pool: p.Name, Tenant: t.Spec.Tenant, Request: r})
	if parts == nil {
		why := e.cluster.Why(p.Name, t.Spec.Tenant, r)
		if until := e.suspectNote(p.Name); until != "" {
			why.Msg += until
		}
		return why
	}
	if first := e.firstBefore(p, t); first != nil {
		return work.Reasonf(work.WaitTurn, "it would fit now, but task %d (%s, %s) came first and waits for GPUs of the same model",
			first.ID, first.Spec.Priority, first.Spec.Request)
	}
	if x := e.tenants[t.Spec.Tenant]; x != nil && x.LimitGPUs > 0 {
		return work.Reasonf(work.WaitLimit, "tenant %s holds %g GPUs and may hold %g; the smallest slice for this task would pass that",
			x.Name, float64(e.held[x.Name])/1000, x.LimitGPUs)
	}
	return work.Reasonf(work.WaitTurn, "it fits now and is next")
}

// firstBefore is the first task in line before t that has the first right to
// every model t could use.
func (e *Engine) firstBefore(p *pool, t *Task) *Task {
	mine := e.cluster.Candidates(p.Name, p.effective(t.Spec.Request))
	var first *Task
	p.queue.Each(func(id work.TaskID) bool {
		if id == t.ID {
			return false
		}
		x := e.tasks[id]
		r := p.effective(x.Spec.Request)
		if e.overLimit(x, leastMilli(r)) || !e.cluster.Possible(p.Name, r, true) {
			return true
		}
		for _, m := range e.cluster.Wanted(p.Name, r) {
			if slices.Contains(mine, m) {
				first = x
				return false
			}
		}
		return true
	})
	return first
}

// suspectNote tells of GPUs that are kept aside after failed carves.
func (e *Engine) suspectNote(pool string) string {
	n := 0
	for g := range e.strikes { // order: only a count comes out
		x := e.cluster.GPUs[g]
		if x.Health == gpu.HealthSuspect && e.cluster.Hosts[x.Host].Pool == pool {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return "; " + strconv.Itoa(n) + " GPU(s) are kept aside after failed carves"
}
