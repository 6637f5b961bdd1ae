package metrics

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/host"
	"github.com/gpupool/gpupool/internal/work"
)

// tracker follows the facts. It knows the tasks that have not ended and the parts that
// have not been freed, and forgets them then.
type tracker struct {
	m      *Metrics
	at     work.Time
	tasks  map[work.TaskID]*task
	parts  map[work.Owner]*part
	arrays map[work.TaskID][]work.TaskID // by first task: those that have not ended
	after  map[work.TaskID][]*task       // who waits for a task's end
	models []string                      // by GPU
	pools  map[string]*poolSums

	doubted map[int]work.Time // GPU -> until when, after its last failed carve
}

// task is a task that has not ended.
type task struct {
	id               work.TaskID
	spec             *work.Spec
	tenant           string // as it is shown
	array            work.TaskID
	state            work.State
	since            work.Time // it waits in line since then
	waits, held      bool      // it has not been placed; it is kept back by someone
	awaits           int       // tasks that it comes after
	placed, ran      work.Time // when it was placed, and when it last began to run
	total            time.Duration
	epoch            uint32
	awake, asleep    bool          // it was woken; it holds nothing but its sleep
	suspended, woken work.Time     // when that was decided
	move             work.MoveKind // by a restart, that it is in the middle of
	moved            work.Time     // and when it was told so
	plan             work.MoveKind // that is announced
	whole            int           // GPUs that it would hold if it had whole ones for itself
	holdsStatic      bool          // and does
}

// part is slices that stand.
type part struct {
	slices  []work.Slice
	pool    string
	placed  work.Time
	leaving work.Time // should have been free from then on; 0 = it is used
	resized work.Time
	parks   bool // it is being freed because its task is suspended
}

// poolSums is what a pool's tasks add up to.
type poolSums struct {
	static  int           // GPUs
	seconds float64       // of those, up to at
	at      work.Time     //
	waiting [3]waitingSum // by priority; made for each scrape
}

func newTracker(m *Metrics) *tracker {
	return &tracker{m: m, doubted: map[int]work.Time{}, tasks: map[work.TaskID]*task{}, parts: map[work.Owner]*part{}, arrays: map[work.TaskID][]work.TaskID{},
		after: map[work.TaskID][]*task{}, pools: map[string]*poolSums{}}
}

// seed takes over what an engine knows.
func (tr *tracker) seed(e *engine.Engine) {
	tr.at = e.Now()
	for _, p := range e.Pools() {
		tr.begin(p.Name)
	}
	for _, g := range e.GPUs() {
		tr.models = append(tr.models, g.Model)
		tr.m.vecs.carveFailed.WithLabelValues(e.Hosts()[g.Host].Pool, g.Model)
	}
	for _, t := range e.Tasks() {
		if t.State.Terminal() {
			continue
		}
		x := tr.add(t.ID, t.Spec, t.Array)
		x.state, x.since, x.held, x.epoch, x.awake = t.State, t.Queued, t.Held, t.Epoch, t.Awake
		x.ran, x.total = t.Started, t.Ran
		x.waits = t.State == work.Queued
		l := t.Lease()
		if l == nil {
			continue
		}
		x.placed = l.Since
		tr.static(x, true)
		x.asleep = t.State == work.Parked && l.Parts[0].Phase == engine.PhaseParked
		x.waits = x.asleep && x.awake && !l.Closing
	}
	for _, l := range e.Leases() {
		for i, p := range l.Parts {
			if p.Phase == engine.PhaseFreed || len(p.Slices) == 0 {
				continue
			}
			x := &part{slices: p.Slices, pool: e.Hosts()[p.Host].Pool, placed: l.Since, parks: p.Phase == engine.PhaseVacating}
			if l.Closing {
				x.leaving = e.Now()
			}
			tr.parts[work.Owner{Task: l.Task, Epoch: l.Epoch, Member: i}] = x
		}
	}
}

// begin shows a pool's rare counters at 0: one that appears with its first event has not
// increased by Prometheus's reckoning, and no alert would tell of it.
func (tr *tracker) begin(pool string) {
	v := &tr.m.vecs
	v.fallbacks.WithLabelValues(pool)
	v.freeRetries.WithLabelValues(pool)
	v.asked.WithLabelValues(pool)
	for _, move := range []work.MoveKind{work.MovePark, work.MoveWake, work.MoveResize, work.MoveRestart, work.MoveAway} {
		v.moveFailed.WithLabelValues(pool, string(move))
	}
	tr.pool(pool)
}

// add makes a task known.
func (tr *tracker) add(id work.TaskID, s *work.Spec, array work.TaskID) *task {
	t := &task{id: id, spec: s, tenant: tr.m.tenants.name(s.Tenant), array: array, state: work.Queued, waits: true, held: s.Hold}
	whole := s.Request.WholeGPUs()
	t.whole = whole.GPUs * whole.Count()
	tr.tasks[id] = t
	if array != 0 {
		tr.arrays[array] = append(tr.arrays[array], id)
	}
	seen := map[work.TaskID]bool{}
	for _, on := range slices.Concat(s.After, s.AfterAny) {
		ids := []work.TaskID{on}
		if a := tr.arrays[on]; a != nil {
			ids = a
		}
		for _, on := range ids {
			if tr.tasks[on] != nil && on != id && !seen[on] {
				seen[on] = true
				t.awaits++
				tr.after[on] = append(tr.after[on], t)
			}
		}
	}
	return t
}

// pool returns the sums of a pool.
func (tr *tracker) pool(name string) *poolSums {
	p := tr.pools[name]
	if p == nil {
		p = &poolSums{at: tr.at}
		tr.pools[name] = p
	}
	return p
}

// static counts what a task would hold on a site that gives everyone whole GPUs from
// start to end: also while it is suspended.
func (tr *tracker) static(t *task, on bool) {
	if t.holdsStatic == on {
		return
	}
	t.holdsStatic = on
	p := tr.pool(t.spec.Pool)
	p.upTo(tr.at)
	if on {
		p.static += t.whole
	} else {
		p.static -= t.whole
	}
}

func (p *poolSums) upTo(at work.Time) {
	if at > p.at {
		p.seconds += float64(p.static) * at.Sub(p.at).Seconds()
		p.at = at
	}
}

// commit counts what one commit brought.
func (tr *tracker) commit(c *host.Commit) {
	v := &tr.m.vecs
	tr.at = max(tr.at, c.At)
	if c.Asked > 0 {
		v.step.WithLabelValues().Observe(c.Stepped.Seconds() / float64(c.Asked))
	}
	if c.Stored > 0 {
		v.journal.WithLabelValues().Observe(c.Stored.Seconds())
	}
	if c.Unsaved != nil {
		v.unsaved.Inc()
	}
	for _, r := range c.Refused {
		tr.refused(r)
	}
	for i := range c.Events {
		v.facts.WithLabelValues(c.Events[i].Fact.Kind()).Inc()
		tr.fact(c.Events[i].Fact)
	}
}

// refused counts a submission that was refused. Its pool is shown only where there is
// one of that name: it is whatever the caller wrote.
func (tr *tracker) refused(r host.Refusal) {
	var s *work.Spec
	switch ev := r.Event.(type) {
	case engine.Submit:
		s = &ev.Spec
	case *engine.Submit:
		s = &ev.Spec
	default:
		return
	}
	pool := other
	if slices.ContainsFunc(tr.m.view.Pools, func(p engine.PoolView) bool { return p.Name == s.Pool }) {
		pool = s.Pool
	}
	code := work.Code("internal")
	if e, is := errors.AsType[*work.Error](r.Err); is {
		code = e.Code
	}
	tr.m.vecs.rejected.WithLabelValues(pool, string(code)).Inc()
}

func (tr *tracker) fact(f engine.Fact) {
	v := &tr.m.vecs
	switch f := f.(type) {
	case engine.PoolSet:
		tr.begin(f.Pool.Name)
	case engine.HostJoined:
		for _, g := range f.Host.GPUs {
			tr.models = append(tr.models, g.Model)
			v.carveFailed.WithLabelValues(f.Pool, g.Model)
		}
	case engine.HostMoved:
		for _, g := range tr.m.view.GPUs {
			if g.Host == f.Host {
				v.carveFailed.WithLabelValues(f.Pool, g.Model)
			}
		}
	case engine.GPUChanged:
		if f.Strikes > 0 && f.Until > tr.doubted[f.GPU] { // else it is told again for another reason
			tr.doubted[f.GPU] = f.Until
			v.carveFailed.WithLabelValues(tr.poolOf(f.GPU), tr.model(f.GPU)).Inc()
		}
	case engine.Faulted:
		v.faults.WithLabelValues(tr.poolOf(f.GPU), tr.model(f.GPU), f.Code).Inc()
	case engine.AskedForMore:
		v.asked.WithLabelValues(f.Pool).Inc()
	case engine.ModeSet:
		if f.Tenant != "" {
			break // the pool's own is as it was
		}
		v.modeChanges.WithLabelValues(f.Pool, string(f.Mode)).Inc()
		if f.By == engine.ByGuard {
			v.fallbacks.WithLabelValues(f.Pool).Inc()
		}
	case engine.Submitted:
		t := tr.add(f.Task, f.Spec, f.Array)
		t.since = tr.at
		v.submitted.WithLabelValues(f.Spec.Pool, f.Spec.Priority.String(), classOf(f.Spec)).Inc()
		v.tenantSubmitted.WithLabelValues(t.tenant).Inc()
	case engine.Held:
		if t := tr.tasks[f.Task]; t != nil {
			if t.held = f.On; !f.On && t.awaits == 0 {
				t.since = tr.at
			}
		}
	case engine.Placed:
		tr.placedAt(f)
	case engine.Became:
		tr.became(f)
	case engine.Planned:
		if t := tr.tasks[f.Task]; t != nil {
			t.plan = f.Plan.Move
		}
	case engine.Dropped:
		if t := tr.tasks[f.Task]; t != nil {
			v.moveDropped.WithLabelValues(t.spec.Pool, string(t.plan)).Inc()
			t.plan = ""
		}
	case engine.MoveFailed:
		if t := tr.tasks[f.Task]; t != nil {
			v.moveFailed.WithLabelValues(t.spec.Pool, string(f.Move)).Inc()
		}
	default:
		tr.partFact(f)
	}
}

func (tr *tracker) model(n int) string {
	if n < 0 || n >= len(tr.models) {
		return other
	}
	return tr.models[n]
}

// poolOf is the pool of a GPU as of the newest view.
func (tr *tracker) poolOf(n int) string {
	if v := tr.m.view; n >= 0 && n < len(v.GPUs) {
		return v.Hosts[v.GPUs[n].Host].Pool
	}
	return other
}

func (tr *tracker) placedAt(f engine.Placed) {
	t := tr.tasks[f.Task]
	if t == nil {
		return
	}
	for i, p := range f.Parts {
		if len(p.Slices) == 0 {
			continue
		}
		tr.parts[work.Owner{Task: f.Task, Epoch: f.Epoch, Member: i}] = &part{slices: p.Slices, pool: tr.poolOf(p.Slices[0].GPU), placed: tr.at}
	}
	waited := tr.at.Sub(t.since)
	t.placed, t.waits, t.asleep, t.epoch = tr.at, false, false, f.Epoch
	if f.Runs != 0 {
		return // it goes on where it was, which is no start
	}
	tr.static(t, true)
	observe(tr.m.vecs.wait.WithLabelValues(t.spec.Pool, t.spec.Priority.String()), waited, t.id)
	tr.m.vecs.tenantPlaced.WithLabelValues(t.tenant).Inc()
	tr.m.vecs.tenantWaited.WithLabelValues(t.tenant).Add(max(0, waited.Seconds()))
}

// observe notes a time, with the task as its exemplar: numbers of tasks are the one
// thing of theirs that leaves, as an exemplar is no series.
func observe(o prometheus.Observer, d time.Duration, id work.TaskID) {
	if x, can := o.(prometheus.ExemplarObserver); can {
		x.ObserveWithExemplar(max(0, d.Seconds()), prometheus.Labels{"task": strconv.FormatUint(uint64(id), 10)})
		return
	}
	o.Observe(max(0, d.Seconds()))
}

func (tr *tracker) became(f engine.Became) {
	t := tr.tasks[f.Task]
	if t == nil {
		return
	}
	v := &tr.m.vecs
	was := t.state
	t.state = f.State
	if was == work.StateRunning {
		t.total += tr.at.Sub(t.ran)
	}
	if f.State != work.StateRunning {
		t.plan = ""
	}
	switch {
	case f.State == work.StateRunning:
		t.ran = tr.at
		if was == work.Starting {
			observe(v.start.WithLabelValues(t.spec.Pool), tr.at.Sub(t.placed), t.id)
		}
		if t.move != "" && was == work.Starting {
			v.move.WithLabelValues(t.spec.Pool, string(t.move)).Observe(tr.at.Sub(t.moved).Seconds())
			t.move = ""
		}
	case f.State == work.Queued:
		t.since, t.waits, t.awake, t.asleep = tr.at, true, false, false
		tr.static(t, false)
		v.requeued.WithLabelValues(t.spec.Pool, string(f.Reason.Code)).Inc()
	case f.State.Terminal():
		tr.ended(t, f)
	}
}

func (tr *tracker) ended(t *task, f engine.Became) {
	v := &tr.m.vecs
	v.ended.WithLabelValues(t.spec.Pool, classOf(t.spec), string(f.State), string(f.Reason.Code)).Inc()
	v.tenantEnded.WithLabelValues(t.tenant, string(f.State)).Inc()
	if t.ran != 0 {
		observe(v.run.WithLabelValues(t.spec.Pool, classOf(t.spec)), t.total, t.id)
	}
	tr.static(t, false)
	delete(tr.tasks, t.id)
	if t.array != 0 {
		if left := slices.DeleteFunc(tr.arrays[t.array], func(id work.TaskID) bool { return id == t.id }); len(left) == 0 {
			delete(tr.arrays, t.array)
		} else {
			tr.arrays[t.array] = left
		}
	}
	for _, x := range tr.after[t.id] {
		if x.awaits--; x.awaits == 0 && !x.held {
			x.since = tr.at
		}
	}
	delete(tr.after, t.id)
}
