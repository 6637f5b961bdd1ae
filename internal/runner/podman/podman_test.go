package podman_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gpupool/gpupool/internal/runner"
	"github.com/gpupool/gpupool/internal/runner/podman"
	"github.com/gpupool/gpupool/internal/runner/podman/podmantest"
	"github.com/gpupool/gpupool/internal/runner/process"
	"github.com/gpupool/gpupool/internal/runner/runnertest"
	"github.com/gpupool/gpupool/internal/secrets"
	"github.com/gpupool/gpupool/internal/work"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "__shim" {
		os.Exit(process.ShimMain(os.Args[2:]))
	}
	if dir := os.Getenv(serverEnv); dir != "" {
		server(dir)
	}
	os.Exit(m.Run())
}

// serverEnv makes the test binary a server that starts one member and waits to be killed.
const serverEnv = "GPUPOOL_TEST_SERVER"

// open makes a runner over a folder.
func open(dir string, o podman.Options) (*podman.Runner, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p, err := process.New(dir, process.Options{ShimCommand: []string{exe, "__shim"}, LogMaxMiB: 1, LogFiles: 2, Secrets: secrets.Store{Dir: dir + "-secrets"}})
	if err != nil {
		return nil, err
	}
	return podman.New(p, dir, o), nil
}

// inside runs every member in a container that sees the tests' temporary folder.
type inside struct {
	*podman.Runner
	scratch string
}

func (r inside) Start(ctx context.Context, s runner.Spec) error {
	s.Volumes = append(s.Volumes, work.Volume{Source: r.scratch, Target: r.scratch})
	return r.Runner.Start(ctx, s)
}

// HostPID implements runnertest.HostPIDs.
func (r inside) HostPID(id runner.ID, pid int) int {
	b, err := os.ReadFile(r.PIDFile(id))
	if err != nil {
		return 0
	}
	space, err := os.Readlink("/proc/" + strings.TrimSpace(string(b)) + "/ns/pid")
	if err != nil {
		return 0
	}
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		if at, err := os.Readlink(p + "/ns/pid"); err != nil || at != space {
			continue
		}
		status, _ := os.ReadFile(p + "/status")
		for line := range strings.Lines(string(status)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "NSpid:" && f[len(f)-1] == strconv.Itoa(pid) {
				n, _ := strconv.Atoi(filepath.Base(p))
				return n
			}
		}
	}
	return 0
}

func TestRunner(t *testing.T) {
	scratch := outside(t)
	pod := podmantest.New(t)
	t.Run("suite", func(t *testing.T) { // ends when its parallel tests have
		runnertest.Run(t, func(t *testing.T) func() runner.Runner {
			dir := t.TempDir()
			return func() runner.Runner {
				r, err := open(dir, podman.Options{Command: pod.Command, Image: podmantest.Image, Volumes: []string{scratch}, Pull: "never"})
				if err != nil {
					t.Fatal(err)
				}
				return inside{r, scratch}
			}
		})
	})
	if left := pod.Run(t, "ps", "--all", "--quiet"); left != "" {
		t.Errorf("containers are left: %s", left)
	}
}

// outside makes the folder that temporary ones are made in one that a container's own /tmp
// does not hide.
func outside(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "gpupool-") //nolint:usetesting // not below /tmp
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) }) //nolint:errcheck // in a temporary folder
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", dir)
	return dir
}

func server(dir string) {
	r, err := open(dir, podman.Options{Command: strings.Fields(os.Getenv("GPUPOOL_TEST_PODMAN"))})
	if err == nil {
		err = r.Start(context.Background(), runner.Spec{ID: runner.ID{Task: 1, Epoch: 1}, Container: work.Container{Image: podmantest.Image},
			Command: []string{"sh", "-c", "trap 'exit 8' TERM; echo up; while :; do sleep 0.05; done"}})
	}
	fmt.Println("started", err)
	select {}
}
