package engine

import (
	"cmp"
	"math"
	"slices"

	"github.com/gpupool/gpupool/internal/elastic"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/placement"
	"github.com/gpupool/gpupool/internal/work"
)

// change is a move of a running task that would leave something for others.
type change struct {
	t      *Task
	slices []work.Slice  // in place: what its only part has then
	to     *work.Request // by a restart: what it asks for then
	price  int64         // GPU milliseconds in which its GPUs do nothing
	why    string
}

// Bounds of one look for room. mostChanges is of tasks on one host for one who waits,
// mostHosts of hosts that are tried.
const (
	mostChanges = 4
	mostHosts   = 64
)

// resizeFor sees whether others can take less, or another place, so that a task that
// waits finds room.
func (e *Engine) resizeFor(p *pool, t *Task) {
	r := p.wants(t)
	if len(p.supple) == 0 || p.modeFor(t.Spec.Tenant) != work.Dynamic || r.HostOnly() ||
		t.looked != 0 && e.now < t.looked.Add(lookEvery) {
		return
	}
	t.looked = e.now
	if slices.ContainsFunc(p.supple, func(v *Task) bool { return v.Plan != nil && v.Plan.For == t.ID }) {
		return
	}
	cs := e.cheapestChanges(p, t, r)
	if len(cs) > 0 {
		for _, c := range cs {
			e.begin(c, t)
		}
		return
	}
	may := func(v *Task) bool { return v.Plan == nil && e.movable(v) && e.mayRestart(v) }
	if !slices.ContainsFunc(p.supple, may) {
		return
	}
	moved, _ := e.consolidation(t, may)
	var price int64
	for _, v := range moved {
		x, _ := e.restartPrice(v)
		price += x
	}
	if !e.worth(t, r, price) {
		return
	}
	for _, v := range moved {
		e.announce(v, Plan{Move: work.MoveAway, To: v.Size, For: t.ID, Reason: work.Reasonf(work.Moved,
			"it is moved elsewhere, so that %s finds room", taskList([]work.TaskID{t.ID}, e.owns(v)))})
	}
}

// begin makes a change, or announces it.
func (e *Engine) begin(c change, t *Task) {
	why := work.Reasonf(work.Resized, "%s, and %s waits for room", c.why, taskList([]work.TaskID{t.ID}, e.owns(c.t)))
	if c.slices != nil {
		e.resize(c.t, c.slices, why)
		return
	}
	e.announce(c.t, Plan{Move: work.MoveRestart, To: c.to, For: t.ID, Reason: why})
}

// worth reports whether a task that waits gains more than moves cost: the GPU time that it
// would not have to wait for, as far as it is known, against that in which GPUs do nothing.
func (e *Engine) worth(t *Task, r work.Request, price int64) bool {
	if price == 0 {
		return true
	}
	_, at, ok := e.cluster.Soonest(placement.Query{Pool: t.pool.Name, Tenant: t.Spec.Tenant, Request: r}, e.now, holders{e})
	if !ok || at >= never {
		return true // it might wait for ever
	}
	return elastic.Worth(at.Sub(e.now), max(leastMilli(r), e.cluster.LeastMilli(t.pool.Name, r)), price)
}

// cheapestChanges finds the tasks of one host that take less so that a task finds room.
func (e *Engine) cheapestChanges(p *pool, t *Task, r work.Request) []change {
	var hosts []int
	on := map[int][]change{}
	for _, v := range p.supple {
		if v.Plan != nil || v == t {
			continue
		}
		c, ok := e.less(v, t, r)
		if !ok {
			continue
		}
		h := v.lease.Parts[0].Host
		if on[h] == nil {
			if len(hosts) == mostHosts {
				continue
			}
			hosts = append(hosts, h)
		}
		on[h] = append(on[h], c)
	}
	var best []change
	least := int64(math.MaxInt64)
	for _, h := range hosts {
		slices.SortStableFunc(on[h], func(a, b change) int { return cmp.Compare(a.price, b.price) })
		cs, ok := e.tryChanges(t, on[h][:min(len(on[h]), mostChanges)])
		if !ok {
			continue
		}
		price := int64(0)
		for _, c := range cs {
			price += c.price
		}
		if price < least && e.worth(t, r, price) {
			best, least = cs, price
		}
	}
	return best
}

// tryChanges sees which of some changes, made one after another, let a task fit.
func (e *Engine) tryChanges(t *Task, cs []change) ([]change, bool) {
	q := placement.Query{Pool: t.pool.Name, Tenant: t.Spec.Tenant, Request: t.pool.wants(t)}
	try := e.cluster.Try()
	defer try.Undo()
	var done []change
	for _, c := range cs {
		mark := try.Mark()
		if !e.tryChange(try, c) {
			try.UndoTo(mark)
			continue
		}
		done = append(done, c)
		if e.cluster.Find(q) != nil {
			return done, true
		}
	}
	return nil, false
}

// tryChange makes a change in a what-if. It reports whether the task has a place then.
func (e *Engine) tryChange(try *placement.Trial, c change) bool {
	v := c.t
	who := func(i int) placement.Holder {
		return placement.Holder{Owner: v.lease.owner(i), Tenant: v.Spec.Tenant, Priority: v.Spec.Priority}
	}
	for i, p := range v.lease.Parts {
		try.Free(v.lease.owner(i), p.Part)
	}
	if c.slices != nil {
		part := v.lease.Parts[0].Part
		part.Slices = c.slices
		try.Take(who(0), part)
		return true
	}
	r := v.Spec.Request
	if c.to != nil {
		r = *c.to
	}
	parts := e.cluster.Find(placement.Query{Pool: v.pool.Name, Tenant: v.Spec.Tenant, Request: v.pool.grants(v.Spec, r)})
	for i, part := range parts {
		try.Take(who(i), part)
	}
	return parts != nil
}

// less is how a running task could leave something for one that waits.
func (e *Engine) less(v, t *Task, r work.Request) (change, bool) {
	if !e.movable(v) {
		return change{}, false
	}
	if c, ok := e.lessInPlace(v, t, r); ok {
		return c, true
	}
	if !e.mayRestart(v) {
		return change{}, false
	}
	if c, ok := e.fewerGPUs(v, r); ok {
		return c, true
	}
	return e.smallerPart(v)
}

// lessInPlace makes a light or idle task's share smaller, or its whole GPU a share, for
// another of its tenant that can have a share.
func (e *Engine) lessInPlace(v, t *Task, r work.Request) (change, bool) {
	s, ok := v.onlySlice()
	light := v.Use.Kind == elastic.Light || v.Use.Kind == elastic.Idle
	if !ok || !light || v.Use.MemMiB <= 0 || v.Spec.Tenant != t.Spec.Tenant || v.Spec.NoShare || !r.IsPart() ||
		!slices.ContainsFunc(r.FitPart(e.cluster.Geometry(s.GPU).Model), func(f work.Fit) bool { return f.Profile < 0 }) {
		return change{}, false
	}
	least := cmp.Or(v.Spec.MinMilli, 1000/max(e.cfg.Sharers, 1))
	switch {
	case s.Mode == gpu.ModeShared:
	case s.Mode == gpu.ModeWhole && e.onIdle(v) == work.IdleShare:
		least = min(least, 1000/max(e.cfg.Sharers, 1))
	default:
		return change{}, false
	}
	size := min(max(e.needs(v, s), least), 999)
	mem := min(v.Use.MemMiB*5/4, e.cluster.Geometry(s.GPU).Model.MemoryMiB)
	if s.Mode == gpu.ModeShared {
		mem = min(mem, s.Share.MemMiB)
	}
	if size >= s.Milli {
		return change{}, false
	}
	c := change{t: v, why: e.uses(v) + " of its GPU"}
	s.Mode, s.Milli, s.Share = gpu.ModeShared, size, &work.Share{Milli: size, MemMiB: mem}
	c.slices = []work.Slice{s}
	return c, true
}

// needs is what a task needs of a GPU so that its use stays under the spare mark.
func (e *Engine) needs(v *Task, s work.Slice) int {
	used := 0.0
	if v.Use.Kind != elastic.Idle {
		used = v.Use.Compute
	}
	return int(math.Ceil(used * float64(s.Milli) / elastic.MarksOf(v.pool.Elastic).Spare))
}

// uses says how little a task uses.
func (e *Engine) uses(v *Task) string {
	if v.Use.Kind == elastic.Idle {
		return "it has used nothing for " + inSeconds(e.now.Sub(v.Use.Since))
	}
	return "for ten minutes it stayed under " + percent(v.Use.Compute)
}

// fewerGPUs gives a task that can run with fewer GPUs as many less as the other needs.
func (e *Engine) fewerGPUs(v *Task, r work.Request) (change, bool) {
	held := len(v.lease.Parts[0].Slices)
	least := v.Spec.Request.GPUs
	if v.Spec.MinMilli > 0 {
		least = v.Spec.MinMilli / 1000
	}
	if v.Spec.Request.GPUs == 0 || held <= least {
		return change{}, false
	}
	to := v.Spec.Request
	to.GPUs = max(least, held-max(r.GPUs, 1))
	c := change{t: v, to: &to, why: "it can run with fewer GPUs"}
	c.price, _ = e.restartPrice(v)
	return c, true
}

// smallerPart gives a light task with a GPU, or an instance of one, an instance that is
// enough for it.
func (e *Engine) smallerPart(v *Task) (change, bool) {
	s, ok := v.onlySlice()
	if !ok || v.Use.Kind != elastic.Light || v.Use.MemMiB <= 0 || v.Spec.NoShare || s.Mode == gpu.ModeShared {
		return change{}, false
	}
	x := v.pool.Elastic
	needs := max(e.needs(v, s), v.Spec.MinMilli, cmp.Or(x.Smallest, 142))
	if needs > cmp.Or(x.Largest, 500) {
		return change{}, false
	}
	r := v.Spec.Request
	to := work.Request{Milli: needs, GPUMemMiB: v.Use.MemMiB * 5 / 4, Models: r.Models, CPUMilli: r.CPUMilli, MemMiB: r.MemMiB}
	smaller := false
	for _, f := range to.FitPart(e.cluster.Geometry(s.GPU).Model) {
		smaller = smaller || f.Milli < s.Milli
	}
	c := change{t: v, to: &to, why: e.uses(v) + " of its GPU"}
	c.price, _ = e.restartPrice(v)
	return c, smaller
}

// consolidation finds tasks that, each in another place, leave a task room, and what that
// is. Only those asked for are moved.
func (e *Engine) consolidation(t *Task, may func(*Task) bool) (moved []*Task, parts []work.Part) {
	m, ok := e.cluster.Consolidate(placement.Reclaim{
		Query: placement.Query{Pool: t.pool.Name, Tenant: t.Spec.Tenant, Request: t.pool.wants(t)}, Below: work.High,
		Claim: func(o work.Owner) (placement.Claim, bool) {
			v := e.tasks[o.Task]
			if v == nil || v.pool != t.pool || !may(v) {
				return placement.Claim{}, false
			}
			k, ok := e.claim(o)
			k.Lost, _ = e.restartPrice(v)
			return k, ok
		},
	})
	if !ok {
		return nil, nil
	}
	for _, x := range m.Moves {
		if v := e.tasks[x.Owner.Task]; !slices.Contains(moved, v) {
			moved = append(moved, v)
		}
	}
	return moved, m.Parts
}
