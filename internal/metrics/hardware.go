package metrics

import (
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/host"
	"github.com/gpupool/gpupool/internal/work"
)

const mib = 1 << 20

// kind is GPUs of one model in one pool.
type kind struct{ pool, model string }

// cut is GPUs of a kind that are cut alike, or slices of one profile.
type cut struct {
	kind
	profile string
}

// want is what someone wants done with GPUs.
type want struct {
	by   string // operator or driver
	what gpu.Verdict
}

// wants lists those that can be.
func wants() []want {
	return []want{{"operator", gpu.VerdictCordon}, {"operator", gpu.VerdictDrain}, {"driver", gpu.VerdictCordon}, {"driver", gpu.VerdictDrain}, {"driver", gpu.VerdictBroken}}
}

type kindSums struct {
	states         map[string]int
	wanted         map[want]int
	held, measured int // thousandths
	free           int // whole GPUs
	idle, stranded int // thousandths that are not given out; of those, beside what is
	largest        int
	compute        float64 // of measured
	memory, used   int64   // MiB
	masks          map[gpu.Mask]int
	profiles       map[string]int
}

// reading is what was measured of one GPU.
type reading struct {
	compute float64 // of all of it; negative = not known
	memMiB  int64
}

type sliceSums struct {
	n       int
	compute float64
	memMiB  int64
}

// readings joins the samples of a view with what stands on its GPUs.
func readings(v *host.View) ([]reading, map[cut]*sliceSums) {
	type key struct {
		owner work.Owner
		gpu   string
	}
	samples := map[key]int{} // into flat
	type flat struct {
		compute float64
		memMiB  int64
		n       int
	}
	var all []flat
	for _, ss := range v.Samples {
		for _, s := range ss {
			k := key{s.Owner, s.GPUID}
			i, is := samples[k]
			if !is { // one owner may hold several slices of a GPU: their mean
				i = len(all)
				samples[k], all = i, append(all, flat{})
			}
			if all[i].n++; s.Compute < 0 || all[i].compute < 0 {
				all[i].compute = -1
			} else {
				all[i].compute += s.Compute
			}
			all[i].memMiB += max(0, s.MemMiB)
		}
	}
	out := make([]reading, len(v.GPUs))
	bySlice := map[cut]*sliceSums{}
	for i := range v.GPUs {
		g := &v.GPUs[i]
		r := &out[i]
		for _, h := range v.Held[g.First : g.First+g.Held] {
			k, is := samples[key{h.Owner, g.ID}]
			if !is || all[k].compute < 0 {
				r.compute = -1
				break
			}
			x := all[k]
			compute := x.compute / float64(x.n)
			r.compute += compute * float64(h.Milli) / 1000
			r.memMiB += x.memMiB / int64(x.n)
			c := cut{kind{v.Hosts[g.Host].Pool, g.Model}, profileOf(h.Mode, h.Profile)}
			s := bySlice[c]
			if s == nil {
				s = &sliceSums{}
				bySlice[c] = s
			}
			s.n, s.compute, s.memMiB = s.n+1, s.compute+compute, s.memMiB+x.memMiB/int64(x.n)
		}
		r.compute = min(r.compute, 1)
	}
	return out, bySlice
}

// stateOf says how a GPU stands.
func stateOf(v *host.View, g *host.GPUView) string {
	switch {
	case !v.Hosts[g.Host].Up:
		return "unreachable"
	case g.Health != gpu.HealthOK:
		return string(g.Health)
	case g.Held == 0:
		return "free"
	case g.Milli >= 1000 || g.Mode == gpu.ModeWhole:
		return "full"
	}
	return "part"
}

func gpuStates() []string {
	return []string{"free", "part", "full", string(gpu.HealthSuspect), string(gpu.HealthCordoned), string(gpu.HealthDraining), string(gpu.HealthDrained), string(gpu.HealthBroken), "unreachable"}
}

func sumKinds(v *host.View, rs []reading) map[kind]*kindSums {
	kinds := map[kind]*kindSums{}
	freeOn, last := map[kind]int{}, -1
	for i := range v.GPUs {
		g := &v.GPUs[i]
		k := kind{v.Hosts[g.Host].Pool, g.Model}
		x := kinds[k]
		if x == nil {
			x = &kindSums{states: map[string]int{}, wanted: map[want]int{}, masks: map[gpu.Mask]int{}, profiles: map[string]int{}}
			kinds[k] = x
		}
		if g.Host != last { // the GPUs of a host have numbers in a row
			clear(freeOn)
			last = g.Host
		}
		state := stateOf(v, g)
		x.states[state]++
		x.wanted[want{"operator", g.Operator}]++
		x.wanted[want{"driver", g.Driver}]++
		x.held += g.Milli
		for _, h := range v.Held[g.First : g.First+g.Held] {
			x.profiles[profileOf(h.Mode, h.Profile)]++
		}
		x.measure(v, g, state, rs[i])
		if state == "free" {
			x.free++
			freeOn[k]++
			x.largest = max(x.largest, freeOn[k])
		}
	}
	return kinds
}

// measure adds what can be used of a GPU, and is.
func (x *kindSums) measure(v *host.View, g *host.GPUView, state string, r reading) {
	if state != "free" && state != "part" && state != "full" {
		return
	}
	x.memory += v.Models[g.Model].Model.MemoryMiB
	x.used += r.memMiB
	if r.compute >= 0 {
		x.compute += r.compute
		x.measured++
	}
	switch state {
	case "free":
		x.idle += 1000
		x.masks[0]++
	case "part":
		x.idle += 1000 - g.Milli
		x.stranded += 1000 - g.Milli
		if g.Mode == gpu.ModeMIG {
			x.masks[g.Mask]++
		}
	}
}

func (m *Metrics) collectHardware(s sink) {
	v := m.view
	rs, bySlice := readings(v)
	m.gpus.read(v, rs)
	for k, x := range sumKinds(v, rs) { // order: the registry sorts
		for _, state := range gpuStates() {
			s.gauge(m.state.gpus, float64(x.states[state]), k.pool, k.model, state)
		}
		for _, w := range wants() {
			s.gauge(m.state.wanted, float64(x.wanted[w]), k.pool, k.model, w.by, string(w.what))
		}
		s.gauge(m.state.heldGPUs, float64(x.held)/1000, k.pool, k.model)
		s.gauge(m.state.largest, float64(x.largest), k.pool, k.model)
		s.gauge(m.state.fragmentation, ratio(float64(x.stranded), float64(x.idle)), k.pool, k.model)
		s.gauge(m.state.memUsed, float64(x.used)*mib, k.pool, k.model)
		s.gauge(m.state.mem, float64(x.memory)*mib, k.pool, k.model)
		if x.measured > 0 {
			s.gauge(m.state.util, x.compute/float64(x.measured), k.pool, k.model)
		}
		for profile, n := range x.profiles { // order: the registry sorts
			s.gauge(m.state.slicesHeld, float64(n), k.pool, k.model, profile)
		}
		s.gauge(m.state.placeable, float64(x.free), k.pool, k.model, "whole")
		geo := v.Models[k.model]
		for i, p := range geo.Model.Profiles {
			n := 0
			for mask, gpus := range x.masks { // order: a sum
				n += gpus * geo.Count(i, mask)
			}
			s.gauge(m.state.placeable, float64(n), k.pool, k.model, p.Name)
		}
	}
	for c, x := range bySlice { // order: the registry sorts
		s.gauge(m.state.sliceUtil, x.compute/float64(x.n), c.pool, c.model, c.profile)
		s.gauge(m.state.sliceMem, float64(x.memMiB)*mib, c.pool, c.model, c.profile)
	}
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
