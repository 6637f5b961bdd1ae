package engine

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// world plays everything outside the engine: users, drivers and runners that
// answer late, twice, wrongly or never.
type world struct {
	rng     *rand.Rand
	e       *Engine
	ledger  *Ledger
	now     work.Time
	pending []Command
	procs   []work.Owner
	hosts   []gpu.HostInfo
	away    map[string]bool
	broken  map[string]bool
	tasks   []work.TaskID
	calm    bool // answer everything, and well
	steps   int
	deep    bool     // compare with the replayed state after every step, not after every tenth
	limited bool     // tenant b has a limit
	facts   []string // encoded, when kept
	keep    bool
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
	w := &world{rng: rand.New(rand.NewPCG(seed, 1)), e: New(cfg), ledger: NewLedger(cfg), now: 1_000_000_000,
		away: map[string]bool{}, broken: map[string]bool{}}
	for h := range 2 + w.rng.IntN(2) {
		info := gpu.HostInfo{Name: fmt.Sprintf("h%d", h), CPUMilli: 16000, MemMiB: 64 << 10}
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
	out := w.e.Step(w.now, ev)
	w.pending = append(w.pending, out.Commands...)
	if out.Task != 0 && !slices.Contains(w.tasks, out.Task) {
		w.tasks = append(w.tasks, out.Task)
	}
	if err := w.ledger.Add(w.e, out.Facts); err != nil {
		return fmt.Errorf("after %T: %w", ev, err)
	}
	if err := w.keepFacts(out.Facts); err != nil {
		return err
	}
	if w.steps++; w.deep || w.steps%10 == 0 {
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

// nobodyForgotten looks with an engine that was just restored, and so looks at
// everyone, whether a task waits that could be placed: then the live engine was
// not woken when it should have been. Not with limits: a task that holds others
// back stops doing so when its tenant gets to its limit elsewhere, and those are
// only looked at when something is freed.
func (w *world) nobodyForgotten() error {
	if w.limited {
		return nil
	}
	b, err := w.e.Snapshot()
	if err != nil {
		return err
	}
	fresh, err := Restore(testConfig(), b)
	if err != nil {
		return err
	}
	for _, f := range fresh.Step(w.e.Now(), Tick{}).Facts {
		if p, ok := f.(Placed); ok {
			return fmt.Errorf("task %d waits and could be placed: %+v", p.Task, p.Parts)
		}
	}
	return nil
}

func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

func pick[T any](w *world, xs ...T) T { return xs[w.rng.IntN(len(xs))] }

func (w *world) setUp() error {
	mode := pick(w, work.Dynamic, work.Dynamic, work.Dynamic, work.Static)
	pools := []work.Pool{{Name: "main", Hosts: w.someHosts(), Mode: mode, TTL: time.Hour}, {Name: "rest", Mode: work.Dynamic}}
	b := work.Tenant{Name: "b"}
	if w.limited = w.chance(50); w.limited {
		b.LimitGPUs = 2
	}
	evs := []Event{SetPools{pools}, SetTenant{work.Tenant{Name: "a"}}, SetTenant{b}, w.inventory()}
	for _, ev := range evs {
		if err := w.step(ev); err != nil {
			return err
		}
	}
	return nil
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
		inv.Hosts = append(inv.Hosts, h)
		for _, g := range h.GPUs {
			if w.broken[g.ID] {
				inv.Broken = append(inv.Broken, BrokenGPU{g.ID, "XID 79"})
			}
		}
	}
	return inv
}

func (w *world) spec() work.Spec {
	s := work.Spec{Tenant: pick(w, "a", "b"), Pool: pick(w, "main", "main", "rest"), Priority: work.Priority(w.rng.IntN(3)), Command: []string{"x"}}
	s.Request = pick(w,
		work.Request{GPUs: 1}, work.Request{GPUs: 2}, work.Request{GPUs: 4},
		work.Request{Milli: 300}, work.Request{Milli: 143}, work.Request{Milli: 600, Isolation: work.IsolationAny},
		work.Request{Milli: 250, Isolation: work.IsolationShared}, work.Request{GPUMemMiB: 8 << 10}, work.Request{Profile: "3g.40gb"},
		work.Request{Profile: "1g.10gb+me"}, work.Request{GPUs: 1, Members: 3}, work.Request{Milli: 143, Members: 5},
		work.Request{Milli: 100, Isolation: work.IsolationShared, Members: 2}, work.Request{CPUMilli: 4000}, work.Request{GPUs: 2, Models: []string{"T4"}})
	if s.Request.CPUMilli == 0 {
		s.Request.CPUMilli = pick[int64](w, 0, 1000, 6000)
	}
	if w.chance(15) {
		s.Command, s.LeaseTTL = nil, time.Minute
	}
	if w.chance(20) {
		s.Key = fmt.Sprint("k", w.rng.IntN(5))
	}
	s.TTL = pick(w, 0, 0, 2*time.Minute, -1)
	return s
}

func (w *world) randomEvent() Event {
	w.now = w.now.Add(time.Duration(w.rng.IntN(8000)) * time.Millisecond)
	if w.chance(3) {
		w.now = w.now.Add(3 * time.Minute)
	}
	for {
		switch w.rng.IntN(20) {
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
			b := work.Tenant{Name: "b"}
			if w.limited {
				b.LimitGPUs = float64(1 + w.rng.IntN(4))
			}
			main := work.Pool{Name: "main", Hosts: w.someHosts(), Mode: work.Dynamic, TTL: time.Hour}
			return pick[Event](w, Tick{}, Tick{}, Resume{}, ProcessesSeen{slices.Clone(w.procs)}, SetTenant{b}, SetPools{[]work.Pool{main}})
		default:
			if len(w.pending) > 0 {
				if ev := w.answer(); ev != nil {
					return ev
				}
			}
		}
	}
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
	for round := range 400 {
		w.now = w.now.Add(11 * time.Second)
		evs := []Event{w.inventory(), Tick{}}
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

func (w *world) done() bool {
	for _, t := range w.e.Tasks() {
		if t.State.Terminal() {
			continue
		}
		if why := w.e.whyWaiting(t).Code; t.State != work.Queued || why != work.WaitLimit && why != work.WaitCapacity {
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
	for range 40 {
		if err := w.step(w.randomEvent()); err != nil {
			return err
		}
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
