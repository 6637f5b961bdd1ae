package engine

import (
	"cmp"
	"slices"

	"github.com/gpupool/gpupool/internal/work"
)

// mode of a pool as it is now: as it was set, else as its settings say.
func (p *pool) mode() work.PoolMode { return cmp.Or(p.override, p.Mode) }

// modeFor is the mode in which a pool serves a tenant.
func (p *pool) modeFor(string) work.PoolMode { return p.mode() }

// wants is what a task asks a pool for: what it was resized to, else what it was
// submitted with, as the pool's mode grants it.
func (p *pool) wants(t *Task) work.Request {
	if t.Size != nil {
		return p.grants(t.Spec, *t.Size)
	}
	return p.grants(t.Spec, t.Spec.Request)
}

// grants is a request of a task as a pool's mode grants it.
func (p *pool) grants(s *work.Spec, r work.Request) work.Request {
	switch {
	case p.modeFor(s.Tenant) != work.Dynamic:
		return r.WholeGPUs()
	case s.NoShare && r.IsPart():
		r.Isolation = work.IsolationMIG
	}
	return r
}

// setMode sets the mode of a pool beside its settings.
func (e *Engine) setMode(ev SetMode) error {
	p := e.pools[ev.Pool]
	switch {
	case p == nil:
		return work.Errorf(work.CodeNotFound, "pool %q is not known", ev.Pool)
	case !slices.Contains(work.Modes(), ev.Mode):
		return work.Errorf(work.CodeInvalid, "mode %q is not known: use static or dynamic", ev.Mode)
	case p.mode() != ev.Mode:
		e.emit(ModeSet{Pool: ev.Pool, Mode: ev.Mode, By: ev.By})
	}
	return nil
}

// applyMode leaves what is parked as it is: it goes on when it is woken.
func (e *Engine) applyMode(f ModeSet) {
	p := e.pools[f.Pool]
	was := p.mode()
	p.override = f.Mode
	if (was == work.Dynamic) != (f.Mode == work.Dynamic) {
		e.requeue(p)
	}
	p.full, p.stirred = true, true
}

// handleMove takes the events about what tasks use, and about those that are suspended.
func (e *Engine) handleMove(ev Event) error {
	switch ev := ev.(type) {
	case Usage:
		e.usage(ev.Samples)
	case *Usage:
		e.usage(ev.Samples)
	case Wake:
		return e.wakeTask(ev)
	case Park:
		return e.parkAsked(ev)
	case SuspendDone:
		e.suspendDone(ev.Owner)
	case SuspendFailed:
		e.suspendFailed(ev)
	case ResumeDone:
		e.resumeDone(ev.Owner)
	case ResumeFailed:
		e.resumeFailed(ev)
	case ResizeDone:
		e.resizeDone(ev)
	case ResizeFailed:
		e.resizeFailed(ev)
	case Resize:
		return e.resizeAsked(ev)
	case SetMode:
		return e.setMode(ev)
	}
	return nil
}
