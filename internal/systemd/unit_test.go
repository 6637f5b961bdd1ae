package systemd_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpupool/gpupool/internal/systemd"
)

var update = flag.Bool("update", false, "rewrite deploy/systemd/gpupool.service")

// standard is the unit that is kept in deploy/.
var standard = systemd.Unit{Binary: "/usr/local/bin/gpupool", Data: "/var/lib/gpupool", Config: "/etc/gpupool/config.yaml"}

func text(t *testing.T, u systemd.Unit) string {
	t.Helper()
	s, err := u.Text()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestKeptUnit keeps the unit in deploy/ the one that is installed.
func TestKeptUnit(t *testing.T) {
	const file = "../../deploy/systemd/gpupool.service"
	got := text(t, standard)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(kept), got); d != "" {
		t.Errorf("deploy/systemd/gpupool.service (-kept +made; go test ./internal/systemd -update):\n%s", d)
	}
	for line := range strings.SplitSeq(got, "\n") {
		if strings.HasPrefix(line, "PrivateTmp") || strings.HasPrefix(line, "DevicePolicy") || strings.HasPrefix(line, "NoNewPrivileges") {
			t.Errorf("%s would change what tasks see", line)
		}
	}
}

func TestUnits(t *testing.T) {
	u := standard
	u.User, u.Data, u.Binary = "ada", "/srv/the pool", "/opt/100%/gpupool"
	got := text(t, u)
	for _, want := range []string{"\nUser=ada\n", "\nExecStart=/opt/100%%/gpupool serve --config /etc/gpupool/config.yaml --data \"/srv/the pool\"\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	for _, not := range []string{"StateDirectory", "SystemCallFilter", "nvidia-modprobe"} {
		if strings.Contains(got, not) {
			t.Errorf("%s in the unit of a user", not)
		}
	}
	u.User = "root"
	if got := text(t, u); strings.Contains(got, "User=") {
		t.Error("root is named")
	}
	for _, bad := range []func(*systemd.Unit){
		func(u *systemd.Unit) { u.User = "ada; rm" }, func(u *systemd.Unit) { u.Data = "data" }, func(u *systemd.Unit) { u.Binary = "" },
		func(u *systemd.Unit) { u.Data = "/a/../b" }, func(u *systemd.Unit) { u.Config = "/etc/x\nExecStart=/bin/sh" }, func(u *systemd.Unit) { u.Data = "/$HOME" },
	} {
		u := standard
		bad(&u)
		if s, err := u.Text(); err == nil {
			t.Errorf("%+v is taken:\n%s", u, s)
		}
	}
}

// TestVerify lets systemd itself read the units.
func TestVerify(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("systemd-analyze is not installed: scripts/systemd.sh installs it")
		}
		t.Skip("systemd-analyze is not installed: scripts/systemd.sh installs it")
	}
	dir := t.TempDir()
	binary := filepath.Join(dir, "gpupool")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	verify := func(text string) string {
		file := filepath.Join(dir, "gpupool.service")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", "--recursive-errors=no", file)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return string(out) + err.Error()
		}
		return string(out)
	}
	for _, user := range []string{"", "daemon"} {
		if said := verify(text(t, systemd.Unit{Binary: binary, User: user, Data: "/var/lib/gpupool", Config: "/etc/gpupool/config.yaml"})); said != "" {
			t.Errorf("as %q systemd says: %s", user, said)
		}
	}
	if said := verify("[Service]\nExecStart=/nowhere/gpupool\nKillMod=process\n"); !strings.Contains(said, "KillMod") {
		t.Errorf("systemd finds no fault in a unit with two: %q", said)
	}
}
