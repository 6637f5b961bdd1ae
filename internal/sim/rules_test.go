package sim

import (
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/queue"
	"github.com/gpupool/gpupool/internal/trace"
	"github.com/gpupool/gpupool/internal/work"
)

// TestRules: a small case that each order and each way past decides in its own way.
func TestRules(t *testing.T) {
	// Of two GPUs one is taken for 100 s and one for 5 s; a pair, a single of 10 s and one of 5 s wait.
	pair := []trace.Task{task(0, 100, 1, 0), task(0, 5, 1, 0), task(1, 20, 2, 0), task(2, 10, 1, 0), task(2, 5, 1, 0)}
	for _, x := range []struct {
		name  string
		rules queue.Rules
		told  bool
		waits float64 // of all tasks
	}{
		{"strict: the singles wait for the pair", queue.Rules{Order: queue.ByArrival, Past: queue.Never}, false, 99 + 118 + 118},
		{"backfill: they are known to end in time", queue.Rules{Order: queue.ByArrival}, true, 99 + 3 + 13},
		{"by length: the shorter of the singles first", queue.Rules{Order: queue.ByLength, Past: queue.Anyone}, true, 99 + 8 + 3},
		{"by share: whoever fits", queue.Rules{Order: queue.ByShare, Past: queue.Anyone}, false, 99 + 3 + 13},
	} {
		s := setup(t, "2xH100-80GB", pair...)
		s.Rules, s.Told = x.rules, x.told
		o := run(t, s, work.Dynamic)
		if o.Finished != 5 {
			t.Errorf("%s: %d of 5 finished", x.name, o.Finished)
		}
		near(t, x.name+": mean wait", o.WaitMean, x.waits/5)
	}
}

// TestPreempted: a task that is sent back to the line goes on waiting, and goes on where it had saved its work.
func TestPreempted(t *testing.T) {
	s := setup(t, "1xH100-80GB", task(0, 10800, 1, 0), task(7200, 600, 1, 0))
	s.Rules, s.Saves = queue.Rules{Order: queue.ByAttained, Past: queue.Anyone}, time.Second
	o := run(t, s, work.Dynamic)
	if o.Preemptions != 1 || o.Finished != 2 {
		t.Fatalf("got %+v", o.Column)
	}
	near(t, "longest wait", o.Waits[1], 600)
	near(t, "shortest wait", o.Waits[0], 0)
	near(t, "mean completion", o.JCTMean, (11400+600)/2.)
	near(t, "mean slowdown", o.SlowdownMean, (11400./10800+1)/2)
}

// TestCoverage: only what was said when a task came counts.
func TestCoverage(t *testing.T) {
	s := setup(t, "4xH100-80GB", task(0, 100, 1, 0), task(1, 200, 1, 0))
	if o := run(t, s, work.Dynamic); o.Said != 0 || o.Within != 0 {
		t.Errorf("nothing was known, and %d of %d were within", o.Within, o.Said)
	}
	s.Told = true
	if o := run(t, s, work.Dynamic); o.Said != 2 || o.Within != 2 {
		t.Errorf("told: %d of %d were within, want 2 of 2", o.Within, o.Said)
	}
}

func TestGPUSeconds(t *testing.T) {
	x := &trace.Trace{Name: "t", Tasks: []trace.Task{task(0, 10, 2, 0), task(5, 100, 0, 250), task(7, 1, 20, 0), {Priority: "low", Duration: time.Second}}}
	h := hosts(t, "2x8xH100-80GB")
	models, _ := modelsOf(h)
	x.Tasks[3].GPUMemoryMiB = models[0].MemoryMiB / 2
	near(t, "GPU seconds", GPUSeconds(x, h), 20+25+20+0.5)
}
