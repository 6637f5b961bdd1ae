package placement

import (
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// parts looks for room for a part of a GPU: on cut and shared ones in every form,
// on free ones in the best form of the model.
func (s *search) parts() {
	for _, m := range s.p.bySize {
		if s.q.Blocked[m] {
			continue
		}
		sh := s.p.shelves[m]
		if len(s.q.Request.Models) > 0 && !serves(sh.geo.Model, s.q.Request) {
			continue
		}
		for i, fit := range s.q.Request.FitPart(sh.geo.Model) {
			if fit.Profile >= 0 {
				s.cut(sh, fit)
			} else {
				s.shared(sh, fit)
			}
			if i == 0 && sh.free > 0 {
				s.fresh(sh, fit)
			}
		}
	}
}

// cut looks at the GPUs that are cut already, state by state.
func (s *search) cut(sh *shelf, fit work.Fit) {
	if sh.part == 0 {
		return
	}
	p := &sh.geo.Model.Profiles[fit.Profile]
	var below func(int) bool // geometry does not imply the limit of, for example, one media-extension slice
	if p.Attr != "" {
		below = func(n int) bool { return sh.belowMax(s.c.GPUs[n], p) }
	}
	look := func(from gpu.Mask) {
		o := s.cutting(sh, fit, state{mode: gpu.ModeMIG, mask: from}, 0)
		s.weigh(sh.states[from], &o, below)
	}
	if !s.fed {
		sh.eachCut(fit, func(from gpu.Mask, _ int64) { look(from) })
		return
	}
	first, least := gpu.Mask(0), int64(0) // the likeliest state first: it spares looking at most others
	sh.eachCut(fit, func(from gpu.Mask, loss int64) {
		if first == 0 || loss < least {
			first, least = from, loss
		}
	})
	if first == 0 {
		return
	}
	look(first)
	sh.eachCut(fit, func(from gpu.Mask, loss int64) {
		if from != first && (!s.ok || loss <= s.best.loss) {
			look(from)
		}
	})
}

// eachCut tells the states of cut GPUs that have room for a profile, and what their
// loss grows by at its best start.
func (s *shelf) eachCut(fit work.Fit, do func(from gpu.Mask, loss int64)) {
	p := &s.geo.Model.Profiles[fit.Profile]
	for m := s.cut.next(0); m >= 0; m = s.cut.next(m + 1) {
		if from := gpu.Mask(m); s.geo.Starts(fit.Profile, from) != 0 {
			do(from, s.view.mig[from|p.Mask(s.view.bestStart(s.geo, fit.Profile, from))]-s.view.mig[from])
		}
	}
}

// belowMax checks the limit on instances of a profile.
func (s *shelf) belowMax(g *GPU, p *gpu.Profile) bool {
	n := 0
	for i := range g.Held {
		if g.Held[i].Slice.Profile == p.Name {
			n++
		}
	}
	return n < p.Max
}

// shared looks at the GPUs that the tenant shares, by what is free of them.
func (s *search) shared(sh *shelf, fit work.Fit) {
	l := sh.shared[s.q.Tenant]
	if l == nil {
		return
	}
	least := fit.Milli
	if m := sh.geo.Model.MemoryMiB; m > 0 {
		least = max(least, int(fit.Share.MemMiB*1000/m)) // rounded down, as sharable is: fits decides
	}
	fits := func(n int) bool { return sh.hasRoom(s.c.GPUs[n], fit, s.c.Sharers) }
	for free := l.have.next(least); free >= 0; free = l.have.next(free + 1) {
		o := s.sharing(sh, fit, state{mode: gpu.ModeShared, idle: free}, 0)
		s.weigh(l.rows[free], &o, fits)
	}
}

func (s *shelf) hasRoom(g *GPU, fit work.Fit, sharers int) bool {
	return g.Milli+fit.Milli <= 1000 && g.MemMiB+fit.Share.MemMiB <= s.geo.Model.MemoryMiB && len(g.Held) < sharers
}

// fresh looks at free GPUs, by how many of them their host has.
func (s *search) fresh(sh *shelf, fit work.Fit) {
	for free := 1; free < len(sh.hosts.rows); free++ {
		if sh.hosts.hosts[free] == 0 {
			continue
		}
		var o option
		if fit.Profile >= 0 {
			o = s.cutting(sh, fit, state{mode: gpu.ModeFree}, free)
		} else {
			o = s.sharing(sh, fit, state{mode: gpu.ModeFree, idle: 1000}, free)
		}
		for _, r := range sh.hosts.rows[free] {
			s.weigh(r, &o, nil)
		}
	}
}

// cutting is the option to cut a profile from a GPU in a state, which is one of so
// many free ones of its host if it is free: at the start that leaves the least loss.
func (s *search) cutting(sh *shelf, fit work.Fit, from state, free int) option {
	o := option{shelf: sh, fit: fit, start: sh.view.bestStart(sh.geo, fit.Profile, from.mask)}
	to := state{mode: gpu.ModeMIG, mask: from.mask | sh.geo.Model.Profiles[fit.Profile].Mask(o.start)}
	o.loss = sh.view.mig[to.mask]
	o.takes = sh.view.idle[from.mask] - sh.view.idle[to.mask]
	o.spare = sh.view.idle[to.mask]
	s.price(sh, &o, from, to, free)
	return o
}

// bestStart is the start of a profile after which a board in a state has most left.
// The profile must fit.
func (v *view) bestStart(geo *gpu.Geometry, profile int, from gpu.Mask) int {
	for len(v.starts) <= profile {
		v.starts = append(v.starts, nil)
	}
	if v.starts[profile] == nil {
		v.starts[profile] = make([]int8, len(v.mig)) // start + 1; 0 = not known yet
	}
	known := &v.starts[profile][from]
	if *known > 0 {
		return int(*known) - 1
	}
	p := &geo.Model.Profiles[profile]
	best := -1
	for _, start := range p.Starts {
		if from&p.Mask(start) != 0 {
			continue
		}
		if best < 0 || v.leaves(geo, from|p.Mask(start), from|p.Mask(best), start < best) {
			best = start
		}
	}
	*known = int8(best) + 1
	return best
}

// leaves reports whether state a leaves more than b: less loss, then more room for
// profiles of which none was asked lately, then by position.
func (v *view) leaves(geo *gpu.Geometry, a, b gpu.Mask, lower bool) bool {
	switch {
	case v.mig[a] != v.mig[b]:
		return v.mig[a] < v.mig[b]
	case geo.Room(a) != geo.Room(b):
		return geo.Room(a) > geo.Room(b)
	}
	return lower
}

// sharing is the option to share a GPU.
func (s *search) sharing(sh *shelf, fit work.Fit, from state, free int) option {
	to := state{mode: gpu.ModeShared, idle: from.idle - fit.Milli}
	o := option{shelf: sh, fit: fit, takes: int64(fit.Milli), spare: int64(to.idle), loss: sh.view.loss(to)}
	s.price(sh, &o, from, to, free)
	return o
}

// price turns the loss after into what the loss grows by.
func (s *search) price(sh *shelf, o *option, from, to state, free int) {
	if free > 0 {
		o.loss += sh.view.whole[free-1] - sh.view.whole[free]
	} else {
		o.loss -= sh.view.loss(from)
	}
	o.loss += sh.scarce(o.takes)
	o.drop = s.dropPart(sh, free, from, to)
}
