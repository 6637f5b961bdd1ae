package loadtest

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Scenario is how queries come, as in MLPerf's LoadGen.
type Scenario string

// The scenarios. A query is one submission, or eight at once in multi-stream.
const (
	SingleStream Scenario = "single-stream" // one after the other; the metric is the 90th percentile
	MultiStream  Scenario = "multi-stream"  // eight at once, one after the other; the 99th percentile of the slowest of each eight
	Server       Scenario = "server"        // at random times, by a Poisson process; the rate at which the 99th percentile is within a bound
	Offline      Scenario = "offline"       // all at once; the throughput
)

// Scenarios lists them.
func Scenarios() []Scenario { return []Scenario{SingleStream, MultiStream, Server, Offline} }

// percentile is the one that counts in a scenario (mlperf.conf of github.com/mlcommons/inference).
func (s Scenario) percentile() float64 {
	switch s {
	case SingleStream, Offline:
		return 0.90
	case MultiStream, Server:
	}
	return 0.99
}

// What the rules of MLPerf Inference ask of a run (mlperf.conf, as above). With early stopping
// (loadgen/early_stopping.cc) fewer queries do, if they say enough.
const (
	RulesDuration       = 10 * time.Minute
	RulesOfflineSamples = 24_576
	samplesPerQuery     = 8
	confidence          = 0.99 // of early stopping
)

// Quantiles that are reported, as LoadGen does.
var quantiles = []float64{0.50, 0.90, 0.95, 0.97, 0.99, 0.999}

// Latency is how long queries took, in milliseconds.
type Latency struct {
	Mean float64 `json:"mean"`
	Min  float64 `json:"min"`
	Max  float64 `json:"max"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P95  float64 `json:"p95"`
	P97  float64 `json:"p97"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99_9"`
}

// latencyOf sorts the latencies and says what they come to. LoadGen takes the value at the
// place count × percentile of the sorted list, counted from 0.
func latencyOf(all []time.Duration) Latency {
	if len(all) == 0 {
		return Latency{}
	}
	slices.Sort(all)
	sum := time.Duration(0)
	for _, d := range all {
		sum += d
	}
	q := make([]float64, len(quantiles))
	for i, p := range quantiles {
		q[i] = millis(at(all, p))
	}
	return Latency{Mean: millis(sum) / float64(len(all)), Min: millis(all[0]), Max: millis(all[len(all)-1]), P50: q[0], P90: q[1], P95: q[2], P97: q[3], P99: q[4], P999: q[5]}
}

// at is a percentile of sorted latencies.
func at(sorted []time.Duration, p float64) time.Duration {
	return sorted[min(int(float64(len(sorted))*p), len(sorted)-1)]
}

func millis(d time.Duration) float64 { return float64(d) / 1e6 }

// atMost is the chance that of n queries at most t are slower than the bound, if each is so
// with chance 1-p: a sum of binomial terms, from the largest down, in logarithms.
func atMost(t, n int, p float64) float64 {
	if t >= n {
		return 1
	}
	q := 1 - p
	lg := func(x int) float64 { v, _ := math.Lgamma(float64(x) + 1); return v }
	first := t
	if mode := int(float64(n+1) * q); mode < t { // the largest term of those that are summed
		first = mode
	}
	term := func(k int) float64 {
		return math.Exp(lg(n) - lg(k) - lg(n-k) + float64(k)*math.Log(q) + float64(n-k)*math.Log(p))
	}
	sum := 0.0
	for k, x := first, term(first); k >= 0; k-- {
		sum += x
		if x < 1e-18*sum {
			break
		}
		x *= float64(k) / float64(n-k+1) * p / q
	}
	for k, x := first+1, term(first+1); k <= t; k++ {
		sum += x
		if x < 1e-18*sum {
			break
		}
		x *= float64(n-k) / float64(k+1) * q / p
	}
	return min(sum, 1)
}

// enough reports whether n queries of which t were slower than a bound show, with the confidence
// that LoadGen asks for, that the percentile p is within it.
func enough(t, n int, p float64) bool { return n > t && atMost(t, n, p) < 1-confidence }

// early is LoadGen's estimate of a percentile after an early stop: the largest number of slow
// queries is left out that still shows it. It reports false where there are too few.
func early(sorted []time.Duration, p float64) (time.Duration, bool) {
	n := len(sorted)
	if !enough(1, n, p) {
		return 0, false
	}
	lo, hi := 1, n // enough at lo, not at hi
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; enough(mid, n, p) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return sorted[n-lo], true
}

// Verdict is whether a run counts, and why not.
type Verdict struct {
	Valid  bool     `json:"valid"`
	Why    []string `json:"why,omitempty"`
	ByRule bool     `json:"by_the_rules"` // it was also as long as MLPerf's rules ask
}

// judge holds a run against its settings, as LoadGen does: long enough, queries enough, an early
// stop that says enough, and, in the server scenario, the percentile within the bound.
func (r *Result) judge(o Options, sorted []time.Duration, lasted time.Duration) {
	v := &r.Verdict
	no := func(format string, args ...any) { v.Why = append(v.Why, fmt.Sprintf(format, args...)) }
	if lasted < o.Duration {
		no("it lasted %.1f s, and %s was asked for: give more queries with --queries, or a shorter --duration", lasted.Seconds(), o.Duration)
	}
	if r.Queries < o.Queries {
		no("%d queries were issued, and %d were asked for", r.Queries, o.Queries)
	}
	if n := r.Failed + r.Refused; n > 0 {
		no("%d submissions were not acknowledged", n)
	}
	p := o.Scenario.percentile()
	switch o.Scenario {
	case SingleStream, MultiStream:
		if est, ok := early(sorted, p); ok {
			r.EstimateMS = millis(est)
		} else {
			no("%d queries are too few to say anything about the %gth percentile", len(sorted), 100*p)
		}
	case Server:
		late, _ := slices.BinarySearch(sorted, o.Bound+1)
		r.Late = len(sorted) - late
		if len(sorted) > 0 && at(sorted, p) > o.Bound {
			no("the %gth percentile is %.1f ms, and the bound is %s: ask for less with --qps", 100*p, millis(at(sorted, p)), o.Bound)
		}
		if !enough(r.Late, len(sorted), p) {
			no("%d of %d queries were slower than %s: too many, or too few queries, to be sure of the %gth percentile", r.Late, len(sorted), o.Bound, 100*p)
		}
	case Offline:
	}
	v.Valid = len(v.Why) == 0
	v.ByRule = v.Valid && lasted >= RulesDuration && (o.Scenario != Offline || r.Queries >= RulesOfflineSamples)
}
