package elastic

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

// start is any time but 0, which stands for never.
const start = work.Time(1_000_000 * time.Second)

// feed adds samples of 5 s and returns when the last ended.
func feed(w *Window, now work.Time, compute ...float64) work.Time {
	for _, c := range compute {
		now = now.Add(5 * time.Second)
		w.Add(now, 5*time.Second, c, 1000, 0.05)
	}
	return now
}

// TestQuantile compares with all samples kept and sorted. Neighbours that are alike are
// one span, so a quantile may be off by how much alike they are.
func TestQuantile(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var w Window
		var all []float64
		now := start
		for range 1 + rng.IntN(60) {
			c := rng.Float64()
			if rng.IntN(3) > 0 && len(all) > 0 { // runs of nearly the same
				c = min(all[len(all)-1]+rng.Float64()*alike/4, 1)
			}
			all = append(all, c)
			now = feed(&w, now, c)
		}
		sorted := slices.Sorted(slices.Values(all))
		for _, q := range []float64{0.05, 0.5, 0.95, 1} {
			got, took := w.Quantile(q, Horizon)
			if took != time.Duration(len(all))*5*time.Second {
				t.Fatalf("seed %d: %d samples of 5 s, and %s were measured", seed, len(all), took)
			}
			i := min(max(int(q*float64(len(all)))-1, 0), len(all)-1)
			low, high := sorted[max(i-1, 0)]-2*alike, sorted[min(i+1, len(all)-1)]+2*alike
			if got < low || got > high {
				t.Errorf("seed %d: quantile %g is %g, want about %g of %v", seed, q, got, sorted[i], sorted)
			}
		}
	}
}

func TestWindowForgets(t *testing.T) {
	var w Window
	now := feed(&w, start, slices.Repeat([]float64{1}, 200)...)
	feed(&w, now, slices.Repeat([]float64{0.2}, 121)...)
	if got, took := w.Quantile(1, Horizon); got > 0.21 || took != Horizon {
		t.Errorf("10 min and 5 s after it was busy the window says %g over %s", got, took)
	}
}

func TestJudge(t *testing.T) {
	m := MarksOf(work.PoolElastic{})
	minutes := func(n int, c float64) []float64 { return slices.Repeat([]float64{c}, 12*n) }
	for _, x := range []struct {
		what string
		was  Kind
		use  []float64
		want Kind
	}{
		{"nothing measured", Unknown, nil, Unknown},
		{"one idle sample", Unknown, []float64{0}, Idle},
		{"noise is no use", Unknown, []float64{0.8, 0.04}, Idle},
		{"not known ends an idle time", Idle, []float64{0, 0, -1}, Unknown},
		{"busy for a minute", Unknown, minutes(1, 0.9), Steady},
		{"light for ten minutes", Steady, minutes(10, 0.3), Light},
		{"light, with a peak above the low mark", Light, slices.Concat(minutes(9, 0.3), minutes(1, 0.65)), Light},
		{"the same peak, not light before", Steady, slices.Concat(minutes(9, 0.3), minutes(1, 0.65)), Steady},
		{"light no more", Light, slices.Concat(minutes(8, 0.3), minutes(2, 0.8)), Steady},
		{"hot", Steady, minutes(10, 0.95), Hot},
		{"hot, falling a little", Hot, slices.Concat(minutes(4, 0.95), minutes(6, 0.8)), Hot},
		{"hot no more", Hot, slices.Concat(minutes(4, 0.95), minutes(6, 0.65)), Steady},
	} {
		var w Window
		now := feed(&w, start, x.use...)
		if got := m.Judge(&w, now, Use{Kind: x.was, Since: start}); got.Kind != x.want {
			t.Errorf("%s: judged %q, want %q", x.what, got.Kind, x.want)
		}
	}
	var w Window
	now := feed(&w, start, 0.5, 0, 0)
	if got := m.Judge(&w, now, Use{}); got.Since != start.Add(5*time.Second) || !got.Loaded() {
		t.Errorf("idle since %d and loaded: %v, want since the end of the busy sample, and loaded", got.Since, got.Loaded())
	}
}

// TestSkiRental: whoever parks after the idle time that it costs loses at most twice what
// someone would who knew how long the task will idle.
func TestSkiRental(t *testing.T) {
	p := ParkPrice(20_000)
	for idle := time.Duration(0); idle < 10*time.Minute; idle += 500 * time.Millisecond {
		knew := min(idle, p.Total()) // leave it idle, or park it at once
		waited := idle
		for at := time.Duration(0); at <= idle; at += 10 * time.Millisecond {
			if WorthParking(at, p) {
				waited = at + p.Total()
				break
			}
		}
		if waited > 2*knew+20*time.Millisecond {
			t.Fatalf("idle for %s costs %s, and %s who knew", idle, waited, knew)
		}
	}
}
