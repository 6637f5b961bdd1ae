// Package forecast says how long a task will run, from tasks that ended: quantiles of
// the run times of its own kind, or of the most special kind that has enough of them,
// or of how the tenant's estimates turned out. Asking and learning each look at a
// handful of kinds and at the few dozen buckets of a histogram, whatever the size of
// the cluster; memory is bounded by Config.Keep.
package forecast

import (
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

// Basis says what a forecast rests on.
type Basis string

// The rungs of the ladder, from the most special kind of task to the most general, and
// what stands in where they say nothing.
const (
	OwnModel      Basis = "task_model"       // the tenant's tasks of this name pattern, request and GPU model
	OwnTask       Basis = "task"             // the tenant's tasks of this name pattern and request
	OwnRequest    Basis = "tenant_request"   // the tenant's tasks with this request
	OwnTenant     Basis = "tenant"           // the tenant's tasks
	AnyoneRequest Basis = "everyone_request" // everyone's tasks with this request
	Anyone        Basis = "everyone"         // everyone's tasks
	Estimate      Basis = "estimate"         // the user's own estimate, corrected by how the tenant's turned out
	AsLongAgain   Basis = "as_long_again"    // nothing that is known ran this long
	None          Basis = "none"             // nothing is known
)

// Settings that measurement chose (see TestTraces). On Philly and ITP tasks rank best
// by what the last 8 and the last 128 or so say together. P90 by quantiles alone holds
// for 87 % of tasks (for 78 % of a short trace), as what runs long is learned late;
// with the margin it holds for 89 to 90 %.
const (
	defaultKeep   = 4096
	defaultLeast  = 2
	defaultMemory = 128
	mostMemory    = 256

	half = 5_000 // ten-thousandths
	aim  = 9_000 // of tasks shall end before their P90
	most = 9_990

	marginStep  = 1 << (part + octave - 10) // a thousandth of an octave
	leastMargin = -1 << (part + octave - 2)
	mostMargin  = 2 << (part + octave)
)

// Config is the settings. The zero value is the defaults.
type Config struct {
	Keep   int // kinds of tasks kept at most; 0 = 4096
	Least  int // samples that make a kind trusted; 0 = 2
	Memory int // samples that count, about, newer ones more; 0 = 128, at most 256
}

// Job is what is known of a task before it runs.
type Job struct {
	Tenant, Name string
	Request      work.Request
	Model        string        // of the GPUs; "" = not known
	Estimate     time.Duration // the user's own guess; 0 = none
	Max          time.Duration // the longest it may run; 0 = no limit
}

// Forecast is how long something runs, or still runs. Where nothing is known the times
// are the job's Max, or 0.
type Forecast struct {
	P50, P90 time.Duration
	// Typical is what to order tasks by, shortest first: midway, in logarithms,
	// between the last few tasks and the many before. It ranks tasks better than P50.
	Typical time.Duration
	Basis   Basis
	Samples int // ended tasks of the kind that it rests on
}

// Forecaster learns from tasks that ended. It is for one caller at a time.
type Forecaster struct {
	config     Config
	store      store
	margin     place // what P90 has been found to need beyond the quantile
	within, of int
}

// New makes a Forecaster that knows nothing.
func New(c Config) *Forecaster {
	if c.Keep <= 0 {
		c.Keep = defaultKeep
	}
	if c.Least <= 0 {
		c.Least = defaultLeast
	}
	if c.Memory <= 0 {
		c.Memory = defaultMemory
	}
	c.Memory = min(c.Memory, mostMemory)
	c.Keep = max(c.Keep, 4*rungs) // a quarter holds the kinds of one task
	return &Forecaster{config: c, store: store{keep: c.Keep, of: map[key]*entry{}}}
}

// Ask says how long a task will run. It changes nothing.
func (f *Forecaster) Ask(j Job) Forecast {
	x := f.ask(&j)
	if j.Max > 0 {
		x = x.atMost(j.Max)
	}
	return x
}

func (f *Forecaster) ask(j *Job) Forecast {
	k := kindsOf(j)
	e := f.history(&k)
	ratios := f.ratios(j, &k)
	switch {
	case f.estimated(j, e, ratios):
		return f.guess(j, ratios, 0)
	case e != nil:
		return f.tell(e, 0, 0)
	}
	limit := max(j.Max, 0)
	return Forecast{P50: limit, P90: limit, Typical: limit, Basis: None}
}

// Remaining says how long a task that has run for a while will still run, from those
// that ran at least as long. Where hardly any did, it is as long again, and one in ten
// runs for nine times as long again: that is the tail P(T > t) ~ 1/t of the life times
// of processes, which Harchol-Balter and Downey found (Exploiting Process Lifetime
// Distributions for Dynamic Load Balancing, 1997). Typical is P50.
func (f *Forecaster) Remaining(j Job, ran time.Duration) Forecast {
	if ran <= 0 {
		return f.Ask(j)
	}
	ran = min(ran, longest)
	x := f.remaining(&j, ran)
	x.P50, x.P90 = max(x.P50-ran, 0), max(x.P90-ran, 0)
	x.Typical = x.P50
	if j.Max > 0 {
		x = x.atMost(max(j.Max-ran, 0))
	}
	return x
}

// remaining is how long a task runs in all, given that it has run for a while.
func (f *Forecaster) remaining(j *Job, ran time.Duration) Forecast {
	k := kindsOf(j)
	ratios := f.ratios(j, &k)
	if f.estimated(j, f.history(&k), ratios) {
		switch {
		case f.outlives(ratios, placeOf(ratio(ran, j.Estimate))):
			return f.guess(j, ratios, ran)
		case !f.trusts(ratios) && j.Estimate > ran:
			return f.guess(j, nil, ran)
		}
	}
	p := placeOf(ran)
	for i := range rungs {
		if e := f.store.of[k.rung(i)]; e != nil && f.outlives(e, p) {
			return f.tell(e, e.past.below(p), p)
		}
	}
	if j.Estimate > ran {
		return f.guess(j, nil, ran)
	}
	return Forecast{P50: 2 * ran, P90: 10 * ran, Basis: AsLongAgain}
}

// Learn tells that a task ended by itself after it ran for some time, and what Ask had
// said of it when it was submitted. What was cut short is not to be learned.
func (f *Forecaster) Learn(j Job, said Forecast, ran time.Duration) {
	f.calibrate(said, ran)
	k := kindsOf(&j)
	p := placeOf(ran)
	if j.Estimate > 0 {
		f.learnRatio(&j, &k, p)
	}
	last := key{}
	for i := range rungs {
		if at := k.rung(i); at != last {
			f.store.use(at).learn(p, f.config.Memory)
			last = at
		}
	}
}

// learnRatio counts how an estimate turned out.
func (f *Forecaster) learnRatio(j *Job, k *kinds, p place) {
	r, e := f.store.use(k.ratios()), f.history(k)
	guess := p - placeOf(j.Estimate)
	if r.samples > 0 {
		guess = p - placeOf(scaled(r.typical().duration(), j.Estimate))
	}
	r.learn(placeOf(ratio(p.duration(), j.Estimate)), f.config.Memory)
	if e != nil {
		r.compare(guess, p-e.typical())
	}
}

// calibrate moves the margin so that in the long run one task in ten ends after its
// P90, whatever the run times do: adaptive conformal inference (Gibbs and Candès,
// 2021). The margin is a factor on the run time and not the level of the quantile,
// since a level cannot go beyond the longest that has been seen.
func (f *Forecaster) calibrate(said Forecast, ran time.Duration) {
	if said.Basis == None || said.Basis == "" {
		return
	}
	f.of++
	if ran <= said.P90 {
		f.within++
		f.margin = max(f.margin-marginStep, leastMargin)
	} else {
		f.margin = min(f.margin+9*marginStep, mostMargin)
	}
}

// Coverage counts the forecasts that were told, with a basis, of tasks that then ended
// by themselves, and how many of these ended within their P90.
func (f *Forecaster) Coverage() (within, of int) { return f.within, f.of }

// history is the most special kind with enough samples; if none has enough, the most
// general. It is nil if there is none.
func (f *Forecaster) history(k *kinds) *entry {
	var last *entry
	for i := range rungs {
		if e := f.store.of[k.rung(i)]; e != nil {
			if f.trusts(e) {
				return e
			}
			last = e
		}
	}
	return last
}

// trusts tells whether an entry has enough samples to go by.
func (f *Forecaster) trusts(e *entry) bool { return e != nil && e.samples >= f.config.Least }

// outlives tells whether enough of what is known ran longer.
func (f *Forecaster) outlives(e *entry, p place) bool {
	return e != nil && uint64(e.past.total-e.past.below(p)) >= uint64(f.config.Least)*unit
}

// tell is what an entry says of how long tasks run in all, those that weigh skip left
// out: those shorter than least.
func (f *Forecaster) tell(e *entry, skip uint32, least place) Forecast {
	samples := min(e.samples, f.config.Memory)
	p50 := max(e.past.quantile(skip, half), least)
	// Of n samples the share below the next one is known to one in n+1.
	p90 := e.past.quantile(skip, min(aim+aim/samples, most)) + f.margin
	return Forecast{
		P50:     p50.duration(),
		P90:     max(p50, p90).duration(),
		Typical: e.typical().duration(),
		Basis:   e.key.Basis,
		Samples: e.samples,
	}
}

func (x Forecast) atMost(limit time.Duration) Forecast {
	x.P50, x.P90, x.Typical = min(x.P50, limit), min(x.P90, limit), min(x.Typical, limit)
	return x
}
