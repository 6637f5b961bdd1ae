// Package elastic judges how the GPUs of running tasks are used, and what it is worth
// to do something about it: what idles, what is light, what needs more; what a move
// costs and when that is less than what it gains; when a pool moves so much that it
// should stop.
//
// It is plain state and pure functions. A window costs one small ring a task, each
// judgement a walk over that ring; nothing here grows with the cluster.
package elastic

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

// Horizon is how far back a window looks.
const Horizon = 10 * time.Minute

// spans is how many different uses a window keeps apart: a sample every 5 s for the
// whole horizon would be 120, and neighbours that are alike become one.
const spans = 64

// span is a time in which the use was the same, or nearly.
type span struct {
	took    time.Duration
	compute float64
}

// Window is what was measured of a task lately. The zero Window has measured nothing.
type Window struct {
	ring   [spans]span
	n      int       // spans ever begun
	at     work.Time // end of the last one
	known  time.Duration
	memMiB int64     // at the end; negative = not known
	idle   work.Time // since when its use is none; 0 = it is not
	busy   float64   // seconds of compute since the last Drain
	took   time.Duration
	blind  bool // the last sample did not know
}

// alike is the difference of use below which two spans are one.
const alike = 0.02

// Add takes the mean use over a time that ends at now. A negative use is not known: it
// ends an idle time, as nobody can say that it lasted. Use below idle is none.
func (w *Window) Add(now work.Time, took time.Duration, compute float64, memMiB int64, idle float64) {
	took = min(max(took, 0), now.Sub(w.at))
	w.at, w.memMiB, w.blind = now, memMiB, compute < 0
	switch {
	case compute < 0:
		w.idle = 0
		return
	case compute >= idle:
		w.idle = 0
	case w.idle == 0:
		w.idle = now - work.Time(took)
	}
	w.known += took
	w.took += took
	w.busy += min(compute, 1) * took.Seconds()
	if last := &w.ring[(w.n+spans-1)%spans]; w.n > 0 && compute-last.compute < alike && last.compute-compute < alike && last.took+took < Horizon/8 {
		last.compute = (last.compute*last.took.Seconds() + compute*took.Seconds()) / max((last.took+took).Seconds(), 1e-9)
		last.took += took
		return
	}
	w.ring[w.n%spans] = span{took, compute}
	w.n++
}

// At is when it was last measured; 0 = never.
func (w *Window) At() work.Time { return w.at }

// IdleSince is since when its use is none; 0 = it is not, or that is not known.
func (w *Window) IdleSince() work.Time { return w.idle }

// MemMiB is the GPU memory in use; negative = not known.
func (w *Window) MemMiB() int64 { return w.memMiB }

// Quantile is the use that the task did not exceed for a share q of the last while, and
// how much of that while was measured.
func (w *Window) Quantile(q float64, over time.Duration) (float64, time.Duration) {
	var few [spans]span
	seen := few[:0]
	var sum time.Duration
	for i := w.n - 1; i >= 0 && i > w.n-1-spans && sum < over; i-- {
		s := w.ring[i%spans]
		s.took = min(s.took, over-sum)
		sum += s.took
		seen = append(seen, s)
	}
	slices.SortFunc(seen, func(a, b span) int { return cmp.Compare(a.compute, b.compute) })
	left := time.Duration(q * float64(sum))
	for _, s := range seen {
		if left -= s.took; left <= 0 {
			return s.compute, sum
		}
	}
	if len(seen) == 0 {
		return 0, 0
	}
	return seen[len(seen)-1].compute, sum
}

// Drain returns the seconds of compute and the time measured since it was last called.
func (w *Window) Drain() (busy float64, took time.Duration) {
	busy, took = w.busy, w.took
	w.busy, w.took = 0, 0
	return busy, took
}
