// Package trace reads public workload traces, and one format of our own, into rows
// that the simulator replays.
//
// Our own format is a CSV file with a header of these columns, in any order; all
// but the first two may be left out:
//
//	submit_s        when it was submitted, seconds since any fixed moment
//	duration_s      how long it runs once it has started, seconds
//	gpus            whole GPUs (1 if fraction and gpu_memory_mib are empty too)
//	fraction        of one GPU, above 0 and below 1
//	gpu_memory_mib  GPU memory it needs, MiB
//	tenant          who pays
//	priority        high, normal or low
//	name            for people
//	utilisation     share of its GPUs that it keeps busy, 0 to 1; empty = not known
//	class           training, inference or interactive (training if empty)
//	pool            that it is submitted to; empty = the only one
//
// Market and Notebooks draw workloads that no public trace has: services of models
// with their calls, and notebooks with their cells. Utilise and Silos add to a trace
// what its data does not say.
//
// Reading costs a pass over the files and a sort of the tasks.
package trace

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Trace is a workload. Times count from the first submission.
type Trace struct {
	Name      string
	Source    string // where the data comes from
	Licence   string
	Synthetic string    // what was made up, in a sentence; "" = nothing
	Start     time.Time // of the first submission; zero when the data does not say
	Tasks     []Task    // by Submit
	Hosts     []Host    // the cluster it ran on, where the data says
	Skipped   []Skipped
}

// Task is one thing that ran.
type Task struct {
	Name         string
	Tenant       string
	Priority     string // high, normal or low
	Submit       time.Duration
	Duration     time.Duration
	GPUs         int      // whole GPUs
	Milli        int      // of one GPU, thousandths, when GPUs is 0
	GPUMemoryMiB int64    // of each GPU or of the part of one
	CPUMilli     int64    // thousandths of a core
	MemoryMiB    int64    // main memory
	Models       []string // GPU models it may run on; empty = any
	Utilisation  float64  // share of its GPUs kept busy, 0 to 1; negative = not known

	Class    string        // training, inference or interactive; "" = training
	Pool     string        // pool that it is submitted to; "" = the only one
	Load     time.Duration // from its start until it can serve or compute: a model's cold load
	UsedMiB  int64         // GPU memory in use while it runs; 0 = not known
	Grace    time.Duration // told to stop, it saves its work within that and goes on from there later; 0 = it does not
	Requests []Request     // of a service or a notebook, by At: it computes only while it serves one
	Phases   []Phase       // what it does over its life, again and again; empty = Utilisation all along
}

// Classes of tasks.
const (
	Training    = "training"
	Inference   = "inference"
	Interactive = "interactive"
)

// Request is work that comes to a running task from outside, such as a call of a
// model or a cell of a notebook.
type Request struct {
	At    time.Duration // since the trace's start
	Takes time.Duration // of the GPUs it holds, once it has begun
}

// Phase is what a task does for a while.
type Phase struct {
	For     time.Duration
	Compute float64 // mean share of its GPUs in use, 0 to 1
}

// Host is a machine of the cluster that the trace ran on.
type Host struct {
	Name      string
	GPUs      int
	Model     string
	CPUMilli  int64
	MemoryMiB int64
}

// Skipped counts rows that cannot be replayed.
type Skipped struct {
	Why   string
	Count int
}

func (s Skipped) String() string { return fmt.Sprintf("%d rows left out: %s", s.Count, s.Why) }

// Options say how to read. The zero value is fine.
type Options struct {
	Seed      uint64 // of what is drawn at random (itp+openb)
	OpenbPods string // pod list of an openb folder; default openb_pod_list_default.csv
}

// Error is a fault in a trace, with its place.
type Error struct {
	Path string
	Line int // 0 = the file as a whole
	Msg  string
}

func (e *Error) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s:%d: %s", e.Path, e.Line, e.Msg)
	}
	return fmt.Sprintf("%s: %s", e.Path, e.Msg)
}

func (t *Trace) skip(why string) {
	for i := range t.Skipped {
		if t.Skipped[i].Why == why {
			t.Skipped[i].Count++
			return
		}
	}
	t.Skipped = append(t.Skipped, Skipped{why, 1})
}

// settle sorts the tasks and lets time begin with the first.
func (t *Trace) settle(path string) (*Trace, error) {
	if len(t.Tasks) == 0 {
		return nil, &Error{Path: path, Msg: "it holds no task that can be replayed"}
	}
	slices.SortStableFunc(t.Tasks, func(a, b Task) int { return cmp.Compare(a.Submit, b.Submit) })
	first := t.Tasks[0].Submit
	if !t.Start.IsZero() {
		t.Start = t.Start.Add(first)
	}
	for i := range t.Tasks {
		x := &t.Tasks[i]
		x.Submit -= first
		for k := range x.Requests {
			x.Requests[k].At = max(0, x.Requests[k].At-first)
		}
	}
	return t, nil
}

// Until returns the tasks submitted before d, with their requests before d.
func (t *Trace) Until(d time.Duration) *Trace {
	out := *t
	n, _ := slices.BinarySearchFunc(t.Tasks, d, func(x Task, d time.Duration) int { return cmp.Compare(x.Submit, d) })
	out.Tasks = slices.Clone(t.Tasks[:n])
	for i := range out.Tasks {
		x := &out.Tasks[i]
		k, _ := slices.BinarySearchFunc(x.Requests, d, func(r Request, d time.Duration) int { return cmp.Compare(r.At, d) })
		x.Requests = x.Requests[:k:k]
	}
	return &out
}

// jitter is how far a copy that Scale makes may lie behind its original, so that
// copies do not all come in pairs.
const jitter = time.Hour

// Scale returns more or less of the same work: with load 0.5 each task stays with
// a chance of a half, with 2.5 each comes twice, and a third time with a chance of a
// half, copies up to an hour later than the original. A copy's requests come when the
// original's do: its users keep their hours. What is drawn depends on the seed alone.
func (t *Trace) Scale(load float64, seed uint64) *Trace {
	if load == 1 {
		return t
	}
	out := *t
	out.Tasks = nil
	rng := rand.New(rand.NewPCG(seed, 0x5ca1e))
	whole, part := math.Modf(load)
	for _, x := range t.Tasks {
		n := int(whole)
		if rng.Float64() < part {
			n++
		}
		for i := range n {
			c := x
			if i > 0 {
				c.Submit += time.Duration(rng.Int64N(int64(jitter)))
			}
			out.Tasks = append(out.Tasks, c)
		}
	}
	slices.SortStableFunc(out.Tasks, func(a, b Task) int { return cmp.Compare(a.Submit, b.Submit) })
	out.Synthetic = joined(t.Synthetic, fmt.Sprintf("load scaled by %g", load))
	return &out
}

// joined adds to what was made up.
func joined(before, more string) string {
	if before == "" {
		return more
	}
	return before + "; " + more
}
