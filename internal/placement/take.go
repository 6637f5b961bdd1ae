package placement

import (
	"slices"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// Take gives a part to a holder. The part must come from Find on this state, or
// from a fact that once did.
func (c *Cluster) Take(w Holder, p work.Part) {
	c.spend(c.Hosts[p.Host], p.CPUMilli, p.MemMiB)
	c.change(p, func(s *work.Slice) {
		g := c.GPUs[s.GPU]
		c.put(g, len(g.Held), Held{w, *s})
	})
}

// change does something with each slice of a part and then moves its host in the
// index: once, as the GPUs of a part are of one bay.
func (c *Cluster) change(p work.Part, do func(*work.Slice)) {
	if len(p.Slices) == 0 {
		return
	}
	h := c.Hosts[p.Host]
	b := &h.bays[c.GPUs[p.Slices[0].GPU].bay]
	was := b.at()
	for i := range p.Slices {
		do(&p.Slices[i])
	}
	c.settle(h, b, was)
}

// Free takes a part back from its owner.
func (c *Cluster) Free(o work.Owner, p work.Part) {
	c.change(p, func(s *work.Slice) {
		g := c.GPUs[s.GPU]
		c.drop(g, g.find(o, s))
	})
	c.spend(c.Hosts[p.Host], -p.CPUMilli, -p.MemMiB)
}

// find is the position of an owner's slice among those that stand on a GPU.
func (g *GPU) find(o work.Owner, s *work.Slice) int {
	for i := range g.Held {
		if x := &g.Held[i]; x.Owner == o && x.Slice.Start == s.Start {
			return i
		}
	}
	return -1
}

// put makes a slice stand on a GPU, at a position among those that do. The bay must be
// settled afterwards.
func (c *Cluster) put(g *GPU, at int, x Held) {
	c.unindex(g)
	g.Mode = x.Slice.Mode
	g.Milli += x.Slice.Milli
	switch x.Slice.Mode {
	case gpu.ModeMIG:
		g.Mask |= c.sliceMask(x.Slice)
	case gpu.ModeShared:
		g.Tenant = x.Tenant
		g.MemMiB += x.Slice.Share.MemMiB
	}
	g.Held = slices.Insert(g.Held, at, x)
	c.index(g)
}

// drop undoes put.
func (c *Cluster) drop(g *GPU, at int) {
	if at < 0 {
		return
	}
	c.unindex(g)
	s := g.Held[at].Slice
	g.Held = slices.Delete(g.Held, at, at+1)
	g.Milli -= s.Milli
	switch s.Mode {
	case gpu.ModeMIG:
		g.Mask &^= c.sliceMask(s)
	case gpu.ModeShared:
		g.MemMiB -= s.Share.MemMiB
	}
	if len(g.Held) == 0 {
		g.Mode, g.Tenant = gpu.ModeFree, ""
	}
	c.index(g)
}

func (c *Cluster) sliceMask(s work.Slice) gpu.Mask {
	geo := c.Geometry(s.GPU)
	if i := geo.Index(s.Profile); i >= 0 {
		return geo.Model.Profiles[i].Mask(s.Start)
	}
	return 0
}
