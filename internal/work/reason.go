package work

import (
	"fmt"
	"time"
)

// Code names a reason or an error for programs. Codes are part of the API.
type Code string

// Codes of errors: a call that was refused and changed nothing.
const (
	CodeInvalid     Code = "invalid"      // the input is malformed or contradicts itself
	CodeImpossible  Code = "impossible"   // no host of the pool could ever hold it
	CodeNotFound    Code = "not_found"    // no such thing, or not yours
	CodeConflict    Code = "conflict"     // the thing is in another state than the call needs
	CodeStale       Code = "stale_epoch"  // the lease was given anew since
	CodeLimit       Code = "over_limit"   // a limit of the tenant forbids it
	CodeBusy        Code = "queue_full"   // the pool's queue has no place for it now; Error.Retry says when to try again
	CodeRate        Code = "rate_limited" // more calls than a token may make; Error.Retry says when to try again
	CodeUnavailable Code = "unavailable"  // the server cannot accept work now
	CodeForbidden   Code = "forbidden"    // the token does not allow it
	CodeUnauthed    Code = "unauthorized" // no token, or one that is not known
)

// Codes of reasons: why a task is where it is.
const (
	WaitGPUs      Code = "waiting_for_gpus"    // too few free GPUs or placements now
	WaitHost      Code = "waiting_for_host"    // GPUs are free, but not with the CPU and memory asked
	WaitTurn      Code = "waiting_for_turn"    // another task that wants the same GPUs came first
	WaitLimit     Code = "waiting_for_limit"   // the tenant holds as much as it may
	WaitCapacity  Code = "waiting_for_pool"    // no host of the pool could hold it at present
	WaitHeld      Code = "held"                // until someone releases it
	WaitAfter     Code = "waiting_for_tasks"   // that it comes after
	WaitReserved  Code = "reserved"            // GPUs are being kept for it until there are enough
	WaitReserve   Code = "waiting_for_reserve" // what is free is kept for inference and interactive work
	Preempted     Code = "preempted"           // for a tenant's guarantee, or for the pool that its GPUs belong to
	RunLimit      Code = "max_runtime"         // ran as long as it may
	Idle          Code = "idle"                // parked or stopped, as its GPUs were not used
	WaitWake      Code = "waiting_for_wake"    // parked, until someone wakes it
	Woken         Code = "woken"               // runs again after it was parked
	Resized       Code = "resized"             // has another size, or starts again to have one
	Moved         Code = "moved"               // starts again elsewhere
	MoveFailed    Code = "move_failed"         // a suspend or resume went wrong
	AfterFailed   Code = "dependency_failed"   // a task that it comes after did not succeed
	Placed        Code = "placed"              // slices chosen, being made
	Running       Code = "running"             //
	ExitZero      Code = "exit_zero"           // ended by itself, well
	ExitCode      Code = "exit_code"           // ended by itself with another code
	ExitSignal    Code = "exit_signal"         // ended by a signal nobody here sent
	ExitLost      Code = "exit_lost"           // ended, how is not known
	Cancelled     Code = "cancelled"           // by a user
	TTLExpired    Code = "queue_ttl"           // waited longer than its TTL
	CarveFailed   Code = "carve_failed"        // the driver could not make the slices
	StartFailed   Code = "start_failed"        // the runner could not start it
	AllocTimeout  Code = "allocation_timeout"  // slices or start took too long
	HostLost      Code = "host_lost"           // its host went away
	GPUFailed     Code = "gpu_failed"          // its GPU broke, or its driver wants it drained
	Drained       Code = "drained"             // an operator drains its GPU
	LeaseExpired  Code = "lease_expired"       // not renewed in time
	LeaseReleased Code = "lease_released"      // given back by its holder
)

// Reason is a code and a sentence that say why.
type Reason struct {
	Code Code   `json:"code"`
	Msg  string `json:"message"`
}

// Reasonf makes a Reason.
func Reasonf(c Code, format string, args ...any) Reason {
	return Reason{Code: c, Msg: fmt.Sprintf(format, args...)}
}

// Error is a refusal: a code, and a sentence that says what was expected, what
// came, and what to do.
type Error struct {
	Code  Code
	Msg   string
	Retry time.Duration // when trying again may help; 0 = not by waiting
}

func (e *Error) Error() string { return e.Msg }

// Errorf makes an Error.
func Errorf(c Code, format string, args ...any) *Error {
	return &Error{Code: c, Msg: fmt.Sprintf(format, args...)}
}
