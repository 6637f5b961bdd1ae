package storm

import (
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/runner"
	"github.com/gpupool/gpupool/internal/work"
)

// truth is what facts say, held against what happened outside.
type truth struct {
	runs      map[epoch]uint32 // the epoch by which the processes of a lease are known
	forgotten map[work.TaskID]bool
	placed    map[epoch]bool         // since nothing fails any more
	newest    map[work.TaskID]uint32 // epoch
	queued    map[work.TaskID]bool
	hosts     []string // by number
	up        map[string]bool
}

type epoch struct {
	task work.TaskID
	n    uint32
}

func newTruth() truth {
	return truth{runs: map[epoch]uint32{}, forgotten: map[work.TaskID]bool{}, placed: map[epoch]bool{}, newest: map[work.TaskID]uint32{}, queued: map[work.TaskID]bool{}, up: map[string]bool{}}
}

// truths checks new facts against what happened, then what was acknowledged.
func (w *world) truths(e *engine.Engine, facts []engine.Fact) error {
	for _, f := range facts {
		if err := w.isTrue(f); err != nil {
			return err
		}
	}
	if w.machines.doubled > 0 {
		return broke("doubled", "%d processes were started at an epoch that had run before", w.machines.doubled)
	}
	return w.known(e)
}

func (w *world) isTrue(f engine.Fact) error {
	switch f := f.(type) {
	case engine.HostJoined:
		w.truth.hosts = append(w.truth.hosts, f.Host.Name)
	case engine.HostChanged:
		w.truth.up[w.truth.hosts[f.Host]] = f.Up
	case engine.Placed:
		w.truth.newest[f.Task] = f.Epoch
		if f.Runs != 0 {
			w.truth.runs[epoch{f.Task, f.Epoch}] = f.Runs
		}
		if w.healed {
			w.truth.placed[epoch{f.Task, f.Epoch}] = true
		}
	case engine.Started:
		if m := w.memberOf(f.Owner); m == nil || m.refused {
			return broke("untrue", "member %s is said to run, and was never started", f.Owner)
		}
	case engine.Exited:
		return w.trueExit(f)
	case engine.Freed:
		if w.stands(f.Owner) {
			return broke("untrue", "%s is said to be freed, and its slices stand", f.Owner)
		}
	case engine.Closing:
		if w.truth.placed[epoch{f.Task, f.Epoch}] {
			switch f.Reason.Code {
			case work.CarveFailed, work.AllocTimeout, work.StartFailed, work.HostLost, work.MoveFailed:
				return broke("stuck", "nothing fails any more, and the lease of task %d at epoch %d closes: %s", f.Task, f.Epoch, f.Reason.Msg)
			}
		}
	case engine.Became:
		waited := w.truth.queued[f.Task] // then its lease was left behind before, perhaps with a host
		w.truth.queued[f.Task] = f.State == work.Queued
		if !waited && (f.State.Terminal() || f.State == work.Queued) {
			return w.trueEnd(f)
		}
	case engine.Forgotten:
		for _, id := range f.Tasks {
			w.truth.forgotten[id] = true
			if r := w.clients.byTask[id]; r != nil && r.first == id {
				r.forgotten = true
			}
		}
	}
	return nil
}

// memberOf is the process of a lease's member, or nil.
func (w *world) memberOf(o work.Owner) *member {
	if runs := w.truth.runs[epoch{o.Task, o.Epoch}]; runs != 0 {
		o.Epoch = runs
	}
	return w.machines.members[runner.ID{Task: uint64(o.Task), Epoch: o.Epoch, Member: o.Member}]
}

// trueExit: a member that is said to have ended has, and as is said.
func (w *world) trueExit(f engine.Exited) error {
	m := w.memberOf(f.Owner)
	switch {
	case f.Exit.Lost != "" && (m == nil || m.refused || m.exit != nil):
		return nil
	case m == nil:
		return broke("untrue", "member %s is said to have ended, and never ran", f.Owner)
	case m.exit == nil:
		return broke("untrue", "member %s is said to have ended, and runs", f.Owner)
	case m.exit.Code != f.Exit.Code || m.exit.Signal != f.Exit.Signal:
		return broke("untrue", "member %s ended with %+v, and is said to have ended with %+v", f.Owner, *m.exit, f.Exit)
	}
	return nil
}

// trueEnd: when a task ends or is in line again, no member of its lease runs on a host that
// the engine sees.
func (w *world) trueEnd(f engine.Became) error {
	o := work.Owner{Task: f.Task, Epoch: w.truth.newest[f.Task]}
	for ; ; o.Member++ {
		m := w.memberOf(o)
		switch {
		case m == nil:
			return nil
		case m.runs() && w.truth.up[m.host]:
			return broke("untrue", "task %d is %s, and its member %s runs on %s", f.Task, f.State, m.owner(), m.host)
		}
	}
}

// stands reports whether the driver has slices for an owner, as far as it can be reached.
func (w *world) stands(o work.Owner) bool {
	for _, p := range w.look().Parts {
		if p.Owner == o {
			return true
		}
	}
	return false
}

// known: every task that was acknowledged is there, as it was submitted, until it has ended
// and is forgotten.
func (w *world) known(e *engine.Engine) error {
	for _, id := range w.clients.tasks {
		r := w.clients.byTask[id]
		switch t := e.Task(id); {
		case t == nil && w.truth.forgotten[id]:
		case t == nil:
			return broke("lost", "task %d was acknowledged, and is not known", id)
		case markOf(t.Spec) != r.mark:
			return broke("lost", "task %d was acknowledged for request %s, and is that of %s", id, r.mark, markOf(t.Spec))
		case t.State.Terminal() && r.cancelled[id] && t.State != work.StateCancel:
			return broke("lost", "the cancellation of task %d was acknowledged, and it is %s", id, t.State)
		}
	}
	return nil
}

// nothingLost checks, once a server has recovered, what was acknowledged, and that no request
// became two tasks.
func (w *world) nothingLost() error {
	e := w.srv.writer.Engine
	if err := w.known(e); err != nil {
		return err
	}
	tasks := map[string]int{}
	for _, t := range e.Tasks() {
		tasks[markOf(t.Spec)]++
	}
	for _, r := range w.clients.requests {
		if n := tasks[r.mark]; n > r.size && r.spec.Key != "" {
			return broke("doubled", "request %s with key %s became %d tasks, and asked for %d", r.mark, r.spec.Key, n, r.size)
		}
	}
	return nil
}
