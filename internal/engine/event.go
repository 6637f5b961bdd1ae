package engine

import (
	"time"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// Event is something that happened outside: a call of a user, or a word from a
// driver or a runner. Each is delivered at most once per Step and may repeat.
//
// The events of a task's usual life (Submit, CarveDone, StartDone, ProcessExited,
// FreeDone) may also be given by pointer. Step keeps no pointer to an event, so the
// simulator uses the same memory for the next ones.
type Event interface{ event() }

type (
	// Submit asks to accept a task. The reply is Output.Task.
	Submit struct{ Spec work.Spec }
	// Cancel asks to end a task. By is who asked.
	Cancel struct {
		Task work.TaskID
		By   string
	}
	// Hold keeps a waiting task back, or lets it go on.
	Hold struct {
		Task work.TaskID
		On   bool
		By   string
	}
	// Checkpoint says that a running task has saved its work.
	Checkpoint struct{ Task work.TaskID }
	// Preempt sends a running task back to the queue, as an operator asks.
	Preempt struct {
		Task work.TaskID
		By   string
	}
	// Renew keeps the lease of an outside client for another TTL.
	Renew struct {
		Task  work.TaskID
		Epoch uint32
	}
	// Release gives the lease of an outside client back.
	Release struct {
		Task  work.TaskID
		Epoch uint32
	}
	// SetPools makes or changes the pools named. Others stay: tasks and hosts may be in them.
	SetPools struct{ Pools []work.Pool }
	// SetTenant makes or changes a tenant.
	SetTenant struct{ Tenant work.Tenant }
	// RemoveTenant removes a tenant without unfinished tasks.
	RemoveTenant struct{ Name string }
	// Inventory is everything a driver sees. Hosts of the driver that it no longer
	// names are lost.
	Inventory struct {
		Driver string
		Models []gpu.Model
		Hosts  []gpu.HostInfo
		Parts  []SeenPart

		Verdicts []Verdict
		Faults   []Fault // the oldest of a GPU first
	}
	// CarveDone says that the slices of a part exist.
	CarveDone struct {
		Owner   work.Owner
		Devices []string
	}
	// CarveFailed says that the driver could not make them.
	CarveFailed struct {
		Owner work.Owner
		Err   string
	}
	// FreeDone says that nothing stands for an owner any more.
	FreeDone struct{ Owner work.Owner }
	// FreeFailed says that something may still stand; it is tried again later.
	FreeFailed struct {
		Owner work.Owner
		Err   string
	}
	// StartDone says that a process runs.
	StartDone struct{ Owner work.Owner }
	// StartFailed says that a process was not started and never will be.
	StartFailed struct {
		Owner work.Owner
		Err   string
	}
	// ProcessExited says that a process ended.
	ProcessExited struct {
		Owner work.Owner
		Exit  work.Exit
	}
	// ProcessesSeen lists what a runner has, so that what nobody owns is ended.
	ProcessesSeen struct{ Owners []work.Owner }
	// Usage is what was measured of slices since the last time. What nobody measured is
	// not in it, and a negative number is not known: neither counts as idle.
	Usage struct{ Samples []UsageSample }
	// Wake lets a parked task go on, once it has GPUs again. For one that runs it says that
	// someone uses it: it is not idle.
	Wake struct {
		Task work.TaskID
		By   string
	}
	// Park suspends a running task now and lends its GPUs, as a user or an operator asks.
	Park struct {
		Task work.TaskID
		By   string
	}
	// SuspendDone says that no process of a member runs, and its GPU memory is free.
	SuspendDone struct{ Owner work.Owner }
	// SuspendFailed says that it could not be done: the member runs as before.
	SuspendFailed struct {
		Owner work.Owner
		Err   string
	}
	// ResumeDone says that a suspended member runs again.
	ResumeDone struct{ Owner work.Owner }
	// ResumeFailed says that it will not: it must be ended.
	ResumeFailed struct {
		Owner work.Owner
		Err   string
	}
	// ResizeDone says that the slices of a part have their new sizes.
	ResizeDone struct {
		Owner   work.Owner
		Devices []string
	}
	// ResizeFailed says that they have not: they are as they were.
	ResizeFailed struct {
		Owner work.Owner
		Err   string
	}
	// Resize gives a task another size, as its user or an operator asks: whole GPUs of each
	// member, or a fraction of one, in thousandths; 0 = the pool sees to it again.
	Resize struct {
		Task  work.TaskID
		Milli int
		By    string
	}
	// SetMode sets the mode of a pool, beside its settings, until they name another.
	SetMode struct {
		Pool string
		Mode work.PoolMode
		By   string
	}
	// JudgeGPU wants something done with a GPU, as an operator asks: cordon or drain it;
	// gpu.VerdictNone takes back what operators said of it.
	JudgeGPU struct {
		GPU int // its number
		Do  gpu.Verdict
		Why string
		By  string
	}
	// Resume follows recovery: every command that may have been lost is given again.
	Resume struct{}
	// Tick only lets time pass.
	Tick struct{}
)

// UsageSample is the mean use of one slice over a time that ends now.
type UsageSample struct {
	Owner   work.Owner
	For     time.Duration // how long it was so
	Compute float64       // share of the slice's compute in use, 0 to 1
	MemMiB  int64         // GPU memory in use at its end
}

// Verdict is what a driver wants done with a GPU that ails, as driver.Verdict.
type Verdict struct {
	ID   string
	Do   gpu.Verdict
	Why  string
	Mend string
}

// Fault is a fault of a program on a GPU, as driver.Fault.
type Fault struct {
	ID    string
	At    work.Time
	Owner work.Owner // zero = not known
	Code  string
	What  string
}

// SeenPart is a part that stands on a host.
type SeenPart struct {
	Host  string
	Owner work.Owner
}

func (Submit) event()        {}
func (Cancel) event()        {}
func (Hold) event()          {}
func (Checkpoint) event()    {}
func (Preempt) event()       {}
func (Renew) event()         {}
func (Release) event()       {}
func (SetPools) event()      {}
func (SetTenant) event()     {}
func (RemoveTenant) event()  {}
func (Inventory) event()     {}
func (CarveDone) event()     {}
func (CarveFailed) event()   {}
func (FreeDone) event()      {}
func (FreeFailed) event()    {}
func (StartDone) event()     {}
func (StartFailed) event()   {}
func (ProcessExited) event() {}
func (ProcessesSeen) event() {}
func (Usage) event()         {}
func (Wake) event()          {}
func (Park) event()          {}
func (SuspendDone) event()   {}
func (SuspendFailed) event() {}
func (ResumeDone) event()    {}
func (ResumeFailed) event()  {}
func (ResizeDone) event()    {}
func (ResizeFailed) event()  {}
func (Resize) event()        {}
func (SetMode) event()       {}
func (JudgeGPU) event()      {}
func (Resume) event()        {}
func (Tick) event()          {}

// Command is something to be done outside. Every command is idempotent and may
// be given again.
type Command interface{ command() }

type (
	// CarveCmd asks a driver to make the slices of a part; answer CarveDone or CarveFailed.
	CarveCmd struct {
		Owner  work.Owner
		Tenant string
		Driver string
		Host   string
		Slices []work.Slice
		GPUIDs []string // of the slices, in order
	}
	// FreeCmd asks a driver to free whatever stands for an owner; answer FreeDone or FreeFailed.
	FreeCmd struct {
		Owner  work.Owner
		Driver string
		Host   string
	}
	// StartCmd asks a runner to start a member; answer StartDone, then ProcessExited; or StartFailed.
	StartCmd struct {
		Owner   work.Owner
		Spec    *work.Spec  // read only
		Array   work.TaskID // the first task of its array; 0 = none
		Index   int         // in its array
		Driver  string
		Host    string
		Slices  []work.Slice
		Devices []string
	}
	// WatchCmd asks to watch a member that was started before; answer ProcessExited.
	WatchCmd struct{ Owner work.Owner }
	// ResizeCmd asks a driver to give the slices of a part other sizes in place; answer
	// ResizeDone or ResizeFailed.
	ResizeCmd struct{ CarveCmd }
	// StopCmd asks a runner to end a member; the answer is ProcessExited.
	StopCmd struct {
		Owner  work.Owner
		Grace  time.Duration
		Signal string // in place of TERM, as work.Elastic says; "" = TERM
	}
	// SuspendCmd asks a runner to stop a member where it is and to take what it holds of
	// GPUs into main memory; answer SuspendDone or SuspendFailed.
	SuspendCmd struct{ Owner work.Owner }
	// ResumeCmd asks a runner to let it go on, on these devices; answer ResumeDone or ResumeFailed.
	ResumeCmd struct {
		Owner   work.Owner // as the member was started
		Devices []string
	}
	// ScaleOutCmd asks for more GPUs from outside. No answer: they join when they are there.
	ScaleOutCmd struct {
		Pool    string
		Waiting int     // tasks
		GPUs    float64 // what they ask for
	}
	// ForgetCmd tells a runner that the end of a member is known for good. No answer.
	ForgetCmd struct{ Owner work.Owner }
)

func (CarveCmd) command()    {}
func (FreeCmd) command()     {}
func (StartCmd) command()    {}
func (WatchCmd) command()    {}
func (StopCmd) command()     {}
func (SuspendCmd) command()  {}
func (ResumeCmd) command()   {}
func (ForgetCmd) command()   {}
func (ScaleOutCmd) command() {}
