package placement

import (
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// findGang finds a place for every member, all or nothing. Members on whole GPUs
// get one model and stand in the narrowest topology group that holds them all, on
// the fewest hosts. Members on parts, which may have different models, follow each
// other onto the same host while it has room.
func (c *Cluster) findGang(p *poolIndex, q Query) []work.Part {
	t := c.Try()
	defer t.Undo()
	one, n := q, q.Request.Count()
	one.Request.Members = 0
	if q.Request.GPUs == 0 {
		return c.gangOfParts(t, p, one, n)
	}
	for _, m := range p.bySize {
		sh := p.shelves[m]
		if q.Blocked[m] || !serves(sh.geo.Model, q.Request) || sh.hosts.room(one.Request.GPUs) < n {
			continue
		}
		var parts []work.Part
		try := func(in *standing) bool {
			parts = c.gangIn(t, p, sh, in, one, n)
			return parts != nil
		}
		if p.near(m, n, one.Request.GPUs, try) || try(&sh.hosts) {
			return parts
		}
	}
	return nil
}

// gangIn fills hosts of a standing with n members: each time the host that holds
// the most of those that are left, tightly.
func (c *Cluster) gangIn(t *Trial, p *poolIndex, sh *shelf, in *standing, q Query, n int) []work.Part {
	mark := t.Mark()
	parts := make([]work.Part, 0, n)
	r := q.Request
	together := n // that may fit in one host: what failed once fails again, as hosts only get fuller
	for len(parts) < n {
		together = min(together, n-len(parts), in.most()/r.GPUs)
		host := -1
		for ; together > 0; together-- {
			block := q
			block.Request.GPUs, block.Request.CPUMilli, block.Request.MemMiB = r.GPUs*together, r.CPUMilli*int64(together), r.MemMiB*int64(together)
			s := c.searching(p, block)
			for _, linked := range []bool{true, false} {
				if !s.ok {
					s.whole(sh, in, block.Request.GPUs, linked)
				}
			}
			if s.ok {
				host = s.best.host
				break
			}
		}
		if host < 0 {
			t.UndoTo(mark)
			return nil
		}
		for range together {
			part := work.Part{Host: host, CPUMilli: r.CPUMilli, MemMiB: r.MemMiB, Slices: c.Hosts[host].bayOf(sh).pick(r.GPUs)}
			t.Take(Holder{Owner: work.Owner{Member: len(parts)}, Tenant: q.Tenant}, part)
			parts = append(parts, part)
		}
	}
	return parts
}

// gangOfParts places members one after another.
func (c *Cluster) gangOfParts(t *Trial, p *poolIndex, q Query, n int) []work.Part {
	parts := make([]work.Part, 0, n)
	for i := range n {
		var part work.Part
		ok := false
		if i > 0 {
			part, ok = c.onHost(p, q, c.Hosts[parts[i-1].Host])
		}
		if !ok {
			part, ok = c.findOne(p, q)
		}
		if !ok {
			return nil
		}
		t.Take(Holder{Owner: work.Owner{Member: i}, Tenant: q.Tenant}, part)
		parts = append(parts, part)
	}
	return parts
}

// onHost finds a place for a member on one host.
func (c *Cluster) onHost(p *poolIndex, q Query, h *Host) (work.Part, bool) {
	s := c.searching(p, q)
	if !h.left().covers(s.need) {
		return work.Part{}, false
	}
	if q.Request.HostOnly() {
		return work.Part{Host: h.Number, CPUMilli: s.need.cpu, MemMiB: s.need.mem}, true
	}
	alone := &row{gpus: true}
	for i := range h.bays {
		b := &h.bays[i]
		sh := p.shelves[b.model]
		if q.Blocked[b.model] || !serves(sh.geo.Model, q.Request) {
			continue
		}
		for k, fit := range q.Request.FitPart(sh.geo.Model) {
			for _, n := range b.gpus {
				if o, ok := s.onGPU(sh, c.GPUs[n], fit, k == 0, b); ok {
					s.consider(alone, &o, n)
				}
			}
		}
	}
	return s.part()
}

// onGPU is the option to put a part on one GPU, if it fits there.
func (s *search) onGPU(sh *shelf, g *GPU, fit work.Fit, best bool, b *bay) (option, bool) {
	if !s.c.usable(g) {
		return option{}, false
	}
	from, free := stateOf(g), 0
	switch {
	case g.Mode == gpu.ModeFree && best:
		free = b.count()
	case g.Mode == gpu.ModeMIG && fit.Profile >= 0 && sh.geo.Starts(fit.Profile, g.Mask) != 0 &&
		sh.belowMax(g, &sh.geo.Model.Profiles[fit.Profile]):
	case g.Mode == gpu.ModeShared && fit.Profile < 0 && g.Tenant == s.q.Tenant && sh.hasRoom(g, fit, s.c.Sharers):
	default:
		return option{}, false
	}
	if fit.Profile >= 0 {
		return s.cutting(sh, fit, from, free), true
	}
	return s.sharing(sh, fit, from, free), true
}
