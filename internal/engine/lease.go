package engine

import (
	"strconv"
	"time"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// Back-off of suspect GPUs and of freeing: it doubles up to the cap.
const (
	firstBackoff = 5 * time.Second
	maxBackoff   = 10 * time.Minute
)

func backoff(tries int) time.Duration {
	return min(firstBackoff<<min(tries-1, 20), maxBackoff)
}

// place gives parts to a waiting task.
func (e *Engine) place(t *Task, parts []work.Part) {
	epoch := t.Epoch + 1
	e.emit(Placed{Task: t.ID, Epoch: epoch, Parts: parts})
	e.emit(Became{t.ID, work.Starting, placedAfter(e.now.Sub(t.Queued))})
	for i, p := range t.lease.Parts {
		if p.Phase == PhaseCarving {
			e.command(e.carveCmd(t.lease, i))
		}
	}
	e.advance(t.lease)
}

// The reasons that every task gets are put together by hand: fmt would take as long
// as the placement itself.

func placedAfter(waited time.Duration) work.Reason {
	if waited == 0 {
		return work.Reason{Code: work.Placed, Msg: "place found after 0s; the slices are being made"}
	}
	return work.Reason{Code: work.Placed, Msg: "place found after " + inMillis(waited) + "; the slices are being made"}
}

func runsAfter(waited, took time.Duration) work.Reason {
	return work.Reason{Code: work.Running, Msg: "it waited " + inMillis(waited) + " for a place; its slices and its start took " + inMillis(took)}
}

func inMillis(d time.Duration) string { return d.Round(time.Millisecond).String() }

// advance starts the members once all parts are ready, and tells the task when
// all of them run.
func (e *Engine) advance(l *Lease) {
	t := l.of
	if l.Runs != 0 && !l.Closing && t.State == work.Parked {
		e.goOn(l)
		return
	}
	if l.Closing || t.State != work.Starting {
		return
	}
	running := true
	for i, p := range l.Parts {
		switch {
		case p.Phase == PhaseStarting:
			e.command(e.startCmd(l, i))
			running = false
		case t.Spec.External():
			running = running && p.Phase == PhaseReady
		default:
			running = running && (p.Phase == PhaseRunning || p.Phase == PhaseEnded)
		}
	}
	if !running {
		return
	}
	e.emit(Became{t.ID, work.StateRunning, runsAfter(l.Since.Sub(t.Queued), e.now.Sub(l.Since))})
	if t.Spec.External() {
		e.emit(Renewed{t.ID, l.Epoch, e.now.Add(t.Spec.LeaseTTL)})
	}
}

func (e *Engine) carveDone(ev CarveDone) {
	l, p := e.part(ev.Owner)
	if l == nil || p.Phase != PhaseCarving {
		return // closing, or said twice
	}
	e.emit(Carved(ev))
	e.advance(l)
}

func (e *Engine) carveFailed(ev CarveFailed) {
	l, p := e.part(ev.Owner)
	if l == nil || p.Phase != PhaseCarving {
		return
	}
	e.suspect(p, ev.Err)
	if l.Runs != 0 {
		e.backToSleep(l, work.MoveWake, "the slices could not be made: "+ev.Err)
		return
	}
	e.allocFailed(l, work.Reasonf(work.CarveFailed, "the slices could not be made: %s", ev.Err))
}

// suspect keeps the GPUs of a part from being chosen for a while.
func (e *Engine) suspect(p *Part, why string) {
	for _, s := range p.Slices {
		if e.cluster.GPUs[s.GPU].Health != gpu.HealthBroken {
			e.restate(s.GPU, func(x *ill) {
				x.strikes++
				x.until, x.doubt = e.now.Add(backoff(x.strikes)), why
			})
		}
	}
}

// allocFailed sends a task back to its place in the line, or ends it when that
// has happened too often.
func (e *Engine) allocFailed(l *Lease, why work.Reason) {
	t := l.of
	if t.Failures+1 >= e.cfg.AllocRetries {
		why.Msg += ", for the last of several times: given up"
		e.close(l, work.Failed, why)
		return
	}
	e.close(l, work.Queued, why)
}

func (e *Engine) allocTimedOut(l *Lease) {
	if l.Runs != 0 {
		e.wakeTimedOut(l)
		return
	}
	for _, p := range l.Parts {
		switch p.Phase {
		case PhaseCarving:
			e.suspect(p, "the slices were not made within "+e.cfg.AllocTimeout.String())
		case PhaseStarting: // so that the next try goes elsewhere
			e.suspect(p, "a task was not started there within "+e.cfg.AllocTimeout.String())
		}
	}
	e.allocFailed(l, work.Reasonf(work.AllocTimeout, "not running %s after it was placed", e.cfg.AllocTimeout))
}

func (e *Engine) startDone(o work.Owner) {
	l, p := e.member(o)
	if l == nil || p.Phase != PhaseStarting {
		return
	}
	e.emit(Started{o})
	if !l.Closing {
		e.startedAll(l)
	}
}

// startedAll is advance without giving the start commands again.
func (e *Engine) startedAll(l *Lease) {
	for _, p := range l.Parts {
		if p.Phase == PhaseStarting {
			return
		}
	}
	e.advance(l)
}

func (e *Engine) startFailed(ev StartFailed) {
	l, p := e.member(ev.Owner)
	if l == nil || !p.Phase.live() {
		return
	}
	e.memberEnded(p, l.owner(ev.Owner.Member), work.Exit{Lost: "never started: " + ev.Err})
	if !l.Closing {
		e.allocFailed(l, work.Reasonf(work.StartFailed, "could not be started: %s", ev.Err))
	} else {
		e.settleLease(l)
	}
}

func (e *Engine) processExited(ev ProcessExited) {
	l, p := e.member(ev.Owner)
	if l == nil || !p.Phase.live() && !(l.Runs != 0 && p.Phase == PhaseCarving) {
		e.command(ForgetCmd{ev.Owner}) // known already, or nobody's
		return
	}
	if p.Phase == PhaseStarting { // it ended before its start was heard of
		e.emit(Started{ev.Owner})
		e.startedAll(l)
	}
	e.memberEnded(p, l.owner(ev.Owner.Member), ev.Exit)
	e.command(ForgetCmd{ev.Owner})
	if l.Closing {
		e.settleLease(l)
		return
	}
	if !ev.Exit.OK() {
		r := ev.Exit.Reason()
		if len(l.Parts) > 1 {
			r.Msg = "member " + strconv.Itoa(ev.Owner.Member) + " " + r.Msg
		}
		r.Msg += e.afterFault(l.of, e.now)
		e.close(l, work.Failed, r)
		return
	}
	for _, p := range l.Parts {
		if p.Phase != PhaseEnded {
			return
		}
	}
	e.close(l, work.Succeeded, ev.Exit.Reason())
}

// memberEnded states the end of one member and frees its slices if the lease closes.
func (e *Engine) memberEnded(p *Part, o work.Owner, exit work.Exit) {
	e.emit(Exited{o, exit})
	if p.Phase == PhaseFreeing {
		e.free(o, p)
	}
}

// close takes a lease apart: what runs is stopped, what stands is freed, and
// when nothing runs any more the task becomes then.
func (e *Engine) close(l *Lease, then work.State, why work.Reason) {
	t := l.of
	var few [8]Phase // nearly every lease has no more parts
	before := few[:0]
	for _, p := range l.Parts {
		before = append(before, p.Phase)
	}
	if then == work.Queued && t.State == work.StateRunning {
		e.emit(Became{t.ID, work.Yielding, why})
	}
	e.emit(Closing{l.Task, l.Epoch, then, why})
	for i, p := range l.Parts {
		if p.Phase == before[i] {
			continue
		}
		switch p.Phase {
		case PhaseStopping:
			e.command(e.stopCmd(l, i))
		case PhaseFreeing:
			e.free(l.owner(i), p)
		}
	}
	e.settleLease(l)
}

func (e *Engine) grace(t *Task) time.Duration {
	if t.Spec.Grace > 0 {
		return t.Spec.Grace
	}
	return e.cfg.Grace
}

// settleLease lets the task go on once no member of a closing lease runs. A
// member on a lost host does not hold its task back: it can do no harm at a
// newer epoch, and is ended when the host returns.
func (e *Engine) settleLease(l *Lease) {
	if l.Settled {
		return
	}
	for _, p := range l.Parts {
		if p.Phase.live() && e.cluster.Hosts[p.Host].Up {
			return
		}
	}
	e.emit(Became{l.Task, l.Then, l.Reason})
}

// free gives the slices of a part back to the driver; a part without slices has
// nothing to give.
func (e *Engine) free(o work.Owner, p *Part) {
	if len(p.Slices) == 0 {
		e.emit(Freed{o})
		return
	}
	e.command(e.freeCmd(o, p))
}

func (e *Engine) freeDone(o work.Owner) {
	l, p := e.part(o)
	if l == nil || p.Phase != PhaseFreeing && p.Phase != PhaseVacating {
		return
	}
	e.emit(Freed{o})
}

func (e *Engine) freeFailed(ev FreeFailed) {
	l, p := e.part(ev.Owner)
	if l == nil || p.Phase != PhaseFreeing && p.Phase != PhaseVacating {
		return
	}
	tries := p.Tries + 1
	e.emit(FreeRetry{ev.Owner, tries, e.now.Add(backoff(tries)), ev.Err})
}

func (e *Engine) carveCmd(l *Lease, i int) CarveCmd {
	p := l.Parts[i]
	h := e.cluster.Hosts[p.Host]
	ids := make([]string, len(p.Slices))
	for k, s := range p.Slices {
		ids[k] = e.cluster.GPUs[s.GPU].ID
	}
	return CarveCmd{l.owner(i), l.of.Spec.Tenant, h.Info.Driver, h.Info.Name, p.Slices, ids}
}

func (e *Engine) freeCmd(o work.Owner, p *Part) FreeCmd {
	h := e.cluster.Hosts[p.Host]
	return FreeCmd{o, h.Info.Driver, h.Info.Name}
}

// stopCmd ends a member: by the signal that the task asked for where it will go on later.
func (e *Engine) stopCmd(l *Lease, i int) StopCmd {
	c := StopCmd{Owner: l.runner(i), Grace: e.grace(l.of)}
	if l.Then == work.Queued {
		c.Signal = l.of.Spec.Signal
	}
	return c
}

func (e *Engine) startCmd(l *Lease, i int) StartCmd {
	p := l.Parts[i]
	h := &e.cluster.Hosts[p.Host].Info
	return StartCmd{l.owner(i), l.of.Spec, l.of.Array, l.of.Index, h.Driver, h.Name, p.Slices, p.Devices}
}
