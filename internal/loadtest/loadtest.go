// Package loadtest submits tasks to a running pool in the four scenarios of MLPerf's LoadGen
// and says how long it took until each was durable, with LoadGen's percentiles and verdict.
//
// What is measured is the acknowledgement of POST /v1/tasks: the task is in the journal by
// then. Unless told otherwise tasks are held, so that nothing is placed or run, and cancelled
// once they are acknowledged. A run keeps eight bytes for each query.
package loadtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
)

// API is what is asked of a pool. *client.Client does it.
type API interface {
	Submit(ctx context.Context, spec apitype.TaskSpec, key string) (apitype.Task, error)
	Cancel(ctx context.Context, id uint64) (apitype.Task, error)
}

// Options say what is sent. Zero values mean the defaults.
type Options struct {
	Scenario Scenario      // default Offline
	Clients  int           // at once, in Offline; default 64
	Duration time.Duration // at the least; default 1 min
	Queries  int           // at the least; default 100
	QPS      float64       // of Server; default 100
	Bound    time.Duration // of the 99th percentile in Server; default 100 ms
	Seed     uint64        // of arrivals and shapes
	Shapes   string        // plain, training, inference or mixed; default plain: one GPU
	Site     Site          // that shapes are made to fit
	Tenant   string
	Pool     string
	Run      bool // tasks are placed and run (the command true), not held
	Keep     bool // they are not cancelled once acknowledged

	// Progress is told how far it is, of how much. May be nil.
	Progress func(done, total int)
}

func (o Options) withDefaults() Options {
	o.Scenario = cmp.Or(o.Scenario, Offline)
	o.Clients, o.Queries = cmp.Or(o.Clients, 64), cmp.Or(o.Queries, 100)
	o.Duration, o.Bound = cmp.Or(o.Duration, time.Minute), cmp.Or(o.Bound, 100*time.Millisecond)
	o.QPS, o.Shapes = cmp.Or(o.QPS, 100), cmp.Or(o.Shapes, "plain")
	return o
}

// Result is what came of a run.
type Result struct {
	Scenario Scenario `json:"scenario"`
	Clients  int      `json:"clients"` // at once, at the most; 0 = as many as it took
	Shapes   string   `json:"shapes"`
	Scaled   int      `json:"scaled"` // shapes that were cut to what the site has
	Held     bool     `json:"held"`
	Seed     uint64   `json:"seed"`
	Queries  int      `json:"queries"`
	Acked    int      `json:"acknowledged"` // submissions
	Refused  int      `json:"refused"`      // by the pool: it answered, and said no
	Failed   int      `json:"failed"`       // without an answer
	FirstNo  string   `json:"first_refusal,omitempty"`
	LastedS  float64  `json:"lasted_s"`
	PerS     float64  `json:"acknowledged_per_s"`
	Latency  Latency  `json:"latency_ms"` // of queries
	// EstimateMS is the percentile that counts, after early stopping; 0 = none.
	EstimateMS float64 `json:"estimate_ms,omitempty"`
	QPS        float64 `json:"qps,omitempty"`      // asked for, in Server
	BoundMS    float64 `json:"bound_ms,omitempty"` // in Server
	Late       int     `json:"late,omitempty"`     // queries over the bound
	Verdict    Verdict `json:"verdict"`
	Soak       *Soak   `json:"soak,omitempty"`
}

// maxOutstanding bounds the queries of Server that are not answered: with more it does not
// keep up, and this machine should not be taken down with it.
const maxOutstanding = 20_000

// load is a run that goes on.
type load struct {
	api   API
	o     Options
	specs []apitype.TaskSpec
	began time.Time

	mu    sync.Mutex
	rng   *rand.Rand
	r     Result
	times []time.Duration
}

// Run sends queries and returns what came of them. It returns an error when it is ended
// early, and when nothing at all was acknowledged.
func Run(ctx context.Context, api API, o Options) (*Result, error) {
	l, err := newLoad(api, o.withDefaults())
	if err != nil {
		return nil, err
	}
	l.began = time.Now()
	var lasted time.Duration
	switch l.o.Scenario {
	case SingleStream:
		lasted, err = l.stream(ctx, 1)
	case MultiStream:
		lasted, err = l.stream(ctx, samplesPerQuery)
	case Server:
		lasted, err = l.arrivals(ctx)
	case Offline:
		lasted, err = l.flood(ctx)
	}
	if err != nil {
		return nil, err
	}
	return l.result(lasted)
}

func newLoad(api API, o Options) (*load, error) {
	l := &load{api: api, o: o, rng: rand.New(rand.NewPCG(o.Seed, 1))}
	l.r = Result{Scenario: o.Scenario, Shapes: o.Shapes, Held: !o.Run, Seed: o.Seed}
	switch o.Scenario {
	case SingleStream:
		l.r.Clients = 1
	case MultiStream:
		l.r.Clients = samplesPerQuery
	case Offline:
		l.r.Clients = o.Clients
	case Server:
		l.r.QPS, l.r.BoundMS = o.QPS, millis(o.Bound)
	default:
		return nil, fmt.Errorf("scenario %q is not known: use one of %v", o.Scenario, Scenarios())
	}
	if o.Shapes == "plain" {
		l.specs = []apitype.TaskSpec{{Name: "loadtest", GPUs: "1"}}
	}
	for _, s := range Shapes {
		if s.Class == o.Shapes || o.Shapes == "mixed" {
			spec, scaled := s.spec(o.Site)
			l.specs = append(l.specs, spec)
			if scaled {
				l.r.Scaled++
			}
		}
	}
	if len(l.specs) == 0 {
		return nil, fmt.Errorf("shapes %q are not known: use plain, training, inference or mixed", o.Shapes)
	}
	for i := range l.specs {
		x := &l.specs[i]
		x.Tenant, x.Pool, x.Hold, x.Command = o.Tenant, o.Pool, !o.Run, []string{"true"}
	}
	return l, nil
}

// submit sends one submission and returns once it is acknowledged, or is not.
func (l *load) submit(ctx context.Context) (id uint64, ok bool) {
	l.mu.Lock()
	spec := l.specs[l.rng.IntN(len(l.specs))]
	l.mu.Unlock()
	t, err := l.api.Submit(ctx, spec, "")
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.r.Acked++
		return t.ID, true
	}
	if refusal, answered := errors.AsType[*client.Error](err); answered && refusal.Status != 0 {
		l.r.Refused++
	} else {
		l.r.Failed++
	}
	l.r.FirstNo = cmp.Or(l.r.FirstNo, err.Error())
	return 0, false
}

// took counts a query.
func (l *load) took(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.times = append(l.times, d)
}

// drop cancels what was acknowledged: the pool need not keep it.
func (l *load) drop(ctx context.Context, id uint64) {
	if l.o.Keep || l.o.Run || id == 0 {
		return
	}
	if _, err := l.api.Cancel(ctx, id); err != nil && ctx.Err() == nil {
		l.mu.Lock()
		l.r.Failed++
		l.r.FirstNo = cmp.Or(l.r.FirstNo, err.Error())
		l.mu.Unlock()
	}
}

// goesOn reports whether more must be sent after so many and so long, and tells the progress.
func (l *load) goesOn(n int, passed time.Duration) bool {
	if f := l.o.Progress; f != nil {
		const whole = 1000
		f(int(min(float64(passed)/float64(l.o.Duration), float64(n)/float64(l.o.Queries), 1)*whole), whole)
	}
	return n < l.o.Queries || passed < l.o.Duration
}

// stream sends queries of so many submissions, each when the one before was answered.
func (l *load) stream(ctx context.Context, samples int) (time.Duration, error) {
	var issued time.Duration
	for n := 0; l.goesOn(n, issued); n++ {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		start := time.Now()
		issued = start.Sub(l.began)
		ids := make([]uint64, samples)
		well := make([]bool, samples)
		var all sync.WaitGroup
		for i := range samples {
			all.Go(func() { ids[i], well[i] = l.submit(ctx) })
		}
		all.Wait()
		l.count(time.Since(start), well)
		for _, id := range ids {
			l.drop(ctx, id)
		}
	}
	return issued, nil
}

// count counts a query if all of it was acknowledged.
func (l *load) count(d time.Duration, well []bool) {
	l.mu.Lock()
	l.r.Queries++
	l.mu.Unlock()
	for _, ok := range well {
		if !ok {
			return
		}
	}
	l.took(d)
}

// arrivals sends queries at random times, whether earlier ones are answered or not. How long
// one takes counts from when it should have been sent.
func (l *load) arrivals(ctx context.Context) (time.Duration, error) {
	gap := rand.New(rand.NewPCG(l.o.Seed, 2))
	var all errgroup.Group
	all.SetLimit(maxOutstanding)
	due := time.Duration(0)
	for n := 0; l.goesOn(n, due); n++ {
		due += time.Duration(gap.ExpFloat64() / l.o.QPS * float64(time.Second))
		select {
		case <-time.After(due - time.Since(l.began)):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		at := l.began.Add(due)
		if !all.TryGo(func() error {
			id, ok := l.submit(ctx)
			l.count(time.Since(at), []bool{ok})
			l.drop(ctx, id)
			return nil
		}) {
			return 0, fmt.Errorf("%d submissions are not answered yet: the pool does not keep up with %g a second: ask for less with --qps", maxOutstanding, l.o.QPS)
		}
	}
	return due, all.Wait()
}

// flood sends as fast as so many clients can.
func (l *load) flood(ctx context.Context) (time.Duration, error) {
	var all errgroup.Group
	var mu sync.Mutex
	sent := 0
	for range l.o.Clients {
		all.Go(func() error {
			for {
				mu.Lock()
				more := l.goesOn(sent, time.Since(l.began))
				sent++
				mu.Unlock()
				if !more || ctx.Err() != nil {
					return ctx.Err()
				}
				start := time.Now()
				id, ok := l.submit(ctx)
				l.count(time.Since(start), []bool{ok})
				l.drop(ctx, id)
			}
		})
	}
	err := all.Wait()
	return time.Since(l.began), err
}

func (l *load) result(lasted time.Duration) (*Result, error) {
	if l.r.Acked == 0 {
		return nil, fmt.Errorf("nothing was acknowledged: %s", cmp.Or(l.r.FirstNo, "nothing was sent"))
	}
	r := &l.r
	r.LastedS = time.Since(l.began).Seconds()
	r.PerS = float64(r.Acked) / r.LastedS
	r.Latency = latencyOf(l.times)
	r.judge(l.o, l.times, lasted)
	return r, nil
}
