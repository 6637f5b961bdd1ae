package placement

import (
	"errors"
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
		cpu, mem := h.CPUMilli+h.kept.cpu, h.MemMiB+h.kept.mem
		if cpu < 0 || mem < 0 || cpu > h.Info.CPUMilli || mem > h.Info.MemMiB || h.kept.cpu < 0 || h.kept.mem < 0 {
			return fmt.Errorf("host %s has %d mCPU and %d MiB free of %d and %d", h.Info.Name, cpu, mem, h.Info.CPUMilli, h.Info.MemMiB)
		}
		if err := c.checkHostIndex(h); err != nil {
			return fmt.Errorf("host %s: %w", h.Info.Name, err)
		}
	}
	if err := c.checkRows(); err != nil {
		return err
	}
	if err := c.checkStandings(); err != nil {
		return err
	}
	return c.checkSums()
}

// checkSums verifies that what the shelves and shapes count is what there is.
func (c *Cluster) checkSums() error {
	type key struct {
		pool  string
		model int
	}
	free, cut, usable, bays := map[key]int{}, map[key]int{}, map[key]int{}, map[key]int{}
	for _, h := range c.Hosts {
		for i := range h.bays {
			bays[key{h.Pool, h.bays[i].model}]++
		}
	}
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
			if s != nil && s.bays != bays[k] {
				return fmt.Errorf("pool %s has %d hosts with %s, counted %d", name, bays[k], s.geo.Model.Key, s.bays)
			}
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

// checkIndex verifies that a GPU stands in the row of its state and nowhere else.
func (c *Cluster) checkIndex(g *GPU) error {
	h := c.Hosts[g.Host]
	s := c.pools[h.Pool].shelves[g.model]
	use := c.usable(g)
	if free := h.bays[g.bay].free&(1<<g.slot) != 0; free != (use && g.Mode == gpu.ModeFree) {
		return fmt.Errorf("free bit is %v", free)
	}
	for mask, r := range s.states {
		if err := c.checkRow(r, g.Number, use && g.Mode == gpu.ModeMIG && gpu.Mask(mask) == g.Mask); err != nil {
			return fmt.Errorf("state %b: %w", mask, err)
		}
	}
	for tenant, l := range s.shared { // order: only a yes or no comes out
		for free, r := range l.rows { // order: only a yes or no comes out
			want := use && g.Mode == gpu.ModeShared && tenant == g.Tenant && len(g.Held) < c.Sharers && s.sharable(g) == free
			if err := c.checkRow(r, g.Number, want); err != nil {
				return fmt.Errorf("shared by %s with %d left: %w", tenant, free, err)
			}
		}
	}
	return nil
}

func (c *Cluster) checkHostIndex(h *Host) error {
	use := h.Up && !h.Cordoned
	if h.level != cpuLevel(h.CPUMilli) {
		return fmt.Errorf("at level %d with %d mCPU", h.level, h.CPUMilli)
	}
	if err := c.checkRow(&c.pools[h.Pool].bare, h.Number, use && len(h.GPUs) == 0); err != nil {
		return fmt.Errorf("hosts without GPUs: %w", err)
	}
	idle := int64(0)
	for _, n := range h.GPUs {
		if g := c.GPUs[n]; c.usable(g) {
			idle += c.pools[h.Pool].shelves[g.model].idle(g)
		}
	}
	if use && idle != h.idle {
		return fmt.Errorf("%d thousandths idle, counted %d", idle, h.idle)
	}
	if bad := c.checkYields(h); bad != "" {
		return errors.New(bad)
	}
	for i := range h.bays {
		b := &h.bays[i]
		for _, s := range b.in {
			for free, rows := range s.rows {
				for linked, r := range rows {
					if err := c.checkRow(r, h.Number, use && b.count() == free && b.linked() == linked); err != nil {
						return fmt.Errorf("row of %d free GPUs, %d linked: %w", free, linked, err)
					}
				}
			}
		}
	}
	return nil
}

// checkRow verifies that a host or GPU stands in a row or not, in the cell of its
// host's CPU, and that the cell knows of what the host has left.
func (c *Cluster) checkRow(r *row, n int, want bool) error {
	if r == nil {
		if want {
			return fmt.Errorf("the row is missing")
		}
		return nil
	}
	h := n
	if r.gpus {
		h = c.GPUs[n].Host
	}
	level, found := c.Hosts[h].level, false
	for used := r.used; used != 0; used &= used - 1 {
		l := bits.TrailingZeros32(used)
		s := r.cells[l]
		if s == nil || !s.has(n) { // a wrong bit is told by checkRows
			continue
		}
		if found = l == level; !found || !want {
			return fmt.Errorf("%d stands in cell %d", n, l)
		}
		most := c.Hosts[h].all
		if c.Hosts[h].lowered {
			most = c.Hosts[h].left()
		}
		if !s.word[n>>6].covers(most) || !s.over[n>>12].covers(s.word[n>>6]) {
			return fmt.Errorf("cell %d thinks that less is left of %d than is", l, n)
		}
	}
	if want && !found {
		return fmt.Errorf("%d is missing in cell %d", n, level)
	}
	return nil
}

// checkRows verifies what each row counts.
func (c *Cluster) checkRows() error {
	for _, p := range c.pools { // order: only a yes or no comes out
		rows := []*row{&p.bare}
		for _, s := range p.shelves {
			if s == nil {
				continue
			}
			rows = append(rows, s.states...)
			for _, l := range s.shared { // order: only a yes or no comes out
				for free, r := range l.rows { // order: only a yes or no comes out
					rows = append(rows, r)
					if l.have.has(free) != (r.n > 0) {
						return fmt.Errorf("%d GPUs with %d to share, the level says %v", r.n, free, l.have.has(free))
					}
				}
			}
		}
		for _, r := range rows {
			if err := r.check(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *row) check() error {
	if r == nil {
		return nil
	}
	n := 0
	for l, s := range r.cells {
		if s == nil {
			s = &cell{}
		}
		if n += s.len(); (s.len() > 0) != (r.used&(1<<l) != 0) {
			return fmt.Errorf("cell %d has %d members, its bit says otherwise", l, s.len())
		}
	}
	if n != r.n {
		return fmt.Errorf("a row has %d members, counted %d", n, r.n)
	}
	return nil
}

// checkStandings verifies what standings and groups count.
func (c *Cluster) checkStandings() error {
	hosts, free := map[*standing]map[int]int{}, map[*standing]int{}
	for _, h := range c.Hosts {
		for i := range h.bays {
			b := &h.bays[i]
			for _, s := range b.in {
				if hosts[s] == nil {
					hosts[s] = map[int]int{}
				}
				if h.Up && !h.Cordoned {
					hosts[s][b.count()]++
					free[s] += b.count()
				}
			}
		}
	}
	for s, counts := range hosts { // order: only a yes or no comes out
		for _, rows := range s.rows {
			for _, r := range rows {
				if err := r.check(); err != nil {
					return err
				}
			}
		}
		for n, have := range s.hosts {
			if have != counts[n] {
				return fmt.Errorf("%d hosts with %d free GPUs, counted %d", counts[n], n, have)
			}
		}
		if g := s.group; g != nil && (g.free != free[s] || !g.order.have.has(g.free) || !g.order.groups[g.free].has(g.number)) {
			return fmt.Errorf("a group has %d free GPUs, counted %d", free[s], g.free)
		}
	}
	return nil
}
