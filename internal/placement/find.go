package placement

import (
	"math/bits"
	"slices"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// ModelSet is a set of model numbers of a Cluster.
type ModelSet map[int]bool

// Query asks for a place.
type Query struct {
	Pool    string
	Tenant  string
	Request work.Request
	Blocked ModelSet // models that may not be used: another task has the first right to them
}

// Candidates returns the models of the pool that can serve a request, the
// smallest first so that large boards stay free for those that need them. A
// request for a host only has none.
func (c *Cluster) Candidates(pool string, r work.Request) []int {
	p := c.pools[pool]
	if p == nil || r.HostOnly() {
		return nil
	}
	var out []int
	for m, s := range p.shelves {
		if s == nil || len(r.Models) > 0 && !slices.Contains(r.Models, s.geo.Model.Key) {
			continue
		}
		if r.IsPart() && len(r.FitPart(s.geo.Model)) == 0 || r.GPUs > 0 && r.GPUMemMiB > s.geo.Model.MemoryMiB {
			continue
		}
		out = append(out, m)
	}
	slices.SortStableFunc(out, func(a, b int) int {
		return int(c.models[a].Model.MemoryMiB - c.models[b].Model.MemoryMiB)
	})
	return out
}

// Find proposes a part for each member of the request, or nil when they do not
// all fit now. The cluster is unchanged afterwards: members are taken one after
// another and given back (a what-if that undoes itself).
func (c *Cluster) Find(q Query) []work.Part {
	p := c.pools[q.Pool]
	if p == nil {
		return nil
	}
	if q.Request.HostOnly() {
		return c.gang(q, func() (work.Part, bool) { return c.findBare(p, q.Request) })
	}
	var open []int
	for _, m := range c.Candidates(q.Pool, q.Request) {
		if !q.Blocked[m] {
			open = append(open, m)
		}
	}
	if q.Request.IsPart() {
		return c.gang(q, func() (work.Part, bool) { return c.findPart(p, open, q) })
	}
	for _, m := range open { // members of one gang get one model
		if p.shelves[m].room(q.Request.GPUs) < q.Request.Count() {
			continue
		}
		if parts := c.gang(q, func() (work.Part, bool) { return c.findWhole(p.shelves[m], m, q.Request) }); parts != nil {
			return parts
		}
	}
	return nil
}

// gang finds a place for each member, all or nothing.
func (c *Cluster) gang(q Query, one func() (work.Part, bool)) []work.Part {
	n := q.Request.Count()
	if n == 1 {
		part, ok := one()
		if !ok {
			return nil
		}
		return []work.Part{part}
	}
	parts := make([]work.Part, 0, n)
	for i := range n {
		part, ok := one()
		if !ok {
			break
		}
		c.Take(work.Owner{Member: i}, q.Tenant, part)
		parts = append(parts, part)
	}
	for i, part := range slices.Backward(parts) {
		c.Free(work.Owner{Member: i}, part)
	}
	if len(parts) < n {
		return nil
	}
	return parts
}

// room is how many members of n whole GPUs fit at most, by GPUs alone.
func (s *shelf) room(n int) int {
	sum := 0
	for k := n; k < len(s.hosts); k++ {
		sum += k / n * s.hosts[k].len()
	}
	return sum
}

func (h *Host) part(r work.Request) work.Part {
	return work.Part{Host: h.Number, CPUMilli: r.CPUMilli, MemMiB: r.MemMiB}
}

// findWhole takes the host with the fewest free GPUs that has enough of them.
func (c *Cluster) findWhole(s *shelf, model int, r work.Request) (work.Part, bool) {
	for k := r.GPUs; k < len(s.hosts); k++ {
		for n := s.hosts[k].next(0); n >= 0; n = s.hosts[k].next(n + 1) {
			h := c.Hosts[n]
			if h.CPUMilli < r.CPUMilli || h.MemMiB < r.MemMiB {
				continue
			}
			part := h.part(r)
			b := h.bay(model)
			for free := b.free; len(part.Slices) < r.GPUs; free &= free - 1 {
				part.Slices = append(part.Slices, work.Slice{GPU: b.gpus[bits.TrailingZeros64(free)], Mode: gpu.ModeWhole, Milli: 1000})
			}
			return part, true
		}
	}
	return work.Part{}, false
}

func (h *Host) bay(model int) bay {
	for _, b := range h.bays {
		if b.model == model {
			return b
		}
	}
	return bay{}
}

// findPart looks first at GPUs that are in use already, on any acceptable
// model, and opens a free GPU only when none of them has room.
func (c *Cluster) findPart(p *poolIndex, models []int, q Query) (work.Part, bool) {
	for _, m := range models {
		for _, fit := range q.Request.FitPart(p.shelves[m].geo.Model) {
			if g, slice, ok := c.findInUse(p.shelves[m], fit, q); ok {
				part := c.Hosts[g.Host].part(q.Request)
				part.Slices = []work.Slice{slice}
				return part, true
			}
		}
	}
	for _, m := range models {
		s := p.shelves[m]
		fit := q.Request.FitPart(s.geo.Model)[0]
		part, ok := c.findWhole(s, m, work.Request{GPUs: 1, CPUMilli: q.Request.CPUMilli, MemMiB: q.Request.MemMiB})
		if ok {
			part.Slices[0] = s.slice(part.Slices[0].GPU, fit, 0)
			return part, true
		}
	}
	return work.Part{}, false
}

func (s *shelf) slice(n int, fit work.Fit, state gpu.Mask) work.Slice {
	if fit.Profile < 0 {
		return work.Slice{GPU: n, Mode: gpu.ModeShared, Share: fit.Share, Milli: fit.Milli}
	}
	return work.Slice{GPU: n, Mode: gpu.ModeMIG, Profile: s.geo.Model.Profiles[fit.Profile].Name,
		Start: s.geo.Best(fit.Profile, state), Milli: fit.Milli}
}

func (c *Cluster) findInUse(s *shelf, fit work.Fit, q Query) (*GPU, work.Slice, bool) {
	if fit.Profile < 0 {
		return c.findShared(s, fit, q)
	}
	if s.part == 0 {
		return nil, work.Slice{}, false
	}
	for _, state := range s.geo.StatesFor(fit.Profile) {
		b := s.states[state]
		if b == nil {
			continue
		}
		for n := b.next(0); n >= 0; n = b.next(n + 1) {
			g := c.GPUs[n]
			if c.hostHas(g.Host, q.Request) && s.belowMax(g, fit.Profile) {
				return g, s.slice(n, fit, state), true
			}
		}
	}
	return nil, work.Slice{}, false
}

func (c *Cluster) hostHas(host int, r work.Request) bool {
	return c.Hosts[host].CPUMilli >= r.CPUMilli && c.Hosts[host].MemMiB >= r.MemMiB
}

// belowMax checks the limit on instances that geometry does not imply: one
// media-extension slice a GPU, for example.
func (s *shelf) belowMax(g *GPU, profile int) bool {
	p := s.geo.Model.Profiles[profile]
	if p.Attr == "" {
		return true
	}
	n := 0
	for _, h := range g.Held {
		if h.Slice.Profile == p.Name {
			n++
		}
	}
	return n < p.Max
}

// findShared picks the fullest of the tenant's shared GPUs that has room.
func (c *Cluster) findShared(s *shelf, fit work.Fit, q Query) (*GPU, work.Slice, bool) {
	b := s.shared[q.Tenant]
	if b == nil {
		return nil, work.Slice{}, false
	}
	var best *GPU
	for n := b.next(0); n >= 0; n = b.next(n + 1) {
		g := c.GPUs[n]
		if g.Milli+fit.Milli <= 1000 && g.MemMiB+fit.Share.MemMiB <= s.geo.Model.MemoryMiB && len(g.Held) < c.Sharers &&
			c.hostHas(g.Host, q.Request) && (best == nil || g.Milli > best.Milli) {
			best = g
		}
	}
	if best == nil {
		return nil, work.Slice{}, false
	}
	return best, s.slice(best.Number, fit, 0), true
}

// findBare finds a host for a member that needs no GPU: hosts without GPUs
// first, then those with the fewest free ones.
func (c *Cluster) findBare(p *poolIndex, r work.Request) (work.Part, bool) {
	buckets := []*set{&p.bare}
	for k := 0; k <= work.MaxGPUsPerMember; k++ {
		for _, s := range p.shelves {
			if s != nil && k < len(s.hosts) {
				buckets = append(buckets, s.hosts[k])
			}
		}
	}
	for _, b := range buckets {
		for n := b.next(0); n >= 0; n = b.next(n + 1) {
			if c.hostHas(n, r) {
				return c.Hosts[n].part(r), true
			}
		}
	}
	return work.Part{}, false
}
