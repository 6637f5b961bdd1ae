//go:build cgo && linux

package nvidia

import (
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// setMIG switches MIG mode. The driver answers twice: to the call, and to whether the
// mode is in force now.
func (t *translator) setMIG(d nvml.Device, on bool) *fault {
	if f := t.need("nvmlDeviceSetMigMode"); f != nil {
		return f
	}
	mode := nvml.DEVICE_MIG_DISABLE
	if on {
		mode = nvml.DEVICE_MIG_ENABLE
	}
	activation, ret := d.SetMigMode(mode)
	if f := t.failed("nvmlDeviceSetMigMode", ret); f != nil {
		return f
	}
	return t.failed("nvmlDeviceSetMigMode (activation)", activation)
}

// maxProfiles bounds the search for profiles; nvml.h of 2026 numbers 18.
const maxProfiles = 64

// eachProfile walks the profiles that the GPU has.
func (t *translator) eachProfile(d nvml.Device, visit func(enum int, info nvml.GpuInstanceProfileInfo) *fault) *fault {
	if f := t.need("nvmlDeviceGetGpuInstanceProfileInfo"); f != nil {
		return f
	}
	for enum := range maxProfiles {
		info, ret := d.GetGpuInstanceProfileInfo(enum)
		switch ret {
		case nvml.SUCCESS:
			if f := visit(enum, info); f != nil {
				return f
			}
		case nvml.ERROR_NOT_SUPPORTED:
		case nvml.ERROR_INVALID_ARGUMENT:
			return nil
		default:
			return t.failed("nvmlDeviceGetGpuInstanceProfileInfo", ret)
		}
	}
	return nil
}

func (t *translator) profiles(d nvml.Device) (out []profileInfo, f *fault) {
	if f := t.need("nvmlDeviceGetGpuInstancePossiblePlacements_v2", "nvmlDeviceGetGpuInstancePossiblePlacements"); f != nil {
		return nil, f
	}
	f = t.eachProfile(d, func(enum int, info nvml.GpuInstanceProfileInfo) *fault {
		p := profileInfo{ID: int(info.Id), Compute: int(info.SliceCount), Max: int(info.InstanceCount), SMs: int(info.MultiprocessorCount), MemoryMiB: int64(info.MemorySizeMB), Attr: attrs[enum]}
		if t.has("nvmlDeviceGetGpuInstanceProfileInfoV") {
			if v2, ret := d.GetGpuInstanceProfileInfoV(enum).V2(); ret == nvml.SUCCESS {
				p.Name = text(v2.Name[:])
			}
		}
		places, ret := d.GetGpuInstancePossiblePlacements(&info)
		if ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_SUPPORTED { // not supported: MIG mode is off
			return t.failed("nvmlDeviceGetGpuInstancePossiblePlacements", ret)
		}
		for _, x := range places {
			p.Places = append(p.Places, place{Start: int(x.Start), Size: int(x.Size)})
		}
		out = append(out, p)
		return nil
	})
	return out, f
}

// attrs is what the variants of profiles are called.
var attrs = map[int]string{
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1: "me", nvml.GPU_INSTANCE_PROFILE_2_SLICE_REV1: "me",
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_GFX: "gfx", nvml.GPU_INSTANCE_PROFILE_2_SLICE_GFX: "gfx", nvml.GPU_INSTANCE_PROFILE_4_SLICE_GFX: "gfx", gfx3: "gfx",
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_NO_ME: "no_me", nvml.GPU_INSTANCE_PROFILE_2_SLICE_NO_ME: "no_me",
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME: "me.all", nvml.GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME: "me.all",
}

const gfx3 = 17 // 3_SLICE_GFX

func (t *translator) createGI(d nvml.Device, r request) (int, *fault) {
	if f := t.need("nvmlDeviceCreateGpuInstanceWithPlacement"); f != nil {
		return 0, f
	}
	if f := t.need("nvmlGpuInstanceGetInfo"); f != nil {
		return 0, f
	}
	gi, ret := d.CreateGpuInstanceWithPlacement(&nvml.GpuInstanceProfileInfo{Id: uint32(r.Profile)}, &nvml.GpuInstancePlacement{Start: uint32(r.Start), Size: uint32(r.Size)})
	if f := t.failed("nvmlDeviceCreateGpuInstanceWithPlacement", ret); f != nil {
		return 0, f
	}
	info, ret := gi.GetInfo()
	return int(info.Id), t.failed("nvmlGpuInstanceGetInfo", ret)
}

func (t *translator) instance(d nvml.Device, gi int) (nvml.GpuInstance, *fault) {
	if f := t.need("nvmlDeviceGetGpuInstanceById"); f != nil {
		return nil, f
	}
	g, ret := d.GetGpuInstanceById(gi)
	return g, t.failed("nvmlDeviceGetGpuInstanceById", ret)
}

// How long a compute instance may take to get its name.
const (
	nameTries = 20
	namePause = 50 * time.Millisecond
)

// createCI makes the one compute instance that spans a GPU instance.
func (t *translator) createCI(d nvml.Device, gi int) (int, string, *fault) {
	g, f := t.instance(d, gi)
	if f == nil {
		f = t.need("nvmlGpuInstanceGetComputeInstanceProfileInfo")
	}
	if f == nil {
		f = t.need("nvmlGpuInstanceCreateComputeInstance")
	}
	if f != nil {
		return 0, "", f
	}
	var whole nvml.ComputeInstanceProfileInfo
	for p := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		if info, ret := g.GetComputeInstanceProfileInfo(p, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED); ret == nvml.SUCCESS && info.SliceCount > whole.SliceCount {
			whole = info
		}
	}
	if whole.SliceCount == 0 {
		return 0, "", &fault{Call: "nvmlGpuInstanceGetComputeInstanceProfileInfo", Code: nvmlNotSupported, Text: "the GPU instance has no profile for a compute instance"}
	}
	ci, ret := g.CreateComputeInstance(&whole)
	if f := t.failed("nvmlGpuInstanceCreateComputeInstance", ret); f != nil {
		return 0, "", f
	}
	info, ret := ci.GetInfo()
	if f := t.failed("nvmlComputeInstanceGetInfo", ret); f != nil {
		return 0, "", f
	}
	for range nameTries {
		migs, f := t.migDevices(d)
		if f != nil {
			return 0, "", f
		}
		for _, m := range migs {
			if m.gi == gi && m.ci == int(info.Id) {
				return m.ci, m.uuid, nil
			}
		}
		time.Sleep(namePause)
	}
	return 0, "", &fault{Call: "nvmlDeviceGetMigDeviceHandleByIndex", Code: nvmlNotFound, Text: "the compute instance was made and got no MIG device"}
}

func (t *translator) destroyCI(d nvml.Device, gi, ci int) *fault {
	g, f := t.instance(d, gi)
	if f == nil {
		f = t.need("nvmlGpuInstanceGetComputeInstanceById")
	}
	if f == nil {
		f = t.need("nvmlComputeInstanceDestroy")
	}
	if f != nil {
		return f
	}
	c, ret := g.GetComputeInstanceById(ci)
	if f := t.failed("nvmlGpuInstanceGetComputeInstanceById", ret); f != nil {
		return f
	}
	return t.failed("nvmlComputeInstanceDestroy", c.Destroy())
}

func (t *translator) destroyGI(d nvml.Device, gi int) *fault {
	g, f := t.instance(d, gi)
	if f == nil {
		f = t.need("nvmlGpuInstanceDestroy")
	}
	if f != nil {
		return f
	}
	return t.failed("nvmlGpuInstanceDestroy", g.Destroy())
}

// migDevice is a MIG device: one compute instance.
type migDevice struct {
	gi, ci int
	uuid   string
	handle nvml.Device
}

func (t *translator) migDevices(d nvml.Device) (out []migDevice, f *fault) {
	for _, s := range []string{"nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId"} {
		if f := t.need(s); f != nil {
			return nil, f
		}
	}
	n, ret := d.GetMaxMigDeviceCount()
	if f := t.failed("nvmlDeviceGetMaxMigDeviceCount", ret); f != nil {
		return nil, f
	}
	for i := range n {
		h, ret := d.GetMigDeviceHandleByIndex(i)
		if ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INVALID_ARGUMENT {
			continue
		}
		if f := t.failed("nvmlDeviceGetMigDeviceHandleByIndex", ret); f != nil {
			return nil, f
		}
		m := migDevice{handle: h}
		var rets [3]nvml.Return
		m.gi, rets[0] = h.GetGpuInstanceId()
		m.ci, rets[1] = h.GetComputeInstanceId()
		m.uuid, rets[2] = h.GetUUID()
		for k, call := range []string{"nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId", "nvmlDeviceGetUUID"} {
			if f := t.failed(call, rets[k]); f != nil {
				return nil, f
			}
		}
		out = append(out, m)
	}
	return out, nil
}
