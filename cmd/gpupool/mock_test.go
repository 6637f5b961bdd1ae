package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpupool/gpupool/internal/driver/nvidia"
)

// mockVariables lead a program to the mock NVML and to what it finds of its machine.
var mockVariables = []string{"LD_LIBRARY_PATH", "MOCK_NVML_STATE", "GPUPOOL_NVIDIA_ROOT"}

// mockGPUs makes a machine of NVIDIA GPUs that are not there (testdata/nvml) from lines of
// the mock's config. It returns the folder with its files and the variables that lead to
// it, and skips the test where the mock cannot be: without a C compiler, or Linux.
func mockGPUs(t testing.TB, config ...string) (dir string, env []string) {
	t.Helper()
	if !nvidia.Built {
		t.Skip("this needs cgo on Linux: the mock NVML is in C")
	}
	lib, err := filepath.Abs("../../bin/mock")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "../../testdata/nvml/build.sh", lib).CombinedOutput(); err != nil {
		t.Fatalf("the mock NVML cannot be built: %v\n%s", err, out)
	}
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config"), []byte(strings.Join(config, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, []string{"LD_LIBRARY_PATH=" + lib, "MOCK_NVML_STATE=" + filepath.Join(dir, "state"), "GPUPOOL_NVIDIA_ROOT=" + filepath.Join(lib, "root")}
}
