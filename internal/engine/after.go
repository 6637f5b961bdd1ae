package engine

import (
	"slices"

	"github.com/gpupool/gpupool/internal/work"
)

// array is what is known of the tasks of an array.
type array struct {
	tasks   []work.TaskID // kept ones, in order
	size    int
	limit   int // that hold something at most; 0 = any number
	running int // that hold something
}

// back reports whether a queued task is kept out of line: held, or after others.
func (t *Task) back() bool { return t.Held || t.Awaits > 0 }

// awaited lists the tasks that must end before t may be placed: of an array, named by
// its first task, all.
func (e *Engine) awaited(t *Task) []work.TaskID {
	var out []work.TaskID
	for _, id := range slices.Concat(t.Spec.After, t.Spec.AfterAny) {
		if a := e.arrays[id]; a != nil {
			out = append(out, a.tasks...)
		} else {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// await counts what a new task waits for, and notes it there.
func (e *Engine) await(t *Task) {
	t.Awaits = 0
	for _, id := range e.awaited(t) {
		if o := e.tasks[id]; o != nil && !o.State.Terminal() {
			t.Awaits++
			e.after[id] = append(e.after[id], t.ID)
		}
	}
}

// endedFor tells those who wait for a task that it has ended.
func (e *Engine) endedFor(t *Task) {
	for _, id := range e.after[t.ID] {
		o := e.tasks[id]
		if o == nil || o.State != work.Queued {
			continue
		}
		if t.State != work.Succeeded && e.mustSucceed(o, t) {
			e.orphans = append(e.orphans, id)
		}
		if o.Awaits--; !o.back() {
			e.join(o)
		}
	}
	delete(e.after, t.ID)
}

// mustSucceed reports whether o comes after the success of t, not only after its end.
func (e *Engine) mustSucceed(o, t *Task) bool {
	return slices.Contains(o.Spec.After, t.ID) || t.Array != 0 && slices.Contains(o.Spec.After, t.Array)
}

// join puts a task into line that was kept back: its age counts from now.
func (e *Engine) join(t *Task) {
	t.Since, t.Queued = e.now, e.now
	t.pool.push(e, t)
	t.pool.added = append(t.pool.added, t.ID)
	e.startTTL(t)
}

// cancelOrphans cancels tasks that come after one that did not succeed, and in turn
// those that come after them.
func (e *Engine) cancelOrphans() {
	for len(e.orphans) > 0 {
		id := e.orphans[0]
		e.orphans = e.orphans[1:]
		t := e.tasks[id]
		if t == nil || t.State != work.Queued {
			continue
		}
		for _, on := range e.awaited(t) {
			if o := e.tasks[on]; o != nil && o.State.Terminal() && o.State != work.Succeeded && e.mustSucceed(t, o) {
				e.emit(Became{t.ID, work.StateCancel, work.Reasonf(work.AfterFailed, "it comes after task %d, which is %s: %s", on, o.State, o.Reason.Msg)})
				break
			}
		}
	}
}

// whyBack says why a task is kept out of line.
func (e *Engine) whyBack(t *Task) work.Reason {
	if t.Held {
		return work.Reasonf(work.WaitHeld, "it is held until someone releases it: gpupool release %d", t.ID)
	}
	var left []work.TaskID
	for _, id := range e.awaited(t) {
		if o := e.tasks[id]; o != nil && !o.State.Terminal() {
			left = append(left, id)
		}
	}
	return work.Reasonf(work.WaitAfter, "it comes after %s", taskList(left, e.owns(t)))
}

// hold keeps a waiting task back, or lets it go on.
func (e *Engine) hold(h Hold) error {
	t, err := e.active(h.Task)
	switch {
	case err != nil:
		return err
	case t.State != work.Queued:
		return work.Errorf(work.CodeConflict, "task %d is %s: only a task that waits can be held or released", t.ID, t.State)
	case t.Held != h.On:
		e.emit(Held{t.ID, h.On, h.By})
	}
	return nil
}

func (e *Engine) applyHeld(f Held) {
	t := e.tasks[f.Task]
	t.Held = f.On
	if f.On {
		e.leave(t)
	} else if !t.back() {
		e.join(t)
	}
}

// checkAfter refuses tasks to wait for that are not known, or not the tenant's.
func (e *Engine) checkAfter(s *work.Spec) error {
	for _, id := range slices.Concat(s.After, s.AfterAny) {
		o := e.tasks[id]
		if o == nil || o.Spec.Tenant != s.Tenant {
			return work.Errorf(work.CodeNotFound, "task %d, which this one should come after, is not known; ended tasks are forgotten after a while", id)
		}
	}
	for _, id := range s.After {
		ids := []work.TaskID{id}
		if a := e.arrays[id]; a != nil {
			ids = a.tasks
		}
		for _, id := range ids {
			if o := e.tasks[id]; o != nil && o.State.Terminal() && o.State != work.Succeeded {
				return work.Errorf(work.CodeConflict, "task %d, which this one should come after, has ended already and is %s: use after-any to run all the same", id, o.State)
			}
		}
	}
	return nil
}
