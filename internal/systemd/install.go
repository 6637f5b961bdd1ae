package systemd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	// Name is the unit's.
	Name = "gpupool.service"
	// UnitFile is where the unit is installed.
	UnitFile = "/etc/systemd/system/" + Name
)

// ErrAbsent is what there is to say on a machine that systemd does not run.
var ErrAbsent = errors.New("systemd does not run this machine: nothing was installed")

// Installer puts the unit into a machine and takes it out again. Every step says what it
// does, and does nothing where nothing is to do.
type Installer struct {
	Root   string // of the machine's files; empty: /
	Out    io.Writer
	DryRun bool // only say it

	// Systemctl runs systemctl and returns what it wrote.
	Systemctl func(ctx context.Context, args ...string) (string, error)
}

// Systemctl runs the real one.
func Systemctl(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput()
	said := strings.TrimSpace(string(out))
	if err != nil && said != "" {
		return said, fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, said)
	}
	if err != nil {
		return said, fmt.Errorf("systemctl %s: %w", strings.Join(args, " "), err)
	}
	return said, nil
}

func (i Installer) path(p string) string { return filepath.Join(i.Root, p) }

// Booted tells whether systemd runs this machine, as sd_booted(3) does.
func (i Installer) Booted() bool {
	info, err := os.Stat(i.path("/run/systemd/system"))
	return err == nil && info.IsDir()
}

func (i Installer) say(format string, args ...any) {
	if i.DryRun {
		format = "would: " + format
	}
	fmt.Fprintf(i.Out, format+"\n", args...)
}

// Install writes the unit, the settings if there are none and the data folder, and starts
// the service. A service that runs already is restarted only if its unit changed; tasks go on.
func (i Installer) Install(ctx context.Context, u Unit, settings string) error {
	text, err := u.Text()
	if err != nil {
		return err
	}
	if !i.Booted() && !i.DryRun {
		return ErrAbsent
	}
	if err := i.dataFolder(u); err != nil {
		return err
	}
	if err := i.settings(u, settings); err != nil {
		return err
	}
	changed, err := i.write(UnitFile, text, 0o644)
	if err != nil {
		return err
	}
	was := i.state(ctx, "is-active")
	if changed = changed || i.stale(ctx); changed {
		if err := i.systemctl(ctx, "daemon-reload"); err != nil {
			return err
		}
	}
	if err := i.systemctl(ctx, "enable", "--now", Name); err != nil {
		return err
	}
	if changed && was == "active" {
		return i.systemctl(ctx, "restart", Name)
	}
	return nil
}

// dataFolder makes the folder, and gives it to who runs the service.
func (i Installer) dataFolder(u Unit) error {
	dir := i.path(u.Data)
	if _, err := os.Stat(dir); err == nil {
		i.say("keep %s", u.Data)
		return nil
	}
	owner := "root"
	if u.User != "" {
		owner = u.User
	}
	uid, gid, err := ids(owner)
	if err != nil {
		return err
	}
	i.say("make %s, for %s only", u.Data, owner)
	if i.DryRun {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("the data folder cannot be made: %w; install as root: sudo gpupool service install", err)
	}
	return os.Chown(dir, uid, gid)
}

func ids(name string) (uid, gid int, err error) {
	u, err := user.Lookup(name)
	if err != nil {
		u, err = user.LookupId(name)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("there is no user %s: make one (sudo useradd --system %s), or leave --user out", name, name)
	}
	if uid, err = strconv.Atoi(u.Uid); err == nil {
		gid, err = strconv.Atoi(u.Gid)
	}
	return uid, gid, err
}

// settings writes the defaults where there is no file yet.
func (i Installer) settings(u Unit, text string) error {
	if _, err := os.Stat(i.path(u.Config)); err == nil {
		i.say("keep %s", u.Config)
		return nil
	}
	_, err := i.write(u.Config, text, 0o644)
	return err
}

// write puts a file in place whole, unless it says the same already.
func (i Installer) write(path, text string, mode fs.FileMode) (changed bool, err error) {
	at := i.path(path)
	was, err := os.ReadFile(at)
	switch {
	case err == nil && string(was) == text:
		i.say("keep %s", path)
		return false, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return false, err
	}
	i.say("write %s", path)
	if i.DryRun {
		return true, nil
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil { //nolint:gosec // as all of /etc
		return false, err
	}
	tmp := at + ".new"
	if err := os.WriteFile(tmp, []byte(text), mode); err != nil {
		return false, fmt.Errorf("%w: install as root: sudo gpupool service install", err)
	}
	return true, os.Rename(tmp, at)
}

func (i Installer) systemctl(ctx context.Context, args ...string) error {
	i.say("systemctl %s", strings.Join(args, " "))
	if i.DryRun {
		return nil
	}
	_, err := i.Systemctl(ctx, args...)
	return err
}

// state asks systemctl for one word, such as active; it is "unknown" where nobody says.
func (i Installer) state(ctx context.Context, ask string) string {
	if i.Systemctl == nil || !i.Booted() {
		return "unknown"
	}
	said, _ := i.Systemctl(ctx, ask, Name) // it fails for every state but the best, and says which
	word, _, _ := strings.Cut(said, "\n")
	if word == "" {
		return "unknown"
	}
	return word
}

// stale tells whether systemd has not read the unit that is there, as after an install that
// broke off. Nothing is reloaded without need: it takes GPUs away from containers that got
// theirs by NVIDIA's old hook.
func (i Installer) stale(ctx context.Context) bool {
	if i.DryRun {
		return false
	}
	said, err := i.Systemctl(ctx, "show", "--property=NeedDaemonReload", "--value", Name)
	return err == nil && said == "yes"
}

// Uninstall stops the service and removes its unit. Settings, journal and tokens stay.
func (i Installer) Uninstall(ctx context.Context) error {
	if _, err := os.Stat(i.path(UnitFile)); errors.Is(err, fs.ErrNotExist) {
		i.say("there is no %s", UnitFile)
		return nil
	}
	if i.Booted() {
		if err := i.systemctl(ctx, "disable", "--now", Name); err != nil {
			return err
		}
	}
	i.say("remove %s", UnitFile)
	if i.DryRun {
		return nil
	}
	if err := os.Remove(i.path(UnitFile)); err != nil {
		return fmt.Errorf("%w: uninstall as root: sudo gpupool service uninstall", err)
	}
	if !i.Booted() {
		return nil
	}
	return i.systemctl(ctx, "daemon-reload")
}

// Status is how the service is.
type Status struct {
	Systemd   bool   `json:"systemd"`   // it runs this machine
	Installed bool   `json:"installed"` // the unit's file is there
	Current   bool   `json:"current"`   // and it is the one that Install would write
	Enabled   string `json:"enabled"`   // systemd's word, such as enabled
	Active    string `json:"active"`    // systemd's word, such as active
	Says      string `json:"says"`      // what the server told systemd
}

// Status asks without changing anything.
func (i Installer) Status(ctx context.Context, u Unit) (Status, error) {
	text, err := u.Text()
	if err != nil {
		return Status{}, err
	}
	s := Status{Systemd: i.Booted(), Enabled: i.state(ctx, "is-enabled"), Active: i.state(ctx, "is-active")}
	file, err := os.ReadFile(i.path(UnitFile))
	if err == nil {
		s.Installed, s.Current = true, string(file) == text
	} else if !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	if s.Systemd && i.Systemctl != nil {
		said, _ := i.Systemctl(ctx, "show", "--property=StatusText", "--value", Name)
		s.Says = said
	}
	return s, nil
}
