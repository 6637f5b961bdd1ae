package fake

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

func TestFaultFile(t *testing.T) {
	hosts, err := ParseHosts("2xH100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	inner, err := New(hosts, gpu.Builtin(), Options{Times: Times{SetMIG: -1, SetMIGSlow: -1, Create: -1, Destroy: -1, Whole: -1, Share: -1}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "fake-faults")
	var said []error
	d := Faulty(inner, path, func(err error) { said = append(said, err) })
	say := func(lines string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	inv, err := d.Observe(t.Context())
	if err != nil || len(inv.Verdicts) != 0 {
		t.Fatalf("%+v, %v", inv.Verdicts, err)
	}
	id, host := inv.Hosts[0].GPUs[0].ID, inv.Hosts[0].Name
	part := func(task work.TaskID) driver.Part {
		return driver.Part{Owner: work.Owner{Task: task, Epoch: 1}, Tenant: "a", Host: host, Slices: []driver.Slice{{GPUID: id, Slice: work.Slice{Mode: gpu.ModeWhole, Milli: 1000}}}}
	}
	var fault *driver.Error
	say("carve # for a while\n")
	if _, err := d.Carve(t.Context(), part(1)); !errors.As(err, &fault) || fault.Code != driver.ErrHardware {
		t.Errorf("a carve that should fail: %v", err)
	}
	say("free\n")
	if _, err := d.Carve(t.Context(), part(2)); err != nil {
		t.Error(err)
	}
	if err := d.Free(t.Context(), host, part(2).Owner); !errors.As(err, &fault) {
		t.Errorf("a free that should fail: %v", err)
	}
	say("lose " + id + "\n")
	if inv, err := d.Observe(t.Context()); err != nil || len(inv.Verdicts) != 1 || inv.Verdicts[0].GPUID != id {
		t.Errorf("%+v, %v", inv.Verdicts, err)
	}
	say("")
	if inv, err := d.Observe(t.Context()); err != nil || len(inv.Verdicts) != 0 {
		t.Errorf("%+v, %v", inv.Verdicts, err)
	}
	ailing(t, d, say, id, part(2).Owner)
	say("lose GPU-none\n")
	for range 2 {
		if _, err := d.Observe(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if len(said) != 1 || !strings.Contains(said[0].Error(), "line 1") {
		t.Errorf("it complained %v", said)
	}
}

// ailing tries the lines about a GPU that somebody holds.
func ailing(t *testing.T, d driver.Driver, say func(string), id string, holder work.Owner) {
	t.Helper()
	see := func() driver.Inventory {
		t.Helper()
		inv, err := d.Observe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return inv
	}
	say("drain " + id + " XID 48\nxid " + id + " 31\nmps\n")
	first := see()
	if want := (driver.Verdict{GPUID: id, Do: gpu.VerdictDrain, Why: "XID 48", Mend: "nvidia-smi --gpu-reset -i " + id}); len(first.Verdicts) != 1 || first.Verdicts[0] != want {
		t.Errorf("verdicts %+v, want %+v", first.Verdicts, want)
	}
	if first.Hosts[0].Sharing != gpu.SharingMPS {
		t.Errorf("shared by %q", first.Hosts[0].Sharing)
	}
	if len(first.Faults) != 1 || first.Faults[0].Code != "XID 31" || first.Faults[0].At.IsZero() {
		t.Errorf("faults %+v", first.Faults)
	}
	if again := see(); len(again.Faults) != 1 || again.Faults[0] != first.Faults[0] {
		t.Errorf("the same fault is reported as %+v, then as %+v", first.Faults, again.Faults)
	}
	say("cordon " + id + "\nxid " + id + " 31\nxid " + id + " 31\n")
	now := see()
	if len(now.Verdicts) != 1 || now.Verdicts[0].Do != gpu.VerdictCordon || now.Verdicts[0].Why == "" || now.Verdicts[0].Mend != "" {
		t.Errorf("verdicts %+v", now.Verdicts)
	}
	if len(now.Faults) != 2 || !now.Faults[1].At.After(now.Faults[0].At) {
		t.Errorf("faults %+v: expected a second, later one", now.Faults)
	}
	if now.Hosts[0].Sharing != "" {
		t.Errorf("shared by %q", now.Hosts[0].Sharing)
	}
	say("")
	if now := see(); len(now.Verdicts) != 0 || len(now.Faults) != 2 {
		t.Errorf("%+v, %+v: expected the all-clear, and both faults", now.Verdicts, now.Faults)
	}
}
