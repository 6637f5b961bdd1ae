// Package nvidia is the driver for the NVIDIA GPUs of this machine: it finds them
// through NVML, cuts them into MIG instances, shares them by MPS or time slices, and
// watches their use and health.
//
// NVML lives in a helper process of the same binary (helper.go starts it, serve_*.go
// are it and the only files with cgo), because a fault in the library ends the process
// that loaded it. The driver itself is plain Go: it decides, and keeps a record of each
// part in a file, written before the first step on the hardware. docs/nvidia.md tells
// the whole; ADR 011 says why.
//
// Carve and Free look at the GPUs of their part; Observe and Usage at every GPU of the
// machine, side by side.
package nvidia

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gpupool/gpupool/internal/driver"
)

// ErrNone says that this machine has no NVIDIA GPU that a driver speaks for.
var ErrNone = errors.New("no NVIDIA driver with a GPU was found")

var errNotBuilt = errors.New("this gpupool was built without cgo and cannot speak to NVML: use the build with it (make build on Linux with a C compiler), or --fake")

func refuse(code driver.Code, format string, args ...any) error {
	return &driver.Error{Code: code, Msg: fmt.Sprintf(format, args...)}
}

// explain makes a driver's error of a call that failed: doing says what was tried.
func explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	if lost, is := errors.AsType[*lostAnswer](err); is {
		return refuse(driver.ErrUnclear, "%s: %s", doing, lost)
	}
	f, is := errors.AsType[*fault](err)
	if !is {
		return fmt.Errorf("%s: %w", doing, err)
	}
	code, more := driver.ErrHardware, ""
	switch f.Code {
	case nvmlInUse:
		code = driver.ErrInUse
	case nvmlNoResources:
		code, more = driver.ErrOverlap, "; the place is taken, or the GPU is out of what the instance needs"
	case nvmlNoPermission:
		code, more = driver.ErrForbidden, "; run gpupool as root, or give it the capability mig/config"
	case nvmlNotFound:
		code = driver.ErrNoDevice
	case nvmlGPULost:
		code = driver.ErrLost
	case nvmlResetRequired:
		code = driver.ErrMode
	}
	return refuse(code, "%s: %s%s", doing, f, more)
}

// isFault tells whether NVML refused with one of these codes.
func isFault(err error, codes ...int) bool {
	f, is := errors.AsType[*fault](err)
	if !is {
		return false
	}
	return slices.Contains(codes, f.Code)
}
