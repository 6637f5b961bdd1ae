// Package runner is the port through which members of tasks run: as processes of
// the operating system, in containers, or wherever an implementation puts them.
//
// A member is known by its ID for ever: it is started at most once, however often
// Start is called and whoever crashes in between, and its end is kept until it is
// forgotten. Each call costs what one member costs, except List, which walks all.
package runner

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

// ID is one member of a task at one epoch of its lease.
type ID struct {
	Task   uint64 `json:"task"`
	Epoch  uint32 `json:"epoch"`
	Member int    `json:"member"`
}

func (id ID) String() string { return fmt.Sprintf("%d.%d.%d", id.Task, id.Epoch, id.Member) }

// Spec says what to run and with which devices. A runner sets CUDA_VISIBLE_DEVICES
// and NVIDIA_VISIBLE_DEVICES to Devices (an empty list hides every GPU), and
// GPUPOOL_TASK, _EPOCH, _MEMBER, _MEMBERS, _TENANT, _POOL, _HOST and _SLICES.
type Spec struct {
	ID      ID       `json:"id"`
	Tenant  string   `json:"tenant"`
	Name    string   `json:"name,omitempty"`
	Pool    string   `json:"pool"`
	Host    string   `json:"host"`
	Command []string `json:"command"`
	Dir     string   `json:"dir,omitempty"`     // "" = the runner chooses one for the member
	Env     []string `json:"env,omitempty"`     // KEY=VALUE; what the runner sets itself wins
	Secrets []string `json:"secrets,omitempty"` // VARIABLE=NAME of values that the runner looks up when it starts the program; it fails where one is missing
	Devices []string `json:"devices,omitempty"`
	Nodes   []string `json:"nodes,omitempty"`  // device nodes that it may open; a container sees no others
	Shared  []string `json:"shared,omitempty"` // paths of the host that it must see under the same name
	Slices  string   `json:"slices,omitempty"` // in people's words
	Parts   bool     `json:"parts,omitempty"`  // they are parts of GPUs: MIG instances or shares

	work.Container // in what to run; without an image as the runner was told

	Members   int   `json:"members"`
	CPUMilli  int64 `json:"cpu_milli,omitempty"`  // limit, thousandths of a core; 0 = none
	MemoryMiB int64 `json:"memory_mib,omitempty"` // limit; 0 = none
}

// State is where a member stands.
type State string

// The states of a member.
const (
	Starting State = "starting" // it may or may not run already
	Running  State = "running"
	Exited   State = "exited" // Exit says how
)

// Exit is how a member ended.
type Exit struct {
	Code   int       `json:"code"`             // of the program; 128 + the signal's number when Signal is set
	Signal string    `json:"signal,omitempty"` // "SIGKILL"
	OOM    bool      `json:"oom,omitempty"`    // killed for its memory limit
	Lost   string    `json:"lost,omitempty"`   // why the true end is not known
	Ended  time.Time `json:"ended"`
}

// Status is a member as it is now.
type Status struct {
	ID      ID
	State   State
	PID     int // of the program, while it runs; 0 = not known
	Started time.Time
	Exit    *Exit // when State is Exited
}

// Runner starts members and tells how they end. Every implementation passes
// runnertest.Run. Members outlive the process that started them: a new Runner over
// the same place finds them again.
type Runner interface {
	// Start starts a member, once: for an ID that was started before it does
	// nothing and returns nil, also when that member has ended. It returns an error
	// only when the member does not run and never will under this ID. A program that
	// cannot be executed is no such error: the member exits with code 127 (not found)
	// or 126 (not executable) and its log says why.
	Start(ctx context.Context, s Spec) error

	// Stop asks a member to end: a signal to all its processes, and SIGKILL to what is
	// left after grace. The signal is SIGTERM, or the one of Signals that is named: a
	// program that is told apart so saves its work and ends. No other follows it within
	// the grace, nor the same one again, unless a later Stop names another. Stop returns when the request is certain to be
	// carried out, which is before the end. A shorter grace given later holds. A
	// member that has ended or is not known is no error; a signal that is not known is.
	Stop(ctx context.Context, id ID, grace time.Duration, signal string) error

	// Wait returns when the member has ended and nothing of it runs any more. For an
	// ID that is not known it returns at once, with Exit.Lost set.
	Wait(ctx context.Context, id ID) (Status, error)

	// List lists every member that is not forgotten.
	List(ctx context.Context) ([]Status, error)

	// Forget drops what is kept of an ended member except its logs. It refuses while
	// the member runs. A member that is not known is no error.
	Forget(ctx context.Context, id ID) error
}

// Suspender is what a runner offers beside when it can stop a member without ending it.
type Suspender interface {
	// Suspend stops all processes of a running member where they are, and takes what
	// they hold of GPUs into main memory where it is told how. It returns once nothing of
	// the member runs; on an error all of it runs as before. A member that is suspended
	// is no error; one that has ended, or is not known, is.
	Suspend(ctx context.Context, id ID) error

	// Resume lets a suspended member go on, on the devices given: as many as it had, in
	// the same order. A member that runs is no error.
	Resume(ctx context.Context, id ID, devices []string) error
}

// LogOptions says which part of a member's output to read.
type LogOptions struct {
	Follow bool // go on until the member has ended
	Tail   int  // only the last lines; 0 = all
}

// LogReader is what a runner offers beside when it keeps the output of members.
type LogReader interface {
	// Logs reads the output of a member, standard output and standard error in the
	// order they came. It is fs.ErrNotExist when there is none. Closing the reader,
	// or the end of ctx, ends a Follow.
	Logs(ctx context.Context, id ID, o LogOptions) (io.ReadCloser, error)
}
