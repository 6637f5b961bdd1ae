package bench

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/gpupool/gpupool/internal/gpu"
)

// MIGOptions says what MIG measures. Zero values mean the defaults.
type MIGOptions struct {
	GPUs     int       // in hosts of 8; 0 = 64
	Loads    []float64 // memory units asked for times run time, as a share of all units; nil = 0.70, 0.85, 0.95, 1.05
	Seeds    int       // streams per load; 0 = 5
	Requests int       // counted in each stream, after the warm-up; 0 = 150,000: fewer do not tell rules apart at load 0.70
	Mix      string    // "balanced", "small-heavy" or "large-heavy"; "" = balanced
	Model    string    // a board with seven compute slices; "" = H100-80GB

	// Progress, if set, hears how many of all runs are done. A run is one rule on one stream.
	Progress func(done, total int)
}

// MIGResult is what MIG measured.
type MIGResult struct {
	Model    string    `json:"model"`
	GPUs     int       `json:"gpus"`
	Mix      string    `json:"mix"`
	Seeds    int       `json:"seeds"`
	Requests int       `json:"requests"` // per seed and load, after the warm-up
	Rules    []string  `json:"rules"`    // in the order to show them
	Loads    []MIGLoad `json:"loads"`
	Notes    []string  `json:"notes"`
	WallS    float64   `json:"wall_s"` // seconds that the whole experiment took
}

// MIGLoad is the outcome at one load, by rule. Shares are between 0 and 1 and are
// means over the seeds.
type MIGLoad struct {
	Load            float64            `json:"load"`
	Refused         map[string]float64 `json:"refused"`          // share of the requests
	RefusedSD       map[string]float64 `json:"refused_sd"`       // standard deviation of that between seeds; 0 with one seed
	RefusedWeighted map[string]float64 `json:"refused_weighted"` // share of the memory units asked for
}

// The rules that MIG compares, in the order of MIGResult.Rules.
const (
	migGpupool  = "gpupool"
	migLowest   = "lowest-start"
	migBinpack  = "fixed-order-binpack"
	migTemplate = "template-locked"
	migSpread   = "spread"
)

// migWarmUp is how long a stream runs before requests count, in mean run times: what
// stood there at first (nothing) is forgotten by then.
const migWarmUp = 10

// MIG measures how many requests for MIG slices each placement rule must refuse. The
// system is one of losses: requests come at random (Poisson), run for a random time
// (exponential), and one that has no place at once is lost; nothing waits or moves.
// All rules get the very same streams. Cost: for each run, Requests decisions, each a
// look at every GPU for the published rules and one placement.Find for gpupool's.
func MIG(ctx context.Context, o MIGOptions) (*MIGResult, error) {
	began := time.Now()
	o = o.withDefaults()
	ask, err := o.ask()
	if err != nil {
		return nil, err
	}
	out := &MIGResult{Model: o.Model, GPUs: o.GPUs, Mix: o.Mix, Seeds: o.Seeds, Requests: o.Requests, Notes: ask.notes()}
	rules := ask.rules()
	for _, r := range rules {
		out.Rules = append(out.Rules, r.name)
	}
	done, total := 0, len(o.Loads)*o.Seeds*len(rules)
	for _, load := range o.Loads {
		sums := make([]migSum, len(rules))
		for seed := range o.Seeds {
			s := ask.stream(uint64(seed), load, o.GPUs, o.Requests)
			for i, r := range rules {
				c, err := s.run(ctx, r.make(o.GPUs))
				if err != nil {
					return nil, err
				}
				sums[i].add(c)
				if done++; o.Progress != nil {
					o.Progress(done, total)
				}
			}
		}
		out.Loads = append(out.Loads, migLoad(load, rules, sums))
	}
	out.WallS = time.Since(began).Seconds()
	return out, nil
}

func (o MIGOptions) withDefaults() MIGOptions {
	if o.GPUs == 0 {
		o.GPUs = 64
	}
	if len(o.Loads) == 0 {
		o.Loads = []float64{0.70, 0.85, 0.95, 1.05}
	}
	if o.Seeds == 0 {
		o.Seeds = 5
	}
	if o.Requests == 0 {
		o.Requests = 150_000
	}
	if o.Mix == "" {
		o.Mix = "balanced"
	}
	if o.Model == "" {
		o.Model = "H100-80GB"
	}
	return o
}

// ask checks the options and returns what is asked for in them.
func (o MIGOptions) ask() (*migAsk, error) {
	for _, x := range []struct {
		what        string
		value, most int
	}{{"GPUs", o.GPUs, 4096}, {"seeds", o.Seeds, 1000}, {"requests", o.Requests, 10_000_000}} {
		if x.value < 1 || x.value > x.most {
			return nil, fmt.Errorf("%d %s is out of range: expected 1 to %d", x.value, x.what, x.most)
		}
	}
	for _, l := range o.Loads {
		if !(l > 0 && l <= 10) { // so written, it refuses NaN too
			return nil, fmt.Errorf("load %g is out of range: expected above 0 and up to 10, where 1 asks for all memory of all GPUs", l)
		}
	}
	mixes := migMixes()
	m := slices.IndexFunc(mixes, func(m migMix) bool { return m.name == o.Mix })
	if m < 0 {
		var names []string
		for _, m := range mixes {
			names = append(names, m.name)
		}
		return nil, fmt.Errorf("mix %q is not known: expected %s", o.Mix, strings.Join(names, ", "))
	}
	var fit []string
	for _, model := range gpu.Builtin() {
		kinds := mixes[m].kinds(model)
		if kinds == nil {
			continue
		}
		if fit = append(fit, model.Key); model.Key == o.Model {
			return &migAsk{geo: gpu.NewGeometry(model), mix: mixes[m], kinds: kinds}, nil
		}
	}
	return nil, fmt.Errorf("model %q has no slices of 1g, 2g, 3g, 4g and 7g, or is not known: expected one of %s", o.Model, strings.Join(fit, ", "))
}

// migMix is how often each profile is asked for, in per cent.
type migMix struct {
	name    string
	weights [5]int // 1g, 2g, 3g, 4g, 7g
}

// migMixes returns the known mixes. The profile of one compute slice with double
// memory is in none: NVIDIA's 19 layouts, and so the template rule, do not have it.
func migMixes() []migMix {
	return []migMix{
		{"balanced", [5]int{30, 25, 20, 15, 10}},    // 3.00 memory units in the mean
		{"small-heavy", [5]int{55, 25, 10, 7, 3}},   // 1.97
		{"large-heavy", [5]int{10, 15, 25, 25, 25}}, // 4.40
	}
}

// kinds finds the profiles of the mix on a model, by what they take, since names
// differ between boards. It returns nil when the model lacks one.
func (m migMix) kinds(model gpu.Model) []int {
	var kinds []int
	for _, take := range [5][2]int{{1, 1}, {2, 2}, {3, 4}, {4, 4}, {7, 8}} { // compute slices, memory units
		i := slices.IndexFunc(model.Profiles, func(p gpu.Profile) bool {
			return p.Attr == "" && p.Compute == take[0] && p.Units == take[1]
		})
		if i < 0 {
			return nil
		}
		kinds = append(kinds, i)
	}
	return kinds
}

// migAsk is a checked question: which profiles of which model, how often.
type migAsk struct {
	geo   *gpu.Geometry
	mix   migMix
	kinds []int // profiles, in the order of mix.weights
}

// notes says in words what the numbers rest on.
func (a *migAsk) notes() []string {
	var parts []string
	for i, k := range a.kinds {
		parts = append(parts, fmt.Sprintf("%s %d %%", a.geo.Model.Profiles[k].Name, a.mix.weights[i]))
	}
	return []string{
		"mix " + a.mix.name + ": " + strings.Join(parts, ", "),
		"a loss system: Poisson arrivals, exponential run times, a request without a place at once is lost; nothing waits, nothing is moved; a real pool queues",
		"load is memory units times run time asked for, as a share of all memory units; slices of one unit cannot use the last of the 8",
		"all rules get the same streams, so differences between rules are surer than the deviation between seeds suggests",
		"gpupool is package placement itself, told of each request as it comes (Asked); the other rules are written from their projects' descriptions, without their nodes' scores and without their locks",
	}
}

// migRequest asks for a profile at a time, for a time; both in mean run times.
type migRequest struct {
	at, runs float64
	kind     int  // profile
	units    int  // memory units that it takes
	counts   bool // it comes after the warm-up
}

// migStream is requests in the order of their times.
type migStream []migRequest

// stream draws the requests of one seed. Streams of one seed have the same sizes and
// run times at every load.
func (a *migAsk) stream(seed uint64, load float64, gpus, requests int) migStream {
	sum, units := 0, 0
	for i, w := range a.mix.weights {
		sum += w
		units += w * a.geo.Model.Profiles[a.kinds[i]].Units
	}
	rate := load * float64(gpus*a.geo.Model.Units) * float64(sum) / float64(units)
	warm := int(math.Ceil(migWarmUp * rate))
	r := rand.New(rand.NewPCG(seed, 0x6d6967))
	out := make(migStream, 0, warm+requests)
	at := 0.0
	for i := range warm + requests {
		at += r.ExpFloat64() / rate
		x, k := r.IntN(sum), 0
		for x >= a.mix.weights[k] {
			x -= a.mix.weights[k]
			k++
		}
		kind := a.kinds[k]
		out = append(out, migRequest{at: at, runs: r.ExpFloat64(), kind: kind, units: a.geo.Model.Profiles[kind].Units, counts: i >= warm})
	}
	return out
}

// migCount counts what counts of one run, in requests and in memory units.
type migCount struct{ asked, refused, askedUnits, refusedUnits int }

// migEnd is the end of the slice of request n.
type migEnd struct {
	at   float64
	n    int
	spot migSpot
}

// run sends a stream through a rule.
func (s migStream) run(ctx context.Context, p migPlacer) (migCount, error) {
	var c migCount
	var ends []migEnd // of what stands, the soonest last
	for n := range s {
		if n%4096 == 0 && ctx.Err() != nil {
			return c, ctx.Err()
		}
		q := &s[n]
		for len(ends) > 0 && ends[len(ends)-1].at <= q.at {
			e := ends[len(ends)-1]
			ends = ends[:len(ends)-1]
			p.free(e.n, s[e.n].kind, e.spot)
		}
		spot, ok := p.take(n, q.kind)
		if ok {
			e := migEnd{q.at + q.runs, n, spot}
			i, _ := slices.BinarySearchFunc(ends, e, func(a, b migEnd) int { return cmp.Compare(b.at, a.at) })
			ends = slices.Insert(ends, i, e)
		}
		c.count(q, ok)
	}
	return c, nil
}

func (c *migCount) count(q *migRequest, placed bool) {
	if !q.counts {
		return
	}
	c.asked++
	c.askedUnits += q.units
	if !placed {
		c.refused++
		c.refusedUnits += q.units
	}
}

// migSum gathers the outcomes of one rule at one load, a run at a time.
type migSum struct {
	refused  []float64 // share, by seed
	weighted float64   // sum of shares
}

func (s *migSum) add(c migCount) {
	s.refused = append(s.refused, float64(c.refused)/float64(c.asked))
	s.weighted += float64(c.refusedUnits) / float64(c.askedUnits)
}

// migLoad turns sums into means and deviations.
func migLoad(load float64, rules []migRule, sums []migSum) MIGLoad {
	out := MIGLoad{Load: load, Refused: map[string]float64{}, RefusedSD: map[string]float64{}, RefusedWeighted: map[string]float64{}}
	for i, r := range rules {
		n := float64(len(sums[i].refused))
		mean, square := 0.0, 0.0
		for _, x := range sums[i].refused {
			mean += x / n
		}
		for _, x := range sums[i].refused {
			square += (x - mean) * (x - mean)
		}
		out.Refused[r.name], out.RefusedSD[r.name] = mean, math.Sqrt(square/max(n-1, 1))
		out.RefusedWeighted[r.name] = sums[i].weighted / n
	}
	return out
}
