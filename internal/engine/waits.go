package engine

import (
	"strconv"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/placement"
	"github.com/gpupool/gpupool/internal/work"
)

// whyWaiting says why a queued task is not placed, with the arithmetic.
func (e *Engine) whyWaiting(t *Task) work.Reason {
	if t.back() {
		return e.whyBack(t)
	}
	p := t.pool
	if why := e.mayNot(p, t); why.Code != "" {
		return why
	}
	r := p.wants(t)
	q := placement.Query{Pool: p.Name, Tenant: t.Spec.Tenant, Request: r}
	if why := e.whyApart(p, t, q); why.Code != "" {
		return why
	}
	if e.cluster.Find(q) != nil {
		if e.find(t, q) == nil {
			return work.Reasonf(work.WaitGPUs, "needs %s; what is free was left by parked tasks, which have a right to it, and this one cannot be asked to leave (no-preempt)", r)
		}
		return e.whyTurn(p, t)
	}
	lifted := e.lift(p)
	defer e.restore(p, lifted)
	if len(lifted) > 0 && e.cluster.Find(q) != nil {
		x := lifted[0]
		o := e.tasks[x.Task]
		return work.Reasonf(work.WaitTurn, "it would fit now, but what is free is kept for %s (%s) until it has enough, %s, and this one may run for longer",
			taskList([]work.TaskID{o.ID}, e.owns(t)), o.Spec.Priority, e.clock(x.At))
	}
	why := e.cluster.Why(p.Name, t.Spec.Tenant, r)
	if mine := e.Reservation(t); mine != nil {
		why.Code = work.WaitReserved
		why.Msg += "; what comes free is kept for it until there is enough, " + e.clock(mine.At)
	}
	why.Msg += e.asideNote(p.Name)
	return why
}

// whyApart says that the only room is beside work that a task does not go together with.
func (e *Engine) whyApart(p *pool, t *Task, q placement.Query) work.Reason {
	if len(e.parted) == 0 {
		return work.Reason{}
	}
	lifted := e.lift(p)
	defer e.restore(p, lifted)
	if len(e.apartFrom(t, q.Request)) == 0 || e.cluster.Find(q) == nil || e.find(t, q) != nil {
		return work.Reason{}
	}
	return work.Reasonf(work.WaitGPUs, "needs %s; there is room only beside work that it slows down, or is slowed down by, on a GPU that they share", q.Request)
}

// whyTurn says why a task waits that would fit.
func (e *Engine) whyTurn(p *pool, t *Task) work.Reason {
	if x := e.tenants[t.Spec.Tenant]; x != nil && x.LimitGPUs > 0 {
		return work.Reasonf(work.WaitLimit, "tenant %s holds %g GPUs and may hold %g; the smallest slice for this task would pass that",
			x.Name, gpus(e.use[x.Name].milli), x.LimitGPUs)
	}
	if len(p.blocked) > 0 {
		return work.Reasonf(work.WaitTurn, "it would fit now, but a task that came first waits for GPUs of the same model")
	}
	return work.Reasonf(work.WaitTurn, "it fits now and is next")
}

// owns reports whether a task belongs to the tenant of t: others are not named to it.
func (e *Engine) owns(t *Task) func(work.TaskID) bool {
	return func(id work.TaskID) bool { return e.tasks[id] != nil && e.tasks[id].Spec.Tenant == t.Spec.Tenant }
}

// clock writes a time for people.
func (e *Engine) clock(at work.Time) string {
	if at >= never {
		return "when is not known yet"
	}
	return "expected about " + at.Std().Format("15:04")
}

// asideNote tells of GPUs that are kept aside after failed carves, or by someone's word.
func (e *Engine) asideNote(pool string) string {
	n := 0
	out := 0
	for g := range e.ills { // order: only counts come out
		switch x := e.cluster.GPUs[g]; {
		case e.cluster.Hosts[x.Host].Pool != pool:
		case x.Health == gpu.HealthSuspect:
			n++
		case x.Health.Out() && x.Health != gpu.HealthBroken:
			out++
		}
	}
	note := ""
	if n > 0 {
		note = "; " + strconv.Itoa(n) + " GPU(s) are kept aside after failed carves"
	}
	if out > 0 {
		note += "; " + strconv.Itoa(out) + " GPU(s) are cordoned or drained (gpupool gpus)"
	}
	return note
}
