package engine

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// timerKind says what a deadline is for.
type timerKind int8

const (
	timerTTL   timerKind = iota // a task waited too long
	timerAlloc                  // a lease is not running in time
	timerLease                  // a lease of an outside client was not renewed
	timerFree                   // try again to free a part
	timerGPU                    // a suspect GPU may be used again; the owner's member is the GPU
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
// same deadlines fire them alike however they came to have them.
type timers []timer

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].compare(t[j]) < 0 }
func (t timers) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }

// Push and Pop are for container/heap only.
func (t *timers) Push(x any) { *t = append(*t, x.(timer)) }

// Pop removes the last element; see Push.
func (t *timers) Pop() any {
	old := *t
	x := old[len(old)-1]
	*t = old[:len(old)-1]
	return x
}

func (t *timers) add(at work.Time, kind timerKind, o work.Owner) {
	heap.Push(t, timer{at, kind, o})
}

// NextDeadline is when the engine wants a Tick at the latest, if ever.
func (e *Engine) NextDeadline() (work.Time, bool) {
	for len(e.timers) > 0 && !e.pending(e.timers[0]) {
		heap.Pop(&e.timers)
	}
	if len(e.timers) == 0 {
		return 0, false
	}
	return e.timers[0].at, true
}

// deadlines lists what will fire later, in order: for Ledger. One that has fired
// may be kept after a restart, as its command may have been lost.
func (e *Engine) deadlines() []timer {
	out := slices.DeleteFunc(slices.Clone(e.timers), func(t timer) bool { return t.at <= e.now || !e.pending(t) })
	slices.SortFunc(out, timer.compare)
	return slices.Compact(out)
}

func (e *Engine) fireTimers() {
	for len(e.timers) > 0 && e.timers[0].at <= e.now {
		t := heap.Pop(&e.timers).(timer)
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
		return x != nil && x.State == work.Queued && x.Queued.Add(x.Spec.TTL) == t.at
	case timerAlloc:
		l := e.leases[leaseKey{t.owner.Task, t.owner.Epoch}]
		return l != nil && !l.Closing && e.tasks[l.Task].State == work.Starting
	case timerLease:
		l := e.leases[leaseKey{t.owner.Task, t.owner.Epoch}]
		return l != nil && !l.Closing && l.Expires == t.at
	case timerFree:
		_, p := e.part(t.owner)
		return p != nil && p.Phase == PhaseFreeing && p.Retry == t.at
	case timerGPU:
		g := e.cluster.GPUs[t.owner.Member]
		return g.Health == gpu.HealthSuspect && g.Until == t.at
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
		e.allocTimedOut(e.leases[leaseKey{t.owner.Task, t.owner.Epoch}])
	case timerLease:
		l := e.leases[leaseKey{t.owner.Task, t.owner.Epoch}]
		ttl := e.tasks[l.Task].Spec.LeaseTTL
		e.close(l, work.Failed, work.Reasonf(work.LeaseExpired, "the lease was not renewed within %s", ttl))
	case timerFree:
		_, p := e.part(t.owner)
		e.command(e.freeCmd(t.owner, p))
	case timerGPU:
		g := e.cluster.GPUs[t.owner.Member]
		e.emit(GPUChanged{GPU: g.Number, Health: gpu.HealthOK, Strikes: e.strikes[g.Number]})
	}
}
