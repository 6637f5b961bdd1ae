// Package fake is a driver for GPUs that do not exist: any number of hosts whose
// boards keep state and refuse what hardware refuses.
//
// Hardware is the state machine alone, without clock and lock, for the simulator;
// Driver puts time, load and faults around it, for the server and for tests. Carve
// and Free cost what the part has slices; Observe and Usage walk everything.
package fake

import (
	"fmt"
	"time"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// Times is how long the hardware takes. NVIDIA publishes no such table; the
// defaults are assumptions (facts/nvidia.md: destroying an instance may take
// about a second).
type Times struct {
	SetMIG     time.Duration // switching MIG mode where that needs no reset
	SetMIGSlow time.Duration // and where it does (Ampere)
	Create     time.Duration // a GPU instance with its compute instance
	Destroy    time.Duration
	Whole      time.Duration // handing out a whole GPU
	Share      time.Duration // starting a share (MPS)
}

// DefaultTimes are the assumptions used unless told otherwise.
func DefaultTimes() Times {
	return Times{SetMIG: time.Second, SetMIGSlow: 10 * time.Second, Create: time.Second, Destroy: time.Second,
		Whole: 100 * time.Millisecond, Share: 200 * time.Millisecond}
}

// Hardware is boards in hosts. It is not safe for concurrent use.
type Hardware struct {
	hosts  []gpu.HostInfo
	models []gpu.Model
	times  Times
	boards map[string]*Board // by UUID
	parts  map[work.Owner]*part
	freed  freedOwners
}

// part is what stands for an owner. Hardware only needs to know where; it is small
// because the simulator makes millions.
type part struct {
	boards  []*Board  // of its slices, in order
	one     [1]*Board // the memory of boards, where one is enough
	unclear bool      // half done
	carved  *carved   // as Driver made it; nil for the simulator
}

// carved is what a Driver was asked for and answered.
type carved struct {
	driver.Part
	devices []string
}

// NewHardware makes empty boards. Every GPU's model must be among the models.
func NewHardware(hosts []gpu.HostInfo, models []gpu.Model, t Times) (*Hardware, error) {
	h := &Hardware{hosts: hosts, models: models, times: t, boards: map[string]*Board{}, parts: map[work.Owner]*part{}}
	geos := map[string]*gpu.Geometry{}
	for _, m := range models {
		if err := m.Validate(); err != nil {
			return nil, err
		}
	}
	for _, host := range hosts {
		for _, g := range host.GPUs {
			if geos[g.Model] == nil {
				for _, m := range models {
					if m.Key == g.Model {
						geos[g.Model] = gpu.NewGeometry(m)
					}
				}
			}
			switch {
			case geos[g.Model] == nil:
				return nil, fmt.Errorf("host %s: GPU model %s is not known", host.Name, g.Model)
			case h.boards[g.ID] != nil:
				return nil, fmt.Errorf("host %s: GPU %s is named twice", host.Name, g.ID)
			}
			h.boards[g.ID] = &Board{geo: geos[g.Model], host: host.Name}
		}
	}
	return h, nil
}

// Carve makes every slice of a part, or none, and returns how long that takes. A
// part that stands gets the sizes that are asked for now. It follows the contract of driver.Driver.
func (h *Hardware) Carve(p driver.Part) (time.Duration, error) {
	if old := h.parts[p.Owner]; old != nil {
		if old.unclear {
			return 0, refuse(driver.ErrUnclear, "an earlier try for %s is half done: free it first", p.Owner)
		}
		return h.resize(old, &p)
	}
	if h.freed.has(p.Owner) {
		return 0, refuse(driver.ErrFreed, "%s was freed already: an owner is never used twice", p.Owner)
	}
	made := &part{}
	made.boards = made.one[:0]
	var took time.Duration
	for i := range p.Slices {
		s := &p.Slices[i]
		b, err := h.boardOf(p.Host, s.GPUID)
		var d time.Duration
		if err == nil {
			d, err = h.carve(b, p.Owner, s)
		}
		if err != nil {
			for _, b := range made.boards {
				b.free(p.Owner) //nolint:errcheck // made just now, nothing uses it
			}
			return 0, err
		}
		made.boards = append(made.boards, b)
		took = max(took, d) // GPUs are cut side by side
	}
	h.parts[p.Owner] = made
	return took, nil
}

func (h *Hardware) boardOf(host, id string) (*Board, error) {
	b := h.boards[id]
	if b == nil || b.host != host {
		return nil, refuse(driver.ErrNoDevice, "host %s has no GPU %s", host, id)
	}
	return b, nil
}

// carve makes one slice.
func (h *Hardware) carve(b *Board, o work.Owner, s *driver.Slice) (time.Duration, error) {
	var took time.Duration
	if wants := s.Mode == gpu.ModeMIG; wants != b.mig && b.empty() && b.geo.Model.HasMIG() {
		if err := b.SetMIG(wants); err != nil {
			return 0, err
		}
		took = h.times.SetMIG
		if b.geo.Model.SlowMode {
			took = h.times.SetMIGSlow
		}
	}
	switch s.Mode {
	case gpu.ModeWhole:
		return took + h.times.Whole, b.takeWhole(o)
	case gpu.ModeShared:
		if s.Share == nil {
			return 0, refuse(driver.ErrIllegal, "a shared slice needs its share")
		}
		return took + h.times.Share, b.takeShare(o, *s.Share)
	case gpu.ModeMIG:
		gi, err := b.CreateGI(s.Profile, s.Start)
		if err != nil {
			return 0, err
		}
		b.gis[len(b.gis)-1].owner = o
		return took + h.times.Create, b.CreateCI(gi)
	}
	return 0, refuse(driver.ErrIllegal, "a slice cannot be made in mode %q", s.Mode)
}

// Free destroys what stands for the owner and returns how long that takes.
func (h *Hardware) Free(host string, o work.Owner) (time.Duration, error) {
	p := h.parts[o]
	if p == nil {
		h.freed.add(o)
		return 0, nil
	}
	var took time.Duration
	for _, b := range p.boards {
		if b.lost != "" {
			continue // gone with the GPU; a reset leaves nothing
		}
		if err := b.free(o); err != nil {
			return 0, err
		}
		if b.mig {
			took = h.times.Destroy
		}
	}
	delete(h.parts, o)
	h.freed.add(o)
	return took, nil
}

// Board gives a GPU by its UUID, or nil: for tests of the rules.
func (h *Hardware) Board(id string) *Board { return h.boards[id] }
