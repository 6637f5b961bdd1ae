package bench

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/queue"
	"github.com/gpupool/gpupool/internal/sim"
	"github.com/gpupool/gpupool/internal/trace"
	"github.com/gpupool/gpupool/internal/work"
)

// QueueOptions say what Queue replays.
type QueueOptions struct {
	Trace   string    // a trace, or a folder that holds folders of traces: itp, philly, openb
	Demands []float64 // of GPUs, as shares of the cluster; none = DefaultDemands
	Seed    uint64    // of the shapes of itp+openb; 0 = 1
	Workers int       // runs at a time; 0 = as many as there are CPUs. The numbers are the same for any number

	// Progress is told how many tasks have ended in all runs, of how many. May be nil.
	Progress func(done, total int)
}

// DefaultDemands are a quiet, a busy, and a full cluster.
func DefaultDemands() []float64 { return []float64{0.70, 0.85, 0.95} }

// The cluster's hosts, as the simulator spells them.
const (
	queueHostGPUs = 8
	queueHostType = "8xH100-80GB"
	maxQueueHosts = 12_500
	maxDemand     = 5
)

// The policies, in the order in which they are shown.
const (
	policyFIFO     = "fifo"
	policyBackfill = "fifo-backfill"
	policyFair     = "fair"
	policyLAS      = "las"
	policyOracle   = "sjf-oracle"
	policyOurs     = "gpupool"
)

// queuePolicy is a policy as the simulator is told it.
type queuePolicy struct {
	name  string
	what  string // for the notes
	rules queue.Rules
	told  bool          // knows how long each task will run
	saves time.Duration // tasks save their work so often, for nothing; 0 = never
}

func queuePolicies() []queuePolicy {
	return []queuePolicy{
		{name: policyFIFO, rules: queue.Rules{Order: queue.ByArrival, Past: queue.Never},
			what: "first come, first served; who does not fit stops all behind it that could use the same GPU models"},
		{name: policyBackfill, rules: queue.Rules{Order: queue.ByArrival},
			what: "the same order with gpupool's forecasts, reservations and backfill (EASY): what it gains over fifo is due to backfill, and what gpupool gains over it is due to the order"},
		{name: policyFair, rules: queue.Rules{Order: queue.ByShare, Past: queue.Anyone},
			what: "whose tenant has had the least goes first; whoever fits starts"},
		{name: policyLAS, rules: queue.Rules{Order: queue.ByAttained, Past: queue.Anyone}, saves: time.Second,
			what: "who has had less than an hour of a GPU goes first and preempts (as in Tiresias); whoever fits starts; in its favour a task saves its work every second, and that costs nothing"},
		{name: policyOracle, rules: queue.Rules{Order: queue.ByLength, Past: queue.Anyone}, told: true,
			what: "the shortest goes first, and it is told how long each will run; whoever fits starts"},
		{name: policyOurs, what: "gpupool's score, reservations and backfill; it is told nothing, and knows the tasks that have ended"},
	}
}

// QueueResult is what several policies made of the same traces. The same options give
// the same numbers, but for times.
type QueueResult struct {
	Experiment string        `json:"experiment"` // "queue"
	Trace      string        `json:"trace"`
	Seed       uint64        `json:"seed"`
	Targets    []QueueTarget `json:"targets"`
	Runs       []QueueRun    `json:"runs"`
	WallS      float64       `json:"wall_s"`
	Notes      []string      `json:"notes"`
}

// QueueTarget is what gpupool should reach in each run.
type QueueTarget struct {
	Name  string   `json:"name"`
	Least *float64 `json:"least,omitempty"`
	Most  *float64 `json:"most,omitempty"`
}

// QueueRun is a trace on a cluster of a size.
type QueueRun struct {
	Trace     string        `json:"trace"`
	Synthetic string        `json:"synthetic,omitempty"`
	Demand    float64       `json:"demand"`  // asked for
	Offered   float64       `json:"offered"` // as it came out with whole hosts
	GPUs      int           `json:"gpus"`
	Hosts     int           `json:"hosts"`
	Tasks     int           `json:"tasks"`
	Policies  []QueuePolicy `json:"policies"`

	// Derived; null where nothing waits, or the oracle's wait is no shorter.
	MeanBelowFIFO     *float64        `json:"mean_below_fifo"`          // 1 - gpupool's mean wait / fifo's
	MeanBelowBackfill *float64        `json:"mean_below_fifo_backfill"` // the same beside fifo-backfill: what the order alone gains
	WayToOracle       *float64        `json:"way_to_oracle"`            // of the mean wait between fifo and sjf-oracle, the part that gpupool saves
	P99OverFIFO       *float64        `json:"p99_over_fifo"`            // gpupool's 99th percentile of waits / fifo's
	Met               map[string]bool `json:"met"`                      // by target, without those that cannot be told
}

// QueuePolicy is what one policy did. Times are in seconds; a wait is all time in line,
// also after a preemption.
type QueuePolicy struct {
	Name         string   `json:"name"`
	Finished     int      `json:"finished"`
	Rejected     int      `json:"rejected"`
	WaitMean     float64  `json:"wait_mean_s"`
	WaitP50      float64  `json:"wait_p50_s"`
	WaitP99      float64  `json:"wait_p99_s"`
	WaitMax      float64  `json:"wait_max_s"`
	SlowdownMean float64  `json:"slowdown_mean"` // bounded: over what the task runs, or 10 s where that is more
	SlowdownP99  float64  `json:"slowdown_p99"`
	JCTMean      float64  `json:"jct_mean_s"`   // from submission to the end
	Starved      int      `json:"starved"`      // waited more than ten times fifo's 99th percentile
	Coverage     *float64 `json:"p90_coverage"` // of tasks whose length was predicted when they came, those that ended within its 90th percentile; null if there are none
	Preemptions  int      `json:"preemptions"`
	WallS        float64  `json:"wall_s"`

	waits []float64 // sorted
}

// Queue replays traces under several policies, on clusters whose size is a share of
// what the trace asks for.
func Queue(ctx context.Context, o QueueOptions) (*QueueResult, error) {
	began := time.Now()
	o.Seed = cmp.Or(o.Seed, 1)
	if len(o.Demands) == 0 {
		o.Demands = DefaultDemands()
	}
	for _, d := range o.Demands {
		if !(d > 0 && d <= maxDemand) { // not a number is neither
			return nil, &OptionError{fmt.Sprintf("demand %g is out of range: expected more than 0 and at most %d, such as 0.85", d, maxDemand)}
		}
	}
	plans, err := o.plans()
	if err != nil {
		return nil, err
	}
	if err := o.replay(ctx, plans); err != nil {
		return nil, err
	}
	r := &QueueResult{Experiment: "queue", Trace: o.Trace, Seed: o.Seed, Targets: queueTargets(), Notes: queueNotes(plans)}
	for _, p := range plans {
		if err := p.check(); err != nil {
			return nil, err
		}
		p.run.derive()
		r.Runs = append(r.Runs, p.run)
	}
	r.WallS = time.Since(began).Seconds()
	return r, nil
}

// queuePlan is a run that is to be made.
type queuePlan struct {
	run   QueueRun
	trace *trace.Trace
	hosts []gpu.HostInfo
}

// plans reads the traces and sizes the clusters.
func (o *QueueOptions) plans() ([]*queuePlan, error) {
	var plans []*queuePlan
	for _, path := range queueTraces(o.Trace) {
		t, err := trace.Read(path, trace.Options{Seed: o.Seed})
		if err != nil {
			return nil, err
		}
		for _, demand := range o.Demands {
			p, err := newQueuePlan(t, demand)
			if err != nil {
				return nil, err
			}
			plans = append(plans, p)
		}
	}
	return plans, nil
}

// queueTraces lists the traces at a path: those that a folder holds in folders of their
// own, or the path itself.
func queueTraces(path string) []string {
	has := func(name string) bool {
		info, err := os.Stat(filepath.Join(path, name))
		return err == nil && info.IsDir()
	}
	itp, philly, openb := has("itp"), has("philly"), has("openb")
	var out []string
	if itp {
		out = append(out, filepath.Join(path, "itp"))
	}
	if philly {
		out = append(out, filepath.Join(path, "philly"))
	}
	if itp && openb {
		out = append(out, filepath.Join(path, "itp+openb"))
	}
	if len(out) == 0 {
		out = append(out, path)
	}
	return out
}

// newQueuePlan picks the cluster: as many hosts as bring what the trace asks for closest
// to a share of its GPUs, and enough for the largest task.
func newQueuePlan(t *trace.Trace, demand float64) (*queuePlan, error) {
	one, err := sim.ParseHosts("1x" + queueHostType)
	if err != nil {
		return nil, err
	}
	most, span := 0, 0.0
	for i := range t.Tasks {
		most, span = max(most, t.Tasks[i].GPUs), t.Tasks[i].Submit.Seconds() // they are in order
	}
	if span == 0 {
		return nil, &OptionError{fmt.Sprintf("trace %s: all its tasks were submitted at once, so what share of a cluster they ask for cannot be said", t.Name)}
	}
	asked := sim.GPUSeconds(t, one) / span
	n := math.Round(max(asked/demand, 1) / queueHostGPUs)
	n = max(n, math.Ceil(float64(most)/queueHostGPUs), 1)
	if n > maxQueueHosts {
		return nil, &OptionError{fmt.Sprintf("trace %s at a demand of %g needs %.0f hosts: expected %d at most, so give a higher demand", t.Name, demand, n, maxQueueHosts)}
	}
	hosts, err := sim.ParseHosts(fmt.Sprintf("%.0fx%s", n, queueHostType))
	if err != nil {
		return nil, err
	}
	gpus := sim.GPUCount(hosts)
	return &queuePlan{trace: t, hosts: hosts, run: QueueRun{Trace: t.Name, Synthetic: t.Synthetic, Demand: demand, Offered: asked / float64(gpus),
		GPUs: gpus, Hosts: len(hosts), Tasks: len(t.Tasks), Policies: make([]QueuePolicy, len(queuePolicies()))}}, nil
}

// replay makes all runs, several at a time. Each has its place for what comes of it, and
// shares nothing with the others but the trace, which nobody changes.
func (o *QueueOptions) replay(ctx context.Context, plans []*queuePlan) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(cmp.Or(max(o.Workers, 0), runtime.GOMAXPROCS(0)))
	policies := queuePolicies()
	count := queueCounter{told: o.Progress}
	for _, p := range plans {
		count.total += len(policies) * len(p.trace.Tasks)
	}
	for _, p := range plans {
		for i, policy := range policies {
			g.Go(func() (err error) {
				if err = ctx.Err(); err == nil {
					p.run.Policies[i], err = p.replay(ctx, policy, count.of())
				}
				return err
			})
		}
	}
	return g.Wait()
}

func (p *queuePlan) replay(ctx context.Context, policy queuePolicy, progress func(done, total int)) (QueuePolicy, error) {
	began := time.Now()
	o, err := sim.Run(ctx, sim.Setup{Trace: p.trace, Hosts: p.hosts, Rules: policy.rules, Told: policy.told, Saves: policy.saves, Progress: progress}, work.Dynamic)
	if err != nil {
		return QueuePolicy{}, err
	}
	out := QueuePolicy{Name: policy.name, Finished: o.Finished, Rejected: o.Rejected, WaitMean: o.WaitMean, WaitP50: o.WaitP50, WaitP99: o.WaitP99,
		SlowdownMean: o.SlowdownMean, SlowdownP99: o.SlowdownP99, JCTMean: o.JCTMean, Preemptions: o.Preemptions,
		WallS: time.Since(began).Seconds(), waits: o.Waits}
	if n := len(o.Waits); n > 0 {
		out.WaitMax = o.Waits[n-1]
	}
	if o.Said > 0 {
		share := float64(o.Within) / float64(o.Said)
		out.Coverage = &share
	}
	return out, nil
}

// queueCounter adds up how far all runs are.
type queueCounter struct {
	mu          sync.Mutex
	done, total int
	told        func(done, total int)
}

// of is the progress of one of the runs.
func (c *queueCounter) of() func(done, total int) {
	if c.told == nil {
		return nil
	}
	before := 0
	return func(done, _ int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.done += done - before
		before = done
		c.told(c.done, c.total)
	}
}

// check fails if a policy dropped work: its waits would be of other tasks than the others'.
func (p *queuePlan) check() error {
	for _, x := range p.run.Policies {
		if x.Finished != p.run.Tasks {
			return fmt.Errorf("%s at a demand of %g under %s: of %d tasks %d finished and %d were rejected, so its waits cannot be compared: all must finish",
				p.run.Trace, p.run.Demand, x.Name, p.run.Tasks, x.Finished, x.Rejected)
		}
	}
	return nil
}

// of is what a policy did.
func (r *QueueRun) of(name string) *QueuePolicy {
	return &r.Policies[slices.IndexFunc(r.Policies, func(p QueuePolicy) bool { return p.Name == name })]
}
