package nvidia

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// hold takes the locks of an owner and of its GPUs.
func (d *Driver) hold(ctx context.Context, o work.Owner, more []driver.Slice) (func(), error) {
	mine, err := d.locks.take(ctx, "owner "+o.String())
	if err != nil {
		return nil, err
	}
	var gpus []string
	if r := d.record(o); r != nil {
		gpus = r.on()
	}
	for _, s := range more {
		gpus = append(gpus, s.GPUID)
	}
	theirs, err := d.locks.take(ctx, gpus...)
	if err != nil {
		mine()
		return nil, err
	}
	return func() { theirs(); mine() }, nil
}

// Carve implements driver.Driver. What it is about to do is on the disk before the
// first step; a step that fails has all before it undone.
func (d *Driver) Carve(ctx context.Context, p driver.Part) ([]string, error) {
	if err := d.enter(ctx, p.Host); err != nil {
		return nil, err
	}
	release, err := d.hold(ctx, p.Owner, p.Slices)
	if err != nil {
		return nil, err
	}
	defer release()
	ctx = context.WithoutCancel(ctx) // what has begun ends: each call has its own bound
	r := d.record(p.Owner)
	switch {
	case r != nil && (r.Why != "" || r.State == freeing):
		return nil, refuse(driver.ErrUnclear, "what stands of %s is unclear (%s): free it first", p.Owner, orHalf(r.Why))
	case r != nil:
		return d.again(ctx, p, r.clone())
	case d.wasFreed(p.Owner):
		return nil, refuse(driver.ErrFreed, "%s was freed already: an owner is never used twice", p.Owner)
	}
	return d.carve(ctx, p)
}

func orHalf(why string) string {
	if why == "" {
		return "it is half freed"
	}
	return why
}

func (d *Driver) wasFreed(o work.Owner) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.freed.is[o]
}

// carve makes a part of which nothing stands.
func (d *Driver) carve(ctx context.Context, p driver.Part) ([]string, error) {
	bays, err := d.bays(ctx, p, nil)
	if err != nil {
		return nil, err
	}
	r, err := d.plan(p, bays)
	if err != nil {
		return nil, err
	}
	if err := d.keep(r); err != nil {
		return nil, fmt.Errorf("the plan for %s cannot be written, so nothing was made: %w", p.Owner, err)
	}
	return d.build(ctx, r, bays)
}

// again answers a Carve for an owner that has a record: the same part, another size, a
// plan that a crash cut short, or instances that a reset took.
func (d *Driver) again(ctx context.Context, p driver.Part, r *record) ([]string, error) {
	if r.State == making && !slices.EqualFunc(r.Slices, p.Slices, func(x piece, s driver.Slice) bool { return sameSlice(x.Slice, s) }) {
		return nil, refuse(driver.ErrUnclear, "%s was half made with other slices: free it first", p.Owner)
	}
	if !r.anyMIG() {
		if r.State == standing {
			return d.resize(ctx, p, r)
		}
		bays, err := d.bays(ctx, p, r)
		if err != nil {
			return nil, err
		}
		return d.build(ctx, r, bays)
	}
	bays, err := d.bays(ctx, driver.Part{Owner: r.Owner, Host: r.Host, Slices: r.slices()}, r)
	if err != nil {
		return nil, err
	}
	found, migs := 0, 0
	for i := range r.Slices {
		if x := &r.Slices[i]; x.mig() {
			migs++
			if r.find(x, bays[x.GPUID].l) != nil {
				found++
			}
		}
	}
	switch {
	case r.State == making:
		return d.build(ctx, r, bays)
	case found == migs:
		return d.resize(ctx, p, r)
	case found > 0 || migs < len(r.Slices):
		return nil, refuse(driver.ErrUnclear, "of the %d instances of %s %d stand: free it first", migs, p.Owner, found)
	}
	d.o.Log.Warn("the instances of a part were gone and are made again", "part", p.Owner.String())
	if err := d.forget(p.Owner); err != nil {
		return nil, err
	}
	return d.carve(ctx, p)
}

func (r *record) slices() (out []driver.Slice) {
	for _, p := range r.Slices {
		out = append(out, p.Slice)
	}
	return out
}

// sameSlice compares what is asked for, not how the pool numbers it.
func sameSlice(a, b driver.Slice) bool {
	if a.GPUID != b.GPUID || a.Mode != b.Mode || a.Profile != b.Profile || a.Start != b.Start || (a.Share == nil) != (b.Share == nil) {
		return false
	}
	return a.Share == nil || *a.Share == *b.Share
}

// build takes the steps of a plan that were not taken yet, or undoes them all.
func (d *Driver) build(ctx context.Context, r *record, bays map[string]*bay) ([]string, error) {
	err := d.steps(ctx, r, bays)
	if err == nil {
		r.State, r.Before = standing, nil
		if err = d.keep(r); err == nil {
			return r.devices(), nil
		}
		err = fmt.Errorf("that %s stands cannot be written: %w", r.Owner, err)
		r.State = making
	}
	if undo := d.tear(ctx, r); undo != nil {
		r.Why = fmt.Sprintf("it was half made (%v), and undoing that failed: %v", err, undo)
		if e := d.keep(r); e != nil {
			d.o.Log.Error("a part is half made, and that cannot be written", "part", r.Owner.String(), "err", e)
		}
		return nil, refuse(driver.ErrUnclear, "%s", r.Why)
	}
	if e := d.forget(r.Owner); e != nil {
		return nil, errors.Join(err, e)
	}
	d.quitMPS(r)
	if e, is := errors.AsType[*driver.Error](err); is && e.Code == driver.ErrUnclear {
		return nil, refuse(driver.ErrHardware, "%s; what was made of it is undone", e.Msg)
	}
	return nil, err
}

// steps makes what is missing. After a failure every slice says whether an instance may
// have been made for it.
func (d *Driver) steps(ctx context.Context, r *record, bays map[string]*bay) error {
	for i := range r.Slices {
		p := &r.Slices[i]
		err := d.mode(ctx, bays[p.GPUID], p.mig())
		if err == nil {
			err = d.step(ctx, r, p, bays[p.GPUID])
		}
		if err != nil {
			if _, lost := errors.AsType[*lostAnswer](err); !lost && !p.Made {
				p.GI, p.Made = -1, true // refused: no instance is its
			}
			for j := i + 1; j < len(r.Slices); j++ {
				if q := &r.Slices[j]; q.mig() && !q.Made && r.find(q, bays[q.GPUID].l) == nil {
					q.GI, q.Made = -1, true
				}
			}
			return explain(fmt.Sprintf("%s cannot be made on GPU %s", p.Slice.Slice, p.GPUID), err)
		}
	}
	return nil
}

// mode brings the GPU into the mode that a slice needs.
func (d *Driver) mode(ctx context.Context, b *bay, mig bool) error {
	if b.l.MIG == mig || !b.c.at.HasMIG {
		return nil
	}
	id := b.c.UUID
	word := map[bool]string{true: "on", false: "off"}[mig]
	if b.c.Model.SlowMode {
		return refuse(driver.ErrMode, "GPU %s needs MIG mode %s, and on %s that takes a GPU reset, which gpupool never does by itself: stop what uses the GPU, then nvidia-smi -i %d -mig %d and nvidia-smi --gpu-reset -i %d",
			id, word, b.c.Model.Arch, b.c.at.Index, map[bool]int{true: 1}[mig], b.c.at.Index)
	}
	_, err := d.lib.call(ctx, request{Op: opSetMIG, GPU: id, On: mig})
	if isFault(err, nvmlInUse, nvmlResetRequired) { // the mode waits for a reset now, which would surprise someone
		if _, e := d.lib.call(ctx, request{Op: opSetMIG, GPU: id, On: b.l.MIG}); e != nil {
			d.o.Log.Warn("a MIG mode that waits for the next reset cannot be taken back", "gpu", id, "err", e)
		}
	}
	switch {
	case isFault(err, nvmlInUse):
		return refuse(driver.ErrMode, "MIG mode of GPU %s cannot be switched %s while another program has the GPU open (%s): stop nvidia-dcgm, dcgm-exporter, nvsm, nvidia-persistenced's clients and the like, then try again", id, word, err)
	case isFault(err, nvmlResetRequired):
		return refuse(driver.ErrMode, "MIG mode of GPU %s is switched %s only by a reset, which gpupool never does by itself: nvidia-smi --gpu-reset -i %d, or reboot the machine", id, word, b.c.at.Index)
	case err != nil:
		return err
	}
	if b.l, err = d.look(ctx, b.c); err != nil {
		return unchanged(explain("GPU "+id+" cannot be looked at", err))
	}
	if b.l.MIG != mig {
		return refuse(driver.ErrMode, "MIG mode of GPU %s was switched %s and is not: nvidia-smi --gpu-reset -i %d, or reboot the machine", id, word, b.c.at.Index)
	}
	d.o.Log.Info("MIG mode was switched", "gpu", id, "mode", word)
	if mig && !b.c.Settled {
		return d.settle(ctx, b)
	}
	return nil
}

// settle learns a GPU's geometry now that MIG mode is on. Where it is another than the
// table's, what was planned with that is given up.
func (d *Driver) settle(ctx context.Context, b *bay) error {
	d.mu.Lock()
	before := b.c.Model
	d.mu.Unlock()
	fresh := &card{known: b.c.known, at: b.c.at}
	if err := d.shape(ctx, fresh); err != nil {
		return err
	}
	d.mu.Lock()
	b.c.Model, b.c.Settled, b.c.geo, b.c.why = fresh.Model, fresh.Settled, fresh.geo, fresh.why
	d.mu.Unlock()
	if err := d.saveMachine(); err != nil {
		return err
	}
	if fresh.why != "" || !sameGeometry(before, fresh.Model) {
		return refuse(driver.ErrIllegal, "the driver's MIG geometry of GPU %s is not the one that was planned with (%s%s): it is known from now on", b.c.UUID, differs(fresh.Model), fresh.why)
	}
	return nil
}

// step makes one slice.
func (d *Driver) step(ctx context.Context, r *record, p *piece, b *bay) error {
	switch p.Mode {
	case gpu.ModeShared:
		return d.mps.start(ctx, p.GPUID)
	case gpu.ModeMIG:
	case gpu.ModeWhole, gpu.ModeFree:
		return nil
	}
	if g := r.find(p, b.l); g != nil { // a crash cut the plan short
		if len(g.Procs) > 0 || len(g.CIs) > 1 {
			return &lostAnswer{op: opCreateGI, gpu: p.GPUID, why: fmt.Sprintf("instance %d stands at its place, and someone uses it", g.ID)}
		}
		p.GI, p.Made = g.ID, true
		if len(g.CIs) == 1 {
			p.CI, p.UUID = g.CIs[0].ID, g.CIs[0].UUID
			return nil
		}
	} else {
		got, err := d.lib.call(ctx, request{Op: opCreateGI, GPU: p.GPUID, Profile: p.ProfileID, Start: p.Start, Size: p.Size})
		if err != nil {
			return err
		}
		p.GI, p.Made = got.GI, true
	}
	got, err := d.lib.call(ctx, request{Op: opCreateCI, GPU: p.GPUID, GI: p.GI})
	if err != nil {
		return err
	}
	if got.UUID == "" {
		return refuse(driver.ErrHardware, "the driver gave MIG instance %d of GPU %s no name", p.GI, p.GPUID)
	}
	p.CI, p.UUID = got.CI, got.UUID
	return nil
}

// resize gives a part that stands other sizes, or leaves it as it is. Nothing changes
// on the hardware: limits are given to programs when they start.
func (d *Driver) resize(ctx context.Context, p driver.Part, r *record) ([]string, error) {
	if slices.EqualFunc(r.Slices, p.Slices, func(x piece, s driver.Slice) bool { return sameSlice(x.Slice, s) }) {
		return r.devices(), nil
	}
	if len(p.Slices) != len(r.Slices) {
		return nil, refuse(driver.ErrIllegal, "%s stands with %d slices and %d are asked for: free it, and carve for a new owner", p.Owner, len(r.Slices), len(p.Slices))
	}
	fresh := r.clone()
	for i, s := range p.Slices {
		switch old := r.Slices[i]; {
		case s.GPUID != old.GPUID:
			return nil, refuse(driver.ErrIllegal, "%s stands on GPU %s, not on %s: free it, and carve for a new owner", p.Owner, old.GPUID, s.GPUID)
		case sameSlice(s, old.Slice):
		case old.mig() || s.Mode == gpu.ModeMIG:
			return nil, refuse(driver.ErrIllegal, "MIG instances never change in place: free %s, and carve for a new owner", p.Owner)
		}
		fresh.Slices[i].Slice = s
	}
	bays, err := d.bays(ctx, p, r)
	if err != nil {
		return nil, err
	}
	for _, s := range p.Slices {
		if s.Mode != gpu.ModeMIG {
			if err := bays[s.GPUID].add(s.Slice); err != nil {
				return nil, err
			}
		}
	}
	for _, s := range p.Slices {
		if s.Mode == gpu.ModeShared {
			if err := d.mps.start(ctx, s.GPUID); err != nil {
				return nil, explain("the share cannot be made on GPU "+s.GPUID, err)
			}
		}
	}
	if err := d.keep(fresh); err != nil {
		return nil, err
	}
	d.quitMPS(fresh)
	return fresh.devices(), nil
}
