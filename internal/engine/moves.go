package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/elastic"
	"github.com/gpupool/gpupool/internal/placement"
	"github.com/gpupool/gpupool/internal/work"
)

// A running task gets another size, or another place, in one of two ways. A share of a
// GPU, and a whole GPU that becomes one, is resized in place (resize.go): its process
// need not know. Anything else takes a restart: the move is announced (Planned), looked
// at again when its time has come, and then the task is told by its signal, saves its
// work, ends within its grace and goes back to its place in line, asking for its new
// size. So there is nothing to be undone: if its new place is gone by then it waits as
// anybody does, and if its slices cannot be made it asks for what it was submitted with.
//
// What is moved for whom is in shrink.go (for one who waits), grow.go (when nobody does)
// and apart.go (from a neighbour that slows it down). Each look costs a walk over the
// pool's tasks that may be moved, at most one in lookEvery for each who waits.

// Plan is a move by a restart that was announced.
type Plan struct {
	Move   work.MoveKind `json:"move"`
	At     work.Time     `json:"at"`            // when it is looked at again, and made
	To     *work.Request `json:"to,omitempty"`  // what the task asks for then; nil = what it was submitted with
	For    work.TaskID   `json:"for,omitempty"` // who waits for what it gives up
	Price  elastic.Price `json:"price"`
	Reason work.Reason   `json:"reason"`
}

// lookEvery is how often it is looked at whether running tasks should be resized.
const lookEvery = time.Minute

// supple reports whether there is anything that could be done with a running task: it
// agreed to be restarted, or it shares a GPU, or would, and has too much or too little.
func (e *Engine) supple(t *Task) bool {
	switch {
	case t.Spec.External():
		return false
	case t.Spec.OnResize == work.ResizeRestart:
		return true
	case t.Use.Kind == elastic.Unknown || t.Use.Kind == elastic.Steady:
		return false
	}
	return t.Spec.Request.IsPart() || e.onIdle(t) == work.IdleShare
}

// enrolSupple keeps the list of a pool's running tasks that may be moved.
func (e *Engine) enrolSupple(t *Task, runs bool) {
	p := t.pool
	should := runs && e.supple(t)
	if !should && len(p.supple) == 0 {
		return
	}
	switch i, is := slices.BinarySearchFunc(p.supple, t, byNumber); {
	case is && !should:
		p.supple = slices.Delete(p.supple, i, i+1)
	case !is && should:
		p.supple = slices.Insert(p.supple, i, t)
		e.lookLater(p)
	}
}

// reviewSupple finds anew who may be moved, as the settings have changed.
func (e *Engine) reviewSupple(p *pool) {
	p.supple = nil
	for _, t := range e.tasks { // order: each finds its place
		if t.pool == p && t.State == work.StateRunning {
			e.enrolSupple(t, true)
		}
	}
}

func (e *Engine) lookLater(p *pool) {
	if len(p.supple) > 0 && p.look <= e.now {
		p.look = e.now.Add(lookEvery)
		e.timers.add(p.look, timerLook, work.Owner{Member: p.number})
	}
}

// lookOver sees whether tasks of a pool should be resized: for those who wait, else to
// make use of what is free.
func (e *Engine) lookOver(p *pool) {
	e.lookLater(p)
	if p.queue.Len() > 0 {
		p.full = true
		return
	}
	for _, t := range slices.Clone(p.supple) {
		e.grow(t)
	}
}

// movable reports whether anything may be done with a running task now.
func (e *Engine) movable(t *Task) bool {
	if t.State != work.StateRunning || t.pool.modeFor(t.Spec.Tenant) != work.Dynamic || e.exempt(t) ||
		t.lease == nil || t.lease.Closing || t.SizedBy != "" || t.Moved != 0 && e.now < t.Moved.Add(e.cooldown(t.pool)) {
		return false
	}
	for _, p := range t.lease.Parts {
		if p.Phase != PhaseRunning || p.To != nil || !e.cluster.Hosts[p.Host].Up {
			return false
		}
	}
	return true
}

// mayRestart reports whether a task that is movable may be restarted for it: it agreed,
// and neither it nor its pool has had as many restarts as they may have in an hour.
func (e *Engine) mayRestart(t *Task) bool {
	x := t.pool.Elastic
	return t.Spec.OnResize == work.ResizeRestart && !t.Spec.NoPreempt &&
		lately(t.Again, e.now) < cmp.Or(x.PerTask, 2) && lately(t.pool.again, e.now) < cmp.Or(x.PerHour, 60)
}

// lately counts how many of some times, in order, are within the last hour.
func lately(at []work.Time, now work.Time) int {
	i := slices.IndexFunc(at, func(t work.Time) bool { return t.Add(time.Hour) > now })
	if i < 0 {
		return 0
	}
	return len(at) - i
}

// restartPrice is what restarting a task takes, in GPU milliseconds, and as times.
func (e *Engine) restartPrice(t *Task) (int64, elastic.Price) {
	x := elastic.RestartPrice(e.gpuMemory(t))
	milli := 0
	for _, p := range t.lease.Parts {
		milli += p.Milli()
	}
	lost := e.now.Sub(t.Started) - e.saved(t, e.now)
	return (x.Total() + lost).Milliseconds() * int64(milli) / 1000, x
}

// announce says that a task will be restarted.
func (e *Engine) announce(t *Task, plan Plan) {
	plan.At = e.now.Add(cmp.Or(t.pool.Elastic.Warn, 30*time.Second))
	_, plan.Price = e.restartPrice(t)
	e.emit(Planned{t.ID, plan})
}

// makePlan makes a move that was announced, with those announced together with it, or
// drops it where it is of no use any more.
func (e *Engine) makePlan(t *Task) {
	p, plan := t.pool, t.Plan
	group := []*Task{t}
	if plan.For != 0 {
		group = slices.DeleteFunc(slices.Clone(p.supple), func(v *Task) bool {
			return v.Plan == nil || v.Plan.For != plan.For || v.Plan.At != plan.At
		})
	}
	lifted := e.lift(p) // what is kept for the one who waits is not in its way
	made, parts, why := e.stillWorth(group, plan)
	e.restore(p, lifted)
	for _, v := range group {
		if !slices.Contains(made, v) {
			e.emit(Dropped{v.ID, why})
		}
	}
	var ids []work.TaskID
	for _, v := range made {
		ids = append(ids, v.ID)
	}
	if len(parts) > 0 { // they are freed for it, and must not be taken back
		e.emit(Reserved{Task: plan.For, At: e.now.Add(e.grace(made[0])), Parts: namesOnly(parts), Victims: ids, Moving: true})
	}
	for _, v := range made {
		e.restart(v, v.Plan.Move, v.Plan.To, v.Plan.Reason)
	}
}

// stillWorth says which of the moves announced together are to be made, and what has to be
// kept for the one who waits; else why they are not.
func (e *Engine) stillWorth(group []*Task, plan *Plan) (made []*Task, parts []work.Part, why string) {
	able := slices.DeleteFunc(slices.Clone(group), func(v *Task) bool { return !e.movable(v) || !e.mayRestart(v) })
	w := e.tasks[plan.For]
	switch {
	case len(able) < len(group):
		return nil, nil, "it, or one that was to be moved with it, cannot be moved now"
	case plan.For != 0 && (w == nil || !w.inLine):
		return nil, nil, "the task that waited for it does not wait any more"
	case plan.For != 0 && e.find(w, placement.Query{Pool: w.pool.Name, Tenant: w.Spec.Tenant, Request: w.pool.wants(w)}) != nil:
		return nil, nil, "the task that waited for it has room by now"
	case plan.For != 0 && plan.Move == work.MoveAway:
		made, parts = e.consolidation(w, func(v *Task) bool { return slices.Contains(able, v) })
	case plan.For != 0:
		var cs []change
		for _, v := range able {
			cs = append(cs, change{t: v, to: v.Plan.To})
		}
		done, _ := e.tryChanges(w, cs)
		for _, c := range done {
			made = append(made, c.t)
		}
	case plan.Move == work.MoveAway && !e.besideParted(able[0]):
		return nil, nil, "it is not beside the other any more"
	case plan.Move == work.MoveRestart && able[0].pool.queue.Len() > 0:
		return nil, nil, "others wait by now"
	case plan.Move == work.MoveRestart && !e.fitsLarger(able[0]):
		return nil, nil, "there is no room for it any more"
	default:
		made = able
	}
	if len(made) == 0 {
		return nil, nil, "it would not make room for the task that waits any more"
	}
	return made, parts, "others are enough"
}

// restart sends a task back to its place in line, asking for another size.
func (e *Engine) restart(t *Task, move work.MoveKind, to *work.Request, why work.Reason) {
	if move != work.MoveAway {
		e.emit(Sized{t.ID, to, t.SizedBy})
	}
	e.close(t.lease, work.Queued, why)
}

// leaves reports whether a task that was restarted for a move still holds what it had: its
// new place is looked for when that is free, as it may be part of it.
func (e *Engine) leaves(t *Task) bool {
	if t.holds == nil || t.State != work.Queued || t.Reason.Code != work.Resized && t.Reason.Code != work.Moved {
		return false
	}
	return !slices.ContainsFunc(t.holds.Parts, func(p *Part) bool { return p.Tries > 0 || !e.cluster.Hosts[p.Host].Up })
}

// freer asks for a pass over a task's pool, if it waits for what it held to be free.
func (e *Engine) freer(t *Task) { t.pool.full = t.pool.full || t.inLine }

// applyPlan applies the facts about announced moves and about sizes.
func (e *Engine) applyPlan(f Fact) {
	switch f := f.(type) {
	case Sized:
		t := e.tasks[f.Task]
		in := t.inLine
		if in {
			t.pool.remove(t)
		}
		if t.Size, t.SizedBy = f.Request, f.By; in {
			t.pool.push(e, t)
			t.pool.full = true
		}
	case Planned:
		t := e.tasks[f.Task]
		t.Plan = &f.Plan
		e.timers.add(f.Plan.At, timerPlan, work.Owner{Task: t.ID, Epoch: t.Epoch})
	case Dropped:
		t := e.tasks[f.Task]
		t.Plan, t.Moved = nil, e.now
	case Resizing:
		e.applyResizing(f)
	case Resized:
		e.applyResized(f.Owner)
	case Parted:
		for pair, old := range e.parted { // order: each by itself
			if old.Until <= e.now {
				delete(e.parted, pair)
			}
		}
		e.parted[f.Pair] = f
	}
}

// applyRestart counts a restart for a resize or a move.
func (e *Engine) applyRestart(l *Lease) {
	t := l.of
	t.Plan = nil
	for _, p := range l.Parts {
		p.To, p.Back = nil, nil // whatever stands, it is freed
	}
	if l.Reason.Code != work.Resized && l.Reason.Code != work.Moved {
		return
	}
	old := func(at work.Time) bool { return at.Add(time.Hour) <= e.now }
	t.Again = append(slices.DeleteFunc(t.Again, old), e.now)
	t.pool.again = append(slices.DeleteFunc(t.pool.again, old), e.now)
	t.Moved, t.Moves = e.now, t.Moves+1
}

// resizeAsked gives a task another size because someone says so, and keeps it: in place
// where that can be, else by a restart. A size of 0 leaves it to the pool again.
func (e *Engine) resizeAsked(ev Resize) error {
	t, err := e.active(ev.Task)
	if err != nil {
		return err
	}
	if ev.Milli == 0 {
		e.emit(Sized{t.ID, t.Size, ""})
		return nil
	}
	to, err := t.Spec.Resized(ev.Milli)
	if err != nil {
		return err
	}
	why := work.Reasonf(work.Resized, "resized to %s by %s", to, ev.By)
	switch {
	case t.State == work.Queued:
		e.emit(Sized{t.ID, &to, ev.By})
	case t.State != work.StateRunning || t.lease == nil || t.lease.Closing:
		return work.Errorf(work.CodeConflict, "task %d is %s: only one that waits or runs can be resized", t.ID, t.State)
	default:
		more := max(0, ev.Milli-milli(t.lease.Parts[0].Slices))
		if s, ok := e.shareOf(t, ev.Milli); ok && e.mayHave(t, more) && (more == 0 || !e.onAiling(t)) {
			e.emit(Sized{t.ID, &to, ev.By})
			e.resize(t, s, why)
			return nil
		}
		if t.Spec.OnResize != work.ResizeRestart {
			return work.Errorf(work.CodeConflict, "task %d cannot have %s where it is, and does not agree to a restart: wait until there is room on its GPU, or submit it with --on-resize restart", t.ID, to)
		}
		e.emit(Sized{t.ID, &to, ev.By})
		e.close(t.lease, work.Queued, why)
	}
	return nil
}
