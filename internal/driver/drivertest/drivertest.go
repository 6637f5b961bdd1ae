// Package drivertest is the conformance suite that every driver passes.
//
// It needs two hosts with two MIG-capable GPUs each, empty at first, and cuts them
// a few hundred times; its own cost does not matter.
package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// Run checks a driver. open returns one over hardware that is empty.
func Run(t *testing.T, open func(t *testing.T) driver.Driver) {
	for _, c := range Checks() {
		t.Run(c.Name, func(t *testing.T) {
			d := open(t)
			defer d.Close()
			if err := c.Run(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Check is one rule of the port. It returns an error where a driver breaks it, so
// that a driver with a planted fault can be shown to be caught.
type Check struct {
	Name string
	Run  func(ctx context.Context, d driver.Driver) error
}

// Checks lists the rules.
func Checks() []Check {
	run := func(f func(*bench) error) func(context.Context, driver.Driver) error {
		return func(ctx context.Context, d driver.Driver) error {
			b, err := newBench(ctx, d)
			if err != nil {
				return err
			}
			return f(b)
		}
	}
	return []Check{
		{"carves whole GPUs, instances and shares", run(carves)}, {"repeating a carve or a free changes nothing", run(repeats)},
		{"refuses what overlaps or may not be", run(refuses)}, {"makes all slices or none", run(allOrNone)},
		{"names devices in the order of the slices", run(inOrder)}, {"several slices on one GPU", run(sameGPU)},
		{"an owner is never used twice", run(neverTwice)}, {"shows what stands", run(shows)},
		{"resizes shares in place", run(resizes)}, {"a refused resize leaves the old size", run(resizeRefused)},
		{"resizes all slices or none", run(resizeAll)},
		{"samples every slice", run(samples)}, {"a cancelled call does nothing", run(cancelled)},
		{"random histories", run(histories)},
	}
}

// bench is a driver and what it showed at first.
type bench struct {
	ctx   context.Context //nolint:containedctx // of the one check that it serves
	d     driver.Driver
	hosts []gpu.HostInfo
	model gpu.Model
	next  work.TaskID
}

func newBench(ctx context.Context, d driver.Driver) (*bench, error) {
	inv, err := d.Observe(ctx)
	if err != nil {
		return nil, err
	}
	b := &bench{ctx: ctx, d: d, hosts: inv.Hosts}
	if len(inv.Hosts) < 2 || len(inv.Hosts[0].GPUs) < 2 || len(inv.Hosts[1].GPUs) < 2 || len(inv.Parts) > 0 {
		return nil, fmt.Errorf("expected two empty hosts with two GPUs each, got %+v", inv)
	}
	for _, m := range inv.Models {
		if m.Key == inv.Hosts[0].GPUs[0].Model {
			b.model = m
		}
	}
	if !b.model.HasMIG() {
		return nil, fmt.Errorf("expected a GPU with MIG, got model %+v", b.model)
	}
	return b, nil
}

func (b *bench) owner() work.Owner {
	b.next++
	return work.Owner{Task: b.next, Epoch: 1}
}

func whole() work.Slice { return work.Slice{Mode: gpu.ModeWhole, Milli: 1000} }

func mig(profile string, start int) work.Slice {
	return work.Slice{Mode: gpu.ModeMIG, Profile: profile, Start: start}
}

func share(milli int, mem int64) work.Slice {
	return work.Slice{Mode: gpu.ModeShared, Share: &work.Share{Milli: milli, MemMiB: mem}, Milli: milli}
}

// part asks for slices, one on each of the host's GPUs in turn.
func (b *bench) part(o work.Owner, host int, slices ...work.Slice) driver.Part {
	p := driver.Part{Owner: o, Tenant: "a", Host: b.hosts[host].Name}
	for i, s := range slices {
		p.Slices = append(p.Slices, driver.Slice{GPUID: b.hosts[host].GPUs[i].ID, Slice: s})
	}
	return p
}

func (b *bench) carve(p driver.Part) ([]string, error) { return b.d.Carve(b.ctx, p) }

func (b *bench) free(p driver.Part) error { return b.d.Free(b.ctx, p.Host, p.Owner) }

// standing lists the owners that stand.
func (b *bench) standing() ([]work.Owner, error) {
	inv, err := b.d.Observe(b.ctx)
	var out []work.Owner
	for _, p := range inv.Parts {
		out = append(out, p.Owner)
	}
	slices.SortFunc(out, func(x, y work.Owner) int { return int(x.Task) - int(y.Task) })
	return out, err
}

func expectCode(what string, err error, want ...driver.Code) error {
	var e *driver.Error
	if !errors.As(err, &e) || !slices.Contains(want, e.Code) {
		return fmt.Errorf("%s: got %w, want an error of %v", what, err, want)
	}
	return nil
}

func carves(b *bench) error {
	small := b.model.Profiles[0].Name
	parts := []driver.Part{
		b.part(b.owner(), 0, whole(), mig(small, 0)), b.part(b.owner(), 1, share(300, 1000), whole()),
		b.part(b.owner(), 1, share(700, 1000)), // beside the first share
	}
	seen := map[string]bool{}
	for _, p := range parts {
		devices, err := b.carve(p)
		if err != nil {
			return fmt.Errorf("carve %+v: %w", p, err)
		}
		if len(devices) != len(p.Slices) {
			return fmt.Errorf("%d slices gave devices %v", len(p.Slices), devices)
		}
		for i, dev := range devices {
			if dev == "" || p.Slices[i].Mode != gpu.ModeShared && seen[dev] {
				return fmt.Errorf("device %q is empty or was given before", dev)
			}
			seen[dev] = true
		}
	}
	for _, p := range parts {
		if err := b.free(p); err != nil {
			return err
		}
	}
	return nil
}

func repeats(b *bench) error {
	p := b.part(b.owner(), 0, mig(b.model.Profiles[0].Name, b.model.Profiles[0].Starts[0]), mig(b.model.Profiles[0].Name, b.model.Profiles[0].Starts[0]))
	first, err := b.carve(p)
	if err != nil {
		return err
	}
	again, err := b.carve(p)
	if err != nil || !slices.Equal(first, again) {
		return fmt.Errorf("a carve gave %v, repeated %v, %w", first, again, err)
	}
	for range 2 {
		if err := b.free(p); err != nil {
			return fmt.Errorf("free: %w", err)
		}
	}
	if left, err := b.standing(); err != nil || len(left) > 0 {
		return fmt.Errorf("after freeing %v stand, %w", left, err)
	}
	q := b.part(b.owner(), 0, whole(), whole()) // the place is free again
	if _, err := b.carve(q); err != nil {
		return fmt.Errorf("what was freed cannot be used: %w", err)
	}
	return b.free(q)
}

func refuses(b *bench) error {
	small, last := b.model.Profiles[0], b.model.Profiles[len(b.model.Profiles)-1]
	cut, busy := b.part(b.owner(), 0, mig(small.Name, small.Starts[0])), b.part(b.owner(), 1, whole())
	shared := driver.Part{Owner: b.owner(), Tenant: "a", Host: b.hosts[1].Name, Slices: []driver.Slice{{GPUID: b.hosts[1].GPUs[1].ID, Slice: share(600, 1000)}}}
	for _, p := range []driver.Part{cut, busy, shared} {
		if _, err := b.carve(p); err != nil {
			return err
		}
	}
	before, err := b.standing()
	if err != nil {
		return err
	}
	on := func(host, gpu int, s work.Slice) driver.Part {
		return driver.Part{Owner: b.owner(), Tenant: "a", Host: b.hosts[host].Name, Slices: []driver.Slice{{GPUID: b.hosts[host].GPUs[gpu].ID, Slice: s}}}
	}
	elsewhere := on(0, 1, whole())
	elsewhere.Host = b.hosts[1].Name
	nowhere := on(0, 1, whole())
	nowhere.Slices[0].GPUID = "GPU-none"
	for _, x := range []struct {
		what string
		p    driver.Part
		want []driver.Code
	}{
		{"the same place twice", on(0, 0, mig(small.Name, small.Starts[0])), []driver.Code{driver.ErrOverlap}},
		{"a larger profile over it", on(0, 0, mig(last.Name, last.Starts[0])), []driver.Code{driver.ErrOverlap}},
		{"a start that is none", on(0, 0, mig(small.Name, b.model.Units)), []driver.Code{driver.ErrIllegal}},
		{"a negative start", on(0, 0, mig(small.Name, -1)), []driver.Code{driver.ErrIllegal}},
		{"a profile that is none", on(0, 0, mig("9g.900gb", 0)), []driver.Code{driver.ErrIllegal}},
		{"an instance on a GPU in use", on(1, 0, mig(small.Name, small.Starts[0])), []driver.Code{driver.ErrMode, driver.ErrOverlap}},
		{"the whole of a cut GPU", on(0, 0, whole()), []driver.Code{driver.ErrMode, driver.ErrOverlap}},
		{"the whole of a GPU in use", on(1, 0, whole()), []driver.Code{driver.ErrOverlap}},
		{"a share of a cut GPU", on(0, 0, share(100, 100)), []driver.Code{driver.ErrMode}},
		{"more shares than a GPU has compute", on(1, 1, share(500, 100)), []driver.Code{driver.ErrOverlap}},
		{"more shares than a GPU has memory", on(1, 1, share(100, b.model.MemoryMiB)), []driver.Code{driver.ErrOverlap}},
		{"a GPU of another host", elsewhere, []driver.Code{driver.ErrNoDevice}},
		{"a GPU that is none", nowhere, []driver.Code{driver.ErrNoDevice}},
	} {
		_, err := b.carve(x.p)
		if err := expectCode(x.what, err, x.want...); err != nil {
			return err
		}
		if after, err := b.standing(); err != nil || !slices.Equal(before, after) {
			return fmt.Errorf("%s: refused, and now %v stand instead of %v, %w", x.what, after, before, err)
		}
	}
	return nil
}

func allOrNone(b *bench) error {
	small := b.model.Profiles[0]
	block := driver.Part{Owner: b.owner(), Tenant: "a", Host: b.hosts[0].Name, Slices: []driver.Slice{{GPUID: b.hosts[0].GPUs[1].ID, Slice: mig(small.Name, small.Starts[0])}}}
	if _, err := b.carve(block); err != nil {
		return err
	}
	both := b.part(b.owner(), 0, mig(small.Name, small.Starts[0]), mig(small.Name, small.Starts[0]))
	_, err := b.carve(both)
	if err := expectCode("two slices of which the second overlaps", err, driver.ErrOverlap); err != nil {
		return err
	}
	if left, err := b.standing(); err != nil || !slices.Equal(left, []work.Owner{block.Owner}) {
		return fmt.Errorf("a refused part left something: %v, %w", left, err)
	}
	first := b.part(b.owner(), 0, mig(small.Name, small.Starts[0])) // where the first slice would have been
	if _, err := b.carve(first); err != nil {
		return fmt.Errorf("a refused part kept its first place: %w", err)
	}
	if err := b.free(first); err != nil {
		return err
	}
	return b.free(block)
}

func neverTwice(b *bench) error {
	p := b.part(b.owner(), 0, whole())
	if err := b.free(p); err != nil { // before it was ever carved, as after a lost answer
		return fmt.Errorf("freeing what is not there: %w", err)
	}
	_, err := b.carve(p)
	if err := expectCode("a carve that comes after its free", err, driver.ErrFreed); err != nil {
		return err
	}
	p = b.part(b.owner(), 0, whole())
	if _, err := b.carve(p); err != nil {
		return err
	}
	if err := b.free(p); err != nil {
		return err
	}
	_, err = b.carve(p)
	return expectCode("a carve for an owner that was freed", err, driver.ErrFreed)
}

func shows(b *bench) error {
	p, q := b.part(b.owner(), 0, whole(), whole()), b.part(b.owner(), 1, mig(b.model.Profiles[0].Name, 0))
	for _, x := range []driver.Part{p, q} {
		if _, err := b.carve(x); err != nil {
			return err
		}
	}
	inv, err := b.d.Observe(b.ctx)
	if err != nil || len(inv.Parts) != 2 {
		return fmt.Errorf("two parts stand, shown are %+v, %w", inv.Parts, err)
	}
	for _, seen := range inv.Parts {
		if seen != (driver.Seen{Host: p.Host, Owner: p.Owner}) && seen != (driver.Seen{Host: q.Host, Owner: q.Owner}) {
			return fmt.Errorf("part %+v was never made", seen)
		}
	}
	if err := b.free(p); err != nil {
		return err
	}
	if left, err := b.standing(); err != nil || !slices.Equal(left, []work.Owner{q.Owner}) {
		return fmt.Errorf("after freeing %v, %v stand, %w", p.Owner, left, err)
	}
	return b.free(q)
}

func samples(b *bench) error {
	p := b.part(b.owner(), 0, mig(b.model.Profiles[0].Name, 0), whole())
	if _, err := b.carve(p); err != nil {
		return err
	}
	got, err := b.d.Usage(b.ctx)
	if err != nil || len(got) != 2 {
		return fmt.Errorf("two slices stand, sampled are %+v, %w", got, err)
	}
	for _, s := range got {
		if s.Owner != p.Owner || s.Compute > 1 || s.MemMiB > b.model.MemoryMiB || s.At.IsZero() || s.GPUID == "" {
			return fmt.Errorf("sample %+v cannot be", s)
		}
	}
	if err := b.free(p); err != nil {
		return err
	}
	if got, err = b.d.Usage(b.ctx); err != nil || len(got) != 0 {
		return fmt.Errorf("nothing stands, sampled are %+v, %w", got, err)
	}
	return nil
}
