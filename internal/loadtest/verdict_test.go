package loadtest

import (
	"math"
	"testing"
	"time"
)

// TestEarlyStopping: the least numbers of queries that MLPerf's rules name for early stopping,
// with one slow query: 64 for the 90th percentile and 662 for the 99th.
func TestEarlyStopping(t *testing.T) {
	for _, x := range []struct {
		p    float64
		n    int
		slow int
		want bool
	}{{0.90, 64, 1, true}, {0.90, 63, 1, false}, {0.99, 662, 1, true}, {0.99, 661, 1, false}, {0.99, 459, 0, true}, {0.99, 458, 0, false},
		{0.99, 1_000_000, 9_767, true}, {0.99, 1_000_000, 9_800, false}, {0.9, 10, 10, false}} {
		if got := enough(x.slow, x.n, x.p); got != x.want {
			t.Errorf("%d slow of %d at %g: %v (chance %g)", x.slow, x.n, x.p, got, atMost(x.slow, x.n, x.p))
		}
	}
	if got := atMost(5, 10, 0.5); math.Abs(got-638.0/1024) > 1e-12 {
		t.Errorf("at most 5 heads of 10: %g", got)
	}
	if got := atMost(9, 10, 0.5); math.Abs(got-1023.0/1024) > 1e-12 {
		t.Errorf("at most 9 heads of 10: %g", got)
	}
}

func thousand() (out []time.Duration) {
	for i := range 1000 {
		out = append(out, time.Duration(i+1)*time.Millisecond)
	}
	return out
}

func TestLatency(t *testing.T) {
	l := latencyOf(thousand())
	if l.P50 != 501 || l.P90 != 901 || l.P99 != 991 || l.P999 != 1000 || l.Mean != 500.5 || l.Min != 1 || l.Max != 1000 {
		t.Errorf("got %+v", l)
	}
	if est, ok := early(thousand(), 0.9); !ok || est <= 900*time.Millisecond || est >= 950*time.Millisecond {
		t.Errorf("the early estimate of the 90th percentile of 1 to 1000 ms is %s, %v", est, ok)
	}
	if _, ok := early(thousand()[:50], 0.9); ok {
		t.Error("50 queries were enough")
	}
	if l := latencyOf(nil); l != (Latency{}) {
		t.Errorf("nothing came to %+v", l)
	}
}

func TestVerdict(t *testing.T) {
	good := Options{Scenario: Server, Duration: time.Minute, Queries: 500, Bound: 2 * time.Second}
	for _, x := range []struct {
		name   string
		change func(*Options, *Result)
		lasted time.Duration
		valid  bool
	}{
		{"good", func(*Options, *Result) {}, time.Minute, true},
		{"short", func(*Options, *Result) {}, 59 * time.Second, false},
		{"few", func(o *Options, _ *Result) { o.Queries = 2000 }, time.Minute, false},
		{"refused", func(_ *Options, r *Result) { r.Refused = 1 }, time.Minute, false},
		{"slow", func(o *Options, _ *Result) { o.Bound = 900 * time.Millisecond }, time.Minute, false},
		{"not sure", func(o *Options, _ *Result) { o.Bound = 992 * time.Millisecond }, time.Minute, false},
		{"offline is never too slow", func(o *Options, _ *Result) { o.Scenario, o.Bound = Offline, 1 }, time.Minute, true},
	} {
		o, r := good, Result{Queries: 1000}
		x.change(&o, &r)
		if r.judge(o, thousand(), x.lasted); r.Verdict.Valid != x.valid || r.Verdict.ByRule {
			t.Errorf("%s: %+v", x.name, r.Verdict)
		}
	}
	r := Result{Queries: 1000}
	if r.judge(good, thousand(), RulesDuration); !r.Verdict.ByRule {
		t.Errorf("ten minutes: %+v", r.Verdict)
	}
}
