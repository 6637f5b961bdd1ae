package engine

import (
	"fmt"

	"github.com/gpupool/gpupool/internal/placement"
	"github.com/gpupool/gpupool/internal/work"
)

// applyLease applies the facts about leases and their parts.
func (e *Engine) applyLease(f Fact) {
	switch f := f.(type) {
	case Carved:
		l, p := e.mustPart(f.Owner)
		p.Phase, p.Devices = PhaseReady, f.Devices
		for _, s := range p.Slices {
			e.cleared(s.GPU)
		}
		e.capped(p)
		if l.Runs != 0 {
			p.Phase = PhaseResuming
		}
		l.readyToStart(l.of.Spec.External())
	case Started:
		_, p := e.mustPart(f.Owner)
		p.Phase = PhaseRunning
	case Exited:
		l, p := e.mustPart(f.Owner)
		p.Exit, p.Phase = e.keptExit(f.Exit), PhaseEnded
		p.forgetFailed()
		if l.Exit == nil || l.Exit.OK() { // the first failure decides; else the last member's end
			l.Exit = p.Exit
		}
		if l.Closing {
			p.Phase = PhaseFreeing
		}
	case Closing:
		l := e.leaseAt(f.Task, f.Epoch)
		l.Closing, l.Then, l.Reason = true, f.Then, f.Reason
		e.applyRestart(l)
		e.applyStruck(l)
		e.callBack(l)
		e.sleepsNoMore(l)
		for _, p := range l.Parts {
			switch p.Phase {
			case PhaseCarving, PhaseReady, PhaseEnded:
				p.Phase = PhaseFreeing
				if l.Runs != 0 && p.Exit == nil { // its process was started long ago
					p.Phase = PhaseStopping
				}
			case PhaseStarting, PhaseRunning, PhaseSuspending, PhaseVacating, PhaseParked, PhaseResuming:
				p.Phase = PhaseStopping
				p.forgetFailed()
			case PhaseStopping, PhaseFreeing, PhaseFreed:
			}
		}
	case FreeRetry:
		l, p := e.mustPart(f.Owner)
		p.Tries, p.Retry, p.Why = f.Tries, f.Until, f.Why
		e.freer(l.of)
		e.timers.add(f.Until, timerFree, f.Owner)
	case Freed:
		e.applyFreed(f.Owner)
	case Renewed:
		l := e.leaseAt(f.Task, f.Epoch)
		l.Expires = f.Expires
		e.timers.add(f.Expires, timerLease, l.owner(0))
	case Recalled:
		e.applyRecalled(f)
	default:
		panic(fmt.Sprintf("fact %T has no apply", f))
	}
}

// forgetFailed forgets that freeing has failed: it is left off now, and what was due then is not.
func (p *Part) forgetFailed() { p.Tries, p.Retry, p.Why = 0, 0, "" }

// keptExit returns memory that holds an exit: one piece for all that ended well,
// which is how nearly every member ends.
func (e *Engine) keptExit(x work.Exit) *work.Exit {
	if x == e.endedWell {
		return &e.endedWell
	}
	kept := x // not &x, which would have been allocated above already
	return &kept
}

func (e *Engine) mustPart(o work.Owner) (*Lease, *Part) {
	l, p := e.part(o)
	if p == nil {
		panic(fmt.Sprintf("no part of owner %v", o))
	}
	return l, p
}

func (e *Engine) applyPlaced(f Placed) {
	t := e.tasks[f.Task]
	l := newLease(len(f.Parts))
	l.Task, l.Epoch, l.Since, l.Runs, l.of = f.Task, f.Epoch, e.now, f.Runs, t
	if f.Runs != 0 {
		e.endSleep(t)
	}
	for i, part := range f.Parts {
		p := l.Parts[i]
		p.Part, p.Phase = part, PhaseCarving
		if len(part.Slices) == 0 {
			p.Phase = PhaseReady
		}
		e.cluster.Take(placement.Holder{Owner: l.owner(i), Tenant: t.Spec.Tenant, Priority: t.Spec.Priority}, part)
		e.count(t, p, 1)
		e.lend(t, p)
	}
	e.leases[leaseKey{f.Task, f.Epoch}] = l
	t.lease, t.Epoch = l, f.Epoch
	l.older, t.holds = t.holds, l
	e.leave(t)
	e.countWaiting(t, -1)
	if f.Runs == 0 {
		e.countRunning(t, 1)
	}
	e.shade(t)
	if t.Queued < e.now { // one that did not wait says nothing of the line
		t.pool.drained.left(e.now)
	}
	l.readyToStart(t.Spec.External())
	if e.cfg.AllocTimeout > 0 {
		e.timers.add(e.now.Add(e.cfg.AllocTimeout), timerAlloc, l.owner(0))
	}
}

// newLease makes a lease with empty parts. Nearly every lease has one part, and then
// both are one piece of memory: they are always looked at together.
func newLease(parts int) *Lease {
	if parts == 1 {
		x := &struct {
			lease Lease
			part  Part
			parts [1]*Part
		}{}
		x.parts[0] = &x.part
		x.lease.Parts = x.parts[:]
		return &x.lease
	}
	l := &Lease{Parts: make([]*Part, parts)}
	for i := range l.Parts {
		l.Parts[i] = &Part{}
	}
	return l
}

// readyToStart moves all parts on when the last of them is ready: a gang starts
// together or not at all.
func (l *Lease) readyToStart(external bool) {
	if external || l.Closing {
		return
	}
	for _, p := range l.Parts {
		if p.Phase != PhaseReady {
			return
		}
	}
	for _, p := range l.Parts {
		p.Phase = PhaseStarting
	}
}

// settle parts a task from its lease, if it has one. Those in line are looked at
// when the line has changed; what the lease held comes free later, by Freed.
func (e *Engine) settle(t *Task) {
	l := t.lease
	if l == nil || t.State == work.Queued {
		t.pool.full = true
	}
	if l == nil {
		return
	}
	if t.State.Terminal() { // else it runs again, and that is what will count
		t.Exit = l.Exit
	}
	l.Settled, t.lease = true, nil
	e.countRunning(t, -1)
	e.dropFreed(l)
}

// dropFreed removes a lease that nothing is left of.
func (e *Engine) dropFreed(l *Lease) {
	for _, p := range l.Parts {
		if p.Phase != PhaseFreed {
			return
		}
	}
	if !l.Settled {
		return
	}
	delete(e.leases, leaseKey{l.Task, l.Epoch})
	for at := &l.of.holds; *at != nil; at = &(*at).older {
		if *at == l {
			*at = l.older
			return
		}
	}
}

func (e *Engine) applyFreed(o work.Owner) {
	l, p := e.mustPart(o)
	if p.Phase == PhaseVacating {
		e.applyParked(l, p)
		return
	}
	e.comeBack(l, p)
	p.Phase = PhaseFreed
	e.cluster.Free(o, p.Part)
	e.disturb(p.Slices)
	t := l.of
	e.count(t, p, -1)
	e.wakeFor(t, p)
	e.freer(t)
	e.dropFreed(l)
}

// wakeFor asks for a pass over everyone who may have what a task gave back.
func (e *Engine) wakeFor(t *Task, p *Part) {
	if x := e.tenants[t.Spec.Tenant]; x != nil && x.LimitGPUs > 0 {
		e.wakeAll() // the limit is one for all pools
	} else {
		e.wakeHost(p.Host) // not the task's pool: the host may have moved since
	}
}
