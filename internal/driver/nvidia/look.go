package nvidia

import (
	"context"
	"slices"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// look sees a GPU now.
func (d *Driver) look(ctx context.Context, c *card) (*look, error) {
	got, err := d.lib.call(ctx, request{Op: opLook, GPU: c.UUID})
	if err != nil {
		return nil, err
	}
	got.Look.Procs = slices.DeleteFunc(got.Look.Procs, func(p process) bool { return d.mps.serves(p.PID) })
	return got.Look, nil
}

// find gives the instance that a slice became, or nil. Where its ids are not known, as
// after a crash, it is the one at its place that was not there before.
func (r *record) find(p *piece, l *look) *instance {
	for i := range l.GIs {
		g := &l.GIs[i]
		if g.Start != p.Start || g.Profile != p.ProfileID {
			continue
		}
		if p.Made && g.ID == p.GI && (p.UUID == "" || len(g.CIs) == 0 || slices.ContainsFunc(g.CIs, func(c compute) bool { return c.UUID == p.UUID })) {
			return g
		}
		if !p.Made && r.State != standing && !slices.Contains(r.Before[p.GPUID], g.ID) {
			return g
		}
	}
	return nil
}

// owner says whose an instance is.
func (d *Driver) owner(gpuID string, g *instance, l *look) (work.Owner, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for o, r := range d.parts {
		for i := range r.Slices {
			if p := &r.Slices[i]; p.GPUID == gpuID && p.mig() && r.find(p, l) == g {
				return o, true
			}
		}
	}
	return work.Owner{}, false
}

// foreign lists the instances on a GPU that no record names.
func (d *Driver) foreign(c *card, l *look) (out []instance) {
	for i := range l.GIs {
		if _, ours := d.owner(c.UUID, &l.GIs[i], l); !ours {
			out = append(out, l.GIs[i])
		}
	}
	return out
}

// users counts the parts that have something of a GPU.
func (d *Driver) users(gpuID string) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.parts {
		if slices.ContainsFunc(r.Slices, func(p piece) bool { return p.GPUID == gpuID }) {
			n++
		}
	}
	return n
}

// sharers counts the shares on a GPU, of all but one owner.
func (d *Driver) sharers(gpuID string, except work.Owner) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for o, r := range d.parts {
		for _, p := range r.Slices {
			if o != except && p.GPUID == gpuID && p.Mode == gpu.ModeShared {
				n++
			}
		}
	}
	return n
}

// record gives what is kept of an owner, or nil. It never changes: others read it too.
func (d *Driver) record(o work.Owner) *record {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.parts[o]
}

// keep writes a record and shows a copy of it.
func (d *Driver) keep(r *record) error {
	if err := d.store.put(r); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.parts[r.Owner] = r.clone()
	return nil
}

func (r *record) clone() *record {
	c := *r
	c.Slices = slices.Clone(r.Slices)
	return &c
}

// forget removes a record. That it is gone from the disk comes first: what is shown as
// free must not come back.
func (d *Driver) forget(o work.Owner) error {
	if err := d.store.drop(o); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.parts, o)
	return nil
}

// card finds a GPU of this machine, or nil.
func (d *Driver) card(id string) *card {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cards[id]
}
