// Package driver is the port through which gpupool reaches GPUs: what a set of
// hosts with GPUs can do. A driver may speak for this machine, for a cluster, or
// (package fake) for any number of hosts that do not exist.
//
// Every call is idempotent and may be repeated after a lost answer or a restart
// on either side. The cost of Observe and Usage grows with the driver's hosts;
// they are called every few seconds, never on the path of a decision.
package driver

import (
	"context"
	"time"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// Driver makes and frees slices on the hosts it speaks for. Every
// implementation passes drivertest.Run.
type Driver interface {
	// Observe reports what exists now.
	Observe(ctx context.Context) (Inventory, error)

	// Carve makes every slice of a part, or none, and returns one device id for
	// each slice, in order, as a program needs it in CUDA_VISIBLE_DEVICES. A part
	// that exists already for the same owner is left alone and its devices are
	// returned. A Carve after a Free of the same owner is refused with ErrFreed:
	// an owner is never used twice. Errors are of type *Error.
	//
	// A Carve for an owner that stands, with the same GPUs in the same order and
	// other sizes, resizes in place: a share of another size, a whole GPU that
	// becomes a share (the rest of it is free for other shares then), or shares that
	// become whole again. The devices stay, and so do the processes, which may use
	// more than their new size until they notice. It is refused with ErrOverlap where
	// the new size does not fit beside the others, and with ErrIllegal where the GPUs
	// or their number differ, a size is none, or MIG is involved: instances never
	// change in place. Refused, or half refused, everything stands as before. Which
	// tenants may share a GPU is for the caller to see to.
	Carve(ctx context.Context, p Part) ([]string, error)

	// Free destroys whatever stands for the owner, also what a half-finished Carve
	// left. Nothing standing is success. It fails with ErrInUse while a process
	// still uses a slice.
	Free(ctx context.Context, host string, o work.Owner) error

	// Usage samples every slice that stands.
	Usage(ctx context.Context) ([]Sample, error)

	// Close lets go of the hardware. Slices stay.
	Close() error
}

// Accesser is what a driver offers beside when a program needs more than device ids to
// use its slices.
type Accesser interface {
	// Access says what that is, for a part that stands. Nothing standing is ErrNoDevice.
	Access(ctx context.Context, host string, o work.Owner) (Access, error)
}

// Access is what a program must see to use the slices of its part, and nothing of others.
type Access struct {
	Env    []string // KEY=VALUE, beside CUDA_VISIBLE_DEVICES
	Nodes  []string // device nodes, such as /dev/nvidia0
	Mounts []string // paths of the host that it must see under the same name, such as the pipes of an MPS daemon
}

// Part is what one member of a task gets on one host.
type Part struct {
	Owner  work.Owner
	Tenant string
	Host   string
	Slices []Slice
}

// Slice is one slice to make on the GPU with the given UUID.
type Slice struct {
	GPUID string
	work.Slice
}

// Inventory is everything that a driver sees.
type Inventory struct {
	Models   []gpu.Model    // of the GPUs seen, as the driver reports their geometry
	Hosts    []gpu.HostInfo // reachable now
	Verdicts []Verdict      // on GPUs that ail, one each; what is no longer listed is well again
	Faults   []Fault        // of the last while, the oldest of a GPU first
	Parts    []Seen         // parts that stand, made by gpupool
}

// Verdict says that a GPU ails and what is to be done with it. A host that ails is told
// by a verdict on each of its GPUs.
type Verdict struct {
	GPUID string
	Do    gpu.Verdict // cordon, drain or broken
	Why   string      // what the hardware said, such as "XID 48 (double-bit ECC error)"
	Mend  string      // the command that mends it once it is empty, such as "nvidia-smi --gpu-reset -i 3"; "" = none is known
}

// Fault is what the hardware reported of a program on a GPU, such as an access to memory
// that is not its own: nothing is wrong with the GPU, unless a verdict says so too.
//
// GPUID and At name a fault. Observe may report the same fault many times, also after a
// restart, and always with the same At; of two faults of one GPU the later has the greater
// At, if only by a nanosecond. It is counted once. A driver reports each for ten minutes
// or longer, except that it need not keep more than the last 64 of a GPU.
type Fault struct {
	GPUID string
	At    time.Time
	Owner work.Owner // whose slice was hit; zero = not known, or the whole GPU
	Code  string     // such as "XID 31"
	What  string     // in words, such as "GPU memory page fault"
}

// Seen is a part that stands on a host.
type Seen struct {
	Host  string
	Owner work.Owner
}

// Sample is the use of one slice at one time. A negative number means unknown,
// which is not the same as idle.
type Sample struct {
	At      time.Time
	GPUID   string
	Owner   work.Owner
	Compute float64 // share of the slice's compute in use, 0 to 1
	MemMiB  int64   // memory in use
	Procs   int     // processes attached
}

// Code names what went wrong in a driver.
type Code string

// The codes of driver errors.
const (
	ErrOverlap   Code = "overlap"           // a slice would overlap another, or the place is taken
	ErrIllegal   Code = "illegal_placement" // no such profile, or it may not start there
	ErrMode      Code = "mode"              // the GPU is in another mode
	ErrInUse     Code = "in_use"            // a process or a child instance is on it
	ErrFreed     Code = "freed"             // the owner was freed already
	ErrNoDevice  Code = "no_device"         // no such host or GPU
	ErrLost      Code = "device_lost"       // the GPU does not answer any more
	ErrHardware  Code = "hardware"          // the driver refused for a reason of its own
	ErrUnclear   Code = "unclear"           // half done: Free must be tried again
	ErrForbidden Code = "forbidden"         // gpupool was not given this GPU
)

// Error is what a driver answers when it cannot.
type Error struct {
	Code Code
	Msg  string // what was expected, what came, what to do
}

func (e *Error) Error() string { return e.Msg }
