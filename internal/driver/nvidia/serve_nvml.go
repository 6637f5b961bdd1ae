//go:build cgo && linux

package nvidia

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Built says that this program can speak to NVML.
const Built = true

// HelperMain is the helper: it carries out requests from standard input and answers
// on file descriptor 3, until the input ends. library names libnvidia-ml.so; "" is
// the one that the system finds. It returns the exit code.
//
// Nothing is decided here. A call of NVML that the installed driver does not have ends
// the process, so each one is looked up first.
func HelperMain(library string) int {
	out := os.NewFile(3, "answers")
	if out == nil {
		fmt.Fprintln(os.Stderr, "this is a part of gpupool serve, which starts it itself")
		return 2
	}
	var opts []nvml.LibraryOption
	if library != "" {
		opts = append(opts, nvml.WithLibraryPath(library))
	}
	t := &translator{lib: nvml.New(opts...), devices: map[string]nvml.Device{}, samples: map[sampled]*sample{}, known: map[string]bool{}}
	var writing sync.Mutex
	for {
		var r request
		if err := readFrame(os.Stdin, &r); err != nil {
			if err != io.EOF { //nolint:errorlint // readFrame returns it as it is
				fmt.Fprintln(os.Stderr, err)
			}
			return 0 // at once, also where a call hangs
		}
		go func() { // calls on different GPUs go side by side
			a := t.answer(r)
			a.ID = r.ID
			writing.Lock()
			defer writing.Unlock()
			if writeFrame(out, a) != nil {
				os.Exit(1)
			}
		}()
	}
}

// translator turns requests into NVML calls.
type translator struct {
	lib nvml.Interface

	starting sync.Mutex
	ready    bool
	version  hello

	mu      sync.Mutex
	devices map[string]nvml.Device // by UUID
	samples map[sampled]*sample
	known   map[string]bool // symbols that were looked up
	events  []event
}

func (t *translator) answer(r request) response {
	var out response
	if out.Fault = t.start(); out.Fault != nil {
		return out
	}
	switch r.Op {
	case opHello:
		out.Hello = &t.version
		return out
	case opCount:
		out.Count, out.Fault = t.count()
		return out
	case opDescribe:
		out.GPU, out.Fault = t.describe(r.Index)
		return out
	case opEvents:
		t.mu.Lock()
		out.Events, t.events = t.events, nil
		t.mu.Unlock()
		return out
	}
	d, f := t.device(r.GPU)
	if f != nil {
		out.Fault = f
		return out
	}
	switch r.Op {
	case opLook:
		out.Look, out.Fault = t.look(d)
	case opProfiles:
		out.Profiles, out.Fault = t.profiles(d)
	case opSetMIG:
		out.Fault = t.setMIG(d, r.On)
	case opCreateGI:
		out.GI, out.Fault = t.createGI(d, r)
	case opCreateCI:
		out.CI, out.UUID, out.Fault = t.createCI(d, r.GI)
	case opDestroyCI:
		out.Fault = t.destroyCI(d, r.GI, r.CI)
	case opDestroyGI:
		out.Fault = t.destroyGI(d, r.GI)
	case opUse:
		out.Use, out.Fault = t.use(d, r.GPU, r.GIs)
	default:
		out.Fault = &fault{Call: r.Op, Code: nvmlFunctionNotFound, Text: "the helper does not know this operation"}
	}
	return out
}

// failed makes a fault of a return code; nil is success.
func (t *translator) failed(call string, ret nvml.Return) *fault {
	if ret == nvml.SUCCESS {
		return nil
	}
	return &fault{Call: call, Code: int(ret), Text: ret.Error()}
}

// has says whether the driver has one of these functions.
func (t *translator) has(symbols ...string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range symbols {
		found, seen := t.known[s]
		if !seen {
			found = t.lib.Extensions().LookupSymbol(s) == nil
			t.known[s] = found
		}
		if found {
			return true
		}
	}
	return false
}

// need is the fault of a function that the driver does not have.
func (t *translator) need(symbols ...string) *fault {
	if t.has(symbols...) {
		return nil
	}
	return &fault{Call: symbols[0], Code: nvmlFunctionNotFound, Text: "the installed NVIDIA driver does not have it: a newer driver is needed"}
}

// start initialises NVML, once it can be.
func (t *translator) start() *fault {
	t.starting.Lock()
	defer t.starting.Unlock()
	if t.ready {
		return nil
	}
	if f := t.failed("nvmlInit", t.lib.Init()); f != nil {
		return f
	}
	if f := t.need("nvmlInit_v2", "nvmlInit"); f != nil {
		return f
	}
	t.ready = true
	if t.has("nvmlSystemGetDriverVersion") {
		t.version.Driver, _ = t.lib.SystemGetDriverVersion()
	}
	if t.has("nvmlSystemGetNVMLVersion") {
		t.version.NVML, _ = t.lib.SystemGetNVMLVersion()
	}
	go t.listen() // a GPU that hangs holds up nothing else
	return nil
}

func (t *translator) count() (int, *fault) {
	if f := t.need("nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"); f != nil {
		return 0, f
	}
	n, ret := t.lib.DeviceGetCount()
	return n, t.failed("nvmlDeviceGetCount", ret)
}

// handle finds the GPU of an index and its UUID.
func (t *translator) handle(index int) (nvml.Device, string, *fault) {
	d, ret := t.lib.DeviceGetHandleByIndex(index)
	if f := t.failed("nvmlDeviceGetHandleByIndex", ret); f != nil {
		return nil, "", f
	}
	uuid, ret := d.GetUUID()
	if f := t.failed("nvmlDeviceGetUUID", ret); f != nil {
		return nil, "", f
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.devices[uuid] = d
	return d, uuid, nil
}

func (t *translator) describe(index int) (*listed, *fault) {
	d, uuid, f := t.handle(index)
	if f != nil {
		return nil, f
	}
	g := &listed{Index: index, UUID: uuid, Minor: -1}
	var ret nvml.Return
	if g.Name, ret = d.GetName(); ret != nvml.SUCCESS {
		return nil, t.failed("nvmlDeviceGetName", ret)
	}
	if minor, ret := d.GetMinorNumber(); ret == nvml.SUCCESS {
		g.Minor = minor
	}
	if pci, ret := d.GetPciInfo(); ret == nvml.SUCCESS {
		g.PCI = text(pci.BusId[:])
	}
	if t.has("nvmlDeviceGetArchitecture") {
		if arch, ret := d.GetArchitecture(); ret == nvml.SUCCESS {
			g.Arch = archName(arch)
		}
	}
	if t.has("nvmlDeviceGetMigMode") {
		_, _, ret := d.GetMigMode()
		g.HasMIG = ret == nvml.SUCCESS
	}
	m, ret := d.GetMemoryInfo()
	g.MemoryMiB = int64(m.Total >> 20)
	return g, t.failed("nvmlDeviceGetMemoryInfo", ret)
}

// device finds the handle of a GPU, without asking any other: that one may hang.
func (t *translator) device(uuid string) (nvml.Device, *fault) {
	t.mu.Lock()
	d := t.devices[uuid]
	t.mu.Unlock()
	if d != nil {
		return d, nil
	}
	d, ret := t.lib.DeviceGetHandleByUUID(uuid)
	if f := t.failed("nvmlDeviceGetHandleByUUID", ret); f != nil {
		return nil, f
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.devices[uuid] = d
	return d, nil
}

// listen has the driver report XIDs, as far as it can.
func (t *translator) listen() {
	if !t.has("nvmlEventSetCreate") || !t.has("nvmlDeviceRegisterEvents") || !t.has("nvmlEventSetWait_v2", "nvmlEventSetWait") {
		return
	}
	n, f := t.count()
	if f != nil {
		return
	}
	set, ret := t.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		return
	}
	heard := false
	for i := range n {
		if d, _, f := t.handle(i); f == nil {
			heard = d.RegisterEvents(nvml.EventTypeXidCriticalError, set) == nvml.SUCCESS || heard
		}
	}
	if heard {
		t.wait(set)
	}
}

const (
	waitMillis = 1000
	maxEvents  = 1000
)

// wait collects XIDs until the process ends.
func (t *translator) wait(set nvml.EventSet) {
	instances := t.has("nvmlEventSetWait_v2") // the first version does not tell them
	for {
		e, ret := set.Wait(waitMillis)
		switch ret {
		case nvml.SUCCESS:
		case nvml.ERROR_TIMEOUT:
			continue
		default: // such as a GPU that was lost: a look says which
			time.Sleep(waitMillis * time.Millisecond)
			continue
		}
		if e.EventType != nvml.EventTypeXidCriticalError {
			continue
		}
		t.mu.Lock()
		ev := event{XID: int(e.EventData), GI: everywhere}
		for uuid, d := range t.devices {
			if d == e.Device {
				ev.GPU = uuid
			}
		}
		if instances && int32(e.GpuInstanceId) >= 0 { // else 0xFFFFFFFF
			ev.GI = int(e.GpuInstanceId)
		}
		if len(t.events) < maxEvents {
			t.events = append(t.events, ev)
		}
		t.mu.Unlock()
	}
}

func archName(a nvml.DeviceArchitecture) string {
	switch a {
	case nvml.DEVICE_ARCH_PASCAL:
		return "Pascal"
	case nvml.DEVICE_ARCH_VOLTA:
		return "Volta"
	case nvml.DEVICE_ARCH_TURING:
		return "Turing"
	case nvml.DEVICE_ARCH_AMPERE:
		return "Ampere"
	case nvml.DEVICE_ARCH_ADA:
		return "Ada"
	case nvml.DEVICE_ARCH_HOPPER:
		return "Hopper"
	case nvml.DEVICE_ARCH_BLACKWELL:
		return "Blackwell"
	case nvml.DEVICE_ARCH_RUBIN:
		return "Rubin"
	}
	return ""
}

// text is a C string in an array.
func text(b []int8) string {
	out := make([]byte, 0, len(b))
	for _, c := range b {
		if c == 0 {
			break
		}
		out = append(out, byte(c))
	}
	return string(out)
}
