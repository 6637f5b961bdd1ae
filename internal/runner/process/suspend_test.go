package process

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/runner"
)

// checkpointer stands in for cuda-checkpoint: it keeps the state of each process in a
// file, knows only those that are named sleep, and fails at what is named in a file.
const checkpointer = `#!/bin/sh
dir=$(dirname "$0")
echo "$@" >> "$dir/calls"
case "$1" in
--get-state)
	case "$(cat /proc/$3/comm)" in sleep) ;; *) echo "no CUDA in $3"; exit 1 ;; esac
	cat "$dir/state" 2>/dev/null || echo running ;;
--action)
	if [ "$2" = "$(cat "$dir/fails" 2>/dev/null)" ]; then echo "told to fail"; exit 1; fi
	case "$2" in lock) echo locked ;; checkpoint) echo checkpointed ;; restore) echo locked ;; unlock) echo running ;; esac > "$dir/state" ;;
esac
`

// TestCheckpoint: what a suspend and a resume ask of the command that moves GPU memory,
// and that a failure leaves the member running as before.
func TestCheckpoint(t *testing.T) {
	dir := t.TempDir()
	tool := filepath.Join(dir, "checkpoint")
	if err := os.WriteFile(tool, []byte(checkpointer), 0o700); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(t.TempDir(), Options{ShimCommand: []string{exe, "__shim"}, Checkpoint: []string{tool}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	id := runner.ID{Task: 1, Epoch: 1}
	if err := r.Start(ctx, runner.Spec{ID: id, Command: []string{"sleep", "1000"}, Devices: []string{"GPU-0"}, Members: 1}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		r.Stop(ctx, id, 0, "") //nolint:errcheck // the test is over
		r.Wait(ctx, id)        //nolint:errcheck // the test is over
	}()
	calls := func() []string {
		b, _ := os.ReadFile(filepath.Join(dir, "calls"))
		os.Remove(filepath.Join(dir, "calls")) //nolint:errcheck // read
		var out []string
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); f[0] == "--action" {
				out = append(out, strings.Join(slices.Concat(f[1:2], f[4:]), " "))
			}
		}
		return out
	}
	is := func(want ...string) {
		t.Helper()
		if got := calls(); !slices.Equal(got, want) {
			t.Errorf("the command was called for %q, want %q", got, want)
		}
	}
	for { // until the program is there: the shim's child is first another
		if _, shim, err := r.runs(id); err == nil && len(descendants(shim)) == 1 {
			if state, err := r.stateOf(ctx, descendants(shim)[0]); err == nil && state == "running" {
				break
			}
		}
		time.Sleep(time.Millisecond)
	}
	calls()
	if err := os.WriteFile(filepath.Join(dir, "fails"), []byte("checkpoint"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Suspend(ctx, id); err == nil || !strings.Contains(err.Error(), "told to fail") {
		t.Fatalf("a checkpoint that fails: got %v", err)
	}
	is("lock", "checkpoint", "unlock")
	_, shim, err := r.runs(id)
	if err != nil {
		t.Fatal(err)
	}
	if s := stat(descendants(shim)[0]); s[0] == "T" {
		t.Error("the member is stopped although its suspend failed")
	}
	os.Remove(filepath.Join(dir, "fails")) //nolint:errcheck // it is there
	if err := r.Suspend(ctx, id); err != nil {
		t.Fatal(err)
	}
	is("lock", "checkpoint")
	if s := stat(descendants(shim)[0]); s[0] != "T" {
		t.Errorf("the member's process is in state %s, want stopped", s[0])
	}
	if err := r.Resume(ctx, id, []string{"GPU-7"}); err != nil {
		t.Fatal(err)
	}
	is("restore --device-map GPU-0=GPU-7", "unlock")
}
