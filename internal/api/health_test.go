package api_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

func TestDrainGPU(t *testing.T) {
	w := start(t, options{shape: "2xH100-80GB"})
	ctx := t.Context()
	x := w.running(w.alice, apitype.TaskSpec{Name: "x", GPUs: "1"})
	at := x.Members[0].Slices[0]
	g, err := w.admin.DrainGPU(ctx, at.GPUID, "new cable") // by its UUID
	ok(t, err)
	if g.GPU != at.GPU || g.Health != "draining" || g.Why != "new cable" || g.HealthBy != "an admin" || g.HealthSince == nil || g.Operator == nil || g.Operator.Do != "drain" || g.Driver != nil {
		t.Errorf("a GPU being drained is %+v", g)
	}
	w.poll("the task runs on the other GPU", func() bool {
		x, err = w.alice.Task(ctx, x.ID)
		ok(t, err)
		return x.State == "running" && x.Epoch == 2
	})
	if now := x.Members[0].Slices[0].GPU; now == at.GPU || x.Drained != 1 {
		t.Errorf("it runs on GPU %d after %d drained attempts", now, x.Drained)
	}
	w.poll("the GPU is drained", func() bool {
		g, err = w.bob.GPU(ctx, at.GPUID)
		ok(t, err)
		return g.Health == "drained"
	})
	ps, err := w.admin.Pools(ctx)
	ok(t, err)
	if p := ps[0]; p.Unusable != 1 || p.Cordoned != 1 || p.FreeGPUs != 0 {
		t.Errorf("the pool counts %+v", p)
	}
	g, err = w.admin.UncordonGPU(ctx, at.GPUID, "")
	ok(t, err)
	if g.Health != "ok" || g.Why != "" || g.HealthSince != nil || g.Operator != nil {
		t.Errorf("a GPU in use again is %+v", g)
	}
	_, err = w.admin.CordonGPU(ctx, "99", "")
	refused(t, err, work.CodeNotFound)
	if a := w.call(w.adminToken, "POST", "/v1/gpus/0/cordon", `{"reason":"`+strings.Repeat("x", 600)+`"}`); a.status != 400 && a.status != 422 {
		t.Errorf("a reason that is too long: %d %s", a.status, a.body)
	}
}

// What a driver says of a GPU is shown, is not lifted by an operator, and ends by itself.
func TestDriverVerdict(t *testing.T) {
	w := start(t, options{shape: "1xH100-80GB"})
	ctx := t.Context()
	id := w.gpus(ctx)[0].ID
	w.drv.Judge(driver.Verdict{GPUID: id, Do: gpu.VerdictDrain, Why: "XID 48", Mend: "nvidia-smi --gpu-reset -i 0"})
	w.health(ctx, "drained")
	g := w.gpus(ctx)[0]
	if g.HealthBy != "driver fake" || g.Mend != "nvidia-smi --gpu-reset -i 0" || g.Driver == nil || g.Driver.Do != "drain" {
		t.Errorf("it is shown as %+v", g)
	}
	_, err := w.admin.UncordonGPU(ctx, "0", "")
	if says := refused(t, err, work.CodeConflict); !strings.Contains(says, "nvidia-smi --gpu-reset -i 0") {
		t.Errorf("an operator is told %s", says)
	}
	w.drv.Judge(driver.Verdict{GPUID: id})
	w.health(ctx, "ok")
}

// A lease on a GPU that is drained is told, and cannot be renewed.
func TestRecalledLease(t *testing.T) {
	w := start(t, options{shape: "1xH100-80GB"})
	ctx := t.Context()
	l := w.held(w.alice, apitype.LeaseSpec{GPUs: "1/7", LeaseTTL: "1h"})
	if l.Enforcement != "hard" || l.Recalled {
		t.Errorf("a lease of a MIG instance is %+v", l)
	}
	_, err := w.admin.DrainGPU(ctx, "0", "firmware")
	ok(t, err)
	l, err = w.alice.Lease(ctx, l.ID)
	ok(t, err)
	if !l.Recalled || l.State != "running" || l.Reason.Code != "drained" || !strings.Contains(l.Reason.Message, "firmware") {
		t.Errorf("it is told %+v", l)
	}
	_, err = w.alice.RenewLease(ctx, l.ID, l.Epoch)
	refused(t, err, work.CodeConflict)
	ok(t, w.alice.ReleaseLease(ctx, l.ID, l.Epoch))
	w.health(ctx, "drained")
}

// A fault is counted once, and only its tenant sees whose it was.
func TestFaults(t *testing.T) {
	w := start(t, options{shape: "1xH100-80GB"})
	ctx := t.Context()
	x := w.running(w.alice, apitype.TaskSpec{GPUs: "1"})
	w.drv.Fault(driver.Fault{GPUID: w.gpus(ctx)[0].ID, At: time.Now(), Owner: work.Owner{Task: work.TaskID(x.ID), Epoch: 1}, Code: "XID 31", What: "GPU memory page fault"})
	w.poll("the fault is counted", func() bool { return w.gpus(ctx)[0].Faults > 0 })
	g, err := w.bob.GPU(ctx, "0")
	ok(t, err)
	mine, err := w.alice.GPU(ctx, "0")
	ok(t, err)
	if g.Faults != 1 || g.LastFault.Task != 0 || mine.LastFault.Task != x.ID || mine.LastFault.Code != "XID 31" || mine.Health != "ok" {
		t.Errorf("bob sees %+v, alice %+v", g.LastFault, mine.LastFault)
	}
	w.finish(x, 0, 1)
	w.poll("the task has ended", func() bool {
		x, err = w.alice.Task(ctx, x.ID)
		ok(t, err)
		return x.Terminal()
	})
	if x.Faults != 1 || !strings.Contains(x.Reason.Message, "exited with code 1; XID 31 (GPU memory page fault) was reported on its slice") {
		t.Errorf("it ended %+v", x.Reason)
	}
	e, err := w.alice.Explain(ctx, x.ID)
	ok(t, err)
	if len(e.Detail) == 0 || !strings.Contains(strings.Join(e.Detail, "\n"), "XID 31") {
		t.Errorf("explain says %v", e.Detail)
	}
}

// How shares are made is told of each lease as it was when it was made.
func TestEnforcement(t *testing.T) {
	w := start(t, options{shape: "3xH100-80GB"})
	ctx := t.Context()
	share := apitype.TaskSpec{GPUs: "0.3", Isolation: "shared"}
	soft := w.running(w.alice, share)
	w.drv.Share(gpu.SharingMPS)
	x := share
	x.Name = "capped"
	var capped apitype.Task
	w.poll("shares are made by MPS", func() bool {
		capped = w.running(w.alice, x)
		if capped.Enforcement == "memory-capped" {
			return true
		}
		_, err := w.alice.Cancel(ctx, capped.ID)
		ok(t, err)
		return false
	})
	whole, cut := w.running(w.alice, apitype.TaskSpec{GPUs: "1"}), w.running(w.alice, apitype.TaskSpec{GPUs: "1/7"})
	soft, err := w.alice.Task(ctx, soft.ID)
	ok(t, err)
	if soft.Enforcement != "soft" || whole.Enforcement != "exclusive" || cut.Enforcement != "hard" || cut.Members[0].Enforcement != "hard" {
		t.Errorf("enforced are %q, %q, %q", soft.Enforcement, whole.Enforcement, cut.Enforcement)
	}
}

func (w *world) gpus(ctx context.Context) []apitype.GPU {
	w.t.Helper()
	var out []apitype.GPU
	for g, err := range w.admin.GPUs(ctx, client.GPUQuery{}) {
		ok(w.t, err)
		out = append(out, g)
	}
	return out
}

// health waits until the only GPU has it.
func (w *world) health(ctx context.Context, want string) {
	w.t.Helper()
	w.poll("the GPU is "+want, func() bool { return w.gpus(ctx)[0].Health == want })
}
