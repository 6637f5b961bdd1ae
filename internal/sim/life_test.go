package sim

import (
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/trace"
	"github.com/gpupool/gpupool/internal/work"
)

// TestLifeMarket: no request is lost or made up, no GPU is busy that is not held, and the
// same seed gives the same numbers.
func TestLifeMarket(t *testing.T) {
	x, err := trace.Market("", trace.MarketOptions{Models: 12, Length: 4 * time.Hour, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for _, k := range x.Tasks {
		want += len(k.Requests)
	}
	for _, c := range []struct {
		mode  work.PoolMode
		shape string
	}{{work.Static, "2x8xH100-80GB"}, {work.Dynamic, "4xH100-80GB"}} {
		s := Setup{Trace: x, Hosts: hosts(t, c.shape)}
		o, again := run(t, s, c.mode), run(t, s, c.mode)
		if o.Column != again.Column {
			t.Errorf("%s: the same seed gave other numbers", c.mode)
		}
		// Begun and left behind are all that came; nothing comes after a task's end.
		if o.Requests != want || o.Begun > want || o.Finished != len(x.Tasks) || o.Idle < 0 || o.Idle > 1 {
			t.Errorf("%s: %d requests in the trace, got %+v", c.mode, want, o.Column)
		}
		if parked := o.Moves > 0; parked != (c.mode == work.Dynamic) {
			t.Errorf("%s: %d moves", c.mode, o.Moves)
		}
	}
}

// TestLifeByHand: one request on a GPU of its own, loading for 10 s of 100.
func TestLifeByHand(t *testing.T) {
	x := task(0, 100, 1, 0)
	x.Class, x.Load, x.UsedMiB = trace.Inference, 10*time.Second, 1
	x.Requests = []trace.Request{{At: 5 * time.Second, Takes: 20 * time.Second}}
	o := run(t, setup(t, "1xH100-80GB", x), work.Static)
	near(t, "wait", o.RequestMean, 5)
	near(t, "slowdown", o.RequestSlow, 1.25)
	near(t, "idle", o.Idle, 0.8)
	near(t, "within", o.Within10s, 1)
}
