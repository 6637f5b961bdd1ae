package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/runner/podman/podmantest"
	"github.com/gpupool/gpupool/internal/runner/process"
)

// TestCrashPodman is TestCrash with every task in a container: a shorter history, as each
// takes a second of the processor.
func TestCrashPodman(t *testing.T) {
	crashes(t, inContainers(t, crashWay{flags: []string{"--fake", "2x8xH100-80GB"}}))
}

// TestCrashPodmanOverMock is the same over GPUs of a mock NVML: real carving, real containers,
// and only the hardware is not.
func TestCrashPodmanOverMock(t *testing.T) {
	w := inContainers(t, overMock(t))
	data := crashes(t, w)
	nothingCarved(t, w, data)
}

// inContainers makes the tasks of a crash test run in containers, whatever its driver.
func inContainers(t *testing.T, w crashWay) crashWay {
	t.Helper()
	w.kills, w.tasks = 15, 60
	if testing.Short() {
		w.kills, w.tasks = 5, 20
	}
	pod := podmantest.New(t)
	file := filepath.Join(t.TempDir(), "gpupool.yaml")
	text := fmt.Sprintf("server: {runner: podman}\npodman: {command: [%s], pull: never, volumes: [%q]}\n", strings.Join(pod.Command, ", "), os.TempDir())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w.image, w.pause = podmantest.Image, 2*time.Second
	w.flags = append([]string{"--config", file}, w.flags...)
	w.left = func(data string) []string {
		left := strings.Fields(pod.Run(t, "ps", "--all", "--quiet"))
		specs, _ := filepath.Glob("/var/run/cdi/gpupool-*-" + process.Instance(filepath.Join(data, "run")) + ".json")
		return append(left, specs...)
	}
	return w
}
