package metrics

import (
	"cmp"
	"time"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/work"
)

// defaultGrace is what a task that names no grace is taken to have.
const defaultGrace = 10 * time.Second

// partFact follows the facts about parts and about what is done with running tasks.
func (tr *tracker) partFact(f engine.Fact) {
	v := &tr.m.vecs
	switch f := f.(type) {
	case engine.Carved:
		if p := tr.parts[f.Owner]; p != nil {
			s := p.slices[0]
			v.carve.WithLabelValues(tr.model(s.GPU), profileOf(s.Mode, s.Profile)).Observe(tr.at.Sub(p.placed).Seconds())
		}
	case engine.Exited:
		if p := tr.parts[f.Owner]; p != nil && p.leaving > tr.at {
			p.leaving = tr.at // no grace is needed any more
		}
	case engine.Closing:
		tr.closing(f)
	case engine.FreeRetry:
		if p := tr.parts[f.Owner]; p != nil {
			v.freeRetries.WithLabelValues(p.pool).Inc()
		}
	case engine.Freed:
		tr.freed(f.Owner)
	case engine.Suspending:
		if t := tr.tasks[f.Owner.Task]; t != nil {
			t.suspended = tr.at
		}
	case engine.Suspended:
		if p := tr.parts[f.Owner]; p != nil {
			p.parks, p.leaving = true, tr.at
		}
	case engine.Woken:
		if t := tr.tasks[f.Task]; t != nil {
			t.awake, t.woken = true, tr.at
			tr.joins(t)
		}
	case engine.Resuming:
		if t := tr.tasks[f.Owner.Task]; t != nil {
			t.awake = false
		}
	case engine.Resumed:
		if t := tr.tasks[f.Owner.Task]; t != nil {
			if t.woken != 0 {
				v.move.WithLabelValues(t.spec.Pool, string(work.MoveWake)).Observe(tr.at.Sub(t.woken).Seconds())
			}
			t.awake, t.woken, t.suspended = false, 0, 0
		}
	case engine.Resizing:
		if p := tr.parts[f.Owner]; p != nil {
			p.resized = tr.at
		}
	case engine.Resized:
		if p, t := tr.parts[f.Owner], tr.tasks[f.Owner.Task]; p != nil && t != nil && p.resized != 0 {
			v.move.WithLabelValues(t.spec.Pool, string(work.MoveResize)).Observe(tr.at.Sub(p.resized).Seconds())
			p.resized = 0
		}
	}
}

// closing notes that a lease is taken apart, and from when on it should be free.
func (tr *tracker) closing(f engine.Closing) {
	t := tr.tasks[f.Task]
	var grace time.Duration
	if t != nil {
		grace = cmp.Or(t.spec.Grace, defaultGrace)
		if f.Epoch == t.epoch {
			t.waits = t.waits && t.state == work.Queued
			t.awake = false
		}
		switch f.Reason.Code {
		case work.Resized:
			t.move, t.moved = work.MoveRestart, tr.at
		case work.Moved:
			t.move, t.moved = work.MoveAway, tr.at
		}
	}
	members := 1
	if t != nil {
		members = t.spec.Request.Count()
	}
	for i := range members {
		if p := tr.parts[work.Owner{Task: f.Task, Epoch: f.Epoch, Member: i}]; p != nil {
			p.leaving = tr.at.Add(grace)
		}
	}
}

// freed is the end of a part, or of parking.
func (tr *tracker) freed(o work.Owner) {
	p, t := tr.parts[o], tr.tasks[o.Task]
	if p == nil {
		return
	}
	delete(tr.parts, o)
	if t == nil || !p.parks || o.Epoch != t.epoch || t.state != work.Parked {
		return
	}
	if t.suspended != 0 {
		tr.m.vecs.move.WithLabelValues(t.spec.Pool, string(work.MovePark)).Observe(tr.at.Sub(t.suspended).Seconds())
		t.suspended = 0
	}
	t.asleep = true
	tr.joins(t)
}

// joins puts a task that is asleep and was woken into line.
func (tr *tracker) joins(t *task) {
	if t.asleep && t.awake && !t.waits {
		t.waits, t.since = true, tr.at
	}
}

// waitingSum is who waits in a pool, of one priority.
type waitingSum struct {
	tasks, back int
	oldest      work.Time // since when the one waits that has waited the longest; 0 = nobody does
	used        float64   // most of its TTL that one has used up
}

// waiting adds up who waits, in line and held back, now.
func (tr *tracker) waiting(now work.Time) (tenants map[string]int) {
	tenants = map[string]int{}
	for _, p := range tr.pools { // order: each by itself
		p.waiting = [3]waitingSum{}
	}
	for _, t := range tr.tasks { // order: sums and extremes
		if !t.waits {
			continue
		}
		w := &tr.pool(t.spec.Pool).waiting[t.spec.Priority]
		if t.state == work.Queued && (t.held || t.awaits > 0) {
			w.back++
			continue
		}
		w.tasks++
		tenants[t.tenant]++
		if w.oldest == 0 || t.since < w.oldest {
			w.oldest = t.since
		}
		if ttl := t.spec.TTL; ttl > 0 && t.state == work.Queued {
			w.used = max(w.used, now.Sub(t.since).Seconds()/ttl.Seconds())
		}
	}
	return tenants
}
