package placement

import (
	"math/bits"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// changeHost takes a host out of the index, changes it and puts it back.
func (c *Cluster) changeHost(h *Host, change func()) {
	c.eachBay(h, c.unindex)
	if h.Up && !h.Cordoned {
		c.withdraw(h)
	}
	h.in.demand.ready = false
	change()
	h.in.demand.ready = false // what is scarce depends on what there is
	if h.sound != nil {
		h.sound.up--
		h.sound = nil
	}
	if h.Up && !h.Cordoned {
		h.sound = c.pool(h.Pool).shapeOf(c, h, false)
		h.sound.up++
		c.present(h)
	}
	c.eachBay(h, c.index)
}

// eachBay does something with every GPU, bay by bay.
func (c *Cluster) eachBay(h *Host, do func(*GPU)) {
	for i := range h.bays {
		b := &h.bays[i]
		was := b.at()
		for _, n := range b.gpus {
			do(c.GPUs[n])
		}
		c.settle(h, b, was)
	}
}

// present makes a host known to the index, as one without usable GPUs yet.
func (c *Cluster) present(h *Host) {
	if len(h.GPUs) == 0 {
		h.in.bare.enter(h.level, h.Number, h.all)
	}
	for i := range h.bays {
		b := &h.bays[i]
		b.free, b.yield = 0, [work.Priorities]yieldCount{}
		b.enter(h, b.at())
		h.in.shelves[b.model].yields.enter(h, b.at())
	}
}

// withdraw undoes present, when none of the host's GPUs is indexed.
func (c *Cluster) withdraw(h *Host) {
	if len(h.GPUs) == 0 {
		h.in.bare.leave(h.level, h.Number)
	}
	for i := range h.bays {
		b := &h.bays[i]
		b.leave(h, b.at())
		h.in.shelves[b.model].yields.leave(h, b.at())
	}
}

func (h *Host) left() amount { return amount{h.CPUMilli, h.MemMiB} }

// spot is what decides where in the index a bay stands.
type spot struct {
	free, linked int
	yield        [work.Priorities]yieldCount
}

func (b *bay) at() spot { return spot{b.count(), b.linked(), b.yield} }

// settle moves a host in the index after its bay has changed.
func (c *Cluster) settle(h *Host, b *bay, was spot) {
	now := b.at()
	if now == was || !h.Up || h.Cordoned {
		return
	}
	if now.free != was.free || now.linked != was.linked {
		b.leave(h, was)
		b.enter(h, now)
	}
	h.in.shelves[b.model].yields.move(h, was, now)
}

// enter puts a host into the rows of the number of free GPUs that the bay has.
func (b *bay) enter(h *Host, at spot) {
	for _, s := range b.in {
		s.row(at.free, at.linked).enter(h.level, h.Number, h.all)
		s.hosts[at.free]++
		s.changed(at.free)
	}
}

func (b *bay) leave(h *Host, at spot) {
	for _, s := range b.in {
		s.rows[at.free][at.linked].leave(h.level, h.Number)
		s.hosts[at.free]--
		s.changed(-at.free)
	}
}

// sound reports whether a GPU can be given out as far as it is concerned itself.
func (g *GPU) sound() bool { return g.Health == gpu.HealthOK && !g.Kept }

func (c *Cluster) usable(g *GPU) bool {
	h := c.Hosts[g.Host]
	return g.sound() && h.Up && !h.Cordoned
}

// index puts a GPU into the row of its state, if it may be given out. The bay
// must be settled afterwards.
func (c *Cluster) index(g *GPU) {
	h := c.Hosts[g.Host]
	h.stamp++
	if !c.usable(g) {
		return
	}
	s := h.in.shelves[g.model]
	s.usable++
	h.idle += s.idle(g)
	b := &h.bays[g.bay]
	b.counts(g, 1)
	switch g.Mode {
	case gpu.ModeFree:
		b.free |= 1 << g.slot
		s.free++
	case gpu.ModeMIG:
		s.part++
		s.state(g.Mask).enter(h.level, g.Number, h.all)
		s.cut.add(int(g.Mask))
	case gpu.ModeShared:
		s.sharing++
		if len(g.Held) < c.Sharers {
			free := s.sharable(g)
			l := s.sharedBy(g.Tenant)
			l.row(free).enter(h.level, g.Number, h.all)
			l.have.add(free)
		}
	case gpu.ModeWhole:
	}
}

// unindex undoes index; it must be called before the GPU changes.
func (c *Cluster) unindex(g *GPU) {
	h := c.Hosts[g.Host]
	h.stamp++
	if !c.usable(g) {
		return
	}
	s := h.in.shelves[g.model]
	s.usable--
	h.idle -= s.idle(g)
	b := &h.bays[g.bay]
	b.counts(g, -1)
	switch g.Mode {
	case gpu.ModeFree:
		b.free &^= 1 << g.slot
		s.free--
	case gpu.ModeMIG:
		s.part--
		if s.states[g.Mask].leave(h.level, g.Number); s.states[g.Mask].n == 0 {
			s.cut.remove(int(g.Mask))
		}
	case gpu.ModeShared:
		s.sharing--
		if len(g.Held) < c.Sharers {
			free := s.sharable(g)
			l := s.shared[g.Tenant]
			if l.rows[free].leave(h.level, g.Number); l.rows[free].n == 0 {
				l.have.remove(free)
			}
		}
	case gpu.ModeWhole:
	}
}

// sharable is how much of a shared GPU a further share may take at most, in
// thousandths: of what is left of its compute and of its memory, the lesser.
func (s *shelf) sharable(g *GPU) int {
	free := 1000 - g.Milli
	if m := s.geo.Model.MemoryMiB; m > 0 {
		free = min(free, int((m-g.MemMiB)*1000/m))
	}
	return free
}

// idle is how much of a GPU is not taken, in thousandths.
func (s *shelf) idle(g *GPU) int64 {
	switch g.Mode {
	case gpu.ModeFree:
		return 1000
	case gpu.ModeMIG:
		return s.idleMIG(g.Mask)
	case gpu.ModeShared:
		return int64(1000 - g.Milli)
	case gpu.ModeWhole:
	}
	return 0
}

// idleMIG is the share of the memory units of a board that are not taken.
func (s *shelf) idleMIG(state gpu.Mask) int64 {
	units := s.geo.Model.Units
	return int64((units - bits.OnesCount16(uint16(state))) * 1000 / units)
}

func (s *shelf) state(m gpu.Mask) *row {
	if s.states == nil {
		s.states = make([]*row, 1<<s.geo.Model.Units)
	}
	if s.states[m] == nil {
		s.states[m] = &row{gpus: true}
	}
	return s.states[m]
}

func (s *shelf) sharedBy(tenant string) *levels {
	if s.shared[tenant] == nil {
		s.shared[tenant] = &levels{rows: map[int]*row{}}
	}
	return s.shared[tenant]
}

// spend takes CPU and memory from a host, or gives them back when negative.
func (c *Cluster) spend(h *Host, cpu, mem int64) {
	if cpu == 0 && mem == 0 {
		return
	}
	h.stamp++
	was := h.level
	h.CPUMilli -= cpu
	h.MemMiB -= mem
	h.level = cpuLevel(h.CPUMilli)
	if !h.Up || h.Cordoned || h.level == was && (!h.lowered || cpu >= 0 && mem >= 0) {
		return
	}
	h.lowered = false
	c.eachRow(h, func(r *row, i int) {
		if h.level == was {
			r.cells[was].raise(i, h.all)
			return
		}
		r.leave(was, i)
		r.enter(h.level, i, h.all)
	})
}

// eachRow tells the rows in which a usable host and its GPUs stand.
func (c *Cluster) eachRow(h *Host, do func(r *row, i int)) {
	p := h.in
	if len(h.GPUs) == 0 {
		do(&p.bare, h.Number)
	}
	for i := range h.bays {
		b := &h.bays[i]
		free, linked := b.count(), b.linked()
		for _, s := range b.in {
			do(s.rows[free][linked], h.Number)
		}
	}
	for _, n := range h.GPUs {
		g := c.GPUs[n]
		if !g.sound() {
			continue
		}
		s := p.shelves[g.model]
		switch {
		case g.Mode == gpu.ModeMIG:
			do(s.states[g.Mask], n)
		case g.Mode == gpu.ModeShared && len(g.Held) < c.Sharers:
			do(s.shared[g.Tenant].rows[s.sharable(g)], n)
		}
	}
}
