package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/gpupool/gpupool/internal/sim"
	"github.com/gpupool/gpupool/internal/trace"
)

// Of training. Three days from the middle of the trace: a plan makes a dozen runs.
const (
	trainingFrom  = 14 * 24 * time.Hour
	trainingTo    = 17 * 24 * time.Hour
	trainingHosts = 300 // of the cluster that static waits are taken from
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
	if t, err = windowOf(t, trainingFrom, trainingTo).Utilise(file, o.Seed); err != nil {
		return nil, err
	}
	hosts, err := elasticHosts(trainingHosts * elasticEach)
	if err != nil {
		return nil, err
	}
	p, err := sim.MakePlan(ctx, sim.Setup{Trace: t, Hosts: hosts, Seed: o.Seed}, fmt.Sprintf("%dx%s", trainingHosts, queueHostType), nil)
	if err != nil {
		return nil, err
	}
	s := &ElasticScenario{Synthetic: t.Synthetic, Tasks: len(t.Tasks), GPUsStatic: p.GPUsStatic, GPUsPooled: p.GPUsPooled, Bound: p.LowerBound,
		BoundIs: "GPUs below which no scheduler keeps these waits, if each task gets what it asks for", Runs: p.Runs}
	s.of(&sim.Outcome{Column: p.Static}, &sim.Outcome{Column: p.Pooled})
	s.WaitMeanRatio, s.WaitP99S = ratio(p.Pooled.WaitMean, p.Static.WaitMean), number(p.Pooled.WaitP99)
	s.SlowdownP95, s.SlowdownStatic = number(p.Pooled.SlowdownP95), number(p.Static.SlowdownP95)
	s.notes = append(s.notes, fmt.Sprintf("days %.0f to %.0f of the trace; tasks are measured and kept: no task is resized or shares what another leaves of its GPU", trainingFrom.Hours()/24, trainingTo.Hours()/24))
	return s, nil
}
