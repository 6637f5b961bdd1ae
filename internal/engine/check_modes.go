package engine

import (
	"fmt"
	"slices"

	"github.com/gpupool/gpupool/internal/elastic"
)

// checkGuards: what a guard takes for granted of its pool is so.
func (e *Engine) checkGuards() error {
	active, woken := map[*pool]int{}, map[*pool]int{}
	for _, t := range e.tasks { // order: sums
		if t.lease != nil {
			active[t.pool]++
		}
		if wasParked(t) {
			woken[t.pool]++
		}
	}
	for _, p := range e.lines {
		j := &p.guard.jitter
		if j.Active != active[p] || j.Woken != woken[p] {
			return fmt.Errorf("the guard of pool %s counts %d tasks, %d of them woken, there are %d and %d", p.Name, j.Active, j.Woken, active[p], woken[p])
		}
		if len(p.guard.notes) > mostNotes || j.At > e.now {
			return fmt.Errorf("the guard of pool %s keeps %d moves up to %d, and it is %d", p.Name, len(p.guard.notes), j.At, e.now)
		}
	}
	return nil
}

// checkShadows: the shadow of a pool is what comes out if its tasks are counted from scratch.
func (e *Engine) checkShadows() error {
	type sums struct{ held, need, busy, pending int }
	all := map[*pool]*sums{}
	for _, p := range e.lines {
		all[p] = &sums{}
		if !slices.IsSortedFunc(p.shadow.pending, lending.compare) || p.shadow.tally.At > e.now {
			return fmt.Errorf("the shadow of pool %s is out of order", p.Name)
		}
	}
	for _, t := range e.tasks { // order: sums
		x, s := all[t.pool], t.Shade
		if counted := shaded(t) && t.Spec.Request.GPUs > 0; counted && s.Milli == 0 || s.Milli > 0 && !shaded(t) {
			return fmt.Errorf("task %d is in the shadow of pool %s with %d thousandths, and should be: %v", t.ID, t.pool.Name, s.Milli, counted)
		}
		if idle := t.Use.Kind == elastic.Idle && e.mayLend(t); s.Milli > 0 && idle != (s.Until != 0) {
			return fmt.Errorf("task %d idles: %v; in the shadow of pool %s: %v", t.ID, idle, t.pool.Name, s.Until != 0)
		}
		x.held += s.Held
		if s.Until == 0 {
			x.busy += s.Milli
		}
		if s.Until == 0 || s.Until > t.pool.shadow.tally.At {
			x.need += s.Milli
		}
		if s.Until > t.pool.shadow.tally.At {
			x.pending++
		}
	}
	for _, p := range e.lines {
		t := &p.shadow.tally
		if got := (sums{t.HeldNow, t.NeedNow, t.BusyNow, len(p.shadow.pending)}); got != *all[p] {
			return fmt.Errorf("the shadow of pool %s has %+v, its tasks come to %+v", p.Name, got, *all[p])
		}
	}
	return nil
}

// checkRollout: what a rollout has on trial, or let pass, is in its mode, and nothing else is.
func (e *Engine) checkRollout() error {
	r := e.rolling()
	if r == nil {
		return nil
	}
	for i, s := range r.Steps {
		p := e.pools[s.Pool]
		is := p.override
		if s.Tenant != "" {
			is = p.byTenant[s.Tenant]
		}
		if want := s.Was; i > r.At && is != want || i <= r.At && is != r.Mode {
			return fmt.Errorf("rollout of %s at step %d: %s is set to %q, it was %q", r.Mode, r.At, s, is, s.Was)
		}
	}
	return nil
}

// checkBack: what is said to be rolled back is as it was before, but where the guard has
// just set another mode.
func (e *Engine) checkBack(f RolloutEnded) error {
	r := e.rollout
	if f.How != RolloutBack {
		return nil
	}
	for _, s := range r.Steps[:r.At+1] {
		p := e.pools[s.Pool]
		is := p.override
		if s.Tenant != "" {
			is = p.byTenant[s.Tenant]
		}
		if c := p.guard.change; is != s.Was && !(c != nil && c.By == ByGuard) {
			return fmt.Errorf("the rollout of %s was rolled back, and %s is set to %q, it was %q", r.Mode, s, is, s.Was)
		}
	}
	return nil
}
