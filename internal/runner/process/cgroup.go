package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/gpupool/gpupool/internal/runner"
)

// Limits of CPU and memory by control groups, version 2. The machines this was
// built on have version 1 only: what is written where is tested on a folder tree,
// the kernel's side was not run.

const (
	cgroupRoot   = "/sys/fs/cgroup"
	cgroupPeriod = 100_000 // µs, the kernel's default
)

// defaultCgroup makes the group above those of members, or says why there is none.
func defaultCgroup() (path, why string) {
	if runtime.GOOS != "linux" {
		return "", "control groups need Linux"
	}
	b, err := os.ReadFile(filepath.Join(cgroupRoot, "cgroup.controllers"))
	if err != nil {
		return "", "this machine has no control groups of version 2 at " + cgroupRoot
	}
	for _, c := range []string{"cpu", "memory"} {
		if !strings.Contains(" "+strings.TrimSpace(string(b))+" ", " "+c+" ") {
			return "", "the control group controller " + c + " is not available"
		}
	}
	path = filepath.Join(cgroupRoot, "gpupool")
	if err := prepareCgroup(cgroupRoot, path); err != nil {
		return "", err.Error()
	}
	return path, ""
}

// prepareCgroup makes a group whose children can be limited.
func prepareCgroup(parent, path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil { //nolint:gosec // as the kernel makes them
		return err
	}
	for _, p := range []string{parent, path} {
		if err := put(p, "cgroup.subtree_control", "+cpu +memory"); err != nil {
			return err
		}
	}
	return nil
}

func put(group, file, value string) error {
	if err := os.WriteFile(filepath.Join(group, file), []byte(value), 0o644); err != nil { //nolint:gosec // as the kernel makes them
		return fmt.Errorf("control group: %w", err)
	}
	return nil
}

func memberCgroup(parent string, id runner.ID) string { return filepath.Join(parent, id.String()) }

// cgroup is the control group of one member; nil when it has none.
type cgroup struct {
	path string
	dir  *os.File
}

// makeCgroup makes the group with its limits.
func makeCgroup(l launch) (*cgroup, error) {
	if l.Cgroup == "" {
		return nil, nil //nolint:nilnil // no group is a group without effect
	}
	if err := os.MkdirAll(l.Cgroup, 0o755); err != nil { //nolint:gosec // as the kernel makes them
		return nil, err
	}
	if l.Spec.CPUMilli > 0 {
		quota := max(l.Spec.CPUMilli*cgroupPeriod/1000, 1000) // µs of each period; the kernel wants 1 ms at least
		if err := put(l.Cgroup, "cpu.max", fmt.Sprintf("%d %d", quota, cgroupPeriod)); err != nil {
			return nil, err
		}
	}
	if l.Spec.MemoryMiB > 0 {
		if err := put(l.Cgroup, "memory.max", strconv.FormatInt(l.Spec.MemoryMiB<<20, 10)); err != nil {
			return nil, err
		}
		if err := put(l.Cgroup, "memory.oom.group", "1"); err != nil {
			return nil, err
		}
	}
	dir, err := os.Open(l.Cgroup)
	if err != nil {
		return nil, err
	}
	return &cgroup{l.Cgroup, dir}, nil
}

// fd is what clone3 needs to start a process inside; -1 without a group.
func (c *cgroup) fd() int {
	if c == nil {
		return -1
	}
	return int(c.dir.Fd())
}

// kill kills everything inside (Linux 5.14 and later; signals do it elsewhere).
func (c *cgroup) kill() {
	if c != nil {
		put(c.path, "cgroup.kill", "1") //nolint:errcheck // an older kernel; the signals that follow do
	}
}

// oom reports whether the kernel killed for the memory limit.
func (c *cgroup) oom() bool {
	if c == nil {
		return false
	}
	b, err := os.ReadFile(filepath.Join(c.path, "memory.events"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
			return strings.TrimSpace(n) != "0"
		}
	}
	return false
}

// end removes the group once it is empty.
func (c *cgroup) end() {
	if c == nil {
		return
	}
	c.dir.Close() //nolint:errcheck // only held open
	endCgroup(c.path)
}

// endCgroup kills what is in a group and removes it. The kernel lets go of the last
// process a moment after its end.
func endCgroup(path string) {
	put(path, "cgroup.kill", "1") //nolint:errcheck // as above
	for range 100 {
		if err := os.Remove(path); err == nil || errors.Is(err, os.ErrNotExist) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
