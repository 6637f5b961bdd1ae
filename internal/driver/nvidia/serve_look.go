//go:build cgo && linux

package nvidia

import (
	"encoding/binary"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// look sees all of a GPU that changes, or fails: half a picture would let instances
// seem gone that stand.
func (t *translator) look(d nvml.Device) (*look, *fault) {
	l := &look{Minor: -1, UsedMiB: -1, ECC: -1, Recovery: -1}
	if minor, ret := d.GetMinorNumber(); ret == nvml.SUCCESS {
		l.Minor = minor
	}
	if t.has("nvmlDeviceGetMigMode") {
		now, then, ret := d.GetMigMode()
		if ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_SUPPORTED {
			return nil, t.failed("nvmlDeviceGetMigMode", ret)
		}
		l.MIG, l.MIGPending = ret == nvml.SUCCESS && now == nvml.DEVICE_MIG_ENABLE, ret == nvml.SUCCESS && then == nvml.DEVICE_MIG_ENABLE
	}
	var f *fault
	if l.Procs, f = t.processes(d); f != nil {
		return nil, f
	}
	if l.UsedMiB, f = t.used(d); f != nil {
		return nil, f
	}
	if l.MIG {
		if l.GIs, f = t.instances(d); f != nil {
			return nil, f
		}
		l.Procs = outside(l.Procs, l.GIs)
	}
	t.health(d, l)
	return l, nil
}

// outside drops the processes that were found on instances already.
func outside(procs []process, gis []instance) (out []process) {
	inside := map[int]bool{}
	for _, g := range gis {
		for _, p := range g.Procs {
			inside[p.PID] = true
		}
	}
	for _, p := range procs {
		if !inside[p.PID] {
			out = append(out, p)
		}
	}
	return out
}

// used is the memory in use, without what the driver keeps for itself where it says so.
func (t *translator) used(d nvml.Device) (int64, *fault) {
	if t.has("nvmlDeviceGetMemoryInfo_v2") {
		if m, ret := d.GetMemoryInfo_v2(); ret == nvml.SUCCESS {
			return int64(m.Used >> 20), nil
		}
	}
	m, ret := d.GetMemoryInfo()
	if ret == nvml.ERROR_NOT_SUPPORTED {
		return -1, nil
	}
	return int64(m.Used >> 20), t.failed("nvmlDeviceGetMemoryInfo", ret)
}

// processes lists who computes on a device. Graphics do not count: a desktop is no
// task, and no hindrance.
func (t *translator) processes(d nvml.Device) (out []process, f *fault) {
	if f := t.need("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses"); f != nil {
		return nil, f
	}
	infos, ret := d.GetComputeRunningProcesses()
	if ret == nvml.ERROR_NOT_SUPPORTED {
		return nil, nil
	}
	seen := map[int]bool{}
	add := func(infos []nvml.ProcessInfo) {
		for _, p := range infos {
			if seen[int(p.Pid)] {
				continue
			}
			seen[int(p.Pid)] = true
			x := process{PID: int(p.Pid), UsedMiB: -1}
			if int64(p.UsedGpuMemory) >= 0 { // else not available: all bits set
				x.UsedMiB = int64(p.UsedGpuMemory >> 20)
			}
			out = append(out, x)
		}
	}
	if f := t.failed("nvmlDeviceGetComputeRunningProcesses", ret); f != nil {
		return nil, f
	}
	add(infos)
	if t.has("nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v2", "nvmlDeviceGetMPSComputeRunningProcesses") {
		if infos, ret := d.GetMPSComputeRunningProcesses(); ret == nvml.SUCCESS {
			add(infos)
		}
	}
	return out, nil
}

// instances lists every GPU instance of a device with what is in it.
func (t *translator) instances(d nvml.Device) (out []instance, f *fault) {
	for _, s := range []string{"nvmlDeviceGetGpuInstances", "nvmlGpuInstanceGetInfo", "nvmlGpuInstanceGetComputeInstanceProfileInfo", "nvmlGpuInstanceGetComputeInstances"} {
		if f := t.need(s); f != nil {
			return nil, f
		}
	}
	if f := t.need("nvmlComputeInstanceGetInfo_v2", "nvmlComputeInstanceGetInfo"); f != nil {
		return nil, f
	}
	migs, f := t.migDevices(d)
	if f != nil {
		return nil, f
	}
	seen := map[uint32]bool{}
	f = t.eachProfile(d, func(_ int, info nvml.GpuInstanceProfileInfo) *fault {
		if info.InstanceCount == 0 {
			return nil
		}
		gis, ret := d.GetGpuInstances(&info)
		if f := t.failed("nvmlDeviceGetGpuInstances", ret); f != nil {
			return f
		}
		for _, g := range gis {
			gi, ret := g.GetInfo()
			if f := t.failed("nvmlGpuInstanceGetInfo", ret); f != nil {
				return f
			}
			if seen[gi.Id] {
				continue
			}
			seen[gi.Id] = true
			x := instance{ID: int(gi.Id), Profile: int(gi.ProfileId), Start: int(gi.Placement.Start), Size: int(gi.Placement.Size), UsedMiB: -1}
			if f := t.inside(g, &x, migs); f != nil {
				return f
			}
			out = append(out, x)
		}
		return nil
	})
	return out, f
}

// inside fills in the compute instances of a GPU instance, and who uses them.
func (t *translator) inside(g nvml.GpuInstance, x *instance, migs []migDevice) *fault {
	seen := map[uint32]bool{}
	for p := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, ret := g.GetComputeInstanceProfileInfo(p, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if ret == nvml.ERROR_NOT_SUPPORTED || ret == nvml.ERROR_INVALID_ARGUMENT {
			continue
		}
		if f := t.failed("nvmlGpuInstanceGetComputeInstanceProfileInfo", ret); f != nil {
			return f
		}
		if info.InstanceCount == 0 {
			continue
		}
		cis, ret := g.GetComputeInstances(&info)
		if f := t.failed("nvmlGpuInstanceGetComputeInstances", ret); f != nil {
			return f
		}
		for _, c := range cis {
			ci, ret := c.GetInfo()
			if f := t.failed("nvmlComputeInstanceGetInfo", ret); f != nil {
				return f
			}
			if !seen[ci.Id] {
				seen[ci.Id] = true
				x.CIs = append(x.CIs, compute{ID: int(ci.Id)})
			}
		}
	}
	for _, m := range migs {
		if m.gi != x.ID {
			continue
		}
		for i := range x.CIs {
			if x.CIs[i].ID == m.ci {
				x.CIs[i].UUID = m.uuid
			}
		}
		procs, f := t.processes(m.handle)
		if f != nil {
			return f
		}
		x.Procs = append(x.Procs, procs...)
		if used, f := t.used(m.handle); f == nil {
			x.UsedMiB = used
		}
	}
	return nil
}

// health reads what the driver says about the GPU's state. What it does not say is
// not known, which is no fault.
func (t *translator) health(d nvml.Device, l *look) {
	if t.has("nvmlDeviceGetTotalEccErrors") {
		if n, ret := d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC); ret == nvml.SUCCESS {
			l.ECC = int64(n)
		}
	}
	if t.has("nvmlDeviceGetRemappedRows") {
		if _, _, waits, failed, ret := d.GetRemappedRows(); ret == nvml.SUCCESS {
			l.RemapWaits, l.RemapFailed = waits, failed
		}
	}
	if t.has("nvmlDeviceGetFieldValues") {
		v := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
		if d.GetFieldValues(v) == nvml.SUCCESS && nvml.Return(v[0].NvmlReturn) == nvml.SUCCESS {
			l.Recovery = int(binary.NativeEndian.Uint32(v[0].Value[:4]))
		}
	}
	switch {
	case t.has("nvmlDeviceGetCurrentClocksEventReasons"):
		if bits, ret := d.GetCurrentClocksEventReasons(); ret == nvml.SUCCESS {
			l.Clocks = bits
		}
	case t.has("nvmlDeviceGetCurrentClocksThrottleReasons"):
		if bits, ret := d.GetCurrentClocksThrottleReasons(); ret == nvml.SUCCESS { // the older name of it
			l.Clocks = bits
		}
	}
}

// sampled is what a GPM sample is of.
type sampled struct {
	gpu string
	gi  int
}

// sample is the last one, with which the next is compared.
type sample struct {
	at   time.Time
	from nvml.GpmSample
}

// The least time between two samples that NVIDIA asks for, and the most after which
// the mean of what lies between says little about now.
const (
	gpmLeast = 100 * time.Millisecond
	gpmMost  = time.Minute
)

// use says how busy a GPU is, or its instances.
func (t *translator) use(d nvml.Device, uuid string, gis []int) ([]use, *fault) {
	if len(gis) == 0 {
		u := use{GI: everywhere, Compute: -1}
		if t.has("nvmlDeviceGetUtilizationRates") {
			rates, ret := d.GetUtilizationRates()
			if ret == nvml.SUCCESS {
				u.Compute = float64(rates.Gpu) / 100
			}
			if ret == nvml.ERROR_GPU_IS_LOST {
				return nil, t.failed("nvmlDeviceGetUtilizationRates", ret)
			}
		}
		return []use{u}, nil
	}
	t.forget(uuid, gis)
	var out []use
	for _, gi := range gis {
		out = append(out, use{GI: gi, Compute: t.gpm(d, sampled{uuid, gi})})
	}
	return out, nil
}

// forget drops samples of instances that are not asked about any more.
func (t *translator) forget(uuid string, gis []int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, s := range t.samples {
		wanted := k.gpu != uuid
		for _, gi := range gis {
			wanted = wanted || k.gi == gi
		}
		if !wanted || time.Since(s.at) > gpmMost {
			_ = s.from.Free()
			delete(t.samples, k)
		}
	}
}

// gpm is how busy an instance was since the last time it was asked, or -1.
func (t *translator) gpm(d nvml.Device, key sampled) float64 {
	for _, s := range []string{"nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleFree", "nvmlGpmMigSampleGet", "nvmlGpmMetricsGet"} {
		if !t.has(s) {
			return -1
		}
	}
	if s, ret := d.GpmQueryDeviceSupport(); ret != nvml.SUCCESS || s.IsSupportedDevice == 0 {
		return -1
	}
	t.mu.Lock()
	old := t.samples[key]
	t.mu.Unlock()
	if old != nil && time.Since(old.at) < gpmLeast {
		return -1
	}
	fresh, ret := t.lib.GpmSampleAlloc()
	if ret != nvml.SUCCESS {
		return -1
	}
	if fresh.MigGet(d, key.gi) != nvml.SUCCESS {
		_ = fresh.Free()
		return -1
	}
	t.mu.Lock()
	t.samples[key] = &sample{time.Now(), fresh}
	t.mu.Unlock()
	if old == nil {
		return -1
	}
	defer old.from.Free() //nolint:errcheck // it is not used again, whatever is said
	m := nvml.GpmMetricsGetType{NumMetrics: 1, Sample1: old.from, Sample2: fresh}
	m.Metrics[0].MetricId = uint32(nvml.GPM_METRIC_GRAPHICS_UTIL)
	if t.lib.GpmMetricsGet(&m) != nvml.SUCCESS || nvml.Return(m.Metrics[0].NvmlReturn) != nvml.SUCCESS {
		return -1
	}
	return min(max(m.Metrics[0].Value/100, 0), 1)
}
