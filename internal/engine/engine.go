// Package engine is the deterministic core: Step takes an event and the time
// and says which facts follow and what must be done outside. It has no clock, no
// goroutine, no lock, no I/O and no chance of its own, so the server and the
// simulator drive the very same code, and the same events give the same facts.
//
// Only facts change the state (apply.go), so snapshot + facts is recovery, and no
// decision is ever taken again. A Step costs a few map look-ups and, where
// something may be placed, what placement.Find costs; it does not grow with the
// number of GPUs. Explain, Check and Snapshot walk what they describe.
package engine

import (
	"cmp"
	"fmt"
	"time"

	"github.com/gpupool/gpupool/internal/elastic"
	"github.com/gpupool/gpupool/internal/forecast"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/placement"
	"github.com/gpupool/gpupool/internal/queue"
	"github.com/gpupool/gpupool/internal/work"
)

// Config is what an engine needs to know once. Zero values mean the defaults.
type Config struct {
	Models       []*gpu.Geometry // known without asking a driver
	AllocTimeout time.Duration   // from placed to running; default 30 s, negative = none
	AllocRetries int             // failed allocations before a task fails; default 5
	Sharers      int             // tasks that share one GPU at most; default 4
	Topology     []string        // host labels that name groups of near hosts, widest first; default rack
	Grace        time.Duration   // between SIGTERM and SIGKILL unless the task says; default 10 s
	KeepEnded    int             // ended tasks kept for questions; default 10,000
	Rules        queue.Rules     // who is next; the zero value is what gpupool does
	Forecast     forecast.Config // how run times are predicted
}

func (c Config) withDefaults() Config {
	if c.AllocTimeout == 0 {
		c.AllocTimeout = 30 * time.Second
	}
	if c.AllocRetries == 0 {
		c.AllocRetries = 5
	}
	if c.Sharers == 0 {
		c.Sharers = placement.DefaultSharers
	}
	if c.Topology == nil {
		c.Topology = []string{"rack"}
	}
	if c.Grace == 0 {
		c.Grace = 10 * time.Second
	}
	if c.KeepEnded == 0 {
		c.KeepEnded = 10_000
	}
	return c
}

// Phase is where a part of a lease stands.
type Phase string

// The phases of a part, in order. A closing lease skips what is left of them.
const (
	PhaseCarving  Phase = "carving"  // the driver makes the slices
	PhaseReady    Phase = "ready"    // they exist; other members are not ready yet, or an outside client uses them
	PhaseStarting Phase = "starting" // the runner was asked to start the member
	PhaseRunning  Phase = "running"
	PhaseStopping Phase = "stopping" // the runner was asked to end the member
	PhaseEnded    Phase = "ended"    // ended, the slices stand
	PhaseFreeing  Phase = "freeing"  // the driver frees the slices
	PhaseFreed    Phase = "freed"

	PhaseSuspending Phase = "suspending" // the runner was asked to suspend the member
	PhaseVacating   Phase = "vacating"   // it is suspended, the driver frees its slices
	PhaseParked     Phase = "parked"     // it is suspended and holds no slices
	PhaseResuming   Phase = "resuming"   // the runner was asked to let it go on
)

// live reports whether a process of the part may exist.
func (p Phase) live() bool {
	return p == PhaseStarting || p == PhaseRunning || p == PhaseStopping || p.halted() || p == PhaseResuming
}

// halted reports whether the process of the part is suspended, or may be.
func (p Phase) halted() bool {
	return p == PhaseSuspending || p == PhaseVacating || p == PhaseParked
}

// Part is a part of a lease and where it stands.
type Part struct {
	work.Part
	Phase   Phase      `json:"phase"`
	Devices []string   `json:"devices,omitempty"`
	Exit    *work.Exit `json:"exit,omitempty"`
	Tries   int        `json:"tries,omitempty"` // failed attempts to free
	Retry   work.Time  `json:"retry,omitempty"` // of freeing, when Tries > 0
	Why     string     `json:"why,omitempty"`   // freeing failed

	To    []work.Slice `json:"to,omitempty"`        // its slices are being resized to these
	Back  []work.Slice `json:"back,omitempty"`      // and were these before
	Was   []work.Slice `json:"was,omitempty"`       // what it held before it was parked
	Extra int64        `json:"extra_mib,omitempty"` // main memory for what was on them

	Sharing string `json:"sharing,omitempty"` // how its shares were made, as gpu.HostInfo.Sharing
}

// Lease is the right of a task to its parts at one epoch.
type Lease struct {
	Task    work.TaskID `json:"task"`
	Epoch   uint32      `json:"epoch"`
	Since   work.Time   `json:"since"`
	Expires work.Time   `json:"expires,omitempty"` // outside clients only
	Parts   []*Part     `json:"parts"`
	Closing bool        `json:"closing,omitempty"`
	Settled bool        `json:"settled,omitempty"` // the task took the arrow that closing leads to
	Then    work.State  `json:"then,omitempty"`    // what becomes of the task
	Reason  work.Reason `json:"reason"`            // of closing
	Exit    *work.Exit  `json:"exit,omitempty"`    // of the member that decides how the task ended
	// Recalled says that the lease of an outside client cannot be renewed, as a GPU of it
	// is being drained.
	Recalled bool `json:"recalled,omitempty"`

	Called work.Time `json:"called,omitempty"` // when the pool that lent it to a guest asked for it
	Runs   uint32    `json:"runs,omitempty"`   // the epoch at which its processes were started, when not at its own: they were parked since
	of     *Task     // whose number is Task
	older  *Lease    // of the same task, that still holds something; see Task.holds
}

// Task is a task and where it stands.
type Task struct {
	ID        work.TaskID       `json:"id"`
	Spec      *work.Spec        `json:"spec"` // never changes: facts and commands share it
	State     work.State        `json:"state"`
	Reason    work.Reason       `json:"reason"`
	Submitted work.Time         `json:"submitted"`
	Since     work.Time         `json:"since,omitempty"`    // its age in line counts from then: submitted, or when nothing held it back any more
	Queued    work.Time         `json:"queued"`             // when it last began to wait
	Started   work.Time         `json:"started,omitempty"`  // when it last began to run
	Ended     work.Time         `json:"ended,omitempty"`    //
	Epoch     uint32            `json:"epoch,omitempty"`    // of its newest lease
	Failures  int               `json:"failures,omitempty"` // allocations that failed
	Preempted int               `json:"preempted,omitempty"`
	Exit      *work.Exit        `json:"exit,omitempty"`    // of the member that decided the end
	Said      forecast.Forecast `json:"said"`              // how long it would run, when it was submitted
	Ran       time.Duration     `json:"ran,omitempty"`     // in earlier attempts
	Saved     time.Duration     `json:"saved,omitempty"`   // of that, what its checkpoints kept
	Checked   work.Time         `json:"checked,omitempty"` // its last checkpoint that was reported
	Array     work.TaskID       `json:"array,omitempty"`   // the first task of its array
	Index     int               `json:"index,omitempty"`   // in its array
	Held      bool              `json:"held,omitempty"`    // kept back until it is released
	Turn      work.Time         `json:"turn,omitempty"`    // as it was told when it got in line: what is learned later does not change it
	Awaits    int               `json:"awaits,omitempty"`  // tasks that it comes after and that have not ended

	Use     elastic.Use   `json:"use,omitzero"`       // of what it holds, as judged
	Awake   bool          `json:"awake,omitempty"`    // it is suspended and wants to go on
	Carried time.Duration `json:"carried,omitempty"`  // that its process ran for before it was last parked
	Moved   work.Time     `json:"moved,omitempty"`    // when something was last done with it
	Moves   int           `json:"moves,omitempty"`    // how often
	Stuck   int           `json:"stuck,omitempty"`    // moves of it that failed in a row
	Size    *work.Request `json:"size,omitempty"`     // what it was resized to; nil = as submitted
	SizedBy string        `json:"sized_by,omitempty"` // who did, if a person: then it keeps that size
	Plan    *Plan         `json:"plan,omitempty"`     // a move of it that was announced
	Again   []work.Time   `json:"again,omitempty"`    // its restarts for a resize or a move, within an hour
	Shade   Shade         `json:"shade,omitzero"`     // what it would hold in a dynamic pool

	Drained int        `json:"drained,omitempty"` // attempts that ended because a GPU was drained or broke
	Struck  int        `json:"struck,omitempty"`  // of those in a row, by the driver, soon after a start
	Faults  int        `json:"faults,omitempty"`  // that the hardware reported of its slices
	Fault   *FaultSeen `json:"fault,omitempty"`   // the last of them

	pool           *pool      // whose name is Spec.Pool
	lease          *Lease     // nil while queued and after the end
	keyed          bool       // Spec has a key: known here so that forgetting it looks no further
	holds          *Lease     // its newest lease that still holds something; the next is older
	kind           queue.Kind // its line, while it is in line
	item           queue.Item // its place there
	inLine         bool
	looked         work.Time      // when it was last asked whether others could take less for it
	neighbours     neighbours     // on a GPU that it shares; not kept over a restart
	book           booked         // how it stands in the books
	asked          work.Time      // when others were last asked in vain to yield for it
	window         elastic.Window // what was measured of it; not kept over a restart
	ends, foreseen work.Time      // when it is expected to end, and when that was foreseen; see endOf
}

type leaseKey struct {
	task  work.TaskID
	epoch uint32
}

// Engine is the state. It is not safe for concurrent use: one writer owns it.
type Engine struct {
	cfg     Config
	now     work.Time
	cluster *placement.Cluster
	learned []gpu.Model
	ills    map[int]ill       // GPU -> what is wrong with it
	faults  map[int]GPUFaults // GPU -> faults of programs on it

	disturbed []int // GPUs to attend to in this Step
	pools     map[string]*pool
	order     []string // pools in the order they were set: the first match takes a host
	lines     []*pool  // the same
	tenants   map[string]*work.Tenant
	tokens    map[string]work.Token // by ID
	use       map[string]use        // by tenant
	scale     float64               // of guarantees, where they are more than there are GPUs
	unscaled  bool                  // scale must be found anew
	forecast  *forecast.Forecaster
	arrays    map[work.TaskID]*array        // by first task, while any of their tasks is known
	after     map[work.TaskID][]work.TaskID // tasks that wait for a task's end
	orphans   []work.TaskID                 // tasks that come after one that did not succeed
	tasks     map[work.TaskID]*Task
	leases    map[leaseKey]*Lease
	keys      map[string]work.TaskID // tenant and idempotency key -> task
	ended     []work.TaskID          // oldest first
	lastID    work.TaskID
	timers    timers
	liens     map[int][]*Task // GPU -> parked tasks that held it: whoever gets it is a guest of theirs

	rollout *Rollout // that goes on, else the last; nil = there was none

	parted map[[2]string]Parted // kinds of work that do not share a GPU, until then

	endedWell work.Exit // the zero Exit, and never anything else; see keptExit
	out       Output

	// tamper lets tests plant a bug: what it returns is applied in place of a fact.
	tamper func(Fact) Fact
}

// Output is what a Step decided. The slices are valid until the next Step.
type Output struct {
	Facts    []Fact
	Commands []Command
	Task     work.TaskID // accepted by Submit
	Err      error       // of type *work.Error; nothing changed then
}

// New makes an empty engine.
func New(cfg Config) *Engine {
	cfg = cfg.withDefaults()
	e := &Engine{
		cfg: cfg, cluster: placement.NewCluster(cfg.Models),
		ills: map[int]ill{}, faults: map[int]GPUFaults{}, pools: map[string]*pool{}, tenants: map[string]*work.Tenant{}, tokens: map[string]work.Token{}, use: map[string]use{},
		arrays: map[work.TaskID]*array{}, after: map[work.TaskID][]work.TaskID{}, forecast: forecast.New(cfg.Forecast), unscaled: true, liens: map[int][]*Task{}, parted: map[[2]string]Parted{},
		tasks: map[work.TaskID]*Task{}, leases: map[leaseKey]*Lease{}, keys: map[string]work.TaskID{},
	}
	e.cluster.Sharers, e.cluster.Topology = cfg.Sharers, cfg.Topology
	return e
}

// Step lets time pass to now, then takes an event. Facts that follow are in the
// state already; the caller makes them durable before anything else leaves.
// A now before an earlier one counts as the earlier one.
func (e *Engine) Step(now work.Time, ev Event) Output {
	e.now = max(e.now, now)
	e.out = Output{Facts: e.out.Facts[:0], Commands: e.out.Commands[:0]}
	e.fireTimers()
	e.out.Err = e.handle(ev)
	e.attend()
	e.cancelOrphans()
	e.guardPools()
	e.schedule()
	e.forget()
	return e.out
}

func (e *Engine) handle(ev Event) error {
	switch ev := ev.(type) {
	case Submit:
		return e.submit(&ev.Spec)
	case *Submit:
		return e.submit(&ev.Spec)
	case Cancel:
		return e.cancel(ev)
	case Hold:
		return e.hold(ev)
	case Checkpoint:
		return e.checkpoint(ev)
	case Preempt:
		return e.preempt(ev)
	case Renew:
		return e.renew(ev)
	case Release:
		return e.release(ev)
	case SetPools:
		return e.setPools(ev.Pools)
	case SetTenant:
		return e.setTenant(ev.Tenant)
	case RemoveTenant:
		return e.removeTenant(ev.Name)
	case SetToken:
		return e.setToken(ev.Token)
	case RemoveToken:
		return e.removeToken(ev.ID)
	case Inventory:
		return e.inventory(ev)
	case JudgeGPU:
		return e.judgeGPU(ev)
	case CarveDone:
		e.carveDone(ev)
	case *CarveDone:
		e.carveDone(*ev)
	case CarveFailed:
		e.carveFailed(ev)
	case FreeDone:
		e.freeDone(ev.Owner)
	case *FreeDone:
		e.freeDone(ev.Owner)
	case FreeFailed:
		e.freeFailed(ev)
	case StartDone:
		e.startDone(ev.Owner)
	case *StartDone:
		e.startDone(ev.Owner)
	case StartFailed:
		e.startFailed(ev)
	case ProcessExited:
		e.processExited(ev)
	case *ProcessExited:
		e.processExited(*ev)
	case ProcessesSeen:
		e.processesSeen(ev.Owners)
	case Usage, *Usage, Wake, Park, SuspendDone, SuspendFailed, ResumeDone, ResumeFailed, ResizeDone, ResizeFailed, Resize, SetMode, StartRollout, StopRollout:
		return e.handleMove(ev)
	case Resume:
		e.resume()
	case Tick:
	default:
		return fmt.Errorf("event %T is not known", ev)
	}
	return nil
}

// emit states a fact: it changes the state at once and goes to the journal.
func (e *Engine) emit(f Fact) {
	e.out.Facts = append(e.out.Facts, f)
	if e.tamper != nil {
		if f = e.tamper(f); f == nil {
			return
		}
	}
	e.apply(f)
}

func (e *Engine) command(c Command) { e.out.Commands = append(e.out.Commands, c) }

// Replay applies a fact from the journal. Facts of another history do not fit
// the state: that is an error, and the engine must not be used any more.
func (e *Engine) Replay(at work.Time, f Fact) (err error) {
	// apply trusts its facts, as they come from Step; only here may they be wrong,
	// and then any index may be out of range.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("fact %s does not fit the state (%v): the journal is not in order", f.Kind(), r)
		}
	}()
	e.now = max(e.now, at)
	e.apply(f)
	return nil
}

// Now is the time of the last Step.
func (e *Engine) Now() work.Time { return e.now }

// leaseAt returns a lease that still holds something, or nil. It goes by way of the
// task, which is found faster than a lease by its two numbers.
func (e *Engine) leaseAt(id work.TaskID, epoch uint32) *Lease {
	t := e.tasks[id]
	if t == nil {
		return nil
	}
	l := t.holds
	for l != nil && l.Epoch != epoch {
		l = l.older
	}
	return l
}

// part returns the lease and part of an owner, or nil.
func (e *Engine) part(o work.Owner) (*Lease, *Part) {
	l := e.leaseAt(o.Task, o.Epoch)
	if l == nil || o.Member < 0 || o.Member >= len(l.Parts) {
		return nil, nil
	}
	return l, l.Parts[o.Member]
}

// member returns the lease and part that the process of an owner belongs to now, or
// nil. It may have been parked since it was started, and hold its slices at a later epoch.
func (e *Engine) member(o work.Owner) (*Lease, *Part) {
	t := e.tasks[o.Task]
	if t == nil {
		return nil, nil
	}
	l := t.holds
	for l != nil && l.process() != o.Epoch {
		l = l.older
	}
	if l == nil || o.Member < 0 || o.Member >= len(l.Parts) {
		return nil, nil
	}
	return l, l.Parts[o.Member]
}

// process is the epoch by which a runner knows the members of a lease.
func (l *Lease) process() uint32 { return cmp.Or(l.Runs, l.Epoch) }

// runner is a member as a runner knows it.
func (l *Lease) runner(member int) work.Owner {
	return work.Owner{Task: l.Task, Epoch: l.process(), Member: member}
}

func (l *Lease) owner(member int) work.Owner {
	return work.Owner{Task: l.Task, Epoch: l.Epoch, Member: member}
}
