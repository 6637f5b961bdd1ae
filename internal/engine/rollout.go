package engine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

// A rollout gives pools, or tenants of one pool, another mode, one after the other. Before
// each it measures for a while how those are served as they are, then for as long as it is
// on trial. One that is worse than before takes back everything that the rollout changed.

// Rollout is one, and where it stands.
type Rollout struct {
	By    string        `json:"by"`
	Begun work.Time     `json:"begun"`
	Mode  work.PoolMode `json:"mode"`  // that they are given
	For   time.Duration `json:"for"`   // of each baseline and each trial
	Waits float64       `json:"waits"` // times the mean wait before that are allowed
	Fails float64       `json:"fails"` // more of the tasks that end which may fail, as a share
	Steps []RolloutStep `json:"steps"`
	At    int           `json:"at"`              // the step on trial; -1 = none yet
	Until work.Time     `json:"until,omitempty"` // of this phase; 0 = it is over
	Ended work.Time     `json:"ended,omitempty"`
	How   RolloutEnd    `json:"how,omitempty"`
	Why   string        `json:"why,omitempty"`
}

// RolloutStep is a pool, or a tenant of a pool, that is given another mode.
type RolloutStep struct {
	Pool     string        `json:"pool"`
	Tenant   string        `json:"tenant,omitempty"`
	Was      work.PoolMode `json:"was,omitempty"` // set beside its settings before; "" = nothing
	Baseline Measure       `json:"baseline,omitzero"`
	Trial    Measure       `json:"trial,omitzero"`
}

// Measure is how tasks were served in a time.
type Measure struct {
	Waits  int           `json:"waits,omitempty"`  // tasks that were placed, or were in line at the end
	Waited time.Duration `json:"waited,omitempty"` // in line within that time, of all those
	Ended  int           `json:"ended,omitempty"`  // but for those that were cancelled
	Failed int           `json:"failed,omitempty"` // or expired
}

// Mean is the mean wait.
func (m Measure) Mean() time.Duration { return m.Waited / time.Duration(max(m.Waits, 1)) }

func (m Measure) failures() float64 { return float64(m.Failed) / float64(max(m.Ended, 1)) }

// RolloutEnd is how a rollout ended.
type RolloutEnd string

// The ends of a rollout.
const (
	RolloutPassed  RolloutEnd = "passed"      // every step
	RolloutBack    RolloutEnd = "rolled_back" // what it changed is as it was
	RolloutStopped RolloutEnd = "stopped"     // by someone, who keeps what it changed
)

type (
	// RolloutBegan states that a rollout begins, with the baseline of its first step.
	RolloutBegan struct {
		Rollout Rollout `json:"rollout"`
	}
	// RolloutStepped states that a step goes on trial, what was measured before, and what
	// was measured of the step before, which passed.
	RolloutStepped struct {
		Step     int       `json:"step"`
		Until    work.Time `json:"until"`
		Baseline Measure   `json:"baseline"`
		Passed   Measure   `json:"passed,omitzero"`
	}
	// RolloutEnded states how a rollout ended, and what was measured of its last step.
	RolloutEnded struct {
		How   RolloutEnd `json:"how"`
		Why   string     `json:"why"`
		Trial Measure    `json:"trial,omitzero"`
	}
)

func (RolloutBegan) Kind() string   { return "rollout.began" } // see PoolSet.Kind
func (RolloutStepped) Kind() string { return "rollout.step" }  // see PoolSet.Kind
func (RolloutEnded) Kind() string   { return "rollout.ended" } // see PoolSet.Kind

type (
	// StartRollout begins one. Without tenants each pool is a step; with tenants each of
	// those is, in the one pool. Zero values mean the defaults.
	StartRollout struct {
		Pools   []string
		Tenants []string
		Mode    work.PoolMode // default dynamic
		For     time.Duration // default 1 h
		Waits   float64       // times the mean wait before, at most; default 1.2
		Fails   float64       // more of the ended tasks that fail, at most; default 0.05
		By      string
	}
	// StopRollout ends it; what it changed is as it was before, or is kept.
	StopRollout struct {
		Keep bool
		By   string
	}
)

func (StartRollout) event() {}
func (StopRollout) event()  {}

// Of the bounds of a rollout.
const (
	waitSlack  = 10 * time.Second // over the mean wait before, however short that was
	leastEnded = 5                // tasks under which a share of failures says nothing
	leastTrial = time.Minute
)

// Rollout is the one that goes on, else the last, or nil.
func (e *Engine) Rollout() *Rollout { return e.rollout }

// rolling returns the rollout that goes on, or nil.
func (e *Engine) rolling() *Rollout {
	if r := e.rollout; r != nil && r.Until != 0 {
		return r
	}
	return nil
}

func (e *Engine) startRollout(ev StartRollout) error {
	r := Rollout{By: ev.By, Begun: e.now, Mode: cmp.Or(ev.Mode, work.Dynamic), For: cmp.Or(ev.For, time.Hour), Waits: cmp.Or(ev.Waits, 1.2), Fails: cmp.Or(ev.Fails, 0.05), At: -1}
	r.Until = e.now.Add(r.For)
	switch {
	case e.rolling() != nil:
		return work.Errorf(work.CodeConflict, "a rollout goes on, begun by %s: wait for its end, or gpupool rollout stop", e.rollout.By)
	case r.Mode != work.Dynamic && r.Mode != work.Shadow:
		return work.Errorf(work.CodeInvalid, "mode %q cannot be rolled out: use dynamic or shadow; gpupool pools set-mode sets static at once", r.Mode)
	case r.For < leastTrial:
		return work.Errorf(work.CodeInvalid, "steps of %s are too short to tell anything: give %s or more", r.For, leastTrial)
	case !(r.Waits >= 1) || !(r.Fails >= 0 && r.Fails <= 1):
		return work.Errorf(work.CodeInvalid, "expected a ratio of waits of 1 or more and a share of failures from 0 to 1, got %g and %g", r.Waits, r.Fails)
	case len(ev.Pools) == 0:
		return work.Errorf(work.CodeInvalid, "a rollout needs pools: name one or more")
	case len(ev.Tenants) > 0 && len(ev.Pools) != 1:
		return work.Errorf(work.CodeInvalid, "tenants are of one pool: got %d pools, name one", len(ev.Pools))
	}
	for _, name := range ev.Pools {
		if len(ev.Tenants) == 0 {
			r.Steps = append(r.Steps, RolloutStep{Pool: name})
		}
		for _, tenant := range ev.Tenants {
			r.Steps = append(r.Steps, RolloutStep{Pool: name, Tenant: tenant})
		}
	}
	for i := range r.Steps {
		if err := e.checkStep(&r, i); err != nil {
			return err
		}
	}
	e.emit(RolloutBegan{r})
	return nil
}

// checkStep checks a step and notes what was before it.
func (e *Engine) checkStep(r *Rollout, i int) error {
	s := &r.Steps[i]
	p := e.pools[s.Pool]
	switch {
	case p == nil:
		return work.Errorf(work.CodeNotFound, "pool %q is not known", s.Pool)
	case s.Tenant != "" && e.tenants[s.Tenant] == nil:
		return work.Errorf(work.CodeNotFound, "tenant %q is not known", s.Tenant)
	case slices.ContainsFunc(r.Steps[:i], func(x RolloutStep) bool { return x.Pool == s.Pool && x.Tenant == s.Tenant }):
		return work.Errorf(work.CodeInvalid, "%s is named twice", s)
	case p.modeFor(s.Tenant) == r.Mode:
		return work.Errorf(work.CodeConflict, "%s is %s already", s, r.Mode)
	case s.Tenant == "" && len(p.byTenant) > 0:
		return work.Errorf(work.CodeConflict, "pool %s serves some tenants in a mode of their own: set its mode first, which is for all of them (gpupool pools set-mode)", p.Name)
	}
	if s.Was = p.override; s.Tenant != "" {
		s.Was = p.byTenant[s.Tenant]
	}
	return nil
}

func (s RolloutStep) String() string {
	if s.Tenant != "" {
		return "tenant " + s.Tenant + " of pool " + s.Pool
	}
	return "pool " + s.Pool
}

func (e *Engine) stopRollout(ev StopRollout) error {
	r := e.rolling()
	switch {
	case r == nil:
		return work.Errorf(work.CodeConflict, "no rollout goes on")
	case ev.Keep:
		e.emit(RolloutEnded{RolloutStopped, "stopped by " + ev.By + ", who keeps what it changed", e.measured(r, r.At, false)})
	default:
		e.rollBack("stopped by "+ev.By, "")
	}
	return nil
}

// rolloutDue looks at the step on trial, whose time is over, and goes on or back.
func (e *Engine) rolloutDue() {
	r := e.rollout
	passed := e.measured(r, r.At, false)
	if r.At >= 0 {
		if why := r.worse(r.Steps[r.At], passed); why != "" {
			e.rollBack(why, "")
			return
		}
	}
	next := r.At + 1
	if next == len(r.Steps) {
		e.emit(RolloutEnded{RolloutPassed, fmt.Sprintf("all %d steps passed", next), passed})
		return
	}
	e.emit(RolloutStepped{next, e.now.Add(r.For), e.measured(r, next, true), passed})
	s := r.Steps[next]
	e.emit(ModeSet{Pool: s.Pool, Tenant: s.Tenant, Mode: r.Mode, By: byRollout, Reason: fmt.Sprintf("step %d of %d of the rollout that %s began", next+1, len(r.Steps), r.By)})
}

// worse says which bound a step on trial passed, or nothing.
func (r *Rollout) worse(s RolloutStep, m Measure) string {
	most := time.Duration(r.Waits*float64(s.Baseline.Mean())) + waitSlack
	share := s.Baseline.failures() + r.Fails
	switch {
	case m.Waits > 0 && m.Mean() > most:
		return fmt.Sprintf("%s: tasks waited %s on average, at most %s was allowed (%g times the %s before, and %s)", s, inSeconds(m.Mean()), inSeconds(most), r.Waits, inSeconds(s.Baseline.Mean()), waitSlack)
	case m.Ended >= leastEnded && m.failures() > share:
		return fmt.Sprintf("%s: %d of %d tasks that ended failed, at most %.3g %% was allowed (%d of %d before, and %.3g points)", s, m.Failed, m.Ended, 100*share, s.Baseline.Failed, s.Baseline.Ended, 100*r.Fails)
	}
	return ""
}

// rollBack gives back what the rollout changed the mode that it had, but for a pool that
// something else has just set.
func (e *Engine) rollBack(why, except string) {
	r := e.rollout
	trial := e.measured(r, r.At, false)
	for i := r.At; i >= 0; i-- {
		if s := r.Steps[i]; s.Pool != except {
			e.emit(ModeSet{Pool: s.Pool, Tenant: s.Tenant, Mode: s.Was, By: byRollout, Reason: "rolled back: " + why})
		}
	}
	e.emit(RolloutEnded{RolloutBack, why, trial})
}

// rolloutGuarded rolls back if the guard set a pool of the rollout.
func (e *Engine) rolloutGuarded(p *pool, why string) {
	if r := e.rolling(); r != nil && slices.ContainsFunc(r.Steps, func(s RolloutStep) bool { return s.Pool == p.Name }) {
		e.rollBack(fmt.Sprintf("the guard of pool %s: %s", p.Name, why), p.Name)
	}
}

// rolloutOverruled rolls back if someone else sets the mode of a pool of the rollout.
func (e *Engine) rolloutOverruled(p *pool, why string) {
	if r := e.rolling(); r != nil && slices.ContainsFunc(r.Steps, func(s RolloutStep) bool { return s.Pool == p.Name }) {
		e.rollBack(why, "")
	}
}

// measured is what was measured of a step, with those who are still in line.
func (e *Engine) measured(r *Rollout, step int, baseline bool) Measure {
	if step < 0 || step >= len(r.Steps) {
		return Measure{}
	}
	s := r.Steps[step]
	m := s.Trial
	if baseline {
		m = s.Baseline
	}
	for _, t := range e.tasks { // order: sums
		if t.State == work.Queued && t.inLine && s.about(t) {
			m.Waits++
			m.Waited += r.waited(t, e.now)
		}
	}
	return m
}

// waited is how long a task has waited in this phase: one that waits all along must not make
// each phase look worse than the one before.
func (r *Rollout) waited(t *Task, now work.Time) time.Duration {
	return now.Sub(max(t.Queued, r.Until.Add(-r.For)))
}

func (s RolloutStep) about(t *Task) bool {
	return s.Pool == t.pool.Name && (s.Tenant == "" || s.Tenant == t.Spec.Tenant)
}

// watchRollout counts what a fact says of the step on trial and of the next one's baseline,
// before it is applied.
func (e *Engine) watchRollout(f Fact) {
	r := e.rolling()
	if r == nil {
		return
	}
	var m Measure
	var t *Task
	switch f := f.(type) {
	case Placed:
		if t = e.tasks[f.Task]; f.Runs != 0 {
			return // of waking: that is the guard's
		}
		m = Measure{Waits: 1, Waited: r.waited(t, e.now)}
	case Became:
		if t = e.tasks[f.Task]; !f.State.Terminal() || f.State == work.StateCancel {
			return
		}
		if m.Ended = 1; f.State != work.Succeeded {
			m.Failed = 1
		}
	default:
		return
	}
	if r.At >= 0 && r.Steps[r.At].about(t) {
		r.Steps[r.At].Trial.add(m)
	}
	if next := r.At + 1; next < len(r.Steps) && r.Steps[next].about(t) {
		r.Steps[next].Baseline.add(m)
	}
}

func (m *Measure) add(x Measure) {
	m.Waits += x.Waits
	m.Waited += x.Waited
	m.Ended += x.Ended
	m.Failed += x.Failed
}

// applyRollout applies the facts about rollouts.
func (e *Engine) applyRollout(f Fact) {
	switch f := f.(type) {
	case RolloutBegan:
		r := f.Rollout
		r.Steps = slices.Clone(r.Steps)
		e.rollout = &r
		e.watchPhase()
	case RolloutStepped:
		r := e.rollout
		if r.At >= 0 {
			r.Steps[r.At].Trial = f.Passed
		}
		r.At, r.Until = f.Step, f.Until
		r.Steps[r.At].Baseline = f.Baseline
		e.watchPhase()
	case RolloutEnded:
		r := e.rollout
		if r.At >= 0 {
			r.Steps[r.At].Trial = f.Trial
		}
		r.Until, r.Ended, r.How, r.Why = 0, e.now, f.How, f.Why
	}
}

func (e *Engine) watchPhase() {
	if r := e.rolling(); r != nil {
		e.timers.add(r.Until, timerRollout, work.Owner{})
	}
}
