package bench

import (
	"cmp"
	"context"
	"fmt"
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
	mostLate     = 0.10            // share of requests that may begin later than 10 s
	mostSlow     = 1.10            // slowdown of requests, and of tasks, at the 95th percentile
	serviceAfter = 6 * time.Second // a service idle for so long is parked though nobody waits, so that whoever wakes finds a GPU free
	marketLength = 24 * time.Hour
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
	s, err := services(ctx, t, len(t.Tasks), serviceAfter, func(o *sim.Outcome) bool { return o.Within10s >= 1-mostLate })
	if err != nil {
		return nil, err
	}
	hosts, err := elasticHosts(len(t.Tasks))
	if err != nil {
		return nil, err
	}
	alone, err := sim.Run(ctx, sim.Setup{Trace: t, Hosts: hosts, Elastic: parkSoon(serviceAfter)}, work.Dynamic)
	if err != nil {
		return nil, err
	}
	s.Runs++
	s.SlowdownMoves = new(alone.RequestSlow)
	s.notes = append(s.notes, fmt.Sprintf("of the slowdown at p95, %.2f is there with a GPU for each service (a service is at %d requests at once, and they come in bursts), %.2f with a GPU each and parking, %.2f with %d GPUs: the first step is the price of moves, the second is queueing for GPUs",
		*s.SlowdownStatic, sim.InferenceAtOnce, alone.RequestSlow, *s.SlowdownP95, s.GPUsPooled))
	return s, nil
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

// services compares a GPU for each task with the fewest GPUs that are good enough, sought
// by bisection: requests wait less on more GPUs, if not at every step. Good enough includes
// that requests begin in time.
func services(ctx context.Context, t *trace.Trace, apart int, after time.Duration, good func(*sim.Outcome) bool) (*ElasticScenario, error) {
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
	busy := static.HoursHeld * (1 - static.Unused)
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
		case !x.Stopped() && good(x):
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
	s.requests(static, pooled)
	return s, nil
}

// requests fills in what workloads have that requests come to.
func (s *ElasticScenario) requests(static, pooled *sim.Outcome) {
	s.SlowdownP95, s.SlowdownStatic, s.SlowdownTasks = new(pooled.RequestSlow), new(static.RequestSlow), new(pooled.TaskSlow)
	s.SlowdownRatio = ratio(pooled.RequestSlow, static.RequestSlow)
	s.WithinStatic, s.Within, s.Requests = new(static.Within10s), new(pooled.Within10s), pooled.Requests
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
	s.IdleStatic, s.IdlePooled, s.UnusedStatic, s.UnusedPooled = new(static.Idle), new(pooled.Idle), new(static.Unused), new(pooled.Unused)
	if pooled.WaitingHours > 0 { // else nobody waited: it says nothing
		s.IdleWaiting, s.UnusedWaiting = new(pooled.IdleWaiting), new(pooled.UnusedWaiting)
	}
	s.MovesPerTask = new(pooled.MovesPerTask)
	s.Static, s.Pooled = &static.Column, &pooled.Column
}
