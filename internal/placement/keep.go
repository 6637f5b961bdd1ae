package placement

import (
	"cmp"
	"slices"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// Keep withholds from everyone the GPUs of a part, whatever stands on them, and its
// CPU and memory, until Unkeep. None of the GPUs may be kept already.
func (c *Cluster) Keep(p work.Part) { c.keep(p, true) }

// Unkeep undoes Keep with the same part.
func (c *Cluster) Unkeep(p work.Part) { c.keep(p, false) }

func (c *Cluster) keep(p work.Part, on bool) {
	h := c.Hosts[p.Host]
	cpu, mem := p.CPUMilli, p.MemMiB
	if !on {
		cpu, mem = -cpu, -mem
	}
	h.kept.cpu += cpu
	h.kept.mem += mem
	c.spend(h, cpu, mem)
	c.change(p, func(s *work.Slice) {
		g := c.GPUs[s.GPU]
		c.unindex(g)
		g.Kept = on
		c.index(g)
	})
}

// Usable reports whether a GPU can be given out, whoever holds it now.
func (c *Cluster) Usable(n int) bool { return c.usable(c.GPUs[n]) }

// Cut reports whether a request may find no room for ever as smaller ones take what
// comes free: it is for more than the smallest part, where there are parts.
func (c *Cluster) Cut(pool string, r work.Request) bool {
	if r.IsPart() {
		return c.LeastMilli(pool, r)/r.Count() > smallestMilli
	}
	for _, m := range c.Candidates(pool, r) {
		if s := c.pools[pool].shelves[m]; s.part+s.sharing > 0 {
			return true
		}
	}
	return false
}

// smallestMilli is a part that whatever comes free has room for: a seventh.
const smallestMilli = 143

// Holders says when a holder is expected to end, and what it holds.
type Holders interface {
	Until(work.Owner) work.Time
	Part(work.Owner) *work.Part
}

// Soonest finds where a request will fit the soonest if everyone ends when expected
// and nobody new comes: the parts to keep for it, and when they will be free. Parts
// name the GPUs only. Requests for a host alone have none.
//
// It looks at every host of the pool and at the GPUs of up to soonestLooks of them, so it
// is for the task that waits at the head of the line, and not for each decision.
func (c *Cluster) Soonest(q Query, now work.Time, h Holders) (parts []work.Part, at work.Time, ok bool) {
	if c.pools[q.Pool] == nil || q.Request.HostOnly() {
		return nil, 0, false
	}
	x := &soonest{c: c, q: q, now: now, until: h.Until, part: h.Part}
	for _, m := range c.Candidates(q.Pool, q.Request) {
		if q.Blocked[m] {
			continue
		}
		if p, t, can := x.onModel(m); can && (!ok || t < at) {
			parts, at, ok = p, t, true
		}
	}
	return parts, at, ok
}

type soonest struct {
	c     *Cluster
	q     Query
	now   work.Time
	until func(work.Owner) work.Time
	part  func(work.Owner) *work.Part
	ends  []ending // scratch
}

// ending is when a GPU will have room.
type ending struct {
	at  work.Time
	gpu int
}

// opening is a place for one member and when it will be free.
type opening struct {
	at   work.Time
	part work.Part
	busy int // its GPUs that are not free now: of openings at one time, those that waste least come first
}

func (x *soonest) onModel(model int) ([]work.Part, work.Time, bool) {
	n := x.q.Request.Count()
	var all []opening
	for _, h := range x.hosts(model, max(soonestLooks, n)) {
		for i := range h.bays {
			if h.bays[i].model == model {
				all = x.onBay(h, &h.bays[i], all)
			}
		}
	}
	if len(all) < n {
		return nil, 0, false
	}
	slices.SortFunc(all, func(a, b opening) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.busy, a.busy), cmp.Compare(a.part.Host, b.part.Host), cmp.Compare(a.part.Slices[0].GPU, b.part.Slices[0].GPU))
	})
	parts := make([]work.Part, n)
	for i, o := range all[:n] {
		parts[i] = o.part
	}
	return parts, all[n-1].at, true
}

// soonestLooks is the number of hosts that are weighed against each other.
const soonestLooks = 256

// hosts lists the hosts of the pool that have GPUs of a model: in large pools only those
// with the most that stand free, as many as are asked for.
func (x *soonest) hosts(model, most int) []*Host {
	var byFree [work.MaxGPUsPerMember + 1][]*Host
	n := 0
	for _, h := range x.c.Hosts {
		if h.Pool != x.q.Pool || !h.Up || h.Cordoned {
			continue
		}
		for i := range h.bays {
			if b := &h.bays[i]; b.model == model {
				byFree[b.count()] = append(byFree[b.count()], h)
				n++
			}
		}
	}
	out := make([]*Host, 0, min(n, most))
	for _, hosts := range slices.Backward(byFree[:]) {
		out = append(out, hosts[:min(len(hosts), most-len(out))]...)
	}
	return out
}

// onBay adds the openings of the GPUs of one model in a host.
func (x *soonest) onBay(h *Host, b *bay, all []opening) []opening {
	ends := x.ends[:0]
	for _, n := range b.gpus {
		if g := x.c.GPUs[n]; g.sound() {
			ends = append(ends, ending{x.onGPU(b.model, g), n})
		}
	}
	x.ends = ends
	slices.SortFunc(ends, func(a, b ending) int { return cmp.Or(cmp.Compare(a.at, b.at), a.gpu-b.gpu) })
	each := max(x.q.Request.GPUs, 1)
	for member := 1; member*each <= len(ends) && member <= x.q.Request.Count(); member++ {
		mine := ends[(member-1)*each : member*each]
		o := opening{at: mine[each-1].at, part: work.Part{Host: h.Number, CPUMilli: x.q.Request.CPUMilli, MemMiB: x.q.Request.MemMiB}}
		for _, e := range mine {
			o.part.Slices = append(o.part.Slices, work.Slice{GPU: e.gpu})
			if e.at > x.now {
				o.busy++
			}
		}
		fed, ok := x.fed(h, amount{int64(member) * x.q.Request.CPUMilli, int64(member) * x.q.Request.MemMiB})
		if !ok {
			break
		}
		o.at = max(o.at, fed)
		all = append(all, o)
	}
	return all
}

// onGPU is when a GPU has room for a member, or for its share of one.
func (x *soonest) onGPU(model int, g *GPU) work.Time {
	if len(g.Held) == 0 {
		return x.now
	}
	if x.q.Request.GPUs > 0 && len(g.Held) == 1 { // the usual case
		return max(x.until(g.Held[0].Owner), x.now)
	}
	all := make([]work.Time, len(g.Held))
	for i := range g.Held {
		all[i] = max(x.until(g.Held[i].Owner), x.now)
	}
	best := slices.Max(all)
	if x.q.Request.GPUs > 0 {
		return best
	}
	m := x.c.models[model].Model
	for _, fit := range x.q.Request.FitPart(m) {
		switch {
		case g.Mode == gpu.ModeMIG && fit.Profile >= 0:
			p := &m.Profiles[fit.Profile]
			for _, start := range p.Starts {
				best = min(best, x.last(g, all, func(s work.Slice) bool {
					return x.c.sliceMask(s)&p.Mask(start) != 0 || p.Max == 1 && s.Profile == p.Name // only one may stand, wherever
				}))
			}
		case g.Mode == gpu.ModeShared && fit.Profile < 0 && g.Tenant == x.q.Tenant:
			best = min(best, x.sharing(g, all, fit, m.MemoryMiB))
		}
	}
	return best
}

// last is when the last of the slices that are in the way has ended.
func (x *soonest) last(g *GPU, ends []work.Time, inTheWay func(work.Slice) bool) work.Time {
	at := x.now
	for i := range g.Held {
		if inTheWay(g.Held[i].Slice) {
			at = max(at, ends[i])
		}
	}
	return at
}

// sharing is when enough shares of a GPU have ended for one more.
func (x *soonest) sharing(g *GPU, ends []work.Time, fit work.Fit, memMiB int64) work.Time {
	order := make([]int, len(ends))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(ends[a], ends[b]), a-b) })
	milli, mem, n, at := g.Milli, g.MemMiB, len(g.Held), x.now
	for _, i := range order {
		if milli+fit.Milli <= 1000 && mem+fit.Share.MemMiB <= memMiB && n < x.c.Sharers {
			break
		}
		milli, mem, n, at = milli-g.Held[i].Slice.Milli, mem-g.Held[i].Slice.Share.MemMiB, n-1, ends[i]
	}
	return at
}

// fed is when a host has so much CPU and memory left, as far as that comes from
// tasks on its GPUs.
func (x *soonest) fed(h *Host, need amount) (work.Time, bool) {
	has := h.left()
	if has.covers(need) {
		return x.now, true
	}
	if !h.all.covers(need) {
		return 0, false
	}
	type giving struct {
		at   work.Time
		back amount
	}
	var ends []giving
	seen := map[work.Owner]bool{}
	for _, n := range h.GPUs {
		for i := range x.c.GPUs[n].Held {
			o := x.c.GPUs[n].Held[i].Owner
			if seen[o] {
				continue
			}
			seen[o] = true
			if p := x.part(o); p != nil {
				ends = append(ends, giving{max(x.until(o), x.now), amount{p.CPUMilli, p.MemMiB}})
			}
		}
	}
	slices.SortStableFunc(ends, func(a, b giving) int { return cmp.Compare(a.at, b.at) })
	at := x.now
	for _, e := range ends {
		has.cpu += e.back.cpu
		has.mem += e.back.mem
		if at = e.at; has.covers(need) {
			break
		}
	}
	return at, true // at the soonest: tasks without a GPU may hold the rest for longer
}
