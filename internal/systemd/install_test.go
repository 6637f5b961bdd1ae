package systemd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpupool/gpupool/internal/systemd"
)

// machine is one that systemd runs, as far as systemctl tells.
type machine struct {
	systemd.Installer
	said   strings.Builder
	calls  []string
	active bool
	stale  bool   // the unit's file is newer than what systemd read
	fails  string // the call that fails
}

func newMachine(t *testing.T, booted bool) *machine {
	t.Helper()
	m := &machine{}
	m.Root, m.Out, m.Systemctl = t.TempDir(), &m.said, m.systemctl
	if booted {
		if err := os.MkdirAll(filepath.Join(m.Root, "run", "systemd", "system"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (m *machine) systemctl(_ context.Context, args ...string) (string, error) {
	call := strings.Join(args, " ")
	switch args[0] {
	case "is-active", "is-enabled":
		if m.active {
			return map[string]string{"is-active": "active", "is-enabled": "enabled"}[args[0]], nil
		}
		return "inactive", errors.New("exit status 3")
	case "show":
		if strings.Contains(call, "NeedDaemonReload") {
			return map[bool]string{true: "yes", false: "no"}[m.stale], nil
		}
		return "serves on http://127.0.0.1:8470", nil
	}
	m.calls = append(m.calls, call)
	if call == m.fails {
		m.stale = true
		return "", fmt.Errorf("systemctl %s: failed", call)
	}
	m.active, m.stale = args[0] != "disable", false
	return "", nil
}

// did returns what was said and called since, and forgets it.
func (m *machine) did() (said string, calls []string) {
	said, calls = m.said.String(), m.calls
	m.said.Reset()
	m.calls = nil
	return said, calls
}

func (m *machine) read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(m.Root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func same(t *testing.T, what string, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// unit is the standard one, for who runs the test.
func unit() systemd.Unit {
	u := standard
	u.User = fmt.Sprint(os.Getuid())
	return u
}

// TestLife installs, installs again, changes, looks and uninstalls.
func TestLife(t *testing.T) {
	m, ctx := newMachine(t, true), t.Context()
	if err := m.Install(ctx, unit(), "queue: {}\n"); err != nil {
		t.Fatal(err)
	}
	said, calls := m.did()
	same(t, "the first install", []string{"daemon-reload", "enable --now gpupool.service"}, calls)
	for _, want := range []string{"make /var/lib/gpupool, for ", "write /etc/gpupool/config.yaml", "write /etc/systemd/system/gpupool.service", "systemctl daemon-reload"} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
	same(t, "the unit", text(t, unit()), m.read(t, systemd.UnitFile))
	if info, err := os.Stat(filepath.Join(m.Root, "var", "lib", "gpupool")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the data folder: %v %v", info, err)
	}

	if err := os.WriteFile(filepath.Join(m.Root, "etc", "gpupool", "config.yaml"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.Install(ctx, unit(), "queue: {}\n"); err != nil {
		t.Fatal(err)
	}
	said, calls = m.did()
	same(t, "the second install", []string{"enable --now gpupool.service"}, calls)
	same(t, "what it says", "keep /var/lib/gpupool\nkeep /etc/gpupool/config.yaml\nkeep /etc/systemd/system/gpupool.service\nsystemctl enable --now gpupool.service\n", said)
	same(t, "the settings", "mine", m.read(t, "etc/gpupool/config.yaml"))

	newer := unit()
	newer.Binary = "/opt/gpupool"
	s, err := m.Status(ctx, newer)
	same(t, "the status", systemd.Status{Systemd: true, Installed: true, Enabled: "enabled", Active: "active", Says: "serves on http://127.0.0.1:8470"}, s)
	if err := errors.Join(err, m.Install(ctx, newer, "")); err != nil {
		t.Fatal(err)
	}
	_, calls = m.did()
	same(t, "another unit", []string{"daemon-reload", "enable --now gpupool.service", "restart gpupool.service"}, calls)

	if err := m.Uninstall(ctx); err != nil {
		t.Fatal(err)
	}
	_, calls = m.did()
	same(t, "the uninstall", []string{"disable --now gpupool.service", "daemon-reload"}, calls)
	same(t, "the settings", "mine", m.read(t, "etc/gpupool/config.yaml"))
	if err := m.Uninstall(ctx); err != nil {
		t.Fatal(err)
	}
	said, calls = m.did()
	same(t, "another uninstall", []string(nil), calls)
	same(t, "what it says", "there is no /etc/systemd/system/gpupool.service\n", said)
}

func TestDryRun(t *testing.T) {
	for _, booted := range []bool{true, false} {
		m := newMachine(t, booted)
		m.DryRun = true
		if err := m.Install(t.Context(), unit(), "x"); err != nil {
			t.Fatal(err)
		}
		said, calls := m.did()
		same(t, "the calls", []string(nil), calls)
		if n := strings.Count(said, "would: "); n != 5 || n != strings.Count(said, "\n") {
			t.Errorf("said:\n%s", said)
		}
		if left, _ := filepath.Glob(filepath.Join(m.Root, "[ev]*")); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}

func TestRefused(t *testing.T) {
	m := newMachine(t, false)
	if err := m.Install(t.Context(), unit(), ""); !errors.Is(err, systemd.ErrAbsent) {
		t.Errorf("without systemd: %v", err)
	}
	m = newMachine(t, true)
	u := unit()
	u.User = "nobody-of-that-name"
	if err := m.Install(t.Context(), u, ""); err == nil || !strings.Contains(err.Error(), "there is no user") {
		t.Errorf("of an unknown user: %v", err)
	}
	m.fails = "daemon-reload"
	if err := m.Install(t.Context(), unit(), ""); err == nil {
		t.Error("a systemctl that fails is passed over")
	}
	m.did()
	m.fails = ""
	if err := m.Install(t.Context(), unit(), ""); err != nil {
		t.Fatal(err)
	}
	_, calls := m.did()
	same(t, "an install after one that broke off", []string{"daemon-reload", "enable --now gpupool.service"}, calls)
}
