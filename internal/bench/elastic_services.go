package bench

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/sim"
	"github.com/gpupool/gpupool/internal/trace"
	"github.com/gpupool/gpupool/internal/work"
)

// Of services and notebooks.
const (
	mostLate      = 0.10             // share of requests that may begin later than 10 s
	serviceAfter  = 10 * time.Second // a service idle for so long is parked though nobody waits, so that whoever wakes finds a GPU free
	notebookAfter = 10 * time.Second
	marketLength  = 24 * time.Hour
)

func (o *ElasticOptions) market(ctx context.Context) (*ElasticScenario, error) {
	dir := ""
	if o.has("serving") {
		dir = filepath.Join(o.Trace, "serving")
	}
	t, err := trace.Market(dir, trace.MarketOptions{Models: o.Models, Length: marketLength, Seed: o.Seed})
	if err != nil {
		return nil, err
	}
	// The market lists its models by popularity, and all begin at once: the popular ones
	// would share the first hosts.
	rng := rand.New(rand.NewPCG(o.Seed, 0x5a0f))
	rng.Shuffle(len(t.Tasks), func(i, j int) { t.Tasks[i], t.Tasks[j] = t.Tasks[j], t.Tasks[i] })
	return services(ctx, t, len(t.Tasks), serviceAfter)
}

func (o *ElasticOptions) notebooks(ctx context.Context) (*ElasticScenario, error) {
	t, err := trace.Notebooks(trace.NotebookOptions{Users: o.Users, Seed: o.Seed})
	if err != nil {
		return nil, err
	}
	return services(ctx, t, atOnce(t), notebookAfter)
}

// atOnce is the most tasks at once if none waits.
func atOnce(t *trace.Trace) int {
	type change struct {
		at time.Duration
		by int
	}
	var all []change
	for i := range t.Tasks {
		x := &t.Tasks[i]
		all = append(all, change{x.Submit, 1}, change{x.Submit + x.Duration, -1})
	}
	slices.SortFunc(all, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	n, most := 0, 0
	for _, c := range all {
		n += c.by
		most = max(most, n)
	}
	return most
}

// services compares a GPU for each task with the fewest GPUs on which requests begin in
// time, sought by bisection: requests wait less on more GPUs, if not at every step.
func services(ctx context.Context, t *trace.Trace, apart int, after time.Duration) (*ElasticScenario, error) {
	s := &ElasticScenario{Synthetic: t.Synthetic, GPUsStatic: apart, Tasks: len(t.Tasks)}
	run := func(gpus int, mode work.PoolMode, giveUp float64) (*sim.Outcome, error) {
		hosts, err := elasticHosts(gpus)
		if err != nil {
			return nil, err
		}
		s.Runs++
		return sim.Run(ctx, sim.Setup{Trace: t, Hosts: hosts, Elastic: parkSoon(after), GiveUp: giveUp}, mode)
	}
	static, err := run(apart, work.Static, 0)
	if err != nil {
		return nil, err
	}
	// As much as a task of its own GPU keeps it busy; requests at a time share it.
	busy := static.HoursHeld * (1 - static.IdleByUse)
	s.Bound, s.BoundIs = max(1, int(math.Ceil(busy/static.Virtual.Hours()-1e-9))), "GPUs that are busy on average with a GPU for each task; fewer cannot do the same work with as many requests at once"
	low, high := s.Bound, apart
	var pooled *sim.Outcome
	for low < high || pooled == nil {
		mid := (low + high) / 2
		giveUp := mostLate
		if low == high { // the answer, good or bad
			giveUp = 0
		}
		x, err := run(mid, work.Dynamic, giveUp)
		if err != nil {
			return nil, err
		}
		switch {
		case low == high:
			pooled = x
		case !x.Stopped() && x.Within10s >= 1-mostLate:
			high = mid
			pooled = x
		default:
			low = mid + 1
			pooled = keepFor(pooled, high)
		}
	}
	s.GPUsPooled = high
	s.GPUsShadow, s.ShadowError = static.Shadow.GPUs, ratio(float64(static.Shadow.GPUs-high), float64(high))
	s.of(static, pooled)
	s.WaitMeanRatio = ratio(pooled.RequestMean, static.RequestMean)
	s.WaitP99S = new(pooled.RequestP99)
	s.SlowdownP95, s.SlowdownStatic = new(pooled.RequestSlow), new(static.RequestSlow)
	s.WithinStatic, s.Within, s.Requests = new(static.Within10s), new(pooled.Within10s), pooled.Requests
	return s, nil
}

// keepFor keeps an outcome while it is that of the size that the search now ends at.
func keepFor(o *sim.Outcome, gpus int) *sim.Outcome {
	if o != nil && o.GPUs == gpus {
		return o
	}
	return nil
}

// of fills in what all scenarios have.
func (s *ElasticScenario) of(static, pooled *sim.Outcome) {
	s.Saving = new(1 - float64(s.GPUsPooled)/float64(s.GPUsStatic))
	s.IdleStatic, s.IdlePooled, s.IdleWaiting = new(static.IdleByUse), new(pooled.IdleByUse), new(pooled.IdleWaiting)
	s.MovesPerTask = new(pooled.MovesPerTask)
	s.Static, s.Pooled = &static.Column, &pooled.Column
}
