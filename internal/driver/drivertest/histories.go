package drivertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// inOrder names each whole GPU alone, then asks for two in the other order.
func inOrder(b *bench) error {
	var alone []string
	for _, g := range b.hosts[0].GPUs[:2] {
		p := driver.Part{Owner: b.owner(), Tenant: "a", Host: b.hosts[0].Name, Slices: []driver.Slice{{GPUID: g.ID, Slice: whole()}}}
		devices, err := b.carve(p)
		if err != nil || len(devices) != 1 {
			return fmt.Errorf("carving one whole GPU gave %v, %w", devices, err)
		}
		alone = append(alone, devices[0])
		if err := b.free(p); err != nil {
			return err
		}
	}
	p := b.part(b.owner(), 0, whole(), whole())
	slices.Reverse(p.Slices)
	slices.Reverse(alone)
	devices, err := b.carve(p)
	if err != nil || !slices.Equal(devices, alone) {
		return fmt.Errorf("the devices of two GPUs are %v, want %v in the order of the slices, %w", devices, alone, err)
	}
	return b.free(p)
}

// sameGPU puts several slices of one part on one GPU: they may stand in each
// other's way, and the first must not be left when they do.
func sameGPU(b *bench) error {
	small := b.model.Profiles[0]
	on := func(starts ...int) driver.Part {
		p := driver.Part{Owner: b.owner(), Tenant: "a", Host: b.hosts[0].Name}
		for _, s := range starts {
			p.Slices = append(p.Slices, driver.Slice{GPUID: b.hosts[0].GPUs[0].ID, Slice: mig(small.Name, s)})
		}
		return p
	}
	_, err := b.carve(on(small.Starts[1], small.Starts[0], small.Starts[0]))
	if err := expectCode("two slices of one part at one place", err, driver.ErrOverlap); err != nil {
		return err
	}
	if left, err := b.standing(); err != nil || len(left) > 0 {
		return fmt.Errorf("a refused part left %v, %w", left, err)
	}
	p := on(small.Starts[0], small.Starts[1])
	devices, err := b.carve(p)
	if err != nil || len(devices) != 2 || devices[0] == devices[1] {
		return fmt.Errorf("two slices of one part on one GPU are devices %v, %w", devices, err)
	}
	return b.free(p)
}

// ledger is what should stand, as far as the port promises it.
type ledger struct {
	model   gpu.Model
	geo     *gpu.Geometry
	parts   []driver.Part
	devices map[work.Owner][]string
	freed   []driver.Part
}

// legal tells whether a part may stand beside all others.
func (l *ledger) legal(p driver.Part) bool {
	for _, at := range p.Slices {
		var placed []gpu.Placed
		n, wholes, milli, mem := 0, 0, 0, int64(0)
		for _, q := range append(slices.Clone(l.parts), p) {
			for _, s := range q.Slices {
				if s.GPUID != at.GPUID {
					continue
				}
				n++
				switch s.Mode {
				case gpu.ModeMIG:
					placed = append(placed, gpu.Placed{Profile: s.Profile, Start: s.Start})
				case gpu.ModeShared:
					milli, mem = milli+s.Share.Milli, mem+s.Share.MemMiB
				case gpu.ModeWhole, gpu.ModeFree:
					wholes++
				}
			}
		}
		switch { // one mode for each GPU
		case wholes > 0 && n > 1, len(placed) > 0 && n > len(placed):
			return false
		case l.geo.Legal(placed) != "", milli > 1000, mem > l.model.MemoryMiB:
			return false
		}
	}
	return true
}

// random draws a part of one to three slices on the GPUs of one host.
func (b *bench) random(rng *rand.Rand) driver.Part {
	host := b.hosts[rng.IntN(2)]
	p := driver.Part{Owner: b.owner(), Tenant: "a", Host: host.Name}
	for range 1 + rng.IntN(3) {
		var s work.Slice
		switch rng.IntN(10) {
		case 0:
			s = whole()
		case 1, 2:
			s = share(1+rng.IntN(600), rng.Int64N(b.model.MemoryMiB))
		default:
			s = mig(b.model.Profiles[rng.IntN(len(b.model.Profiles))].Name, rng.IntN(b.model.Units+1)-1)
		}
		p.Slices = append(p.Slices, driver.Slice{GPUID: host.GPUs[rng.IntN(2)].ID, Slice: s})
	}
	return p
}

// histories makes, repeats and frees parts at random and holds each answer
// against the ledger.
func histories(b *bench) error {
	for seed := range uint64(4) {
		l := &ledger{model: b.model, geo: gpu.NewGeometry(b.model), devices: map[work.Owner][]string{}}
		rng := rand.New(rand.NewPCG(seed, 1))
		for step := range 120 {
			if err := b.step(rng, l); err != nil {
				return fmt.Errorf("seed %d, step %d: %w", seed, step, err)
			}
		}
		for len(l.parts) > 0 {
			if err := b.drop(l, 0); err != nil {
				return fmt.Errorf("seed %d, at its end: %w", seed, err)
			}
		}
		if err := b.agrees(l); err != nil {
			return fmt.Errorf("seed %d, at its end: %w", seed, err)
		}
	}
	return nil
}

func (b *bench) step(rng *rand.Rand, l *ledger) error {
	switch op := rng.IntN(10); {
	case op < 3 && len(l.parts) > 0:
		return b.drop(l, rng.IntN(len(l.parts)))
	case op == 3 && len(l.parts) > 0:
		p := l.parts[rng.IntN(len(l.parts))]
		if devices, err := b.carve(p); err != nil || !slices.Equal(devices, l.devices[p.Owner]) {
			return fmt.Errorf("repeating the carve of %s gave %v, want %v, %w", p.Owner, devices, l.devices[p.Owner], err)
		}
		return nil
	case op == 4 && len(l.freed) > 0:
		p := l.freed[rng.IntN(len(l.freed))]
		if err := b.free(p); err != nil {
			return fmt.Errorf("freeing %s again: %w", p.Owner, err)
		}
		_, err := b.carve(p)
		return expectCode("a carve of a freed owner", err, driver.ErrFreed)
	case op == 5:
		return b.agrees(l)
	case op == 6 && len(l.parts) > 0:
		return b.resize(rng, l, rng.IntN(len(l.parts)))
	}
	p := b.random(rng)
	devices, err := b.carve(p)
	if legal := l.legal(p); legal != (err == nil) {
		return fmt.Errorf("%+v beside %+v: the driver says %w, want legal = %t", p, l.parts, err, legal)
	}
	if err != nil {
		return expectCode("an illegal part", err, driver.ErrOverlap, driver.ErrIllegal, driver.ErrMode)
	}
	if len(devices) != len(p.Slices) {
		return fmt.Errorf("%d slices gave devices %v", len(p.Slices), devices)
	}
	l.parts, l.devices[p.Owner] = append(l.parts, p), slices.Clone(devices)
	return nil
}

// resize draws other sizes for a part that stands. Instances may be asked for as
// they are, and not otherwise.
func (b *bench) resize(rng *rand.Rand, l *ledger, i int) error {
	old, p := l.parts[i], l.parts[i]
	p.Slices = slices.Clone(p.Slices)
	allowed := true
	for j := range p.Slices {
		s := &p.Slices[j].Slice
		switch s.Mode {
		case gpu.ModeMIG:
			if rng.IntN(3) == 0 {
				*s, allowed = share(100, 100), false
			}
		case gpu.ModeWhole, gpu.ModeShared, gpu.ModeFree:
			if *s = share(1+rng.IntN(1000), rng.Int64N(b.model.MemoryMiB)); rng.IntN(3) == 0 {
				*s = whole()
			}
		}
	}
	others := *l
	others.parts = slices.Delete(slices.Clone(l.parts), i, i+1)
	devices, err := b.carve(p)
	if legal := allowed && others.legal(p); legal != (err == nil) {
		return fmt.Errorf("%+v made %+v beside %+v: the driver says %w, want legal = %t", old, p, others.parts, err, legal)
	}
	if err != nil {
		return expectCode("an illegal size", err, driver.ErrOverlap, driver.ErrIllegal)
	}
	if !slices.Equal(devices, l.devices[p.Owner]) {
		return fmt.Errorf("resized, %s has devices %v, want %v as before", p.Owner, devices, l.devices[p.Owner])
	}
	l.parts[i] = p
	return nil
}

func (b *bench) drop(l *ledger, i int) error {
	p := l.parts[i]
	if err := b.free(p); err != nil {
		return fmt.Errorf("free %s: %w", p.Owner, err)
	}
	l.parts, l.freed = slices.Delete(l.parts, i, i+1), append(l.freed, p)
	return nil
}

// agrees compares what stands and what is sampled with the ledger.
func (b *bench) agrees(l *ledger) error {
	want, wantSlices := []work.Owner{}, 0
	for _, p := range l.parts {
		want, wantSlices = append(want, p.Owner), wantSlices+len(p.Slices)
	}
	slices.SortFunc(want, func(x, y work.Owner) int { return int(x.Task) - int(y.Task) })
	got, err := b.standing()
	if err != nil || !slices.Equal(got, want) {
		return fmt.Errorf("%v stand, want %v, %w", got, want, err)
	}
	if use, err := b.d.Usage(b.ctx); err != nil || len(use) != wantSlices {
		return fmt.Errorf("%d slices stand, sampled are %+v, %w", wantSlices, use, err)
	}
	return nil
}

// cancelled calls must say so, and what they did must be undone by a free.
func cancelled(b *bench) error {
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	p := b.part(b.owner(), 0, whole())
	for what, call := range map[string]func() error{
		"carve":   func() error { _, err := b.d.Carve(ctx, p); return err },
		"free":    func() error { return b.d.Free(ctx, p.Host, b.owner()) },
		"observe": func() error { _, err := b.d.Observe(ctx); return err },
		"usage":   func() error { _, err := b.d.Usage(ctx); return err },
	} {
		if err := call(); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("a cancelled %s returned %w", what, err)
		}
	}
	if err := b.free(p); err != nil {
		return err
	}
	if left, err := b.standing(); err != nil || len(left) > 0 {
		return fmt.Errorf("%v stand, %w", left, err)
	}
	return nil
}
