package fake

import (
	"context"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// Options of a Driver. Zero values mean the defaults.
type Options struct {
	Times Times                  // default DefaultTimes; negative values mean no time at all
	Load  func(driver.Part) Load // what the processes of a part do; default LoadOf
}

// Load is what the processes of a part do to it.
type Load struct {
	Compute float64 // mean share of the part's compute in use, 0 to 1
	Memory  float64 // share of the part's memory in use, 0 to 1
}

// LoadOf gives each task its own steady load: half of them hardly busy, as
// measured clusters are (../shared/traces/utilisation: median under 5 %, mean 16 %).
func LoadOf(p driver.Part) Load {
	x := noise(uint64(p.Owner.Task), 1)
	return Load{Compute: x * x * x, Memory: 0.1 + 0.8*noise(uint64(p.Owner.Task), 2)}
}

// Driver is a driver.Driver over fake hardware. Calls take as long as the hardware
// would, and fail as they are told to.
type Driver struct {
	load func(driver.Part) Load

	mu     sync.Mutex
	hw     *Hardware
	closed bool
	faults faults
}

// faults is what tests asked to go wrong.
type faults struct {
	carveErr   driver.Code
	carveFails int
	halfCarves int
	halfFrees  int
	gone       map[string]bool // hosts
	delay      time.Duration   // more for each call; negative: hang until ctx ends
	verdicts   map[string]driver.Verdict
	reported   map[string][]driver.Fault // by GPU, the oldest first
	sharing    string                    // of every host
}

// New makes a driver over empty boards.
func New(hosts []gpu.HostInfo, models []gpu.Model, o Options) (*Driver, error) {
	if o.Times == (Times{}) {
		o.Times = DefaultTimes()
	}
	if o.Load == nil {
		o.Load = LoadOf
	}
	hw, err := NewHardware(hosts, models, o.Times)
	if err != nil {
		return nil, err
	}
	return &Driver{hw: hw, load: o.Load, faults: faults{gone: map[string]bool{}, verdicts: map[string]driver.Verdict{}, reported: map[string][]driver.Fault{}}}, nil
}

// take lets a call last as long as it does.
func (d *Driver) take(ctx context.Context, t time.Duration) error {
	if t <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// enter checks what every call on a host checks, and makes it slow if asked to.
func (d *Driver) enter(ctx context.Context, host string) error {
	d.mu.Lock()
	delay, gone, closed := d.faults.delay, d.faults.gone[host], d.closed
	d.mu.Unlock()
	if delay < 0 {
		<-ctx.Done()
	}
	if err := d.take(ctx, delay); err != nil {
		return err
	}
	switch {
	case closed:
		return refuse(driver.ErrForbidden, "the driver was closed")
	case gone:
		return refuse(driver.ErrNoDevice, "host %s does not answer", host)
	}
	return nil
}

// Carve implements driver.Driver.
func (d *Driver) Carve(ctx context.Context, p driver.Part) ([]string, error) {
	if err := d.enter(ctx, p.Host); err != nil {
		return nil, err
	}
	d.mu.Lock()
	devices, took, err := d.carve(p)
	d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return devices, d.take(ctx, took)
}

func (d *Driver) carve(p driver.Part) ([]string, time.Duration, error) {
	known := d.hw.parts[p.Owner]
	if known == nil && d.faults.carveFails > 0 {
		d.faults.carveFails--
		return nil, 0, refuse(d.faults.carveErr, "told to fail")
	}
	half := known == nil && d.faults.halfCarves > 0 && len(p.Slices) > 0
	if half {
		d.faults.halfCarves--
		p.Slices = p.Slices[:(len(p.Slices)+1)/2]
	}
	took, err := d.hw.Carve(p)
	if err != nil {
		return nil, 0, err
	}
	x := d.hw.parts[p.Owner]
	if x.carved == nil {
		x.carved = &carved{Part: p}
	}
	x.carved.Slices = slices.Clone(p.Slices) // of a part that stood: its new sizes
	if half {
		x.unclear = true
		return nil, 0, refuse(driver.ErrUnclear, "%d slices of %s were made, then the driver failed", len(p.Slices), p.Owner)
	}
	if x.carved.devices == nil {
		for _, s := range p.Slices {
			x.carved.devices = append(x.carved.devices, device(p.Owner, s))
		}
	}
	return x.carved.devices, took, nil
}

// device names a slice as CUDA_VISIBLE_DEVICES does.
func device(o work.Owner, s driver.Slice) string {
	if s.Mode != gpu.ModeMIG {
		return s.GPUID
	}
	h := fnv.New128a()
	fmt.Fprint(h, s.GPUID, s.Profile, s.Start, o)
	x := hex.EncodeToString(h.Sum(nil))
	return "MIG-" + x[:8] + "-" + x[8:12] + "-5" + x[13:16] + "-8" + x[17:20] + "-" + x[20:]
}

// Free implements driver.Driver.
func (d *Driver) Free(ctx context.Context, host string, o work.Owner) error {
	if err := d.enter(ctx, host); err != nil {
		return err
	}
	d.mu.Lock()
	took, err := d.free(host, o)
	d.mu.Unlock()
	if err != nil {
		return err
	}
	return d.take(ctx, took)
}

func (d *Driver) free(host string, o work.Owner) (time.Duration, error) {
	p := d.hw.parts[o]
	if p != nil && d.faults.halfFrees > 0 {
		d.faults.halfFrees--
		p.unclear = true // no carve may say that it stands
		for _, b := range p.boards {
			for _, g := range b.gis {
				if g.owner == o && g.procs == 0 {
					g.ci = false // the child is gone, the parent stands
				}
			}
		}
		return 0, refuse(driver.ErrUnclear, "the compute instances of %s were destroyed, then the driver failed", o)
	}
	return d.hw.Free(host, o)
}

// Observe implements driver.Driver.
func (d *Driver) Observe(ctx context.Context) (driver.Inventory, error) {
	if err := d.enter(ctx, ""); err != nil {
		return driver.Inventory{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var inv driver.Inventory
	inv.Models = d.usedModels()
	for _, h := range d.hw.hosts {
		if d.faults.gone[h.Name] {
			continue
		}
		h.Sharing = d.faults.sharing
		inv.Hosts = append(inv.Hosts, h)
		for _, g := range h.GPUs {
			d.ails(&inv, g.ID)
		}
	}
	for _, o := range d.owners() {
		if p := d.hw.parts[o]; !d.faults.gone[p.carved.Host] {
			inv.Parts = append(inv.Parts, driver.Seen{Host: p.carved.Host, Owner: o})
		}
	}
	return inv, nil
}

// usedModels are the models that some host has.
func (d *Driver) usedModels() (out []gpu.Model) {
	for _, m := range d.hw.models {
		for _, b := range d.hw.boards {
			if b.geo.Model.Key == m.Key {
				out = append(out, m)
				break
			}
		}
	}
	return out
}

func (d *Driver) owners() []work.Owner {
	out := make([]work.Owner, 0, len(d.hw.parts))
	for o := range d.hw.parts {
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b work.Owner) int {
		switch {
		case a.Task != b.Task:
			return int(a.Task) - int(b.Task)
		case a.Epoch != b.Epoch:
			return int(a.Epoch) - int(b.Epoch)
		}
		return a.Member - b.Member
	})
	return out
}

// Usage implements driver.Driver. The load of a part wobbles around its mean.
func (d *Driver) Usage(ctx context.Context) ([]driver.Sample, error) {
	if err := d.enter(ctx, ""); err != nil {
		return nil, err
	}
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []driver.Sample
	for _, o := range d.owners() {
		p := d.hw.parts[o]
		if d.faults.gone[p.carved.Host] {
			continue
		}
		load := d.load(p.carved.Part)
		for _, s := range p.carved.Slices {
			x := driver.Sample{At: now, GPUID: s.GPUID, Owner: o, Compute: -1, MemMiB: -1, Procs: -1}
			if b := d.hw.boards[s.GPUID]; b.lost == "" { // a lost GPU says nothing, which is not idleness
				wobble := 1 + 0.2*math.Sin(float64(now.Unix())/7+float64(o.Task))
				x.Compute = min(max(load.Compute*wobble, 0), 1)
				x.MemMiB = int64(load.Memory * float64(memoryOf(b, s)))
				x.Procs = 1
			}
			out = append(out, x)
		}
	}
	return out, nil
}

func memoryOf(b *Board, s driver.Slice) int64 {
	switch s.Mode {
	case gpu.ModeMIG:
		if p, ok := b.geo.Model.Profile(s.Profile); ok {
			return p.MemoryMiB
		}
	case gpu.ModeShared:
		return s.Share.MemMiB
	case gpu.ModeWhole, gpu.ModeFree:
	}
	return b.geo.Model.MemoryMiB
}

// noise is a number from 0 to 1 that depends on nothing but its arguments.
func noise(a, b uint64) float64 {
	x := a*0x9e3779b97f4a7c15 + b*0xbf58476d1ce4e5b9
	x ^= x >> 31
	x *= 0x94d049bb133111eb
	x ^= x >> 29
	return float64(x>>11) / (1 << 53)
}

// Close implements driver.Driver.
func (d *Driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	return nil
}
