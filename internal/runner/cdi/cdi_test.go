package cdi

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// generated is the shape of what nvidia-ctk cdi generate writes, shortened.
const generated = `---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
- name: all
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
containerEdits:
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  - NVIDIA_CTK_LIBCUDA_DIR=/usr/lib/x86_64-linux-gnu
  deviceNodes:
  - path: /dev/nvidiactl
  hooks:
  - hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
    args: [nvidia-cdi-hook, update-ldcache, --folder, /usr/lib/x86_64-linux-gnu]
  mounts:
  - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.105.08
    containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.105.08
    options: [ro, nosuid, nodev, rbind, rprivate]
`

func file(t testing.TB, text string) string {
	path := filepath.Join(t.TempDir(), "nvidia.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestToolkit: libraries and hooks are taken over, and no node nor what would hide the slice.
func TestToolkit(t *testing.T) {
	e, err := Toolkit(file(t, generated))
	if err != nil {
		t.Fatal(err)
	}
	if len(e.Nodes) > 0 || len(e.Mounts) != 1 || len(e.Hooks) != 1 || len(e.Hooks[0].Args) != 4 || !reflect.DeepEqual(e.Env, []string{"NVIDIA_CTK_LIBCUDA_DIR=/usr/lib/x86_64-linux-gnu"}) {
		t.Errorf("taken over: %+v", e)
	}
	if e, err := Toolkit(filepath.Join(t.TempDir(), "none")); err != nil || !reflect.DeepEqual(e, Edits{}) {
		t.Errorf("without a file: %+v, %v", e, err)
	}
	if _, err := Toolkit(file(t, "kind: [")); err == nil || !strings.Contains(err.Error(), "not readable") {
		t.Errorf("a damaged file: %v", err)
	}
}

// TestWrite: what is written reads back, for its owner alone, and leaves nothing beside it.
func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cdi", "gpupool-1.json")
	s := Spec{Version: Version, Kind: "gpupool.dev/slice", Devices: []Device{{Name: "1", Edits: Edits{
		Env: []string{"KEY=two\nlines \"quoted\""}, Nodes: []Node{{Path: "/dev/nvidia0"}, {Path: "/dev/nvidiactl", Host: "/tmp/root/dev/nvidiactl"}},
		Mounts: []Mount{{Host: "/run/mps", Path: "/run/mps", Options: []string{"rbind"}}},
	}}}}
	if err := s.Write(path); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(path); err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("read %+v, %v", got, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("the folder holds %v, %v", left, err)
	}
}

// FuzzRead: no file makes the reader panic, and what it reads can be written again.
func FuzzRead(f *testing.F) {
	f.Add(generated)
	f.Add(`{"cdiVersion":"0.5.0","kind":"a/b","devices":[{"name":"x","containerEdits":{"env":["A=B"]}}]}`)
	f.Add("devices: {}\n")
	f.Add("containerEdits: {hooks: [{timeout: 1}]}\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Read(file(t, text))
		if err != nil {
			return
		}
		path := filepath.Join(t.TempDir(), "again.json")
		if err := s.Write(path); err != nil {
			t.Fatal(err)
		}
	})
}
