package engine

import (
	"cmp"
	"slices"

	"github.com/gpupool/gpupool/internal/elastic"
	"github.com/gpupool/gpupool/internal/work"
)

// timerKind says what a deadline is for.
type timerKind int8

const (
	timerTTL     timerKind = iota // a task waited too long
	timerAlloc                    // a lease is not running in time
	timerLease                    // a lease of an outside client was not renewed
	timerFree                     // try again to free a part
	timerRun                      // a task ran as long as it may
	timerReview                   // a reservation may be made better
	timerPass                     // look at everyone in line of a pool, whose number is the owner's member
	timerIdle                     // an idle task may be worth moving now
	timerLook                     // see whether tasks of a pool, whose number is the owner's member, should be resized
	timerPlan                     // an announced move is due
	timerGPU                      // a suspect GPU may be used again; the owner's member is the GPU
	timerRollout                  // a phase of the rollout is over
)

// timer is a deadline. Timers are never removed, only found to be out of date
// when they fire: what they are about says whether they still count.
type timer struct {
	at    work.Time
	kind  timerKind
	owner work.Owner
}

func (t timer) compare(u timer) int {
	return cmp.Or(cmp.Compare(t.at, u.at), cmp.Compare(t.kind, u.kind), cmp.Compare(t.owner.Task, u.owner.Task),
		cmp.Compare(t.owner.Epoch, u.owner.Epoch), cmp.Compare(t.owner.Member, u.owner.Member))
}

// timers is a heap of deadlines in a total order, so that two engines with the
// same deadlines fire them alike however they came to have them. It is made by
// hand because container/heap would box each deadline twice.
type timers []timer

func (t timers) less(i, j int) bool {
	if t[i].at != t[j].at {
		return t[i].at < t[j].at
	}
	return t[i].compare(t[j]) < 0
}

func (t *timers) add(at work.Time, kind timerKind, o work.Owner) {
	h := append(*t, timer{at, kind, o})
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h.less(i, up) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
	*t = h
}

// pop removes the first; there must be one.
func (t *timers) pop() timer {
	h := *t
	first, last := h[0], len(h)-1
	h[0] = h[last]
	h = h[:last]
	for i := 0; ; {
		least := i
		for _, down := range [2]int{2*i + 1, 2*i + 2} {
			if down < last && h.less(down, least) {
				least = down
			}
		}
		if least == i {
			break
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
	*t = h
	return first
}

// NextDeadline is when the engine wants a Tick at the latest, if ever.
func (e *Engine) NextDeadline() (work.Time, bool) {
	for len(e.timers) > 0 && !e.pending(e.timers[0]) {
		e.timers.pop()
	}
	if len(e.timers) == 0 {
		return 0, false
	}
	return e.timers[0].at, true
}

// DeadlineBefore is NextDeadline for a caller that comes at t anyway: it looks no
// further, and costs nothing while no deadline is nearer.
func (e *Engine) DeadlineBefore(t work.Time) (work.Time, bool) {
	if len(e.timers) == 0 || e.timers[0].at >= t {
		return 0, false
	}
	at, wants := e.NextDeadline()
	return at, wants && at < t
}

// deadlines lists what will fire later, in order: for Ledger. One that has fired
// may be kept after a restart, as its command may have been lost. Nor does it tell of
// passes and of looks at tasks: after a restart there is one over everyone.
func (e *Engine) deadlines() []timer {
	out := slices.DeleteFunc(slices.Clone(e.timers), func(t timer) bool {
		return t.at <= e.now || t.kind == timerPass || t.kind == timerIdle || t.kind == timerLook || !e.pending(t)
	})
	slices.SortFunc(out, timer.compare)
	return slices.Compact(out)
}

func (e *Engine) fireTimers() {
	for len(e.timers) > 0 && e.timers[0].at <= e.now {
		t := e.timers.pop()
		if e.pending(t) {
			e.fire(t)
		}
	}
}

// pending reports whether a timer still means something.
func (e *Engine) pending(t timer) bool {
	switch t.kind {
	case timerTTL:
		x := e.tasks[t.owner.Task]
		return x != nil && x.State == work.Queued && x.inLine && x.Queued.Add(x.Spec.TTL) == t.at
	case timerAlloc:
		l := e.leaseAt(t.owner.Task, t.owner.Epoch)
		return l != nil && !l.Closing && (l.of.State == work.Starting || l.waking())
	case timerLease:
		l := e.leaseAt(t.owner.Task, t.owner.Epoch)
		return l != nil && !l.Closing && l.Expires == t.at
	case timerFree:
		_, p := e.part(t.owner)
		return p != nil && (p.Phase == PhaseFreeing || p.Phase == PhaseVacating) && p.Retry == t.at
	case timerRun:
		x := e.tasks[t.owner.Task]
		return x != nil && x.State == work.StateRunning && x.Epoch == t.owner.Epoch && !x.lease.Closing
	case timerReview:
		x := e.tasks[t.owner.Task]
		if x == nil {
			return false
		}
		r := e.Reservation(x)
		return r != nil && r.Made.Add(reviewEvery) == t.at
	case timerPass:
		x := e.tasks[t.owner.Task]
		return x != nil && x.inLine && x.asked.Add(reclaimEvery) == t.at
	case timerIdle:
		x := e.tasks[t.owner.Task]
		return x != nil && x.Use.Kind == elastic.Idle && x.State == work.StateRunning && x.Use.Since < t.at
	case timerLook:
		return e.lines[t.owner.Member].look == t.at
	case timerPlan:
		x := e.tasks[t.owner.Task]
		return x != nil && x.Plan != nil && x.Epoch == t.owner.Epoch && x.Plan.At == t.at
	case timerGPU:
		return e.ills[t.owner.Member].until == t.at
	case timerRollout:
		r := e.rolling()
		return r != nil && r.Until == t.at
	}
	return false
}

func (e *Engine) fire(t timer) {
	switch t.kind {
	case timerTTL:
		x := e.tasks[t.owner.Task]
		e.emit(Became{x.ID, work.Expired, work.Reasonf(work.TTLExpired, "waited %s, its TTL in the queue; last it %s",
			x.Spec.TTL, lower(e.whyWaiting(x).Msg))})
	case timerAlloc:
		e.allocTimedOut(e.leaseAt(t.owner.Task, t.owner.Epoch))
	case timerLease:
		l := e.leaseAt(t.owner.Task, t.owner.Epoch)
		why := work.Reasonf(work.LeaseExpired, "the lease was not renewed within %s", l.of.Spec.LeaseTTL)
		if n := e.drains(l); l.Recalled && n >= 0 {
			why = work.Reasonf(work.Drained, "GPU %d is being drained (%s), and it was not given back within %s", n, e.whyOut(n), l.of.Spec.LeaseTTL)
		}
		e.close(l, work.Failed, why)
	case timerFree:
		_, p := e.part(t.owner)
		e.command(e.freeCmd(t.owner, p))
	case timerRun:
		x := e.tasks[t.owner.Task]
		e.close(x.lease, work.Failed, work.Reasonf(work.RunLimit, "ran %s, as long as it may (--max-runtime)", x.Spec.MaxRuntime))
	case timerReview:
		e.tasks[t.owner.Task].pool.full = true
	case timerPass:
		e.lines[t.owner.Member].full = true
	case timerIdle:
		e.lookAtIdle(e.tasks[t.owner.Task])
	case timerLook:
		e.lookOver(e.lines[t.owner.Member])
	case timerPlan:
		e.makePlan(e.tasks[t.owner.Task])
	case timerGPU:
		e.restate(t.owner.Member, func(x *ill) { x.until, x.doubt = 0, "" })
	case timerRollout:
		e.rolloutDue()
	}
}
