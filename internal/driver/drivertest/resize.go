package drivertest

import (
	"fmt"
	"slices"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// on asks for one slice of the second host's first GPU.
func (b *bench) on(o work.Owner, s work.Slice) driver.Part {
	return b.part(o, 1, s)
}

// fits carves for a new owner, to see what is left, and frees it again.
func (b *bench) fits(s work.Slice) error {
	p := b.on(b.owner(), s)
	if _, err := b.carve(p); err != nil {
		return err
	}
	return b.free(p)
}

// expectLeft holds what is left of the GPU against a share that just fits.
func (b *bench) expectLeft(when string, milli int, mem int64) error {
	if err := b.fits(share(milli, mem)); err != nil {
		return fmt.Errorf("%s: %d/1000 and %d MiB should be left: %w", when, milli, mem, err)
	}
	if milli < 1000 {
		if err := expectCode(when+": a share larger than what is left", b.fits(share(milli+1, mem)), driver.ErrOverlap); err != nil {
			return err
		}
	}
	if mem < b.model.MemoryMiB {
		return expectCode(when+": a share with more memory than is left", b.fits(share(milli, mem+1)), driver.ErrOverlap)
	}
	return nil
}

// resizes changes one owner's size beside another's.
func resizes(b *bench) error {
	all := b.model.MemoryMiB
	mine, other := b.owner(), b.on(b.owner(), share(300, 1000))
	first, err := b.carve(b.on(mine, share(200, 2000)))
	if err != nil {
		return err
	}
	if _, err := b.carve(other); err != nil {
		return err
	}
	size := func(s work.Slice) error {
		for range 2 { // a lost answer: it is asked for again
			devices, err := b.carve(b.on(mine, s))
			if err != nil || !slices.Equal(devices, first) {
				return fmt.Errorf("resized to %+v: got devices %v, %w, want %v as before", s, devices, err, first)
			}
		}
		return nil
	}
	for _, x := range []struct {
		to    work.Slice
		milli int // left
		mem   int64
	}{
		{share(600, 5000), 100, all - 6000}, {share(100, 5000), 600, all - 6000}, {share(100, 10), 600, all - 1010}, {share(650, 10), 50, all - 1010},
	} {
		if err := size(x.to); err != nil {
			return err
		}
		if err := b.expectLeft(fmt.Sprintf("resized to %d/1000", x.to.Milli), x.milli, x.mem); err != nil {
			return err
		}
	}
	if err := b.free(other); err != nil {
		return err
	}
	if err := size(whole()); err != nil { // the last one there
		return err
	}
	if err := expectCode("a share of what became whole", b.fits(share(1, 1)), driver.ErrOverlap); err != nil {
		return err
	}
	if err := size(share(400, 1000)); err != nil {
		return err
	}
	if err := b.expectLeft("a whole GPU that became a share", 600, all-1000); err != nil {
		return err
	}
	p := b.on(mine, share(500, 1000))
	if err := b.free(p); err != nil {
		return err
	}
	_, err = b.carve(p)
	if err := expectCode("a resize after the free", err, driver.ErrFreed); err != nil {
		return err
	}
	return b.fits(whole())
}

// resizeRefused asks for what cannot be: the old size must stand, for its owner and
// for what is left beside it.
func resizeRefused(b *bench) error {
	small := b.model.Profiles[0]
	mine, other, cut := b.on(b.owner(), share(500, 3000)), b.on(b.owner(), share(400, 1000)), b.part(b.owner(), 0, mig(small.Name, small.Starts[0]))
	devices := map[work.Owner][]string{}
	for _, p := range []driver.Part{mine, other, cut} {
		got, err := b.carve(p)
		if err != nil {
			return err
		}
		devices[p.Owner] = got
	}
	with := func(p driver.Part, s ...work.Slice) driver.Part {
		q := b.part(p.Owner, slices.IndexFunc(b.hosts, func(h gpu.HostInfo) bool { return h.Name == p.Host }), s...)
		q.Tenant = p.Tenant
		return q
	}
	moved := with(mine, share(500, 3000))
	moved.Slices[0].GPUID = b.hosts[1].GPUs[1].ID
	for _, x := range []struct {
		what string
		p    driver.Part
		want []driver.Code
	}{
		{"more compute than is left", with(mine, share(601, 3000)), []driver.Code{driver.ErrOverlap}},
		{"more memory than is left", with(mine, share(500, b.model.MemoryMiB-999)), []driver.Code{driver.ErrOverlap}},
		{"the whole beside another", with(mine, whole()), []driver.Code{driver.ErrOverlap}},
		{"a share of nothing", with(mine, share(0, 3000)), []driver.Code{driver.ErrIllegal}},
		{"a share that becomes an instance", with(mine, mig(small.Name, small.Starts[0])), []driver.Code{driver.ErrIllegal}},
		{"another GPU", moved, []driver.Code{driver.ErrIllegal}},
		{"a slice more", with(mine, share(500, 3000), share(100, 100)), []driver.Code{driver.ErrIllegal}},
		{"no slice", with(mine), []driver.Code{driver.ErrIllegal}},
		{"an instance at another place", with(cut, mig(small.Name, small.Starts[1])), []driver.Code{driver.ErrIllegal}},
		{"an instance that becomes whole", with(cut, whole()), []driver.Code{driver.ErrIllegal}},
		{"an instance that becomes a share", with(cut, share(100, 100)), []driver.Code{driver.ErrIllegal}},
	} {
		_, err := b.carve(x.p)
		if err := expectCode(x.what, err, x.want...); err != nil {
			return err
		}
		if err := b.expectLeft("refused "+x.what, 100, b.model.MemoryMiB-4000); err != nil {
			return err
		}
		for _, p := range []driver.Part{mine, other, cut} {
			if got, err := b.carve(p); err != nil || !slices.Equal(got, devices[p.Owner]) {
				return fmt.Errorf("refused %s: %s has devices %v, want %v, %w", x.what, p.Owner, got, devices[p.Owner], err)
			}
		}
	}
	return nil
}

// resizeAll resizes two slices of which the second cannot be: the first must be as
// before.
func resizeAll(b *bench) error {
	p := b.part(b.owner(), 1, share(300, 1000), share(300, 1000))
	block := b.part(b.owner(), 1, share(100, 1000), share(600, 1000))
	for _, x := range []driver.Part{p, block} {
		if _, err := b.carve(x); err != nil {
			return err
		}
	}
	_, err := b.carve(b.part(p.Owner, 1, share(800, 2000), share(800, 2000)))
	if err := expectCode("two sizes of which the second does not fit", err, driver.ErrOverlap); err != nil {
		return err
	}
	if err := b.expectLeft("half refused", 600, b.model.MemoryMiB-2000); err != nil {
		return err
	}
	if _, err := b.carve(b.part(p.Owner, 1, share(800, 2000), share(400, 1000))); err != nil {
		return fmt.Errorf("two sizes that fit: %w", err)
	}
	if err := b.expectLeft("both resized", 100, b.model.MemoryMiB-3000); err != nil {
		return err
	}
	if use, err := b.d.Usage(b.ctx); err != nil || len(use) != 4 {
		return fmt.Errorf("four slices stand, sampled are %+v, %w", use, err)
	}
	for _, x := range []driver.Part{p, block} {
		if err := b.free(x); err != nil {
			return err
		}
	}
	return b.fits(whole())
}
