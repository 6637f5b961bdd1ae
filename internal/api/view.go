package api

import (
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// view turns the engine's state into what goes out. It copies everything, as it is
// used inside a Read and its results outside.
type view struct {
	*engine.Engine
	use map[useKey]apitype.Use
}

type useKey struct {
	owner work.Owner
	gpu   string
}

// usage is the newest samples, by slice.
func (s *server) usage() map[useKey]apitype.Use {
	out := map[useKey]apitype.Use{}
	for owner, samples := range s.host.Usage() {
		for _, x := range samples {
			out[useKey{owner, x.GPUID}] = apitype.Use{Compute: x.Compute, MemoryMiB: x.MemMiB, Processes: x.Procs}
		}
	}
	return out
}

func (v view) task(t *engine.Task) apitype.Task {
	out := apitype.Task{
		ID: uint64(t.ID), Name: t.Spec.Name, Tenant: t.Spec.Tenant, Pool: t.Spec.Pool, Priority: t.Spec.Priority.String(),
		Class: string(t.Spec.Class), Request: t.Spec.Request.String(), CPUs: cores(t.Spec.Request.CPUMilli), MemoryMiB: t.Spec.Request.MemMiB,
		Command: slices.Clone(t.Spec.Command), Image: t.Spec.Image, Volumes: apitype.VolumesOf(t.Spec.Volumes), Network: t.Spec.Network, State: string(t.State), Reason: reason(t.Reason), Submitted: t.Submitted.Std(),
		Started: optional(t.Started), Ended: optional(t.Ended), Epoch: t.Epoch, Failures: t.Failures, Preempted: t.Preempted, Exit: exit(t.Exit),
		Drained: t.Drained, Faults: t.Faults, LastFault: v.fault(t.Fault, func(string) bool { return true }),
	}
	v.order(&out, t)
	v.elastic(&out, t)
	if l := t.Lease(); l != nil {
		out.Members, out.Enforcement = v.members(l), string(l.Enforcement())
	}
	return out
}

func (v view) members(l *engine.Lease) []apitype.Member {
	out := make([]apitype.Member, 0, len(l.Parts))
	for i, p := range l.Parts {
		owner := work.Owner{Task: l.Task, Epoch: l.Epoch, Member: i}
		m := apitype.Member{Member: i, Host: v.Hosts()[p.Host].Info.Name, Phase: string(p.Phase), Exit: exit(p.Exit), Slices: []apitype.Slice{}, Enforcement: string(p.Enforcement())}
		for k, x := range p.Slices {
			m.Slices = append(m.Slices, v.slice(owner, x, device(p, k)))
		}
		out = append(out, m)
	}
	return out
}

// device is that of the k-th slice of a part, once it is made.
func device(p *engine.Part, k int) string {
	if k < 0 || k >= len(p.Devices) {
		return ""
	}
	return p.Devices[k]
}

func (v view) slice(o work.Owner, s work.Slice, device string) apitype.Slice {
	g := v.GPUs()[s.GPU]
	model := v.Cluster().Geometry(s.GPU).Model
	out := apitype.Slice{GPU: s.GPU, GPUID: g.ID, Mode: string(s.Mode), Profile: s.Profile, Start: s.Start, Milli: s.Milli,
		MemoryMiB: model.MemoryMiB, Device: device, Text: s.String()}
	switch s.Mode {
	case gpu.ModeMIG:
		p, _ := model.Profile(s.Profile)
		out.Units, out.MemoryMiB = p.Units, p.MemoryMiB
	case gpu.ModeShared:
		out.MemoryMiB = s.Share.MemMiB
	case gpu.ModeWhole, gpu.ModeFree:
	}
	if u, ok := v.use[useKey{o, g.ID}]; ok {
		out.Use = &u
	}
	return out
}

func (v view) lease(t *engine.Task) apitype.Lease {
	out := apitype.Lease{ID: uint64(t.ID), Name: t.Spec.Name, Tenant: t.Spec.Tenant, Pool: t.Spec.Pool, Request: t.Spec.Request.String(),
		State: string(t.State), Reason: reason(t.Reason), Epoch: t.Epoch, Devices: []string{}}
	l := t.Lease()
	if l == nil {
		return out
	}
	out.Members, out.Enforcement, out.Recalled = v.members(l), string(l.Enforcement()), l.Recalled
	if t.State == work.StateRunning && !l.Closing {
		out.Expires = optional(l.Expires)
		for _, p := range l.Parts {
			out.Devices = append(out.Devices, p.Devices...)
		}
	}
	return out
}

func (v view) host(n int) apitype.Host {
	h := v.Hosts()[n]
	out := apitype.Host{Name: h.Info.Name, Driver: h.Info.Driver, Pool: h.Pool, Up: h.Up, CPUs: cores(h.Info.CPUMilli), FreeCPUs: cores(h.CPUMilli),
		MemoryMiB: h.Info.MemMiB, FreeMemoryMiB: h.MemMiB, GPUs: append([]int{}, h.GPUs...)}
	for _, n := range h.GPUs {
		if len(v.GPUs()[n].Held) == 0 {
			out.FreeGPUs++
		}
	}
	for k, label := range h.Info.Labels { // order: a map again
		if out.Labels == nil {
			out.Labels = map[string]string{}
		}
		out.Labels[k] = label
	}
	return out
}

// gpu shows a GPU to a caller: of others' slices only that they are taken.
func (v view) gpu(n int, c caller) apitype.GPU {
	g := v.GPUs()[n]
	h := v.Hosts()[g.Host]
	model := v.Cluster().Geometry(g.Number).Model
	out := apitype.GPU{GPU: g.Number, ID: g.ID, Model: g.Model, Host: h.Info.Name, Pool: h.Pool, Health: string(g.Health), Why: g.Why, Mode: string(g.Mode),
		Units: model.Units, Taken: []int{}, Milli: g.Milli, MemoryMiB: model.MemoryMiB, Holders: []apitype.Holding{}}
	for u := range model.Units {
		if g.Mode == gpu.ModeWhole || g.Mask&(1<<u) != 0 {
			out.Taken = append(out.Taken, u)
		}
	}
	v.health(&out, n, c)
	for _, held := range g.Held {
		out.Holders = append(out.Holders, v.holding(held.Owner, held.Slice, c))
	}
	return out
}

// phaseTaken stands for the phase of what belongs to another tenant.
const phaseTaken = "taken"

func (v view) holding(o work.Owner, s work.Slice, c caller) apitype.Holding {
	t := v.Task(o.Task)
	if t == nil || !c.owns(t.Spec.Tenant) {
		out := apitype.Holding{Phase: phaseTaken, Slice: v.slice(o, s, "")}
		out.Slice.Use = nil
		return out
	}
	phase, dev := string(engine.PhaseFreeing), "" // a lease that the task has left behind
	if l := t.Lease(); l != nil && l.Epoch == o.Epoch {
		p := l.Parts[o.Member]
		phase = string(p.Phase)
		dev = device(p, slices.IndexFunc(p.Slices, func(x work.Slice) bool { return x.GPU == s.GPU && x.Start == s.Start }))
	}
	return apitype.Holding{Task: uint64(t.ID), Tenant: t.Spec.Tenant, Name: t.Spec.Name, Phase: phase, Slice: v.slice(o, s, dev)}
}

func reason(r work.Reason) apitype.Reason {
	return apitype.Reason{Code: string(r.Code), Message: r.Msg}
}

func exit(e *work.Exit) *apitype.Exit {
	if e == nil {
		return nil
	}
	return &apitype.Exit{Code: e.Code, Signal: e.Signal, OOM: e.OOM, Lost: e.Lost}
}

func optional(t work.Time) *time.Time {
	if t == 0 {
		return nil
	}
	std := t.Std()
	return &std
}

func cores(milli int64) float64 { return float64(milli) / 1000 }
