package fake

import (
	"fmt"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// Board is one GPU as NVML shows it: a MIG switch, GPU instances at places, compute
// instances in them, and processes. It refuses what hardware refuses.
type Board struct {
	geo    *gpu.Geometry
	host   string
	mig    bool
	lost   string // why it does not answer any more; "" = it does
	gis    []*instance
	shares []share
	whole  *use // nil, or &all
	all    use
	nextGI int
}

// use is who uses a part of a board, and how many processes hold it.
type use struct {
	owner work.Owner
	procs int
}

// instance is a GPU instance and the one compute instance that gpupool makes in it.
type instance struct {
	use
	id      int
	profile int
	start   int
	ci      bool
}

type share struct {
	use
	milli  int
	memMiB int64
}

func refuse(code driver.Code, format string, args ...any) error {
	return &driver.Error{Code: code, Msg: fmt.Sprintf(format, args...)}
}

// alive refuses every call on a board that was lost.
func (b *Board) alive() error {
	if b.lost != "" {
		return refuse(driver.ErrLost, "the GPU does not answer: %s", b.lost)
	}
	return nil
}

// SetMIG switches MIG mode. The board must be empty.
func (b *Board) SetMIG(on bool) error {
	switch {
	case b.lost != "":
		return b.alive()
	case !b.geo.Model.HasMIG():
		return refuse(driver.ErrIllegal, "%s has no MIG", b.geo.Model.Key)
	case b.mig != on && (len(b.gis) > 0 || len(b.shares) > 0 || b.whole != nil):
		return refuse(driver.ErrInUse, "MIG mode cannot change while the GPU is in use")
	}
	b.mig = on
	return nil
}

// CreateGI makes a GPU instance at a place and returns its number.
func (b *Board) CreateGI(profile string, start int) (int, error) {
	if err := b.alive(); err != nil {
		return 0, err
	}
	if !b.mig {
		return 0, refuse(driver.ErrMode, "a GPU instance needs MIG mode, which is off")
	}
	i := b.geo.Index(profile)
	if i < 0 {
		return 0, refuse(driver.ErrIllegal, "%s has no profile %s", b.geo.Model.Key, profile)
	}
	p := b.geo.Model.Profiles[i]
	if start < 0 || start >= b.geo.Model.Units || b.geo.Starts(i, 0)&(1<<start) == 0 {
		return 0, refuse(driver.ErrIllegal, "%s may not start at %d; it may at %v", profile, start, p.Starts)
	}
	compute, same := p.Compute, 1
	for _, g := range b.gis {
		q := b.geo.Model.Profiles[g.profile]
		if q.Mask(g.start)&p.Mask(start) != 0 {
			return 0, refuse(driver.ErrOverlap, "%s at %d would overlap %s at %d", profile, start, q.Name, g.start)
		}
		compute += q.Compute
		if g.profile == i {
			same++
		}
	}
	if compute > b.geo.Model.Slices || same > p.Max {
		return 0, refuse(driver.ErrOverlap, "%s at %d needs more compute slices than are left", profile, start)
	}
	b.nextGI++
	b.gis = append(b.gis, &instance{id: b.nextGI, profile: i, start: start})
	return b.nextGI, nil
}

func (b *Board) gi(id int) (*instance, error) {
	if err := b.alive(); err != nil {
		return nil, err
	}
	for _, g := range b.gis {
		if g.id == id {
			return g, nil
		}
	}
	return nil, refuse(driver.ErrNoDevice, "there is no GPU instance %d", id)
}

// CreateCI makes the compute instance of a GPU instance.
func (b *Board) CreateCI(gi int) error {
	g, err := b.gi(gi)
	if err != nil {
		return err
	}
	if g.ci {
		return refuse(driver.ErrOverlap, "GPU instance %d has its compute instance already", gi)
	}
	g.ci = true
	return nil
}

// DestroyCI destroys the compute instance. No process may be on it.
func (b *Board) DestroyCI(gi int) error {
	g, err := b.gi(gi)
	switch {
	case err != nil:
		return err
	case !g.ci:
		return refuse(driver.ErrNoDevice, "GPU instance %d has no compute instance", gi)
	case g.procs > 0:
		return refuse(driver.ErrInUse, "%d processes use GPU instance %d", g.procs, gi)
	}
	g.ci = false
	return nil
}

// DestroyGI destroys a GPU instance. It may hold no compute instance.
func (b *Board) DestroyGI(gi int) error {
	g, err := b.gi(gi)
	switch {
	case err != nil:
		return err
	case g.ci:
		return refuse(driver.ErrInUse, "GPU instance %d still has its compute instance", gi)
	}
	for i := range b.gis {
		if b.gis[i] == g {
			b.gis = append(b.gis[:i], b.gis[i+1:]...)
			break
		}
	}
	return nil
}

// takeWhole gives the whole board to one owner.
func (b *Board) takeWhole(o work.Owner) error {
	switch {
	case b.lost != "":
		return b.alive()
	case b.mig:
		return refuse(driver.ErrMode, "the GPU is in MIG mode")
	case b.whole != nil || len(b.shares) > 0:
		return refuse(driver.ErrOverlap, "the GPU is in use")
	}
	b.all = use{owner: o}
	b.whole = &b.all
	return nil
}

// takeShare gives a share of the board's compute and memory to an owner.
func (b *Board) takeShare(o work.Owner, s work.Share) error {
	milli, mem := 0, int64(0) // taken by others
	for _, x := range b.shares {
		milli, mem = milli+x.milli, mem+x.memMiB
	}
	switch {
	case b.lost != "":
		return b.alive()
	case b.mig:
		return refuse(driver.ErrMode, "the GPU is in MIG mode")
	case b.whole != nil:
		return refuse(driver.ErrOverlap, "the GPU is in use as a whole")
	case s.Milli < 1 || s.MemMiB < 0:
		return refuse(driver.ErrIllegal, "a share of %d/1000 and %d MiB is no share", s.Milli, s.MemMiB)
	case s.Milli > 1000-milli || s.MemMiB > b.geo.Model.MemoryMiB-mem && b.geo.Model.MemoryMiB > 0:
		return refuse(driver.ErrOverlap, "a share of %d/1000 and %d MiB is more than is left beside %d/1000 and %d MiB of %d",
			s.Milli, s.MemMiB, milli, mem, b.geo.Model.MemoryMiB)
	}
	b.shares = append(b.shares, share{use{owner: o}, s.Milli, s.MemMiB})
	return nil
}

// free undoes what stands for an owner, children first. Nothing is an answer too.
func (b *Board) free(o work.Owner) error {
	if b.whole != nil && b.whole.owner == o {
		if b.whole.procs > 0 {
			return refuse(driver.ErrInUse, "%d processes use the GPU", b.whole.procs)
		}
		b.whole = nil
	}
	for i := 0; i < len(b.shares); {
		switch s := b.shares[i]; {
		case s.owner != o:
			i++
		case s.procs > 0:
			return refuse(driver.ErrInUse, "%d processes use the share", s.procs)
		default:
			b.shares = append(b.shares[:i], b.shares[i+1:]...)
		}
	}
	for i := 0; i < len(b.gis); {
		g := b.gis[i]
		if g.owner != o {
			i++
			continue
		}
		if g.ci {
			if err := b.DestroyCI(g.id); err != nil {
				return err
			}
		}
		if err := b.DestroyGI(g.id); err != nil {
			return err
		}
	}
	return nil
}

// uses lists what stands on the board.
func (b *Board) uses() []*use {
	var out []*use
	if b.whole != nil {
		out = append(out, b.whole)
	}
	for i := range b.shares {
		out = append(out, &b.shares[i].use)
	}
	for _, g := range b.gis {
		out = append(out, &g.use)
	}
	return out
}

func (b *Board) empty() bool { return b.whole == nil && len(b.shares) == 0 && len(b.gis) == 0 }
