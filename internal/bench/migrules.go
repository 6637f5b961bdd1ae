package bench

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/placement"
	"github.com/gpupool/gpupool/internal/work"
)

// migSpot is where a slice stands.
type migSpot struct{ gpu, start int }

// migPlacer places slices on a pool of GPUs of one model. A slice goes by the number
// of its request, a profile by its index in the model.
type migPlacer interface {
	take(n, profile int) (migSpot, bool)
	free(n, profile int, at migSpot)
}

// migRule is a placement rule: its name, and how to make an empty pool that follows it.
type migRule struct {
	name string
	make func(gpus int) migPlacer
}

// rules returns the rules to compare, gpupool's first. Whose the others are, and where
// they are described: shared/facts/peers.md, sections 3 and 3b.
func (a *migAsk) rules() []migRule {
	flat := func(n int) migFlat { return migFlat{geo: a.geo, taken: make([]gpu.Mask, n)} }
	return []migRule{
		{migGpupool, func(n int) migPlacer { return newMIGPool(a.geo, n) }},
		{migLowest, func(n int) migPlacer { return &migFirst{flat(n)} }},
		{migBinpack, func(n int) migPlacer { return newMIGOrdered(flat(n), true) }},
		{migTemplate, func(n int) migPlacer { return newMIGLocked(flat(n), a.kinds) }},
		{migSpread, func(n int) migPlacer { return newMIGOrdered(flat(n), false) }},
	}
}

// migPool is gpupool: the product's own placement, on hosts of 8 GPUs.
type migPool struct {
	geo   *gpu.Geometry
	c     *placement.Cluster
	parts map[int]work.Part
}

const (
	migPoolName = "mig"
	migHostGPUs = 8
)

func newMIGPool(geo *gpu.Geometry, gpus int) *migPool {
	p := &migPool{geo: geo, c: placement.NewCluster([]*gpu.Geometry{geo}), parts: map[int]work.Part{}}
	for first := 0; first < gpus; first += migHostGPUs {
		h := gpu.HostInfo{Name: fmt.Sprintf("host-%d", first/migHostGPUs)}
		for i := first; i < min(first+migHostGPUs, gpus); i++ {
			h.GPUs = append(h.GPUs, gpu.GPUInfo{ID: fmt.Sprintf("gpu-%d", i), Model: geo.Model.Key})
		}
		p.c.SetUsable(p.c.AddHost(h, migPoolName).Number, true, false)
	}
	return p
}

func (p *migPool) owner(n int) work.Owner { return work.Owner{Task: work.TaskID(n + 1), Epoch: 1} }

func (p *migPool) take(n, profile int) (migSpot, bool) {
	r := work.Request{Profile: p.geo.Model.Profiles[profile].Name}
	p.c.Asked(migPoolName, r)
	parts := p.c.Find(placement.Query{Pool: migPoolName, Request: r})
	if len(parts) == 0 {
		return migSpot{}, false
	}
	p.c.Take(placement.Holder{Owner: p.owner(n)}, parts[0])
	p.parts[n] = parts[0]
	s := parts[0].Slices[0]
	return migSpot{s.GPU, s.Start}, true
}

func (p *migPool) free(n, _ int, _ migSpot) {
	p.c.Free(p.owner(n), p.parts[n])
	delete(p.parts, n)
}

// migFlat is a pool as the published rules see it: the taken units of each GPU.
type migFlat struct {
	geo   *gpu.Geometry
	taken []gpu.Mask
}

func (f *migFlat) put(profile, g, start int) migSpot {
	f.taken[g] |= f.geo.Model.Profiles[profile].Mask(start)
	return migSpot{g, start}
}

func (f *migFlat) free(_, profile int, at migSpot) {
	f.taken[at.gpu] &^= f.geo.Model.Profiles[profile].Mask(at.start)
}

// migFirst is the rule of InstaSlice (OpenShift's dynamic accelerator slicer): the
// first GPU in order that fits, at the lowest legal start. That it prefers nodes with
// many free slices is left out.
type migFirst struct{ migFlat }

func (f *migFirst) take(_, profile int) (migSpot, bool) {
	for g, taken := range f.taken {
		if s := f.geo.Starts(profile, taken); s != 0 {
			return f.put(profile, g, bits.TrailingZeros16(uint16(s))), true
		}
	}
	return migSpot{}, false
}

// migOrdered is the rule of HAMi (from v2.10): starts in a fixed order, those of 1g and
// 3g from the high end and those of others from the low end. Of the GPUs that fit it
// takes the one with the highest score, which is HAMi's binpack, or with the lowest,
// which is its default, spread; of equal ones the first.
type migOrdered struct {
	migFlat
	score   []int // by GPU
	fullest bool
}

func newMIGOrdered(f migFlat, fullest bool) *migOrdered {
	return &migOrdered{f, make([]int, len(f.taken)), fullest}
}

// migHAMISlots is how many tasks share one GPU in HAMi unless set otherwise.
const migHAMISlots = 10

// worth is what a slice adds to the score of its GPU: its shares of slots, of compute
// and of memory, all alike, on a common denominator.
func (f *migOrdered) worth(profile int) int {
	m := f.geo.Model
	p := m.Profiles[profile]
	return m.Slices*m.Units + p.Compute*migHAMISlots*m.Units + p.Units*migHAMISlots*m.Slices
}

func (f *migOrdered) take(_, profile int) (migSpot, bool) {
	best := -1
	for g, taken := range f.taken {
		if f.geo.Starts(profile, taken) == 0 {
			continue
		}
		if best < 0 || f.fullest && f.score[g] > f.score[best] || !f.fullest && f.score[g] < f.score[best] {
			best = g
		}
	}
	if best < 0 {
		return migSpot{}, false
	}
	starts := uint16(f.geo.Starts(profile, f.taken[best]))
	start := bits.TrailingZeros16(starts)
	if c := f.geo.Model.Profiles[profile].Compute; c == 1 || c == 3 {
		start = bits.Len16(starts) - 1
	}
	f.score[best] += f.worth(profile)
	return f.put(profile, best, start), true
}

func (f *migOrdered) free(n, profile int, at migSpot) {
	f.score[at.gpu] -= f.worth(profile)
	f.migFlat.free(n, profile, at)
}

// migLocked is the rule of Volcano, and of HAMi up to v2.9: an empty GPU takes the
// template of its first instance, and until it is empty again only slices of that
// template may be made. Our reading: templates are NVIDIA's 19 layouts. A profile
// opens the one with most of it, of those the one with the fewest slices: seven 1g;
// three 2g and a 1g; two 3g; 4g and 3g; 7g. These are the projects' default templates,
// which lack the one for 4g; other orders that we tried refuse more. Of the GPUs whose
// template has the slice free, the fullest by memory units serves, and an empty GPU
// only when there is none: also the kindest reading.
type migLocked struct {
	migFlat
	opens map[int][]migSlot // by profile: the template that it opens
	has   [][]migSlot       // by GPU: its template; nil while it is empty
}

// migSlot is a place for a slice in a template.
type migSlot struct{ profile, start int }

func newMIGLocked(f migFlat, kinds []int) *migLocked {
	l := &migLocked{migFlat: f, opens: map[int][]migSlot{}, has: make([][]migSlot, len(f.taken))}
	layouts := migLayouts(f.geo, kinds)
	for _, k := range kinds {
		l.opens[k] = slices.MaxFunc(layouts, func(a, b []migSlot) int {
			return cmp.Or(cmp.Compare(migSlots(a, k), migSlots(b, k)), cmp.Compare(len(b), len(a)))
		})
	}
	return l
}

// migSlots counts the slots for a profile in a template.
func migSlots(t []migSlot, profile int) int {
	n := 0
	for _, s := range t {
		if s.profile == profile {
			n++
		}
	}
	return n
}

// migLayouts lists the ways to fill a GPU with profiles so that no more fits: for 1g,
// 2g, 3g, 4g and 7g on a board of seven slices, the 19 that NVIDIA's guide shows.
func migLayouts(geo *gpu.Geometry, kinds []int) [][]migSlot {
	var out [][]migSlot
	var fill func(taken gpu.Mask, from int, t []migSlot)
	fill = func(taken gpu.Mask, from int, t []migSlot) {
		full := true
		for _, k := range kinds {
			starts := geo.Starts(k, taken)
			full = full && starts == 0
			for s := starts >> from << from; s != 0; s &= s - 1 { // rising starts: each layout is met once
				at := bits.TrailingZeros16(uint16(s))
				fill(taken|geo.Model.Profiles[k].Mask(at), at+1, append(slices.Clone(t), migSlot{k, at}))
			}
		}
		if full {
			out = append(out, t)
		}
	}
	fill(0, 0, nil)
	return out
}

func (l *migLocked) take(_, profile int) (migSpot, bool) {
	best, most, start := -1, -1, 0
	for g, taken := range l.taken {
		t := l.has[g]
		if taken == 0 {
			t = l.opens[profile]
		}
		full := bits.OnesCount16(uint16(taken))
		if full <= most {
			continue
		}
		for _, s := range t {
			if s.profile == profile && taken&l.geo.Model.Profiles[profile].Mask(s.start) == 0 {
				best, most, start = g, full, s.start
				break
			}
		}
	}
	if best < 0 {
		return migSpot{}, false
	}
	if l.taken[best] == 0 {
		l.has[best] = l.opens[profile]
	}
	return l.put(profile, best, start), true
}
