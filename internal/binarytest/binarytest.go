// Package binarytest builds the real gpupool for tests that start it, once for each test
// binary however many tests ask.
//
// A build takes as long as go build does; nothing grows with the cluster.
package binarytest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// built is the folder with the binary; tests of one package share it.
var built struct {
	sync.Once
	dir string
	err error
}

// Main is for TestMain: it runs the tests, removes what was built and ends the process.
func Main(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir) //nolint:errcheck // a temporary folder
	}
	os.Exit(code)
}

// Path builds gpupool, the first time, and returns its path. Its test binary calls Main.
func Path(t testing.TB) string {
	t.Helper()
	built.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "gpupool-binary-"); built.err != nil { //nolint:usetesting // it outlives the test that comes first
			return
		}
		out, err := exec.CommandContext(context.Background(), "go", "build", "-o", filepath.Join(built.dir, "gpupool"), "github.com/gpupool/gpupool/cmd/gpupool").CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "gpupool")
}
