package work

import (
	"path"
	"slices"
	"strings"
)

// Container says in what a task runs, where that is not just a process.
type Container struct {
	Image   string   `json:"image,omitempty"` // "" = as the server decides: its default image, or a process
	Volumes []Volume `json:"volumes,omitempty"`
	Network string   `json:"network,omitempty"` // none, host or bridge; "" = as the server decides
}

// Volume is a folder or file of the host that a container sees.
type Volume struct {
	Source   string `json:"source"` // absolute path on the host
	Target   string `json:"target"` // absolute path in the container
	ReadOnly bool   `json:"read_only,omitempty"`
}

// String is the volume as in --volume.
func (v Volume) String() string {
	s := v.Source
	if v.Target != v.Source {
		s += ":" + v.Target
	}
	if v.ReadOnly {
		s += ":ro"
	}
	return s
}

// ParseVolume reads SOURCE[:TARGET][:ro].
func ParseVolume(text string) (Volume, error) {
	parts := strings.Split(text, ":")
	var v Volume
	if last := len(parts) - 1; last > 0 && (parts[last] == "ro" || parts[last] == "rw") {
		v.ReadOnly, parts = parts[last] == "ro", parts[:last]
	}
	if len(parts) > 2 {
		return v, Errorf(CodeInvalid, "volume %q is not understood: expected SOURCE, SOURCE:TARGET or SOURCE:TARGET:ro", text)
	}
	v.Source, v.Target = parts[0], parts[len(parts)-1]
	return v, v.validate()
}

// MaxVolumes of one task.
const MaxVolumes = 64

// Networks that a task may ask for.
func Networks() []string { return []string{"none", "host", "bridge"} }

// Validate checks what can be checked without the server's settings.
func (c Container) Validate() error {
	switch {
	case strings.ContainsFunc(c.Image, func(r rune) bool { return r <= ' ' || r == 0x7f }) || strings.HasPrefix(c.Image, "-") || len(c.Image) > 512:
		return Errorf(CodeInvalid, "image %q is not a reference: expected one such as docker.io/library/python:3.12", c.Image)
	case c.Network != "" && !slices.Contains(Networks(), c.Network):
		return Errorf(CodeInvalid, "network %q is not known: use one of %s", c.Network, strings.Join(Networks(), ", "))
	case len(c.Volumes) > MaxVolumes:
		return Errorf(CodeInvalid, "a task may have at most %d volumes, this names %d", MaxVolumes, len(c.Volumes))
	}
	seen := map[string]bool{}
	for _, v := range c.Volumes {
		if err := v.validate(); err != nil {
			return err
		}
		if seen[v.Target] {
			return Errorf(CodeInvalid, "two volumes are to be seen at %s: give each a target of its own", v.Target)
		}
		seen[v.Target] = true
	}
	return nil
}

func (v Volume) validate() error {
	for _, p := range []string{v.Source, v.Target} {
		if !path.IsAbs(p) || path.Clean(p) != p || strings.ContainsRune(p, 0) || strings.Contains(p, ":") {
			return Errorf(CodeInvalid, "volume %q: expected absolute paths without .., doubled slashes or colons, such as /data/set:/data:ro", v.String())
		}
	}
	switch {
	case v.Target == "/":
		return Errorf(CodeInvalid, "volume %q would hide the whole image: give another target", v.String())
	case v.Target == "/dev" || v.Target == "/proc" || v.Target == "/sys" || strings.HasPrefix(v.Target, "/dev/") || strings.HasPrefix(v.Target, "/proc/") || strings.HasPrefix(v.Target, "/sys/"):
		return Errorf(CodeInvalid, "volume %q: %s belongs to the container itself: give another target", v.String(), v.Target)
	}
	return nil
}
