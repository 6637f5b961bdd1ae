package bench

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/sim"
	"github.com/gpupool/gpupool/internal/trace"
	"github.com/gpupool/gpupool/internal/work"
)

// Of silos. The week with most submissions is replayed, as a run of it takes about a
// second and the search makes dozens.
const (
	silosFor = 7 * 24 * time.Hour
	siloGang = 32               // GPUs of the largest task that is replayed: a silo must have hosts for its largest, however seldom that comes
	siloP99  = 10 * time.Minute // that all ways are held to
)

// siloed is a workload of silos.
type siloed struct {
	all   *trace.Trace
	names []string
	least []int // hosts of each, for its largest task
	size  []int // hosts of each that it needs apart
	runs  int

	dropped int     // tasks that are too large
	lost    float64 // their share of GPU hours
}

// silos compares silos on their own hosts, which lend nothing; the same in one pool; and
// silos that lend to each other.
func (o *ElasticOptions) silos(ctx context.Context, name string) (*ElasticScenario, error) {
	if !o.has(name) {
		return &ElasticScenario{Skipped: fmt.Sprintf("there is no folder %s at %q: give --trace with the public traces", name, o.Trace)}, nil
	}
	t, err := trace.Read(filepath.Join(o.Trace, name), trace.Options{Seed: o.Seed})
	if err != nil {
		return nil, err
	}
	from := busiest(t)
	w := newSiloed(windowOf(t, from, from+silosFor).Silos())
	if err := w.apart(ctx); err != nil {
		return nil, err
	}
	sum := 0
	for _, n := range w.size {
		sum += n
	}
	static, err := w.run(ctx, w.size, false)
	if err != nil {
		return nil, err
	}
	common, one, err := w.fewest(ctx, w.most(), sum, func(n int) (*sim.Outcome, error) { return w.one(ctx, w.all, n) })
	if err != nil {
		return nil, err
	}
	lent, pooled, err := w.fewest(ctx, w.lowest(), sum, func(n int) (*sim.Outcome, error) { return w.run(ctx, w.split(n), true) })
	if err != nil {
		return nil, err
	}
	s := &ElasticScenario{Synthetic: t.Synthetic, Tasks: len(w.all.Tasks), GPUsStatic: sum * elasticEach, GPUsPooled: lent * elasticEach, GPUsCommon: common * elasticEach,
		Bound: common * elasticEach, BoundIs: "what the search found for one pool for all, in hosts of 8, at the same 99th percentile of waits; not a strict bound: waits do not fall at every step, and another order of the queue may do with fewer", Runs: w.runs}
	s.of(static, pooled)
	s.IdleStatic, s.IdlePooled, s.UnusedStatic, s.UnusedPooled, s.MovesPerTask = nil, nil, nil, nil, nil // the trace does not say what tasks use
	s.SlowdownP95, s.SlowdownStatic, s.SlowdownRatio = new(pooled.SlowdownP95), new(static.SlowdownP95), ratio(pooled.SlowdownP95, static.SlowdownP95)
	s.OverCommon = ratio(float64(lent), float64(common))
	s.WaitMeanRatio, s.WaitP99S = ratio(pooled.WaitMean, static.WaitMean), new(pooled.WaitP99)
	s.notes = append(s.notes, fmt.Sprintf("days %.0f to %.0f of the trace, tasks of up to %d GPUs (%d larger ones, with %.1f %% of the GPU hours, are left out), %d silos; apart needs %.2f times what one pool does, lending %.2f times; the one pool waits %.0f s at the 99th percentile, lending %.0f s",
		from.Hours()/24, (from+silosFor).Hours()/24, siloGang, w.dropped, 100*w.lost, len(w.names), float64(sum)/float64(common), float64(lent)/float64(common), one.WaitP99, pooled.WaitP99))
	return s, nil
}

func newSiloed(t *trace.Trace) *siloed {
	w := &siloed{all: t}
	all, large := 0.0, 0.0
	for i := range t.Tasks {
		hours := float64(t.Tasks[i].GPUs) * t.Tasks[i].Duration.Hours()
		if all += hours; t.Tasks[i].GPUs > siloGang {
			w.dropped, large = w.dropped+1, large+hours
		}
	}
	w.lost = large / max(all, 1e-9)
	t.Tasks = slices.DeleteFunc(t.Tasks, func(x trace.Task) bool { return x.GPUs > siloGang })
	for i := range t.Tasks {
		x := &t.Tasks[i]
		k := slices.Index(w.names, x.Pool)
		if k < 0 {
			k = len(w.names)
			w.names, w.least = append(w.names, x.Pool), append(w.least, 1)
		}
		w.least[k] = max(w.least[k], (x.GPUs+elasticEach-1)/elasticEach)
	}
	return w
}

func (w *siloed) most() int { return slices.Max(w.least) }

// lowest is the fewest hosts with which every silo has room for its largest task.
func (w *siloed) lowest() int {
	sum := 0
	for _, n := range w.least {
		sum += n
	}
	return sum
}

// one replays a trace on hosts that all may use.
func (w *siloed) one(ctx context.Context, t *trace.Trace, hosts int) (*sim.Outcome, error) {
	h, err := elasticHosts(hosts * elasticEach)
	if err != nil {
		return nil, err
	}
	w.runs++
	return sim.Run(ctx, sim.Setup{Trace: t, Hosts: h}, work.Dynamic)
}

// apart sizes each silo for itself.
func (w *siloed) apart(ctx context.Context) error {
	for i, name := range w.names {
		own := *w.all
		own.Tasks = nil
		gpus := 0
		for _, x := range w.all.Tasks {
			if x.Pool == name {
				own.Tasks = append(own.Tasks, x)
				gpus += x.GPUs
			}
		}
		n, _, err := w.fewest(ctx, w.least[i], min((gpus+elasticEach-1)/elasticEach+1, 2000), func(n int) (*sim.Outcome, error) { return w.one(ctx, &own, n) })
		if err != nil {
			return fmt.Errorf("silo %s: %w", name, err)
		}
		w.size = append(w.size, n)
	}
	return nil
}

// fewest seeks the fewest hosts with which waits are short enough: doubling first, as most
// is far above.
func (w *siloed) fewest(ctx context.Context, least, most int, run func(n int) (*sim.Outcome, error)) (int, *sim.Outcome, error) {
	good := func(n int) (*sim.Outcome, bool, error) {
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		o, err := run(n)
		return o, err == nil && o.Rejected == 0 && o.WaitP99 <= siloP99.Seconds(), err
	}
	low, high := least, least
	best, ok, err := good(high)
	for err == nil && !ok && high < most {
		low, high = high+1, min(high*2, most)
		best, ok, err = good(high)
	}
	if err != nil || !ok {
		return high, best, err
	}
	for low < high {
		mid := (low + high) / 2
		o, ok, err := good(mid)
		switch {
		case err != nil:
			return 0, nil, err
		case ok:
			high, best = mid, o
		default:
			low = mid + 1
		}
	}
	return high, best, nil
}

// split gives each silo hosts in proportion to what it needs apart, and as many as its
// largest task needs.
func (w *siloed) split(hosts int) []int {
	sum := 0
	for _, n := range w.size {
		sum += n
	}
	out := slices.Clone(w.least)
	for left := hosts - w.lowest(); left > 0; left-- { // each to who has least of its share
		next := 0
		for i := range out {
			if cmp.Compare(float64(out[i])/float64(w.size[i]), float64(out[next])/float64(w.size[next])) < 0 {
				next = i
			}
		}
		out[next]++
	}
	return out
}

// run replays all silos, each on hosts of its own; lending, on those of the others too.
func (w *siloed) run(ctx context.Context, sizes []int, lend bool) (*sim.Outcome, error) {
	var hosts []gpu.HostInfo
	var pools []work.Pool
	for i, n := range sizes {
		p := work.Pool{Name: w.names[i], Hosts: []string{fmt.Sprintf("s%02d-*", i)}}
		own, err := elasticHosts(n * elasticEach)
		if err != nil {
			return nil, err
		}
		for k := range own {
			own[k].Name = fmt.Sprintf("s%02d-%04d", i, k)
			for g := range own[k].GPUs {
				own[k].GPUs[g].ID = fmt.Sprintf("s%02d-%04d-%d", i, k, g)
			}
		}
		hosts = append(hosts, own...)
		if lend {
			p.AskAt = 1
			for j := range w.names {
				if k := (i + j) % len(w.names); k != i {
					p.BorrowFrom = append(p.BorrowFrom, w.names[k])
				}
			}
		}
		pools = append(pools, p)
	}
	w.runs++
	return sim.Run(ctx, sim.Setup{Trace: w.all, Hosts: hosts, Pools: pools}, work.Dynamic)
}
