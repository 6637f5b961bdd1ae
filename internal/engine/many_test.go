package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// waitingWorld is an engine with GPUs that are not there yet and so many tasks that wait
// for them: the step that brings the GPUs places them all.
func waitingWorld(tb testing.TB, tasks int) (*Engine, Inventory) {
	tb.Helper()
	e := New(testConfig())
	step := func(ev Event) {
		if out := e.Step(1, ev); out.Err != nil {
			tb.Fatal(out.Err)
		}
	}
	step(SetPools{[]work.Pool{{Name: "p", Mode: work.Dynamic}}})
	for i := range 8 {
		step(SetTenant{work.Tenant{Name: fmt.Sprint("t", i)}})
	}
	inv := Inventory{Driver: "bench"}
	for h := range (tasks + 7) / 8 {
		info := gpu.HostInfo{Name: fmt.Sprint("h", h), CPUMilli: 128_000, MemMiB: 1 << 20}
		for g := range 8 {
			info.GPUs = append(info.GPUs, gpu.GPUInfo{ID: fmt.Sprint(h, ".", g), Model: "H100-80GB"})
		}
		inv.Hosts = append(inv.Hosts, info)
	}
	for i := range tasks {
		step(Submit{work.Spec{Tenant: fmt.Sprint("t", i%8), Pool: "p", Priority: work.Priority(i / 8 % work.Priorities), Command: []string{"train"},
			Request: work.Request{GPUs: 1, CPUMilli: int64(1000 + i/24%3*1000)}}})
	}
	return e, inv
}

// placedBy counts what a Step places.
func placedBy(e *Engine, ev Event) int {
	n := 0
	for _, f := range e.Step(2, ev).Facts {
		if _, ok := f.(Placed); ok {
			n++
		}
	}
	return n
}

// TestTenThousand: where there is room for all who wait, one Step places them all.
func TestTenThousand(t *testing.T) {
	const tasks = 10_000
	e, inv := waitingWorld(t, tasks)
	began := time.Now()
	if n := placedBy(e, inv); n != tasks {
		t.Fatalf("%d of %d tasks were placed", n, tasks)
	}
	t.Logf("%d tasks were placed in %s", tasks, time.Since(began).Round(time.Millisecond))
	if err := e.Check(); err != nil {
		t.Error(err)
	}
}

// BenchmarkPass measures the Step that brings GPUs for all who wait.
func BenchmarkPass(b *testing.B) {
	for _, tasks := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprint("tasks=", tasks), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				e, inv := waitingWorld(b, tasks)
				b.StartTimer()
				if n := placedBy(e, inv); n != tasks {
					b.Fatalf("%d of %d tasks were placed", n, tasks)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(tasks), "µs/task")
		})
	}
}
