package fake_test

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/driver/drivertest"
	"github.com/gpupool/gpupool/internal/driver/fake"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// odd is a board on which compute slices run out before memory units do, and
// MIG instances of one kind before both: no board known does the first.
var odd = gpu.Model{Key: "odd", Units: 8, Slices: 3, MemoryMiB: 8000, Profiles: []gpu.Profile{
	{Name: "2g", Compute: 2, Units: 2, Starts: []int{0, 2, 4, 6}, Max: 4, MemoryMiB: 2000},
	{Name: "1g", Compute: 1, Units: 1, Starts: []int{0, 1, 2, 3, 4, 5, 6, 7}, Max: 2, MemoryMiB: 1000},
}}

// TestComputeRunsOut: free memory units are not enough.
func TestComputeRunsOut(t *testing.T) {
	hw, err := fake.NewHardware([]gpu.HostInfo{{Name: "h", GPUs: []gpu.GPUInfo{{ID: "g", Model: "odd"}}}}, []gpu.Model{odd}, noTime)
	if err != nil {
		t.Fatal(err)
	}
	b := hw.Board("g")
	if err := b.SetMIG(true); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		profile string
		start   int
		want    driver.Code
	}{{"2g", 0, ""}, {"2g", 2, driver.ErrOverlap}, {"1g", 4, ""}, {"1g", 5, driver.ErrOverlap}, {"1g", -1, driver.ErrIllegal}, {"1g", 8, driver.ErrIllegal}} {
		if _, err := b.CreateGI(x.profile, x.start); (err == nil) != (x.want == "") || err != nil && !is(err, x.want) {
			t.Errorf("%s at %d: got %v, want %q", x.profile, x.start, err, x.want)
		}
	}
	if err := b.DestroyGI(1); err != nil { // compute comes back with it
		t.Fatal(err)
	}
	if _, err := b.CreateGI("1g", 5); err != nil {
		t.Error(err)
	}
	if _, err := b.CreateGI("1g", 6); !is(err, driver.ErrOverlap) {
		t.Errorf("a third 1g of two at most: got %v", err)
	}
}

// TestModes: what stands on a GPU keeps every other mode off it.
func TestModes(t *testing.T) {
	ctx := t.Context()
	shareOf := func(milli int, mem int64) work.Slice {
		return work.Slice{Mode: gpu.ModeShared, Share: &work.Share{Milli: milli, MemMiB: mem}}
	}
	for _, x := range []struct {
		what         string
		first, other work.Slice
		want         driver.Code
	}{
		{"whole on MIG", migSlice, wholeSlice, driver.ErrMode}, {"a share on MIG", migSlice, shareOf(1, 0), driver.ErrMode},
		{"MIG on whole", wholeSlice, migSlice, driver.ErrMode}, {"a share on whole", wholeSlice, shareOf(1, 0), driver.ErrOverlap},
		{"MIG on a share", shareOf(1, 0), migSlice, driver.ErrMode}, {"whole on a share", shareOf(1, 0), wholeSlice, driver.ErrOverlap},
		{"1001 milli", shareOf(400, 0), shareOf(601, 0), driver.ErrOverlap}, {"1000 milli", shareOf(400, 0), shareOf(600, 0), ""},
		{"more milli than a number holds", shareOf(400, 0), shareOf(math.MaxInt, 0), driver.ErrOverlap},
		{"all memory", shareOf(1, 1), shareOf(1, 81558), ""}, {"a MiB more", shareOf(1, 1), shareOf(1, 81559), driver.ErrOverlap},
		{"more memory than a number holds", shareOf(1, 1), shareOf(1, math.MaxInt64), driver.ErrOverlap},
		{"a share of nothing", shareOf(1, 1), shareOf(0, 1), driver.ErrIllegal}, {"less than no memory", shareOf(1, 1), shareOf(1, -1), driver.ErrIllegal},
		{"a share without its size", shareOf(1, 1), work.Slice{Mode: gpu.ModeShared}, driver.ErrIllegal},
		{"no mode", shareOf(1, 1), work.Slice{}, driver.ErrIllegal},
	} {
		d := open(t, "1xH100-80GB", noTime)
		if _, err := d.Carve(ctx, part(owner(1), d, x.first)); err != nil {
			t.Fatal(err)
		}
		_, err := d.Carve(ctx, part(owner(2), d, x.other))
		if (err == nil) != (x.want == "") || err != nil && !is(err, x.want) {
			t.Errorf("%s: got %v, want %q", x.what, err, x.want)
		}
		p := part(owner(1), d)
		if err := d.Free(ctx, p.Host, owner(1)); err != nil {
			t.Errorf("%s: %v", x.what, err)
		}
		if err := d.Free(ctx, p.Host, owner(2)); err != nil {
			t.Errorf("%s: %v", x.what, err)
		}
		if _, err := d.Carve(ctx, part(owner(3), d, wholeSlice)); err != nil {
			t.Errorf("%s: something is left: %v", x.what, err)
		}
	}
}

// TestBoardInUse: MIG mode does not change under a whole GPU or a share, and a
// process keeps its compute instance.
func TestBoardInUse(t *testing.T) {
	for _, s := range []work.Slice{wholeSlice, {Mode: gpu.ModeShared, Share: &work.Share{Milli: 1}}} {
		hosts, err := fake.ParseHosts("1xH100-80GB")
		if err != nil {
			t.Fatal(err)
		}
		hw, err := fake.NewHardware(hosts, gpu.Builtin(), noTime)
		if err != nil {
			t.Fatal(err)
		}
		id := hosts[0].GPUs[0].ID
		if _, err := hw.Carve(driver.Part{Owner: owner(1), Host: hosts[0].Name, Slices: []driver.Slice{{GPUID: id, Slice: s}}}); err != nil {
			t.Fatal(err)
		}
		if err := hw.Board(id).SetMIG(true); !is(err, driver.ErrInUse) {
			t.Errorf("MIG on under %s: got %v", s, err)
		}
	}
	d := open(t, "1xH100-80GB", noTime)
	p := part(owner(1), d, migSlice)
	if _, err := d.Carve(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	d.Stick(p.Owner, 2)
	for range 2 {
		if err := d.Free(t.Context(), p.Host, p.Owner); !is(err, driver.ErrInUse) {
			t.Errorf("destroying a compute instance in use: got %v", err)
		}
		if devices, err := d.Carve(t.Context(), p); err != nil || len(devices) != 1 {
			t.Errorf("it stands as before, but a carve gives %v, %v", devices, err)
		}
	}
}

// TestHalfFreeIsNotWhole: after a free stopped half way the compute instances are
// gone, so no carve may say that the part stands.
func TestHalfFreeIsNotWhole(t *testing.T) {
	ctx := t.Context()
	d := open(t, "1xH100-80GB", noTime)
	p := part(owner(1), d, migSlice)
	if _, err := d.Carve(ctx, p); err != nil {
		t.Fatal(err)
	}
	d.HalfFrees(1)
	if err := d.Free(ctx, p.Host, p.Owner); !is(err, driver.ErrUnclear) {
		t.Fatal(err)
	}
	if devices, err := d.Carve(ctx, p); !is(err, driver.ErrUnclear) {
		t.Errorf("half freed, a carve gives %v, %v", devices, err)
	}
	if err := d.Free(ctx, p.Host, p.Owner); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Carve(ctx, p); !is(err, driver.ErrFreed) {
		t.Errorf("freed, a carve gives %v", err)
	}
}

// TestLostGPUOfSeveral: when one GPU of a part comes back empty, nothing of the
// part is left on the others, not even where processes were.
func TestLostGPUOfSeveral(t *testing.T) {
	ctx := t.Context()
	d := open(t, "2xH100-80GB", noTime)
	p := part(owner(1), d, wholeSlice, migSlice)
	if _, err := d.Carve(ctx, p); err != nil {
		t.Fatal(err)
	}
	d.Stick(p.Owner, 1)
	d.LoseGPU(p.Slices[0].GPUID, "XID 79")
	d.LoseGPU(p.Slices[0].GPUID, "")
	if err := d.Free(ctx, p.Host, p.Owner); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Carve(ctx, part(owner(2), d, wholeSlice, wholeSlice)); err != nil {
		t.Errorf("something is left: %v", err)
	}
}

// TestSuiteCatchesMore plants the faults that need a memory of their own.
func TestSuiteCatchesMore(t *testing.T) {
	ctx := context.Background()
	for name, b := range map[string]func() bad{
		"names devices in its own order": func() bad {
			return bad{carve: func(d driver.Driver, p driver.Part) ([]string, error) {
				devices, err := d.Carve(ctx, p)
				sorted := slices.Clone(devices)
				slices.Sort(sorted)
				return sorted, err
			}}
		},
		"leaves the slice before the refused one": func() bad {
			return bad{carve: func(d driver.Driver, p driver.Part) ([]string, error) {
				devices, err := d.Carve(ctx, p)
				if err != nil && len(p.Slices) > 1 {
					hidden := p
					hidden.Owner.Epoch, hidden.Slices = 99, p.Slices[:1]
					d.Carve(ctx, hidden) //nolint:errcheck // the fault
				}
				return devices, err
			}}
		},
		"forgets what it made": func() bad {
			made := map[work.Owner]bool{}
			return bad{carve: func(d driver.Driver, p driver.Part) ([]string, error) {
				if made[p.Owner] {
					return nil, &driver.Error{Code: driver.ErrOverlap, Msg: "the place is taken"}
				}
				devices, err := d.Carve(ctx, p)
				made[p.Owner] = err == nil
				return devices, err
			}}
		},
		"frees its neighbour too": func() bad {
			return bad{free: func(d driver.Driver, host string, o work.Owner) error {
				next := o
				next.Task++
				d.Free(ctx, host, next) //nolint:errcheck // the fault
				return d.Free(ctx, host, o)
			}}
		},
		"keeps the first size for ever": func() bad {
			made := map[work.Owner][]string{}
			return bad{carve: func(d driver.Driver, p driver.Part) ([]string, error) {
				if devices := made[p.Owner]; devices != nil {
					return devices, nil
				}
				devices, err := d.Carve(ctx, p)
				made[p.Owner] = devices
				return devices, err
			}}
		},
		"resizes by freeing and making again": func() bad {
			made := map[work.Owner]driver.Part{}
			epochs := uint32(1)
			return bad{carve: func(d driver.Driver, p driver.Part) ([]string, error) {
				old, stood := made[p.Owner]
				if !stood || len(old.Slices) != len(p.Slices) || slices.EqualFunc(old.Slices, p.Slices, func(a, b driver.Slice) bool { return a.Milli == b.Milli }) {
					devices, err := d.Carve(ctx, p)
					if err == nil {
						made[p.Owner] = p
					}
					return devices, err
				}
				if err := d.Free(ctx, p.Host, old.Owner); err != nil {
					return nil, err
				}
				epochs++
				p.Owner.Epoch = epochs
				return d.Carve(ctx, p)
			}}
		},
		"samples a slice twice": func() bad {
			return bad{usage: func(s []driver.Sample) []driver.Sample { return append(s, s...) }}
		},
	} {
		var caught []string
		for _, c := range drivertest.Checks() {
			d := b()
			d.Driver = open(t, "2x2xH100-80GB", noTime)
			if c.Run(ctx, d) != nil {
				caught = append(caught, c.Name)
			}
		}
		if len(caught) == 0 {
			t.Errorf("a driver that %s passes the suite", name)
		}
		t.Logf("%s: caught by %q", name, caught)
	}
}

// TestResizeKeepsProcesses: a resize takes no process off, and its time is that of
// the slowest GPU that changes.
func TestResizeKeepsProcesses(t *testing.T) {
	ctx := t.Context()
	d := open(t, "1xH100-80GB", noTime)
	p := part(owner(1), d, wholeSlice)
	if _, err := d.Carve(ctx, p); err != nil {
		t.Fatal(err)
	}
	d.Stick(p.Owner, 3)
	p.Slices[0].Slice = work.Slice{Mode: gpu.ModeShared, Share: &work.Share{Milli: 300, MemMiB: 1000}, Milli: 300}
	if _, err := d.Carve(ctx, p); err != nil {
		t.Fatal(err)
	}
	if err := d.Free(ctx, p.Host, p.Owner); !is(err, driver.ErrInUse) {
		t.Errorf("resized under its processes, a free returned %v", err)
	}
	if use, err := d.Usage(ctx); err != nil || len(use) != 1 || use[0].MemMiB > 1000 {
		t.Errorf("a share of 1000 MiB is sampled as %+v, %v", use, err)
	}
	d.LoseGPU(p.Slices[0].GPUID, "XID 79")
	if _, err := d.Carve(ctx, p); err != nil {
		t.Errorf("a repeated carve on a lost GPU returned %v", err)
	}
	p.Slices[0].Slice = wholeSlice
	if _, err := d.Carve(ctx, p); !is(err, driver.ErrLost) {
		t.Errorf("a resize on a lost GPU returned %v", err)
	}

	hosts, err := fake.ParseHosts("2xH100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	times := fake.DefaultTimes()
	hw, err := fake.NewHardware(hosts, gpu.Builtin(), times)
	if err != nil {
		t.Fatal(err)
	}
	shareOf := func(milli int) work.Slice {
		return work.Slice{Mode: gpu.ModeShared, Share: &work.Share{Milli: milli}, Milli: milli}
	}
	for _, x := range []struct {
		a, b work.Slice
		want time.Duration
	}{{wholeSlice, shareOf(10), max(times.Whole, times.Share)}, {wholeSlice, shareOf(10), 0}, {shareOf(10), shareOf(10), times.Share},
		{wholeSlice, shareOf(10), times.Whole}, {shareOf(10), wholeSlice, max(times.Whole, times.Share)}} {
		took, err := hw.Carve(driver.Part{Owner: owner(1), Host: hosts[0].Name, Slices: []driver.Slice{
			{GPUID: hosts[0].GPUs[0].ID, Slice: x.a}, {GPUID: hosts[0].GPUs[1].ID, Slice: x.b}}})
		if err != nil || took != x.want {
			t.Errorf("%s and %s took %s, %v, want %s", x.a, x.b, took, err, x.want)
		}
	}
}

// TestSideBySide: a part takes as long as its slowest GPU.
func TestSideBySide(t *testing.T) {
	hosts, err := fake.ParseHosts("2xH100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	hw, err := fake.NewHardware(hosts, gpu.Builtin(), fake.DefaultTimes())
	if err != nil {
		t.Fatal(err)
	}
	took, err := hw.Carve(driver.Part{Owner: owner(1), Host: hosts[0].Name, Slices: []driver.Slice{
		{GPUID: hosts[0].GPUs[0].ID, Slice: migSlice}, {GPUID: hosts[0].GPUs[1].ID, Slice: wholeSlice}}})
	if want := fake.DefaultTimes().SetMIG + fake.DefaultTimes().Create; err != nil || took != want {
		t.Errorf("took %s, %v, want %s", took, err, want)
	}
}

// TestFreedAreForgotten: the memory of freed owners is bounded, oldest first.
func TestFreedAreForgotten(t *testing.T) {
	const kept = 1 << 16
	hosts, err := fake.ParseHosts("1xH100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	hw, err := fake.NewHardware(hosts, gpu.Builtin(), noTime)
	if err != nil {
		t.Fatal(err)
	}
	for n := range work.TaskID(kept + 2) { // 0 and 1 are forgotten
		if _, err := hw.Free(hosts[0].Name, owner(n)); err != nil {
			t.Fatal(err)
		}
	}
	for n, want := range map[work.TaskID]driver.Code{1: "", 2: driver.ErrFreed, kept + 1: driver.ErrFreed} {
		p := driver.Part{Owner: owner(n), Host: hosts[0].Name, Slices: []driver.Slice{{GPUID: hosts[0].GPUs[0].ID, Slice: wholeSlice}}}
		if _, err := hw.Carve(p); (err == nil) != (want == "") || err != nil && !is(err, want) {
			t.Errorf("owner %d: got %v, want %q", n, err, want)
		}
	}
}

// TestLostHostIsSilent: nothing of a host that does not answer is sampled.
func TestLostHostIsSilent(t *testing.T) {
	d := open(t, "2x1xH100-80GB", noTime)
	p := part(owner(1), d, wholeSlice)
	if _, err := d.Carve(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	for _, lost := range []bool{true, false} {
		d.LoseHost(p.Host, lost)
		if use, err := d.Usage(t.Context()); err != nil || (len(use) == 0) != lost {
			t.Errorf("host lost = %t: sampled %+v, %v", lost, use, err)
		}
	}
}

// TestTooManyHosts: shapes are bounded together, not each alone.
func TestTooManyHosts(t *testing.T) {
	if _, err := fake.ParseHosts("60000x1xT4,60000x1xT4"); err == nil {
		t.Error("120,000 hosts were made")
	}
}
