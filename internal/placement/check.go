package placement

import (
	"fmt"
	"math/bits"

	"github.com/gpupool/gpupool/internal/gpu"
)

// Check verifies every invariant of the cluster and of its index by brute
// force, and returns the first that is broken. It costs a walk over everything:
// for tests, and for production behind the build tag invariants (package host).
func (c *Cluster) Check() error {
	for _, g := range c.GPUs {
		if err := c.checkGPU(g); err != nil {
			return fmt.Errorf("GPU %d: %w", g.Number, err)
		}
	}
	for _, h := range c.Hosts {
		if h.CPUMilli < 0 || h.MemMiB < 0 || h.CPUMilli > h.Info.CPUMilli || h.MemMiB > h.Info.MemMiB {
			return fmt.Errorf("host %s has %d mCPU and %d MiB free of %d and %d", h.Info.Name, h.CPUMilli, h.MemMiB, h.Info.CPUMilli, h.Info.MemMiB)
		}
		if err := c.checkHostIndex(h); err != nil {
			return fmt.Errorf("host %s: %w", h.Info.Name, err)
		}
	}
	return c.checkSums()
}

// checkSums verifies that what the shelves and shapes count is what there is.
func (c *Cluster) checkSums() error {
	type key struct {
		pool  string
		model int
	}
	free, cut, usable := map[key]int{}, map[key]int{}, map[key]int{}
	for _, g := range c.GPUs {
		if !c.usable(g) {
			continue
		}
		k := key{c.Hosts[g.Host].Pool, g.model}
		usable[k]++
		switch g.Mode {
		case gpu.ModeFree:
			free[k]++
		case gpu.ModeMIG:
			cut[k]++
		case gpu.ModeWhole, gpu.ModeShared:
		}
	}
	all, up := map[*shape]int{}, map[*shape]int{}
	for _, h := range c.Hosts {
		all[h.shape]++
		if h.sound != nil {
			up[h.sound]++
		}
		if usable := h.Up && !h.Cordoned; usable != (h.sound != nil) || usable && h.sound != c.pools[h.Pool].shapeOf(c, h, false) {
			return fmt.Errorf("host %s is counted under another shape than it has", h.Info.Name)
		}
	}
	for name, p := range c.pools { // order: only a yes or no comes out
		for m, s := range p.shelves {
			k := key{name, m}
			if s != nil && (s.free != free[k] || s.part != cut[k] || s.usable != usable[k]) {
				return fmt.Errorf("pool %s has %d free, %d cut and %d usable GPUs of %s; the index counts %d, %d and %d",
					name, free[k], cut[k], usable[k], s.geo.Model.Key, s.free, s.part, s.usable)
			}
		}
		for _, s := range p.shapes {
			if s.all != all[s] || s.up != up[s] {
				return fmt.Errorf("pool %s has %d hosts of a shape, %d usable; the index counts %d and %d", name, all[s], up[s], s.all, s.up)
			}
		}
	}
	return nil
}

func (c *Cluster) checkGPU(g *GPU) error {
	geo := c.models[g.model]
	var placed []gpu.Placed
	var mask gpu.Mask
	milli, mem := 0, int64(0)
	for _, h := range g.Held {
		if h.Slice.Mode != g.Mode || h.Slice.GPU != g.Number {
			return fmt.Errorf("a slice of mode %s stands on a GPU of mode %s", h.Slice.Mode, g.Mode)
		}
		milli += h.Slice.Milli
		switch h.Slice.Mode {
		case gpu.ModeMIG:
			placed = append(placed, gpu.Placed{Profile: h.Slice.Profile, Start: h.Slice.Start})
			mask |= c.sliceMask(h.Slice)
		case gpu.ModeShared:
			mem += h.Slice.Share.MemMiB
		}
	}
	if bad := geo.Legal(placed); bad != "" {
		return fmt.Errorf("illegal MIG layout %v: %s", placed, bad)
	}
	switch {
	case mask != g.Mask || milli != g.Milli || mem != g.MemMiB:
		return fmt.Errorf("sums are off: mask %b/%b, milli %d/%d, memory %d/%d", g.Mask, mask, g.Milli, milli, g.MemMiB, mem)
	case (len(g.Held) == 0) != (g.Mode == gpu.ModeFree):
		return fmt.Errorf("mode %s with %d slices", g.Mode, len(g.Held))
	case g.Mode == gpu.ModeWhole && len(g.Held) != 1:
		return fmt.Errorf("%d tasks on a whole GPU", len(g.Held))
	case g.Mode == gpu.ModeShared && (len(g.Held) > c.Sharers || g.Milli > 1000 || mem > geo.Model.MemoryMiB):
		return fmt.Errorf("%d tasks share %d thousandths and %d MiB", len(g.Held), g.Milli, mem)
	}
	return c.checkIndex(g)
}

// checkIndex verifies that a GPU stands in the bucket of its state and nowhere else.
func (c *Cluster) checkIndex(g *GPU) error {
	h := c.Hosts[g.Host]
	s := c.pools[h.Pool].shelves[g.model]
	use := c.usable(g)
	if free := h.bays[g.bay].free&(1<<g.slot) != 0; free != (use && g.Mode == gpu.ModeFree) {
		return fmt.Errorf("free bit is %v", free)
	}
	for mask, b := range s.states { // order: only a yes or no comes out
		if b.has(g.Number) != (use && g.Mode == gpu.ModeMIG && mask == g.Mask) {
			return fmt.Errorf("bucket %b is wrong about it", mask)
		}
	}
	for tenant, b := range s.shared { // order: only a yes or no comes out
		if b.has(g.Number) != (use && g.Mode == gpu.ModeShared && tenant == g.Tenant) {
			return fmt.Errorf("shared bucket of %s is wrong about it", tenant)
		}
	}
	return nil
}

func (c *Cluster) checkHostIndex(h *Host) error {
	if bare := c.pools[h.Pool].bare.has(h.Number); bare != (h.Up && !h.Cordoned && len(h.GPUs) == 0) {
		return fmt.Errorf("in the bucket of hosts without GPUs: %v", bare)
	}
	for _, b := range h.bays {
		s := c.pools[h.Pool].shelves[b.model]
		for k := range s.hosts {
			want := h.Up && !h.Cordoned && bits.OnesCount64(b.free) == k
			if s.hosts[k].has(h.Number) != want {
				return fmt.Errorf("bucket of %d free GPUs is wrong about it", k)
			}
		}
	}
	return nil
}
