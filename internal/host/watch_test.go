package host

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/journal/memory"
	"github.com/gpupool/gpupool/internal/work"
)

// listener writes down what it is told.
type listener struct {
	mu      sync.Mutex
	kinds   []string
	last    uint64
	gap     bool
	refused int
	unsaved int
	views   int
}

func (l *listener) Commit(c Commit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range c.Events {
		l.kinds = append(l.kinds, e.Fact.Kind())
		l.gap = l.gap || l.last != 0 && e.Seq != l.last+1
		l.last = e.Seq
	}
	if c.Unsaved != nil {
		l.unsaved++
	}
	for _, r := range c.Refused {
		if _, is := r.Event.(engine.Submit); is { // the first look at a driver may come before there is a pool
			l.refused++
		}
	}
}

func (l *listener) Published(*View) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.views++
}

func (l *listener) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.views
}

// A watcher is told every fact and every refusal, in order; a view follows within about a
// second of what it shows, and none is made while nothing changes.
func TestWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, heard := newWorld(t, "2xH100-80GB"), &listener{}
		w.cfg.Watch, w.cfg.ObserveEvery = heard, time.Hour
		l := w.start()
		for _, ev := range []engine.Event{engine.SetPools{Pools: []work.Pool{{Name: "p", Mode: work.Dynamic}}}, engine.SetTenant{Tenant: work.Tenant{Name: "a", LimitGPUs: 3}}} {
			if _, err := l.Do(t.Context(), ev); err != nil {
				t.Fatal(err)
			}
		}
		l.post(t.Context(), inventory("fake", must(w.driver.Observe(t.Context()))))
		id := l.submit(spec("1g.10gb", "1h"))
		if _, err := l.Do(t.Context(), engine.Submit{Spec: spec("9", "1h")}); err == nil {
			t.Error("nine GPUs of two were granted")
		}
		after(20 * time.Second) // the first cut of a GPU takes a while
		v := l.View()
		if len(v.GPUs) != 2 || len(v.Held) != 1 || v.Held[0].Owner.Task != id || v.GPUs[0].Held+v.GPUs[1].Held != 1 ||
			len(v.Tenants) != 1 || v.Tenants[0].HeldMilli == 0 || v.Tenants[0].LimitGPUs != 3 || len(v.Pools) != 1 || v.Models["H100-80GB"] == nil {
			t.Errorf("the view is %+v", v)
		}
		views := heard.count()
		after(time.Minute)
		if n := heard.count() - views; n != 0 {
			t.Errorf("%d views were made while nothing changed", n)
		}
		if l.View() != v {
			t.Error("a view was replaced that nothing had changed of")
		}
		if err := l.end(); err != nil {
			t.Fatal(err)
		}
		if heard.gap || heard.last != l.LastEvent() || heard.refused != 1 || !slices.Contains(heard.kinds, "part.carved") || !slices.Contains(heard.kinds, "member.started") {
			t.Errorf("it was told %v up to %d of %d, with a gap: %v; %d refusals", heard.kinds, heard.last, l.LastEvent(), heard.gap, heard.refused)
		}
	})
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err) // of the test's own making
	}
	return x
}

// BenchmarkView measures what the engine waits for when a view of 10,000 GPUs is made, half
// of them given out: once a second at most, and not for a scrape.
func BenchmarkView(b *testing.B) {
	h, err := Open(context.Background(), Config{Engine: engine.Config{Models: []*gpu.Geometry{h100()}}, Journal: memory.New(), Runner: newClockRunner()})
	if err != nil {
		b.Fatal(err)
	}
	inv := engine.Inventory{Driver: "fake"}
	for i := range 1250 {
		info := gpu.HostInfo{Name: fmt.Sprint("h", i), Driver: "fake", CPUMilli: 128_000, MemMiB: 1 << 20}
		for g := range 8 {
			info.GPUs = append(info.GPUs, gpu.GPUInfo{ID: fmt.Sprint(i, ".", g), Model: "H100-80GB"})
		}
		inv.Hosts = append(inv.Hosts, info)
	}
	evs := []engine.Event{engine.SetPools{Pools: []work.Pool{{Name: "p", Mode: work.Dynamic}}}, engine.SetTenant{Tenant: work.Tenant{Name: "a"}}, inv}
	for i := range 12_000 {
		evs = append(evs, engine.Submit{Spec: spec([]string{"1g.10gb", "2g.20gb", "1"}[i%3], "1h")})
	}
	if _, err := h.writer.Apply(context.Background(), 1, evs...); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		h.look()
	}
	b.ReportMetric(float64(len(h.View().Held)), "slices")
}

func h100() *gpu.Geometry {
	for _, m := range gpu.Builtin() {
		if m.Key == "H100-80GB" {
			return gpu.NewGeometry(m)
		}
	}
	return nil
}
