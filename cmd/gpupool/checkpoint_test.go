//go:build linux && cgo

package main

import (
	"bytes"
	"log/slog"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpupool/gpupool/internal/config"
)

// TestCheckpointWith: which command moves GPU memory when a task is parked, with the real binary and the fake driver
// library (testdata/cuda).
func TestCheckpointWith(t *testing.T) {
	exe, lib := binary(t), t.TempDir()
	if said, err := exec.Command("../../testdata/cuda/build.sh", lib).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	t.Setenv("FAKE_CUDA", t.TempDir())
	own := []string{exe, checkpointCommand}
	for name, c := range map[string]struct {
		lib  string
		set  func(*config.Config)
		want []string
		said string
	}{
		"the driver can":        {lib: lib, want: own, said: "serves CUDA 13.0"},
		"an old driver":         {lib: filepath.Join(lib, "old"), said: "takes driver 570 or later"},
		"no driver":             {lib: t.TempDir(), said: "libcuda.so.1"},
		"fake GPUs":             {lib: lib, set: func(c *config.Config) { c.Server.Fake = "1xH100-80GB" }},
		"another is configured": {lib: lib, set: func(c *config.Config) { c.Elastic.Checkpoint = []string{"cuda-checkpoint"} }, want: []string{"cuda-checkpoint"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("LD_LIBRARY_PATH", c.lib)
			var conf config.Config
			if c.set != nil {
				c.set(&conf)
			}
			var log bytes.Buffer
			got := checkpointWith(t.Context(), exe, conf, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
			if !slices.Equal(got, c.want) || !strings.Contains(log.String(), c.said) || c.said == "" && log.Len() > 0 {
				t.Errorf("got %q and %q, want %q and %q", got, log.String(), c.want, c.said)
			}
		})
	}
}
