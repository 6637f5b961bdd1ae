package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestHardwareReport runs scripts/hardware-report.sh beside an nvidia-smi that only notes
// what it is asked: everything must be a question.
func TestHardwareReport(t *testing.T) {
	if _, err := exec.LookPath("timeout"); err != nil {
		t.Skip("there is no timeout(1) here")
	}
	dir := t.TempDir()
	asked := filepath.Join(dir, "asked")
	for _, name := range []string{"nvidia-smi", "nvidia-ctk", "podman"} {
		script := "#!/bin/sh\necho \"" + name + " $*\" >>" + asked + "\necho of " + name + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(dir, "report")
	cmd := exec.CommandContext(t.Context(), "../../scripts/hardware-report.sh", out)
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+filepath.Dir(binary(t))+":"+os.Getenv("PATH"), "GPUPOOL_DATA="+filepath.Join(dir, "data"))
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	b, err := os.ReadFile(asked)
	if err != nil {
		t.Fatal(err)
	}
	allowed := regexp.MustCompile(`^(nvidia-smi( -L| -q| -q -x| topo -m| (dmon|pmon) -s um -c \d+| --query-(gpu|compute-apps)=\S+ --format=csv\S*| mig -l(gip|gipp|cip|gi|ci))?|nvidia-ctk (--version|cdi list)|podman info( --format json)?)$`)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	for _, l := range lines {
		if !allowed.MatchString(strings.TrimSpace(l)) {
			t.Errorf("the report does more than ask: %q", l)
		}
	}
	if !slices.Contains(lines, "nvidia-smi mig -lgipp") || len(lines) < 15 {
		t.Errorf("asked only:\n%s", b)
	}
	for file, want := range map[string]string{"doctor.txt": ": gpupool would ", "doctor.json": `"verdict"`, "gpus.csv": "of nvidia-smi", "machine.txt": "[exit code 0]"} {
		said, err := os.ReadFile(filepath.Join(out, file))
		if err != nil || !strings.Contains(string(said), want) {
			t.Errorf("%s: no %q (%v)\n%s", file, want, err, said)
		}
	}
}
