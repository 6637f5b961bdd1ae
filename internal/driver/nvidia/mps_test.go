//go:build linux

package nvidia

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

func simShare(d *Driver, i, milli int, mem int64) driver.Slice {
	return driver.Slice{GPUID: d.host.GPUs[i].UUID, Slice: work.Slice{Mode: gpu.ModeShared, Milli: milli, Share: &work.Share{Milli: milli, MemMiB: mem}}}
}

// mpsOptions let a driver share by testdata's control program.
func mpsOptions(t *testing.T) Options {
	t.Helper()
	program, err := filepath.Abs("testdata/nvidia-cuda-mps-control")
	if err != nil {
		t.Fatal(err)
	}
	short, err := os.MkdirTemp("", "mps") //nolint:usetesting // a socket's name is short, and the folder of a test is not
	if err != nil {
		t.Fatal(err)
	}
	o := options(t, "one")
	o.MPS = MPS{Program: program, Dir: short}
	t.Cleanup(func() {
		left, _ := filepath.Glob(filepath.Join(short, "*", "daemon.json"))
		for _, name := range left {
			var p daemon
			if getFile(name, &p) == nil && p.alive() {
				_ = syscall.Kill(p.PID, syscall.SIGKILL)
			}
		}
		_ = os.RemoveAll(short)
	})
	return o
}

func TestMPSLivesWithItsShares(t *testing.T) {
	s := newSim("H100-80GB", 2)
	o := mpsOptions(t)
	o.Root = fakeTree(t)
	d := openSim(t, s, o)
	id := d.host.GPUs[0].UUID
	a, b := simPart(d, 1, simShare(d, 0, 300, 20000)), simPart(d, 2, simShare(d, 0, 500, 30000))
	for _, p := range []driver.Part{a, b} {
		if _, err := d.Carve(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	first := d.mps.known(id)
	if !first.alive() || d.mps.known(d.host.GPUs[1].UUID).PID != 0 {
		t.Fatalf("one daemon should run, for the shared GPU: %+v", d.mps.running)
	}
	env, err := os.ReadFile(filepath.Join(d.mps.pipe(id), "env"))
	if err != nil || !strings.Contains(string(env), "CUDA_VISIBLE_DEVICES="+id+"\n") {
		t.Errorf("the daemon was started with %s, %v", env, err)
	}
	access, err := d.Access(t.Context(), "one", a.Owner)
	if err != nil || !slices.Contains(access.Env, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30") || !slices.Contains(access.Env, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=20000M") ||
		!slices.Contains(access.Env, "CUDA_MPS_PIPE_DIRECTORY="+d.mps.pipe(id)) || !slices.Equal(access.Mounts, []string{d.mps.pipe(id)}) {
		t.Errorf("a program is told %+v, %v", access, err)
	}
	if inv, err := d.Observe(t.Context()); err != nil || inv.Hosts[0].Sharing != gpu.SharingMPS {
		t.Errorf("the host says %+v, %v", inv.Hosts, err)
	}

	a.Slices = []driver.Slice{simShare(d, 0, 400, 10000)} // what starts from now on is told the new size
	if _, err := d.Carve(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if access, err = d.Access(t.Context(), "one", a.Owner); err != nil || !slices.Contains(access.Env, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=40") {
		t.Errorf("resized, a program is told %+v, %v", access, err)
	}

	shut(t, d) // the daemon goes on, and is found again
	d = openSim(t, s, o)
	if d.mps.known(id) != first {
		t.Fatalf("after a restart the daemon is %+v, was %+v", d.mps.known(id), first)
	}
	if err := d.Free(t.Context(), "one", a.Owner); err != nil || !first.alive() {
		t.Fatalf("one share is left, and its daemon is gone: %v", err)
	}

	_ = syscall.Kill(first.PID, syscall.SIGKILL)
	until(t, "the daemon dies", func() bool { return !first.alive() })
	if _, err := d.Observe(t.Context()); err != nil || !d.mps.known(id).alive() {
		t.Fatalf("a daemon that died is not started again: %v", err)
	}
	last := d.mps.known(id)
	_ = os.Remove(filepath.Join(d.mps.folder(id), "daemon.json")) // as after a crash just before it was written
	shut(t, d)
	d = openSim(t, s, o)
	if _, err := d.Observe(t.Context()); err != nil || d.mps.known(id) != last {
		t.Fatalf("an orphan is not taken over: %+v, want %+v, %v", d.mps.known(id), last, err)
	}

	if err := d.Free(t.Context(), "one", b.Owner); err != nil {
		t.Fatal(err)
	}
	if last.alive() {
		t.Error("the last share is gone, and the daemon runs")
	}
	if left, _ := os.ReadDir(o.MPS.Dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestMPSThatDoesNotStart(t *testing.T) {
	o := mpsOptions(t)
	program := filepath.Join(t.TempDir(), "nvidia-cuda-mps-control")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho no GPU for you >&2\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	o.MPS.Program = program
	d := openSim(t, newSim("H100-80GB", 1), o)
	_, err := d.Carve(t.Context(), simPart(d, 1, simShare(d, 0, 300, 20000)))
	simCode(t, err, driver.ErrHardware)
	if got := leftovers(t, d.o.Dir); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
	o.MPS.Program = "no-such-program" // time slices
	d = openSim(t, newSim("H100-80GB", 1), o)
	if _, err := d.Carve(t.Context(), simPart(d, 1, simShare(d, 0, 300, 20000))); err != nil {
		t.Error(err)
	}
	if inv, err := d.Observe(t.Context()); err != nil || inv.Hosts[0].Sharing != "" {
		t.Errorf("without MPS the host says %+v, %v", inv.Hosts, err)
	}
}

// TestManyGPUsNoMPS: a program speaks to one daemon.
func TestManyGPUsNoMPS(t *testing.T) {
	o := mpsOptions(t)
	o.Root = fakeTree(t)
	d := openSim(t, newSim("H100-80GB", 2), o)
	p := simPart(d, 1, simShare(d, 0, 300, 20000), simShare(d, 1, 300, 20000))
	if _, err := d.Carve(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if a, err := d.Access(t.Context(), "one", p.Owner); err != nil || len(a.Mounts) != 0 {
		t.Errorf("got %+v, %v", a, err)
	}
	if err := d.Free(t.Context(), "one", p.Owner); err != nil {
		t.Error(err)
	}
}
