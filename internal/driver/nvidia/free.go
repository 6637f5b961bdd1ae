package nvidia

import (
	"context"
	"fmt"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// Free implements driver.Driver. It goes on where an earlier one stopped.
func (d *Driver) Free(ctx context.Context, host string, o work.Owner) error {
	if err := d.enter(ctx, host); err != nil {
		return err
	}
	release, err := d.hold(ctx, o, nil)
	if err != nil {
		return err
	}
	defer release()
	ctx = context.WithoutCancel(ctx)
	if r := d.record(o); r != nil {
		if err := d.free(ctx, r); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.freed.add(o)
	return nil
}

func (d *Driver) free(ctx context.Context, r *record) error {
	if r.State == standing {
		r = r.clone()
		r.State = freeing
		if err := d.keep(r); err != nil {
			return fmt.Errorf("that %s is being freed cannot be written, so nothing was done: %w", r.Owner, err)
		}
	}
	if err := d.tear(ctx, r); err != nil {
		return err
	}
	if err := d.forget(r.Owner); err != nil {
		return err
	}
	d.quitMPS(r)
	return nil
}

// tear destroys what stands of a part, last slice first. While a process uses any of
// it, all of it stays.
func (d *Driver) tear(ctx context.Context, r *record) error {
	looks := map[string]*look{}
	for _, id := range r.on() {
		c := d.card(id)
		if c == nil || c.absent {
			continue // gone with the GPU
		}
		l, err := d.look(ctx, c)
		if isFault(err, nvmlGPULost) {
			continue // a reset leaves nothing
		}
		if err != nil {
			return explain("GPU "+id+" cannot be looked at", err)
		}
		looks[id] = l
	}
	for i := range r.Slices {
		if l := looks[r.Slices[i].GPUID]; l != nil {
			if err := d.unused(r, &r.Slices[i], l); err != nil {
				return err
			}
		}
	}
	for i := len(r.Slices) - 1; i >= 0; i-- {
		p := &r.Slices[i]
		if l := looks[p.GPUID]; l != nil && p.mig() {
			if g := r.find(p, l); g != nil {
				if err := d.destroy(ctx, p.GPUID, *g); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// unused refuses while a process is on a slice.
func (d *Driver) unused(r *record, p *piece, l *look) error {
	var procs []process
	switch p.Mode {
	case gpu.ModeMIG:
		if g := r.find(p, l); g != nil {
			procs = g.Procs
		}
	case gpu.ModeWhole:
		procs = l.Procs
	case gpu.ModeShared:
		procs = d.procsOf(r.Owner, p.GPUID, l.Procs)
	case gpu.ModeFree:
	}
	if len(procs) > 0 {
		return refuse(driver.ErrInUse, "%d processes use the slice of %s on GPU %s (%s)", len(procs), r.Owner, p.GPUID, pids(procs))
	}
	return nil
}

// destroy takes an instance away: what is in it first. What is gone already is success.
func (d *Driver) destroy(ctx context.Context, gpuID string, g instance) error {
	began := false
	step := func(what string, q request) error {
		q.GPU = gpuID
		_, err := d.lib.call(ctx, q)
		switch {
		case err == nil:
			began = true
			return nil
		case isFault(err, nvmlNotFound):
			return nil
		case isFault(err, nvmlInUse) && began:
			return refuse(driver.ErrUnclear, "%s of GPU %s is still in use though what was in it is gone: %s; free it again", what, gpuID, err)
		}
		return explain(fmt.Sprintf("%s of GPU %s cannot be destroyed", what, gpuID), err)
	}
	for _, c := range g.CIs {
		if err := step(fmt.Sprintf("compute instance %d of MIG instance %d", c.ID, g.ID), request{Op: opDestroyCI, GI: g.ID, CI: c.ID}); err != nil {
			return err
		}
	}
	return step(fmt.Sprintf("MIG instance %d", g.ID), request{Op: opDestroyGI, GI: g.ID})
}
