//go:build cgo && linux

package nvidia

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

func ownerOf(n int) work.Owner { return work.Owner{Task: work.TaskID(n), Epoch: 1} }

func partOf(d *Driver, n int, slices ...driver.Slice) driver.Part {
	return driver.Part{Owner: ownerOf(n), Tenant: "a", Host: d.host.Name, Slices: slices}
}

func (d *Driver) gpuID(i int) string { return d.host.GPUs[i].UUID }

func (d *Driver) mig(i int, profile string, start int) driver.Slice {
	return driver.Slice{GPUID: d.gpuID(i), Slice: work.Slice{Mode: gpu.ModeMIG, Profile: profile, Start: start}}
}

func (d *Driver) whole(i int) driver.Slice {
	return driver.Slice{GPUID: d.gpuID(i), Slice: work.Slice{Mode: gpu.ModeWhole, Milli: 1000}}
}

func mustCarve(t testing.TB, d *Driver, p driver.Part) []string {
	t.Helper()
	devices, err := d.Carve(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return devices
}

func wantCode(t testing.TB, err error, codes ...driver.Code) {
	t.Helper()
	e, is := errors.AsType[*driver.Error](err)
	if !is || !slices.Contains(codes, e.Code) {
		t.Fatalf("got %v, want an error of %v", err, codes)
	}
}

func verdicts(t testing.TB, d *Driver) map[string]driver.Verdict {
	t.Helper()
	inv, err := d.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]driver.Verdict{}
	for _, v := range inv.Verdicts {
		out[v.GPUID] = v
	}
	return out
}

// clean fails where anything is left on the GPUs or in the files.
func clean(t testing.TB, d *Driver) {
	t.Helper()
	if got := leftovers(t, d.o.Dir); len(got) > 0 {
		t.Errorf("files are left: %v", got)
	}
	for _, k := range d.host.GPUs {
		if l := raw(t, d, k.UUID); len(l.GIs) > 0 {
			t.Errorf("instances are left on %s: %+v", k.UUID, l.GIs)
		}
	}
}

func TestDestroyInUse(t *testing.T) {
	m := newMock(t, "gpu 1 H100-80GB")
	d := m.open(m.options("one"))
	mustCarve(t, d, partOf(d, 1, d.mig(0, "1g.10gb", 0), d.mig(0, "2g.20gb", 2)))
	for _, call := range []string{"nvmlComputeInstanceDestroy", "nvmlGpuInstanceDestroy"} {
		m.happen("fail " + call + " IN_USE 2")
		wantCode(t, d.Free(t.Context(), "one", ownerOf(1)), driver.ErrInUse, driver.ErrUnclear)
		if inv, err := d.Observe(t.Context()); err != nil || len(inv.Parts) != 1 {
			t.Fatalf("half freed, the part must still be shown: %+v, %v", inv.Parts, err)
		}
		_, err := d.Carve(t.Context(), partOf(d, 1, d.mig(0, "1g.10gb", 0), d.mig(0, "2g.20gb", 2)))
		wantCode(t, err, driver.ErrUnclear)
		m.heal()
	}
	if err := d.Free(t.Context(), "one", ownerOf(1)); err != nil {
		t.Fatal(err)
	}
	clean(t, d)
}

func TestProcessesKeepSlices(t *testing.T) {
	m := newMock(t, "gpu 2 H100-80GB")
	d := m.open(m.options("one"))
	mustCarve(t, d, partOf(d, 1, d.mig(0, "1g.10gb", 0)))
	mustCarve(t, d, partOf(d, 2, d.whole(1)))
	gi := d.record(ownerOf(1)).Slices[0].GI
	m.happen(fmt.Sprintf("process 4001 0 %d 0 700 40", gi), "process 4002 1 - - 900 60")
	for n := 1; n <= 2; n++ {
		wantCode(t, d.Free(t.Context(), "one", ownerOf(n)), driver.ErrInUse)
	}
	use, err := d.Usage(t.Context())
	if err != nil || len(use) != 2 || use[0].Procs != 1 || use[1].Procs != 1 || use[1].Compute < 0.5 || use[0].MemMiB < 700 {
		t.Errorf("sampled are %+v, %v", use, err)
	}
	until(t, "two samples of the instance", func() bool {
		use, err := d.Usage(t.Context())
		return err == nil && use[0].Compute > 0
	})
	m.heal()
	for n := 1; n <= 2; n++ {
		if err := d.Free(t.Context(), "one", ownerOf(n)); err != nil {
			t.Error(err)
		}
	}
	clean(t, d)
}

// TestSharersAreToldApart: of the processes on a shared GPU each is its own part's, by
// the variable that its program was started with.
func TestSharersAreToldApart(t *testing.T) {
	m := newMock(t, "gpu 1 H100-80GB", "scan-proc yes")
	o := m.options("one")
	o.Root = fakeTree(t)
	d := m.open(o)
	mustCarve(t, d, partOf(d, 1, simShare(d, 0, 300, 1000)))
	mustCarve(t, d, partOf(d, 2, simShare(d, 0, 300, 1000)))
	access, err := d.Access(t.Context(), "one", ownerOf(1))
	if err != nil {
		t.Fatal(err)
	}
	program := exec.Command("cat")
	program.Env = append(os.Environ(), append(access.Env, "CUDA_VISIBLE_DEVICES="+d.gpuID(0))...)
	in, err := program.StdinPipe()
	if err == nil {
		err = program.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the program is seen", func() bool {
		use, err := d.Usage(t.Context())
		return err == nil && len(use) == 2 && use[0].Procs == 1 && use[1].Procs == 0 && use[0].MemMiB == 512 && use[0].Compute < 0
	})
	wantCode(t, d.Free(t.Context(), "one", ownerOf(1)), driver.ErrInUse)
	if err := d.Free(t.Context(), "one", ownerOf(2)); err != nil {
		t.Errorf("the other's share is kept: %v", err)
	}
	if err := errors.Join(in.Close(), program.Wait()); err != nil {
		t.Fatal(err)
	}
	if err := d.Free(t.Context(), "one", ownerOf(1)); err != nil {
		t.Error(err)
	}
	clean(t, d)
}

// TestOldDriver runs over a library without the functions of the last years: calling
// one of them ends the process, which no call may do.
func TestOldDriver(t *testing.T) {
	m := newMock(t, "gpu 1 A100-40GB", "mig all on").old()
	d := m.open(m.options("one"))
	mustCarve(t, d, partOf(d, 1, d.mig(0, "1g.5gb", 0)))
	if _, err := d.Observe(t.Context()); err != nil {
		t.Error(err)
	}
	for range 2 {
		use, err := d.Usage(t.Context())
		if err != nil || len(use) != 1 || use[0].Compute != -1 {
			t.Errorf("without GPM nobody knows how busy an instance is: %+v, %v", use, err)
		}
	}
	if err := d.Free(t.Context(), "one", ownerOf(1)); err != nil {
		t.Error(err)
	}
	clean(t, d)
	if n := d.Restarts(); n != 0 {
		t.Errorf("the helper ended %d times", n)
	}
}

// TestModeNeedsReset: an Ampere changes its MIG mode by a reset, which is not ours to do.
func TestModeNeedsReset(t *testing.T) {
	m := newMock(t, "gpu 1 A100-80GB")
	d := m.open(m.options("one"))
	_, err := d.Carve(t.Context(), partOf(d, 1, d.mig(0, "1g.10gb", 0)))
	wantCode(t, err, driver.ErrMode)
	if !strings.Contains(err.Error(), "nvidia-smi") {
		t.Errorf("the error does not say what to do: %v", err)
	}
	if l := raw(t, d, d.gpuID(0)); l.MIGPending {
		t.Error("a mode was set that waits for a reset")
	}
	clean(t, d)
}

func TestXIDs(t *testing.T) {
	m := newMock(t, "gpu 2 H100-80GB")
	d := m.open(m.options("one"))
	mustCarve(t, d, partOf(d, 1, d.mig(0, "1g.10gb", 0)))
	mustCarve(t, d, partOf(d, 2, d.mig(0, "1g.10gb", 1)))
	if v := verdicts(t, d); len(v) != 0 {
		t.Fatalf("nothing ails, and %+v is said", v)
	}
	hit := d.record(ownerOf(2)).Slices[0].GI
	m.happen(fmt.Sprintf("xid 31 0 %d 0", hit))
	var faults []driver.Fault
	until(t, "XID 31", func() bool {
		inv, err := d.Observe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		faults = inv.Faults
		return len(faults) > 0
	})
	if faults[0].Owner != ownerOf(2) || faults[0].Code != "XID 31" || len(verdicts(t, d)) != 0 {
		t.Errorf("a program's fault is %+v", faults[0])
	}
	m.happen(fmt.Sprintf("xid 94 0 %d 0", hit))
	until(t, "XID 94", func() bool { return verdicts(t, d)[d.gpuID(0)].Do == gpu.VerdictCordon })
	m.happen("xid 79 1", "lost 1")
	until(t, "XID 79", func() bool { return verdicts(t, d)[d.gpuID(1)].Do == gpu.VerdictBroken })
	inv, err := d.Observe(t.Context())
	if err != nil || len(inv.Hosts[0].GPUs) != 2 || len(inv.Faults) != 2 {
		t.Errorf("a lost GPU stays listed, and each fault once: %+v, %v", inv, err)
	}
	// What follows from an XID outlives this process.
	o := d.o
	shut(t, d)
	d = m.open(o)
	if v := verdicts(t, d); v[d.gpuID(0)].Do != gpu.VerdictCordon || v[d.gpuID(1)].Do != gpu.VerdictBroken {
		t.Errorf("after a restart the verdicts are %+v", v)
	}
}

func TestHealthReadings(t *testing.T) {
	for line, want := range map[string]gpu.Verdict{
		"recovery 0 1": gpu.VerdictDrain, "recovery 0 2": gpu.VerdictDrain, "remapped 0 0 1 1 0": gpu.VerdictCordon, "remapped 0 0 1 0 1": gpu.VerdictCordon,
		"clocks 0 4": gpu.VerdictNone, "lost 0": gpu.VerdictBroken, "clocks 0 0x40": gpu.VerdictNone, // not for long yet
	} {
		m := newMock(t, "gpu 1 H100-80GB")
		d := m.open(m.options("one"))
		m.happen(line)
		v := verdicts(t, d)[d.gpuID(0)]
		if v.Do != want {
			t.Errorf("%s: the verdict is %+v, want %q", line, v, want)
		}
		m.heal()
		if v := verdicts(t, d)[d.gpuID(0)]; v.Do != gpu.VerdictNone {
			t.Errorf("after %s: the verdict is still %+v", line, v)
		}
	}
}

// TestLostGPU frees what stood on a GPU that is gone.
func TestLostGPU(t *testing.T) {
	m := newMock(t, "gpu 2 H100-80GB")
	d := m.open(m.options("one"))
	mustCarve(t, d, partOf(d, 1, d.mig(0, "1g.10gb", 0), d.mig(1, "1g.10gb", 0)))
	m.happen("lost 0")
	_, err := d.Carve(t.Context(), partOf(d, 2, d.mig(0, "1g.10gb", 1)))
	wantCode(t, err, driver.ErrLost)
	if err := d.Free(t.Context(), "one", ownerOf(1)); err != nil {
		t.Fatal(err)
	}
	if len(leftovers(t, d.o.Dir)) > 0 {
		t.Error("the file of the part is left")
	}
}

// TestHangs lets a look and a step hang: the helper is killed each time, and what was
// half made is undone.
func TestHangs(t *testing.T) {
	m := newMock(t, "gpu 2 H100-80GB")
	o := m.options("one")
	o.Timeout = 2 * time.Second // long beside what a helper needs to start on a busy machine, short beside a minute
	d := m.open(o)
	mustCarve(t, d, partOf(d, 1, d.mig(1, "1g.10gb", 0)))
	m.happen("hang nvmlGpuInstanceCreateComputeInstance 60 1")
	_, err := d.Carve(t.Context(), partOf(d, 2, d.mig(0, "1g.10gb", 0)))
	wantCode(t, err, driver.ErrHardware)
	if d.Restarts() != 1 {
		t.Errorf("the helper was started again %d times", d.Restarts())
	}
	if l := raw(t, d, d.gpuID(0)); len(l.GIs) != 0 {
		t.Errorf("half of it is left: %+v", l.GIs)
	}
	m.heal()
	m.happen("hang nvmlDeviceGetMigMode 60 0 0")
	until(t, "a GPU that hangs is broken", func() bool { return verdicts(t, d)[d.gpuID(0)].Do == gpu.VerdictBroken })
	if v := verdicts(t, d); v[d.gpuID(1)].Do != gpu.VerdictNone {
		t.Errorf("its neighbour is said to ail: %+v", v)
	}
	if err := d.Free(t.Context(), "one", ownerOf(1)); err != nil {
		t.Errorf("the neighbour's part cannot be freed: %v", err)
	}
}

// TestForeignInstances are never touched, and what is beside them is not handed out.
func TestForeignInstances(t *testing.T) {
	m := newMock(t, "gpu 2 H100-80GB", "mig 0 on", "instance 0 14 0")
	o := m.options("one")
	d := m.open(o)
	if v := verdicts(t, d); v[d.gpuID(0)].Do != gpu.VerdictCordon || v[d.gpuID(1)].Do != gpu.VerdictNone {
		t.Errorf("the verdicts are %+v", v)
	}
	_, err := d.Carve(t.Context(), partOf(d, 1, d.mig(0, "1g.10gb", 4)))
	wantCode(t, err, driver.ErrForbidden)
	mustCarve(t, d, partOf(d, 2, d.mig(1, "1g.10gb", 0)))
	m.happen("instance 1 9 4") // later, beside ours
	until(t, "the other's instance is seen", func() bool { return verdicts(t, d)[d.gpuID(1)].Do == gpu.VerdictCordon })
	_, err = d.Carve(t.Context(), partOf(d, 3, d.mig(1, "3g.40gb", 4)))
	wantCode(t, err, driver.ErrOverlap)
	if err := d.Free(t.Context(), "one", ownerOf(2)); err != nil {
		t.Fatal(err)
	}
	if l := raw(t, d, d.gpuID(1)); len(l.GIs) != 1 {
		t.Errorf("the other's instance is not alone: %+v", l.GIs)
	}
	shut(t, d)

	o.Adopt = []string{"0"}
	d = m.open(o)
	if l := raw(t, d, d.gpuID(0)); len(l.GIs) != 0 {
		t.Errorf("adopted, and the leftover stands: %+v", l.GIs)
	}
	mustCarve(t, d, partOf(d, 4, d.whole(0)))
	shut(t, d)

	o.Adopt, o.Exclude = nil, []string{"1"}
	d = m.open(o)
	if v := verdicts(t, d); v[d.gpuID(1)].Do != gpu.VerdictCordon || !strings.Contains(v[d.gpuID(1)].Why, "exclude") {
		t.Errorf("an excluded GPU has the verdict %+v", v)
	}
}

// TestRestart finds parts again, and drops those that a reset or a reboot took.
func TestRestart(t *testing.T) {
	m := newMock(t, "gpu 2 H100-80GB")
	o := m.options("one")
	o.Root = fakeRoot(t, "boot-1")
	d := m.open(o)
	p := partOf(d, 1, d.mig(0, "1g.10gb", 3))
	first := mustCarve(t, d, p)
	mustCarve(t, d, partOf(d, 2, d.whole(1)))
	shut(t, d)
	d = m.open(o)
	if again := mustCarve(t, d, p); !slices.Equal(first, again) {
		t.Errorf("after a restart the devices are %v, were %v", again, first)
	}
	m.happen("reset 0")
	if inv, err := d.Observe(t.Context()); err != nil || len(inv.Parts) != 1 {
		t.Errorf("after a reset %+v stand, %v", inv.Parts, err)
	}
	mustCarve(t, d, p)
	shut(t, d)
	m.happen("reboot")
	o.Root = fakeRoot(t, "boot-2")
	d = m.open(o)
	if inv, err := d.Observe(t.Context()); err != nil || len(inv.Parts) != 0 {
		t.Errorf("after a reboot %+v stand, %v", inv.Parts, err)
	}
	clean(t, d)
}

// TestHelperKilled kills the helper again and again while parts come and go: each time one
// more step was done, so it takes as long as it takes.
func TestHelperKilled(t *testing.T) {
	m := newMock(t, "gpu 2 H100-80GB")
	d := m.open(m.options("one"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	progress := make(chan struct{}, 1)
	step := func() {
		select {
		case progress <- struct{}{}:
		default:
		}
	}
	killed := 0
	var side, all sync.WaitGroup
	side.Go(func() {
		h := d.lib.(*helper) //nolint:forcetypeassert // made by open
		for {
			select {
			case <-progress:
			case <-ctx.Done():
				return
			}
			pause(ctx, time.Duration(killed*7%30)*time.Millisecond) // in the midst of another step
			h.mu.Lock()
			s := h.cur
			h.mu.Unlock()
			if s != nil && !s.ended() {
				s.cmd.Process.Signal(syscall.SIGKILL) //nolint:errcheck // it may have ended
				killed++
			}
		}
	})
	side.Go(func() {
		for ctx.Err() == nil {
			d.Observe(ctx) //nolint:errcheck // the helper dies all the time
			d.Usage(ctx)   //nolint:errcheck // likewise
		}
	})
	for w := range 4 {
		all.Go(func() {
			for n, made := 1, 0; made < 5 && ctx.Err() == nil; n++ {
				p := partOf(d, w*100000+n, d.mig(w%2, "1g.10gb", w))
				if _, err := d.Carve(ctx, p); err == nil {
					made++
					step()
				}
				for d.Free(ctx, "one", p.Owner) != nil && ctx.Err() == nil {
				}
				step()
			}
		})
	}
	all.Wait()
	cancel()
	side.Wait()
	inv, err := d.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range inv.Parts {
		if err := d.Free(t.Context(), "one", p.Owner); err != nil {
			t.Errorf("free %s: %v", p.Owner, err)
		}
	}
	clean(t, d)
	if killed < 5 {
		t.Errorf("killed %d times: nothing was shown", killed)
	}
	if d.Restarts() == 0 {
		t.Error("no restart was counted")
	}
	t.Logf("killed %d times, %d restarts", killed, d.Restarts())
	pid := d.lib.(*helper).cur.cmd.Process.Pid
	shut(t, d)
	until(t, "the helper ends with the driver", func() bool { return started(pid) == 0 })
}
