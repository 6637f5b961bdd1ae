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
	"github.com/gpupool/gpupool/internal/queue"
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
	Rules queue.Rules   // who is next; the zero value is what gpupool does
	Told  bool          // tasks tell how long they will run, and are right: for the oracle
	Saves time.Duration // tasks save their work so often; 0 = never

	// Pools are the cluster's; a task goes to the one that its trace names, else to the
	// first. None = one pool of all hosts, which does with idle tasks what Elastic says.
	Pools   []work.Pool
	Elastic work.PoolElastic

	// GiveUp is the share of all requests that may begin later than 10 s after they came: a
	// run with more is ended, and its numbers are worth nothing. 0 = never.
	GiveUp float64
	// Slow is the slowdown that more than one task in twenty may not pass: a run with more is
	// ended likewise. 0 = any.
	Slow float64

	// Progress is told how many tasks have ended, of how many. May be nil.
	Progress func(done, total int)
}

// poolName is the one pool of a simulated cluster. TTL, back-pressure and limits
// are off: no policy may look better by dropping work.
const poolName = "all"

// simulation is one run.
type simulation struct {
	setup    Setup
	writer   *host.Writer
	hw       *fake.Hardware
	tasks    *demands // of the trace, in order
	row      []int32  // task number - 1 -> index into the trace
	due      agenda
	slices   []driver.Slice // scratch of carryOut: the hardware keeps a copy
	next     int            // first task of the trace that is not submitted
	lives    []*life        // by task number - 1; nil = its use is not known
	paces    map[work.TaskID]*pace
	crowd    map[int][]*pace // of shared GPUs
	requests int             // of all tasks
	beats    bool            // idle tasks are measured now and then
	rec      *recorder
	stop     func(*recorder) bool // ends a hopeless run early; may be nil
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
	out := sim.rec.outcome()
	if x, err := sim.writer.Engine.Shadow(poolName); err == nil { // one pool, and not dynamic
		out.Shadow = &x
	}
	return out, nil
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
	sim := &simulation{setup: s, hw: hw, paces: map[work.TaskID]*pace{}, crowd: map[int][]*pace{},
		writer: host.NewWriter(engine.Config{Models: geometries, KeepEnded: 1000, Rules: s.Rules})}
	if sim.tasks, err = newDemands(s.Trace, s.Hosts, s.Pools); err != nil {
		return nil, err
	}
	sim.row = make([]int32, 0, len(s.Trace.Tasks))
	evs := []engine.Event{
		engine.SetPools{Pools: s.pools(mode)},
		engine.Inventory{Driver: "fake", Hosts: s.Hosts},
	}
	for _, t := range tenantsOf(s.Trace) {
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
	for i := range s.Trace.Tasks {
		sim.requests += len(s.Trace.Tasks[i].Requests)
	}
	if s.GiveUp > 0 || s.Slow > 0 {
		sim.stop = func(r *recorder) bool {
			r.out.stopped = s.GiveUp > 0 && r.tooLate(s.GiveUp) || s.Slow > 0 && 20*r.slow > len(s.Trace.Tasks)
			return r.out.stopped
		}
	}
	sim.rec = newRecorder(sim)
	return sim, nil
}

// loop goes from one instant at which something is due to the next.
func (s *simulation) loop(ctx context.Context) error {
	var evs events
	for turn := 0; ; turn++ {
		if turn%1024 == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			if s.setup.Progress != nil {
				s.setup.Progress(s.rec.done(), s.total())
			}
		}
		now, ok := s.nextInstant()
		if !ok || s.setup.Until > 0 && now > epoch.Add(s.setup.Until) {
			break
		}
		evs.clear()
		for s.due.any() && s.due.next() <= now { // what ends makes room before new work asks for it
			if x := s.due.pop(); x.what < ofUse {
				evs.happened(x)
			} else {
				s.lived(now, x, &evs)
			}
		}
		first, firstEvent := s.next, len(evs.list)
		for s.next < s.total() && s.submitAt(s.next) <= now {
			s.submission(evs.submission())
			s.next++
		}
		if len(evs.list) == 0 {
			evs.list = append(evs.list, engine.Tick{}) // a deadline of the engine
		}
		b, err := s.writer.Apply(ctx, now, evs.list...)
		if err != nil {
			return err
		}
		for i := first; i < s.next; i++ {
			s.answered(now, i, b.Replies[firstEvent+i-first])
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
	s.leave()
	if s.setup.Until > 0 {
		s.rec.finish(epoch.Add(s.setup.Until))
	}
	if s.setup.Progress != nil {
		s.setup.Progress(s.rec.done(), s.total())
	}
	return nil
}

func (s *simulation) total() int { return len(s.setup.Trace.Tasks) }

// submitted is when the trace submits a task of the engine.
func (s *simulation) submitted(id work.TaskID) work.Time { return s.submitAt(int(s.row[id-1])) }

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
	if s.next < s.total() {
		consider(s.submitAt(s.next))
	}
	if !ok {
		return 0, false // deadlines alone change nothing any more
	}
	if t, wants := s.writer.Engine.DeadlineBefore(at); wants {
		consider(t)
	}
	return max(at, s.writer.Engine.Now()), true
}

// submission fills in what is submitted next.
func (s *simulation) submission(spec *work.Spec) {
	s.tasks.spec(s.next, spec)
	spec.Checkpoint = s.setup.Saves
	if s.setup.Told {
		spec.Estimate = s.setup.Trace.Tasks[s.next].Duration
	}
}

// duration is how long a task runs.
func (s *simulation) duration(id work.TaskID) time.Duration {
	return s.setup.Trace.Tasks[s.row[id-1]].Duration
}

func (s *simulation) answered(now work.Time, i int, r host.Reply) {
	if r.Err != nil {
		s.rec.reject(r.Err)
		return
	}
	for len(s.row) < int(r.Task) {
		s.row = append(s.row, int32(i))
		s.lives = append(s.lives, nil)
	}
	s.born(now, r.Task, &s.setup.Trace.Tasks[i])
}

// part is what a command is about, as the hardware knows it. It is good until the next.
func (s *simulation) part(c engine.CarveCmd) driver.Part {
	s.slices = s.slices[:0]
	for i, x := range c.Slices {
		s.slices = append(s.slices, driver.Slice{GPUID: c.GPUIDs[i], Slice: x})
	}
	return driver.Part{Owner: c.Owner, Tenant: c.Tenant, Host: c.Host, Slices: s.slices}
}

// carryOut does at once what a command asks and notes when its answer is due.
func (s *simulation) carryOut(now work.Time, c engine.Command) error {
	switch c := c.(type) {
	case engine.CarveCmd:
		took, err := s.hw.Carve(s.part(c))
		if err != nil { // the engine only asks for what the hardware can do, and no faults were asked for
			return fmt.Errorf("the fake hardware refused what the engine decided for %s: %w", c.Owner, err)
		}
		s.due.add(now, took, carved, c.Owner)
	case engine.FreeCmd:
		took, err := s.hw.Free(c.Host, c.Owner)
		if err != nil {
			return fmt.Errorf("the fake hardware could not free what %s held: %w", c.Owner, err)
		}
		s.due.add(now, took, freed, c.Owner)
	case engine.StartCmd:
		s.due.add(now, 0, started, c.Owner)
		if s.begins(now, c.Owner) || s.starts(now, c.Owner) {
			return nil // its end is known otherwise
		}
		left := s.duration(c.Owner.Task) - s.writer.Engine.Task(c.Owner.Task).Saved
		s.due.add(now, left, exited, c.Owner)
	case engine.StopCmd:
		takes := s.saves(now, c.Owner, c.Grace)
		s.stops(now, c.Owner.Task)
		s.due.add(now, takes, stopped, c.Owner)
	case engine.SuspendCmd:
		s.suspends(now, c.Owner)
	case engine.ResumeCmd:
		s.due.add(now, s.parkPrice(c.Owner.Task).Resume, resumed, c.Owner)
	case engine.ResizeCmd:
		took, err := s.hw.Carve(s.part(c.CarveCmd)) // a part that stands gets its new sizes
		if err != nil {
			return fmt.Errorf("the fake hardware refused what the engine decided for %s: %w", c.Owner, err)
		}
		s.due.add(now, took+resizing, resized, c.Owner)
	case engine.WatchCmd, engine.ForgetCmd, engine.ScaleOutCmd:
	}
	return nil
}
