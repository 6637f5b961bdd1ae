//go:build linux && cgo

package checkpoint

import (
	"github.com/ebitengine/purego"
)

// open loads the driver library and looks every function up, as calling one that an older library lacks would end this
// process. Without cgo the library could be loaded too, but the binary would then not be static any more (ADR 10).
func open() (*library, cudaVersion, error) {
	const name = "libcuda.so.1"
	h, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, 0, refuse("NVIDIA's driver library cannot be loaded: %s; a driver of version 570 or later brings it", err)
	}
	lib := &library{}
	var v int32
	if err = find(h, &lib.version, "cuDriverGetVersion"); err == nil {
		if r := lib.version(&v); r != success {
			return nil, 0, refuse("%s does not tell its version: %s", name, r)
		}
		if cudaVersion(v) < versionCheckpoint {
			return nil, 0, refuse("this driver serves CUDA %s: moving GPU memory to main memory takes CUDA %s, which is driver 570", cudaVersion(v), versionCheckpoint)
		}
	}
	for _, f := range []struct {
		to   any
		name string
	}{
		{&lib.start, "cuInit"}, {&lib.deviceCount, "cuDeviceGetCount"}, {&lib.deviceUUID, "cuDeviceGetUuid_v2"}, {&lib.deviceTotal, "cuDeviceTotalMem_v2"},
		{&lib.state, "cuCheckpointProcessGetState"}, {&lib.lock, "cuCheckpointProcessLock"}, {&lib.checkpoint, "cuCheckpointProcessCheckpoint"},
		{&lib.restore, "cuCheckpointProcessRestore"}, {&lib.unlock, "cuCheckpointProcessUnlock"},
	} {
		if err == nil {
			err = find(h, f.to, f.name)
		}
	}
	return lib, cudaVersion(v), err
}

// find points a function variable at a function of the library.
func find(library uintptr, to any, name string) error {
	at, err := purego.Dlsym(library, name)
	if err != nil {
		return refuse("libcuda.so.1 has no %s: moving GPU memory to main memory takes driver 570 or later", name)
	}
	purego.RegisterFunc(to, at)
	return nil
}
