package fake_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/driver/drivertest"
	"github.com/gpupool/gpupool/internal/driver/fake"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

var noTime = fake.Times{SetMIG: -1}

func open(t testing.TB, shape string, times fake.Times) *fake.Driver {
	t.Helper()
	hosts, err := fake.ParseHosts(shape)
	if err != nil {
		t.Fatal(err)
	}
	d, err := fake.New(hosts, gpu.Builtin(), fake.Options{Times: times})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDriver(t *testing.T) {
	for _, model := range []string{"H100-80GB", "A100-40GB", "RTX-PRO-6000-Blackwell", "B200-180GB"} {
		t.Run(model, func(t *testing.T) {
			drivertest.Run(t, func(t *testing.T) driver.Driver { return open(t, "2x2x"+model, noTime) })
		})
	}
}

// bad is a driver with one fault.
type bad struct {
	driver.Driver
	carve func(d driver.Driver, p driver.Part) ([]string, error)
	free  func(d driver.Driver, host string, o work.Owner) error
	look  func(inv *driver.Inventory)
	usage func(s []driver.Sample) []driver.Sample
}

func (b bad) Carve(ctx context.Context, p driver.Part) ([]string, error) {
	if b.carve != nil && ctx.Err() == nil {
		return b.carve(b.Driver, p)
	}
	return b.Driver.Carve(ctx, p)
}

func (b bad) Free(ctx context.Context, host string, o work.Owner) error {
	if b.free != nil {
		return b.free(b.Driver, host, o)
	}
	return b.Driver.Free(ctx, host, o)
}

func (b bad) Observe(ctx context.Context) (driver.Inventory, error) {
	inv, err := b.Driver.Observe(ctx)
	if b.look != nil {
		b.look(&inv)
	}
	return inv, err
}

func (b bad) Usage(ctx context.Context) ([]driver.Sample, error) {
	s, err := b.Driver.Usage(ctx)
	if b.usage != nil {
		s = b.usage(s)
	}
	return s, err
}

func is(err error, code driver.Code) bool {
	var e *driver.Error
	return errors.As(err, &e) && e.Code == code
}

// TestSuiteCatches plants a fault for each rule of the suite.
func TestSuiteCatches(t *testing.T) {
	ctx := context.Background()
	say := func(code driver.Code) func(driver.Driver, driver.Part) ([]string, error) { // says yes where it should refuse
		return func(d driver.Driver, p driver.Part) ([]string, error) {
			devices, err := d.Carve(ctx, p)
			if is(err, code) {
				return make([]string, len(p.Slices)), nil
			}
			return devices, err
		}
	}
	n := 0
	for name, b := range map[string]bad{
		"says yes to overlaps":      {carve: say(driver.ErrOverlap)},
		"says yes to illegal ones":  {carve: say(driver.ErrIllegal)},
		"says yes in another mode":  {carve: say(driver.ErrMode)},
		"says yes without a device": {carve: say(driver.ErrNoDevice)},
		"uses an owner twice":       {carve: say(driver.ErrFreed)},
		"makes the first of several": {carve: func(d driver.Driver, p driver.Part) ([]string, error) {
			devices, err := d.Carve(ctx, p)
			if err != nil && len(p.Slices) > 1 {
				p.Slices = p.Slices[:1]
				d.Carve(ctx, p) //nolint:errcheck // the fault
			}
			return devices, err
		}},
		"other devices when repeated": {carve: func(d driver.Driver, p driver.Part) ([]string, error) {
			devices, err := d.Carve(ctx, p)
			n++
			for i := range devices {
				devices = append([]string(nil), devices...)
				devices[i] += strings.Repeat("x", n)
			}
			return devices, err
		}},
		"one device too few": {carve: func(d driver.Driver, p driver.Part) ([]string, error) {
			devices, err := d.Carve(ctx, p)
			return devices[:max(0, len(devices)-1)], err
		}},
		"frees nothing":       {free: func(driver.Driver, string, work.Owner) error { return nil }},
		"a second free fails": {free: secondFree},
		"shows what does not stand": {look: func(inv *driver.Inventory) {
			if len(inv.Parts) > 0 {
				inv.Parts[0].Owner.Task += 1000
			}
		}},
		"samples too few": {usage: func(s []driver.Sample) []driver.Sample { return s[:len(s)/2] }},
		"does not know time": {usage: func(s []driver.Sample) []driver.Sample {
			for i := range s {
				s[i].At = time.Time{}
			}
			return s
		}},
	} {
		var caught string
		for _, c := range drivertest.Checks() {
			b.Driver = open(t, "2x2xH100-80GB", noTime)
			if err := c.Run(ctx, b); err != nil {
				caught = c.Name
				break
			}
		}
		if caught == "" {
			t.Errorf("a driver that %s passes the suite", name)
		} else {
			t.Logf("%s: caught by %q", name, caught)
		}
	}
}

func secondFree(d driver.Driver, host string, o work.Owner) error {
	inv, err := d.Observe(context.Background())
	if err != nil {
		return err
	}
	for _, p := range inv.Parts {
		if p.Owner == o {
			return d.Free(context.Background(), host, o)
		}
	}
	return &driver.Error{Code: driver.ErrNoDevice, Msg: "nothing stands"}
}

// TestBoard walks the rules of the hardware one by one.
func TestBoard(t *testing.T) {
	hosts, err := fake.ParseHosts("2xH100-80GB,1xT4")
	if err != nil {
		t.Fatal(err)
	}
	hw, err := fake.NewHardware(hosts, gpu.Builtin(), noTime)
	if err != nil {
		t.Fatal(err)
	}
	b, old := hw.Board(hosts[0].GPUs[0].ID), hw.Board(hosts[1].GPUs[0].ID)
	var gi int
	create := func(profile string, start int) func() error {
		return func() (err error) {
			id, err := b.CreateGI(profile, start)
			if err == nil {
				gi = id
			}
			return err
		}
	}
	for i, x := range []struct {
		what string
		do   func() error
		want driver.Code // "" = it works
	}{
		{"an instance with MIG off", create("1g.10gb", 0), driver.ErrMode},
		{"MIG on a GPU that has none", func() error { return old.SetMIG(true) }, driver.ErrIllegal},
		{"MIG on", func() error { return b.SetMIG(true) }, ""},
		{"MIG on again", func() error { return b.SetMIG(true) }, ""},
		{"an unknown profile", create("5g.50gb", 0), driver.ErrIllegal},
		{"an illegal start", create("3g.40gb", 2), driver.ErrIllegal},
		{"an instance", create("4g.40gb", 0), ""},
		{"one over it", create("1g.10gb", 3), driver.ErrOverlap},
		{"one beside it", create("3g.40gb", 4), ""},
		{"more compute than there is", create("1g.10gb", 6), driver.ErrOverlap},
		{"MIG off while cut", func() error { return b.SetMIG(false) }, driver.ErrInUse},
		{"a compute instance in nothing", func() error { return b.CreateCI(99) }, driver.ErrNoDevice},
		{"destroying a compute instance that is none", func() error { return b.DestroyCI(gi) }, driver.ErrNoDevice},
		{"a compute instance", func() error { return b.CreateCI(gi) }, ""},
		{"a second one", func() error { return b.CreateCI(gi) }, driver.ErrOverlap},
		{"destroying a parent", func() error { return b.DestroyGI(gi) }, driver.ErrInUse},
		{"destroying the child", func() error { return b.DestroyCI(gi) }, ""},
		{"destroying it twice", func() error { return b.DestroyCI(gi) }, driver.ErrNoDevice},
		{"destroying the parent", func() error { return b.DestroyGI(gi) }, ""},
		{"destroying that twice", func() error { return b.DestroyGI(gi) }, driver.ErrNoDevice},
		{"its place again", create("3g.40gb", 4), ""},
	} {
		err := x.do()
		if (x.want == "") != (err == nil) || x.want != "" && !is(err, x.want) {
			t.Errorf("step %d, %s: got %v, want %q", i, x.what, err, x.want)
		}
	}
}

func part(o work.Owner, d driver.Driver, slices ...work.Slice) driver.Part {
	inv, err := d.Observe(context.Background())
	if err != nil {
		panic(err)
	}
	p := driver.Part{Owner: o, Tenant: "a", Host: inv.Hosts[0].Name}
	for i, s := range slices {
		p.Slices = append(p.Slices, driver.Slice{GPUID: inv.Hosts[0].GPUs[i].ID, Slice: s})
	}
	return p
}

var (
	wholeSlice = work.Slice{Mode: gpu.ModeWhole, Milli: 1000}
	migSlice   = work.Slice{Mode: gpu.ModeMIG, Profile: "1g.10gb", Start: 0, Milli: 143}
)

func owner(n work.TaskID) work.Owner { return work.Owner{Task: n, Epoch: 1} }

// TestTimes: calls take what the hardware takes, and end with their context.
func TestTimes(t *testing.T) {
	took := func(f func()) time.Duration {
		began := time.Now()
		f()
		return time.Since(began)
	}
	for _, x := range []struct {
		shape string
		slice work.Slice
		carve time.Duration
		free  time.Duration
	}{
		{"1xH100-80GB", wholeSlice, 100 * time.Millisecond, 0}, {"1xH100-80GB", migSlice, 2 * time.Second, time.Second},
		{"1xA100-80GB", migSlice, 11 * time.Second, time.Second},
		{"1xH100-80GB", work.Slice{Mode: gpu.ModeShared, Share: &work.Share{Milli: 100, MemMiB: 10}}, 200 * time.Millisecond, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := open(t, x.shape, fake.Times{})
			p := part(owner(1), d, x.slice)
			if got := took(func() { d.Carve(t.Context(), p) }); got != x.carve { //nolint:errcheck // its time counts
				t.Errorf("%s %s: carving took %s, want %s", x.shape, x.slice, got, x.carve)
			}
			if got := took(func() { d.Free(t.Context(), p.Host, p.Owner) }); got != x.free { //nolint:errcheck // its time counts
				t.Errorf("%s %s: freeing took %s, want %s", x.shape, x.slice, got, x.free)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		d := open(t, "1xH100-80GB", fake.Times{})
		p := part(owner(1), d, wholeSlice)
		d.Slow(-1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if got := took(func() {
			if _, err := d.Carve(ctx, p); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a hanging carve returned %v", err)
			}
		}); got != time.Hour {
			t.Errorf("a hanging call took %s, want until its context ended", got)
		}
		d.Slow(time.Minute)
		if got := took(func() { d.Observe(t.Context()) }); got != time.Minute { //nolint:errcheck // its time counts
			t.Errorf("a slow call took %s", got)
		}
	})
}

func TestFaults(t *testing.T) {
	ctx := context.Background()
	d := open(t, "2x4xH100-80GB", noTime)
	standing := func() int {
		inv, err := d.Observe(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return len(inv.Parts)
	}
	d.FailCarves(1, driver.ErrHardware)
	p := part(owner(1), d, wholeSlice)
	if _, err := d.Carve(ctx, p); !is(err, driver.ErrHardware) || standing() != 0 {
		t.Errorf("told to fail, it returned %v with %d parts", err, standing())
	}
	if _, err := d.Carve(ctx, p); err != nil {
		t.Errorf("told to fail once, it failed again: %v", err)
	}
	d.Stick(p.Owner, 1)
	if err := d.Free(ctx, p.Host, p.Owner); !is(err, driver.ErrInUse) {
		t.Errorf("with a process on it, a free returned %v", err)
	}
	d.Stick(p.Owner, 0)
	if err := d.Free(ctx, p.Host, p.Owner); err != nil || standing() != 0 {
		t.Errorf("without, it returned %v with %d parts", err, standing())
	}

	d.HalfCarves(1)
	p = part(owner(2), d, migSlice, migSlice, migSlice, migSlice)
	for range 2 { // until it is freed
		if _, err := d.Carve(ctx, p); !is(err, driver.ErrUnclear) || standing() != 1 {
			t.Errorf("half way, a carve returned %v with %d parts", err, standing())
		}
	}
	d.HalfFrees(1)
	if err := d.Free(ctx, p.Host, p.Owner); !is(err, driver.ErrUnclear) || standing() != 1 {
		t.Errorf("half way, a free returned %v with %d parts", err, standing())
	}
	if err := d.Free(ctx, p.Host, p.Owner); err != nil || standing() != 0 {
		t.Errorf("then it returned %v with %d parts", err, standing())
	}
	if _, err := d.Carve(ctx, part(owner(3), d, migSlice, migSlice, migSlice, migSlice)); err != nil {
		t.Errorf("what healed cannot be used: %v", err)
	}

	inv, err := d.Observe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	lost := inv.Hosts[0].GPUs[0].ID
	d.LoseGPU(lost, "XID 79")
	if inv, err = d.Observe(ctx); err != nil || len(inv.Verdicts) != 1 || inv.Verdicts[0] != (driver.Verdict{GPUID: lost, Do: gpu.VerdictBroken, Why: "XID 79"}) {
		t.Errorf("a lost GPU is shown as %+v, %v", inv.Verdicts, err)
	}
	if use, err := d.Usage(ctx); err != nil || use[0].Compute >= 0 {
		t.Errorf("a lost GPU is sampled as %+v, %v: want it not known", use[0], err)
	}
	if _, err := d.Carve(ctx, part(owner(4), d, migSlice)); !is(err, driver.ErrLost) {
		t.Errorf("a carve on it returned %v", err)
	}
	if err := d.Free(ctx, inv.Hosts[0].Name, owner(3)); err != nil {
		t.Errorf("freeing what was on it returned %v", err)
	}
	d.LoseGPU(lost, "")
	if _, err := d.Carve(ctx, part(owner(5), d, wholeSlice)); err != nil {
		t.Errorf("repaired, it returned %v", err)
	}

	name := inv.Hosts[0].Name
	d.LoseHost(name, true)
	if inv, err = d.Observe(ctx); err != nil || len(inv.Hosts) != 1 || len(inv.Parts) != 0 {
		t.Errorf("without its host %d hosts and %d parts are shown, %v", len(inv.Hosts), len(inv.Parts), err)
	}
	if err := d.Free(ctx, name, owner(5)); !is(err, driver.ErrNoDevice) {
		t.Errorf("a free on it returned %v", err)
	}
	d.LoseHost(name, false)
	if standing() != 1 {
		t.Errorf("back again, %d parts stand", standing())
	}
	d.Reboot(name)
	if standing() != 0 {
		t.Errorf("after a reboot %d parts stand", standing())
	}
	if _, err := d.Carve(ctx, part(owner(6), d, migSlice)); err != nil {
		t.Errorf("after a reboot a carve returned %v", err)
	}
	d.Close() //nolint:errcheck // it holds nothing
	if _, err := d.Observe(ctx); err == nil {
		t.Error("a closed driver answers")
	}
}

func TestParseHosts(t *testing.T) {
	hosts, err := fake.ParseHosts("2x8xH100-80GB, 4xA100-40GB")
	if err != nil || len(hosts) != 3 || len(hosts[1].GPUs) != 8 || len(hosts[2].GPUs) != 4 || hosts[2].GPUs[0].Model != "A100-40GB" ||
		hosts[0].Name != "fake-0001" || hosts[0].CPUMilli != 112_000 || hosts[0].MemMiB != 2<<20 {
		t.Errorf("got %+v, %v", hosts, err)
	}
	for text, want := range map[string]string{
		"": "not understood", "8": "not understood", "x": "not understood", "8xFOO": "is not known: there are A100-40GB", "0x8xH100-80GB": "out of range",
		"1x0xH100-80GB": "out of range", "1x65xH100-80GB": "out of range", "-1x8xH100-80GB": "out of range", "100000x64xH100-80GB": "too many",
		"8xH100-80GB,": "not understood", "1e3x8xH100-80GB": "not understood", "999999999999999999999x8xH100-80GB": "not understood",
	} {
		if _, err := fake.ParseHosts(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

func FuzzParseHosts(f *testing.F) {
	f.Add("200x8xH100-80GB")
	f.Add("8xH100-80GB,2x4xT4")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Count(text, ",") > 4 {
			return // each shape may be 100,000 hosts: that is bounded, but slow
		}
		hosts, err := fake.ParseHosts(text)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, h := range hosts {
			if seen[h.Name] || len(h.GPUs) < 1 || len(h.GPUs) > 64 {
				t.Fatalf("%q gives host %+v", text, h)
			}
			seen[h.Name] = true
		}
	})
}

func BenchmarkCarveFree(b *testing.B) {
	hosts, err := fake.ParseHosts("1000x8xH100-80GB")
	if err != nil {
		b.Fatal(err)
	}
	hw, err := fake.NewHardware(hosts, gpu.Builtin(), noTime)
	if err != nil {
		b.Fatal(err)
	}
	p := driver.Part{Host: hosts[500].Name, Slices: []driver.Slice{{GPUID: hosts[500].GPUs[3].ID, Slice: migSlice}}}
	n := work.TaskID(0)
	for b.Loop() {
		n++
		p.Owner = owner(n)
		if _, err := hw.Carve(p); err != nil {
			b.Fatal(err)
		}
		if _, err := hw.Free(p.Host, p.Owner); err != nil {
			b.Fatal(err)
		}
	}
}
