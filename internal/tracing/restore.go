package tracing

import (
	"cmp"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/work"
)

// restore works out from the engine what every task goes through, as after a restart.
// Where the engine does not know when that began, the span begins when the server did
// something with the task last, and says so.
func (w *watcher) restore() {
	w.lives = map[work.TaskID]*life{}
	w.feed.Read(func(e *engine.Engine) {
		w.loaded = e.Now()
		for _, t := range e.Tasks() {
			if l := w.t.newLife(t.ID, t.Spec, t.Submitted); l.sampled && !t.State.Terminal() {
				l.epoch = t.Epoch
				if t.Array != 0 {
					l.root.attrs = append(l.root.attrs, number("gpupool.array", int64(t.Array)), number("gpupool.array.index", int64(t.Index)))
				}
				l.root.event(w.loaded, "followed again", text("gpupool.state", string(t.State)))
				w.lives[t.ID] = l
				if t.State == work.Queued {
					l.begin(t.Queued, "queue")
				}
			}
		}
		for _, x := range e.Leases() {
			t := e.Task(x.Task)
			l := w.lives[x.Task]
			switch {
			case l == nil && (t == nil || !w.t.ids.of(t.ID, t.Spec.Trace).sampled):
				continue
			case l == nil: // it has ended, and is not free yet
				l = w.t.newLife(t.ID, t.Spec, t.Submitted)
				l.root.id, l.epoch = nil, t.Epoch
				w.lives[t.ID] = l
			}
			l.restore(t, x, w.loaded)
		}
	})
}

// restore is what a task that holds something goes through.
func (l *life) restore(t *engine.Task, x *engine.Lease, now work.Time) {
	left, uncut := 0, map[int]bool{}
	for i, p := range x.Parts {
		if p.Phase != engine.PhaseFreed {
			left++
		}
		if p.Phase == engine.PhaseCarving {
			uncut[i] = true
		}
	}
	if x.Closing {
		l.frees[x.Epoch] = &freeing{left: left}
	}
	if x.Settled {
		l.frees[x.Epoch].phase = &phase{name: "free", id: l.t.ids.span(l.id, x.Epoch, "free", 0), begun: cmp.Or(t.Ended, t.Queued), epoch: x.Epoch}
		if left == 0 {
			delete(l.frees, x.Epoch)
		}
		return
	}
	l.parts, l.uncut, l.again, l.awake = len(x.Parts), uncut, x.Runs != 0, t.Awake
	l.ran[x.Epoch] = t.Started >= x.Since // its run is begun below, or is over
	guess := cmp.Or(max(t.Moved, x.Since), now)
	switch p := x.Parts[0]; {
	case x.Closing && t.State != work.Yielding:
		l.begin(guess, "stop", text("gpupool.begun", "not before"))
	case x.Closing:
		l.begin(guess, "yield", text("gpupool.begun", "not before"))
	case len(uncut) > 0:
		l.begin(x.Since, "carve")
	case p.Phase == engine.PhaseSuspending:
		l.begin(t.Moved, "suspend")
	case t.State == work.Parked && p.Phase == engine.PhaseResuming:
		l.begin(x.Since, "resume", text("gpupool.begun", "not before"))
	case t.State == work.Parked && t.Awake:
		l.begin(t.Queued, "wake")
	case t.State == work.Parked:
		l.begin(guess, "parked", text("gpupool.begun", "not before"))
	case t.State == work.StateRunning:
		l.ran[x.Epoch] = false
		l.begin(t.Started, "run")
	case l.spec.External():
		l.begin(x.Since, "carve")
	default:
		l.begin(x.Since, "start", text("gpupool.begun", "not before"))
	}
	if x.Parts[0].To != nil {
		l.size = &phase{name: "resize", id: l.t.ids.span(l.id, x.Epoch, "resize", t.Moved), begun: t.Moved, epoch: x.Epoch}
	}
}
