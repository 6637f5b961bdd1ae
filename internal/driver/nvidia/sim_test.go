package nvidia

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// sim is a library without a helper and without C: GPUs in memory that refuse what
// hardware refuses. Faults are put in by the tests.
type sim struct {
	mu     sync.Mutex
	gpus   []*simGPU
	events []event
	calls  []string                                 // what changed something
	breaks func(r request) (before bool, err error) // an error for a call; before = it is not carried out
	hi     *fault
	starts int64
}

type simGPU struct {
	listed
	model  gpu.Model
	places bool // named although MIG mode is off
	look
	nextGI  int
	lost    bool
	refuse  int // SetMIG answers this
	modeOdd bool
}

func newSim(model string, n int) *sim {
	s := &sim{}
	for _, m := range gpu.Builtin() {
		if m.Key != model {
			continue
		}
		for i := range n {
			id := fmt.Sprintf("GPU-%08d-0000-4000-8000-%012d", i, i)
			s.gpus = append(s.gpus, &simGPU{listed: listed{Index: i, UUID: id, Minor: i, Name: "NVIDIA " + strings.ReplaceAll(m.Key, "-", " "), Arch: m.Arch, MemoryMiB: m.MemoryMiB, HasMIG: m.HasMIG()},
				model: m, places: true, look: look{Minor: i, ECC: 0, Recovery: 0}})
		}
	}
	return s
}

func (s *sim) restarts() int64 { return s.starts }
func (s *sim) close()          {}

func (s *sim) find(id string) *simGPU {
	for _, g := range s.gpus {
		if g.UUID == id {
			return g
		}
	}
	return nil
}

func no(call string, code int) *fault {
	return &fault{Call: call, Code: code, Text: "simulated"}
}

// call implements library.
func (s *sim) call(ctx context.Context, r request) (response, error) {
	if err := ctx.Err(); err != nil {
		return response{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var after error
	if s.breaks != nil {
		before, err := s.breaks(r)
		if before {
			return response{}, err
		}
		after = err
	}
	resp, err := s.do(r)
	if mutates(r.Op) && err == nil {
		s.calls = append(s.calls, r.Op)
	}
	if after != nil {
		return response{}, after
	}
	return resp, err
}

func (s *sim) do(r request) (out response, err error) {
	switch r.Op {
	case opHello:
		if s.hi != nil {
			return out, s.hi
		}
		return response{Hello: &hello{Driver: "580.1"}}, nil
	case opCount:
		return response{Count: len(s.gpus)}, nil
	case opDescribe:
		if g := s.gpus[r.Index]; !g.lost {
			return response{GPU: &g.listed}, nil
		}
		return out, no(r.Op, nvmlGPULost)
	case opEvents:
		out.Events, s.events = s.events, nil
		return out, nil
	}
	g := s.find(r.GPU)
	switch {
	case g == nil:
		return out, no(r.Op, nvmlNotFound)
	case g.lost:
		return out, no(r.Op, nvmlGPULost)
	}
	switch r.Op {
	case opLook:
		l := g.look
		l.GIs = slices.Clone(l.GIs)
		for i := range l.GIs {
			l.GIs[i].CIs = slices.Clone(l.GIs[i].CIs)
		}
		l.Procs = slices.Clone(l.Procs)
		out.Look = &l
		return out, nil
	case opProfiles:
		for _, p := range g.model.Profiles {
			x := profileInfo{Name: "MIG " + p.Name, ID: p.ID, Compute: p.Compute, Max: p.Max, SMs: p.SMs, MemoryMiB: p.MemoryMiB, Attr: p.Attr}
			for _, st := range p.Starts {
				if g.places || g.MIG {
					x.Places = append(x.Places, place{st, p.Units})
				}
			}
			out.Profiles = append(out.Profiles, x)
		}
		return out, nil
	case opUse:
		for _, gi := range r.GIs {
			out.Use = append(out.Use, use{gi, 0.5})
		}
		if len(r.GIs) == 0 {
			out.Use = []use{{everywhere, 0.25}}
		}
		return out, nil
	}
	return g.change(r)
}

func (g *simGPU) change(r request) (out response, err error) {
	at := func() *instance {
		for i := range g.GIs {
			if g.GIs[i].ID == r.GI {
				return &g.GIs[i]
			}
		}
		return nil
	}
	switch r.Op {
	case opSetMIG:
		if g.refuse != 0 {
			return out, no(r.Op, g.refuse)
		}
		if len(g.GIs) > 0 || len(g.Procs) > 0 {
			return out, no(r.Op, nvmlInUse)
		}
		g.MIG, g.MIGPending = r.On != g.modeOdd, r.On
	case opCreateGI:
		i := slices.IndexFunc(g.model.Profiles, func(p gpu.Profile) bool { return p.ID == r.Profile })
		switch {
		case !g.MIG:
			return out, no(r.Op, nvmlNotSupported)
		case i < 0 || g.model.Profiles[i].Units != r.Size || !slices.Contains(g.model.Profiles[i].Starts, r.Start):
			return out, no(r.Op, nvmlInvalidArgument)
		}
		var placed []gpu.Placed
		for _, x := range append(slices.Clone(g.GIs), instance{Profile: r.Profile, Start: r.Start}) {
			j := slices.IndexFunc(g.model.Profiles, func(p gpu.Profile) bool { return p.ID == x.Profile })
			placed = append(placed, gpu.Placed{Profile: g.model.Profiles[j].Name, Start: x.Start})
		}
		if gpu.NewGeometry(g.model).Legal(placed) != "" {
			return out, no(r.Op, nvmlNoResources)
		}
		g.nextGI++
		g.GIs = append(g.GIs, instance{ID: g.nextGI, Profile: r.Profile, Start: r.Start, Size: r.Size})
		out.GI = g.nextGI
	case opCreateCI:
		x := at()
		if x == nil {
			return out, no(r.Op, nvmlNotFound)
		}
		if len(x.CIs) > 0 {
			return out, no(r.Op, nvmlNoResources)
		}
		out.UUID = fmt.Sprintf("MIG-%s-%d", g.UUID, r.GI)
		x.CIs = []compute{{0, out.UUID}}
	case opDestroyCI:
		x := at()
		switch {
		case x == nil || len(x.CIs) == 0:
			return out, no(r.Op, nvmlNotFound)
		case len(x.Procs) > 0:
			return out, no(r.Op, nvmlInUse)
		}
		x.CIs = nil
	case opDestroyGI:
		x := at()
		switch {
		case x == nil:
			return out, no(r.Op, nvmlNotFound)
		case len(x.CIs) > 0 || len(x.Procs) > 0:
			return out, no(r.Op, nvmlInUse)
		}
		g.GIs = slices.DeleteFunc(g.GIs, func(y instance) bool { return y.ID == r.GI })
	default:
		return out, no(r.Op, nvmlFunctionNotFound)
	}
	return out, nil
}

var wholeSlice = work.Slice{Mode: gpu.ModeWhole, Milli: 1000}

// eventually is how long a test waits for what happens by itself.
const eventually = 20 * time.Second
