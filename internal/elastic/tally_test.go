package elastic

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// TestBins: every number is in the bin that ends with it or close above it.
func TestBins(t *testing.T) {
	last := 0
	for n := range 200_000 {
		b := bin(n)
		if up := upTo(b); up < n || float64(up) > float64(n)*(1+1.0/fine)+1 {
			t.Fatalf("%d is in bin %d, which goes up to %d", n, b, up)
		}
		if b != last && b != last+1 {
			t.Fatalf("bin %d follows bin %d", b, last)
		}
		last = b
	}
	if last > 1000 {
		t.Errorf("%d bins", last)
	}
}

// TestInVain compares the chance of finding no GPU with throwing tasks onto hosts.
func TestInVain(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, x := range []struct{ gpus, host, need int }{{8, 8, 8}, {8, 8, 9}, {16, 8, 12}, {44, 8, 25}, {44, 8, 35}, {20, 8, 12}, {5, 1, 3}, {100, 16, 80}} {
		tally := Tally{NeedNow: 1000 * x.need}
		tally.Woken()
		got := tally.inVain(x.gpus, x.host)
		vain := 0
		const tries = 40_000
		for range tries {
			mine := rng.IntN(x.gpus) / x.host
			size, there := min(x.host, x.gpus-mine*x.host), 0
			for range x.need - 1 {
				if rng.IntN(x.gpus)/x.host == mine {
					there++
				}
			}
			if there >= size {
				vain++
			}
		}
		if want := float64(vain) / tries; math.Abs(got-want) > 0.01 {
			t.Errorf("%+v: got %.4f, thrown %.4f", x, got, want)
		}
	}
}

func TestEstimate(t *testing.T) {
	tally := Tally{}
	tally.Reset(begin)
	now := begin
	if e := tally.Estimate(now, 8); e != (Estimate{}) {
		t.Errorf("of nothing: %+v", e)
	}
	tally.HeldNow, tally.NeedNow, tally.BusyNow = 10_000, 3000, 2000
	for range 3 * 7 { // three weeks: the first is forgotten
		for range 24 {
			now = now.Add(time.Hour)
			tally.Pass(now)
			tally.Woken()
		}
	}
	e := tally.Estimate(now, 8)
	if e.Static != 10 || e.Mean != 3 || math.Abs(e.Idle-0.8) > 1e-9 || math.Abs(e.IdleIf-1.0/3) > 1e-9 || e.GPUs != 3 || e.Most != 3 {
		t.Errorf("got %+v", e)
	}
	if weeks := e.For.Hours() / 24 / 7; weeks < 1 || weeks > 2.1 || e.Wakes < 7*24 || e.Wakes > 15*24 {
		t.Errorf("%.1f weeks and %d wakes are kept", weeks, e.Wakes)
	}
	once := e
	if again := tally.Estimate(now, 8); again != once {
		t.Errorf("asking changes it: %+v, then %+v", once, again)
	}
}
