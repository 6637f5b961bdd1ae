package nvidia

import (
	"context"
	"fmt"
	"slices"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// bay is a GPU while a part is planned on it: what NVML shows, and what the records of
// others hold.
type bay struct {
	c      *card
	l      *look
	others int // parts
	whole  bool
	milli  int   // of shares
	mem    int64 // MiB, of shares
	shares int
	placed []gpu.Placed // of this part
	taken  []instance   // by all others, whoever made them
	mig    bool         // the mode that it will be in
}

// bays looks at every GPU of a part. What the owner itself has does not count.
func (d *Driver) bays(ctx context.Context, p driver.Part, own *record) (map[string]*bay, error) {
	out := map[string]*bay{}
	for _, s := range p.Slices {
		if out[s.GPUID] != nil {
			continue
		}
		c := d.card(s.GPUID)
		switch {
		case c == nil:
			return nil, refuse(driver.ErrNoDevice, "host %s has no GPU %s", p.Host, s.GPUID)
		case c.absent:
			return nil, refuse(driver.ErrLost, "GPU %s is not there any more", s.GPUID)
		case c.why != "":
			return nil, refuse(driver.ErrForbidden, "GPU %s may not be used: %s", s.GPUID, c.why)
		}
		l, err := d.look(ctx, c)
		if err != nil {
			return nil, unchanged(explain("GPU "+s.GPUID+" cannot be looked at", err))
		}
		b := &bay{c: c, l: l, mig: l.MIG}
		d.mu.Lock()
		for o, r := range d.parts {
			if o != p.Owner {
				b.count(r)
			}
		}
		d.mu.Unlock()
		for i := range l.GIs {
			if own == nil || !slices.ContainsFunc(own.Slices, func(p piece) bool { return p.mig() && p.GPUID == s.GPUID && own.find(&p, l) == &l.GIs[i] }) {
				b.taken = append(b.taken, l.GIs[i])
			}
		}
		out[s.GPUID] = b
	}
	return out, nil
}

// unchanged says of an error that nothing was done: a look changes nothing.
func unchanged(err error) error {
	if e, is := err.(*driver.Error); is && e.Code == driver.ErrUnclear { //nolint:errorlint // made just now
		return refuse(driver.ErrHardware, "%s; nothing was changed", e.Msg)
	}
	return err
}

// count adds what a part of someone else has of the GPU.
func (b *bay) count(r *record) {
	here := false
	for _, p := range r.Slices {
		if p.GPUID != b.c.UUID {
			continue
		}
		here = true
		switch p.Mode {
		case gpu.ModeWhole:
			b.whole = true
		case gpu.ModeShared:
			b.share(p.Slice.Slice)
		case gpu.ModeMIG, gpu.ModeFree: // the look shows it
		}
	}
	if here {
		b.others++
	}
}

func (b *bay) share(s work.Slice) {
	b.milli, b.mem, b.shares = b.milli+s.Share.Milli, b.mem+s.Share.MemMiB, b.shares+1
}

// add puts one slice more on the GPU, or says why it cannot stand there.
func (b *bay) add(s work.Slice) error {
	id := b.c.UUID
	switch s.Mode {
	case gpu.ModeMIG:
		return b.addMIG(s)
	case gpu.ModeWhole:
		if b.whole || b.shares > 0 {
			return refuse(driver.ErrOverlap, "GPU %s is in use", id)
		}
	case gpu.ModeShared:
		switch {
		case s.Share == nil || s.Share.Milli < 1 || s.Share.MemMiB < 0:
			return refuse(driver.ErrIllegal, "a shared slice needs its share: at least a thousandth, and memory that is not negative")
		case b.whole:
			return refuse(driver.ErrOverlap, "GPU %s is in use as a whole", id)
		case s.Share.Milli > 1000-b.milli || s.Share.MemMiB > b.c.Model.MemoryMiB-b.mem:
			return refuse(driver.ErrOverlap, "a share of %d/1000 and %d MiB is more than is left beside %d/1000 and %d MiB of %d", s.Share.Milli, s.Share.MemMiB, b.milli, b.mem, b.c.Model.MemoryMiB)
		}
	default:
		return refuse(driver.ErrIllegal, "a slice cannot be made in mode %q", s.Mode)
	}
	if n := len(b.taken) + len(b.placed); n > 0 {
		return refuse(driver.ErrMode, "GPU %s is cut into %d MIG instances: it can be used whole or shared once they are gone", id, n)
	}
	b.mig = false
	if s.Mode == gpu.ModeWhole {
		b.whole = true
	} else {
		b.share(s)
	}
	return nil
}

func (b *bay) addMIG(s work.Slice) error {
	m := b.c.Model
	i := b.c.geo.Index(s.Profile)
	switch {
	case i < 0:
		return refuse(driver.ErrIllegal, "%s has no profile %s", m.Key, s.Profile)
	case !slices.Contains(m.Profiles[i].Starts, s.Start):
		return refuse(driver.ErrIllegal, "%s may not start at %d; it may at %v", s.Profile, s.Start, m.Profiles[i].Starts)
	case b.whole || b.shares > 0:
		return refuse(driver.ErrMode, "GPU %s is in use undivided: it can be cut once it is empty", b.c.UUID)
	}
	p := m.Profiles[i]
	compute, same := p.Compute, 1
	beside := func(name string, id, start, units int) error {
		if start < s.Start+p.Units && s.Start < start+units {
			return refuse(driver.ErrOverlap, "%s at %d would overlap %s at %d", p.Name, s.Start, name, start)
		}
		if j := slices.IndexFunc(m.Profiles, func(q gpu.Profile) bool { return q.ID == id }); j >= 0 {
			compute += m.Profiles[j].Compute
		}
		if id == p.ID {
			same++
		}
		return nil
	}
	for _, g := range b.taken {
		if err := beside(fmt.Sprintf("instance %d", g.ID), g.Profile, g.Start, g.Size); err != nil {
			return err
		}
	}
	for _, x := range b.placed {
		q, _ := m.Profile(x.Profile)
		if err := beside(q.Name, q.ID, x.Start, q.Units); err != nil {
			return err
		}
	}
	if compute > m.Slices || same > p.Max {
		return refuse(driver.ErrOverlap, "%s at %d needs more compute slices than are left", p.Name, s.Start)
	}
	b.placed, b.mig = append(b.placed, gpu.Placed{Profile: p.Name, Start: s.Start}), true
	return nil
}

// idle refuses a GPU that someone uses beside gpupool.
func (b *bay) idle() error {
	if b.others == 0 && len(b.l.Procs) > 0 {
		return refuse(driver.ErrInUse, "GPU %s is used by %d processes that gpupool did not start (%s): end them", b.c.UUID, len(b.l.Procs), pids(b.l.Procs))
	}
	return nil
}

// plan checks that a whole part fits and writes down its steps.
func (d *Driver) plan(p driver.Part, bays map[string]*bay) (*record, error) {
	r := &record{Owner: p.Owner, Tenant: p.Tenant, Host: p.Host, Boot: d.boot, State: making, Before: map[string][]int{}}
	for _, s := range p.Slices {
		b := bays[s.GPUID]
		if err := b.add(s.Slice); err != nil {
			return nil, err
		}
		if err := b.idle(); err != nil {
			return nil, err
		}
		x := piece{Slice: s}
		if s.Mode == gpu.ModeMIG {
			q, _ := b.c.Model.Profile(s.Profile)
			x.ProfileID, x.Size, x.CI = q.ID, q.Units, -1
		}
		r.Slices = append(r.Slices, x)
		r.Before[s.GPUID] = nil
		for _, g := range b.l.GIs {
			r.Before[s.GPUID] = append(r.Before[s.GPUID], g.ID)
		}
	}
	return r, nil
}
