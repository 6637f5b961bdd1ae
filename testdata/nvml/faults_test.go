//go:build cgo && linux

package nvml

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// TestMain lets this program be another client of the same hardware.
func TestMain(m *testing.M) {
	if what := os.Getenv("MOCK_CHILD"); what != "" {
		os.Exit(child(what, nvml.New(nvml.WithLibraryPath(os.Getenv("MOCK_LIB")))))
	}
	os.Exit(m.Run())
}

func child(what string, lib nvml.Interface) int {
	if r := lib.Init(); r != nvml.SUCCESS {
		return 100
	}
	d, r := lib.DeviceGetHandleByIndex(0)
	if r != nvml.SUCCESS {
		return 101
	}
	switch what {
	case "carve": // and ends without a shutdown
		p, _ := d.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_3_SLICE)
		gi, r := d.CreateGpuInstance(&p)
		if r != nvml.SUCCESS {
			return int(r)
		}
		c, _ := gi.GetComputeInstanceProfileInfo(nvml.COMPUTE_INSTANCE_PROFILE_3_SLICE, 0)
		_, r = gi.CreateComputeInstance(&c)
		return int(r)
	case "symbols":
		for _, name := range []string{"nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2", "nvmlGpmSampleGet", "nvmlDeviceGetMigMode"} {
			fmt.Println(name, lib.Extensions().LookupSymbol(name) == nil)
		}
		ps, r := d.GetComputeRunningProcesses() // an older version of it
		fmt.Println(len(ps), r == nvml.SUCCESS)
	case "memory":
		_, r = d.GetMemoryInfo_v2()
		return int(r)
	}
	return 0
}

// client runs another client.
func (m *machine) client(what, lib string) (string, error) {
	m.Helper()
	dir, _ := built()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "MOCK_CHILD="+what, "MOCK_LIB="+filepath.Join(dir, lib, "libnvidia-ml.so.1"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestClientsShareTheHardware(t *testing.T) {
	m := on(t, "gpu 1 H100-80GB", "mig 0 on")
	gi, _ := m.carve(m.gpu(0), 9, 0)
	for range 3 {
		out, err := m.client("carve", "")
		if gis := m.migs(m.gpu(0)); len(gis) != 2 {
			t.Fatalf("%d MIG devices, want ours and theirs: %v %s", len(gis), err, out)
		}
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() != int(nvml.ERROR_INSUFFICIENT_RESOURCES) {
			t.Fatal(err, out)
		}
	}
	_, r := gi.GetInfo()
	m.want(r, nvml.SUCCESS)
}

func TestManyClientsAtOnce(t *testing.T) {
	m := on(t, "gpu 1 H100-80GB", "mig 0 on")
	done := make(chan error)
	for range 6 {
		go func() {
			_, err := m.client("carve", "")
			done <- err
		}()
	}
	made := 0
	for range 6 {
		if err := <-done; err == nil {
			made++
		}
	}
	m.equal(made, 2)
	m.equal(len(m.migs(m.gpu(0))), 2)
}

func TestAnOldDriverLacksSymbols(t *testing.T) {
	m := on(t, "gpu 1 A100-40GB", "driver 470.256.02")
	m.happen("process 1 0 - - 5 5")
	out, err := m.client("symbols", "old")
	want := "nvmlDeviceGetMemoryInfo true\nnvmlDeviceGetMemoryInfo_v2 false\nnvmlGpmSampleGet false\nnvmlDeviceGetMigMode true\n1 true\n"
	if err != nil || out != want {
		t.Errorf("%v\n%s\nwant\n%s", err, out, want)
	}
	var exit *exec.ExitError // calling one all the same ends the process
	if out, err := m.client("memory", "old"); !errors.As(err, &exit) || exit.ExitCode() != 127 || !strings.Contains(out, "nvmlDeviceGetMemoryInfo_v2") {
		t.Errorf("%v %s", err, out)
	}
	v, r := m.gpu(0).GetGpuInstanceProfileInfoV(0).V2()
	m.want(r, nvml.SUCCESS)
	m.equal(v.Id, uint32(19))
	m.equal(m.recovery(0), nvml.ERROR_NOT_SUPPORTED)
}

// recovery reads the field; a value is returned as is, an error as Return.
func (m *machine) recovery(i int) any {
	m.Helper()
	f := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	m.want(m.gpu(i).GetFieldValues(f), nvml.SUCCESS)
	if r := nvml.Return(f[0].NvmlReturn); r != nvml.SUCCESS {
		return r
	}
	return int(f[0].Value[0])
}

func TestDestroyIsHalfDone(t *testing.T) {
	m := on(t, "gpu 1 H100-80GB", "mig 0 on")
	gi, ci := m.carve(m.gpu(0), 9, 0)
	m.happen("fail nvmlGpuInstanceDestroy IN_USE 2", "fail nvmlComputeInstanceDestroy UNKNOWN 1")
	m.want(ci.Destroy(), nvml.ERROR_UNKNOWN)
	m.want(ci.Destroy(), nvml.SUCCESS)
	m.want(gi.Destroy(), nvml.ERROR_IN_USE)
	m.want(gi.Destroy(), nvml.ERROR_IN_USE)
	_, r := gi.GetInfo() // it stands
	m.want(r, nvml.SUCCESS)
	m.want(gi.Destroy(), nvml.SUCCESS)
	m.happen()
	gi, _ = m.carve(m.gpu(0), 9, 0)
	m.happen("fail nvmlGpuInstanceDestroy IN_USE 1") // taken out and put in again
	m.want(gi.Destroy(), nvml.ERROR_IN_USE)
}

func TestCallsFailOnOneGPU(t *testing.T) {
	m := on(t, "gpu 2 H100-80GB")
	m.happen("fail nvmlDeviceGetName UNKNOWN 0 1")
	_, r := m.gpu(0).GetName()
	m.want(r, nvml.SUCCESS)
	for range 3 {
		_, r = m.gpu(1).GetName()
		m.want(r, nvml.ERROR_UNKNOWN)
	}
	d := m.gpu(1)
	m.happen("lost 1")
	_, r = d.GetName()
	m.want(r, nvml.ERROR_GPU_IS_LOST)
	_, r = d.GetUUID()
	m.want(r, nvml.ERROR_GPU_IS_LOST)
	_, r = m.DeviceGetHandleByIndex(1)
	m.want(r, nvml.ERROR_GPU_IS_LOST)
	_, r = m.gpu(0).GetName()
	m.want(r, nvml.SUCCESS)
}

func TestACallHangsAloneAndOnce(t *testing.T) {
	m := on(t, "gpu 1 H100-80GB")
	d := m.gpu(0)
	m.happen("hang nvmlDeviceGetName 0.5 1")
	done := make(chan time.Duration)
	go func() {
		began := time.Now()
		d.GetName() //nolint:errcheck // how long it takes is the question
		done <- time.Since(began)
	}()
	for { // others go on
		select {
		case took := <-done:
			if took < 500*time.Millisecond {
				t.Errorf("it took %v", took)
			}
			_, r := d.GetName()
			m.want(r, nvml.SUCCESS)
			return
		default:
			_, r := d.GetUUID()
			m.want(r, nvml.SUCCESS)
		}
	}
}

func TestACallEndsTheProcess(t *testing.T) {
	m := on(t, "gpu 1 H100-80GB")
	m.happen("abort nvmlDeviceGetMemoryInfo_v2 2")
	for i, dies := range []bool{false, true, false} {
		out, err := m.client("memory", "")
		if died := err != nil; died != dies {
			t.Errorf("call %d: %v %s", i+1, err, out)
		}
	}
	m.equal(len(m.migs(func() nvml.Device { m.happen("mig 0 on"); return m.gpu(0) }())), 0) // and the lock is free
}

func TestEvents(t *testing.T) {
	m := on(t, "gpu 2 H100-80GB", "xid 13 0")
	m.gpu(0) // this reads it: nobody listens yet
	set, r := m.EventSetCreate()
	m.want(r, nvml.SUCCESS)
	defer set.Free() //nolint:errcheck // the machine goes with the test
	for i := range 2 {
		m.want(m.gpu(i).RegisterEvents(nvml.EventTypeXidCriticalError, set), nvml.SUCCESS)
	}
	_, r = set.Wait(1)
	m.want(r, nvml.ERROR_TIMEOUT)
	go m.happen("xid 79 1", "event 0x8000 1 0 - -", "xid 94 0 3 0", "xid 48 0")
	for _, want := range []string{"1 79 ffffffff ffffffff", "0 94 3 0", "0 48 ffffffff ffffffff"} {
		e, r := set.Wait(60_000)
		m.want(r, nvml.SUCCESS)
		i, _ := e.Device.GetIndex()
		m.equal(fmt.Sprintf("%d %d %x %x", i, e.EventData, e.GpuInstanceId, e.ComputeInstanceId), want)
	}
	_, r = set.Wait(1)
	m.want(r, nvml.ERROR_TIMEOUT) // each once
}

func TestHealthIsWhatTheFileSays(t *testing.T) {
	m := on(t, "gpu 2 H100-80GB")
	m.happen("recovery 0 2", "ecc 0 7 2", "remapped 0 1 2 1 0", "clocks 0 0x40", "temperature 0 91")
	d := m.gpu(0)
	m.equal(m.recovery(0), 2)
	m.equal(m.recovery(1), 0)
	corrected, r := d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC)
	m.want(r, nvml.SUCCESS)
	uncorrected, _ := d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.AGGREGATE_ECC)
	m.equal([2]uint64{corrected, uncorrected}, [2]uint64{7, 2})
	c, u, pending, failed, r := d.GetRemappedRows()
	m.want(r, nvml.SUCCESS)
	m.equal(fmt.Sprint(c, u, pending, failed), "1 2 true false")
	reasons, r := d.GetCurrentClocksEventReasons()
	m.want(r, nvml.SUCCESS)
	m.equal(reasons, uint64(0x40))
	celsius, _ := d.GetTemperature(nvml.TEMPERATURE_GPU)
	m.equal(celsius, uint32(91))
}
