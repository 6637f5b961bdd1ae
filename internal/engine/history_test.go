package engine

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/placement"
	"github.com/gpupool/gpupool/internal/work"
)

// world plays everything outside the engine: users, drivers and runners that
// answer late, twice, wrongly or never.
type world struct {
	rng     *rand.Rand
	modes   *rand.Rand // of what is about modes, so that the rest of a history stays as it is
	e       *Engine
	ledger  *Ledger
	now     work.Time
	pending []Command
	procs   []work.Owner
	hosts   []gpu.HostInfo
	away    map[string]bool
	broken  map[string]bool
	health  *rand.Rand         // of what is about the health of GPUs, for the same reason
	wants   map[string]Verdict // of the driver, beside broken
	tokens  *rand.Rand         // of what is about tokens
	faults  []Fault            // reported again and again
	ailing  bool               // operators and drivers have a word on GPUs
	tasks   []work.TaskID
	sharing string
	calm    bool // answer everything, and well
	steps   int
	deep    bool     // compare with the replayed state after every step, not after every tenth
	limited bool     // tenant b has a limit
	idling  bool     // tasks have whole GPUs and leave them idle, so that they are parked and woken
	supple  bool     // tasks may be resized and moved, and use little or much
	rolls   bool     // modes are rolled out
	facts   []string // encoded, when kept
	keep    bool
	blind   bool // compare with nothing: other checks are what is tested
}

var testModels = func() (out []*gpu.Geometry) {
	for _, m := range gpu.Builtin() {
		if m.Key == "H100-80GB" || m.Key == "T4" {
			out = append(out, gpu.NewGeometry(m))
		}
	}
	return out
}()

func testConfig() Config {
	return Config{Models: testModels, KeepEnded: 20, AllocRetries: 3}
}

func newWorld(seed uint64) *world {
	cfg := testConfig()
	w := &world{rng: rand.New(rand.NewPCG(seed, 1)), modes: rand.New(rand.NewPCG(seed, 2)), e: New(cfg), ledger: NewLedger(cfg), now: 1_000_000_000,
		away: map[string]bool{}, broken: map[string]bool{}, health: rand.New(rand.NewPCG(seed, 3)), tokens: rand.New(rand.NewPCG(seed, 4)), wants: map[string]Verdict{}}
	w.ailing = seed%3 != 1
	w.idling, w.supple = seed%4 == 3, seed%4 == 1
	w.rolls = seed%6 == 4 || seed%12 == 11 // one of them idling
	for h := range 2 + w.rng.IntN(2) {
		info := gpu.HostInfo{Name: fmt.Sprintf("h%d", h), CPUMilli: 16000, MemMiB: 64 << 10}
		if w.idling {
			info.CPUMilli, info.MemMiB = 64000, 512<<10
		}
		model := "H100-80GB"
		if h == 2 {
			model = "T4"
		}
		for g := range 1 + w.rng.IntN(4) {
			info.GPUs = append(info.GPUs, gpu.GPUInfo{ID: fmt.Sprintf("GPU-%d-%d", h, g), Model: model})
		}
		w.hosts = append(w.hosts, info)
	}
	return w
}

func (w *world) step(ev Event) error {
	words := w.said()
	out := w.e.Step(w.now, ev)
	if err := w.nobodyOverruled(words, ev); err != nil {
		return err
	}
	w.pending = append(w.pending, out.Commands...)
	for _, f := range out.Facts {
		if s, ok := f.(Submitted); ok {
			w.tasks = append(w.tasks, s.Task)
		}
	}
	if err := w.ledger.Add(w.e, out.Facts); err != nil {
		return fmt.Errorf("after %T: %w", ev, err)
	}
	if err := w.keepFacts(out.Facts); err != nil {
		return err
	}
	if w.steps++; !w.blind && (w.deep || w.steps%10 == 0) {
		if err := w.ledger.Same(w.e); err != nil {
			return fmt.Errorf("after %T: %w", ev, err)
		}
		if err := w.nobodyForgotten(); err != nil {
			return fmt.Errorf("after %T %+v: %w", ev, ev, err)
		}
	}
	if err := w.e.Check(); err != nil {
		return fmt.Errorf("after %T %+v: %w", ev, ev, err)
	}
	return nil
}

func (w *world) keepFacts(facts []Fact) error {
	if !w.keep {
		return nil
	}
	for _, f := range facts {
		b, err := Encode(w.e.Now(), f)
		if err != nil {
			return err
		}
		w.facts = append(w.facts, string(b))
	}
	return nil
}

// nobodyForgotten looks whether a task waits that could be placed on what is free and
// not kept: then nobody looked at it when it became possible. In which order they stand
// does not matter to that. Not parts under a limit: what they take depends on how the
// GPUs are cut that are there, and that changes as others are placed.
func (w *world) nobodyForgotten() error {
	e := w.e
	for _, t := range e.sortedTasks() {
		if !t.inLine || e.mayNot(t.pool, t).Code != "" {
			continue
		}
		q := placement.Query{Pool: t.pool.Name, Tenant: t.Spec.Tenant, Request: t.pool.wants(t)}
		if x := e.tenants[t.Spec.Tenant]; x != nil && x.LimitGPUs > 0 && q.Request.IsPart() {
			continue
		}
		if t.State == work.Parked {
			continue
		}
		parts := e.find(t, q)
		if parts == nil {
			parts = e.borrow(t.pool, t, q)
		}
		if parts != nil && !e.overLimit(t, milliOf(parts)) {
			return fmt.Errorf("task %d waits and could be placed: %+v", t.ID, parts)
		}
	}
	return nil
}

// sameDecisions restores the engine from its snapshot, then both look at everyone: they
// decide the same. What only spares searches is forgotten first.
func (w *world) sameDecisions() error {
	b, err := w.e.Snapshot()
	if err != nil {
		return err
	}
	fresh, err := Restore(testConfig(), b)
	if err != nil {
		return err
	}
	for _, t := range w.e.sortedTasks() {
		t.ends, t.foreseen, t.asked, t.looked = 0, 0, 0, 0
	}
	var want []string
	for _, f := range fresh.Step(w.now, Resume{}).Facts {
		b, err := Encode(w.now, f)
		if err != nil {
			return err
		}
		want = append(want, string(b))
	}
	n := len(w.facts)
	kept := w.keep
	w.keep = true
	err = w.step(Resume{})
	got := slices.Clone(w.facts[n:])
	if w.keep = kept; !kept {
		w.facts = w.facts[:n]
	}
	if err == nil && !slices.Equal(got, want) {
		i := 0
		for i < min(len(got), len(want)) && got[i] == want[i] {
			i++
		}
		return fmt.Errorf("a restored engine decides otherwise, from decision %d:\nlive     %v\nrestored %v", i, got[i:], want[i:])
	}
	return err
}

func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

func pick[T any](w *world, xs ...T) T { return xs[w.rng.IntN(len(xs))] }

func (w *world) setUp() error {
	w.limited = w.chance(50)
	evs := []Event{SetPools{w.somePools()}, SetTenant{w.tenant("a")}, SetTenant{w.tenant("b")}, SetTenant{w.tenant("c")}, w.inventory()}
	for _, ev := range evs {
		if err := w.step(ev); err != nil {
			return err
		}
	}
	return nil
}

// tenant has limits only where the history has; a has none of the kind that keeps tasks back.
func (w *world) tenant(name string) work.Tenant {
	x := work.Tenant{Name: name, Weight: pick(w, 0, 0, 0.5, 3)}
	if w.chance(40) {
		x.GuaranteeGPUs = pick(w, 0.5, 1, 2, 4)
	}
	if !w.limited || name == "a" {
		return x
	}
	if w.chance(50) {
		x.LimitGPUs = float64(1 + w.rng.IntN(4))
	}
	if w.chance(30) {
		x.MaxRunning = 1 + w.rng.IntN(3)
	}
	if w.chance(30) {
		x.MaxWaiting = 2 + w.rng.IntN(5)
	}
	return x
}

func (w *world) somePools() []work.Pool {
	mode := w.orShadow(pick(w, work.Dynamic, work.Dynamic, work.Dynamic, work.Static))
	if w.supple {
		mode = work.Dynamic
	}
	pools := []work.Pool{{Name: "main", Hosts: w.someHosts(), Mode: mode, TTL: time.Hour}, {Name: "rest", Mode: work.Dynamic}}
	for i := range pools {
		p := &pools[i]
		if w.chance(30) {
			x := pick(w, 0, 0.5, 1)
			p.Weight = &x
		}
		if w.limited && w.chance(30) {
			p.Capacity, p.BackPressure = 3+w.rng.IntN(10), pick(w, 0.5, 0.8, 1)
		}
		if w.chance(50) {
			p.AskAt, p.BorrowFrom, p.ScaleOutEvery = 1+w.rng.IntN(3), []string{"nowhere", pools[1-i].Name}, pick(w, 0, time.Minute)
		}
		if w.limited && w.chance(30) {
			p.ReserveGPUs = pick(w, 0.5, 1, 2)
		}
		if w.chance(30) {
			p.MinRuntime = pick(w, 30*time.Second, 2*time.Minute)
		}
		if w.chance(50) {
			p.PreemptPerHour = pick(w, 1, 1, 1, 3)
		}
		if w.chance(50) {
			p.Elastic = work.PoolElastic{Cooldown: 10 * time.Second, OnIdle: map[work.Class]work.IdleAction{work.Training: work.IdlePark, work.Interactive: work.IdlePark},
				After: map[work.Class]time.Duration{work.Training: time.Minute}}
		}
		p.Elastic.Guard = w.someGuard()
	}
	for i := range pools {
		if w.supple {
			pools[i].Elastic.Cooldown, pools[i].Elastic.PerTask, pools[i].Elastic.Warn = 10*time.Second, 5, pick(w, time.Second, 30*time.Second)
			pools[i].TTL, pools[i].ReserveGPUs, pools[i].Elastic.OnIdle = 0, 0, nil
		}
	}
	return pools
}

// someHosts are those of pool main; h2 has another GPU model.
func (w *world) someHosts() []string {
	return pick(w, []string{"h0", "h1"}, []string{"h0", "h1"}, []string{"h0", "h2"}, []string{"h*"})
}

func (w *world) inventory() Inventory {
	inv := Inventory{Driver: "test"}
	for _, h := range w.hosts {
		if w.away[h.Name] {
			continue
		}
		h.Sharing = w.sharing
		inv.Hosts = append(inv.Hosts, h)
		for _, g := range h.GPUs {
			if v, ails := w.wants[g.ID]; ails && !w.broken[g.ID] {
				inv.Verdicts = append(inv.Verdicts, v)
			}
			if w.broken[g.ID] {
				inv.Verdicts = append(inv.Verdicts, Verdict{ID: g.ID, Do: gpu.VerdictBroken, Why: "XID 79"})
			}
		}
	}
	for _, f := range w.faults {
		if slices.ContainsFunc(inv.Hosts, func(h gpu.HostInfo) bool {
			return slices.ContainsFunc(h.GPUs, func(g gpu.GPUInfo) bool { return g.ID == f.ID })
		}) {
			inv.Faults = append(inv.Faults, f)
		}
	}
	return inv
}

func (w *world) spec() work.Spec {
	s := work.Spec{Tenant: pick(w, "a", "b", "c"), Pool: pick(w, "main", "main", "rest"), Priority: work.Priority(w.rng.IntN(3)), Command: []string{"x"}}
	s.Request = pick(w,
		work.Request{GPUs: 1}, work.Request{GPUs: 2}, work.Request{GPUs: 4},
		work.Request{Milli: 300}, work.Request{Milli: 143}, work.Request{Milli: 600, Isolation: work.IsolationAny},
		work.Request{Milli: 250, Isolation: work.IsolationShared}, work.Request{GPUMemMiB: 8 << 10}, work.Request{Profile: "3g.40gb"},
		work.Request{Profile: "1g.10gb+me"}, work.Request{GPUs: 1, Members: 3}, work.Request{Milli: 143, Members: 5},
		work.Request{Milli: 100, Isolation: work.IsolationShared, Members: 2}, work.Request{CPUMilli: 4000}, work.Request{GPUs: 2, Models: []string{"T4"}})
	if s.Request.CPUMilli == 0 {
		s.Request.CPUMilli = pick[int64](w, 0, 1000, 6000)
	}
	if w.idling && w.chance(80) {
		s.Request = work.Request{GPUs: 1 + w.rng.IntN(2), CPUMilli: s.Request.CPUMilli}
	}
	if w.chance(15) {
		s.Command, s.LeaseTTL = nil, time.Minute
	}
	if w.chance(20) {
		s.Key = fmt.Sprint("k", w.rng.IntN(5))
	}
	s.TTL = pick(w, 0, 0, 2*time.Minute, -1)
	if w.ailing && w.health.IntN(10) == 0 {
		s.Command, s.LeaseTTL = nil, time.Minute
	}
	w.habits(&s)
	if w.supple {
		w.bend(&s)
	}
	return s
}

// bend lets a task be resized and moved.
func (w *world) bend(s *work.Spec) {
	if w.chance(90) {
		s.Request = pick(w, work.Request{GPUs: 1}, work.Request{GPUs: 1, Models: []string{"T4"}}, work.Request{GPUs: 2},
			work.Request{Milli: 500, Isolation: work.IsolationShared}, work.Request{Milli: 700, Isolation: work.IsolationShared})
		s.Tenant = pick(w, "a", "a", "b")
	}
	r := s.Request
	if s.LeaseTTL == 0 && w.chance(70) {
		s.OnResize = work.ResizeRestart
		if w.chance(50) {
			s.Signal = "USR1"
		}
	}
	if r.GPUs > 0 && s.OnResize == work.ResizeRestart && w.chance(60) {
		s.MinMilli, s.MaxMilli = pick(w, 0, 1000), 1000*(r.GPUs+w.rng.IntN(3))
	}
	if r.Milli > 100 && r.Isolation == work.IsolationShared && w.chance(60) {
		s.MinMilli, s.MaxMilli = 100, pick(w, 0, 900)
	}
	s.OnIdle = pick(w, s.OnIdle, work.IdleShare)
	s.NoShare = w.chance(10) && r.Isolation != work.IsolationShared
	if w.chance(70) {
		s.MaxRuntime, s.TTL, s.Array = 0, -1, nil
	}
}

// habits are what a submission says of its run and of what it comes after.
func (w *world) habits(s *work.Spec) {
	s.Name = pick(w, "", "train-1", "train-2", "eval")
	s.Class = pick(w, "", work.Training, work.Training, work.Inference, work.Interactive)
	s.Hold = w.chance(5)
	if !s.External() {
		s.MaxRuntime = pick(w, 0, 0, time.Minute, 10*time.Minute)
		if w.chance(10) {
			s.Array = &work.Array{Last: w.rng.IntN(4), Limit: w.rng.IntN(3)}
		}
	}
	s.OnIdle = pick(w, "", "", work.IdleKeep, work.IdlePark, work.IdleStop)
	if w.idling && w.chance(70) {
		s.OnIdle, s.MaxRuntime, s.TTL = work.IdlePark, 0, -1
	}
	s.NoPreempt = w.chance(10)
	s.Estimate = pick(w, 0, 0, 30*time.Second, 5*time.Minute)
	s.Checkpoint = pick(w, 0, 0, 20*time.Second)
	if w.chance(10) {
		s.Deadline = w.now.Add(time.Duration(w.rng.IntN(3600)-600) * time.Second)
	}
	for len(w.tasks) > 0 && w.chance(10) {
		s.After = append(s.After, pick(w, w.tasks...))
	}
	for len(w.tasks) > 0 && w.chance(10) {
		s.AfterAny = append(s.AfterAny, pick(w, w.tasks...))
	}
}

func (w *world) randomEvent() Event {
	w.now = w.now.Add(time.Duration(w.rng.IntN(8000)) * time.Millisecond)
	if w.chance(3) {
		w.now = w.now.Add(3 * time.Minute)
	}
	if w.ailing && w.health.IntN(100) < 12 {
		if ev := w.ailEvent(); ev != nil {
			return ev
		}
	}
	if w.rolls && w.modes.IntN(100) < 10 {
		return w.rollEvent()
	}
	for {
		if (w.idling || w.supple) && w.chance(60) {
			if ev := w.idleEvent(); ev != nil {
				return ev
			}
		}
		switch w.rng.IntN(26) {
		case 22, 23:
			return w.used()
		case 24:
			if len(w.tasks) > 0 {
				return pick[Event](w, Wake{pick(w, w.tasks...), "ann"}, Wake{pick(w, w.tasks...), "ann"}, Park{pick(w, w.tasks...), "ann"})
			}
		case 0, 1, 2, 3, 4:
			return Submit{w.spec()}
		case 5:
			if len(w.tasks) > 0 {
				return Cancel{pick(w, w.tasks...), "someone"}
			}
		case 6:
			if len(w.tasks) > 0 {
				id := pick(w, w.tasks...)
				epoch := uint32(w.rng.IntN(3))
				return pick[Event](w, Renew{id, epoch}, Release{id, epoch}, Renew{id, 1})
			}
		case 7:
			if len(w.procs) > 0 {
				return w.exit(w.rng.IntN(len(w.procs)), pick(w, work.Exit{}, work.Exit{}, work.Exit{Code: 3}, work.Exit{Code: 137, Signal: "SIGKILL"}))
			}
		case 8:
			if w.chance(30) {
				name := pick(w, w.hosts...).Name
				w.away[name] = !w.away[name]
				return w.inventory()
			}
		case 9:
			if w.chance(30) {
				id := pick(w, pick(w, w.hosts...).GPUs...).ID
				w.broken[id] = !w.broken[id]
				return w.inventory()
			}
		case 10:
			pools := w.somePools()
			return pick[Event](w, Tick{}, Tick{}, SetMode{pick(w, "main", "rest"), w.orShadow(pick(w, work.Dynamic, work.Dynamic, work.Static)), "ann"}, Resume{}, ProcessesSeen{slices.Clone(w.procs)}, SetTenant{w.tenant("b")}, SetTenant{w.tenant("c")},
				SetPools{pools}, SetPools{pools[:1]}, RemoveTenant{"c"})
		case 11, 12:
			if len(w.tasks) > 0 {
				id := pick(w, w.tasks...)
				return pick[Event](w, Hold{id, true, "ann"}, Hold{id, false, "ann"}, Hold{id, false, "ann"}, Checkpoint{id}, Checkpoint{id}, Preempt{id, "ann"})
			}
		default:
			if len(w.pending) > 0 {
				if ev := w.answer(); ev != nil {
					return ev
				}
			}
		}
	}
}

// idleEvent is what happens where tasks leave their GPUs idle: answers, mostly.
func (w *world) idleEvent() Event {
	switch n := w.rng.IntN(10); {
	case n < 2:
		return w.used()
	case w.supple && n < 3 && len(w.tasks) > 0:
		return pick[Event](w, Tick{}, Submit{w.spec()}, Resize{pick(w, w.tasks...), pick(w, 0, 400, 500, 1000, 2000, 3000), "ann"})
	case w.supple:
		if len(w.pending) > 0 {
			return w.answer()
		}
	case n < 4 && len(w.tasks) > 0:
		return Wake{pick(w, w.tasks...), "ann"}
	case n < 5 && len(w.tasks) > 0:
		return Park{pick(w, w.tasks...), "ann"}
	case len(w.pending) > 0:
		return w.answer()
	}
	return nil
}

// used measures some of what runs: busy, idle, or not known.
func (w *world) used() Event {
	var u Usage
	took := 20 * time.Second
	if w.supple {
		w.now = w.now.Add(pick(w, time.Minute, 10*time.Minute))
		took = 10 * time.Minute
	}
	for _, l := range w.e.sortedLeases() {
		if w.chance(70) {
			for i := range l.Parts {
				u.Samples = append(u.Samples, w.sample(l.owner(i), took))
			}
		}
	}
	return u
}

// sample is one measure: of what may be resized, the same as long as it has its lease.
func (w *world) sample(o work.Owner, took time.Duration) UsageSample {
	x := UsageSample{o, took, pick(w, 0, 0, 0, 0.5, 1, -1), pick[int64](w, -1, 0, 20_000)}
	if w.supple && w.chance(80) {
		x.Compute, x.MemMiB = []float64{0, 0.2, 0.4, 1}[(int(o.Task)+int(o.Epoch))%4], 1000
	}
	return x
}

func (w *world) exit(i int, x work.Exit) Event {
	o := w.procs[i]
	w.procs = slices.Delete(w.procs, i, i+1)
	return ProcessExited{o, x}
}

// answer takes one pending command and answers it: well, badly, twice or never.
func (w *world) answer() Event {
	i := w.rng.IntN(len(w.pending))
	if w.calm {
		i = 0
	}
	c := w.pending[i]
	if w.calm || !w.chance(10) { // else it stays: it will be answered twice
		w.pending = slices.Delete(w.pending, i, i+1)
	}
	bad := !w.calm && w.chance(12)
	if !w.calm && w.chance(4) {
		return nil // lost
	}
	switch c := c.(type) {
	case CarveCmd:
		if bad {
			return CarveFailed{c.Owner, "hardware said no"}
		}
		return CarveDone{c.Owner, c.GPUIDs}
	case FreeCmd:
		if bad {
			return FreeFailed{c.Owner, "in use"}
		}
		return FreeDone{c.Owner}
	case StartCmd:
		if bad {
			return StartFailed{c.Owner, "disk full"}
		}
		if !slices.Contains(w.procs, c.Owner) {
			w.procs = append(w.procs, c.Owner)
		}
		return StartDone{c.Owner}
	case StopCmd:
		if i := slices.Index(w.procs, c.Owner); i >= 0 {
			return w.exit(i, work.Exit{Code: 143, Signal: "SIGTERM"})
		}
		return ProcessExited{c.Owner, work.Exit{Lost: "not known"}}
	case SuspendCmd:
		if bad {
			return SuspendFailed{c.Owner, "checkpoint failed"}
		}
		return SuspendDone(c)
	case ResizeCmd:
		if bad {
			return ResizeFailed{c.Owner, "hardware said no"}
		}
		return ResizeDone{c.Owner, c.GPUIDs}
	case ResumeCmd:
		if bad {
			return ResumeFailed{c.Owner, "restore failed"}
		}
		return ResumeDone{c.Owner}
	case WatchCmd:
		if !slices.Contains(w.procs, c.Owner) {
			return ProcessExited{c.Owner, work.Exit{Lost: "not known"}}
		}
	}
	return nil
}

// drain makes everything outside behave and lets all work come to an end: no
// accepted task may be left over.
func (w *world) drain() error {
	w.calm = true
	clear(w.away)
	clear(w.broken)
	clear(w.wants)
	for _, g := range w.e.GPUs() {
		if err := w.step(JudgeGPU{GPU: g.Number, By: "ann"}); err != nil {
			return err
		}
	}
	for round := range 400 {
		w.now = w.now.Add(11 * time.Second)
		evs := []Event{w.inventory(), Tick{}}
		for _, id := range w.tasks {
			if t := w.e.Task(id); t != nil && t.Held {
				evs = append(evs, Hold{id, false, "ann"})
			}
		}
		if round%10 == 0 {
			evs = append(evs, Resume{})
		}
		for _, ev := range evs {
			if err := w.step(ev); err != nil {
				return err
			}
		}
		for len(w.pending) > 0 || len(w.procs) > 0 {
			var ev Event
			if len(w.pending) > 0 {
				ev = w.answer()
			} else {
				ev = w.exit(0, work.Exit{})
			}
			if ev != nil {
				if err := w.step(ev); err != nil {
					return err
				}
			}
		}
		if w.done() {
			return nil
		}
	}
	for _, l := range w.e.Leases() {
		return fmt.Errorf("lease %+v is left over", *l)
	}
	for _, t := range w.e.Tasks() {
		if !t.State.Terminal() {
			x, _ := w.e.Explain(t.ID)
			return fmt.Errorf("task %+v is left over: %+v", *t, x.Reason)
		}
	}
	return fmt.Errorf("not done")
}

// done reports whether nothing is left but what can never be placed as things are, and
// what comes after that.
func (w *world) done() bool {
	for _, t := range w.e.Tasks() {
		if t.State.Terminal() {
			continue
		}
		if t.State != work.Queued {
			return false
		}
		switch w.e.whyWaiting(t).Code {
		case work.WaitLimit, work.WaitCapacity, work.WaitReserve, work.WaitAfter:
		default:
			return false
		}
	}
	return len(w.e.leases) == 0
}

// history runs one random history with an optional planted bug.
func history(seed uint64, tamper func(*Engine) func(Fact) Fact) error {
	w := newWorld(seed)
	w.deep = seed%10 == 0
	return w.play(tamper)
}

func (w *world) play(tamper func(*Engine) func(Fact) Fact) error {
	if tamper != nil {
		w.e.tamper = tamper(w.e)
	}
	if err := w.setUp(); err != nil {
		return err
	}
	n := 40
	if w.idling || w.supple { // it takes a while until something runs, idles, is parked and woken
		n = 120
	}
	for range n {
		if w.tokens.IntN(100) < 5 {
			if err := w.step(w.tokenEvent()); err != nil {
				return err
			}
		}
		if err := w.step(w.randomEvent()); err != nil {
			return err
		}
	}
	if w.blind {
		return w.drain()
	}
	if err := w.sameDecisions(); err != nil {
		return err
	}
	if err := w.drain(); err != nil {
		return err
	}
	return w.ledger.Same(w.e)
}

// TestRandomHistories plays -histories random histories, 10,000 unless told
// otherwise: make test runs all of them without the race detector, which would
// make them ten times slower and finds nothing in a core without goroutines, and a
// sample of them with it.
func TestRandomHistories(t *testing.T) {
	const shards = 8
	n := *histories
	if testing.Short() {
		n = min(n, 500)
	}
	for shard := range shards {
		t.Run(fmt.Sprint("shard", shard), func(t *testing.T) {
			t.Parallel()
			for seed := shard; seed < n; seed += shards {
				if err := history(uint64(seed), nil); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		})
	}
}

var histories = flag.Int("histories", defaultHistories, "random histories to play")
