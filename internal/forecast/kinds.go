package forecast

import "github.com/gpupool/gpupool/internal/work"

// key names a kind of task: a group that is likely to run alike. What its basis does
// not look at is zero.
type key struct {
	Basis  Basis  `json:"basis"`
	Tenant string `json:"tenant,omitempty"`
	Name   string `json:"name,omitempty"` // a pattern
	Model  string `json:"model,omitempty"`
	Shape  shape  `json:"shape,omitzero"`
}

// shape is what of a request tells tasks apart. It can be compared.
type shape struct {
	GPUs    int    `json:"gpus,omitempty"`
	Profile string `json:"profile,omitempty"`
	Milli   int    `json:"milli,omitempty"` // to the hundredth of a GPU
	MiB     int64  `json:"gpu_memory_mib,omitempty"`
	Members int    `json:"members,omitempty"`   // of gangs
	CPU     int64  `json:"cpu_milli,omitempty"` // of tasks without a GPU
}

func shapeOf(r *work.Request) shape {
	s := shape{GPUs: r.GPUs, Profile: clean(r.Profile), Milli: r.Milli, MiB: r.GPUMemMiB}
	if r.Milli > 0 {
		s.Milli = (min(r.Milli, 999) + 9) / 10 * 10
	}
	if r.Count() > 1 {
		s.Members = r.Count()
	}
	if r.GPUs == 0 && !r.IsPart() {
		s.CPU = r.CPUMilli
	}
	return s
}

// rungs is the length of the ladder.
const rungs = 6

// kinds is the kinds that a task belongs to: all a key needs.
type kinds struct {
	tenant, name, model string
	shape               shape
}

func kindsOf(j *Job) kinds {
	return kinds{clean(j.Tenant), pattern(j.Name), clean(j.Model), shapeOf(&j.Request)}
}

// rung is the i-th kind, from the most special. Where a task does not have what tells
// one from the next, they are the same.
func (k *kinds) rung(i int) key {
	switch {
	case i == 0 && k.model != "":
		return key{OwnModel, k.tenant, k.name, k.model, k.shape}
	case i <= 1 && k.name != "":
		return key{OwnTask, k.tenant, k.name, "", k.shape}
	case i <= 2:
		return key{Basis: OwnRequest, Tenant: k.tenant, Shape: k.shape}
	case i == 3:
		return key{Basis: OwnTenant, Tenant: k.tenant}
	case i == 4:
		return key{Basis: AnyoneRequest, Shape: k.shape}
	}
	return key{Basis: Anyone}
}

// ratios is the kind under which the tenant's estimates are kept.
func (k *kinds) ratios() key { return key{Basis: Estimate, Tenant: k.tenant} }
