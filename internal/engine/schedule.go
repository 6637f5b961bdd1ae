package engine

import (
	"slices"

	"github.com/gpupool/gpupool/internal/placement"
	"github.com/gpupool/gpupool/internal/queue"
	"github.com/gpupool/gpupool/internal/work"
)

// schedule places whoever can be placed, pool by pool.
func (e *Engine) schedule() {
	for _, p := range e.lines {
		if now := p.pressed(); now != p.wasPressed {
			p.wasPressed = now
			p.full = p.full || now && len(p.BorrowFrom) > 0
		}
		if !p.full && len(p.added) > 0 {
			e.newcomers(p)
		}
		for range 4 { // what is given up for others may do for someone
			if !p.full {
				break
			}
			p.full = e.pass(p)
		}
		p.full, p.added = false, p.added[:0]
		e.askForMore(p)
	}
	for _, p := range e.lines {
		if p.pressed() && slices.ContainsFunc(p.BorrowFrom, func(name string) bool { return e.pools[name] != nil && e.pools[name].stirred }) {
			e.pass(p)
			p.full = false
		}
	}
	for _, p := range e.lines {
		p.stirred, p.wasPressed = false, p.pressed()
	}
}

// pressed reports whether so many are in line that the pool asks for more GPUs.
func (p *pool) pressed() bool { return p.AskAt > 0 && p.queue.Len() > p.AskAt }

// verdict is what became of a try to place a task.
type verdict int

const (
	placed  verdict = iota
	noRoom          // it has to wait for others to end
	notNow          // it may not be placed now, whatever is free
	nowhere         // no host that is usable now could hold it: it stands in nobody's way
)

// newcomers looks at those who came since the last pass, when nothing else has
// changed: whoever waited before has no place. One that has none and goes before a
// task that GPUs are kept for needs a pass over everyone.
func (e *Engine) newcomers(p *pool) {
	if e.cfg.Rules.Past == queue.Never && p.queue.Len() > len(p.added) {
		p.full = true
		return
	}
	if len(p.added) > 1 { // they go in order among themselves
		p.full = true
		return
	}
	for _, id := range p.added {
		t := e.tasks[id]
		if !t.inLine || e.try(p, t) != noRoom || t.State == work.Parked {
			continue
		}
		keep := len(p.kept) == 0 && e.cfg.Rules.Past == queue.Reserve && e.large(p, t)
		if keep || len(p.kept) > 0 && e.mayPassAll(p, t) || e.mayReclaim(p, t) {
			p.full = true
			return
		}
	}
}

// mayPassAll reports whether some GPUs that are kept could go to a task all the same:
// it goes before the task they are kept for, or will surely have ended by then.
func (e *Engine) mayPassAll(p *pool, t *Task) bool {
	rank := e.rank(p)
	mine := rank(p.queue.Line(t.kind), t.item)
	for _, r := range p.kept {
		o := e.tasks[r.Task]
		if l := p.queue.Line(o.kind); l == nil || mine.Before(rank(l, o.item)) {
			return true
		}
	}
	return e.endsBy(t, soonestOf(p.kept, e.now))
}

// pass looks at everyone in line, in order. What is kept for a task binds only those
// behind it: so all of it is given up first, and kept anew when the walk has come to
// its task and found no place. Then those may go past that will surely have ended
// when what is kept will be needed. It reports whether GPUs are no longer kept that
// nobody has looked at.
func (e *Engine) pass(p *pool) bool {
	before := e.lift(p)
	clear(p.blocked)
	models := e.cluster.PoolModels(p.Name)
	p.failed = p.failed[:0]
	for w := p.queue.Walk(e.rank(p)); ; {
		line, item, ok := w.Next()
		if !ok {
			break
		}
		t := e.tasks[item.ID]
		switch e.try(p, t) {
		case placed:
			w.Placed()
			continue
		case noRoom:
			if t.State != work.Parked {
				e.keepFor(p, t, before)
				p.failed = append(p.failed, line)
			}
		case notNow, nowhere:
		}
		w.Drop()
		if len(p.blocked) > 0 && len(p.blocked) >= models && p.hostOnly == 0 { // a pool without GPUs may borrow
			break
		}
	}
	e.giveUp(p, before)
	e.passShort(p)
	return e.reclaim(p)
}

// passShort places tasks on what is kept for others, if they will surely have ended
// by then.
func (e *Engine) passShort(p *pool) {
	const looks = 16 // of each line
	until := soonestOf(p.kept, e.now)
	if until <= e.now || !e.idleKept(p) {
		return
	}
	lifted := e.lift(p)
	var few [looks]queue.Item
	for _, line := range p.failed {
		for _, x := range append(few[:0], line.Items()[:min(looks, line.Len())]...) {
			if t := e.tasks[x.ID]; e.endsBy(t, until) && e.try(p, t) == noRoom {
				break
			}
		}
	}
	e.restore(p, lifted)
}

// try places a task if it may and can be.
func (e *Engine) try(p *pool, t *Task) verdict {
	if t.State == work.Parked {
		return e.resettle(t)
	}
	if e.mayNot(p, t).Code != "" {
		return notNow
	}
	r := p.wants(t)
	q := placement.Query{Pool: p.Name, Tenant: t.Spec.Tenant, Request: r, Blocked: p.blocked}
	parts := e.findMost(p, t, q)
	if parts == nil {
		parts = e.borrow(p, t, q)
	}
	if parts != nil {
		if e.overLimit(t, milliOf(parts)) {
			return notNow
		}
		e.place(t, parts)
		return placed
	}
	if !e.cluster.Possible(p.Name, r, true) {
		return nowhere
	}
	if e.cfg.Rules.Past == queue.Never {
		for _, m := range e.cluster.Wanted(p.Name, r) {
			p.blocked[m] = true
		}
	}
	if !e.parkFor(p, t) {
		e.resizeFor(p, t)
	}
	return noRoom
}

func milliOf(parts []work.Part) int {
	n := 0
	for _, p := range parts {
		n += p.Milli()
	}
	return n
}

// mayNot says why a task may not be placed now, whatever is free; no code when it may.
func (e *Engine) mayNot(p *pool, t *Task) work.Reason {
	x := e.tenants[t.Spec.Tenant]
	least := 0
	if x != nil && x.LimitGPUs > 0 || p.ReserveGPUs > 0 {
		least = e.cluster.LeastMilli(p.Name, p.wants(t))
	}
	switch use := e.use[t.Spec.Tenant]; {
	case e.leaves(t):
		return work.Reasonf(work.WaitTurn, "it starts again to have another size or place, and what it held is being freed")
	case e.overLimit(t, least):
		return work.Reasonf(work.WaitLimit, "tenant %s holds %g GPUs and may hold %g; this task needs %g more", x.Name, gpus(use.milli), x.LimitGPUs, gpus(least))
	case x != nil && x.MaxRunning > 0 && use.running >= x.MaxRunning:
		return work.Reasonf(work.WaitLimit, "tenant %s has %d tasks that hold something, and may have %d", x.Name, use.running, x.MaxRunning)
	}
	if a := e.arrays[t.Array]; a != nil && a.limit > 0 && a.running >= a.limit {
		return work.Reasonf(work.WaitLimit, "%d tasks of array %d hold something, and its limit is %d", a.running, t.Array, a.limit)
	}
	if e.overReserve(p, t, least) {
		all, _ := e.beyondReserve(p)
		return work.Reasonf(work.WaitReserve, "pool %s keeps %g of its %g GPUs for inference and interactive work; other tasks hold %g, and this one needs %g more",
			p.Name, p.ReserveGPUs, gpus(all), gpus(p.training), gpus(least))
	}
	return work.Reason{}
}

// overReserve reports whether a task would take what its pool keeps for inference and
// interactive work.
func (e *Engine) overReserve(p *pool, t *Task, milli int) bool {
	if p.ReserveGPUs == 0 || t.Spec.Class.Latency() {
		return false
	}
	_, most := e.beyondReserve(p)
	return p.training+milli > most
}

// beyondReserve is what a pool has in all, and without what it keeps for inference and
// interactive work, in thousandths of GPUs.
func (e *Engine) beyondReserve(p *pool) (all, most int) {
	all, _, _ = e.cluster.Capacity(p.Name)
	return all, all - int(p.ReserveGPUs*1000)
}

func gpus(milli int) float64 { return float64(milli) / 1000 }

// overLimit reports whether a tenant would hold more than it may.
func (e *Engine) overLimit(t *Task, milli int) bool {
	x := e.tenants[t.Spec.Tenant]
	return x != nil && x.LimitGPUs > 0 && float64(e.use[t.Spec.Tenant].milli+milli) > x.LimitGPUs*1000
}

// borrow finds a place on the idle GPUs of a pool that lends, once the task's own pool
// has as many waiting as make it ask for more. Outside clients never are guests, as
// they cannot be asked to leave.
func (e *Engine) borrow(p *pool, t *Task, q placement.Query) []work.Part {
	if !p.pressed() || t.Spec.External() || t.Spec.NoPreempt {
		return nil
	}
	for _, name := range p.BorrowFrom {
		if from := e.pools[name]; from != nil && from != p && from.queue.Len() == 0 && len(from.kept) == 0 {
			q.Pool, q.Blocked, q.Request = name, nil, from.wants(t)
			parts := e.find(t, q)
			_, most := e.beyondReserve(from)
			switch n := milliOf(parts); {
			case parts == nil, from.training+from.lent+n > most:
			case from.LendGPUs > 0 && from.lent+n > int(from.LendGPUs*1000):
			default:
				return parts
			}
		}
	}
	return nil
}

// guest reports whether a task holds something of another pool than its own.
func (e *Engine) guest(l *Lease) bool {
	return slices.ContainsFunc(l.Parts, func(p *Part) bool { return e.cluster.Hosts[p.Host].Pool != l.of.pool.Name })
}
