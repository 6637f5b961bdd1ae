package fake

import (
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/work"
)

// FailCarves lets the next n carves of new owners fail with a code, leaving nothing.
func (d *Driver) FailCarves(n int, code driver.Code) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults.carveFails, d.faults.carveErr = n, code
}

// HalfCarves lets the next n carves stop half way with ErrUnclear: some slices
// stand until Free.
func (d *Driver) HalfCarves(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults.halfCarves = n
}

// HalfFrees lets the next n frees stop half way with ErrUnclear: compute instances
// are gone, GPU instances stand.
func (d *Driver) HalfFrees(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults.halfFrees = n
}

// LoseGPU lets a GPU stop answering; an empty why lets it come back, empty.
func (d *Driver) LoseGPU(id, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.hw.boards[id]
	if why == "" {
		*b = Board{geo: b.geo, host: b.host}
		d.forgetParts(func(p *part) bool { return slices.Contains(p.boards, b) })
	}
	b.lost = why
}

// forgetParts drops parts whose slices went with their boards.
func (d *Driver) forgetParts(gone func(*part) bool) {
	for o, p := range d.hw.parts {
		if gone(p) {
			for _, b := range p.boards {
				for _, u := range b.uses() {
					if u.owner == o {
						u.procs = 0 // a program that lost one of its GPUs dies
					}
				}
				b.free(o) //nolint:errcheck // no process holds it
			}
			delete(d.hw.parts, o)
		}
	}
}

// LoseHost lets a host stop answering, or come back as it was.
func (d *Driver) LoseHost(name string, lost bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults.gone[name] = lost
}

// Reboot empties every board of a host: no instance survives that.
func (d *Driver) Reboot(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.hw.boards {
		if b.host == name {
			*b = Board{geo: b.geo, host: b.host}
		}
	}
	d.forgetParts(func(p *part) bool { return p.carved.Host == name })
}

// Slow makes every call take longer; a negative time makes it hang until its
// context ends.
func (d *Driver) Slow(t time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults.delay = t
}

// Stick attaches a number of processes to what stands for an owner, so that it
// cannot be freed until they are taken off with 0.
func (d *Driver) Stick(o work.Owner, procs int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.hw.parts[o]
	if p == nil {
		return
	}
	for _, b := range p.boards {
		for _, u := range b.uses() {
			if u.owner == o {
				u.procs = procs
			}
		}
	}
}
