package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpupool/gpupool/internal/doctor"
)

// TestDoctorOverMock asks a mock NVML by way of the real binary and its helper: one H100
// in MIG mode, and one that wants a reset.
func TestDoctorOverMock(t *testing.T) {
	dir, env := mockGPUs(t, "gpu 2 H100-80GB", "driver 570.124.06", "mig 0 on", "recovery 1 4")
	cmd := exec.CommandContext(t.Context(), binary(t), "doctor", "--json", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), env...)
	out, _ := cmd.Output() // it ends with 1
	var r doctor.Report
	if err := json.Unmarshal(out, &r); err != nil || cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("%v, %v\n%s", err, cmd.ProcessState, out)
	}
	said := map[string]doctor.Result{}
	for _, x := range r.Results {
		said[x.Check] = x
	}
	for check, want := range map[string]struct {
		level doctor.Level
		text  string
	}{
		"library": {doctor.OK, "NVML answers: driver 570.124.06, 2 GPUs"},
		"driver":  {doctor.OK, "driver 570.124.06 is new enough for 2 GPUs"},
		"health":  {doctor.Fail, "GPU 1 wants drain and reset"},
		"mig":     {doctor.OK, "MIG is off on GPU 1"},
	} {
		if got := said[check]; got.Level != want.level || !strings.Contains(got.Text, want.text) {
			t.Errorf("%s: %s %q, want %s %q", check, got.Level, got.Text, want.level, want.text)
		}
	}
	if !strings.Contains(strings.Join(said["mig"].Detail, "\n"), "GPU 0: MIG on, ") {
		t.Errorf("the mode of GPU 0 is not seen: %q", said["mig"].Detail)
	}
}
