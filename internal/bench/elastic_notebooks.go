package bench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/sim"
	"github.com/gpupool/gpupool/internal/trace"
	"github.com/gpupool/gpupool/internal/work"
)

// Of notebooks, and of the training beside them.
const (
	// A notebook is parked once it has idled for longer than people think between two cells, and
	// than most of their pauses: a wake is more than a tenth of most cells, so hardly more than
	// one cell in twenty may have to wait for one.
	notebookAfter  = 15 * time.Minute
	notebookIdle   = 0.10 // of all GPU time at most
	besideTimes    = 2    // training has so many times the GPUs of the notebooks, apart
	besideShortest = 10 * time.Minute
	besideLongest  = 24 * time.Hour
	besideLoad     = 30 * time.Second
	besideSaves    = 10 * time.Minute // between two checkpoints, which cost nothing; told to leave, it ends in a second
	besideMiB      = 20 << 10
	besideFor      = 28 * 24 * time.Hour // of the trace, from the week on with most submissions
)

// shared is notebooks, and training that never ends in their time.
type shared struct {
	books, all  *trace.Trace
	end         time.Duration // of the last notebook
	apart, left int           // GPUs of notebooks and of training, apart
	runs        int
}

// notebooks compares notebooks and training on GPUs of their own with one pool of
// notebooks whose idle GPUs are lent to training.
func (o *ElasticOptions) notebooks(ctx context.Context) (*ElasticScenario, error) {
	w, err := o.newShared(besideTimes)
	if err != nil {
		return nil, err
	}
	static, pooled, err := w.fewest(ctx, notebookIdle)
	if err != nil {
		return nil, err
	}
	s := &ElasticScenario{Synthetic: w.all.Synthetic, Tasks: len(w.books.Tasks), GPUsStatic: static.GPUs, GPUsPooled: pooled.GPUs, Runs: w.runs,
		Bound: int(math.Ceil((static.WorkHours + taken(w.books)) / w.end.Hours())), BoundIs: "GPUs on which cells and training, each done once and without a pause, fill all the time"}
	s.of(static, pooled)
	s.requests(static, pooled)
	s.IdleStatic, s.IdlePooled = new(static.IdleAll), new(pooled.IdleAll)
	s.IdleWaiting, s.UnusedWaiting = nil, nil // training always waits: it would be the same
	s.WaitP99S = new(pooled.RequestP99)
	s.MovesPerTask = ratio(float64(pooled.Moves), float64(len(w.books.Tasks)))
	s.Beside = &ElasticBeside{GPUs: w.left, HoursApart: static.WorkHours, Hours: pooled.WorkHours, Preemptions: pooled.Preemptions}
	s.notes = append(s.notes, fmt.Sprintf("training beside them: tasks of one GPU, more than there is time for, which leave when they are told to; apart it has %d GPUs and does %.0f GPU hours in %.0f h, pooled it is only a guest and does %.0f, told to leave %d times; each time it starts it loads for %s and reads %d GiB at 1 GiB/s, and it loses what it did since its last checkpoint, one every %s",
		w.left, static.WorkHours, w.end.Hours(), pooled.WorkHours, pooled.Preemptions, besideLoad, besideMiB>>10, work.FormatDuration(besideSaves)))
	less, err := o.newShared(1)
	if err != nil {
		return nil, err
	}
	if static, pooled, err = less.fewest(ctx, 1); err != nil {
		return nil, err
	}
	s.Runs += less.runs
	s.notes = append(s.notes, fmt.Sprintf("how idle the pool is depends on how much training fills it, which is assumed to have %d times the GPUs of the notebooks: those that are kept awake idle for as many hours in any pool. With as many GPUs of training as of notebooks it is %d GPUs apart and %d pooled, %.1f %% of them idle, slowdown at p95 %.2f",
		besideTimes, static.GPUs, pooled.GPUs, 100*pooled.IdleAll, pooled.RequestSlow))
	return s, w.alone(ctx, s)
}

// fewest seeks the fewest GPUs on which notebooks are served well, training does as much as
// apart, and so much is idle at most.
func (w *shared) fewest(ctx context.Context, idle float64) (static, pooled *sim.Outcome, err error) {
	if static, err = w.run(ctx, w.apart, w.left); err != nil {
		return nil, nil, err
	}
	low, high := int(math.Ceil(static.WorkHours/w.end.Hours())), w.apart+w.left
	if pooled, err = w.run(ctx, high, 0); err != nil {
		return nil, nil, err
	}
	for low < high {
		mid := (low + high) / 2
		x, err := w.run(ctx, mid, 0)
		switch {
		case err != nil:
			return nil, nil, err
		case x.Within10s >= 1-mostLate && x.RequestSlow <= mostSlow && x.IdleAll <= idle && x.WorkHours >= static.WorkHours:
			high, pooled = mid, x
		default:
			low = mid + 1
		}
	}
	return static, pooled, nil
}

// alone notes how few GPUs the notebooks need by themselves.
func (w *shared) alone(ctx context.Context, s *ElasticScenario) error {
	prompt := func(o *sim.Outcome) bool { return o.Within10s >= 1-mostLate }
	soon, err := services(ctx, w.books, w.apart, parkAtOnce, prompt)
	if err != nil {
		return err
	}
	swift, err := services(ctx, w.books, w.apart, notebookAfter, func(o *sim.Outcome) bool { return prompt(o) && o.RequestSlow <= mostSlow })
	if err != nil {
		return err
	}
	s.Runs += soon.Runs + swift.Runs
	s.ShadowError = soon.ShadowError // a shadow looks at one pool, so it speaks of the notebooks alone
	s.notes = append(s.notes, fmt.Sprintf("notebooks alone need %d GPUs apart; %d if %.0f %% of cells shall begin within 10 s and each is parked after %s (slowdown at p95 %.2f, %.1f %% of the GPU time held idle), %d if the slowdown shall be at most %.2f (parked after %s; %.1f %% idle)",
		w.apart, soon.GPUsPooled, 100*(1-mostLate), parkAtOnce, *soon.SlowdownP95, 100**soon.IdlePooled, swift.GPUsPooled, mostSlow, notebookAfter, 100**swift.IdlePooled))
	return nil
}

// parkAtOnce is after how long notebooks are parked where only promptness counts.
const parkAtOnce = 10 * time.Second

func (o *ElasticOptions) newShared(times int) (*shared, error) {
	books, err := trace.Notebooks(trace.NotebookOptions{Users: o.Users, Seed: o.Seed})
	if err != nil {
		return nil, err
	}
	w := &shared{books: books, apart: atOnce(books)}
	w.left = times * w.apart
	all := *books
	all.Tasks = slices.Clone(books.Tasks)
	for i := range all.Tasks {
		x := &all.Tasks[i]
		x.Pool = poolOfBooks
		w.end = max(w.end, x.Submit+x.Duration)
	}
	fill, made, err := o.backlog(float64(w.apart+w.left) * w.end.Hours())
	if err != nil {
		return nil, err
	}
	all.Tasks = append(fill, all.Tasks...)
	all.Synthetic += "; " + made
	w.all = &all
	return w, nil
}

// The pools: notebooks' has all hosts when pooled, and lends.
const (
	poolOfBooks = "notebooks"
	poolBeside  = "training"
)

// backlog is so many GPU hours of training tasks of one GPU, all there from the beginning.
func (o *ElasticOptions) backlog(hours float64) (out []trace.Task, made string, err error) {
	add := func(tenant string, runs time.Duration) bool {
		if runs < besideShortest || runs > besideLongest {
			return true
		}
		out = append(out, trace.Task{Tenant: tenant, Priority: "normal", Duration: runs, GPUs: 1, Utilisation: -1, Pool: poolBeside,
			Load: besideLoad, UsedMiB: besideMiB, Phases: []trace.Phase{{For: time.Hour, Compute: 1}}})
		hours -= runs.Hours()
		return hours > 0
	}
	if o.has("itp") {
		t, err := trace.Read(filepath.Join(o.Trace, "itp"), trace.Options{Seed: o.Seed})
		if err != nil {
			return nil, "", err
		}
		from := busiest(t)
		for _, x := range windowOf(t, from, from+besideFor).Tasks {
			if x.GPUs == 1 && !add(x.Tenant, x.Duration) {
				return out, "training of one GPU and 10 min to 24 h from ITP, which is taken to compute whenever it has loaded", nil
			}
		}
	}
	rng := rand.New(rand.NewPCG(o.Seed, 0xf111))
	for add("training", time.Duration(math.Exp(rng.NormFloat64())*float64(2*time.Hour))) {
	}
	return out, "training of one GPU made up, lognormal with a median of 2 h and σ 1, as far as the trace has not enough", nil
}

// run replays both until the last notebook ends: training on GPUs of its own, or with none
// as a guest of the notebooks.
func (w *shared) run(ctx context.Context, books, training int) (*sim.Outcome, error) {
	w.runs++
	hosts, err := namedHosts("n", books)
	if err != nil {
		return nil, err
	}
	mode := work.Dynamic
	mine := work.Pool{Name: poolOfBooks, Hosts: []string{"n-*"}, Elastic: parkSoon(notebookAfter)}
	other := work.Pool{Name: poolBeside, Hosts: []string{"t-*"}}
	if training > 0 {
		own, err := namedHosts("t", training)
		if err != nil {
			return nil, err
		}
		hosts, mode = append(hosts, own...), work.Static
	} else {
		other.AskAt, other.BorrowFrom = 1, []string{poolOfBooks}
	}
	return sim.Run(ctx, sim.Setup{Trace: w.all, Hosts: hosts, Pools: []work.Pool{mine, other}, Until: w.end, Saves: besideSaves}, mode)
}

// namedHosts are hosts whose names begin with a word, so that a pool can have them.
func namedHosts(name string, gpus int) ([]gpu.HostInfo, error) {
	hosts, err := elasticHosts(gpus)
	for i := range hosts {
		hosts[i].Name = fmt.Sprintf("%s-%04d", name, i)
		for g := range hosts[i].GPUs {
			hosts[i].GPUs[g].ID = fmt.Sprintf("%s-%04d-%d", name, i, g)
		}
	}
	return hosts, err
}

// taken is the GPU hours that all requests of a trace take.
func taken(t *trace.Trace) float64 {
	sum := time.Duration(0)
	for i := range t.Tasks {
		for _, r := range t.Tasks[i].Requests {
			sum += r.Takes
		}
	}
	return sum.Hours()
}
