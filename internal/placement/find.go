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
// smallest first. A request for a host only has none.
func (c *Cluster) Candidates(pool string, r work.Request) []int {
	p := c.pools[pool]
	if p == nil || r.HostOnly() {
		return nil
	}
	var out []int
	for _, m := range p.bySize {
		if p.shelves[m].bays > 0 && serves(p.shelves[m].geo.Model, r) {
			out = append(out, m)
		}
	}
	return out
}

// serves reports whether GPUs of a model can serve a request at all.
func serves(m gpu.Model, r work.Request) bool {
	if len(r.Models) > 0 && !slices.Contains(r.Models, m.Key) {
		return false
	}
	return !r.IsPart() && r.GPUMemMiB <= m.MemoryMiB || r.IsPart() && len(r.FitPart(m)) > 0
}

// Find proposes a part for each member of the request, or nil when they do not
// all fit now. The cluster is unchanged afterwards.
func (c *Cluster) Find(q Query) []work.Part {
	p := c.pools[q.Pool]
	if p == nil {
		return nil
	}
	c.prepare(p)
	if q.Request.Count() > 1 {
		return c.findGang(p, q)
	}
	part, ok := c.findOne(p, q)
	if !ok {
		return nil
	}
	return []work.Part{part}
}

// findOne finds a place for one member.
func (c *Cluster) findOne(p *poolIndex, q Query) (work.Part, bool) {
	s := c.searching(p, q)
	switch {
	case q.Request.HostOnly():
		s.hosts()
	case q.Request.IsPart():
		s.parts()
	default:
		if s.wholes(true); !s.ok {
			s.wholes(false)
		}
	}
	return s.part()
}

// search is the search for the best place of one member.
type search struct {
	c    *Cluster
	p    *poolIndex
	q    Query
	need amount
	fed  bool // CPU and memory cannot run out before GPUs do, and do not matter to the score
	ok   bool
	best choice
	drop []int64 // scratch
}

// option is a way to place a member that many places share.
type option struct {
	shelf *shelf
	loss  int64    // what the loss of the GPUs grows by
	takes int64    // thousandths
	spare int64    // what stays idle of the GPU, or of the host's free GPUs: of equal options the tightest
	gpus  int      // whole ones; 0 = a part
	fit   work.Fit // of a part
	start int      // of a MIG placement
	drop  []int64  // what the classes' room shrinks by; nil when CPU and memory do not matter
}

// choice is an option at a place.
type choice struct {
	option
	loss int64
	idle int64 // of the host
	host int
	gpu  int // -1 = any free one
}

func (c *Cluster) searching(p *poolIndex, q Query) *search {
	s := &c.scratch
	*s = search{c: c, p: p, q: q, need: amount{q.Request.CPUMilli, q.Request.MemMiB}, fed: !p.demand.hungry && !q.Request.HostOnly(), drop: s.drop[:0]}
	return s
}

// open reports whether a model may serve the request.
func (s *search) open(model int) bool {
	return !s.q.Blocked[model] && serves(s.p.shelves[model].geo.Model, s.q.Request)
}

// looks is the number of members of a cell that are weighed: on openb two are
// nearly as good as all.
const looks = 2

// weigh looks for a better place among the members of a row.
func (s *search) weigh(r *row, o *option, fits func(n int) bool) {
	if r == nil || r.n == 0 {
		return
	}
	if s.fed && s.ok && o.loss > s.best.loss {
		return // no member of the row can be better: the host can only add to it
	}
	low := cpuLevel(s.need.cpu)
	for used := r.used >> low << low; used != 0; used &= used - 1 {
		cell := r.cells[bits.TrailingZeros32(used)]
		left := looks
		for n := s.c.nextFit(cell, 0, s.need); n >= 0; n = s.c.nextFit(cell, n+1, s.need) {
			if fits != nil && !fits(n) {
				continue
			}
			s.consider(r, o, n)
			if left--; left == 0 {
				break
			}
		}
	}
}

// consider compares the option at one place with the best so far.
func (s *search) consider(r *row, o *option, n int) {
	host, g := n, -1
	if r.gpus {
		host, g = s.c.GPUs[n].Host, n
	}
	h := s.c.Hosts[host]
	loss := o.loss + s.p.demand.tight(h, o.takes)
	if !s.fed {
		look := s.c.outlookOf(s.p, h)
		after := amount{h.CPUMilli - s.need.cpu, h.MemMiB - s.need.mem}
		loss += s.p.demand.unfed(after, h.idle-o.takes, look.room, o.drop) - look.unfed
	}
	if !s.ok || s.better(loss, h.idle, o) {
		s.best, s.ok = choice{*o, loss, h.idle, host, g}, true
	}
}

// better compares an option at a host with the best so far: least loss, then the
// fuller GPU, then the lower start, then the fuller host.
func (s *search) better(loss, idle int64, o *option) bool {
	y := &s.best
	switch {
	case loss != y.loss:
		return loss < y.loss
	case o.spare != y.spare:
		return o.spare < y.spare
	case o.start != y.start:
		return o.start < y.start
	}
	return idle < y.idle
}

// part turns the best choice into a part.
func (s *search) part() (work.Part, bool) {
	if !s.ok {
		return work.Part{}, false
	}
	x := &s.best
	h := s.c.Hosts[x.host]
	out := work.Part{Host: h.Number, CPUMilli: s.need.cpu, MemMiB: s.need.mem}
	switch {
	case x.shelf == nil:
	case x.gpus > 0:
		out.Slices = h.bayOf(x.shelf).pick(x.gpus)
	default:
		n := x.gpu
		if n < 0 {
			n = h.bayOf(x.shelf).pick(1)[0].GPU
		}
		out.Slices = []work.Slice{x.shelf.slice(n, x.fit, x.start)}
	}
	return out, true
}

// bayOf is the bay of a host that stands on a shelf.
func (h *Host) bayOf(s *shelf) *bay {
	for i := range h.bays {
		if h.in.shelves[h.bays[i].model] == s {
			return &h.bays[i]
		}
	}
	return &bay{}
}

// pick chooses n free GPUs: of the NVLink domain with the fewest that are enough,
// else of the domains with the most.
func (b *bay) pick(n int) []work.Slice {
	free := b.free
	for _, l := range b.links {
		k, best := bits.OnesCount64(b.free&l), bits.OnesCount64(free)
		if k >= n && (k < best || free == b.free) {
			free = b.free & l
		}
	}
	out := make([]work.Slice, 0, n)
	take := func(free uint64) {
		for ; free != 0 && len(out) < n; free &= free - 1 {
			out = append(out, work.Slice{GPU: b.gpus[bits.TrailingZeros64(free)], Mode: gpu.ModeWhole, Milli: 1000})
		}
	}
	if b.links != nil && free == b.free { // no domain has enough
		links := slices.Clone(b.links)
		slices.SortStableFunc(links, func(x, y uint64) int { return bits.OnesCount64(b.free&y) - bits.OnesCount64(b.free&x) })
		for _, l := range links {
			take(b.free & l)
		}
		return out
	}
	take(free)
	return out
}

func (s *shelf) slice(n int, fit work.Fit, start int) work.Slice {
	if fit.Profile < 0 {
		share := fit.Share
		return work.Slice{GPU: n, Mode: gpu.ModeShared, Share: &share, Milli: fit.Milli}
	}
	return work.Slice{GPU: n, Mode: gpu.ModeMIG, Profile: s.geo.Model.Profiles[fit.Profile].Name, Start: start, Milli: fit.Milli}
}

// hosts looks for a host for a member that needs no GPU: one without GPUs, else
// where its CPU and memory are missed least.
func (s *search) hosts() {
	s.weigh(&s.p.bare, &option{}, nil)
	if s.ok {
		return
	}
	for _, m := range s.p.bySize {
		for free, rows := range s.p.shelves[m].hosts.rows {
			for _, r := range rows {
				s.weigh(r, &option{spare: int64(free)}, nil)
			}
		}
	}
}

// wholes looks for free GPUs of every model.
func (s *search) wholes(linked bool) {
	for _, m := range s.p.bySize {
		if s.open(m) {
			s.whole(s.p.shelves[m], &s.p.shelves[m].hosts, s.q.Request.GPUs, linked)
		}
	}
}

// whole looks for n free GPUs in one host: within one NVLink domain, or across.
func (s *search) whole(sh *shelf, in *standing, n int, linked bool) {
	o := option{shelf: sh, gpus: n, takes: int64(n) * 1000}
	for free := n; free < len(in.rows); free++ {
		if in.hosts[free] == 0 {
			continue
		}
		for domain, r := range in.rows[free] {
			if r == nil || r.n == 0 || domain >= n != linked {
				continue
			}
			o.loss = sh.view.whole[free-n] - sh.view.whole[free] + sh.scarce(o.takes)
			o.spare = int64(free - n)
			o.drop = s.dropWhole(sh, free, n)
			s.weigh(r, &o, nil)
		}
	}
}

func (s *shelf) scarce(takes int64) int64 { return int64(float64(takes) * s.view.scarce) }

// dropWhole is what the room of each class shrinks by when n of so many free GPUs
// of a host are taken.
func (s *search) dropWhole(sh *shelf, free, n int) []int64 {
	if s.fed {
		return nil
	}
	s.drop = s.drop[:0]
	for k := range s.p.demand.class {
		d := int64(n * sh.view.forms[k].free)
		if g := s.p.demand.class[k].gpus; g > 0 && sh.view.forms[k].can {
			d = int64((free/g*g - (free-n)/g*g) * 1000)
		}
		s.drop = append(s.drop, d)
	}
	return s.drop
}

// dropPart is the same when one GPU goes from one state to another.
func (s *search) dropPart(sh *shelf, free int, from, to state) []int64 {
	if s.fed {
		return nil
	}
	s.drop = s.drop[:0]
	for k := range s.p.demand.class {
		d := -sh.room(k, to)
		switch g := s.p.demand.class[k].gpus; {
		case from.mode != gpu.ModeFree:
			d += sh.room(k, from)
		case g > 0 && sh.view.forms[k].can:
			d += int64((free/g*g - (free-1)/g*g) * 1000)
		default:
			d += sh.room(k, from)
		}
		s.drop = append(s.drop, d)
	}
	return s.drop
}
