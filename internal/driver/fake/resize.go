package fake

import (
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// resize gives a part that stands the sizes that are asked for now, all of them or
// none, and returns how long that takes. The GPUs and the instances stay.
func (h *Hardware) resize(old *part, p *driver.Part) (time.Duration, error) {
	if len(p.Slices) != len(old.boards) {
		return 0, refuse(driver.ErrIllegal, "%s stands with %d slices and %d are asked for: free it, and carve for a new owner", p.Owner, len(old.boards), len(p.Slices))
	}
	for i := range p.Slices {
		if b, err := h.boardOf(p.Host, p.Slices[i].GPUID); err != nil || b != old.boards[i] {
			return 0, refuse(driver.ErrIllegal, "%s stands on other GPUs than %s: free it, and carve for a new owner", p.Owner, p.Slices[i].GPUID)
		}
	}
	var undo []func()
	var took time.Duration
	for i, b := range old.boards {
		if slices.Index(old.boards, b) < i {
			continue // done with its first slice
		}
		var want []*driver.Slice
		for j := range p.Slices {
			if old.boards[j] == b {
				want = append(want, &p.Slices[j])
			}
		}
		back, err := b.resize(p.Owner, want)
		if err != nil {
			for _, f := range undo {
				f()
			}
			return 0, err
		}
		if back != nil {
			undo = append(undo, back)
			took = max(took, h.sizing(want))
		}
	}
	return took, nil
}

// sizing is how long one GPU takes for its new sizes.
func (h *Hardware) sizing(want []*driver.Slice) time.Duration {
	if want[0].Mode == gpu.ModeWhole {
		return h.times.Whole
	}
	return h.times.Share
}

// resize makes what an owner has of the board what is wanted, in the order of its
// slices. Processes stay where they are. It returns how to undo that, or nil where
// nothing was to be done.
func (b *Board) resize(o work.Owner, want []*driver.Slice) (undo func(), err error) {
	var held []use
	same := true
	hold := func(u use, is func(*driver.Slice) bool) {
		same = same && len(held) < len(want) && is(want[len(held)])
		held = append(held, u)
	}
	cut := false
	if b.whole != nil && b.whole.owner == o {
		hold(*b.whole, func(s *driver.Slice) bool { return s.Mode == gpu.ModeWhole })
	}
	for _, x := range b.shares {
		if x.owner == o {
			hold(x.use, func(s *driver.Slice) bool {
				return s.Mode == gpu.ModeShared && s.Share != nil && *s.Share == work.Share{Milli: x.milli, MemMiB: x.memMiB}
			})
		}
	}
	for _, g := range b.gis {
		if g.owner == o {
			cut = true
			hold(g.use, func(s *driver.Slice) bool {
				return s.Mode == gpu.ModeMIG && s.Start == g.start && s.Profile == b.geo.Model.Profiles[g.profile].Name
			})
		}
	}
	switch {
	case same && len(held) == len(want):
		return nil, nil
	case b.lost != "":
		return nil, b.alive()
	case len(held) != len(want): // someone else was at the board
		return nil, refuse(driver.ErrUnclear, "%s holds %d slices of the GPU where %d were made: free it", o, len(held), len(want))
	case cut || slices.ContainsFunc(want, func(s *driver.Slice) bool { return s.Mode == gpu.ModeMIG }):
		return nil, refuse(driver.ErrIllegal, "MIG instances never change in place: free %s, and carve for a new owner", o)
	}
	return b.reshape(o, held, want)
}

// reshape takes an owner's part of the board away and gives it another. When that
// is refused the board is as it was.
func (b *Board) reshape(o work.Owner, held []use, want []*driver.Slice) (undo func(), err error) {
	before := *b
	before.shares = slices.Clone(b.shares)
	undo = func() { *b = before }
	if b.whole != nil && b.whole.owner == o {
		b.whole = nil
	}
	b.shares = slices.DeleteFunc(b.shares, func(x share) bool { return x.owner == o })
	for i, s := range want {
		procs := held[i].procs
		switch {
		case s.Mode == gpu.ModeWhole:
			if err = b.takeWhole(o); err == nil {
				b.whole.procs = procs
			}
		case s.Mode == gpu.ModeShared && s.Share != nil:
			if err = b.takeShare(o, *s.Share); err == nil {
				b.shares[len(b.shares)-1].procs = procs
			}
		default:
			err = refuse(driver.ErrIllegal, "a slice in mode %q with share %v cannot be made of what %s holds", s.Mode, s.Share, o)
		}
		if err != nil {
			undo()
			return nil, err
		}
	}
	return undo, nil
}
