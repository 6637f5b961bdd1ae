package engine

import (
	"math"
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/forecast"
	"github.com/gpupool/gpupool/internal/placement"
	"github.com/gpupool/gpupool/internal/queue"
	"github.com/gpupool/gpupool/internal/work"
)

// Reservation is GPUs that are kept for a task at the head of the line.
type Reservation struct {
	Task    work.TaskID   `json:"task"`
	Made    work.Time     `json:"made"`
	At      work.Time     `json:"at"` // when they are expected to be free
	Parts   []work.Part   `json:"parts"`
	Victims []work.TaskID `json:"victims,omitempty"`
	Moving  bool          `json:"moving,omitempty"` // they have another place to go to
	on      bool          // the parts are withheld from others
}

const (
	// reviewEvery is how long a reservation stands before the soonest place is looked
	// for anew: tasks end sooner or later than expected.
	reviewEvery = 5 * time.Minute
	// never stands for a time that is not known.
	never = work.Time(math.MaxInt64)
)

// keep and lift put a reservation into force and out of it. Between Steps all are in
// force.
func (e *Engine) keepParts(r *Reservation) {
	for _, p := range r.Parts {
		e.cluster.Keep(p)
	}
	r.on = true
}

func (e *Engine) unkeepParts(r *Reservation) {
	if r.on {
		for _, p := range r.Parts {
			e.cluster.Unkeep(p)
		}
	}
	r.on = false
}

// lift puts all reservations of a pool out of force.
func (e *Engine) lift(p *pool) []*Reservation {
	for _, r := range p.kept {
		e.unkeepParts(r)
	}
	return slices.Clone(p.kept)
}

// restore puts back into force those whose task still waits. One whose GPUs are kept for
// another by now is given up, and then it returns true.
func (e *Engine) restore(p *pool, all []*Reservation) (gaveUp bool) {
	for _, r := range all {
		switch {
		case r.on || !slices.Contains(p.kept, r):
		case e.clash(r):
			e.emit(Reserved{Task: r.Task})
			gaveUp = true
		default:
			e.keepParts(r)
		}
	}
	return gaveUp
}

// clash reports whether some of what a reservation is for is kept for another.
func (e *Engine) clash(r *Reservation) bool {
	return slices.ContainsFunc(r.Parts, func(p work.Part) bool {
		return slices.ContainsFunc(p.Slices, func(s work.Slice) bool { return e.cluster.GPUs[s.GPU].Kept })
	})
}

// keepFor keeps GPUs for a task that has no place, if it is the first of those that
// could wait for ever without. One task of a pool is enough: with more, measured, too
// much stands idle. before is what was kept until now.
func (e *Engine) keepFor(p *pool, t *Task, before []*Reservation) {
	taken := slices.ContainsFunc(p.kept, func(r *Reservation) bool { return r.on && len(r.Victims) == 0 })
	i := slices.IndexFunc(before, func(r *Reservation) bool { return r.Task == t.ID })
	if i >= 0 && e.holds(before[i]) {
		if !taken || len(before[i].Victims) > 0 {
			e.keepParts(before[i])
		}
		return
	}
	if e.cfg.Rules.Past != queue.Reserve || taken || !e.large(p, t) {
		return
	}
	q := placement.Query{Pool: p.Name, Tenant: t.Spec.Tenant, Request: p.wants(t)}
	untouchable := e.untouchable(p, t)
	parts, at, ok := e.cluster.Soonest(q, e.now, holders{e})
	for _, g := range untouchable {
		e.cluster.Unkeep(e.onlyGPU(g))
	}
	if ok {
		if at >= never {
			at = 0
		}
		e.emit(Reserved{Task: t.ID, At: at, Parts: parts})
	}
}

// holds reports whether a reservation need not be made anew.
func (e *Engine) holds(r *Reservation) bool {
	if e.now >= r.Made.Add(reviewEvery) {
		return false
	}
	for _, p := range r.Parts {
		for _, s := range p.Slices {
			if e.cluster.GPUs[s.GPU].Kept || !e.cluster.Usable(s.GPU) {
				return false
			}
		}
	}
	return true
}

// large reports whether a task might never find room by itself, as smaller ones take
// what comes free.
func (e *Engine) large(p *pool, t *Task) bool {
	r := p.wants(t)
	return r.GPUs*r.Count() > 1 || r.CPUMilli > 0 || r.MemMiB > 0 || e.cluster.Cut(p.Name, r)
}

// giveUp drops the reservations whose tasks are not among the first any more.
func (e *Engine) giveUp(p *pool, before []*Reservation) {
	for _, r := range before {
		if !r.on && slices.Contains(p.kept, r) {
			e.emit(Reserved{Task: r.Task})
		}
	}
}

// holders tells placement when leases are expected to be free.
type holders struct{ e *Engine }

// Until is when a holder is expected to end.
func (h holders) Until(o work.Owner) work.Time {
	if l := h.e.leaseAt(o.Task, o.Epoch); l != nil {
		return h.e.endOf(l)
	}
	return h.e.now
}

// Part is what a holder holds.
func (h holders) Part(o work.Owner) *work.Part {
	if _, p := h.e.part(o); p != nil {
		return &p.Part
	}
	return nil
}

// endOf is when a lease is expected to be free. What was predicted stands until half of
// it has passed: nothing is learned of a task in less.
func (e *Engine) endOf(l *Lease) work.Time {
	t := l.of
	switch {
	case l.Closing:
		return e.now.Add(e.grace(t))
	case t.Spec.External():
		return never
	}
	if half := t.ends.Sub(t.foreseen) / 2; t.ends == 0 || e.now >= t.foreseen.Add(half) {
		t.ends, t.foreseen = never, e.now
		if left := e.left(t); left.P90 > 0 {
			t.ends = e.now.Add(left.P50)
		}
	}
	return t.ends
}

// sureSamples is how many tasks must have ended for their P90 to be gone by.
const sureSamples = 8

// surely is when a waiting task will have ended if it starts now: as good as surely,
// or by its own limit.
func (e *Engine) surely(t *Task) work.Time {
	if t.Spec.External() {
		return never
	}
	end := never
	if said := e.waitingFor(t); said.P90 > 0 && (said.Samples >= sureSamples || said.Basis == forecast.Estimate) {
		end = e.now.Add(said.P90)
	}
	if m := t.Spec.MaxRuntime; m > 0 {
		end = min(end, e.now.Add(m-t.Ran+e.grace(t)))
	}
	return end
}

// endsBy reports whether a waiting task will surely have ended by then if it starts now.
// Nothing that may run for ever has, not even by a time that is not known: else those
// would go past a task for ever of whose end nothing is known.
func (e *Engine) endsBy(t *Task, then work.Time) bool {
	end := e.surely(t)
	return end < never && end <= then
}

// soonestOf is when the first of what is kept will be needed.
func soonestOf(kept []*Reservation, now work.Time) work.Time {
	at := never
	for _, r := range kept {
		at = min(at, r.At)
	}
	if len(kept) == 0 {
		return now
	}
	return at
}

// idleKept reports whether anything stands idle for a reservation.
func (e *Engine) idleKept(p *pool) bool {
	for _, r := range p.kept {
		for _, part := range r.Parts {
			for _, s := range part.Slices {
				if e.cluster.GPUs[s.GPU].Milli < 1000 {
					return true
				}
			}
		}
	}
	return false
}

func (e *Engine) applyReserved(f Reserved) {
	t := e.tasks[f.Task]
	e.unreserve(t)
	if len(f.Parts) == 0 {
		return
	}
	if own := e.ownVictims(f); own > 0 {
		p := t.pool
		p.preempts = slices.DeleteFunc(p.preempts, func(at work.Time) bool { return at.Add(time.Hour) <= e.now })
		p.preempts = append(p.preempts, slices.Repeat([]work.Time{e.now}, own)...)
	}
	if f.At == 0 {
		f.At = never
	}
	r := &Reservation{Task: f.Task, Made: e.now, At: f.At, Parts: f.Parts, Victims: f.Victims, Moving: f.Moving}
	t.pool.kept = append(t.pool.kept, r)
	e.keepParts(r)
	e.timers.add(r.Made.Add(reviewEvery), timerReview, work.Owner{Task: r.Task})
}

// ownVictims is how many are made to yield that have a right to what they hold: not
// guests, and not those that move.
func (e *Engine) ownVictims(f Reserved) int {
	n := 0
	for _, id := range f.Victims {
		if v := e.tasks[id]; !f.Moving && v.lease != nil && !e.guest(v.lease) {
			n++
		}
	}
	return n
}

// unreserve gives up what is kept for a task.
func (e *Engine) unreserve(t *Task) {
	p := t.pool
	if i := slices.IndexFunc(p.kept, func(r *Reservation) bool { return r.Task == t.ID }); i >= 0 {
		e.unkeepParts(p.kept[i])
		p.kept = slices.Delete(p.kept, i, i+1)
		p.full = true
	}
}

// Reservation is what is kept for a task, or nil.
func (e *Engine) Reservation(t *Task) *Reservation {
	for _, r := range t.pool.kept {
		if r.Task == t.ID {
			return r
		}
	}
	return nil
}
