// Package podmantest gives tests a real podman of their own: its containers, images and
// settings lie in a temporary folder, and images are made there without a registry. One
// takes a second or two to make, and what its containers cost.
package podmantest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Image has busybox: a shell and the usual tools.
const Image = "gpupool.test/base:1"

// Podman is one with storage of its own.
type Podman struct {
	Command []string // what to give as podman.Options.Command
	Dir     string   // where everything of it lies
}

// tools of Image.
const tools = "sh sleep head env ls setsid mv rm pwd cat echo kill id grep mkdir mknod dd awk true"

// settings are what makes podman run in a container such as those that tests run in: one
// that may not raise limits, and has no systemd.
const settings = `[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "%s"
`

// New makes one, or skips the test and says why. The test must not leave containers.
func New(t testing.TB) *Podman {
	t.Helper()
	for _, name := range []string{"podman", "catatonit", "busybox"} {
		if _, err := exec.LookPath(name); err != nil || os.Geteuid() != 0 {
			if os.Getenv("CI") != "" && os.Geteuid() == 0 {
				t.Fatalf("%s is not installed: scripts/podman.sh does that", name)
			}
			t.Skipf("needs root, and podman with %s (scripts/podman.sh)", name)
		}
	}
	dir, err := os.MkdirTemp("", "podman-") //nolint:usetesting // removed by close, which knows what is mounted there
	if err != nil {
		t.Fatal(err)
	}
	p := &Podman{Dir: dir}
	t.Cleanup(p.close)
	conf := filepath.Join(dir, "containers.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, settings, runtime()), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Command = []string{"env", "CONTAINERS_CONF=" + conf, "podman", "--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(dir, "run")}
	p.base(t)
	return p
}

// runtime is crun, except where control groups of version 2 are mounted beside those of
// version 1 with a controller of their own: crun 1.8 runs nothing there.
func runtime() string {
	if b, err := os.ReadFile("/sys/fs/cgroup/unified/cgroup.controllers"); err == nil && len(bytes.TrimSpace(b)) > 0 {
		return "runc"
	}
	return "crun"
}

// Run runs podman and returns what it said.
func (p *Podman) Run(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command(p.Command[0], append(p.Command[1:len(p.Command):len(p.Command)], args...)...).CombinedOutput() //nolint:noctx // a test's own
	if err != nil {
		t.Fatalf("podman %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// Import makes an image of a folder.
func (p *Podman) Import(t testing.TB, dir, image string) {
	t.Helper()
	tar := filepath.Join(p.Dir, "image.tar")
	if out, err := exec.Command("tar", "-C", dir, "-cf", tar, ".").CombinedOutput(); err != nil { //nolint:noctx // a test's own
		t.Fatalf("tar: %v: %s", err, out)
	}
	p.Run(t, "import", "--quiet", tar, image)
}

func (p *Podman) base(t testing.TB) {
	t.Helper()
	root := filepath.Join(p.Dir, "base")
	for _, d := range []string{"bin", "tmp", "etc", "usr"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil { //nolint:gosec // of an image
			t.Fatal(err)
		}
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(busybox)
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "bin", "busybox"), b, 0o755) //nolint:gosec // a program
	}
	if err == nil {
		err = os.Symlink("../bin", filepath.Join(root, "usr", "bin"))
	}
	for name := range strings.FieldsSeq(tools) {
		if err == nil {
			err = os.Symlink("busybox", filepath.Join(root, "bin", name))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	p.Import(t, root, Image)
}

// close removes all of it.
func (p *Podman) close() {
	args := func(more ...string) *exec.Cmd {
		return exec.Command(p.Command[0], append(p.Command[1:len(p.Command):len(p.Command)], more...)...) //nolint:noctx // a test's own
	}
	args("rm", "--all", "--force", "--time", "0").Run()                              //nolint:errcheck // there should be none
	args("rmi", "--all", "--force").Run()                                            //nolint:errcheck // the folder goes too
	exec.Command("umount", "--quiet", filepath.Join(p.Dir, "root", "overlay")).Run() //nolint:errcheck,noctx // podman keeps it mounted upon itself
	os.RemoveAll(p.Dir)                                                              //nolint:errcheck // in a temporary folder
}
