package bench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/sim"
	"github.com/gpupool/gpupool/internal/trace"
	"github.com/gpupool/gpupool/internal/work"
)

// SimulateOptions say how much is simulated. Zero values mean the defaults.
type SimulateOptions struct {
	Tasks int    // default 1,000,000
	Seed  uint64 // default 1
	Hosts string // shape of each cluster; default 200x8xH100-80GB

	// Clusters is how many clusters share the tasks evenly; each is simulated by
	// itself, as many at a time as there are cores. Default 4.
	Clusters int

	// Progress is told how many tasks have ended, of how many. May be nil.
	Progress func(done, total int)
}

// SimulateResult is how fast generated work went through the simulator, and what
// came of it. The same options give the same numbers, but for time and memory.
type SimulateResult struct {
	Experiment    string   `json:"experiment"` // "simulate"
	Tasks         int      `json:"tasks"`
	Seed          uint64   `json:"seed"`
	Hosts         string   `json:"hosts"`
	Clusters      int      `json:"clusters"`
	GPUs          int      `json:"gpus"`   // of one cluster
	Cores         int      `json:"cores"`  // that were used
	WallS         float64  `json:"wall_s"` // all of it: generating, simulating, summing up
	TasksPerS     float64  `json:"tasks_per_s"`
	TasksPerCoreS float64  `json:"tasks_per_core_s"` // in a second of one core
	DecisionsPerS float64  `json:"decisions_per_s"`
	PeakMiB       float64  `json:"peak_memory_mib"`
	Succeeded     int      `json:"succeeded"`
	Failed        int      `json:"failed"` // whatever did not succeed
	WaitMean      float64  `json:"wait_mean_s"`
	WaitP99       float64  `json:"wait_p99_s"`  // the highest of the clusters'
	Utilisation   float64  `json:"utilisation"` // of the cluster's GPUs: what tasks asked for while they ran, over the whole virtual time
	VirtualDays   float64  `json:"virtual_days"`
	Notes         []string `json:"notes"`
}

// maxSimulated bounds the tasks of one run: at about half a kilobyte each, what a
// large machine has memory for.
const maxSimulated = 100_000_000

func (o SimulateOptions) withDefaults() (SimulateOptions, []gpu.HostInfo, error) {
	if o.Tasks == 0 {
		o.Tasks = 1_000_000
	}
	if o.Seed == 0 {
		o.Seed = 1
	}
	if o.Hosts == "" {
		o.Hosts = "200x8xH100-80GB"
	}
	if o.Clusters == 0 {
		o.Clusters = min(4, max(o.Tasks, 1))
	}
	if o.Tasks < 1 || o.Tasks > maxSimulated {
		return o, nil, &OptionError{fmt.Sprintf("%d tasks is out of range: expected 1 to %d", o.Tasks, maxSimulated)}
	}
	if o.Clusters < 1 || o.Clusters > o.Tasks || o.Clusters > maxClusters {
		return o, nil, &OptionError{fmt.Sprintf("%d clusters is out of range: expected 1 to %d, and no more than tasks", o.Clusters, maxClusters)}
	}
	hosts, err := sim.ParseHosts(o.Hosts)
	if err != nil {
		err = &OptionError{err.Error()}
	}
	return o, hosts, err
}

// simulateGC is the garbage collector's target while simulating, percent.
const simulateGC = 300

// maxClusters is more than anyone needs side by side.
const maxClusters = 1000

// Simulate generates tasks and takes them through the simulator, pooled.
func Simulate(ctx context.Context, o SimulateOptions) (*SimulateResult, error) {
	o, hosts, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	// Collecting seldom takes twice the memory and a tenth less time.
	defer debug.SetGCPercent(debug.SetGCPercent(simulateGC))
	outs, err := o.run(ctx, hosts)
	if err != nil {
		return nil, err
	}
	wall := time.Since(began).Seconds()
	peak, how := peakMemory()
	r := &SimulateResult{
		Experiment: "simulate", Seed: o.Seed, Hosts: o.Hosts, Clusters: o.Clusters, GPUs: sim.GPUCount(hosts),
		Cores: min(o.Clusters, runtime.GOMAXPROCS(0)), WallS: wall, PeakMiB: peak, Notes: append(simulateNotes(), how),
	}
	decisions, used, had := 0, 0.0, 0.0
	for _, out := range outs {
		r.Tasks += out.Tasks
		decisions += out.Decisions
		r.Succeeded += out.Finished
		r.WaitMean += out.WaitMean * float64(out.Tasks)
		r.WaitP99 = max(r.WaitP99, out.WaitP99)
		r.VirtualDays = max(r.VirtualDays, out.Virtual.Hours()/24)
		used += out.HoursUsed
		had += float64(r.GPUs) * out.Virtual.Hours()
	}
	r.Failed = r.Tasks - r.Succeeded
	r.WaitMean /= float64(r.Tasks)
	r.TasksPerS, r.DecisionsPerS = float64(r.Tasks)/wall, float64(decisions)/wall
	r.TasksPerCoreS = r.TasksPerS / float64(r.Cores)
	if had > 0 {
		r.Utilisation = used / had
	}
	return r, nil
}

// run simulates the clusters, as many at a time as there are cores.
func (o SimulateOptions) run(ctx context.Context, hosts []gpu.HostInfo) ([]*sim.Outcome, error) {
	outs := make([]*sim.Outcome, o.Clusters)
	var mu sync.Mutex
	ended := make([]int, o.Clusters)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range outs {
		g.Go(func() (err error) {
			n := o.Tasks*(i+1)/o.Clusters - o.Tasks*i/o.Clusters
			seed := o.Seed*maxClusters + uint64(i)
			s := sim.Setup{Trace: generate(n, seed, sim.GPUCount(hosts)), Hosts: hosts, Seed: seed}
			if o.Progress != nil {
				s.Progress = func(done, _ int) {
					mu.Lock()
					defer mu.Unlock()
					ended[i] = done
					sum := 0
					for _, n := range ended {
						sum += n
					}
					o.Progress(sum, o.Tasks)
				}
			}
			outs[i], err = sim.Run(ctx, s, work.Dynamic)
			return err
		})
	}
	return outs, g.Wait()
}

func simulateNotes() []string {
	return []string{
		fmt.Sprintf("generated: Poisson arrivals whose rate swings by %.0f %% each day, at a mean load of %g of the cluster (Helios had 67 %% of its GPUs allocated); lognormal durations, median %s, sigma %g, at most %s; %s; %d tenants, the first the busiest; 10 %% high, 60 %% normal, 30 %% low priority",
			100*daySwing, meanLoad, work.FormatDuration(medianDuration), sigmaDuration, work.FormatDuration(longest), mixText(), tenantCount),
		"included: generating the tasks, and for each its submission, placement, carving, start, end and freeing through the host's writer, the engine and fake hardware that gpupool simulate uses, and the sums over them",
		fmt.Sprintf("each cluster is simulated by itself on one core: nothing is shared between them; the garbage collector runs at GOGC=%d", simulateGC),
		"not included: a journal on disk, JSON, real processes and real GPUs; there is one pool without limits or TTLs, and nothing breaks",
	}
}

// The generated work. What is not from a table of its own is chosen so that lines
// form at the daily peak and are gone a few hours later.
const (
	meanLoad       = 0.7 // of the cluster's GPUs, by what is asked for
	daySwing       = 0.3 // of the rate of arrivals, up at noon and down at midnight
	medianDuration = 10 * time.Minute
	sigmaDuration  = 1.5
	longest        = 48 * time.Hour
	tenantCount    = 20
	day            = 24 * time.Hour
)

// sizes is the mix of what tasks ask for, in thousandths of a GPU.
var sizes = []struct {
	milli int
	share float64
}{{143, 0.20}, {0, 0.20}, {1000, 0.36}, {2000, 0.10}, {4000, 0.07}, {8000, 0.07}}

// Fractions other than 1/7 lie evenly between these, in thousandths.
const leastFraction, mostFraction = 50, 700

func mixText() string {
	var parts []string
	for _, s := range sizes {
		what := fmt.Sprintf("%d GPUs", s.milli/1000)
		switch s.milli {
		case 0:
			what = fmt.Sprintf("%g to %g GPU", float64(leastFraction)/1000, float64(mostFraction)/1000)
		case 143:
			what = "1/7 GPU"
		case 1000:
			what = "1 GPU"
		}
		parts = append(parts, fmt.Sprintf("%.0f %% %s", 100*s.share, what))
	}
	return strings.Join(parts, ", ")
}

// generate draws tasks for a cluster; the same arguments give the same tasks.
// Tasks that would need more than the whole cluster are drawn again as one GPU.
func generate(n int, seed uint64, gpus int) *trace.Trace {
	rng := rand.New(rand.NewPCG(seed, 0x51a7e))
	tenants, busy := tenantShares()
	perSecond := meanLoad * float64(gpus) / (meanGPUs(gpus) * meanSeconds())
	tasks := make([]trace.Task, n)
	at := 0.0 // seconds
	for i := range tasks {
		x := &tasks[i]
		x.Submit = time.Duration(at * float64(time.Second))
		x.Duration = drawDuration(rng)
		x.GPUs, x.Milli = drawSize(rng, gpus)
		x.Tenant = tenants[pick(rng, busy)]
		x.Priority = []string{"high", "normal", "low"}[pick(rng, []float64{0.1, 0.6, 0.3})]
		x.Utilisation = -1
		rate := perSecond * (1 - daySwing*math.Cos(2*math.Pi*at/day.Seconds())) // the day begins at midnight
		at += rng.ExpFloat64() / rate
	}
	return &trace.Trace{Name: "generated", Synthetic: "all of it", Tasks: tasks}
}

// tenantShares names the tenants, each with less work than the one before.
func tenantShares() (names []string, shares []float64) {
	sum := 0.0
	for i := range tenantCount {
		names = append(names, fmt.Sprintf("tenant-%02d", i+1))
		shares = append(shares, 1/float64(i+1))
		sum += shares[i]
	}
	for i := range shares {
		shares[i] /= sum
	}
	return names, shares
}

// pick draws an index by its share of 1.
func pick(rng *rand.Rand, shares []float64) int {
	x := rng.Float64()
	for i, s := range shares {
		if x -= s; x < 0 {
			return i
		}
	}
	return len(shares) - 1
}

func drawDuration(rng *rand.Rand) time.Duration {
	d := time.Duration(float64(medianDuration) * math.Exp(sigmaDuration*rng.NormFloat64()))
	return min(max(d, time.Second), longest)
}

// meanSeconds is the mean of what drawDuration draws, but for the cut at the ends,
// which takes about one part in a hundred.
func meanSeconds() float64 {
	return medianDuration.Seconds() * math.Exp(sigmaDuration*sigmaDuration/2)
}

func drawSize(rng *rand.Rand, most int) (gpus, milli int) {
	x := rng.Float64()
	for _, s := range sizes {
		if x -= s.share; x >= 0 {
			continue
		}
		switch {
		case s.milli == 0:
			return 0, leastFraction + rng.IntN(mostFraction-leastFraction+1)
		case s.milli < 1000:
			return 0, s.milli
		case s.milli <= 1000*most:
			return s.milli / 1000, 0
		}
		break
	}
	return 1, 0
}

// meanGPUs is the mean of what drawSize draws.
func meanGPUs(most int) float64 {
	sum := 0.0
	for _, s := range sizes {
		milli := s.milli
		switch {
		case milli == 0:
			milli = (leastFraction + mostFraction) / 2
		case milli > 1000*most:
			milli = 1000
		}
		sum += s.share * float64(milli) / 1000
	}
	return sum
}

// peakMemory is the most memory that this process has had so far, in MiB, and
// how that is known.
func peakMemory() (mib float64, how string) {
	if b, err := os.ReadFile("/proc/self/status"); err == nil {
		for line := range strings.Lines(string(b)) {
			fields := strings.Fields(line)
			if len(fields) == 3 && fields[0] == "VmHWM:" {
				if kib, err := strconv.ParseFloat(fields[1], 64); err == nil {
					return kib / 1024, "peak memory: VmHWM of /proc/self/status, the most that the whole process ever had resident"
				}
			}
		}
	}
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}}
	metrics.Read(sample)
	return float64(sample[0].Value.Uint64()) / (1 << 20), "peak memory: all that the Go runtime has mapped, which it rarely gives back"
}
