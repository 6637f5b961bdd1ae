package placement

import (
	"math/bits"

	"github.com/gpupool/gpupool/internal/gpu"
)

// changeHost takes a host out of the index, changes it and puts it back.
func (c *Cluster) changeHost(h *Host, change func()) {
	for _, n := range h.GPUs {
		c.unindex(c.GPUs[n])
	}
	if len(h.GPUs) == 0 {
		c.pools[h.Pool].bare.remove(h.Number)
	}
	for _, b := range h.bays {
		c.pools[h.Pool].shelves[b.model].setFree(h.Number, 0, -1)
	}
	change()
	if h.sound != nil {
		h.sound.up--
		h.sound = nil
	}
	if h.Up && !h.Cordoned {
		h.sound = c.pool(h.Pool).shapeOf(c, h, false)
		h.sound.up++
	}
	if h.Up && !h.Cordoned {
		if len(h.GPUs) == 0 {
			c.pools[h.Pool].bare.add(h.Number)
		}
		for _, b := range h.bays { // in a bucket even when none of its GPUs is free
			c.pools[h.Pool].shelves[b.model].setFree(h.Number, -1, 0)
		}
	}
	for _, n := range h.GPUs {
		c.index(c.GPUs[n])
	}
}

// setFree moves a host from one bucket of free GPUs to another; -1 is none.
func (s *shelf) setFree(host, from, to int) {
	for len(s.hosts) <= max(from, to) {
		s.hosts = append(s.hosts, &set{})
	}
	if from >= 0 {
		s.hosts[from].remove(host)
	}
	if to >= 0 {
		s.hosts[to].add(host)
	}
}

func (c *Cluster) usable(g *GPU) bool {
	h := c.Hosts[g.Host]
	return g.Health == gpu.HealthOK && h.Up && !h.Cordoned
}

// index puts a GPU into the bucket of its state, if it may be given out.
func (c *Cluster) index(g *GPU) {
	if !c.usable(g) {
		return
	}
	h := c.Hosts[g.Host]
	s := c.pools[h.Pool].shelves[g.model]
	s.usable++
	switch g.Mode {
	case gpu.ModeFree:
		b := &h.bays[g.bay]
		n := bits.OnesCount64(b.free)
		b.free |= 1 << g.slot
		s.free++
		s.setFree(h.Number, n, n+1)
	case gpu.ModeMIG:
		s.part++
		bucket(s.states, g.Mask).add(g.Number)
	case gpu.ModeShared:
		bucket(s.shared, g.Tenant).add(g.Number)
	case gpu.ModeWhole:
	}
}

// unindex undoes index; it must be called before the GPU changes.
func (c *Cluster) unindex(g *GPU) {
	if !c.usable(g) {
		return
	}
	h := c.Hosts[g.Host]
	s := c.pools[h.Pool].shelves[g.model]
	s.usable--
	switch g.Mode {
	case gpu.ModeFree:
		b := &h.bays[g.bay]
		n := bits.OnesCount64(b.free)
		b.free &^= 1 << g.slot
		s.free--
		s.setFree(h.Number, n, n-1)
	case gpu.ModeMIG:
		s.part--
		s.states[g.Mask].remove(g.Number)
	case gpu.ModeShared:
		s.shared[g.Tenant].remove(g.Number)
	case gpu.ModeWhole:
	}
}

func bucket[K comparable](m map[K]*set, k K) *set {
	s := m[k]
	if s == nil {
		s = &set{}
		m[k] = s
	}
	return s
}
