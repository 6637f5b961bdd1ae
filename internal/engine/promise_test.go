package engine

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/queue"
	"github.com/gpupool/gpupool/internal/work"
)

// mill plays drivers and runners that answer at once, and processes that end after the
// time that is told for their task.
type mill struct {
	rng     *rand.Rand
	e       *Engine
	ledger  *Ledger // nil = not kept
	now     work.Time
	runs    map[work.TaskID]time.Duration
	ends    map[work.Owner]work.Time
	started map[work.TaskID]work.Time // when it first ran
	err     error
}

func newMill(seed uint64, cfg Config, p plant) *mill {
	m := &mill{rng: rand.New(rand.NewPCG(seed, 2)), e: New(cfg), now: work.TimeOf(time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)),
		runs: map[work.TaskID]time.Duration{}, ends: map[work.Owner]work.Time{}, started: map[work.TaskID]work.Time{}}
	if p != nil {
		m.e.tamper = p(m.e)
	}
	return m
}

// step gives an event and answers all commands that follow.
func (m *mill) step(ev Event) work.TaskID {
	out := m.e.Step(m.now, ev)
	id := out.Task
	if out.Err != nil && m.err == nil {
		m.err = out.Err
	}
	due := m.take(out)
	for len(due) > 0 {
		c := due[0]
		due = due[1:]
		var next Event
		switch c := c.(type) {
		case CarveCmd:
			next = CarveDone{c.Owner, c.GPUIDs}
		case StartCmd:
			m.ends[c.Owner] = never
			next = StartDone{c.Owner}
		case StopCmd:
			delete(m.ends, c.Owner)
			next = ProcessExited{c.Owner, work.Exit{Code: 143, Signal: "SIGTERM"}}
		case FreeCmd:
			next = FreeDone{c.Owner}
		default:
			continue
		}
		due = append(due, m.take(m.e.Step(m.now, next))...)
	}
	return id
}

func (m *mill) take(out Output) []Command {
	for _, f := range out.Facts {
		if b, ok := f.(Became); ok && b.State == work.StateRunning {
			if _, again := m.started[b.Task]; !again {
				m.started[b.Task] = m.now
			}
			for i := range m.e.tasks[b.Task].lease.Parts {
				m.ends[m.e.tasks[b.Task].lease.owner(i)] = m.now.Add(m.runs[b.Task])
			}
		}
	}
	if m.ledger != nil && m.err == nil {
		if m.err = m.ledger.Add(m.e, out.Facts); m.err == nil {
			m.err = m.e.Check()
		}
	}
	return append([]Command(nil), out.Commands...)
}

func (m *mill) submit(s work.Spec, runs time.Duration) work.TaskID {
	s.Pool, s.Command = "p", []string{"x"}
	id := m.e.LastTask() + 1 // it may run before its number is told
	m.runs[id] = runs
	return m.step(Submit{s})
}

// pass lets time pass: processes end and deadlines fire when they are due.
func (m *mill) pass(until work.Time) {
	for {
		next, owner, found := until, work.Owner{}, false
		for o, at := range m.ends { // order: the least of a total order
			if at < next || at == next && found && (o.Task < owner.Task || o.Task == owner.Task && o.Member < owner.Member) {
				next, owner, found = at, o, true
			}
		}
		if at, ok := m.e.NextDeadline(); ok && at < next {
			m.now = max(m.now, at)
			m.step(Tick{})
			continue
		}
		m.now = max(m.now, next)
		if !found {
			return
		}
		delete(m.ends, owner)
		m.step(ProcessExited{owner, work.Exit{}})
	}
}

func (m *mill) setUp(pool work.Pool, hosts, gpus int, tenants ...work.Tenant) {
	pool.Name, pool.Mode = "p", work.Dynamic
	m.step(SetPools{[]work.Pool{pool}})
	for _, x := range tenants {
		m.step(SetTenant{x})
	}
	inv := Inventory{Driver: "test"}
	for h := range hosts {
		info := gpu.HostInfo{Name: fmt.Sprint("h", h), CPUMilli: 64000, MemMiB: 512 << 10}
		for g := range gpus {
			info.GPUs = append(info.GPUs, gpu.GPUInfo{ID: fmt.Sprint(h, ".", g), Model: "H100-80GB"})
		}
		inv.Hosts = append(inv.Hosts, info)
	}
	m.step(inv)
}

// starving plays streams of tasks that never cease and leave no GPU idle, and a few tasks
// that are easily passed over. It reports whether each of those starts within the bound
// that follows from the score, and the time to let those end who run then.
func starving(seed uint64, rules queue.Rules) error {
	const longest = 2 * time.Hour // that anything runs
	cfg := testConfig()
	cfg.Rules = rules
	m := newMill(seed, cfg, nil)
	weight := []float64{0, 0.3, queue.DefaultWeight, 1}[seed%4]
	m.setUp(work.Pool{Weight: &weight}, 2, 2+int(seed%2), work.Tenant{Name: "poor", Weight: 0.1}, work.Tenant{Name: "s0", Weight: 5},
		work.Tenant{Name: "s1", GuaranteeGPUs: 1}, work.Tenant{Name: "s2", GuaranteeGPUs: 0.5})
	stream := func() {
		r := pickOf(m.rng, work.Request{GPUs: 1}, work.Request{GPUs: 1}, work.Request{Milli: 143}, work.Request{Milli: 400}, work.Request{Profile: "3g.40gb"},
			work.Request{Milli: 300, Isolation: work.IsolationShared}, work.Request{GPUs: 2})
		runs := time.Duration(1+m.rng.IntN(60)) * time.Minute
		s := work.Spec{Tenant: pickOf(m.rng, "s0", "s1", "s2"), Priority: work.Priority(m.rng.IntN(2)), Request: r, Class: pickOf(m.rng, work.Inference, work.Training, work.Interactive),
			Name: pickOf(m.rng, "short", "other"), Deadline: pickOf(m.rng, 0, 0, m.now)}
		if m.rng.IntN(2) == 0 {
			s.Estimate, s.MaxRuntime = runs, runs+time.Minute
		}
		m.submit(s, runs)
	}
	busy := func() {
		for m.e.pools["p"].waiting < 12 {
			stream()
		}
	}
	busy()
	m.pass(m.now.Add(3 * time.Hour))
	busy()
	var targets []work.TaskID
	for _, r := range []work.Request{{GPUs: 2 + int(seed%2)}, {GPUs: 1, Members: 4}, {Profile: "7g.80gb"}, {Profile: "3g.40gb", Members: 3}, {Milli: 143, CPUMilli: 30000}} {
		targets = append(targets, m.submit(work.Spec{Tenant: "poor", Priority: work.Low, Request: r, Estimate: longest}, longest))
	}
	bound := time.Duration((2.5*weight + 1.5*(1-weight)) * float64(queue.Horizon))
	began, last := m.now, m.now.Add(bound+time.Duration(4*len(targets))*longest)
	for m.now < last {
		m.pass(m.now.Add(5 * time.Minute))
		busy()
		left := 0
		for _, id := range targets {
			if _, ok := m.started[id]; !ok {
				left++
			}
		}
		if left == 0 {
			return m.err
		}
	}
	for _, id := range targets {
		if _, ok := m.started[id]; !ok {
			x, _ := m.e.Explain(id)
			return fmt.Errorf("task %d, %s, waits for %s: %s; %d ahead", id, x.Task.Spec.Request, m.now.Sub(began), x.Reason.Msg, x.Ahead)
		}
	}
	return m.err
}

func pickOf[T any](r *rand.Rand, xs ...T) T { return xs[r.IntN(len(xs))] }

// TestNobodyStarves: and it is age that sees to it, as an order without it shows.
func TestNobodyStarves(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			t.Parallel()
			if err := starving(seed, queue.Rules{}); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("without age", func(t *testing.T) {
		t.Parallel()
		if err := starving(1, queue.Rules{Order: queue.ByLength}); err == nil || !strings.Contains(err.Error(), "waits for") {
			t.Errorf("the shortest always go first, but nobody starves: %v", err)
		}
	})
}

// quota lets tenants borrow what tenant a is guaranteed, and then a asks for all of it.
func quota(seed uint64, perHour int, p plant) error {
	m := newMill(seed, testConfig(), p)
	m.ledger = NewLedger(testConfig())
	const gpus = 6
	mine := 1 + m.rng.IntN(4)
	own := map[string]int{"b": m.rng.IntN(gpus - mine + 1)}
	own["c"] = m.rng.IntN(gpus - mine - own["b"] + 1)
	m.setUp(work.Pool{MinRuntime: 10 * time.Minute, PreemptPerHour: perHour}, 2, gpus/2, work.Tenant{Name: "a", GuaranteeGPUs: float64(mine)},
		work.Tenant{Name: "b", GuaranteeGPUs: float64(own["b"])}, work.Tenant{Name: "c", GuaranteeGPUs: float64(own["c"])}, work.Tenant{Name: "d"})
	for m.e.cluster.FreeGPUs("p") > 0 {
		if m.rng.IntN(3) == 0 { // of d, to whom nothing is guaranteed, parts too
			m.submit(work.Spec{Tenant: "d", Priority: work.Priority(m.rng.IntN(3)), Request: pickOf(m.rng, work.Request{Milli: 143}, work.Request{Profile: "3g.40gb"}, work.Request{GPUs: 1})}, never.Sub(m.now))
			continue
		}
		m.submit(work.Spec{Tenant: pickOf(m.rng, "b", "c"), Priority: work.Priority(m.rng.IntN(3)), Request: work.Request{GPUs: 1}, Checkpoint: pickOf(m.rng, 0, time.Minute)}, never.Sub(m.now))
	}
	m.pass(m.now.Add(10*time.Minute + time.Second))
	had := map[string]int{"b": m.e.use["b"].milli, "c": m.e.use["c"].milli}
	var ids []work.TaskID
	for left := mine; left > 0; {
		n := min(1+m.rng.IntN(2), left, gpus/2)
		ids = append(ids, m.submit(work.Spec{Tenant: "a", Priority: work.Low, Request: work.Request{GPUs: 1, Members: n}}, time.Hour))
		left -= n
	}
	if m.err != nil {
		return m.err
	}
	for _, id := range ids {
		if m.started[id] != m.now {
			x, _ := m.e.Explain(id)
			return fmt.Errorf("task %d is within the guarantee of %d GPUs and does not run after one reclaim: %s", id, mine, x.Reason.Msg)
		}
	}
	for name, n := range own { // order: only a yes or no comes out
		if least := min(1000*n, had[name]); m.e.use[name].milli < least {
			return fmt.Errorf("tenant %s is guaranteed %d GPUs and is left with %d thousandths", name, n, m.e.use[name].milli)
		}
	}
	return nil
}

// noGuarantee is a bug: what others are guaranteed is not looked at when they are made to
// yield.
func noGuarantee(*Engine) func(Fact) Fact {
	return func(f Fact) Fact {
		if t, ok := f.(TenantSet); ok && t.Tenant.Name != "a" {
			t.Tenant.GuaranteeGPUs = 0
			return t
		}
		return f
	}
}

// noBound is a bug: it is not looked at how many had to yield lately.
func noBound(*Engine) func(Fact) Fact {
	return func(f Fact) Fact {
		if p, ok := f.(PoolSet); ok {
			p.Pool.PreemptPerHour = 0
			return p
		}
		return f
	}
}

// TestPreemptionsPerHour: no more yield in an hour than may.
func TestPreemptionsPerHour(t *testing.T) {
	found := ""
	for seed := range uint64(100) {
		if err := quota(seed, 1, nil); err != nil && !strings.Contains(err.Error(), "does not run after one reclaim") {
			t.Errorf("seed %d: %v", seed, err)
		}
		if err := quota(seed, 1, noBound); err != nil && strings.Contains(err.Error(), "within the hour") {
			found = err.Error()
		}
	}
	if found == "" {
		t.Error("any number may yield, and nobody reports it")
	}
	t.Log("with a planted bug:", found)
}

// TestQuota: what a tenant is guaranteed it has after one reclaim, and no lender falls
// below what it is guaranteed itself.
func TestQuota(t *testing.T) {
	found := ""
	for seed := range uint64(100) {
		if err := quota(seed, 0, nil); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		if err := quota(seed, 0, noGuarantee); err != nil {
			found = err.Error()
		}
	}
	if !strings.Contains(found, "guaranteed") {
		t.Errorf("lenders may lose everything, and nobody reports it: %q", found)
	}
	t.Log("with a planted bug:", found)
}

// gang plays tasks that hold GPUs, a gang that waits for them, and, but for those left
// out, short tasks that come after it. It tells when the gang starts, and who went past.
func gang(seed uint64, leftOut map[int]bool, p plant) (start work.Time, past map[int]bool, err error) {
	cfg := testConfig()
	cfg.Forecast.Least = 1 << 30 // nothing is learned: tasks end by what is said of them
	m := newMill(seed, cfg, p)
	weight := 1.0
	var tenants []work.Tenant
	for i := range 8 {
		tenants = append(tenants, work.Tenant{Name: fmt.Sprint("t", i)})
	}
	m.setUp(work.Pool{Weight: &weight}, 2, 4, append(tenants, work.Tenant{Name: "z"})...)
	for i := range 8 {
		if runs := time.Duration(10+m.rng.IntN(180)) * time.Minute; m.rng.IntN(4) > 0 {
			m.submit(work.Spec{Tenant: tenants[i].Name, Request: work.Request{GPUs: 1}, Estimate: runs, MaxRuntime: runs + time.Minute}, runs)
		}
	}
	id := m.submit(work.Spec{Tenant: "z", Request: pickOf(m.rng, work.Request{GPUs: 4}, work.Request{GPUs: 2, Members: 3}, work.Request{GPUs: 1, Members: 8})}, time.Hour)
	shorts := map[work.TaskID]int{}
	for i := range 30 {
		m.pass(m.now.Add(time.Duration(m.rng.IntN(10)) * time.Minute))
		limit := time.Duration(1+m.rng.IntN(100)) * time.Minute
		runs := time.Duration(m.rng.Int64N(int64(limit))) + 1
		r := pickOf(m.rng, work.Request{GPUs: 1}, work.Request{GPUs: 2}, work.Request{Milli: 300})
		if !leftOut[i] {
			shorts[m.submit(work.Spec{Tenant: "z", Request: r, Estimate: limit, MaxRuntime: limit}, runs)] = i
		}
	}
	m.pass(m.now.Add(24 * time.Hour))
	start, ok := m.started[id]
	if !ok {
		return never, nil, fmt.Errorf("the gang never starts")
	}
	past = map[int]bool{}
	for short, i := range shorts { // order: a set
		if at, ok := m.started[short]; ok && at < start {
			past[i] = true
		}
	}
	return start, past, m.err
}

// noWindow is a bug: whoever comes is taken to end at once.
func noWindow(*Engine) func(Fact) Fact {
	return func(f Fact) Fact {
		if s, ok := f.(Submitted); ok && s.Spec.Tenant == "z" && s.Spec.MaxRuntime > 0 {
			s.Said.P50, s.Said.P90 = 1, 1 // as long as it has saved nothing this is what counts
			return s
		}
		return f
	}
}

// TestGangIsNotDelayed: a gang starts no later with those that were let past it than
// without them.
func TestGangIsNotDelayed(t *testing.T) {
	late, passed := 0, 0
	for seed := range uint64(150) {
		with, past, err := gang(seed, nil, nil)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		passed += len(past)
		if without, _, err := gang(seed, past, nil); err != nil || with > without {
			t.Errorf("seed %d: the gang starts %s later because of the %d that went past, %v", seed, with.Sub(without), len(past), err)
		}
		with, past, err = gang(seed, nil, noWindow)
		if without, _, errToo := gang(seed, past, noWindow); err == nil && errToo == nil && with > without {
			late++
		}
	}
	if passed == 0 || late == 0 {
		t.Errorf("%d went past, and %d gangs are late when it is not looked at when those end", passed, late)
	}
	t.Logf("%d went past; %d of 150 gangs are late with a planted bug", passed, late)
}

// same is an error unless replaying and restoring give the state that is, and a restored
// line stands as the live one does.
func (m *mill) same() error {
	if m.err != nil {
		return m.err
	}
	if err := m.ledger.Same(m.e); err != nil {
		return err
	}
	b, err := m.e.Snapshot()
	if err != nil {
		return err
	}
	fresh, err := Restore(testConfig(), b)
	if err != nil {
		return err
	}
	for _, t := range m.e.sortedTasks() {
		if o := fresh.tasks[t.ID]; t.inLine && o.item != t.item {
			return fmt.Errorf("task %d has turn %d, restored %d", t.ID, t.item.Turn, o.item.Turn)
		}
	}
	return nil
}

// TestLaterTimes: what time and experience change after a decision does not change the
// state behind the facts' back.
func TestLaterTimes(t *testing.T) {
	m := newMill(1, testConfig(), nil)
	m.ledger = NewLedger(testConfig())
	m.setUp(work.Pool{PreemptPerHour: 3}, 1, 2, work.Tenant{Name: "a", GuaranteeGPUs: 1}, work.Tenant{Name: "b"})
	first := m.submit(work.Spec{Tenant: "b", Name: "n", Request: work.Request{GPUs: 2}, Checkpoint: time.Minute, Priority: work.Low}, 100*time.Hour)
	m.pass(m.now.Add(5 * time.Minute))
	m.submit(work.Spec{Tenant: "b", Name: "n", Request: work.Request{GPUs: 1}}, 40*time.Minute)
	m.submit(work.Spec{Tenant: "b", Name: "n", Request: work.Request{GPUs: 1}}, 50*time.Minute)
	m.step(Hold{Task: first + 1, On: true})
	m.step(Hold{Task: first + 2, On: true})
	m.step(Preempt{Task: first}) // it starts anew at once, and yields again: it has saved something
	if err := m.same(); err != nil {
		t.Error(err)
	}
	m.pass(m.now.Add(5 * time.Minute))
	a := m.submit(work.Spec{Tenant: "a", Request: work.Request{GPUs: 1}}, 99*time.Hour)
	if m.started[a] == 0 {
		t.Error("a's guarantee is not kept")
	}
	if err := m.same(); err != nil {
		t.Error(err)
	}
	m.step(Hold{Task: first + 1, On: false}) // they run and end while the first one waits
	m.step(Hold{Task: first + 2, On: false})
	m.pass(m.now.Add(100 * time.Minute)) // one after the other on the GPU that a leaves
	if m.e.tasks[first].State != work.Queued || m.e.tasks[first+1].State != work.Succeeded {
		t.Errorf("not the story: %s, %s", m.e.tasks[first].State, m.e.tasks[first+1].State)
	}
	if err := m.same(); err != nil {
		t.Error(err)
	}
}
