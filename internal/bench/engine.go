package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/placement"
	"github.com/gpupool/gpupool/internal/work"
)

// EngineOptions says what Engine measures. Zero values mean the defaults.
type EngineOptions struct {
	GPUs     []int                 // sizes of the cluster, in hosts of 8; nil = 1,000, 8,000, 10,000 and 100,000
	Progress func(done, total int) // told how many sizes are measured; may be nil
}

// EngineResult is what Engine measured.
type EngineResult struct {
	Experiment string       `json:"experiment"`
	Sizes      []EngineSize `json:"sizes"`
	Included   []string     `json:"included"`
	Excluded   []string     `json:"not_included"`
	Notes      []string     `json:"notes"`
	WallS      float64      `json:"wall_s"`
}

// EngineSize is the speed on a cluster of one size. Times are medians, rates those of
// the fastest stretch.
type EngineSize struct {
	GPUs             int     `json:"gpus"`
	Hosts            int     `json:"hosts"`
	DecisionsPerS    float64 `json:"decisions_per_s"`      // on one core
	EndsPerS         float64 `json:"ends_per_s"`           // ends of random tasks, on one core
	BytesPerGPU      float64 `json:"bytes_per_gpu"`        // of the placement state and index, when the cluster is about three quarters full
	ReclaimMS        float64 `json:"reclaim_ms"`           // who must yield for one task of 8 GPUs, every GPU taken
	ReclaimTasks     int     `json:"reclaim_tasks"`        // that would yield
	InfeasibleGangMS float64 `json:"infeasible_gang_ms"`   // that 10 members of 8 GPUs cannot fit, every GPU taken, and why
	StepsPerS        float64 `json:"engine_steps_per_s"`   // engine.Step, all of a task's life
	TasksPerS        float64 `json:"engine_tasks_per_s"`   // whole lives of tasks through engine.Step
	PlacedShare      float64 `json:"decisions_that_place"` // of the decisions, 0 to 1
}

// engineAsks is what tasks ask for, over and over: half parts, half whole GPUs, each
// with CPU and memory of the host.
var engineAsks = []work.Request{
	{Profile: "1g.10gb"}, {GPUs: 1}, {Profile: "2g.20gb"}, {GPUs: 2}, {Profile: "3g.40gb"}, {GPUs: 1}, {Profile: "1g.10gb"},
	{GPUs: 4}, {Milli: 500}, {GPUs: 1}, {Profile: "1g.20gb"}, {GPUs: 8},
}

// Engine measures how fast places are found on clusters of several sizes, on one
// core. Decisions are placement.Asked, Find and Take, ends are placement.Free.
func Engine(ctx context.Context, o EngineOptions) (*EngineResult, error) {
	began := time.Now()
	if o.GPUs == nil {
		o.GPUs = []int{1_000, 8_000, 10_000, 100_000}
	}
	out := &EngineResult{Experiment: "engine",
		Included: []string{
			"decisions: learning what is asked for, the search for a place for one task with CPU and memory of a host, the choice, and taking it, in memory; the cluster is three quarters full and stays so",
			"ends: what a random task held is taken back",
			"reclaim: the search for the tasks that must yield for one task of 8 GPUs and the check that it fits then, on hosts full of tasks of 1, 2, 4 and 8 GPUs",
			"infeasible gang: the search for places for 10 members of 8 GPUs each, and the sentence that says why there are none",
			"engine steps: submission, placement, answers of driver and runner, end and freeing through engine.Step, with all its facts",
		},
		Excluded: []string{
			"the journal, the API, drivers and runners, the start of a process, and the time in which tasks that yield end: do not compare a decision with another scheduler's time from submission to start",
		},
		Notes: []string{fmt.Sprintf("%s %s/%s, one goroutine on one core; rates are those of the fastest of many stretches, times medians of %d", runtime.Version(), runtime.GOOS, runtime.GOARCH, engineRepeats)},
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for i, n := range o.GPUs {
		if n < 80 || n%8 != 0 || n > maxEngineGPUs {
			return nil, &OptionError{fmt.Sprintf("%d GPUs: expected a multiple of 8, from 80 to %d", n, maxEngineGPUs)}
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if o.Progress != nil {
			o.Progress(i, len(o.GPUs))
		}
		s, err := engineSize(ctx, n)
		if err != nil {
			return nil, err
		}
		out.Sizes = append(out.Sizes, s)
	}
	if o.Progress != nil {
		o.Progress(len(o.GPUs), len(o.GPUs))
	}
	out.WallS = time.Since(began).Seconds()
	return out, nil
}

// maxEngineGPUs is more than anyone has, and fits into the memory of a small machine.
const maxEngineGPUs = 4_000_000

func engineSize(ctx context.Context, gpus int) (EngineSize, error) {
	out := EngineSize{GPUs: gpus, Hosts: gpus / 8}
	before := heap()
	w := newDecider(gpus)
	w.fill()
	out.BytesPerGPU = float64(heap()-before) / float64(gpus)
	out.DecisionsPerS, out.EndsPerS, out.PlacedShare = w.measure()
	runtime.KeepAlive(w)

	full := fullCluster(gpus)
	out.ReclaimMS, out.ReclaimTasks = full.reclaim()
	out.InfeasibleGangMS = full.infeasible()
	err := ctx.Err()
	if err == nil {
		out.StepsPerS, out.TasksPerS, err = stepRate(gpus)
	}
	return out, err
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// decider is a cluster on which tasks come and go.
type decider struct {
	c    *placement.Cluster
	rng  *rand.Rand
	held []heldPart
	next int
	used int // thousandths
	all  int
}

type heldPart struct {
	o    work.Owner
	part work.Part
}

const enginePool = "p"

func emptyCluster(gpus int) *placement.Cluster {
	c := placement.NewCluster(geometries("H100-80GB"))
	for h := range gpus / 8 {
		c.AddHost(engineHost(h), enginePool)
		c.SetUsable(h, true, false)
	}
	return c
}

// engineHost is a host of 8 H100s as they are sold: 112 cores and 2 TiB.
func engineHost(n int) gpu.HostInfo {
	info := gpu.HostInfo{Name: fmt.Sprint("h", n), Driver: "bench", CPUMilli: 112_000, MemMiB: 2 << 20}
	for g := range 8 {
		info.GPUs = append(info.GPUs, gpu.GPUInfo{ID: fmt.Sprint(n, ".", g), Model: "H100-80GB"})
	}
	return info
}

func geometries(models ...string) (out []*gpu.Geometry) {
	for _, m := range gpu.Builtin() {
		if slices.Contains(models, m.Key) {
			out = append(out, gpu.NewGeometry(m))
		}
	}
	return out
}

func newDecider(gpus int) *decider {
	return &decider{c: emptyCluster(gpus), rng: rand.New(rand.NewPCG(1, 1)), all: gpus * 1000}
}

// decide asks for one task and takes its place, if it has one.
func (d *decider) decide() bool {
	r := engineAsk(d.next)
	d.next++
	d.c.Asked(enginePool, r)
	parts := d.c.Find(placement.Query{Pool: enginePool, Tenant: "t", Request: r})
	if parts == nil {
		return false
	}
	o := work.Owner{Task: work.TaskID(d.next), Epoch: 1}
	d.c.Take(placement.Holder{Owner: o, Tenant: "t", Priority: work.Normal}, parts[0])
	d.held = append(d.held, heldPart{o, parts[0]})
	d.used += parts[0].Milli()
	return true
}

func engineAsk(n int) work.Request {
	r := engineAsks[n%len(engineAsks)]
	cores := int64(max(1, 8*r.GPUs))
	r.CPUMilli, r.MemMiB = cores*1000, cores*8<<10
	return r
}

// end ends a random task.
func (d *decider) end() {
	i := d.rng.IntN(len(d.held))
	x := d.held[i]
	d.held[i] = d.held[len(d.held)-1]
	d.held = d.held[:len(d.held)-1]
	d.c.Free(x.o, x.part)
	d.used -= x.part.Milli()
}

// fill lets tasks come and go until the cluster is about three quarters full and
// has aged: as much as it holds has ended again.
func (d *decider) fill() {
	for range 3 {
		for d.used < d.all*3/4 {
			d.decide()
		}
		for d.used > d.all*3/8 {
			d.end()
		}
	}
	for d.used < d.all*3/4 {
		d.decide()
	}
}

// measure times decisions and ends in turns, so that the cluster stays as full. Rates
// are those of the fastest stretch of a few thousand: on a machine that others use
// too, the slower ones measure the others.
func (d *decider) measure() (decisions, ends, placed float64) {
	const (
		least   = time.Second
		turn    = 16
		stretch = 256 // turns
	)
	var perS, endsPerS []float64
	n, took := 0, 0
	for began := time.Now(); time.Since(began) < least || len(perS) < 5; {
		var deciding, ending time.Duration
		ended := 0
		for range stretch {
			t0 := time.Now()
			for range turn {
				if d.decide() {
					took++
				}
			}
			t1 := time.Now()
			for ; d.used > d.all*3/4; ended++ {
				d.end()
			}
			deciding += t1.Sub(t0)
			ending += time.Since(t1)
		}
		n += stretch * turn
		perS = append(perS, stretch*turn/deciding.Seconds())
		endsPerS = append(endsPerS, float64(ended)/ending.Seconds())
	}
	return slices.Max(perS), slices.Max(endsPerS), float64(took) / float64(n)
}

func median(xs []float64) float64 {
	slices.Sort(xs)
	return xs[len(xs)/2]
}
