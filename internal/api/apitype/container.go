package apitype

import "github.com/gpupool/gpupool/internal/work"

// Volume is a folder or file of the host in a container.
type Volume struct {
	Source   string `json:"source" maxLength:"4096" doc:"Absolute path on the host" example:"/data/sets"`
	Target   string `json:"target,omitempty" maxLength:"4096" doc:"Absolute path in the container; the same as on the host if left out" example:"/data"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// container converts what a task says of its container into core words.
func (s TaskSpec) container() (work.Container, error) {
	out := work.Container{Image: s.Image, Network: s.Network}
	for _, v := range s.Volumes {
		if v.Target == "" {
			v.Target = v.Source
		}
		out.Volumes = append(out.Volumes, work.Volume(v))
	}
	return out, out.Validate()
}

// VolumesOf is a task's volumes as they go over the wire.
func VolumesOf(volumes []work.Volume) (out []Volume) {
	for _, v := range volumes {
		out = append(out, Volume(v))
	}
	return out
}
