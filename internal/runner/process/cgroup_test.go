package process

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gpupool/gpupool/internal/runner"
)

// The kernel's side of control groups version 2 is not here: this checks what is
// written where, on plain folders.
func TestCgroupFiles(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "gpupool")
	if err := prepareCgroup(filepath.Dir(parent), parent); err != nil {
		t.Fatal(err)
	}
	read := func(path ...string) string {
		b, err := os.ReadFile(filepath.Join(append([]string{parent}, path...)...))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if got := read("cgroup.subtree_control"); got != "+cpu +memory" {
		t.Errorf("children may be limited by %q", got)
	}
	id := runner.ID{Task: 3, Epoch: 2, Member: 1}
	l := launch{Cgroup: memberCgroup(parent, id), Spec: runner.Spec{CPUMilli: 1500, MemoryMiB: 512}}
	cg, err := makeCgroup(l)
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"cpu.max": "150000 100000", "memory.max": "536870912", "memory.oom.group": "1"} {
		if got := read(id.String(), file); got != want {
			t.Errorf("%s holds %q, want %q", file, got, want)
		}
	}
	if cg.fd() < 0 {
		t.Error("the group cannot be entered")
	}
	for text, want := range map[string]bool{"": false, "oom 0\noom_kill 0\n": false, "low 0\noom 1\noom_kill 2\n": true} {
		if err := os.WriteFile(filepath.Join(l.Cgroup, "memory.events"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := cg.oom(); got != want {
			t.Errorf("after events %q out of memory is %v", text, got)
		}
	}
	cg.kill()
	if got := read(id.String(), "cgroup.kill"); got != "1" {
		t.Errorf("cgroup.kill holds %q", got)
	}
}

func TestNoCgroup(t *testing.T) {
	cg, err := makeCgroup(launch{Spec: runner.Spec{CPUMilli: 1000}})
	if err != nil || cg != nil {
		t.Fatalf("got %v, %v; want no group", cg, err)
	}
	cg.kill()
	cg.end()
	if cg.oom() || cg.fd() != -1 {
		t.Error("no group killed something")
	}
}
