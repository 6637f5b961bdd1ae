package engine

import (
	"cmp"
	"slices"

	"github.com/gpupool/gpupool/internal/elastic"
	"github.com/gpupool/gpupool/internal/work"
)

// The shadow of a pool that is not dynamic: what it would hold if it were. A task counts
// with what it asks for while it is not judged idle, until it has idled for as long as
// parking and waking it takes, and while it would be suspended; then with nothing, if it
// is one that may be parked; and again from when it is judged to be used, and for as long
// as it would have taken to resume it. These are all times in which a dynamic pool could
// not give its GPUs to another.
//
// It is kept in static pools too, as it costs little: then a pool can be asked what it
// would save before anyone sets a mode.

// Shade is a task in the shadow of its pool.
type Shade struct {
	Milli int       `json:"milli,omitempty"` // what it would hold; 0 = it is not counted
	Held  int       `json:"held,omitempty"`  // what it holds
	Until work.Time `json:"until,omitempty"` // when it idles: up to then, and it is lent from then on
	Woken bool      `json:"woken,omitempty"` // it had been lent before
	Told  bool      `json:"told,omitempty"`  // that it is lent: a fact of shadow mode
}

// lending is a task that will be lent.
type lending struct {
	at work.Time
	t  *Task
}

func (a lending) compare(b lending) int {
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.t.ID, b.t.ID))
}

// shadowState is what a pool keeps of its shadow.
type shadowState struct {
	tally   elastic.Tally
	pending []lending // in order
}

// pass lets time go by in a pool's shadow.
func (s *shadowState) pass(now work.Time) {
	n := 0
	for ; n < len(s.pending) && s.pending[n].at <= now; n++ {
		x := s.pending[n]
		s.tally.Pass(x.at)
		s.tally.NeedNow -= x.t.Shade.Milli
		s.tally.Parks++
	}
	s.pending = slices.Delete(s.pending, 0, n)
	s.tally.Pass(now)
}

// lent reports whether a task would be parked, as far as its pool's shadow has come.
func (s *shadowState) lent(t *Task) bool {
	return t.Shade.Until != 0 && t.Shade.Until <= s.tally.At
}

// shaded reports whether a task is counted in the shadow of its pool.
func shaded(t *Task) bool {
	return t.lease != nil && t.State != work.Parked && t.pool.modeFor(t.Spec.Tenant) != work.Dynamic
}

// mayLend reports whether a task would be parked if its pool were dynamic and it idled.
func (e *Engine) mayLend(t *Task) bool {
	r := t.Spec.Request
	return r.GPUs > 0 && r.Count() == 1 && !t.Spec.External() && e.onIdle(t) == work.IdlePark && !e.exempt(t)
}

// shade brings a task's place in the shadow of its pool up to date.
func (e *Engine) shade(t *Task) {
	s := &t.pool.shadow
	s.pass(e.now)
	in := t.Shade.Milli > 0
	if want := shaded(t); want != in {
		if want {
			e.enterShade(t)
		} else {
			e.leaveShade(t)
		}
	}
	if t.Shade.Milli > 0 {
		e.shadeIdle(t)
	}
}

func (e *Engine) enterShade(t *Task) {
	r := t.Spec.Request
	if t.Size != nil {
		r = *t.Size
	}
	t.Shade = Shade{Milli: e.cluster.LeastMilli(t.pool.Name, dynamically(t.Spec, r))}
	if t.Shade.Milli == 0 {
		return // it asks for no GPU
	}
	for _, p := range t.lease.Parts {
		t.Shade.Held += p.Milli()
	}
	tally := &t.pool.shadow.tally
	tally.HeldNow += t.Shade.Held
	tally.NeedNow += t.Shade.Milli
	tally.BusyNow += t.Shade.Milli
}

func (e *Engine) leaveShade(t *Task) {
	s := &t.pool.shadow
	s.tally.HeldNow -= t.Shade.Held
	if !s.lent(t) {
		s.tally.NeedNow -= t.Shade.Milli
	}
	if t.Shade.Until == 0 {
		s.tally.BusyNow -= t.Shade.Milli
	}
	s.drop(t)
	t.Shade = Shade{}
}

func (s *shadowState) drop(t *Task) {
	if i, is := slices.BinarySearchFunc(s.pending, lending{t.Shade.Until, t}, lending.compare); is {
		s.pending = slices.Delete(s.pending, i, i+1)
	}
}

// shadeIdle lends a task that idles when its time has come, and takes it back.
func (e *Engine) shadeIdle(t *Task) {
	s := &t.pool.shadow
	idle := t.Use.Kind == elastic.Idle && e.mayLend(t)
	switch lent := s.lent(t); {
	case !idle && t.Shade.Until == 0 || idle && lent:
	case !idle:
		s.drop(t)
		s.tally.BusyNow += t.Shade.Milli
		t.Shade.Until, t.Shade.Told = 0, false
		if t.Shade.Woken = lent; lent {
			s.tally.NeedNow += t.Shade.Milli
			if t.Use.Kind != elastic.Unknown { // else nobody wants it: nobody knows
				s.tally.Woken()
			}
		}
	default:
		price := elastic.ParkPrice(e.gpuMemory(t))
		until := t.Use.Since.Add(price.Total() + price.Suspend)
		if t.Shade.Woken {
			until = until.Add(price.Resume)
		}
		if t.Shade.Until == 0 {
			s.tally.BusyNow -= t.Shade.Milli
		}
		s.drop(t)
		t.Shade.Until = max(until, e.now+1)
		x := lending{t.Shade.Until, t}
		i, _ := slices.BinarySearchFunc(s.pending, x, lending.compare)
		s.pending = slices.Insert(s.pending, i, x)
	}
}

// reshade counts the shadow of a pool anew, whose mode is another.
func (e *Engine) reshade(p *pool) {
	p.shadow = shadowState{}
	p.shadow.tally.Reset(e.now)
	for _, t := range e.tasks { // order: sums, and what is pending is sorted
		if t.pool == p {
			t.Shade = Shade{}
			e.shade(t)
		}
	}
}

// restoreShade puts a task back where it was in the shadow of its pool, once that is restored.
func (e *Engine) restoreShade(t *Task) {
	if t.Shade.Milli == 0 {
		return
	}
	s := &t.pool.shadow
	s.tally.HeldNow += t.Shade.Held
	if t.Shade.Until == 0 {
		s.tally.BusyNow += t.Shade.Milli
	}
	if !s.lent(t) {
		s.tally.NeedNow += t.Shade.Milli
		if t.Shade.Until != 0 {
			x := lending{t.Shade.Until, t}
			i, _ := slices.BinarySearchFunc(s.pending, x, lending.compare)
			s.pending = slices.Insert(s.pending, i, x)
		}
	}
}

// tellShadow states that a task would be lent now, in a pool in shadow mode.
func (e *Engine) tellShadow(t *Task) {
	if idle := e.now.Sub(t.Use.Since); t.pool.modeFor(t.Spec.Tenant) == work.Shadow && t.Shade.Milli > 0 && !t.Shade.Told &&
		e.mayLend(t) && elastic.WorthParking(idle, e.parkPrice(t)) {
		e.emit(Shadowed{t.ID, work.MovePark, work.Reasonf(work.Idle, "not used for %s%s: in dynamic mode whoever waits would have its GPUs now", inSeconds(idle), loaded(t.Use))})
	}
}

// tellWoken states that it would be woken.
func (e *Engine) tellWoken(t *Task) {
	if t.Shade.Told {
		e.emit(Shadowed{t.ID, work.MoveWake, work.Reasonf(work.Woken, "used again: in dynamic mode it would be woken now, and take %s to go on once it has GPUs", inSeconds(e.parkPrice(t).Resume))})
	}
}

// Shadow is what a pool would have held as a dynamic one, since it was last that, or began.
type Shadow struct {
	elastic.Estimate
	Pool  string
	Mode  work.PoolMode // in force
	Found float64       // share of the wakes that find a GPU at once with Estimate.GPUs
}

// Shadow says what a pool would hold that is not dynamic.
func (e *Engine) Shadow(name string) (Shadow, error) {
	p := e.pools[name]
	switch {
	case p == nil:
		return Shadow{}, work.Errorf(work.CodeNotFound, "pool %q is not known", name)
	case p.mode() == work.Dynamic:
		return Shadow{}, work.Errorf(work.CodeConflict, "pool %s is dynamic: only a static pool, or one in shadow mode, says what it would do", name)
	}
	s := shadowState{p.shadow.tally, slices.Clone(p.shadow.pending)}
	s.pass(e.now)
	return Shadow{s.tally.Estimate(e.now, e.hostSize(name)), name, p.mode(), elastic.Found}, nil
}

// hostSize is how many GPUs most GPUs of a pool are together with in a host.
func (e *Engine) hostSize(pool string) int {
	by := map[int]int{}
	best := 0
	for _, h := range e.cluster.Hosts {
		if n := len(h.GPUs); h.Pool == pool && n > 0 {
			by[n] += n
			if by[n] > by[best] || by[n] == by[best] && n > best {
				best = n
			}
		}
	}
	return best
}
