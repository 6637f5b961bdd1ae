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
	if err != nil || len(inv.Broken) != 0 {
		t.Fatalf("%+v, %v", inv.Broken, err)
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
	if inv, err := d.Observe(t.Context()); err != nil || len(inv.Broken) != 1 || inv.Broken[0].GPUID != id {
		t.Errorf("%+v, %v", inv.Broken, err)
	}
	say("")
	if inv, err := d.Observe(t.Context()); err != nil || len(inv.Broken) != 0 {
		t.Errorf("%+v, %v", inv.Broken, err)
	}
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
