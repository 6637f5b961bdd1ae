package fake

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/work"
)

func TestLoadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "load")
	var said []string
	load := LoadFile(path, func(err error) { said = append(said, err.Error()) })
	part := func(task work.TaskID) driver.Part { return driver.Part{Owner: work.Owner{Task: task, Epoch: 1}} }
	if load(part(1)) != LoadOf(part(1)) {
		t.Error("without a file a task has another load than its own")
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# idle\n1 0 0.25\n* 0.5\n1 0 0.75 # the last counts\n")
	if got := load(part(1)); got != (Load{0, 0.75}) {
		t.Errorf("task 1 has load %+v", got)
	}
	if got := load(part(2)); got != (Load{0.5, 0.5}) {
		t.Errorf("task 2 has load %+v", got)
	}
	for _, bad := range []string{"1", "1 2", "x 0.5", "1 0 0 0", "1 NaN"} {
		said = nil
		write(bad)
		if got := load(part(1)); got != (Load{0, 0.75}) || len(said) != 1 || !strings.Contains(said[0], "line 1: expected") {
			t.Errorf("%q: load %+v, said %q; want the load of before, and one complaint", bad, got, said)
		}
	}
}

func FuzzLoadFile(f *testing.F) {
	f.Add("1 0 0.25\n* 0.5 # all\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseLoad(strings.NewReader(text))
		for id, l := range s.tasks {
			if err == nil && !(l.Compute >= 0 && l.Compute <= 1 && l.Memory >= 0 && l.Memory <= 1) {
				t.Errorf("task %d has load %+v", id, l)
			}
		}
	})
}
