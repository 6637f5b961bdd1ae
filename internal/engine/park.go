package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/elastic"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/placement"
	"github.com/gpupool/gpupool/internal/work"
)

// A task that is parked keeps its process, suspended, and its CPU and memory on its
// host; its GPUs are lent. Whoever gets one is a guest of the task: when that is woken
// it has GPUs of its host again as soon as a guest, or another idle task there, has
// given way.
//
// Its way: running -> suspending (the runner stops it) -> vacating (the driver frees the
// slices) -> parked -> in line, once woken -> carving -> resuming -> running. The lease it
// wakes to has a new epoch, as slices are never made twice for one owner; its process is
// known to the runner by the old one (Lease.Runs).

// cooldown is the least time between two moves of a task.
func (e *Engine) cooldown(p *pool) time.Duration { return cmp.Or(p.Elastic.Cooldown, 2*time.Minute) }

// parkPrice is what parking a task takes, by the memory it was seen to hold.
func (e *Engine) parkPrice(t *Task) elastic.Price { return elastic.ParkPrice(e.gpuMemory(t)) }

// gpuMemory is what a task holds of GPU memory: as measured, else all there is.
func (e *Engine) gpuMemory(t *Task) int64 {
	if t.Use.MemMiB > 0 {
		return t.Use.MemMiB
	}
	mem := int64(0)
	for _, p := range t.lease.Parts {
		for _, s := range slices.Concat(p.Slices, p.Was) {
			mem += e.cluster.Geometry(s.GPU).Model.MemoryMiB
		}
	}
	return mem
}

// parkable reports whether a running task can be suspended at all. Not gangs, as their
// members wait for each other; and not parts of a GPU: what is suspended on a MIG
// instance or under MPS cannot be moved off it (../shared/facts/nvidia.md 5).
func (e *Engine) parkable(t *Task) bool {
	if t.State != work.StateRunning || t.Spec.External() || t.lease == nil || t.lease.Closing || len(t.lease.Parts) != 1 {
		return false
	}
	p := t.lease.Parts[0]
	if p.Phase != PhaseRunning || len(p.Slices) == 0 || p.To != nil {
		return false
	}
	for _, s := range p.Slices {
		if s.Mode != gpu.ModeWhole {
			return false
		}
	}
	h := e.cluster.Hosts[p.Host]
	return h.Up && (h.Info.MemMiB == 0 || h.MemMiB >= e.gpuMemory(t)) // it goes to main memory
}

// mayPark reports whether an idle task may be parked now.
func (e *Engine) mayPark(t *Task) bool {
	return t.pool.modeFor(t.Spec.Tenant) == work.Dynamic && e.onIdle(t) == work.IdlePark && !e.exempt(t) && e.parkable(t) &&
		(t.Moved == 0 || e.now >= t.Moved.Add(e.cooldown(t.pool)))
}

func (e *Engine) park(t *Task, why work.Reason) {
	e.emit(Suspending{t.lease.owner(0), why})
	e.command(SuspendCmd{t.lease.runner(0)})
}

// parkAsked parks a task because someone says so.
func (e *Engine) parkAsked(ev Park) error {
	t, err := e.active(ev.Task)
	switch {
	case err != nil:
		return err
	case !e.parkable(t):
		return work.Errorf(work.CodeConflict, "task %d cannot be parked: only a running task of one member with whole GPUs can, when its host has main memory for what is on them", t.ID)
	}
	e.park(t, work.Reasonf(work.Idle, "parked by %s; gpupool wake %d lets it go on", ev.By, t.ID))
	return nil
}

func (e *Engine) suspendDone(o work.Owner) {
	l, p := e.member(o)
	if l != nil && p.Phase == PhaseRunning && !l.Closing { // asked twice, it failed and was done after that
		e.command(ResumeCmd{o, p.Devices})
		return
	}
	if l == nil || p.Phase != PhaseSuspending || l.Closing {
		return
	}
	if l.of.Awake && !e.wanted(l) && e.drains(l) < 0 { // someone wants it again already
		e.emit(Resuming{l.owner(o.Member)})
		e.command(ResumeCmd{o, p.Devices})
		return
	}
	e.vacate(l)
}

// wanted reports whether a woken task in line has a right to a GPU of a suspended one.
// Without this a guest that was parked for it, and woken at once, would go on where it
// was, and be ended as one that cannot be parked.
func (e *Engine) wanted(l *Lease) bool {
	for _, s := range l.Parts[0].Slices {
		if slices.ContainsFunc(e.liens[s.GPU], func(x *Task) bool { return x != l.of && x.inLine }) {
			return true
		}
	}
	return false
}

// vacate frees the slices of a suspended task.
func (e *Engine) vacate(l *Lease) {
	t, p := l.of, l.Parts[0]
	e.emit(Suspended{l.owner(0), e.gpuMemory(t)})
	if t.State != work.Parked {
		e.emit(Became{t.ID, work.Parked, t.Reason})
	}
	e.command(e.freeCmd(l.owner(0), p))
}

func (e *Engine) suspendFailed(ev SuspendFailed) {
	l, p := e.member(ev.Owner)
	if l == nil || p.Phase != PhaseSuspending || l.Closing {
		return
	}
	e.emit(MoveFailed{l.Task, work.MovePark, ev.Err})
	e.emit(Resumed{l.owner(ev.Owner.Member)})
	if l.of.State == work.Parked { // it was on its way back, too slowly, and runs
		e.emit(Became{l.Task, work.StateRunning, work.Reasonf(work.Woken, "it runs again")})
	}
}

// wakeTask lets a parked task go on.
func (e *Engine) wakeTask(ev Wake) error {
	t, err := e.active(ev.Task)
	switch {
	case err != nil:
		return err
	case t.lease == nil || t.lease.Closing:
		return work.Errorf(work.CodeConflict, "task %d is %s: only a parked task can be woken", t.ID, t.State)
	case t.Awake:
	case t.State == work.Parked || t.lease.Parts[0].Phase == PhaseSuspending:
		e.emit(Woken{t.ID, ev.By})
	case t.State == work.StateRunning:
		if t.Use.Kind == elastic.Idle {
			e.judged(t, elastic.Use{Kind: elastic.Steady, Since: e.now})
		}
	default:
		return work.Errorf(work.CodeConflict, "task %d is %s: only a parked task can be woken", t.ID, t.State)
	}
	return nil
}

// goOn resumes a task that has slices again.
func (e *Engine) goOn(l *Lease) {
	for i, p := range l.Parts {
		if p.Phase == PhaseResuming {
			e.command(ResumeCmd{l.runner(i), p.Devices})
		}
	}
}

func (e *Engine) resumeDone(o work.Owner) {
	l, p := e.member(o)
	if l == nil || p.Phase != PhaseResuming || l.Closing {
		return
	}
	e.emit(Resumed{l.owner(o.Member)})
	if t := l.of; t.State == work.Parked {
		e.emit(Became{t.ID, work.StateRunning, work.Reasonf(work.Woken, "it runs again; it waited %s for a GPU, and %s until it went on", inMillis(l.Since.Sub(t.Queued)), inMillis(e.now.Sub(l.Since)))})
	}
}

// resumeFailed ends a task that cannot go on: it starts again from the queue.
func (e *Engine) resumeFailed(ev ResumeFailed) {
	l, p := e.member(ev.Owner)
	if l == nil || p.Phase != PhaseResuming || l.Closing {
		return
	}
	e.emit(MoveFailed{l.Task, work.MoveWake, ev.Err})
	e.close(l, work.Queued, work.Reasonf(work.MoveFailed, "it could not be resumed, and starts again: %s", ev.Err))
}

// backToSleep gives up slices that a woken task could not be given: it stays suspended,
// and waits on. Too often, and it starts again from the queue.
func (e *Engine) backToSleep(l *Lease, move work.MoveKind, why string) {
	e.emit(MoveFailed{l.Task, move, why})
	if l.of.Stuck >= e.cfg.AllocRetries {
		e.close(l, work.Queued, work.Reasonf(work.MoveFailed, "it could not be resumed, for the last of several times, and starts again: %s", why))
		return
	}
	e.vacate(l)
}

// waking reports whether a woken task has been given GPUs and does not run yet.
func (l *Lease) waking() bool {
	return l.Runs != 0 && l.of.State == work.Parked && (l.Parts[0].Phase == PhaseCarving || l.Parts[0].Phase == PhaseResuming)
}

// wakeTimedOut is for a task that has not gone on in time.
func (e *Engine) wakeTimedOut(l *Lease) {
	why := "not running " + e.cfg.AllocTimeout.String() + " after it was given GPUs again"
	switch p := l.Parts[0]; p.Phase {
	case PhaseCarving:
		e.suspect(p, "the slices were not made within "+e.cfg.AllocTimeout.String())
		e.backToSleep(l, work.MoveWake, why)
	case PhaseResuming: // whether it runs is not known
		e.emit(MoveFailed{l.Task, work.MoveWake, why})
		e.close(l, work.Queued, work.Reasonf(work.MoveFailed, "it could not be resumed, and starts again: %s", why))
	}
}

// applyMove applies the facts about tasks that are suspended and woken, and about modes.
func (e *Engine) applyMove(f Fact) {
	switch f := f.(type) {
	case Judged:
		e.applyJudged(f)
		e.shade(e.tasks[f.Task])
	case Suspending:
		l, p := e.mustPart(f.Owner)
		p.Phase = PhaseSuspending
		t := l.of
		t.Reason, t.Moved, t.Moves = f.Reason, e.now, t.Moves+1
		mem := t.Use.MemMiB
		e.notIdle(t)
		t.Use.MemMiB = mem // which says how much goes to main memory
		e.shade(t)
	case Suspended:
		_, p := e.mustPart(f.Owner)
		p.Phase, p.Extra = PhaseVacating, f.MemMiB
	case Woken:
		t := e.tasks[f.Task]
		if t.Awake = true; t.lease.Parts[0].Phase == PhaseParked {
			e.joinAwake(t)
		}
	case Resuming:
		l, p := e.mustPart(f.Owner)
		p.Phase = PhaseResuming
		l.of.Awake = false
	case Resumed:
		l, p := e.mustPart(f.Owner)
		p.Phase = PhaseRunning
		e.disturb(p.Slices)
		l.of.Awake = false
		e.notIdle(l.of)
		l.of.window = elastic.Window{} // it could not compute while it was suspended
		e.shade(l.of)
	case MoveFailed:
		t := e.tasks[f.Task]
		t.Stuck++
		t.Moved = e.now
		switch f.Move {
		case work.MoveResize:
			e.undoResize(t)
		case work.MovePark: // whoever waits for its GPUs must have them some other way
			e.askOthers(t)
		case work.MoveWake, work.MoveRestart, work.MoveAway:
		}
	case ModeSet:
		e.applyMode(f)
	case Shadowed:
		e.tasks[f.Task].Shade.Told = f.Move == work.MovePark
	}
}

// applyParked is the end of parking: the slices are free.
func (e *Engine) applyParked(l *Lease, p *Part) {
	t := l.of
	o := l.owner(0)
	e.count(t, p, -1)
	e.cluster.Free(o, p.Part)
	p.Was, p.Slices, p.Devices, p.Phase = p.Slices, nil, nil, PhaseParked
	p.forgetFailed()
	if e.cluster.Hosts[p.Host].Info.MemMiB > 0 {
		p.MemMiB += p.Extra
	}
	e.cluster.Take(placement.Holder{Owner: o, Tenant: t.Spec.Tenant, Priority: t.Spec.Priority}, p.Part)
	e.count(t, p, 1)
	for _, s := range p.Was {
		e.liens[s.GPU] = append(e.liens[s.GPU], t)
	}
	e.disturb(p.Was)
	t.pool.parked++
	if t.Awake {
		e.joinAwake(t)
	}
	e.wakeFor(t, p)
}

// askOthers asks for a pass over those who may wait for the GPUs of a task that could not
// be suspended: woken tasks that have a right to them, and everyone in their pool.
func (e *Engine) askOthers(t *Task) {
	if t.lease == nil {
		return
	}
	for _, p := range t.lease.Parts {
		e.wake(e.cluster.Hosts[p.Host].Pool)
		for _, s := range p.Slices {
			for _, x := range e.liens[s.GPU] {
				e.freer(x)
			}
		}
	}
}

// joinAwake puts a woken task into line.
func (e *Engine) joinAwake(t *Task) {
	t.Queued = e.now
	e.countWaiting(t, 1)
	t.pool.push(e, t)
	t.pool.added = append(t.pool.added, t.ID)
}

// sleepsNoMore drops what a parked task has a right to, when it wakes or ends. It is
// taken out of line.
func (e *Engine) sleepsNoMore(l *Lease) {
	t, p := l.of, l.Parts[0]
	if len(p.Was) == 0 {
		t.Awake = false
		return
	}
	for _, s := range p.Was {
		e.liens[s.GPU] = slices.DeleteFunc(e.liens[s.GPU], func(x *Task) bool { return x == t })
		if len(e.liens[s.GPU]) == 0 {
			delete(e.liens, s.GPU)
		}
	}
	p.Was = nil
	t.pool.parked--
	e.wakeHost(p.Host) // who cannot be asked to leave may have them now
	if t.inLine {
		e.leave(t)
		e.countWaiting(t, -1)
	}
	t.Awake = false
}

// endSleep takes what a parked task holds of its host back, as its new lease holds it.
func (e *Engine) endSleep(t *Task) {
	l := t.lease
	p := l.Parts[0]
	waits := t.inLine
	e.sleepsNoMore(l)
	t.Awake = true // until it runs
	if waits {
		e.countWaiting(t, 1) // the placement counts it off
	}
	e.count(t, p, -1)
	e.cluster.Free(l.owner(0), p.Part)
	p.Phase, l.Settled, t.lease = PhaseFreed, true, nil
	e.dropFreed(l)
}

// sleeps reports whether a task is parked and holds no slices.
func (e *Engine) sleeps(t *Task) bool {
	return t.State == work.Parked && t.lease != nil && t.lease.Parts[0].Phase == PhaseParked
}

// whyParked says why a task is suspended, and what it waits for once it was woken.
func (e *Engine) whyParked(t *Task) work.Reason {
	why := t.Reason
	p := t.lease.Parts[0]
	host := e.cluster.Hosts[p.Host].Info.Name
	switch {
	case t.lease.Closing:
		why = t.lease.Reason
		why.Msg += "; its members are being ended, then it is " + string(t.lease.Then)
	case p.Phase == PhaseCarving || p.Phase == PhaseResuming:
		why = work.Reasonf(work.Woken, "it was woken and has GPUs of %s again; it is about to go on", host)
	case t.Awake:
		why = work.Reasonf(work.WaitWake, "it was woken %s ago and waits for %d of the GPUs of %s, where it is suspended; who idles there, or is a guest on its GPUs, gives way",
			inSeconds(e.now.Sub(t.Queued)), len(p.Was)+len(p.Slices), host)
	default:
		why.Msg = "it is suspended on " + host + ": " + why.Msg
	}
	return why
}
