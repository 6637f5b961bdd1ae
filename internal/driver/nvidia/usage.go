package nvidia

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// Usage implements driver.Driver. What no source tells is -1, which is not idleness.
func (d *Driver) Usage(ctx context.Context) ([]driver.Sample, error) {
	if err := d.enter(ctx, ""); err != nil {
		return nil, err
	}
	other := d.dcgm.read(ctx, d.o.Log)
	var mu sync.Mutex
	var out []driver.Sample
	var all sync.WaitGroup
	for _, k := range d.hostGPUs() {
		all.Go(func() {
			got := d.sample(ctx, d.card(k.UUID), other)
			mu.Lock()
			defer mu.Unlock()
			out = append(out, got...)
		})
	}
	all.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(out, func(a, b driver.Sample) int { return byOwner(a.Owner, b.Owner) })
	return out, nil
}

// sample measures every slice on one GPU.
func (d *Driver) sample(ctx context.Context, c *card, other readings) []driver.Sample {
	id := c.UUID
	release, err := d.locks.take(ctx, id)
	if err != nil {
		return nil
	}
	defer release()
	records := d.recordsOn(id)
	if len(records) == 0 {
		return nil
	}
	var l *look
	if !c.absent && !time.Now().Before(c.retry) {
		l, _ = d.look(ctx, c) // Observe reports it; here it is not known
	}
	var gis []int
	if l != nil {
		for _, r := range records {
			for i := range r.Slices {
				if p := &r.Slices[i]; p.GPUID == id && p.mig() {
					if g := r.find(p, l); g != nil {
						gis = append(gis, g.ID)
					}
				}
			}
		}
	}
	busy := map[int]float64{}
	if l != nil {
		if got, err := d.lib.call(ctx, request{Op: opUse, GPU: id, GIs: gis}); err == nil {
			for _, u := range got.Use {
				busy[u.GI] = u.Compute
			}
		}
	}
	now := time.Now()
	var out []driver.Sample
	for _, r := range records {
		for i := range r.Slices {
			p := &r.Slices[i]
			if p.GPUID != id {
				continue
			}
			s := driver.Sample{At: now, GPUID: id, Owner: r.Owner, Compute: -1, MemMiB: -1, Procs: -1}
			if l != nil {
				d.measureOne(&s, r, p, l, busy, other)
			}
			s.MemMiB = min(s.MemMiB, c.Model.MemoryMiB)
			out = append(out, s)
		}
	}
	return out
}

// measureOne fills in what is known of one slice.
func (d *Driver) measureOne(s *driver.Sample, r *record, p *piece, l *look, busy map[int]float64, other readings) {
	at := func(gi int) float64 {
		if v, has := busy[gi]; has && v >= 0 {
			return v
		}
		if v, has := other[reading{p.GPUID, gi}]; has {
			return v
		}
		return -1
	}
	switch p.Mode {
	case gpu.ModeMIG:
		if g := r.find(p, l); g != nil {
			s.Compute, s.MemMiB, s.Procs = at(g.ID), g.UsedMiB, len(g.Procs)
		}
	case gpu.ModeWhole:
		s.Compute, s.MemMiB, s.Procs = at(everywhere), l.UsedMiB, len(l.Procs)
	case gpu.ModeShared:
		d.measureShare(s, r, p, l, at(everywhere))
	case gpu.ModeFree:
	}
}

// measureShare says what is known of a share: all that the GPU does where it is the
// only one; beside others, what its own processes hold.
func (d *Driver) measureShare(s *driver.Sample, r *record, p *piece, l *look, busy float64) {
	procs := d.procsOf(r.Owner, p.GPUID, l.Procs)
	s.Procs, s.MemMiB = len(procs), memory(procs)
	if d.users(p.GPUID) > 1 {
		return
	}
	if s.MemMiB < 0 {
		s.MemMiB = l.UsedMiB
	}
	if busy >= 0 {
		s.Compute = min(busy*1000/float64(p.Share.Milli), 1)
	}
}

// memory sums what processes hold; -1 where one of them is not known.
func memory(procs []process) (sum int64) {
	for _, p := range procs {
		if p.UsedMiB < 0 {
			return -1
		}
		sum += p.UsedMiB
	}
	return sum
}

// procsOf picks an owner's processes of those on a GPU: all of them where nobody else
// has a share, else those whose environment says so (Access puts it there).
func (d *Driver) procsOf(o work.Owner, gpuID string, all []process) (out []process) {
	if d.users(gpuID) <= 1 {
		return all
	}
	for _, p := range all {
		if environ(p.PID, partVar) == o.String() {
			out = append(out, p)
		}
	}
	return out
}
