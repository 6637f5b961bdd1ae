package placement

import (
	"slices"

	"github.com/gpupool/gpupool/internal/work"
)

// How much of the past counts. Classes beyond maxClasses are too rare to weigh on a
// choice: on openb, whose richest workload has 85, 64 classes pack no better than 32.
const (
	maxClasses = 32
	window     = 8192 // members asked for, after which the past counts half
	refreshMin = 16   // asked members between two refreshes at the least, and
	refreshMax = 1024 // at the most
	maxWeight  = 16   // members of one gang that count
)

// Class is requests that ask the same of GPUs, and how much of them there was.
type Class struct {
	Request  work.Request `json:"request"` // for one member, of GPUs alone
	Members  int64        `json:"members"`
	CPUMilli int64        `json:"cpu_milli"`  // sum over the members
	MemMiB   int64        `json:"memory_mib"` // sum over the members
}

// Demand is what was asked of a pool lately. Asked goes on changing; Expect is
// Asked as it was at the last refresh, and what choices are made by.
type Demand struct {
	Asked  []Class `json:"asked,omitempty"`
	Expect []Class `json:"expect,omitempty"`
	Since  int64   `json:"since,omitempty"` // members asked for since the refresh
	// Beside is the CPU asked for by members without GPUs, in thousandths of cores.
	// They are no class: leaving them out packs GPUs better than counting them.
	Beside int64 `json:"beside,omitempty"`
}

// demand is a Demand in the form that scores need.
type demand struct {
	Demand
	epoch  uint32     // counts refreshes
	ready  bool       // the shelves' views are of this epoch
	weight int64      // members expected
	cpu    float64    // CPU asked for in all, and
	gpus   float64    // GPUs, both in thousandths
	hungry bool       // some expected requests can run a host out of CPU or memory before GPUs
	perCPU float64    // thousandths of GPUs that are asked for with a thousandth of a core
	whole  float64    // weight of keeping hosts whole
	class  []expected // Expect, in order
}

// expected is a class as the score uses it.
type expected struct {
	weight int64
	gpus   int     // of a member, when it asks for whole ones
	hungry bool    // needs CPU or memory
	perCPU float64 // thousandths of GPUs that a thousandth of a core feeds; huge = any
	perMem float64 // the same for a MiB
}

// Asked tells that a tenant asked a pool for this, whether it fits or not: later
// choices keep room for more of the same. It costs a look at 32 classes.
func (c *Cluster) Asked(pool string, r work.Request) {
	d := &c.pool(pool).demand
	n := min(int64(r.Count()), maxWeight)
	if r.HostOnly() {
		d.Beside += n * r.CPUMilli
		return
	}
	d.add(classOf(r), n, r.CPUMilli, r.MemMiB)
	d.Since += n
	total := int64(0)
	for i := range d.Asked {
		total += d.Asked[i].Members
	}
	if total >= window {
		d.forget()
	}
	if d.Since >= min(max(refreshMin, total/4), refreshMax) {
		d.Expect, d.Since = slices.Clone(d.Asked), 0
		d.refresh()
	}
}

// classOf is what a request asks of GPUs; fractions to the hundredth.
func classOf(r work.Request) work.Request {
	r.CPUMilli, r.MemMiB, r.Members = 0, 0, 0
	if r.Milli > 0 {
		r.Milli = min((r.Milli+9)/10*10, 999)
	}
	return r
}

func sameClass(a, b *work.Request) bool {
	return a.GPUs == b.GPUs && a.Milli == b.Milli && a.GPUMemMiB == b.GPUMemMiB && a.Profile == b.Profile &&
		a.Isolation == b.Isolation && slices.Equal(a.Models, b.Models)
}

// add counts n members. When there are too many classes the rarest gives way, but
// only after it was outnumbered.
func (d *demand) add(r work.Request, n, cpu, mem int64) {
	least := 0
	for i := range d.Asked {
		x := &d.Asked[i]
		if sameClass(&x.Request, &r) {
			x.Members += n
			x.CPUMilli += n * cpu
			x.MemMiB += n * mem
			return
		}
		if x.Members < d.Asked[least].Members {
			least = i
		}
	}
	x := Class{r, n, n * cpu, n * mem}
	if len(d.Asked) < maxClasses {
		d.Asked = append(d.Asked, x)
		return
	}
	rare := &d.Asked[least]
	if rare.Members > n {
		left := rare.Members - n
		rare.CPUMilli, rare.MemMiB = rare.CPUMilli/rare.Members*left, rare.MemMiB/rare.Members*left
		rare.Members = left
		return
	}
	d.Asked[least] = x
}

// forget halves what was asked so far.
func (d *demand) forget() {
	for i := range d.Asked {
		x := &d.Asked[i]
		x.Members, x.CPUMilli, x.MemMiB = x.Members/2, x.CPUMilli/2, x.MemMiB/2
	}
	d.Beside /= 2
	d.Asked = slices.DeleteFunc(d.Asked, func(x Class) bool { return x.Members == 0 })
}

// refresh makes the next decision compute what scores need from Expect.
func (d *demand) refresh() {
	d.epoch++
	d.ready = false
}

// weigh computes what scores need from Expect. need says how much of a GPU a member
// of a class takes, in thousandths; hosts have at least cpu and mem for each
// thousandth of their GPUs.
func (d *demand) weigh(need func(class int) int, cpu, mem float64) {
	d.hungry, d.weight, d.class, d.cpu, d.gpus = d.Beside > 0, 0, d.class[:0], 0, 0
	for i, x := range d.Expect {
		n := float64(x.Members) * float64(need(i))
		e := expected{weight: x.Members, gpus: x.Request.GPUs, hungry: x.CPUMilli > 0 || x.MemMiB > 0,
			perCPU: ratio(n, x.CPUMilli), perMem: ratio(n, x.MemMiB)}
		d.class = append(d.class, e)
		d.weight += x.Members
		d.hungry = d.hungry || e.perCPU*cpu < 1 || e.perMem*mem < 1
		d.cpu += float64(x.CPUMilli)
		d.gpus += float64(n) // rounded here: no fused multiply-add, so that all machines agree
	}
	d.perCPU = ratio(d.gpus, int64(d.cpu))
	d.cpu += float64(d.Beside)
}

// plenty stands for a ratio without bound; times any amount it fits an int64.
const plenty = 1e6

func ratio(a float64, b int64) float64 {
	if b == 0 {
		return plenty
	}
	return min(a/float64(b), plenty)
}

// Demand returns what a pool was asked for lately, to be kept with a snapshot.
func (c *Cluster) Demand(pool string) Demand {
	if p := c.pools[pool]; p != nil {
		return p.demand.Demand
	}
	return Demand{}
}

// SetDemand restores what Demand returned.
func (c *Cluster) SetDemand(pool string, d Demand) {
	p := c.pool(pool)
	p.demand.Demand = d
	p.demand.refresh()
}
