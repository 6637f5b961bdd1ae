package bench

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpupool/gpupool/internal/baseline"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/placement"
	"github.com/gpupool/gpupool/internal/trace"
	"github.com/gpupool/gpupool/internal/work"
)

// What the published experiment fixes.
const (
	milliGPU    = 1000
	arrivalPart = 13 // tasks are offered until they ask for 13/10 of the GPUs
	arrivalOf   = 10
	firstSeed   = 42        // the published seeds are 42 to 51
	besideSeeds = 3         // of the published rules and the bound, which only stand beside: they vary by a tenth of a point
	maxOffered  = 2_000_000 // tasks in one run; the published lists make up to 13,000
	policyFGD   = "FGD"     // as published.csv names it
)

// PackingOptions is what Packing is asked for.
type PackingOptions struct {
	Trace     string   // folder with a node list, pod lists and published.csv
	Seeds     int      // runs per workload
	Workloads []string // names of pod lists; none = all
	Rules     []string // published rules to run too, see PackingRules; none = DefaultPackingRules, "all" and "none" are understood
	Workers   int      // runs at a time; 0 = as many as there are CPUs. The results are the same for any number
	Progress  func(done, total int)
}

// PackingResult is the packing experiment's outcome. Allocations are percent of all GPUs of the cluster.
type PackingResult struct {
	Experiment string            `json:"experiment"`
	Trace      string            `json:"trace"`
	Hosts      int               `json:"hosts"`
	GPUs       int               `json:"gpus"`
	Seeds      int               `json:"seeds"`
	Arrival    float64           `json:"arrival"` // GPUs asked for by all tasks offered, over those of the cluster
	Workloads  []PackingWorkload `json:"workloads"`
	AboveMean  *float64          `json:"above_published_fgd_mean"` // over the workloads that have a published figure; null without
	AboveMin   *float64          `json:"above_published_fgd_min"`
	WallS      float64           `json:"wall_s"`
	Notes      []string          `json:"notes"`
}

// PackingWorkload is the outcome for one pod list.
type PackingWorkload struct {
	Name         string             `json:"name"`
	TasksOffered int                `json:"tasks_offered"` // mean over the seeds
	Published    map[string]float64 `json:"published"`     // mean by policy, as published.csv names it
	Baselines    map[string]Spread  `json:"baselines"`     // by rule
	Gpupool      float64            `json:"gpupool"`
	GpupoolSD    float64            `json:"gpupool_sd"`
	GpupoolSeeds []float64          `json:"gpupool_seeds"`
	UpperBound   float64            `json:"upper_bound"`         // mean over the first besideSeeds
	Above        *float64           `json:"above_published_fgd"` // points; null where nothing was published
}

// Spread is the mean of several runs and their standard deviation (of a sample; 0 for one run).
type Spread struct {
	Mean float64 `json:"mean"`
	SD   float64 `json:"sd"`
}

// UnknownNameError is a name that was asked for and is not there.
type UnknownNameError struct {
	What  string // "workload"
	Name  string
	Known []string
}

func (e *UnknownNameError) Error() string {
	return fmt.Sprintf("%s %q is not known: there are %s", e.What, e.Name, strings.Join(e.Known, ", "))
}

// PackingRules returns the names of the published rules that can be run beside gpupool, the weakest first.
func PackingRules() (out []string) {
	for _, r := range baseline.Rules() {
		out = append(out, string(r))
	}
	return out
}

// DefaultPackingRules is what runs when no rule is named: all.
func DefaultPackingRules() []string { return PackingRules() }

// PackingWorkloads returns the names of the pod lists in a folder.
func PackingWorkloads(dir string) ([]string, error) {
	d, err := listPackingDir(dir)
	if err != nil {
		return nil, err
	}
	return d.names(), nil
}

// Packing repeats the experiment of Weng et al., "Beware of Fragmentation" (USENIX ATC '23), with gpupool's own
// placement and with published rules: how much of a cluster's GPUs is allocated once tasks that ask for 1.3 times as
// many were offered, nothing ends, and a task that does not fit is left out.
func Packing(ctx context.Context, o PackingOptions) (*PackingResult, error) {
	began := time.Now()
	rules, err := packingRules(o.Rules)
	if err != nil {
		return nil, err
	}
	if o.Seeds < 1 {
		return nil, fmt.Errorf("%d seeds: expected 1 or more", o.Seeds)
	}
	in, err := readPacking(o.Trace, o.Workloads)
	if err != nil {
		return nil, err
	}
	runs, err := in.runAll(ctx, o, rules)
	if err != nil {
		return nil, err
	}
	r := &PackingResult{Experiment: "packing", Trace: o.Trace, Hosts: len(in.hosts), GPUs: in.gpus(), Seeds: o.Seeds,
		Arrival: float64(arrivalPart) / arrivalOf}
	for i, w := range in.workloads {
		r.Workloads = append(r.Workloads, w.summary(rules, runs[i*o.Seeds:(i+1)*o.Seeds]))
	}
	r.compare()
	r.Notes = packingNotes(r, rules)
	r.WallS = time.Since(began).Seconds()
	return r, nil
}

// packingRules understands names of rules, "all" and "none".
func packingRules(names []string) ([]baseline.Rule, error) {
	switch {
	case len(names) == 0:
		names = DefaultPackingRules()
	case len(names) == 1 && names[0] == "none":
		return nil, nil
	case len(names) == 1 && names[0] == "all":
		return baseline.Rules(), nil
	}
	for _, name := range names {
		if !slices.Contains(PackingRules(), name) {
			return nil, &UnknownNameError{"rule", name, append(PackingRules(), "all (alone)", "none (alone)")}
		}
	}
	var out []baseline.Rule
	for _, r := range baseline.Rules() { // each once, in one order
		if slices.Contains(names, string(r)) {
			out = append(out, r)
		}
	}
	return out, nil
}

// check refuses a list whose pods ask for so little that offering enough of them would take for ever.
func (w *packingWorkload) check(path string, gpus int) error {
	asked := 0
	for i := range w.pods {
		asked += milliOf(&w.pods[i])
	}
	if want := gpus * milliGPU / arrivalOf * arrivalPart; float64(want)*float64(len(w.pods)) > maxOffered*float64(asked) {
		return &trace.Error{Path: path, Msg: fmt.Sprintf("its %d pods ask for %.3f GPUs: too little to ask for 1.3 times the %d GPUs of %s with %d pods",
			len(w.pods), float64(asked)/milliGPU, gpus, filepath.Dir(path), maxOffered)}
	}
	return nil
}

// milliOf is what a task asks of GPUs, in thousandths of one.
func milliOf(t *baseline.Task) int { return t.GPUs * t.Milli }

// arrivals returns what the published experiment offers: all pods, shuffled, then pods drawn with replacement for as
// long as all together ask for at most 1.3 times the GPUs. Lists that ask for more lose pods at random instead; as they
// are shuffled, those are the last ones.
func arrivals(pods []baseline.Task, gpus int, rng *rand.Rand) []baseline.Task {
	most, asked := gpus*milliGPU*arrivalPart, 0 // in tenths of thousandths
	out := slices.Clone(pods)
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	for i := range out {
		asked += milliOf(&out[i])
	}
	if asked*arrivalOf > most {
		for asked*arrivalOf > most {
			last := len(out) - 1
			asked -= milliOf(&out[last])
			out = out[:last]
		}
		return out
	}
	for {
		x := pods[rng.IntN(len(pods))]
		if (asked+milliOf(&x))*arrivalOf > most {
			return out
		}
		asked += milliOf(&x)
		out = append(out, x)
	}
}

// packingRun is the outcome of one workload and seed, in percent of the GPUs.
type packingRun struct {
	offered int
	bound   float64
	gpupool float64
	rules   []float64
}

// runAll runs every workload with every seed, several at a time, and returns the runs by workload, then seed.
func (in *packingInput) runAll(ctx context.Context, o PackingOptions, rules []baseline.Rule) ([]packingRun, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	out := make([]packingRun, len(in.workloads)*o.Seeds)
	next := make(chan int)
	var workers sync.WaitGroup
	count := packingCounter{total: len(out) + len(in.workloads)*min(o.Seeds, besideSeeds)*len(rules), told: o.Progress}
	for range max(1, min(cmp.Or(o.Workers, runtime.GOMAXPROCS(0)), len(out))) {
		workers.Go(func() {
			for i := range next {
				w := &in.workloads[i/o.Seeds]
				beside := i%o.Seeds < besideSeeds
				also := rules
				if !beside {
					also = nil
				}
				run, err := in.run(ctx, w, also, beside, firstSeed+uint64(i%o.Seeds), count.step)
				if err != nil {
					stop(err)
					return
				}
				out[i] = run
			}
		})
	}
	for i := range out {
		select {
		case next <- i:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(next)
	workers.Wait()
	return out, context.Cause(ctx)
}

// packingCounter tells how far all runs together are, in the order in which that grows.
type packingCounter struct {
	mu    sync.Mutex
	done  int
	total int
	told  func(done, total int)
}

func (c *packingCounter) step() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done++; c.told != nil {
		c.told(c.done, c.total)
	}
}

// run offers one list of tasks to every rule and to gpupool. Hosts stand in the same order for all: of equally good
// ones it decides.
func (in *packingInput) run(ctx context.Context, w *packingWorkload, rules []baseline.Rule, bound bool, seed uint64, step func()) (packingRun, error) {
	tasks := arrivals(w.pods, in.gpus(), rand.New(rand.NewPCG(seed, 0)))
	order := func() *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }
	total := float64(in.gpus() * milliGPU)
	out := packingRun{offered: len(tasks)}
	if bound {
		out.bound = packingBound(in.hosts, tasks)
	}
	for _, rule := range rules {
		c, err := baseline.New(rule, in.hosts, w.pods, order()) // which draws the order of hosts first
		if err != nil {
			return out, err
		}
		if err := offer(ctx, tasks, func(_ int, t *baseline.Task) error {
			c.Place(*t)
			return nil
		}); err != nil {
			return out, err
		}
		out.rules = append(out.rules, float64(c.Allocated())/total*100)
		step()
	}
	c, err := newPackingCluster(in.hosts, order().Perm(len(in.hosts)))
	if err != nil {
		return out, err
	}
	if err := offer(ctx, tasks, c.place); err != nil {
		return out, err
	}
	out.gpupool = float64(c.allocated()) / total * 100
	step()
	return out, nil
}

// offer gives tasks to place, one by one, until ctx ends.
func offer(ctx context.Context, tasks []baseline.Task, place func(n int, t *baseline.Task) error) error {
	for i := range tasks {
		if i%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if err := place(i, &tasks[i]); err != nil {
			return err
		}
	}
	return nil
}

// packingPool is the pool and the tenant that the experiment uses: it knows neither.
const packingPool = "default"

// packingCluster is the experiment's cluster as gpupool sees it.
type packingCluster struct{ *placement.Cluster }

// newPackingCluster makes an empty cluster of hosts in an order. Its models have no MIG and a memory that is not known:
// the experiment knows GPUs by thousandths and by name.
func newPackingCluster(hosts []baseline.Host, order []int) (*packingCluster, error) {
	var models []*gpu.Geometry
	known := map[string]bool{}
	for _, h := range hosts {
		if !known[h.Model] {
			known[h.Model] = true
			models = append(models, gpu.NewGeometry(gpu.Model{Key: h.Model}))
		}
	}
	c := placement.NewCluster(models)
	c.Sharers = milliGPU // as many tasks on one GPU as there are thousandths: no limit, as published
	for _, i := range order {
		h := hosts[i]
		info := gpu.HostInfo{Name: fmt.Sprintf("host-%d", i), CPUMilli: h.CPUMilli, MemMiB: h.MemMiB}
		for k := range h.GPUs {
			info.GPUs = append(info.GPUs, gpu.GPUInfo{ID: fmt.Sprintf("host-%d-%d", i, k), Model: h.Model})
		}
		if err := c.CheckHost(info); err != nil {
			return nil, err
		}
		c.SetUsable(c.AddHost(info, packingPool).Number, true, false)
	}
	return &packingCluster{c}, nil
}

// place offers a task: gpupool first learns that it is asked for, as it would in the pool, then looks for a place.
func (c *packingCluster) place(n int, t *baseline.Task) error {
	r := requestOf(t)
	c.Asked(packingPool, r)
	parts := c.Find(placement.Query{Pool: packingPool, Tenant: packingPool, Request: r})
	if len(parts) == 0 {
		return nil
	}
	c.Take(placement.Holder{Owner: work.Owner{Task: work.TaskID(n + 1)}, Tenant: packingPool, Priority: work.Normal}, parts[0])
	return nil
}

// requestOf turns a task into a request: less than one GPU is a share.
func requestOf(t *baseline.Task) work.Request {
	r := work.Request{CPUMilli: t.CPUMilli, MemMiB: t.MemMiB}
	if t.GPUs == 0 {
		return r
	}
	if r.GPUs = t.GPUs; t.GPUs == 1 && t.Milli < milliGPU {
		r.GPUs, r.Milli, r.Isolation = 0, t.Milli, work.IsolationShared
	}
	// Lists name the same models in several orders, and some twice.
	r.Models = slices.Compact(slices.Sorted(slices.Values(t.Models)))
	return r
}

// allocated counts what stands on the GPUs in the end, in thousandths of one.
func (c *packingCluster) allocated() (milli int) {
	for _, g := range c.GPUs {
		milli += g.Milli
	}
	return milli
}
