// Package placement answers where a request fits: it keeps what every GPU and
// host holds, an index over them, and makes the choice.
//
// GPUs stand in buckets by pool, model and state, hosts by their number of free
// GPUs, so a decision looks at buckets and not at GPUs. What still grows: a
// bucket is walked past hosts that lack the CPU or memory asked for, and the
// shared GPUs of one tenant are walked to find the fullest with room.
package placement

import (
	"fmt"
	"slices"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// DefaultSharers is the number of tasks that share one GPU at most, unless set otherwise.
const DefaultSharers = 4

// Held is a slice and its owner.
type Held struct {
	Owner work.Owner
	Slice work.Slice
}

// Host is a machine and what is free of it.
type Host struct {
	Number   int
	Info     gpu.HostInfo
	Pool     string
	Up       bool
	Cordoned bool
	CPUMilli int64  // free
	MemMiB   int64  // free
	GPUs     []int  // numbers
	bays     []bay  // its GPUs by model
	shape    *shape // with all its GPUs
	sound    *shape // with those not broken; nil while it cannot be used
}

// bay is the GPUs of one model in one host.
type bay struct {
	model int
	gpus  []int
	free  uint64 // bit i: gpus[i] is free and usable
}

// GPU is a device and what stands on it.
type GPU struct {
	Number int
	ID     string
	Model  string
	Host   int
	Health gpu.Health
	Until  work.Time // of HealthSuspect
	Why    string    // of a health other than ok
	Mode   gpu.Mode
	Mask   gpu.Mask
	Tenant string // ModeShared
	Milli  int    // taken, in thousandths
	MemMiB int64  // taken by shares
	Held   []Held

	model, bay, slot int
}

// Cluster is all hosts and GPUs, indexed.
type Cluster struct {
	Hosts  []*Host
	GPUs   []*GPU
	models []*gpu.Geometry

	// Sharers is the number of tasks that share one GPU at most.
	Sharers int

	byName map[string]int
	byID   map[string]int
	pools  map[string]*poolIndex
}

// poolIndex is the index of one pool.
type poolIndex struct {
	shelves []*shelf // by model number; nil where the pool has none
	bare    set      // hosts without a GPU
	shapes  []*shape
}

// shelf is the GPUs of one model in one pool.
type shelf struct {
	geo    *gpu.Geometry
	free   int    // free usable GPUs
	usable int    // usable GPUs, whatever stands on them
	hosts  []*set // hosts by number of free GPUs of this model
	part   int    // GPUs in states
	states map[gpu.Mask]*set
	shared map[string]*set // by tenant
}

// shape is hosts that are alike, to say quickly what could fit if they were empty.
type shape struct {
	cpu, mem int64
	models   []int
	counts   []int
	all      int // hosts that have this with all their GPUs
	up       int // usable hosts that have this with those of their GPUs that are not broken
}

// NewCluster makes an empty cluster that knows the given models. Geometries never
// change and may be used by several clusters.
func NewCluster(models []*gpu.Geometry) *Cluster {
	c := &Cluster{Sharers: DefaultSharers, byName: map[string]int{}, byID: map[string]int{}, pools: map[string]*poolIndex{}}
	c.models = slices.Clone(models)
	return c
}

// SetModel makes a model known, or corrects it while no GPU of it is known.
func (c *Cluster) SetModel(m gpu.Model) {
	i := slices.IndexFunc(c.models, func(g *gpu.Geometry) bool { return g.Model.Key == m.Key })
	if i < 0 {
		c.models = append(c.models, gpu.NewGeometry(m))
		return
	}
	c.models[i] = gpu.NewGeometry(m)
	for _, p := range c.pools { // order: each shelf is set alone
		if i < len(p.shelves) && p.shelves[i] != nil {
			p.shelves[i].geo = c.models[i]
		}
	}
}

// Model returns the number and geometry of a model, or -1.
func (c *Cluster) Model(key string) (int, *gpu.Geometry) {
	for i, g := range c.models {
		if g.Model.Key == key {
			return i, g
		}
	}
	return -1, nil
}

// Geometry of the model of a GPU.
func (c *Cluster) Geometry(n int) *gpu.Geometry { return c.models[c.GPUs[n].model] }

// HostByName returns a host, or nil.
func (c *Cluster) HostByName(name string) *Host {
	if i, ok := c.byName[name]; ok {
		return c.Hosts[i]
	}
	return nil
}

// GPUByID returns a GPU by UUID, or nil.
func (c *Cluster) GPUByID(id string) *GPU {
	if i, ok := c.byID[id]; ok {
		return c.GPUs[i]
	}
	return nil
}

// CheckHost says why a host cannot be added, or nil.
func (c *Cluster) CheckHost(h gpu.HostInfo) error {
	if h.Name == "" || h.CPUMilli < 0 || h.MemMiB < 0 {
		return fmt.Errorf("host %q: expected a name and no negative CPU or memory", h.Name)
	}
	if _, ok := c.byName[h.Name]; ok {
		return fmt.Errorf("host %s is known already", h.Name)
	}
	perModel := map[string]int{}
	seen := map[string]bool{}
	for _, g := range h.GPUs {
		if i, _ := c.Model(g.Model); i < 0 {
			return fmt.Errorf("host %s: GPU %s has model %q, which is not known", h.Name, g.ID, g.Model)
		}
		if _, ok := c.byID[g.ID]; ok || g.ID == "" || seen[g.ID] {
			return fmt.Errorf("host %s: GPU id %q is empty or known already", h.Name, g.ID)
		}
		seen[g.ID] = true
		if perModel[g.Model]++; perModel[g.Model] > work.MaxGPUsPerMember {
			return fmt.Errorf("host %s: more than %d GPUs of one model", h.Name, work.MaxGPUsPerMember)
		}
	}
	return nil
}

// AddHost adds a host, not usable until SetUsable. CheckHost must have passed.
func (c *Cluster) AddHost(info gpu.HostInfo, pool string) *Host {
	h := &Host{Number: len(c.Hosts), Info: info, Pool: pool, CPUMilli: info.CPUMilli, MemMiB: info.MemMiB}
	c.Hosts = append(c.Hosts, h)
	c.byName[info.Name] = h.Number
	for _, gi := range info.GPUs {
		m, _ := c.Model(gi.Model)
		b := slices.IndexFunc(h.bays, func(b bay) bool { return b.model == m })
		if b < 0 {
			b = len(h.bays)
			h.bays = append(h.bays, bay{model: m})
		}
		g := &GPU{Number: len(c.GPUs), ID: gi.ID, Model: gi.Model, Host: h.Number, Health: gpu.HealthOK, Mode: gpu.ModeFree,
			model: m, bay: b, slot: len(h.bays[b].gpus)}
		c.GPUs = append(c.GPUs, g)
		c.byID[gi.ID] = g.Number
		h.GPUs = append(h.GPUs, g.Number)
		h.bays[b].gpus = append(h.bays[b].gpus, g.Number)
	}
	p := c.pool(pool)
	h.shape = p.shapeOf(c, h, true)
	h.shape.all++
	for _, b := range h.bays {
		p.stock(b.model, c.models[b.model])
	}
	return h
}

func (c *Cluster) pool(name string) *poolIndex {
	p := c.pools[name]
	if p == nil {
		p = &poolIndex{}
		c.pools[name] = p
	}
	return p
}

// stock makes sure that the pool has a shelf for a model.
func (p *poolIndex) stock(model int, geo *gpu.Geometry) {
	for len(p.shelves) <= model {
		p.shelves = append(p.shelves, nil)
	}
	if p.shelves[model] == nil {
		p.shelves[model] = &shelf{geo: geo, states: map[gpu.Mask]*set{}, shared: map[string]*set{}}
	}
}

// shapeOf finds the shape of a host, with its broken GPUs or without.
func (p *poolIndex) shapeOf(c *Cluster, h *Host, broken bool) *shape {
	s := &shape{cpu: h.Info.CPUMilli, mem: h.Info.MemMiB}
	for _, b := range h.bays {
		n := 0
		for _, g := range b.gpus {
			if broken || c.GPUs[g].Health != gpu.HealthBroken {
				n++
			}
		}
		s.models = append(s.models, b.model)
		s.counts = append(s.counts, n)
	}
	for _, o := range p.shapes {
		if o.cpu == s.cpu && o.mem == s.mem && slices.Equal(o.models, s.models) && slices.Equal(o.counts, s.counts) {
			return o
		}
	}
	p.shapes = append(p.shapes, s)
	return s
}

// SetUsable marks a host as up or down and cordoned or not.
func (c *Cluster) SetUsable(n int, up, cordoned bool) {
	h := c.Hosts[n]
	c.changeHost(h, func() { h.Up, h.Cordoned = up, cordoned })
}

// SetHealth marks a GPU. Slices that stand on it stay.
func (c *Cluster) SetHealth(n int, health gpu.Health, until work.Time, why string) {
	g := c.GPUs[n]
	c.changeHost(c.Hosts[g.Host], func() { g.Health, g.Until, g.Why = health, until, why })
}

// SetPool moves a host to another pool.
func (c *Cluster) SetPool(n int, pool string) {
	h := c.Hosts[n]
	h.shape.all--
	p := c.pool(pool)
	c.changeHost(h, func() {
		h.Pool = pool
		for _, b := range h.bays {
			p.stock(b.model, c.models[b.model])
		}
	})
	h.shape = p.shapeOf(c, h, true)
	h.shape.all++
}

// Take gives a part to an owner. The part must come from Find on this state, or
// from a fact that once did.
func (c *Cluster) Take(o work.Owner, tenant string, p work.Part) {
	h := c.Hosts[p.Host]
	h.CPUMilli -= p.CPUMilli
	h.MemMiB -= p.MemMiB
	for _, s := range p.Slices {
		g := c.GPUs[s.GPU]
		c.unindex(g)
		g.Mode = s.Mode
		g.Milli += s.Milli
		switch s.Mode {
		case gpu.ModeMIG:
			g.Mask |= c.sliceMask(s)
		case gpu.ModeShared:
			g.Tenant = tenant
			g.MemMiB += s.Share.MemMiB
		}
		g.Held = append(g.Held, Held{o, s})
		c.index(g)
	}
}

// Free takes a part back from its owner.
func (c *Cluster) Free(o work.Owner, p work.Part) {
	h := c.Hosts[p.Host]
	h.CPUMilli += p.CPUMilli
	h.MemMiB += p.MemMiB
	for _, s := range p.Slices {
		g := c.GPUs[s.GPU]
		c.unindex(g)
		g.Held = slices.DeleteFunc(g.Held, func(x Held) bool { return x.Owner == o && x.Slice.Start == s.Start })
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
}

func (c *Cluster) sliceMask(s work.Slice) gpu.Mask {
	geo := c.Geometry(s.GPU)
	if i := geo.Index(s.Profile); i >= 0 {
		return geo.Model.Profiles[i].Mask(s.Start)
	}
	return 0
}
