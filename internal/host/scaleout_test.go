package host

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/work"
)

// hook notes who asked, and hangs until it is let go or told to end.
type hook struct {
	asked chan string
	gate  chan struct{}
}

func (h *hook) Ask(ctx context.Context, pool string, _ int, gpus float64) error {
	if gpus <= 0 {
		return errors.New("asked for nothing")
	}
	h.asked <- pool
	select {
	case <-h.gate:
		return errors.New("no quota") // only logged
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestScaleOut: a hook that hangs holds up neither tasks nor the end, and is not
// called again before it is back.
func TestScaleOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "1xH100-80GB")
		h := &hook{asked: make(chan string, 10), gate: make(chan struct{})}
		w.cfg.ScaleOut = h
		l := w.start()
		l.setUp()
		pool := work.Pool{Name: "p", Mode: work.Dynamic, AskAt: 1, ScaleOutEvery: time.Minute}
		if _, err := l.Do(t.Context(), engine.SetPools{Pools: []work.Pool{pool}}); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			l.submit(spec("1", "1h"))
		}
		after(time.Second)
		if len(h.asked) != 1 {
			t.Fatalf("the hook was called %d times, want once for two too many that wait", len(h.asked))
		}
		after(2 * time.Minute)
		last := l.submit(spec("1", "1h")) // the cooldown is over, the first call is not
		after(time.Second)
		if len(h.asked) != 1 || l.state(last) != work.Queued {
			t.Errorf("while the first call hangs it was called %d times; the task is %s", len(h.asked), l.state(last))
		}
		h.gate <- struct{}{}
		after(2 * time.Minute)
		l.submit(spec("1", "1h"))
		after(time.Second)
		if len(h.asked) != 2 {
			t.Errorf("after the first call was back it was called %d times in all, want 2", len(h.asked))
		}
		if err := l.end(); err != nil { // the second call hangs still
			t.Error(err)
		}
	})
}

func TestArrayEnvironment(t *testing.T) {
	env := []string{"A=1", "GPUPOOL_ARRAY_INDEX=forged"}
	s := specOf(engine.StartCmd{Spec: &work.Spec{Env: env}, Array: 12, Index: 3})
	if n := len(s.Env); n != 4 || s.Env[2] != "GPUPOOL_ARRAY_ID=12" || s.Env[3] != "GPUPOOL_ARRAY_INDEX=3" {
		t.Errorf("a task of an array gets %q", s.Env)
	}
	if s := specOf(engine.StartCmd{Spec: &work.Spec{Env: env}}); len(s.Env) != 2 {
		t.Errorf("a task of no array gets %q", s.Env)
	}
}
