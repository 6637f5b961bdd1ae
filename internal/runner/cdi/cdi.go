// Package cdi writes and reads specs of the Container Device Interface: files that say
// which device nodes, mounts, variables and hooks a container gets that is given a device
// by name. It knows as much of them as gpupool needs, and costs what one file costs.
package cdi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// Version of the specs that are written: the newest that podman 4 reads.
const Version = "0.5.0"

// Spec is one file.
type Spec struct {
	Version string   `json:"cdiVersion"`
	Kind    string   `json:"kind"` // vendor and class, "gpupool.dev/slice"
	Devices []Device `json:"devices"`
	Edits   Edits    `json:"containerEdits,omitzero"` // for every device of the file
}

// Device is one device: a name, and what a container gets that has it.
type Device struct {
	Name  string `json:"name"`
	Edits Edits  `json:"containerEdits"`
}

// Edits are changes to a container.
type Edits struct {
	Env    []string `json:"env,omitempty"` // KEY=VALUE
	Nodes  []Node   `json:"deviceNodes,omitempty"`
	Mounts []Mount  `json:"mounts,omitempty"`
	Hooks  []Hook   `json:"hooks,omitempty"`
}

// Node is a device node.
type Node struct {
	Path string `json:"path"`               // in the container
	Host string `json:"hostPath,omitempty"` // on the host; "" = the same
}

// Mount is a path of the host in the container.
type Mount struct {
	Host    string   `json:"hostPath"`
	Path    string   `json:"containerPath"`
	Options []string `json:"options,omitempty"`
}

// Hook is a program that the container runtime runs on the host.
type Hook struct {
	Name    string   `json:"hookName"`
	Path    string   `json:"path"`
	Args    []string `json:"args,omitempty"`
	Env     []string `json:"env,omitempty"`
	Timeout *int     `json:"timeout,omitempty"` // seconds
}

// Read reads a file, JSON or YAML. It is fs.ErrNotExist when there is none.
func Read(path string) (Spec, error) {
	var s Spec
	b, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	if err := yaml.UnmarshalWithOptions(b, &s, yaml.UseJSONUnmarshaler()); err != nil {
		return s, fmt.Errorf("the device spec %s is not readable: %w", path, err)
	}
	return s, nil
}

// Toolkit reads what NVIDIA's container toolkit wrote for its own devices and returns
// what is for all of them, without device nodes: libraries, programs and hooks, and no
// GPU. Without the file there is nothing.
func Toolkit(path string) (Edits, error) {
	s, err := Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Edits{}, nil
	}
	s.Edits.Nodes = nil
	// It would hide from programs what gpupool tells them.
	s.Edits.Env = slices.DeleteFunc(s.Edits.Env, func(kv string) bool { return strings.HasPrefix(kv, "NVIDIA_VISIBLE_DEVICES=") })
	return s.Edits, err
}

// Write puts a file in place, whole or not at all, readable by this user only: a variable
// may be a secret. Whoever reads specs passes over other names than *.json and *.yaml.
func (s Spec) Write(path string) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as container engines make it
		return fmt.Errorf("the folder of device specs cannot be made: %w", err)
	}
	f, err := os.CreateTemp(dir, ".gpupool-*") // mode 0600
	if err != nil {
		return fmt.Errorf("the device spec of a task cannot be written: %w", err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // renamed already when all went well
	_, err = f.Write(b)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}
