package elastic

import (
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

// Kind is how a task uses what it holds.
type Kind string

// The kinds of use.
const (
	Unknown Kind = ""       // not measured, or not for long enough
	Idle    Kind = "idle"   // no compute
	Light   Kind = "light"  // under the low mark, steadily
	Steady  Kind = "steady" //
	Hot     Kind = "hot"    // over the high mark, steadily
)

// Use is how a task uses what it holds, as judged.
type Use struct {
	Kind    Kind      `json:"kind,omitempty"`
	Since   work.Time `json:"since,omitempty"`
	Compute float64   `json:"compute,omitempty"`    // that it stayed under for 95 % of the window
	MemMiB  int64     `json:"memory_mib,omitempty"` // GPU memory it holds; 0 = none or not known
}

// Loaded reports whether an idle task has something on its GPU: it waits for work.
func (u Use) Loaded() bool { return u.Kind == Idle && u.MemMiB > 0 }

// Marks bound the kinds of use.
type Marks struct {
	Low, High, Spare, Idle float64
}

// MarksOf fills in the defaults of DESIGN.md.
func MarksOf(p work.PoolElastic) Marks {
	or := func(x, def float64) float64 {
		if x == 0 {
			return def
		}
		return x
	}
	return Marks{Low: or(p.Low, 0.6), High: or(p.High, 0.9), Spare: or(p.Spare, 0.7), Idle: or(p.IdleBelow, 0.05)}
}

// Times of a judgement: one sample must not decide anything.
const (
	idleLeast = 5 * time.Second
	sustained = 5 * time.Minute
)

// Judge says how a task uses what it holds. was is the last judgement: a task stays
// light until it passes the spare mark, and hot until it falls under it, so that one
// near a mark does not go back and forth.
func (m Marks) Judge(w *Window, now work.Time, was Use) Use {
	if w.At() == 0 || w.blind || w.At() < now-work.Time(time.Minute) {
		return Use{Kind: Unknown, Since: now}
	}
	if since := w.IdleSince(); since != 0 {
		if now.Sub(since) >= idleLeast {
			return Use{Kind: Idle, Since: since, MemMiB: max(w.MemMiB(), 0)}
		}
		if was.Kind == Idle {
			return Use{Kind: Steady, Since: since}
		}
		return was
	}
	p95, took := w.Quantile(0.95, Horizon)
	p50, _ := w.Quantile(0.5, sustained)
	u := Use{Kind: Steady, Since: now, Compute: p95, MemMiB: max(w.MemMiB(), 0)}
	switch {
	case took < sustained:
		if was.Kind == Light || was.Kind == Hot {
			u.Kind = was.Kind
		}
	case p95 <= m.Low, was.Kind == Light && p95 <= m.Spare:
		u.Kind = Light
	case p50 >= m.High, was.Kind == Hot && p50 >= m.Spare:
		u.Kind = Hot
	}
	if u.Kind == was.Kind {
		u.Since = was.Since
	}
	return u
}

// Changed reports whether a new judgement says something that the old one did not: another
// kind, or so much more or less that what follows from it would be different.
func (u Use) Changed(was Use) bool {
	const step = 0.1
	return u.Kind != was.Kind || u.Kind == Idle && u.Since != was.Since ||
		u.Kind == Light && (u.Compute > was.Compute+step || u.Compute < was.Compute-step)
}
