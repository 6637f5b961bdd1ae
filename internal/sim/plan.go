package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

// Plan is how many GPUs a trace needs. Saving compares the smallest static
// cluster with the smallest pooled one, both held to the waits that static has on
// the whole cluster given; so a cluster that was too large to begin with does not
// count as saved.
type Plan struct {
	Trace      string   `json:"trace"`
	Synthetic  string   `json:"synthetic,omitempty"`
	Seed       uint64   `json:"seed"`
	Cluster    string   `json:"cluster"`
	GPUsWhole  int      `json:"gpus_cluster"`     // of the cluster given
	GPUsStatic int      `json:"gpus_static"`      // the fewest with which static waits no longer
	GPUsPooled int      `json:"gpus_pooled"`      // the fewest with which pooled waits no longer
	LowerBound int      `json:"gpus_lower_bound"` // no scheduler can do with fewer
	Saving     float64  `json:"saving"`           // 1 - pooled/static
	WaitMean   float64  `json:"wait_mean_s"`      // the waits not to be exceeded
	WaitP99    float64  `json:"wait_p99_s"`
	Runs       int      `json:"runs"` // of the trace
	WallS      float64  `json:"wall_s"`
	Static     Column   `json:"static"` // on gpus_static
	Pooled     Column   `json:"pooled"` // on gpus_pooled
	Notes      []string `json:"notes,omitempty"`
}

// planner searches cluster sizes.
type planner struct {
	setup  Setup
	target *Outcome // static on the whole cluster
	runs   int
	last   map[work.PoolMode]*Outcome // of the smallest size that was good enough
	report func(string)
}

// MakePlan searches the smallest clusters. The hosts of the setup must be alike.
// tell, if not nil, hears about each run.
func MakePlan(ctx context.Context, s Setup, cluster string, tell func(string)) (*Plan, error) {
	for _, h := range s.Hosts {
		if len(h.GPUs) == 0 || len(h.GPUs) != len(s.Hosts[0].GPUs) || h.GPUs[0].Model != s.Hosts[0].GPUs[0].Model {
			return nil, fmt.Errorf("a plan needs hosts that are alike, and %s differs from %s: give one shape, such as --hosts 200x8xH100-80GB", h.Name, s.Hosts[0].Name)
		}
	}
	if s.Until > 0 {
		s.Trace = s.Trace.Until(s.Until) // all of the shorter trace must finish
		s.Until = 0
	}
	began := time.Now()
	p := &planner{setup: s, last: map[work.PoolMode]*Outcome{}, report: tell}
	if p.report == nil {
		p.report = func(string) {}
	}
	p.report(fmt.Sprintf("static on all %d GPUs", GPUCount(s.Hosts)))
	target, err := Run(ctx, s, work.Static)
	if err != nil {
		return nil, err
	}
	if target.Rejected > 0 {
		return nil, fmt.Errorf("%d of %d tasks could never run on %s: give a larger cluster, so that the plan is about the whole trace", target.Rejected, target.Tasks, cluster)
	}
	p.target, p.runs = target, 1
	p.last[work.Static] = target
	each := len(s.Hosts[0].GPUs)
	bound := lowerBound(s.Trace, s.Hosts, target.WaitMean, target.WaitP99)
	least := max((bound+each-1)/each, 1)
	static, err := p.smallest(ctx, work.Static, least)
	if err != nil {
		return nil, err
	}
	pooled, err := p.smallest(ctx, work.Dynamic, least)
	if err != nil {
		return nil, err
	}
	plan := &Plan{
		Trace: s.Trace.Name, Synthetic: s.Trace.Synthetic, Seed: s.Seed, Cluster: cluster,
		GPUsWhole: GPUCount(s.Hosts), GPUsStatic: static * each, GPUsPooled: pooled * each, LowerBound: bound,
		Saving: 1 - float64(pooled)/float64(static), WaitMean: target.WaitMean, WaitP99: target.WaitP99,
		Runs: p.runs, WallS: time.Since(began).Seconds(), Notes: notes(s),
	}
	if o := p.last[work.Static]; o != nil {
		plan.Static = o.Column
	}
	if o := p.last[work.Dynamic]; o != nil {
		plan.Pooled = o.Column
	}
	return plan, nil
}

// smallest finds the fewest hosts with which a mode waits no longer than the
// target, by bisection: waits fall with more hosts, if not at every single step.
func (p *planner) smallest(ctx context.Context, mode work.PoolMode, least int) (int, error) {
	low, high := least, len(p.setup.Hosts)
	if mode != work.Static { // static on all of them is the target itself
		ok, err := p.goodEnough(ctx, mode, high)
		if err != nil {
			return 0, err
		}
		if !ok {
			return 0, fmt.Errorf("pooled on all %d hosts waits longer than static does (mean %.1f s, p99 %.1f s): give a larger cluster", high, p.target.WaitMean, p.target.WaitP99)
		}
	}
	for low < high {
		mid := (low + high) / 2
		ok, err := p.goodEnough(ctx, mode, mid)
		switch {
		case err != nil:
			return 0, err
		case ok:
			high = mid
		default:
			low = mid + 1
		}
	}
	return high, nil
}

func (p *planner) goodEnough(ctx context.Context, mode work.PoolMode, hosts int) (bool, error) {
	s := p.setup
	s.Hosts = s.Hosts[:hosts]
	name := "pooled"
	if mode == work.Static {
		name = "static"
	}
	p.report(fmt.Sprintf("%s on %d GPUs", name, GPUCount(s.Hosts)))
	run, err := newSimulation(ctx, s, mode)
	if err != nil {
		return false, err
	}
	run.stop = p.hopeless
	if err := run.loop(ctx); err != nil {
		return false, err
	}
	p.runs++
	o := run.rec.outcome()
	ok := !o.stopped && o.Finished >= p.target.Finished &&
		o.WaitMean <= p.target.WaitMean*(1+1e-9) && o.WaitP99 <= p.target.WaitP99
	if ok {
		p.last[mode] = o
	}
	return ok, nil
}

// hopeless ends a run whose waits are already too long for the mean over the whole
// trace, or that refused a task.
func (p *planner) hopeless(r *recorder) bool {
	budget := p.target.WaitMean * float64(r.sim.total()) * (1 + 1e-9)
	if r.waitSum > budget || r.out.Rejected > 0 {
		r.out.stopped = true
	}
	return r.out.stopped
}
