package engine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpupool/gpupool/internal/elastic"
	"github.com/gpupool/gpupool/internal/work"
)

// mode of a pool as it is now: as it was set, else as its settings say.
func (p *pool) mode() work.PoolMode { return cmp.Or(p.override, p.Mode) }

// modeFor is the mode in which a pool serves a tenant.
func (p *pool) modeFor(tenant string) work.PoolMode { return cmp.Or(p.byTenant[tenant], p.mode()) }

// isDynamic reports whether a pool is dynamic for anyone.
func (p *pool) isDynamic() bool {
	if p.mode() == work.Dynamic {
		return true
	}
	for _, m := range p.byTenant { // order: only a yes or no comes out
		if m == work.Dynamic {
			return true
		}
	}
	return false
}

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
	if p.modeFor(s.Tenant) != work.Dynamic {
		return r.WholeGPUs()
	}
	return dynamically(s, r)
}

// dynamically is a request of a task as a dynamic pool grants it.
func dynamically(s *work.Spec, r work.Request) work.Request {
	if s.NoShare && r.IsPart() {
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
		return work.Errorf(work.CodeInvalid, "mode %q is not known: use static, shadow or dynamic", ev.Mode)
	}
	e.rolloutOverruled(p, fmt.Sprintf("%s set pool %s to %s", ev.By, p.Name, ev.Mode))
	if p.mode() != ev.Mode || len(p.byTenant) > 0 {
		e.emit(ModeSet{Pool: ev.Pool, Mode: ev.Mode, By: ev.By})
	}
	return nil
}

// applyMode leaves what is parked as it is: it goes on when it is woken. A mode for all of
// a pool is for every tenant.
func (e *Engine) applyMode(f ModeSet) {
	p := e.pools[f.Pool]
	switch {
	case f.Tenant == "":
		p.override, p.byTenant = f.Mode, nil
		p.guard.change = &ModeChange{e.now, f.By, f.Reason, f.Log}
		if f.By == ByGuard {
			p.guard.falls++
		}
	case f.Mode == "":
		delete(p.byTenant, f.Tenant)
		if len(p.byTenant) == 0 {
			p.byTenant = nil // as it is in a restored snapshot
		}
	default:
		if p.byTenant == nil {
			p.byTenant = map[string]work.PoolMode{}
		}
		p.byTenant[f.Tenant] = f.Mode
	}
	e.otherMode(p)
}

// otherMode has everyone ask a pool anew, which serves some of them in another mode. What
// it moved before that says nothing.
func (e *Engine) otherMode(p *pool) {
	p.recount(e.now)
	e.reshade(p)
	e.requeue(p)
	p.full, p.stirred = true, true
}

// forgetModes drops what was set beside a pool's settings, if whoever changed those wants
// another mode.
func (e *Engine) forgetModes(old *pool, p work.Pool) {
	if old.Mode != p.Mode {
		old.override, old.byTenant, old.guard.change = "", nil, nil
	}
	if old.Mode != p.Mode || elastic.GuardOf(old.Elastic.Guard) != elastic.GuardOf(p.Elastic.Guard) {
		old.recount(e.now)
	}
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
	case StartRollout:
		return e.startRollout(ev)
	case StopRollout:
		return e.stopRollout(ev)
	}
	return nil
}
