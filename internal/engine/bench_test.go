package engine

import (
	"fmt"
	"testing"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// benchWorld is an engine whose drivers and runners answer at once and well.
type benchWorld struct {
	e       *Engine
	now     work.Time
	next    int
	running []work.Owner
}

// mix is what tenants ask for, over and over.
var mix = []work.Request{
	{Profile: "1g.10gb"}, {Milli: 300}, {GPUs: 1}, {Milli: 143}, {GPUMemMiB: 15 << 10}, {Milli: 200, Isolation: work.IsolationShared},
	{GPUs: 2}, {Milli: 500}, {GPUs: 1, Members: 4}, {Milli: 143, Isolation: work.IsolationAny}, {GPUs: 1}, {Milli: 250, Isolation: work.IsolationShared},
}

// newBenchWorld makes hosts of 8 × H100 and fills that share of their GPUs.
func newBenchWorld(gpus int, share float64) *benchWorld {
	w := &benchWorld{e: New(testConfig()), now: 1}
	w.step(SetPools{[]work.Pool{{Name: "p", Mode: work.Dynamic}}})
	for i := range 8 {
		w.step(SetTenant{work.Tenant{Name: fmt.Sprint("t", i)}})
	}
	inv := Inventory{Driver: "bench"}
	for h := range gpus / 8 {
		info := gpu.HostInfo{Name: fmt.Sprint("h", h), CPUMilli: 128_000, MemMiB: 1 << 20}
		for g := range 8 {
			info.GPUs = append(info.GPUs, gpu.GPUInfo{ID: fmt.Sprint(h, ".", g), Model: "H100-80GB"})
		}
		inv.Hosts = append(inv.Hosts, info)
	}
	if rest := gpus % 8; rest > 0 {
		info := gpu.HostInfo{Name: "rest", CPUMilli: 128_000, MemMiB: 1 << 20}
		for g := range rest {
			info.GPUs = append(info.GPUs, gpu.GPUInfo{ID: fmt.Sprint("rest.", g), Model: "H100-80GB"})
		}
		inv.Hosts = append(inv.Hosts, info)
	}
	w.step(inv)
	for misses := 0; w.inUse() < share || share == 1 && misses < 100; { // to the last gap of a full cluster
		id, placed := w.submit(w.request())
		if misses++; placed {
			misses = 0
		} else {
			w.step(Cancel{id, "bench"})
		}
	}
	return w
}

func (w *benchWorld) inUse() float64 {
	used := 0
	for _, g := range w.e.GPUs() {
		if len(g.Held) > 0 {
			used++
		}
	}
	return float64(used) / float64(len(w.e.GPUs()))
}

func (w *benchWorld) request() work.Request {
	w.next++
	r := mix[w.next%len(mix)]
	r.CPUMilli, r.MemMiB = 1000, 4<<10
	return r
}

func (w *benchWorld) submission(r work.Request) Submit {
	return Submit{work.Spec{Tenant: fmt.Sprint("t", w.next%8), Pool: "p", Priority: work.Normal, Request: r, Command: []string{"train"}}}
}

func (w *benchWorld) submit(r work.Request) (id work.TaskID, placed bool) {
	out := w.e.Step(w.now, w.submission(r))
	id, placed = out.Task, len(out.Commands) > 0
	w.answer(out.Commands)
	return id, placed
}

func (w *benchWorld) step(ev Event) { w.answer(w.e.Step(w.now, ev).Commands) }

// answer answers commands until there are none.
func (w *benchWorld) answer(commands []Command) {
	due := append([]Command(nil), commands...)
	for len(due) > 0 {
		c := due[0]
		due = due[1:]
		var ev Event
		switch c := c.(type) {
		case CarveCmd:
			ev = CarveDone{c.Owner, c.GPUIDs}
		case StartCmd:
			w.running = append(w.running, c.Owner)
			ev = StartDone{c.Owner}
		case StopCmd:
			ev = ProcessExited{c.Owner, work.Exit{Code: 143}}
		case FreeCmd:
			ev = FreeDone{c.Owner}
		default:
			continue
		}
		due = append(due, w.e.Step(w.now, ev).Commands...)
	}
}

// BenchmarkStep measures one Step on clusters of three sizes. State stays as it
// is: what a batch of iterations changed is undone outside the clock.
//
//	submit  a submission that can only be put in line: every GPU is taken
//	place   a submission that is placed at once: half of the GPUs are taken
//	finish  the end of a task and then the end of freeing its slices, half of the GPUs taken: two Steps
//	next    the same on a full cluster where 1,000 wait, so that the freed slices are given out again
func BenchmarkStep(b *testing.B) {
	for _, gpus := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprint("submit/gpus=", gpus), func(b *testing.B) { benchSubmit(b, newBenchWorld(gpus, 1)) })
		b.Run(fmt.Sprint("place/gpus=", gpus), func(b *testing.B) { benchPlace(b, newBenchWorld(gpus, 0.5)) })
		b.Run(fmt.Sprint("finish/gpus=", gpus), func(b *testing.B) { benchFinish(b, newBenchWorld(gpus, 0.5), 0) })
		b.Run(fmt.Sprint("next/gpus=", gpus), func(b *testing.B) { benchFinish(b, newBenchWorld(gpus, 1), 1000) })
	}
}

func benchSubmit(b *testing.B, w *benchWorld) {
	const batch = 1000
	var waiting []work.TaskID
	b.ReportAllocs()
	for b.Loop() {
		out := w.e.Step(w.now, w.submission(w.request()))
		if len(out.Commands) > 0 {
			b.Fatal("the cluster is not full")
		}
		waiting = append(waiting, out.Task)
		if len(waiting) == batch {
			b.StopTimer()
			for _, id := range waiting {
				w.step(Cancel{id, "bench"})
			}
			waiting = waiting[:0]
			b.StartTimer()
		}
	}
}

func benchPlace(b *testing.B, w *benchWorld) {
	const batch = 16
	var placed []work.TaskID
	b.ReportAllocs()
	for b.Loop() {
		out := w.e.Step(w.now, w.submission(w.request()))
		if len(out.Commands) == 0 {
			b.Fatal("it was not placed")
		}
		placed = append(placed, out.Task)
		if len(placed) == batch {
			b.StopTimer()
			for _, id := range placed {
				w.step(Cancel{id, "bench"})
			}
			placed = placed[:0]
			b.StartTimer()
		}
	}
}

// benchFinish ends running tasks of one member, the oldest first.
func benchFinish(b *testing.B, w *benchWorld, waiting int) {
	const batch = 16
	for range waiting {
		w.submit(w.single())
	}
	var owners []work.Owner
	var due []Command
	b.ReportAllocs()
	for b.Loop() {
		if len(owners) == 0 {
			b.StopTimer()
			w.answer(due)
			due = due[:0]
			for len(owners) < batch {
				if o := w.running[0]; len(w.e.Task(o.Task).Lease().Parts) == 1 {
					owners = append(owners, o)
					w.submit(w.single())
				}
				w.running = w.running[1:]
			}
			b.StartTimer()
		}
		o := owners[0]
		owners = owners[1:]
		w.e.Step(w.now, ProcessExited{o, work.Exit{}})
		due = append(due, w.e.Step(w.now, FreeDone{o}).Commands...)
	}
}

func (w *benchWorld) single() work.Request {
	r := w.request()
	r.Members = 0
	return r
}
