// Package placement answers where a request fits: it keeps what every GPU and
// host holds, an index over them, and makes the choice.
//
// The choice (score.go) takes the place after which the most of what is expected
// still fits; what is expected is learned from what was asked lately (demand.go).
// docs/placement.md says the formula and what it is worth.
//
// GPUs stand in rows by pool, model and state, hosts by their number of free GPUs,
// and each row in cells by the CPU that is left (row.go). A decision weighs each
// state once and looks at two members of each cell, so its cost follows the number
// of different states and not the number of GPUs. Inside a cell the next member
// with enough CPU and memory is found by a bitmap whose words know the most that is
// left under them (cell.go). What still grows: that bitmap has one word for 64
// hosts and one for 4,096; and the search for who must yield (yield.go) looks at
// every host of a pool if no task there may yield.
package placement

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// DefaultSharers is the number of tasks that share one GPU at most, unless set otherwise.
const DefaultSharers = 4

// Holder is who takes a part.
type Holder struct {
	work.Owner
	Tenant   string
	Priority work.Priority
}

// Held is a slice and who has it.
type Held struct {
	Holder
	Slice work.Slice
}

// Host is a machine and what is free of it. What a decision reads stands first, close
// together: on large clusters its cost is that of the memory it touches.
type Host struct {
	Number   int
	CPUMilli int64 // free
	MemMiB   int64 // free
	Up       bool
	Cordoned bool
	lowered  bool       // some cell may think that less is left of this host than it has in all
	stamp    uint32     // changes with everything that its outlook depends on
	level    int        // its cells in the index
	idle     int64      // thousandths of usable GPUs that are not taken
	in       *poolIndex // of Pool
	bays     []bay      // its GPUs by model
	all      amount     // CPU and memory when nothing is taken
	kept     amount     // of it, for tasks that wait: what is free is less by it, and may be less than nothing
	outlook  outlook
	GPUs     []int // numbers
	Pool     string
	Info     gpu.HostInfo
	shape    *shape // with all its GPUs
	sound    *shape // with those not out of use; nil while it cannot be used
}

// bay is the GPUs of one model in one host.
type bay struct {
	model int
	gpus  []int
	free  uint64      // bit i: gpus[i] is free and usable
	links []uint64    // the NVLink domains, as bits; nil when all are one
	in    []*standing // where it is indexed: the pool's, and one for each topology group
	yield [work.Priorities]yieldCount
}

// count is the number of free GPUs.
func (b *bay) count() int { return bits.OnesCount64(b.free) }

// linked is how many of the free GPUs are in one NVLink domain at most.
func (b *bay) linked() int {
	if b.links == nil {
		return b.count()
	}
	n := 0
	for _, l := range b.links {
		n = max(n, bits.OnesCount64(b.free&l))
	}
	return n
}

// GPU is a device and what stands on it. What a decision reads stands first.
type GPU struct {
	Number int
	Host   int

	model, bay, slot int

	Health gpu.Health
	Kept   bool // for a task that waits: nobody else may have it (keep.go)
	Mode   gpu.Mode
	Mask   gpu.Mask
	Milli  int   // taken, in thousandths
	MemMiB int64 // taken by shares
	Held   []Held
	Tenant string // ModeShared
	ID     string
	Model  string
	Until  work.Time // of HealthSuspect
	Why    string    // of a health other than ok
}

// Cluster is all hosts and GPUs, indexed.
type Cluster struct {
	Hosts  []*Host
	GPUs   []*GPU
	models []*gpu.Geometry

	// Sharers is the number of tasks that share one GPU at most.
	Sharers int
	// Topology is the host labels that name groups of hosts near each other, the
	// widest first: gangs stay within one group where they can. Set before AddHost.
	Topology []string

	byName  map[string]int
	byID    map[string]int
	pools   map[string]*poolIndex
	scratch search

	groupNames map[string]int
}

// poolIndex is the index of one pool.
type poolIndex struct {
	shelves []*shelf // by model number; nil where the pool has none
	bySize  []int    // models that it has, the smallest memory first
	bare    row      // hosts without a GPU
	shapes  []*shape
	demand  demand
	groups  []groups // by topology level
}

// shelf is the GPUs of one model in one pool.
type shelf struct {
	geo     *gpu.Geometry
	free    int // free usable GPUs
	usable  int // usable GPUs, whatever stands on them
	bays    int // hosts that have such GPUs, usable or not
	hosts   standing
	part    int    // GPUs in states
	sharing int    // GPUs that are shared
	states  []*row // by mask; nil where none ever was
	cut     set    // masks of which there are GPUs
	shared  map[string]*levels
	yields  yields
	view    view
}

// shape is hosts that are alike, to say quickly what could fit if they were empty.
type shape struct {
	cpu, mem int64
	models   []int
	counts   []int
	all      int // hosts that have this with all their GPUs
	up       int // usable hosts that have this with those of their GPUs that are not out of use
}

// NewCluster makes an empty cluster that knows the given models. Geometries never
// change and may be used by several clusters.
func NewCluster(models []*gpu.Geometry) *Cluster {
	c := &Cluster{Sharers: DefaultSharers, byName: map[string]int{}, byID: map[string]int{}, pools: map[string]*poolIndex{}, groupNames: map[string]int{}}
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
			p.shelves[i].geo, p.demand.ready = c.models[i], false
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

// ModelAt is the model of a number.
func (c *Cluster) ModelAt(n int) gpu.Model { return c.models[n].Model }

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
	h := &Host{Number: len(c.Hosts), Info: info, Pool: pool, CPUMilli: info.CPUMilli, MemMiB: info.MemMiB, all: amount{info.CPUMilli, info.MemMiB}}
	c.Hosts = append(c.Hosts, h)
	c.byName[info.Name] = h.Number
	var domains [][]string // by bay
	for _, gi := range info.GPUs {
		m, _ := c.Model(gi.Model)
		b := slices.IndexFunc(h.bays, func(b bay) bool { return b.model == m })
		if b < 0 {
			b = len(h.bays)
			h.bays = append(h.bays, bay{model: m})
			domains = append(domains, nil)
		}
		g := &GPU{Number: len(c.GPUs), ID: gi.ID, Model: gi.Model, Host: h.Number, Health: gpu.HealthOK, Mode: gpu.ModeFree,
			model: m, bay: b, slot: len(h.bays[b].gpus)}
		c.GPUs = append(c.GPUs, g)
		c.byID[gi.ID] = g.Number
		h.GPUs = append(h.GPUs, g.Number)
		h.bays[b].gpus = append(h.bays[b].gpus, g.Number)
		domains[b] = append(domains[b], gi.NVLink)
	}
	for i := range h.bays {
		h.bays[i].links = links(domains[i])
	}
	h.level = cpuLevel(h.CPUMilli)
	h.shape = c.pool(pool).shapeOf(c, h, true)
	h.shape.all++
	c.enroll(h)
	return h
}

// links returns NVLink domains as bits of the GPUs whose domains are named, or nil
// when all are one. GPUs of which no domain is told are taken to be joined.
func links(domains []string) []uint64 {
	var names []string
	var out []uint64
	for i, name := range domains {
		k := slices.Index(names, name)
		if k < 0 {
			k = len(names)
			names, out = append(names, name), append(out, 0)
		}
		out[k] |= 1 << i
	}
	if len(out) == 1 {
		return nil
	}
	return out
}

// enroll gives the bays of a host their places in the index of its pool.
func (c *Cluster) enroll(h *Host) {
	p := c.pool(h.Pool)
	h.in = p
	for i := range h.bays {
		b := &h.bays[i]
		p.stock(b.model, c.models[b.model])
		p.shelves[b.model].bays++
		b.in = append(p.groupsOf(c, h, b.model), &p.shelves[b.model].hosts)
	}
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
		p.shelves[model] = &shelf{geo: geo, shared: map[string]*levels{}}
		p.bySize = append(p.bySize, model)
		slices.SortFunc(p.bySize, func(a, b int) int {
			return cmp.Or(cmp.Compare(p.shelves[a].geo.Model.MemoryMiB, p.shelves[b].geo.Model.MemoryMiB), a-b)
		})
	}
}

// shapeOf finds the shape of a host, with its GPUs that are out of use or without.
func (p *poolIndex) shapeOf(c *Cluster, h *Host, all bool) *shape {
	s := &shape{cpu: h.Info.CPUMilli, mem: h.Info.MemMiB}
	for _, b := range h.bays {
		n := 0
		for _, g := range b.gpus {
			if all || !c.GPUs[g].Health.Out() {
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
	for i := range h.bays {
		h.in.shelves[h.bays[i].model].bays--
	}
	c.changeHost(h, func() {
		h.Pool = pool
		c.enroll(h)
	})
	h.shape = c.pool(pool).shapeOf(c, h, true)
	h.shape.all++
}
