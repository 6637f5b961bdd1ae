// Package work holds the demand words of gpupool: tenants, tasks, requests,
// their states and the reasons that explain them.
//
// It is data and small pure functions. Nothing here grows with the cluster.
package work

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/gpupool/gpupool/internal/gpu"
)

// Time is an instant in nanoseconds since the Unix epoch. The core gets it with
// every event and never asks a clock.
type Time int64

// TimeOf converts from the standard library's time.
func TimeOf(t time.Time) Time { return Time(t.UnixNano()) }

// Add returns t later by d, or the end of time where that is nearer.
func (t Time) Add(d time.Duration) Time {
	if d > 0 && t > math.MaxInt64-Time(d) {
		return math.MaxInt64
	}
	return t + Time(d)
}

// Sub returns the time from u to t.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Std converts to the standard library's time, in UTC; the zero Time is the zero time.
func (t Time) Std() time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(t)).UTC()
}

// FormatDuration writes 1h30m, not 1h30m0s.
func FormatDuration(d time.Duration) string {
	s := d.String()
	if t, cut := strings.CutSuffix(s, "m0s"); cut {
		s = t + "m"
	}
	if t, cut := strings.CutSuffix(s, "h0m"); cut {
		s = t + "h"
	}
	return s
}

// TaskID numbers tasks in the order in which they were accepted, from 1.
type TaskID uint64

// Priority orders tasks. Within one priority the first come is the first served.
type Priority int8

// The three priorities, most urgent first.
const (
	High Priority = iota
	Normal
	Low
	Priorities = 3
)

var priorityNames = [Priorities]string{"high", "normal", "low"}

func (p Priority) String() string {
	if p < 0 || int(p) >= Priorities {
		return fmt.Sprintf("priority(%d)", int8(p))
	}
	return priorityNames[p]
}

// MarshalText writes the priority's name.
func (p Priority) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads a priority's name; "" is normal.
func (p *Priority) UnmarshalText(b []byte) error {
	got, err := ParsePriority(string(b))
	if err == nil {
		*p = got
	}
	return err
}

// ParsePriority reads high, normal or low; "" is normal.
func ParsePriority(s string) (Priority, error) {
	for i, n := range priorityNames {
		if s == n {
			return Priority(i), nil
		}
	}
	if s == "" {
		return Normal, nil
	}
	return Normal, Errorf(CodeInvalid, "priority %q is not known: use high, normal or low", s)
}

// Class says what kind of work a task is.
type Class string

// The classes of work.
const (
	Training    Class = "training"
	Inference   Class = "inference"
	Interactive Class = "interactive"
)

// Latency reports whether someone waits for the work to begin: it goes first.
func (c Class) Latency() bool { return c == Inference || c == Interactive }

// Spec is what a tenant submits.
type Spec struct {
	Name     string        `json:"name,omitempty"`
	Tenant   string        `json:"tenant"`
	Pool     string        `json:"pool"`
	Priority Priority      `json:"priority"`
	Class    Class         `json:"class,omitempty"`
	Request  Request       `json:"request"`
	Command  []string      `json:"command,omitempty"` // empty for a lease of an outside client
	Dir      string        `json:"dir,omitempty"`     // working directory; "" = the server chooses
	Env      []string      `json:"env,omitempty"`     // KEY=VALUE
	Secrets  []string      `json:"secrets,omitempty"` // VARIABLE=NAME of values that are looked up at the start, and are nowhere else
	Grace    time.Duration `json:"grace,omitempty"`   // between SIGTERM and SIGKILL
	TTL      time.Duration `json:"ttl,omitempty"`     // longest wait in the queue; 0 = the pool's default, negative = none
	LeaseTTL time.Duration `json:"lease_ttl,omitempty"`
	Key      string        `json:"key,omitempty"` // idempotency key, unique per tenant

	MaxRuntime time.Duration `json:"max_runtime,omitempty"` // longest run, over all its attempts; 0 = no end
	Estimate   time.Duration `json:"estimate,omitempty"`    // the user's own guess at how long it runs; 0 = none
	Checkpoint time.Duration `json:"checkpoint,omitempty"`  // it saves its work this often; 0 = never
	Deadline   Time          `json:"deadline,omitempty"`    // it should have ended by then; 0 = none
	After      []TaskID      `json:"after,omitempty"`       // starts once these have succeeded
	AfterAny   []TaskID      `json:"after_any,omitempty"`   // starts once these have ended, however
	Hold       bool          `json:"hold,omitempty"`        // waits until it is released
	Array      *Array        `json:"array,omitempty"`       // one task for each index
	Trace      string        `json:"trace,omitempty"`       // what the client calls the work that it belongs to; nothing here reads it

	Container
	Elastic
}

// External reports whether the task is only a lease: an outside client uses the
// slices and renews its right to them.
func (s Spec) External() bool { return s.LeaseTTL > 0 }

// Validate checks a spec as far as that is possible without knowing the pool.
func (s Spec) Validate() error {
	switch {
	case s.Tenant == "":
		return Errorf(CodeInvalid, "a task needs a tenant")
	case s.External() && len(s.Command) > 0:
		return Errorf(CodeInvalid, "a lease has no command: submit a task to run %q", s.Command[0])
	case !s.External() && len(s.Command) == 0:
		return Errorf(CodeInvalid, "a task needs a command, for example: gpupool submit --gpus 1 -- python train.py")
	case len(s.Command) > 0 && s.Command[0] == "":
		return Errorf(CodeInvalid, "the command's first word is empty: give the program to run")
	case s.Priority < 0 || s.Priority >= Priorities:
		return Errorf(CodeInvalid, "priority %d is not known: use high, normal or low", s.Priority)
	case s.Grace < 0:
		return Errorf(CodeInvalid, "grace %s is negative: give 0 or more", s.Grace)
	case s.MaxRuntime < 0 || s.Estimate < 0 || s.Checkpoint < 0:
		return Errorf(CodeInvalid, "the longest run, the estimate and the time between checkpoints must not be negative")
	case s.Deadline < 0:
		return Errorf(CodeInvalid, "the deadline is before 1970: give a time to come")
	case s.External() && (s.Array != nil || s.MaxRuntime > 0):
		return Errorf(CodeInvalid, "a lease has no array and no longest run: it holds for as long as it is renewed")
	case len(s.After)+len(s.AfterAny) > MaxAfter:
		return Errorf(CodeInvalid, "a task may wait for at most %d others, this names %d", MaxAfter, len(s.After)+len(s.AfterAny))
	}
	if s.Array != nil {
		if err := s.Array.Validate(); err != nil {
			return err
		}
	}
	switch s.Class {
	case "", Training, Inference, Interactive:
	default:
		return Errorf(CodeInvalid, "class %q is not known: use training, inference or interactive", s.Class)
	}
	for _, arg := range s.Command {
		if strings.ContainsRune(arg, 0) {
			return Errorf(CodeInvalid, "the command's word %q holds a zero byte, which no program can be given", arg)
		}
	}
	for _, kv := range s.Env {
		if err := validEnv(kv); err != nil {
			return err
		}
	}
	if err := s.Container.Validate(); err != nil {
		return err
	}
	for _, x := range s.Secrets {
		if err := validSecret(x); err != nil {
			return err
		}
	}
	if err := s.Request.Validate(); err != nil {
		return err
	}
	return s.Elastic.Validate(s.Request)
}

func validEnv(kv string) error {
	switch name, _, ok := strings.Cut(kv, "="); {
	case strings.ContainsRune(kv, 0):
		return Errorf(CodeInvalid, "environment entry %q holds a zero byte", kv)
	case !ok:
		return Errorf(CodeInvalid, "environment entry %q has no '=': use KEY=VALUE", kv)
	case name == "":
		return Errorf(CodeInvalid, "environment entry %q has no name: use KEY=VALUE", kv)
	}
	return nil
}

// Tenant is who pays: limits, a guarantee, a weight and the hashes of its tokens.
type Tenant struct {
	Name          string   `json:"name"`
	LimitGPUs     float64  `json:"limit_gpus,omitempty"`     // GPUs held at once at most; 0 = no limit
	GuaranteeGPUs float64  `json:"guarantee_gpus,omitempty"` // GPUs it gets whenever it asks; what it leaves others may borrow
	MaxWaiting    int      `json:"max_waiting,omitempty"`    // tasks that wait at once at most; 0 = no limit
	MaxRunning    int      `json:"max_running,omitempty"`    // tasks that hold something at once at most; 0 = no limit
	Weight        float64  `json:"weight,omitempty"`         // share in fair sharing; 0 = 1
	Tokens        []string `json:"tokens,omitempty"`         // hashes, never the tokens themselves
}

// PoolMode says how far the pool may go with a GPU.
type PoolMode string

// The modes of a pool.
const (
	Static  PoolMode = "static"  // whole GPUs, exclusive, rounded up, for the task's whole life
	Shadow  PoolMode = "shadow"  // static, and it says what dynamic would have done
	Dynamic PoolMode = "dynamic" // slices and shares, and what idles is taken back
)

// Modes lists them, the most careful first.
func Modes() []PoolMode { return []PoolMode{Static, Shadow, Dynamic} }

// Pool is a named group of hosts with one policy.
type Pool struct {
	Name  string        `json:"name"`
	Hosts []string      `json:"hosts,omitempty"` // name patterns with *; empty = every host that no earlier pool took
	Mode  PoolMode      `json:"mode"`
	TTL   time.Duration `json:"ttl,omitempty"` // of tasks that name none; 0 = none

	Weight         *float64      `json:"weight,omitempty"`           // of priority against fair share, 0 to 1; nil = the default
	Capacity       int           `json:"capacity,omitempty"`         // tasks that may wait; 0 = no bound
	BackPressure   float64       `json:"back_pressure,omitempty"`    // share of the capacity beyond which only high priority is accepted
	AskAt          int           `json:"ask_at,omitempty"`           // waiting tasks beyond which it asks for more GPUs and refuses low priority; 0 = never
	BorrowFrom     []string      `json:"borrow_from,omitempty"`      // pools whose idle GPUs it may use when it asks for more
	LendGPUs       float64       `json:"lend_gpus,omitempty"`        // GPUs that tasks of other pools hold at most; 0 = all but what it keeps
	ScaleOutEvery  time.Duration `json:"scale_out_every,omitempty"`  // least time between two calls of the scale-out hook; 0 = there is none
	ReserveGPUs    float64       `json:"reserve_gpus,omitempty"`     // GPUs that training leaves to inference and interactive work
	MinRuntime     time.Duration `json:"min_runtime,omitempty"`      // run time that no one is preempted before
	PreemptPerHour int           `json:"preempt_per_hour,omitempty"` // preemptions in any hour at most; 0 = no limit

	Elastic PoolElastic `json:"elastic,omitzero"`
}

// Recommended size of a pool, in GPUs; outside it there is a warning.
const (
	PoolSizeLow  = 8
	PoolSizeHigh = 16
)

// Owner is who holds a slice or runs a process: one member of a task at one
// epoch of its lease. An epoch is never used again, so a late word about an old
// one is known as such.
type Owner struct {
	Task   TaskID `json:"task"`
	Epoch  uint32 `json:"epoch"`
	Member int    `json:"member"`
}

func (o Owner) String() string { return fmt.Sprintf("%d.%d.%d", o.Task, o.Epoch, o.Member) }

// Share of one GPU that a task was given under ModeShared.
type Share struct {
	Milli  int   `json:"milli"`      // thousandths of the GPU's compute
	MemMiB int64 `json:"memory_mib"` // cap on GPU memory
}

// Slice is what a task holds of one GPU: all of it, a MIG placement, or a share.
type Slice struct {
	GPU     int      `json:"gpu"`               // number of the GPU in this installation
	Mode    gpu.Mode `json:"mode"`              // whole, mig or shared
	Profile string   `json:"profile,omitempty"` // mig
	Start   int      `json:"start,omitempty"`   // mig: first memory unit
	Share   *Share   `json:"share,omitempty"`   // shared
	Milli   int      `json:"milli"`             // thousandths of the GPU that are taken by it
}

func (s Slice) String() string {
	switch s.Mode {
	case gpu.ModeMIG:
		return fmt.Sprintf("%s at %d of GPU %d", s.Profile, s.Start, s.GPU)
	case gpu.ModeShared:
		return fmt.Sprintf("%d%% and %s of GPU %d", s.Share.Milli/10, FormatMiB(s.Share.MemMiB), s.GPU)
	}
	return fmt.Sprintf("GPU %d", s.GPU)
}

// Part is what one member of a task holds: slices of one host, CPU and memory.
type Part struct {
	Host     int     `json:"host"` // number of the host in this installation
	Slices   []Slice `json:"slices,omitempty"`
	CPUMilli int64   `json:"cpu_milli,omitempty"`
	MemMiB   int64   `json:"memory_mib,omitempty"`
}

// Milli is the part of GPUs held, in thousandths.
func (p Part) Milli() int {
	n := 0
	for _, s := range p.Slices {
		n += s.Milli
	}
	return n
}

// Exit is how a member ended.
type Exit struct {
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"` // "SIGKILL"; Code is then 128 + its number
	OOM    bool   `json:"oom,omitempty"`    // killed for its memory limit
	Lost   string `json:"lost,omitempty"`   // why the true end is not known
}

// OK reports whether the member ended well.
func (e Exit) OK() bool { return e.Code == 0 && e.Signal == "" && e.Lost == "" }

// Reason puts an exit into words.
func (e Exit) Reason() Reason {
	switch {
	case e.Lost != "":
		return Reasonf(ExitLost, "ended, but how is not known: %s", e.Lost)
	case e.OOM:
		return Reasonf(ExitSignal, "killed because it used more memory than it asked for")
	case e.Signal != "":
		return Reasonf(ExitSignal, "ended by %s", e.Signal)
	case e.Code != 0:
		return Reasonf(ExitCode, "exited with code %d", e.Code)
	}
	return Reason{Code: ExitZero, Msg: "exited with code 0"}
}
