package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/gpupool/gpupool/internal/sim"
	"github.com/gpupool/gpupool/internal/trace"
)

// Of training. The first days of the busiest week, on a cluster so full that tasks wait: a
// plan holds pooled waits to static ones, and without any it would say nothing.
const (
	trainingFor    = 3 * 24 * time.Hour
	trainingDemand = 0.95
)

// training plans for tasks whose GPUs are in use as published. They are not parked, so
// what is saved is what fractions and shares save.
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
	p, err := sim.MakePlan(ctx, sim.Setup{Trace: t, Hosts: size.hosts, Seed: o.Seed}, fmt.Sprintf("%dx%s", len(size.hosts), queueHostType), nil)
	if err != nil {
		return nil, err
	}
	s := &ElasticScenario{Synthetic: t.Synthetic, Tasks: len(t.Tasks), GPUsStatic: p.GPUsStatic, GPUsPooled: p.GPUsPooled, Bound: p.LowerBound,
		BoundIs: "GPUs below which no scheduler keeps these waits, if each task gets what it asks for", Runs: p.Runs}
	s.of(&sim.Outcome{Column: p.Static}, &sim.Outcome{Column: p.Pooled})
	if p.Pooled.WaitingHours == 0 {
		s.IdleWaiting = nil // nobody waited: it says nothing
	}
	s.WaitMeanRatio, s.WaitP99S = ratio(p.Pooled.WaitMean, p.Static.WaitMean), new(p.Pooled.WaitP99)
	s.SlowdownP95, s.SlowdownStatic = new(p.Pooled.SlowdownP95), new(p.Static.SlowdownP95)
	s.notes = append(s.notes, fmt.Sprintf("days %.0f to %.0f of the trace; tasks are measured and kept: no task is resized or shares what another leaves of its GPU", from.Hours()/24, (from+trainingFor).Hours()/24))
	return s, nil
}
