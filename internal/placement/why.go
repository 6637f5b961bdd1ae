package placement

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpupool/gpupool/internal/work"
)

// Possible reports whether the hosts of a pool could hold the request if they
// were empty: all known hosts, or only those usable now without GPUs that are out of use.
func (c *Cluster) Possible(pool string, r work.Request, onlyUsable bool) bool {
	p := c.pools[pool]
	if p == nil {
		return false
	}
	models := c.Candidates(pool, r)
	if r.GPUs == 0 {
		return c.hold(p, models, r, onlyUsable)
	}
	for i := range models { // members of one gang get one model
		if c.hold(p, models[i:i+1], r, onlyUsable) {
			return true
		}
	}
	return false
}

// hold reports whether empty hosts hold all members on GPUs of these models.
func (c *Cluster) hold(p *poolIndex, models []int, r work.Request, onlyUsable bool) bool {
	members := 0
	for _, s := range p.shapes {
		hosts := s.all
		if onlyUsable {
			hosts = s.up
		}
		if hosts > 0 {
			if members += hosts * c.perHost(s, models, r); members >= r.Count() {
				return true
			}
		}
	}
	return false
}

// Wanted returns the models that a request could be placed on if the hosts
// usable now were empty: all that a task which waits may keep others from. A
// model can serve a request (Candidates) and yet stand in no host with enough
// of it, or with too little CPU.
func (c *Cluster) Wanted(pool string, r work.Request) []int {
	return slices.DeleteFunc(c.Candidates(pool, r), func(m int) bool {
		one := r
		if r.GPUs == 0 {
			one.Members = 1 // members on parts may have different models
		}
		return !c.hold(c.pools[pool], []int{m}, one, true)
	})
}

// perHost is how many members an empty host of a shape holds.
func (c *Cluster) perHost(s *shape, models []int, r work.Request) int {
	n := 0
	if r.HostOnly() {
		n = r.Count()
	}
	for i, m := range s.models {
		if slices.Contains(models, m) {
			n += c.perBay(m, s.counts[i], r)
		}
	}
	if r.CPUMilli > 0 {
		n = min(n, int(s.cpu/r.CPUMilli))
	}
	if r.MemMiB > 0 {
		n = min(n, int(s.mem/r.MemMiB))
	}
	return n
}

// perBay counts as Find fills empty GPUs: parts in their best form.
func (c *Cluster) perBay(model, gpus int, r work.Request) int {
	if r.GPUs > 0 {
		return gpus / r.GPUs
	}
	m := c.models[model].Model
	f := r.FitPart(m)[0]
	if f.Profile >= 0 {
		return gpus * m.Profiles[f.Profile].Max
	}
	n := min(1000/max(f.Milli, 1), c.Sharers)
	if f.Share.MemMiB > 0 {
		n = min(n, int(m.MemoryMiB/f.Share.MemMiB))
	}
	return gpus * n
}

// HasHosts reports whether the pool has any host, usable or not.
func (c *Cluster) HasHosts(pool string) bool {
	p := c.pools[pool]
	if p == nil {
		return false
	}
	for _, s := range p.shapes {
		if s.all > 0 {
			return true
		}
	}
	return false
}

// Why says why a tenant's request has no place now, with the arithmetic. It walks the
// buckets of the pool and is meant for people, not for the path of a decision.
func (c *Cluster) Why(pool, tenant string, r work.Request) work.Reason {
	if !c.HasHosts(pool) {
		return work.Reasonf(work.WaitCapacity, "pool %s has no hosts yet", pool)
	}
	models := c.Candidates(pool, r)
	if len(models) == 0 && !r.HostOnly() {
		return work.Reasonf(work.WaitCapacity, "needs %s; pool %s has %s", r, pool, c.modelList(pool))
	}
	if !c.Possible(pool, r, true) {
		return work.Reasonf(work.WaitCapacity, "needs %s%s; the usable hosts of pool %s could not hold that even when empty: they have %s",
			r, hostNeed(r), pool, c.shapeList(pool, true))
	}
	noHost := r
	noHost.CPUMilli, noHost.MemMiB = 0, 0
	if (r.CPUMilli > 0 || r.MemMiB > 0) && c.Find(Query{Pool: pool, Tenant: tenant, Request: noHost}) != nil {
		who := "GPUs are free, but no host with them"
		if r.HostOnly() {
			who = "no host"
		}
		return work.Reasonf(work.WaitHost, "needs %s%s in one host; %s has that much CPU and memory left", r, hostNeed(r), who)
	}
	return work.Reasonf(work.WaitGPUs, "needs %s; %s", r, c.freeList(pool, models, r))
}

func hostNeed(r work.Request) string {
	var need []string
	if r.CPUMilli > 0 {
		need = append(need, fmt.Sprintf("%g CPUs", float64(r.CPUMilli)/1000))
	}
	if r.MemMiB > 0 {
		need = append(need, work.FormatMiB(r.MemMiB)+" of memory")
	}
	if len(need) == 0 {
		return ""
	}
	return " with " + strings.Join(need, " and ")
}

// freeList says what is free, per model.
func (c *Cluster) freeList(pool string, models []int, r work.Request) string {
	p := c.pools[pool]
	var out []string
	for _, m := range models {
		s := p.shelves[m]
		if r.GPUs > 0 {
			out = append(out, fmt.Sprintf("%s: %d of %d GPUs free, at most %d in one host", s.geo.Model.Key, s.free, s.usable, s.hosts.most()))
			continue
		}
		var what, beside string
		counts := fmt.Sprintf("%d free, %d cut", s.free, s.part)
		if fit := r.FitPart(s.geo.Model)[0]; fit.Profile >= 0 {
			what = s.geo.Model.Profiles[fit.Profile].Name
		} else {
			what = fmt.Sprintf("%d%% and %s", fit.Milli/10, work.FormatMiB(fit.Share.MemMiB))
			counts, beside = fmt.Sprintf("%d free", s.free), " beside the tenant's own tasks"
		}
		room := fmt.Sprintf("none of %d GPUs (%s) has room for it", s.usable, counts)
		if r.Count() > 1 {
			room = fmt.Sprintf("its %d GPUs (%s) have no room for all %d", s.usable, counts, r.Count())
		}
		out = append(out, fmt.Sprintf("%s: takes %s, and %s%s", s.geo.Model.Key, what, room, beside))
	}
	if len(out) == 0 {
		return "no host has enough CPU and memory left"
	}
	return strings.Join(out, "; ")
}

func (c *Cluster) modelList(pool string) string {
	var out []string
	for _, s := range c.pools[pool].shelves {
		if s != nil {
			out = append(out, s.geo.Model.Key)
		}
	}
	if len(out) == 0 {
		return "no GPUs"
	}
	return "only " + strings.Join(out, ", ")
}

// shapeList describes the hosts of a pool, alike ones together.
func (c *Cluster) shapeList(pool string, onlyUsable bool) string {
	var out []string
	for _, s := range c.pools[pool].shapes {
		n := s.all
		if onlyUsable {
			n = s.up
		}
		if n == 0 {
			continue
		}
		var gpus []string
		for i, m := range s.models {
			gpus = append(gpus, fmt.Sprintf("%d × %s", s.counts[i], c.models[m].Model.Key))
		}
		if len(gpus) == 0 {
			gpus = []string{"no GPU"}
		}
		out = append(out, fmt.Sprintf("%d host(s) of %s, %g CPUs, %s", n, strings.Join(gpus, " + "), float64(s.cpu)/1000, work.FormatMiB(s.mem)))
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, "; ")
}

// Impossible is the refusal of a request that no known host could ever hold.
func (c *Cluster) Impossible(pool string, r work.Request) error {
	next := "ask for less, or for another pool"
	if r.GPUs > 1 && r.Count() == 1 {
		next = "ask for fewer GPUs in one host, or spread them over hosts with --members"
	}
	return work.Errorf(work.CodeImpossible, "no way to ever run %s%s in pool %s, which has %s: %s",
		r, hostNeed(r), pool, c.shapeList(pool, false), next)
}

// Capacity is what the usable hosts of a pool have in all: GPUs that are not out of use, in
// thousandths, CPU in thousandths of a core, memory in MiB.
func (c *Cluster) Capacity(pool string) (milli int, cpu, mem int64) {
	p := c.pools[pool]
	if p == nil {
		return 0, 0, 0
	}
	for _, s := range p.shapes {
		for _, n := range s.counts {
			milli += s.up * n * 1000
		}
		cpu += int64(s.up) * s.cpu
		mem += int64(s.up) * s.mem
	}
	return milli, cpu, mem
}

// LeastMilli is what a request takes of GPUs at the least, in thousandths.
func (c *Cluster) LeastMilli(pool string, r work.Request) int {
	least := 0
	if r.IsPart() {
		for i, m := range c.Candidates(pool, r) {
			for k, fit := range r.FitPart(c.models[m].Model) {
				if i+k == 0 || fit.Milli < least {
					least = fit.Milli
				}
			}
		}
	} else {
		least = 1000 * r.GPUs
	}
	return least * r.Count()
}

// PoolModels is the number of GPU models in a pool.
func (c *Cluster) PoolModels(pool string) int {
	n := 0
	if p := c.pools[pool]; p != nil {
		for _, s := range p.shelves {
			if s != nil && s.bays > 0 {
				n++
			}
		}
	}
	return n
}

// FreeGPUs is the number of free and usable GPUs of a pool.
func (c *Cluster) FreeGPUs(pool string) int {
	n := 0
	if p := c.pools[pool]; p != nil {
		for _, s := range p.shelves {
			if s != nil {
				n += s.free
			}
		}
	}
	return n
}
