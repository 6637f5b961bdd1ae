package nvidia

import (
	"context"
	"errors"
	"fmt"
)

// Probed is what NVML says of this machine at a look, for doctor.
type Probed struct {
	Driver string // version
	GPUs   []ProbedGPU
}

// ProbedGPU is one GPU at a look.
type ProbedGPU struct {
	Index, Minor    int // Minor of /dev/nvidiaN; -1 = not known
	Name, UUID      string
	MemoryMiB       int64
	HasMIG          bool
	MIG, MIGPending bool   // in force, and after the next reset
	Instances       int    // GPU instances that stand
	Recovery        string // what the driver wants done, such as none or drain_and_reset; "" = it does not say
}

// recoveryWords are field 230's values.
var recoveryWords = []string{"none", "reset", "reboot", "drain_p2p", "drain_and_reset", "recover_imex", "bus_reset", "system_reboot"}

// Probe asks NVML once, through a helper of its own, and changes nothing. Of o it needs
// Helper, Env, Timeout and Log.
func Probe(ctx context.Context, o Options) (Probed, error) {
	if !Built {
		return Probed{}, errNotBuilt
	}
	if len(o.Helper) == 0 {
		return Probed{}, errors.New("the NVIDIA driver needs the command of its helper")
	}
	lib := newHelper(helperOptions{Command: o.Helper, Env: o.Env, Timeout: o.Timeout, Log: o.Log})
	defer lib.close()
	return probe(ctx, lib)
}

func probe(ctx context.Context, lib library) (Probed, error) {
	hi, err := lib.call(ctx, request{Op: opHello})
	if err != nil {
		return Probed{}, err
	}
	p := Probed{Driver: hi.Hello.Driver}
	got, err := lib.call(ctx, request{Op: opCount})
	if err != nil {
		return p, err
	}
	for i := range got.Count {
		g, err := probeGPU(ctx, lib, i)
		if err != nil {
			return p, err
		}
		p.GPUs = append(p.GPUs, g)
	}
	return p, nil
}

func probeGPU(ctx context.Context, lib library, index int) (g ProbedGPU, err error) {
	is, err := lib.call(ctx, request{Op: opDescribe, Index: index})
	if err != nil {
		return g, fmt.Errorf("GPU %d does not say what it is: %w", index, err)
	}
	l := is.GPU
	g = ProbedGPU{Index: l.Index, Minor: l.Minor, Name: l.Name, UUID: l.UUID, MemoryMiB: l.MemoryMiB, HasMIG: l.HasMIG}
	seen, err := lib.call(ctx, request{Op: opLook, GPU: l.UUID})
	if err != nil {
		return g, fmt.Errorf("GPU %d does not say how it is: %w", index, err)
	}
	now := seen.Look
	g.MIG, g.MIGPending, g.Instances = now.MIG, now.MIGPending, len(now.GIs)
	if now.Recovery >= 0 && now.Recovery < len(recoveryWords) {
		g.Recovery = recoveryWords[now.Recovery]
	}
	return g, nil
}
