// Package sim replays a trace through the very host and engine that serve, on
// fake hardware in virtual time, and measures what came of it: once static (whole
// GPUs, exclusive, rounded up, for a task's whole life) and once pooled.
//
// The same trace, cluster, start-up costs and seed give the same numbers. A run
// costs a few engine steps a task, so its time grows with the trace and not with
// the cluster; its memory holds one small row a task and one point of a curve for
// each change.
package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/driver/fake"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/host"
	"github.com/gpupool/gpupool/internal/trace"
	"github.com/gpupool/gpupool/internal/work"
)

// Setup is what both columns of an experiment share.
type Setup struct {
	Trace *trace.Trace
	Hosts []gpu.HostInfo
	Times fake.Times    // what carving and freeing take; the zero value means fake.DefaultTimes
	Until time.Duration // stop there; 0 = when all work has ended
	Seed  uint64        // as it was given to the trace; only repeated in the result

	// Progress is told how many tasks have ended, of how many. May be nil.
	Progress func(done, total int)
}

// poolName is the one pool of a simulated cluster. TTL, back-pressure and limits
// are off: no policy may look better by dropping work.
const poolName = "all"

// simulation is one run.
type simulation struct {
	setup  Setup
	writer *host.Writer
	hw     *fake.Hardware
	specs  []work.Spec // of the trace's tasks, in order
	row    []int32     // task number - 1 -> index into the trace
	due    agenda
	next   int // first task of the trace that is not submitted
	rec    *recorder
	stop   func(*recorder) bool // ends a hopeless run early; may be nil
}

// epoch is when virtual time begins. Any fixed value does; 0 means "never" to the engine.
const epoch = work.Time(time.Second)

// Run replays the trace once in the given pool mode.
func Run(ctx context.Context, s Setup, mode work.PoolMode) (*Outcome, error) {
	sim, err := newSimulation(ctx, s, mode)
	if err != nil {
		return nil, err
	}
	if err := sim.loop(ctx); err != nil {
		return nil, err
	}
	return sim.rec.outcome(), nil
}

func newSimulation(ctx context.Context, s Setup, mode work.PoolMode) (*simulation, error) {
	if len(s.Trace.Tasks) == 0 {
		return nil, fmt.Errorf("trace %s holds no task to replay", s.Trace.Name)
	}
	if s.Times == (fake.Times{}) {
		s.Times = fake.DefaultTimes()
	}
	models, geometries := modelsOf(s.Hosts)
	hw, err := fake.NewHardware(s.Hosts, models, s.Times)
	if err != nil {
		return nil, err
	}
	sim := &simulation{setup: s, hw: hw,
		writer: host.NewWriter(engine.Config{Models: geometries, KeepEnded: 1000})}
	if sim.specs, err = specsOf(s.Trace, s.Hosts); err != nil {
		return nil, err
	}
	evs := []engine.Event{
		engine.SetPools{Pools: []work.Pool{{Name: poolName, Mode: mode}}},
		engine.Inventory{Driver: "fake", Hosts: s.Hosts},
	}
	for _, t := range tenantsOf(sim.specs) {
		evs = append(evs, engine.SetTenant{Tenant: work.Tenant{Name: t}})
	}
	b, err := sim.writer.Apply(ctx, epoch, evs...)
	if err != nil {
		return nil, err
	}
	for _, r := range b.Replies {
		if r.Err != nil {
			return nil, fmt.Errorf("the simulated cluster could not be set up: %w", r.Err)
		}
	}
	sim.rec = newRecorder(sim)
	return sim, nil
}

// loop goes from one instant at which something is due to the next.
func (s *simulation) loop(ctx context.Context) error {
	var evs []engine.Event
	for turn := 0; ; turn++ {
		if turn%1024 == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			if s.setup.Progress != nil {
				s.setup.Progress(s.rec.done(), len(s.specs))
			}
		}
		now, ok := s.nextInstant()
		if !ok || s.setup.Until > 0 && now > epoch.Add(s.setup.Until) {
			break
		}
		evs = evs[:0]
		for s.due.any() && s.due.next() <= now { // what ends makes room before new work asks for it
			evs = append(evs, s.due.pop())
		}
		first, firstEvent := s.next, len(evs)
		for s.next < len(s.specs) && s.submitAt(s.next) <= now {
			evs = append(evs, engine.Submit{Spec: s.specs[s.next]})
			s.next++
		}
		if len(evs) == 0 {
			evs = append(evs, engine.Tick{}) // a deadline of the engine
		}
		b, err := s.writer.Apply(ctx, now, evs...)
		if err != nil {
			return err
		}
		for i := first; i < s.next; i++ {
			s.submitted(i, b.Replies[firstEvent+i-first])
		}
		s.rec.take(now, b.Facts)
		for _, c := range b.Commands {
			if err := s.carryOut(now, c); err != nil {
				return err
			}
		}
		if s.stop != nil && s.stop(s.rec) {
			break
		}
	}
	if s.setup.Until > 0 {
		s.rec.finish(epoch.Add(s.setup.Until))
	}
	if s.setup.Progress != nil {
		s.setup.Progress(s.rec.done(), len(s.specs))
	}
	return nil
}

func (s *simulation) submitAt(i int) work.Time { return epoch.Add(s.setup.Trace.Tasks[i].Submit) }

// nextInstant is when something is due: a submission, an answer of the hardware,
// the end of a process, or a deadline of the engine.
func (s *simulation) nextInstant() (work.Time, bool) {
	at, ok := work.Time(0), false
	consider := func(t work.Time) {
		if !ok || t < at {
			at, ok = t, true
		}
	}
	if s.due.any() {
		consider(s.due.next())
	}
	if s.next < len(s.specs) {
		consider(s.submitAt(s.next))
	}
	if !ok {
		return 0, false // deadlines alone change nothing any more
	}
	if t, wants := s.writer.Engine.NextDeadline(); wants {
		consider(t)
	}
	return max(at, s.writer.Engine.Now()), true
}

func (s *simulation) submitted(i int, r host.Reply) {
	if r.Err != nil {
		s.rec.reject(r.Err)
		return
	}
	for len(s.row) < int(r.Task) {
		s.row = append(s.row, int32(i))
	}
}

// carryOut does at once what a command asks and notes when its answer is due.
func (s *simulation) carryOut(now work.Time, c engine.Command) error {
	switch c := c.(type) {
	case engine.CarveCmd:
		p := driver.Part{Owner: c.Owner, Tenant: c.Tenant, Host: c.Host, Slices: make([]driver.Slice, len(c.Slices))}
		for i, x := range c.Slices {
			p.Slices[i] = driver.Slice{GPUID: c.GPUIDs[i], Slice: x}
		}
		took, err := s.hw.Carve(p)
		if err != nil { // the engine only asks for what the hardware can do, and no faults were asked for
			return fmt.Errorf("the fake hardware refused what the engine decided for %s: %w", c.Owner, err)
		}
		s.due.add(now.Add(took), engine.CarveDone{Owner: c.Owner})
	case engine.FreeCmd:
		took, err := s.hw.Free(c.Host, c.Owner)
		if err != nil {
			return fmt.Errorf("the fake hardware could not free what %s held: %w", c.Owner, err)
		}
		s.due.add(now.Add(took), engine.FreeDone{Owner: c.Owner})
	case engine.StartCmd:
		s.due.add(now, engine.StartDone{Owner: c.Owner})
		s.due.add(now.Add(s.setup.Trace.Tasks[s.row[c.Owner.Task-1]].Duration), engine.ProcessExited{Owner: c.Owner})
	case engine.StopCmd:
		s.due.add(now, engine.ProcessExited{Owner: c.Owner, Exit: work.Exit{Code: 143, Signal: "SIGTERM"}})
	case engine.WatchCmd, engine.ForgetCmd:
	}
	return nil
}

// agenda is what is due when, in order of time and then of being added. It is a
// binary heap by hand: container/heap would box every entry, and this is the one
// loop whose speed a user waits for.
type agenda struct {
	items []agendum
	added uint64
}

type agendum struct {
	at work.Time
	n  uint64
	ev engine.Event
}

func (a *agendum) before(b *agendum) bool { return a.at < b.at || a.at == b.at && a.n < b.n }

func (a *agenda) any() bool       { return len(a.items) > 0 }
func (a *agenda) next() work.Time { return a.items[0].at }

func (a *agenda) add(at work.Time, ev engine.Event) {
	a.added++
	a.items = append(a.items, agendum{at, a.added, ev})
	for i := len(a.items) - 1; i > 0; {
		up := (i - 1) / 2
		if !a.items[i].before(&a.items[up]) {
			return
		}
		a.items[i], a.items[up] = a.items[up], a.items[i]
		i = up
	}
}

func (a *agenda) pop() engine.Event {
	ev := a.items[0].ev
	last := len(a.items) - 1
	a.items[0] = a.items[last]
	a.items[last] = agendum{}
	a.items = a.items[:last]
	for i := 0; ; {
		least := i
		for _, down := range [2]int{2*i + 1, 2*i + 2} {
			if down < last && a.items[down].before(&a.items[least]) {
				least = down
			}
		}
		if least == i {
			return ev
		}
		a.items[i], a.items[least] = a.items[least], a.items[i]
		i = least
	}
}
