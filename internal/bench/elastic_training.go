package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/sim"
	"github.com/gpupool/gpupool/internal/trace"
	"github.com/gpupool/gpupool/internal/work"
)

// Of training. The first days of the busiest week.
const (
	trainingFor    = 3 * 24 * time.Hour
	trainingDemand = 0.5 // of GPUs, on which the search begins: nobody waits there
	perHour        = 60  // restarts in a pool of two hosts: a pool's default, which is for one of the recommended size
)

// trained is a workload of training, and how large a host's pool must be for it.
type trained struct {
	hosts []gpu.HostInfo
	least int // hosts for its largest task
	runs  int
}

// training seeks the fewest GPUs on which few tasks are slowed down, for tasks whose GPUs are
// in use as published: apart, pooled, and pooled with tasks that may be restarted in
// another size or place. They are not parked.
func (o *ElasticOptions) training(ctx context.Context, name, cdf string) (*ElasticScenario, error) {
	file := filepath.Join(o.Trace, "utilisation", cdf+"_gpu_util_cdf.csv")
	if !o.has("itp") || !o.has("openb") || !o.has("philly") || !o.has("utilisation") {
		return &ElasticScenario{Skipped: fmt.Sprintf("there are no folders itp, openb, philly and utilisation at %q: give --trace with the public traces", o.Trace)}, nil
	}
	t, err := trace.Read(filepath.Join(o.Trace, name), trace.Options{Seed: o.Seed})
	if err != nil {
		return nil, err
	}
	from := busiest(t)
	if t, err = windowOf(t, from, from+trainingFor).Utilise(file, o.Seed); err != nil {
		return nil, err
	}
	size, err := newQueuePlan(t, trainingDemand)
	if err != nil {
		return nil, err
	}
	w := &trained{hosts: size.hosts, least: 1}
	for i := range t.Tasks {
		w.least = max(w.least, (t.Tasks[i].GPUs+queueHostGPUs-1)/queueHostGPUs)
	}
	static, err := w.fewest(ctx, t, work.Static, work.PoolElastic{})
	if err != nil {
		return nil, err
	}
	keep := work.PoolElastic{OnIdle: map[work.Class]work.IdleAction{work.Training: work.IdleKeep}}
	kept, err := w.fewest(ctx, t, work.Dynamic, keep)
	if err != nil {
		return nil, err
	}
	t = t.Restartable(o.Seed)
	share := work.PoolElastic{OnIdle: map[work.Class]work.IdleAction{work.Training: work.IdleShare}, PerHour: perHour * len(size.hosts) / 2}
	pooled, err := w.fewest(ctx, t, work.Dynamic, share)
	if err != nil {
		return nil, err
	}
	s := &ElasticScenario{Synthetic: t.Synthetic, Tasks: len(t.Tasks), GPUsStatic: static.GPUs, GPUsPooled: pooled.GPUs, GPUsKept: kept.GPUs, Runs: w.runs,
		Bound: w.least * queueHostGPUs, BoundIs: "GPUs of the largest task, in whole hosts"}
	s.of(static, pooled)
	s.WaitMeanRatio, s.WaitP99S = ratio(pooled.WaitMean, static.WaitMean), new(pooled.WaitP99)
	s.SlowdownP95, s.SlowdownStatic = new(pooled.SlowdownP95), new(static.SlowdownP95)
	s.SlowdownRatio = ratio(pooled.SlowdownP95, static.SlowdownP95)
	s.computing, s.several = t.Computing(0.05), several(t)
	s.notes = append(s.notes, fmt.Sprintf("days %.0f to %.0f of the trace; %.0f GPU hours of the pool go by while a task waits; pooled needs %d GPUs where no task is resized or restarted, and %d with %d resizes, restarts and moves",
		from.Hours()/24, (from+trainingFor).Hours()/24, pooled.WaitingHours, kept.GPUs, pooled.GPUs, pooled.Resizes))
	return s, nil
}

// several is the share of GPU time that tasks of several GPUs hold.
func several(t *trace.Trace) float64 {
	of, all := 0.0, 0.0
	for i := range t.Tasks {
		x := &t.Tasks[i]
		hours := (float64(x.GPUs) + float64(x.Milli)/1000) * x.Duration.Hours()
		if all += hours; x.GPUs > 1 {
			of += hours
		}
	}
	return of / max(all, 1e-9)
}

// fewest seeks by bisection the fewest hosts on which slowdowns are small, if not at every
// step: waits fall with more hosts, but not at every single one.
func (w *trained) fewest(ctx context.Context, t *trace.Trace, mode work.PoolMode, x work.PoolElastic) (*sim.Outcome, error) {
	var best *sim.Outcome
	for low, high := w.least, len(w.hosts); best == nil || low < high; {
		mid := (low + high) / 2
		if best == nil {
			mid = high
		}
		w.runs++
		o, err := sim.Run(ctx, sim.Setup{Trace: t, Hosts: w.hosts[:mid], Elastic: x, Slow: mostSlow}, mode)
		if err != nil {
			return nil, err
		}
		switch ok := o.Rejected == 0 && !o.Stopped() && o.SlowdownP95 <= mostSlow; {
		case best == nil && !ok:
			return o, nil // the most there are
		case ok:
			high, best = mid, o
		default:
			low = mid + 1
		}
	}
	return best, nil
}
