package assess

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/elastic"
	"github.com/gpupool/gpupool/internal/work"
)

// means are the ways to need fewer GPUs that are in use; each claim is under one of them.
type means struct {
	park  bool
	after time.Duration // that a pod idles before it is parked, where that is longer than the price
	slice bool
	share bool
}

// hold is what a claim takes for a while.
type hold struct {
	from, to int32
	gpus     int  // whole ones
	slice    bool // else
	share    bool
}

// needs are how many GPUs were needed over time.
type needs struct {
	steps []int   // by GPUs: steps in which so many were needed
	most  []int32 // over time, the most of each share of it: for a plot
}

// away is steps in a row in which a claim would be parked.
type away struct {
	from, to int32
	gpus     int32
	wakes    bool // at the end; else it ends with it
}

// parked are the times in which a claim would be parked. It is suspended once it has
// idled for the price, or for the longer time of the means, and its GPUs can be used once
// it is; and it wants them back for as long before its next work as its resume takes.
func (r *record) parked(c *claim, m means) []away {
	if !m.park || c.pod == nil || c.instances || c.instance >= 0 {
		return nil
	}
	before := r.steps(max(c.price.Total(), m.after) + c.price.Suspend)
	resume := r.steps(c.price.Resume)
	var out []away
	for i := 0; i < len(c.parts); {
		first := i
		for i++; i < len(c.parts) && c.parts[first].state == idle && c.parts[i].state == idle && c.parts[i].from == c.parts[i-1].to; i++ {
		}
		if c.parts[first].state != idle {
			continue
		}
		x := away{c.parts[first].from + int32(before), c.parts[i-1].to, c.parts[first].gpus, false}
		if x.wakes = i < len(c.parts) && c.parts[i].from == x.to; x.wakes {
			x.to -= int32(resume)
		}
		if x.from < x.to {
			out = append(out, x)
		}
	}
	return out
}

// kindOf says under which means a claim is. What would be parked for most of the time is
// worth more parked than as a part of a GPU; a part cannot be parked.
func (r *record) kindOf(c *claim, p *pool, m means, parked []away) (slice, share bool) {
	if c.instance >= 0 {
		return m.slice, false
	}
	away, held := 0.0, 0.0
	for _, x := range parked {
		away += float64(x.to - x.from)
	}
	for _, x := range c.parts {
		held += float64(x.to - x.from)
	}
	here := 1 - away/max(held, 1)
	if m.slice && c.slice >= 0 && here > float64(p.geo.Model.Profiles[c.slice].Units)/float64(p.geo.Model.Units) {
		return true, false
	}
	return false, m.share && c.milli > 0 && here > 1.0/sharers
}

// holds is what a claim takes over time under some means, and which of them it is under.
func (r *record) holds(c *claim, p *pool, m means) (out []hold, under means) {
	parked := r.parked(c, m)
	slice, share := r.kindOf(c, p, m, parked)
	switch {
	case c.instances && m.slice, c.instance >= 0 && !m.slice: // counted by the other
		return nil, under
	case slice || share:
		for _, x := range c.parts {
			out = append(out, hold{x.from, x.to, 0, slice, share})
		}
		return out, means{slice: slice, share: share}
	}
	k := 0
	for _, x := range c.parts {
		at := x.from
		for k < len(parked) && parked[k].to <= at {
			k++
		}
		for j := k; j < len(parked) && parked[j].from < x.to; j++ {
			if parked[j].from > at {
				out = append(out, hold{at, parked[j].from, int(x.gpus), false, false})
			}
			at = max(at, parked[j].to)
		}
		if at < x.to {
			out = append(out, hold{at, x.to, int(x.gpus), false, false})
		}
	}
	return out, means{park: len(parked) > 0}
}

// change is a hold that begins or ends.
type change struct {
	at    int32
	by    int
	claim *claim
	hold
}

// needed walks over time and packs whatever is held.
func (r *record) needed(p *pool, m means, covered []bool) (n needs, under map[means]int) {
	var changes []change
	under = map[means]int{}
	for _, c := range p.claims {
		holds, by := r.holds(c, p, m)
		if by != (means{}) {
			under[by]++
		}
		for _, h := range holds {
			changes = append(changes, change{h.from, 1, c, h}, change{h.to, -1, c, h})
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	n = needs{steps: make([]int, 1), most: make([]int32, min(r.n, mapCells))}
	crowd := newCrowd(p)
	at, gpus := int32(0), 0
	pass := func(to int32) {
		for len(n.steps) <= gpus {
			n.steps = append(n.steps, 0)
		}
		for ; at < to; at++ {
			if covered[at] {
				n.steps[gpus]++
				cell := int(at) * len(n.most) / r.n
				n.most[cell] = max(n.most[cell], int32(gpus))
			}
		}
	}
	for i := 0; i < len(changes); {
		pass(changes[i].at)
		for now := changes[i].at; i < len(changes) && changes[i].at == now; i++ {
			crowd.change(changes[i])
		}
		gpus = crowd.need()
	}
	pass(int32(r.n))
	return n, under
}

func (c *crowd) change(x change) {
	switch {
	case x.slice && x.claim.instance >= 0:
		c.slices[x.claim.instance] += x.by
	case x.slice:
		c.slices[x.claim.slice] += x.by
	case x.share:
		name := x.claim.namespace
		c.dirty(name)
		if x.by > 0 {
			c.shares[name] = append(c.shares[name], x.claim)
		} else if at := slices.Index(c.shares[name], x.claim); at >= 0 {
			c.shares[name] = slices.Delete(c.shares[name], at, at+1)
		}
	case x.gpus == 1:
		c.single += x.by
	default:
		c.multi[x.gpus] += x.by
	}
}

// covered are the steps in which anything was measured.
func (r *record) covered() []bool {
	out := make([]bool, r.n)
	for _, d := range r.devices {
		for _, s := range d.spans {
			for i := s.from; i < s.to; i++ {
				out[i] = true
			}
		}
	}
	return out
}

// quantile is how many GPUs were enough for a share q of the time.
func (n needs) quantile(q float64) int {
	sum := 0
	for _, steps := range n.steps {
		sum += steps
	}
	left := int(math.Ceil(q * float64(sum)))
	for gpus, steps := range n.steps {
		if left -= steps; left <= 0 {
			return gpus
		}
	}
	return len(n.steps) - 1
}

// max is the most that were needed at once.
func (n needs) max() int {
	for gpus := len(n.steps) - 1; gpus > 0; gpus-- {
		if n.steps[gpus] > 0 {
			return gpus
		}
	}
	return 0
}

func (n needs) mean() float64 {
	sum, all := 0.0, 0.0
	for gpus, steps := range n.steps {
		sum += float64(gpus * steps)
		all += float64(steps)
	}
	return sum / max(all, 1)
}

// better reports whether fewer GPUs are needed than before: nearly always, at the most, or
// for less of the time.
func (n needs) better(was needs) bool {
	return cmp.Or(cmp.Compare(n.quantile(0.99), was.quantile(0.99)), cmp.Compare(n.max(), was.max()), cmp.Compare(n.mean(), was.mean())) < 0
}

// tally is what gpupool's own shadow would have said of parking alone (docs/modes.md).
func (r *record) tally(p *pool, m means) elastic.Estimate {
	type edge struct {
		at                  int32
		held, need, busy    int
		parked, woken, ends bool
	}
	var edges []edge
	add := func(from, to int32, e edge) {
		e.at = from
		edges = append(edges, e, edge{at: to, held: -e.held, need: -e.need, busy: -e.busy, ends: true})
	}
	for _, c := range p.claims {
		if c.instance >= 0 {
			continue
		}
		for _, x := range c.parts {
			e := edge{held: int(x.gpus), need: int(x.gpus)}
			if x.state != idle {
				e.busy = int(x.gpus)
			}
			add(x.from, x.to, e)
		}
		for _, x := range r.parked(c, m) {
			add(x.from, x.to, edge{need: -int(x.gpus), parked: true})
			edges[len(edges)-1].woken = x.wakes
		}
	}
	slices.SortStableFunc(edges, func(a, b edge) int {
		first := func(e edge) int { // what ends goes first, and who wakes sees everyone
			return map[bool]int{true: 2}[e.woken] + map[bool]int{true: 1}[!e.ends]
		}
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(first(a), first(b)))
	})
	var t elastic.Tally
	t.Reset(work.TimeOf(r.from))
	for _, e := range edges {
		t.Pass(work.TimeOf(r.at(int(e.at))))
		t.HeldNow += 1000 * e.held
		t.NeedNow += 1000 * e.need
		t.BusyNow += 1000 * e.busy
		if e.parked {
			t.Parks++
		}
		if e.woken {
			t.Woken()
		}
	}
	return t.Estimate(work.TimeOf(r.at(r.n)), p.host)
}
