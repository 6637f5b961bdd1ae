//go:build cgo && linux

package nvml

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

var built = sync.OnceValues(func() (string, error) {
	out, err := filepath.Abs(filepath.Join("..", "..", "bin", "mock"))
	if err != nil {
		return "", err
	}
	if said, err := exec.Command("./build.sh", out).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build.sh: %w: %s", err, said)
	}
	return out, nil
})

// machine is new hardware.
type machine struct {
	*testing.T
	nvml.Interface
	dir string
}

// on makes this process a client of new hardware.
func on(t *testing.T, config ...string) *machine {
	t.Helper()
	lib, err := built()
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t, nvml.New(nvml.WithLibraryPath(filepath.Join(lib, "libnvidia-ml.so.1"))), t.TempDir()}
	m.write("config", config...)
	for _, v := range []string{"CONFIG", "FAULTS"} {
		t.Setenv("MOCK_NVML_"+v, "")
	}
	t.Setenv("MOCK_NVML_STATE", filepath.Join(m.dir, "state"))
	m.want(m.Init(), nvml.SUCCESS)
	t.Cleanup(func() { _ = m.Shutdown() }) // may have been before
	return m
}

func (m *machine) write(name string, lines ...string) {
	m.Helper()
	path := filepath.Join(m.dir, name)
	if err := os.WriteFile(path+".new", []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		m.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		m.Fatal(err)
	}
}

func (m *machine) happen(lines ...string) { m.Helper(); m.write("faults", lines...) }

func (m *machine) want(got, want nvml.Return) {
	m.Helper()
	if got != want {
		m.Fatalf("%v (%d), want %v (%d)", nvml.ErrorString(got), got, nvml.ErrorString(want), want)
	}
}

func (m *machine) equal(got, want any) {
	m.Helper()
	if got != want {
		m.Fatalf("%v, want %v", got, want)
	}
}

func (m *machine) gpu(i int) nvml.Device {
	m.Helper()
	d, r := m.DeviceGetHandleByIndex(i)
	m.want(r, nvml.SUCCESS)
	return d
}

// profile finds a profile by the driver's id.
func (m *machine) profile(d nvml.Device, id uint32) nvml.GpuInstanceProfileInfo {
	m.Helper()
	for kind := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		if p, r := d.GetGpuInstanceProfileInfo(kind); r == nvml.SUCCESS && p.Id == id {
			return p
		}
	}
	m.Fatalf("no profile has id %d", id)
	return nvml.GpuInstanceProfileInfo{}
}

// carve makes a GPU instance at a place, and a compute instance that spans it.
func (m *machine) carve(d nvml.Device, id, start uint32) (nvml.GpuInstance, nvml.ComputeInstance) {
	m.Helper()
	p := m.profile(d, id)
	places, r := d.GetGpuInstancePossiblePlacements(&p)
	m.want(r, nvml.SUCCESS)
	i := slices.IndexFunc(places, func(g nvml.GpuInstancePlacement) bool { return g.Start == start })
	gi, r := d.CreateGpuInstanceWithPlacement(&p, &places[i])
	m.want(r, nvml.SUCCESS)
	for kind := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		c, r := gi.GetComputeInstanceProfileInfo(kind, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if r != nvml.SUCCESS || c.SliceCount != p.SliceCount {
			continue
		}
		ci, r := gi.CreateComputeInstance(&c)
		m.want(r, nvml.SUCCESS)
		return gi, ci
	}
	m.Fatal("no compute instance spans the GPU instance")
	return nil, nil
}

func (m *machine) uuid(d nvml.Device) string {
	m.Helper()
	id, r := d.GetUUID()
	m.want(r, nvml.SUCCESS)
	return id
}

// migs lists the UUIDs of a GPU's MIG devices.
func (m *machine) migs(d nvml.Device) (out []string) {
	m.Helper()
	for i := range 7 {
		mig, r := d.GetMigDeviceHandleByIndex(i)
		if r == nvml.ERROR_NOT_FOUND {
			break
		}
		m.want(r, nvml.SUCCESS)
		out = append(out, m.uuid(mig))
	}
	return out
}

func TestEveryBoardTellsWhatItIs(t *testing.T) {
	for board, want := range map[string]string{
		"A100-40GB":    "NVIDIA A100-SXM4-40GB 8.0 19:7x1 20:1x1 15:4x2 14:3x2 9:2x4 5:1x4 0:1x8",
		"H100-80GB":    "NVIDIA H100 80GB HBM3 9.0 19:7x1 20:1x1 15:4x2 14:3x2 9:2x4 5:1x4 0:1x8",
		"RTX-PRO-6000": "NVIDIA RTX PRO 6000 Blackwell Server Edition 12.0 14:4x3 5:2x6 0:1x12",
		"L40S":         "NVIDIA L40S 8.9",
	} {
		m := on(t, "gpu 2 "+board)
		n, r := m.DeviceGetCount()
		m.want(r, nvml.SUCCESS)
		m.equal(n, 2)
		d := m.gpu(1)
		name, _ := d.GetName()
		major, minor, _ := d.GetCudaComputeCapability()
		got := fmt.Sprintf("%s %d.%d", name, major, minor)
		for _, id := range []uint32{19, 20, 15, 14, 9, 5, 0} {
			for kind := range nvml.GPU_INSTANCE_PROFILE_COUNT {
				p, r := d.GetGpuInstanceProfileInfo(kind)
				if r != nvml.SUCCESS || p.Id != id {
					continue
				}
				at, _ := d.GetGpuInstancePossiblePlacements(&p)
				got += fmt.Sprintf(" %d:%dx%d", p.Id, p.InstanceCount, at[0].Size)
				v, r := d.GetGpuInstanceProfileInfoV(kind).V2()
				m.want(r, nvml.SUCCESS)
				m.equal(v.MemorySizeMB, p.MemorySizeMB)
			}
		}
		m.equal(got, want)
		again, r := m.DeviceGetHandleByUUID(m.uuid(d))
		m.want(r, nvml.SUCCESS)
		m.equal(m.uuid(again), m.uuid(d))
		if m.uuid(d) == m.uuid(m.gpu(0)) {
			t.Error("two GPUs have one UUID")
		}
		m.want(m.Shutdown(), nvml.SUCCESS)
	}
}

func TestItRefusesWhatHardwareRefuses(t *testing.T) {
	m := on(t, "gpu 1 H100-80GB")
	d := m.gpu(0)
	three, one := m.profile(d, 9), m.profile(d, 19)
	_, r := d.CreateGpuInstance(&three)
	m.want(r, nvml.ERROR_NOT_SUPPORTED) // MIG is off

	activation, call := d.SetMigMode(1) // go-nvml has them in this order
	m.want(call, nvml.SUCCESS)
	m.want(activation, nvml.SUCCESS)
	_, r = d.CreateGpuInstanceWithPlacement(&three, &nvml.GpuInstancePlacement{Start: 2, Size: 4})
	m.want(r, nvml.ERROR_INVALID_ARGUMENT)
	_, r = d.CreateGpuInstanceWithPlacement(&three, &nvml.GpuInstancePlacement{Start: 4, Size: 3})
	m.want(r, nvml.ERROR_INVALID_ARGUMENT)

	gi, ci := m.carve(d, 9, 4)
	_, r = d.CreateGpuInstanceWithPlacement(&three, &nvml.GpuInstancePlacement{Start: 4, Size: 4})
	m.want(r, nvml.ERROR_INSUFFICIENT_RESOURCES)
	_, r = d.CreateGpuInstanceWithPlacement(&one, &nvml.GpuInstancePlacement{Start: 5, Size: 1})
	m.want(r, nvml.ERROR_INSUFFICIENT_RESOURCES)
	left, r := d.GetGpuInstanceRemainingCapacity(&one)
	m.want(r, nvml.SUCCESS)
	m.equal(left, 4)
	m.carve(d, 9, 0) // 3g+3g take all memory, and six of seven slices
	_, r = d.CreateGpuInstance(&one)
	m.want(r, nvml.ERROR_INSUFFICIENT_RESOURCES)

	c, _ := gi.GetComputeInstanceProfileInfo(nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE, 0)
	_, r = gi.CreateComputeInstance(&c)
	m.want(r, nvml.ERROR_INSUFFICIENT_RESOURCES)
	m.want(gi.Destroy(), nvml.ERROR_IN_USE) // a compute instance is on it
	info, _ := gi.GetInfo()
	m.happen(fmt.Sprintf("process 4711 0 %d 0 100 10", info.Id))
	m.want(ci.Destroy(), nvml.ERROR_IN_USE) // a process is on it
	m.happen()
	m.want(ci.Destroy(), nvml.SUCCESS)
	m.want(ci.Destroy(), nvml.ERROR_NOT_FOUND)
	m.happen(fmt.Sprintf("process 4711 0 %d - 100 10", info.Id))
	m.want(gi.Destroy(), nvml.ERROR_IN_USE)
	m.happen()
	m.want(gi.Destroy(), nvml.SUCCESS)
	m.want(gi.Destroy(), nvml.ERROR_NOT_FOUND)

	m.happen("root no")
	_, r = d.CreateGpuInstance(&one)
	m.want(r, nvml.ERROR_NO_PERMISSION)
	_, call = d.SetMigMode(0)
	m.want(call, nvml.ERROR_NO_PERMISSION)
	m.want(m.Shutdown(), nvml.SUCCESS)
	_, r = d.GetName()
	m.want(r, nvml.ERROR_UNINITIALIZED)
}

func TestMIGModeWaits(t *testing.T) {
	m := on(t, "gpu 1 A100-80GB", "gpu 1 H100-80GB", "gpu 1 L40S")
	mode := func(i int, current, pending int) {
		t.Helper()
		c, p, r := m.gpu(i).GetMigMode()
		m.want(r, nvml.SUCCESS)
		m.equal([2]int{c, p}, [2]int{current, pending})
	}
	set := func(i, to int, activation nvml.Return) {
		t.Helper()
		a, r := m.gpu(i).SetMigMode(to)
		m.want(r, nvml.SUCCESS)
		m.want(a, activation)
	}
	set(0, 1, nvml.ERROR_RESET_REQUIRED)
	mode(0, 0, 1)
	m.happen("process 1 1 - - 10 0")
	set(1, 1, nvml.ERROR_IN_USE)
	mode(1, 0, 1)
	m.happen("reset 0")
	mode(0, 1, 1)
	set(1, 1, nvml.SUCCESS)
	m.want(m.gpu(1).SetComputeMode(nvml.COMPUTEMODE_EXCLUSIVE_PROCESS), nvml.ERROR_NOT_SUPPORTED)
	m.carve(m.gpu(1), 0, 0)
	set(1, 0, nvml.ERROR_IN_USE) // an instance is there
	mode(1, 1, 0)
	m.happen("reset 1")
	mode(1, 0, 0) // what was pending
	set(1, 1, nvml.SUCCESS)
	m.carve(m.gpu(1), 0, 0)
	m.carve(m.gpu(0), 0, 0)
	m.happen("reboot")
	mode(0, 1, 1) // Ampere keeps it
	mode(1, 0, 0)
	m.equal(len(m.migs(m.gpu(0))), 0)
	m.happen("mode-change immediate")
	set(0, 0, nvml.SUCCESS)
	mode(0, 0, 0)
	_, r := m.gpu(2).SetMigMode(1)
	m.want(r, nvml.ERROR_NOT_SUPPORTED)
}

func TestIDsComeBack(t *testing.T) {
	m := on(t, "gpu 2 H100-80GB", "mig all on")
	d := m.gpu(0)
	var before []string
	for range 2 {
		gi, ci := m.carve(d, 15, 2) // 1g.20gb
		ids := m.migs(d)
		m.equal(len(ids), 1)
		mig, r := m.DeviceGetHandleByUUID(ids[0])
		m.want(r, nvml.SUCCESS)
		is, _ := mig.IsMigDeviceHandle()
		m.equal(is, true)
		g, _ := mig.GetGpuInstanceId()
		info, _ := gi.GetInfo()
		m.equal(uint32(g), info.Id)
		parent, r := mig.GetDeviceHandleFromMigDeviceHandle()
		m.want(r, nvml.SUCCESS)
		m.equal(m.uuid(parent), m.uuid(d))
		a, r := mig.GetAttributes()
		m.want(r, nvml.SUCCESS)
		m.equal(a.MemorySizeMB, m.profile(d, 15).MemorySizeMB)
		before = append(before, ids...)
		m.want(ci.Destroy(), nvml.SUCCESS)
		m.want(gi.Destroy(), nvml.SUCCESS)
		_, r = m.DeviceGetHandleByUUID(ids[0])
		m.want(r, nvml.ERROR_NOT_FOUND)
		_, r = mig.GetUUID()
		m.want(r, nvml.ERROR_NOT_FOUND)
	}
	m.equal(before[0], before[1])
	m.carve(d, 14, 2) // another profile in the same place has the same ids
	m.equal(m.migs(d)[0], before[0])
	m.carve(m.gpu(1), 15, 2)
	if m.migs(m.gpu(1))[0] == before[0] {
		t.Error("two GPUs have MIG devices of one UUID")
	}
}

func TestOthersMakeInstances(t *testing.T) {
	m := on(t, "gpu 1 H100-80GB", "mig 0 on", "instance 0 9 4")
	m.equal(len(m.migs(m.gpu(0))), 1)
	m.happen("instance 0 19 0")
	m.equal(len(m.migs(m.gpu(0))), 2)
	three := m.profile(m.gpu(0), 9)
	gis, r := m.gpu(0).GetGpuInstances(&three)
	m.want(r, nvml.SUCCESS)
	m.equal(len(gis), 1)
	info, _ := gis[0].GetInfo()
	m.happen("instance 0 19 0", fmt.Sprintf("destroy 0 %d", info.Id))
	m.equal(len(m.migs(m.gpu(0))), 1)
	m.equal(len(m.migs(m.gpu(0))), 1) // once, however often it is read
}

func TestUse(t *testing.T) {
	m := on(t, "gpu 2 H100-80GB", "gpu 1 A100-80GB", "mig 1 on", "instance 1 9 0")
	whole, carved := m.gpu(0), m.gpu(1)
	mig, _ := carved.GetMigDeviceHandleByIndex(0)
	gi, _ := mig.GetGpuInstanceId()
	_, r := whole.GetProcessUtilization(0)
	m.want(r, nvml.ERROR_NOT_FOUND)
	m.happen("process 70 0 - - 1000 30", "process 71 0 - - 2000 40", fmt.Sprintf("process 72 1 %d 0 500 90", gi), "process 73 1 13 0 1 1")

	u, r := whole.GetUtilizationRates()
	m.want(r, nvml.SUCCESS)
	m.equal(u.Gpu, uint32(70))
	ps, r := whole.GetComputeRunningProcesses()
	m.want(r, nvml.SUCCESS)
	m.equal(len(ps), 2)
	m.equal(ps[1], nvml.ProcessInfo{Pid: 71, UsedGpuMemory: 2000 << 20, GpuInstanceId: 0xFFFFFFFF, ComputeInstanceId: 0xFFFFFFFF})
	mem, r := whole.GetMemoryInfo_v2()
	m.want(r, nvml.SUCCESS)
	m.equal(mem.Used, uint64(3000<<20))
	m.equal(mem.Total, mem.Free+mem.Used+mem.Reserved)
	old, r := whole.GetMemoryInfo()
	m.want(r, nvml.SUCCESS)
	m.equal(old.Used, mem.Used+mem.Reserved)
	samples, r := whole.GetProcessUtilization(0)
	m.want(r, nvml.SUCCESS)
	m.equal(len(samples), 2)

	_, r = carved.GetUtilizationRates()
	m.want(r, nvml.ERROR_NOT_SUPPORTED)
	_, r = carved.GetProcessUtilization(0)
	m.want(r, nvml.ERROR_NOT_SUPPORTED)
	_, _, _, _, r = carved.GetRemappedRows()
	m.want(r, nvml.ERROR_NOT_SUPPORTED)
	ps, r = mig.GetComputeRunningProcesses()
	m.want(r, nvml.SUCCESS)
	m.equal(len(ps), 1)
	m.equal(ps[0].Pid, uint32(72))
	ps, _ = carved.GetComputeRunningProcesses()
	m.equal(len(ps), 2)

	m.equal(m.gpm(func(s nvml.GpmSample) nvml.Return { return carved.GpmMigSampleGet(gi, s) }), 90.0)
	m.equal(m.gpm(func(s nvml.GpmSample) nvml.Return { return whole.GpmSampleGet(s) }), 70.0)
	support, r := m.gpu(2).GpmQueryDeviceSupport()
	m.want(r, nvml.SUCCESS)
	m.equal(support.IsSupportedDevice, uint32(0)) // Ampere
}

// gpm takes two samples and returns the utilisation of SMs.
func (m *machine) gpm(get func(nvml.GpmSample) nvml.Return) float64 {
	m.Helper()
	q := nvml.GpmMetricsGetType{NumMetrics: 1}
	q.Metrics[0].MetricId = uint32(nvml.GPM_METRIC_SM_UTIL)
	for _, s := range []*nvml.GpmSample{&q.Sample1, &q.Sample2} {
		var r nvml.Return
		*s, r = m.GpmSampleAlloc()
		m.want(r, nvml.SUCCESS)
		m.want(get(*s), nvml.SUCCESS)
	}
	m.want(m.GpmMetricsGet(&q), nvml.SUCCESS)
	m.want(nvml.Return(q.Metrics[0].NvmlReturn), nvml.SUCCESS)
	m.want(q.Sample1.Free(), nvml.SUCCESS)
	m.want(q.Sample2.Free(), nvml.SUCCESS)
	return q.Metrics[0].Value
}

func TestRealProcessesAreFound(t *testing.T) {
	m := on(t, "gpu 2 H100-80GB", "mig 0 on", "scan-proc yes")
	gi, ci := m.carve(m.gpu(0), 9, 0)
	run := func(id string) *exec.Cmd {
		cmd := exec.Command("cat")
		cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES="+id)
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = in.Close()
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		return cmd
	}
	a, b := run(m.migs(m.gpu(0))[0]), run(m.uuid(m.gpu(1)))
	ps, r := m.gpu(1).GetComputeRunningProcesses()
	m.want(r, nvml.SUCCESS)
	m.equal(len(ps), 1)
	m.equal(int(ps[0].Pid), b.Process.Pid)
	m.want(ci.Destroy(), nvml.ERROR_IN_USE)
	_ = a.Process.Kill()
	_ = a.Wait()
	m.want(ci.Destroy(), nvml.SUCCESS)
	m.want(gi.Destroy(), nvml.SUCCESS)
}
