package checkpoint

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// What of CUDA's driver API is used, as in cuda.h of CUDA 12.8: what is reserved is zero. CUDA 13.4 gave names to some of
// that; zero there still means main memory.
type (
	uuid [16]byte

	lockArgs struct {
		timeoutMS uint32 // 0: no end
		_         uint32
		_         [7]uint64
	}
	noArgs struct { // of checkpoint and unlock
		_ [8]uint64
	}
	pair        struct{ from, to uuid }
	restoreArgs struct {
		pairs *pair // every GPU of the process, or none
		count uint32
		_     [52]byte
	}
)

// library is the driver library's functions, by the names that cuda.h gives them.
type library struct {
	start       func(flags uint32) result                 // cuInit
	version     func(v *int32) result                     // cuDriverGetVersion
	deviceCount func(n *int32) result                     // cuDeviceGetCount
	deviceUUID  func(u *uuid, device int32) result        // cuDeviceGetUuid_v2
	deviceTotal func(bytes *uint64, device int32) result  // cuDeviceTotalMem_v2
	state       func(pid int32, s *state) result          // cuCheckpointProcessGetState
	lock        func(pid int32, args *lockArgs) result    // cuCheckpointProcessLock
	checkpoint  func(pid int32, args *noArgs) result      // cuCheckpointProcessCheckpoint
	restore     func(pid int32, args *restoreArgs) result // cuCheckpointProcessRestore
	unlock      func(pid int32, args *noArgs) result      // cuCheckpointProcessUnlock
}

// cudaVersion is 1000 times the major and 10 times the minor number of what a driver serves.
type cudaVersion int32

const (
	versionCheckpoint cudaVersion = 12080 // driver 570
	versionMoves      cudaVersion = 13000 // driver 580: a process may go on on another GPU
)

func (v cudaVersion) String() string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// state is where a process stands.
type state uint32

const stateFailed state = 3

func (s state) String() string {
	names := []string{"running", "locked", "checkpointed", "failed", "checkpointing", "restoring"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("state-%d", uint32(s))
}

// result is what a function of the library returns.
type result int32

const (
	success        result = 0
	invalidValue   result = 1
	outOfMemory    result = 2
	notInitialized result = 3
	noDevice       result = 100
	system         result = 304
	illegalState   result = 401
	notReady       result = 600
	notPermitted   result = 800
	notSupported   result = 801
	mismatch       result = 803
)

func (r result) String() string {
	switch r {
	case outOfMemory:
		return "memory ran out (CUDA error 2)"
	case notInitialized:
		return "CUDA is not initialised (CUDA error 3)"
	case noDevice:
		return "the driver finds no GPU (CUDA error 100)"
	case system:
		return "the system did not let it (CUDA error 304): it takes the process's own user with CAP_SYS_PTRACE, or root, in a pid namespace that shows the process; or what was tried before has left the process unusable"
	case illegalState:
		return "the process is not in the state for it (CUDA error 401)"
	case notReady:
		return "its GPU work did not end in time (CUDA error 600)"
	case notPermitted:
		return "not permitted (CUDA error 800): it takes the process's own user with CAP_SYS_PTRACE, or root"
	case notSupported:
		return "the driver does not do it (CUDA error 801): such as with managed memory, CUDA IPC before driver 610, MPS or MIG"
	case mismatch:
		return "libcuda.so.1 and the kernel's driver are of different versions (CUDA error 803): restart after a driver update"
	default:
		return fmt.Sprintf("CUDA error %d", int32(r))
	}
}

// failed is the error of a step.
func failed(c command, r result) error {
	switch {
	case r == success:
		return nil
	case c.step == "lock" && r == notReady:
		return fmt.Errorf("process %d could not be locked within %s: %s", c.pid, c.wait, r)
	}
	return fmt.Errorf("%s of process %d failed: %s", c.step, c.pid, r)
}

// after is the error of a step that may have broken the process: the driver does not promise to keep it whole.
func (l *library) after(c command, r result) error {
	err := failed(c, r)
	if err == nil {
		return nil
	}
	var s state
	switch now := l.state(int32(c.pid), &s); {
	case now == success && s == stateFailed:
		return fmt.Errorf("%w. The driver gave the process up: it cannot be used any more and must be ended", err)
	case c.step == "restore":
		return fmt.Errorf("%w. It stays locked and may be unusable, whatever is tried next: it should be ended", err)
	}
	return err
}

// stateOf asks for the state of a process. An error that is no refusal means that it uses no GPU.
func (l *library) stateOf(pid int) (string, error) {
	var s state
	switch r := l.state(int32(pid), &s); r {
	case success:
		return s.String(), nil
	case invalidValue, notInitialized:
		return "", fmt.Errorf("process %d uses no GPU that the driver knows of (CUDA error %d)", pid, int32(r))
	default:
		return "", refuse("the driver does not tell the state of process %d: %s", pid, r)
	}
}

// memoryOf adds up the memory of GPUs, in MiB; of all that there are when one is named that is not found.
func (l *library) memoryOf(devices []string) (mib int64, err error) {
	try := func(name string, r result) {
		if err == nil && r != success {
			err = refuse("the memory of the GPUs is not known: %s: %s", name, r)
		}
	}
	var n int32
	try("cuInit", l.start(0))
	if err == nil {
		try("cuDeviceGetCount", l.deviceCount(&n))
	}
	var all, named, found int64
	for d := int32(0); d < n && err == nil; d++ {
		var u uuid
		var bytes uint64
		try("cuDeviceGetUuid", l.deviceUUID(&u, d))
		try("cuDeviceTotalMem", l.deviceTotal(&bytes, d))
		all += int64(bytes >> 20)
		if slices.Contains(devices, u.String()) {
			named += int64(bytes >> 20)
			found++
		}
	}
	if len(devices) == 0 || found < int64(len(devices)) {
		named = all
	}
	return named, err
}

func (u uuid) String() string {
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// parseUUID reads what a GPU is called, as in GPU-01234567-89ab-cdef-0123-456789abcdef.
func parseUUID(text string) (u uuid, err error) {
	b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimPrefix(text, "GPU-"), "-", ""))
	if copy(u[:], b); err != nil || u.String() != "GPU-"+strings.ToLower(strings.TrimPrefix(text, "GPU-")) {
		return u, fmt.Errorf("expected a GPU's UUID such as GPU-01234567-89ab-cdef-0123-456789abcdef, got %q", text)
	}
	return u, nil
}
