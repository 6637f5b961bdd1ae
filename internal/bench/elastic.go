package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/sim"
	"github.com/gpupool/gpupool/internal/trace"
	"github.com/gpupool/gpupool/internal/work"
)

// ElasticOptions say what Elastic replays.
type ElasticOptions struct {
	Trace   string   // a folder that holds serving, itp, philly, openb and utilisation; what it lacks is drawn or left out
	Only    []string // scenarios, by name; none = all
	Seed    uint64   // 0 = 1
	Models  int      // of the market; 0 = 200
	Users   int      // of notebooks; 0 = 64
	Workers int      // scenarios at a time; 0 = as many as there are CPUs. The numbers are the same for any number

	// Progress is told how many scenarios are done, of how many. May be nil.
	Progress func(done, total int)
}

// ElasticScenarios lists the scenarios' names.
func ElasticScenarios() []string {
	return []string{"market", "notebooks", "silos-itp", "silos-philly", "training-itp+openb", "training-philly"}
}

// ElasticResult is what giving away idle GPUs saves, and what it costs. The same options
// give the same numbers, but for times.
type ElasticResult struct {
	Experiment string            `json:"experiment"` // "elastic"
	Trace      string            `json:"trace"`
	Seed       uint64            `json:"seed"`
	Scenarios  []ElasticScenario `json:"scenarios"`
	WallS      float64           `json:"wall_s"`
	Notes      []string          `json:"notes"`
}

// ElasticScenario is one workload, kept apart and pooled. A number that a scenario does
// not have is null.
type ElasticScenario struct {
	Name           string          `json:"name"`
	Synthetic      string          `json:"synthetic,omitempty"` // what of the trace was made up
	Skipped        string          `json:"skipped,omitempty"`   // why it did not run
	Tasks          int             `json:"tasks"`
	Requests       int             `json:"requests,omitempty"`
	GPUsStatic     int             `json:"gpus_static"`
	GPUsPooled     int             `json:"gpus_pooled"`
	GPUsShadow     int             `json:"gpus_shadow,omitempty"` // that the static run says a dynamic pool would need
	GPUsCommon     int             `json:"gpus_common,omitempty"` // of silos: with one pool for all
	Bound          int             `json:"bound"`                 // GPUs: see what
	BoundIs        string          `json:"bound_is"`
	Saving         *float64        `json:"saving"`       // 1 - pooled/static
	ShadowError    *float64        `json:"shadow_error"` // gpus_shadow/gpus_pooled - 1; of notebooks alone, where training is beside them
	OverCommon     *float64        `json:"over_common"`
	IdleStatic     *float64        `json:"idle_static"` // of the time of GPUs held, in which nothing computes; of notebooks: of all GPUs
	IdlePooled     *float64        `json:"idle_pooled"`
	UnusedStatic   *float64        `json:"unused_static"` // 1 - mean utilisation of the GPU time held
	UnusedPooled   *float64        `json:"unused_pooled"`
	IdleWaiting    *float64        `json:"idle_while_waiting"`   // pooled: of the time of all GPUs while someone waits
	UnusedWaiting  *float64        `json:"unused_while_waiting"` // likewise, 1 - mean utilisation
	WaitMeanRatio  *float64        `json:"wait_mean_ratio"`      // pooled/static, of requests, or of tasks where there are none
	WaitP99S       *float64        `json:"wait_p99_s"`           // pooled
	SlowdownP95    *float64        `json:"slowdown_p95"`         // pooled: over what a request, or a task, takes with everything at hand
	SlowdownStatic *float64        `json:"slowdown_p95_static"`  // the same apart
	SlowdownRatio  *float64        `json:"slowdown_p95_ratio"`   // of these two: what pooling does
	SlowdownMoves  *float64        `json:"slowdown_p95_moves"`   // pooled with a GPU for each task: what parking does alone, without queueing for GPUs
	SlowdownTasks  *float64        `json:"slowdown_tasks_p95"`   // pooled: of tasks with requests, all their requests together
	MovesPerTask   *float64        `json:"moves_per_task"`
	WithinStatic   *float64        `json:"started_within_10s_static"`
	Within         *float64        `json:"started_within_10s"`
	Beside         *ElasticBeside  `json:"beside,omitempty"`    // training on the same GPUs
	GPUsKept       int             `json:"gpus_kept,omitempty"` // of training: pooled, if no task can be restarted in another size
	Targets        []ElasticTarget `json:"targets"`
	Runs           int             `json:"runs"`
	WallS          float64         `json:"wall_s"`
	Static         *sim.Column     `json:"static,omitempty"`
	Pooled         *sim.Column     `json:"pooled,omitempty"`
	notes          []string
	computing      float64 // of training: the share of the GPU time held in which it computes
	several        float64 // and the share that tasks of several GPUs hold
}

// ElasticBeside is training that is lent what notebooks leave idle.
type ElasticBeside struct {
	GPUs        int     `json:"gpus_static"`       // that it has apart
	HoursApart  float64 `json:"work_hours_static"` // GPU hours of work done in the same time, without loading
	Hours       float64 `json:"work_hours"`        // pooled
	Preemptions int     `json:"preemptions"`       // pooled: how often it was told to leave
}

// hostModel and hostMiB are of the simulated hosts: eight H100s and 2 TiB, as the nodes
// have of the published system that parks models in main memory.
const (
	elasticModel = "H100-80GB"
	elasticEach  = 8
	hostMiB      = 2 << 20
)

// Elastic replays workloads whose GPUs are idle much of the time.
func Elastic(ctx context.Context, o ElasticOptions) (*ElasticResult, error) {
	began := time.Now()
	o.Seed = cmp.Or(o.Seed, 1)
	names := o.Only
	if len(names) == 0 {
		names = ElasticScenarios()
	}
	r := &ElasticResult{Experiment: "elastic", Trace: o.Trace, Seed: o.Seed, Scenarios: make([]ElasticScenario, len(names))}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(cmp.Or(max(o.Workers, 0), runtime.GOMAXPROCS(0)))
	count := queueCounter{total: len(names), told: o.Progress}
	for i, name := range names {
		run, err := o.scenario(name)
		if err != nil {
			return nil, err
		}
		done := count.of()
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			from := time.Now()
			s, err := run(ctx)
			if err != nil {
				return fmt.Errorf("scenario %s: %w", name, err)
			}
			s.Name, s.WallS = name, time.Since(from).Seconds()
			if s.Skipped == "" {
				s.aim()
			}
			r.Scenarios[i] = *s
			if done != nil {
				done(1, 1)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	r.Notes, r.WallS = elasticNotes(r), time.Since(began).Seconds()
	return r, nil
}

// scenario is how a scenario is run.
func (o *ElasticOptions) scenario(name string) (func(context.Context) (*ElasticScenario, error), error) {
	switch name {
	case "market":
		return o.market, nil
	case "notebooks":
		return o.notebooks, nil
	case "silos-itp":
		return func(ctx context.Context) (*ElasticScenario, error) { return o.silos(ctx, "itp") }, nil
	case "silos-philly":
		return func(ctx context.Context) (*ElasticScenario, error) { return o.silos(ctx, "philly") }, nil
	case "training-itp+openb":
		return func(ctx context.Context) (*ElasticScenario, error) { return o.training(ctx, "itp+openb", "pai") }, nil
	case "training-philly":
		return func(ctx context.Context) (*ElasticScenario, error) { return o.training(ctx, "philly", "philly") }, nil
	}
	return nil, &OptionError{fmt.Sprintf("scenario %q is not known: expected %v", name, ElasticScenarios())}
}

// has reports whether the folder of traces holds a folder.
func (o *ElasticOptions) has(name string) bool {
	if o.Trace == "" {
		return false
	}
	info, err := os.Stat(filepath.Join(o.Trace, name))
	return err == nil && info.IsDir()
}

// elasticHosts is so many GPUs in full hosts, and a smaller last one for the rest. Each
// has all the main memory of a host.
func elasticHosts(gpus int) ([]gpu.HostInfo, error) {
	shape := ""
	if n := gpus / elasticEach; n > 0 {
		shape = fmt.Sprintf("%dx%dx%s", n, elasticEach, elasticModel)
	}
	if rest := gpus % elasticEach; rest > 0 {
		if shape != "" {
			shape += ","
		}
		shape += fmt.Sprintf("%dx%s", rest, elasticModel)
	}
	hosts, err := sim.ParseHosts(shape)
	for i := range hosts {
		hosts[i].MemMiB = hostMiB
	}
	return hosts, err
}

// parkSoon is what pools of services and notebooks do with those that idle.
func parkSoon(after time.Duration) work.PoolElastic {
	return work.PoolElastic{
		OnIdle:   map[work.Class]work.IdleAction{work.Interactive: work.IdlePark, work.Inference: work.IdlePark},
		After:    map[work.Class]time.Duration{work.Interactive: after, work.Inference: after},
		Cooldown: 5 * time.Second,
	}
}

// windowOf is the part of a trace between two times, its first task at 0.
func windowOf(t *trace.Trace, from, to time.Duration) *trace.Trace {
	out := *t.Until(to)
	for len(out.Tasks) > 0 && out.Tasks[0].Submit < from {
		out.Tasks = out.Tasks[1:]
	}
	for i := range out.Tasks { // Until made them our own
		out.Tasks[i].Submit -= from
	}
	return &out
}

// busiest is when the week begins, counted from the trace's start, in which most tasks are
// submitted. The rule looks at the load alone, so that no outcome picks the window.
func busiest(t *trace.Trace) time.Duration {
	const week = 7 * 24 * time.Hour
	counts := map[int]int{}
	best := 0
	for i := range t.Tasks { // by Submit, so of equal weeks the first stays
		w := int(t.Tasks[i].Submit / week)
		if counts[w]++; counts[w] > counts[best] {
			best = w
		}
	}
	return time.Duration(best) * week
}
