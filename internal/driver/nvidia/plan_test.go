package nvidia

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

func simPart(d *Driver, n int, slices ...driver.Slice) driver.Part {
	return driver.Part{Owner: work.Owner{Task: work.TaskID(n), Epoch: 1}, Tenant: "a", Host: d.host.Name, Slices: slices}
}

func simMIG(d *Driver, i int, profile string, start int) driver.Slice {
	return driver.Slice{GPUID: d.host.GPUs[i].UUID, Slice: work.Slice{Mode: gpu.ModeMIG, Profile: profile, Start: start}}
}

func simCode(t testing.TB, err error, code driver.Code) {
	t.Helper()
	if e, is := errors.AsType[*driver.Error](err); !is || e.Code != code {
		t.Fatalf("got %v, want an error of code %s", err, code)
	}
}

// TestStepsFail lets each step of a carve fail, with an answer and without one, before
// and after it happened: nothing may be left, or Free must clear it.
func TestStepsFail(t *testing.T) {
	for _, lost := range []bool{false, true} {
		for _, before := range []bool{true, false} {
			if !lost && !before {
				continue // an answer that something was refused is true
			}
			for at := 1; at <= 5; at++ { // mode, and two instances
				s := newSim("H100-80GB", 1)
				d := openSim(t, s, options(t, "one"))
				n := 0
				s.breaks = func(r request) (bool, error) {
					if !mutates(r.Op) {
						return false, nil
					}
					if n++; n != at {
						return false, nil
					}
					if lost {
						return before, &lostAnswer{op: r.Op, why: "told to"}
					}
					return before, no(r.Op, nvmlNoResources)
				}
				name := fmt.Sprintf("step %d, lost %t, before %t", at, lost, before)
				p := simPart(d, 1, simMIG(d, 0, "1g.10gb", 0), simMIG(d, 0, "2g.20gb", 2))
				if _, err := d.Carve(t.Context(), p); err == nil {
					t.Fatalf("%s: no error", name)
				}
				if g := s.gpus[0]; len(g.GIs) > 0 || len(leftovers(t, d.o.Dir)) > 0 {
					t.Errorf("%s: %+v and %v are left", name, g.GIs, leftovers(t, d.o.Dir))
				}
				if err := d.Free(t.Context(), "one", p.Owner); err != nil {
					t.Errorf("%s: free: %v", name, err)
				}
			}
		}
	}
}

// TestUndoFails: what cannot be undone is shown, refused to Carve, and cleared by Free.
func TestUndoFails(t *testing.T) {
	s := newSim("H100-80GB", 1)
	d := openSim(t, s, options(t, "one"))
	broken := true
	s.breaks = func(r request) (bool, error) {
		if broken && (r.Op == opCreateCI || r.Op == opDestroyGI) {
			return true, no(r.Op, nvmlInUse)
		}
		return false, nil
	}
	p := simPart(d, 1, simMIG(d, 0, "1g.10gb", 0))
	_, err := d.Carve(t.Context(), p)
	simCode(t, err, driver.ErrUnclear)
	_, err = d.Carve(t.Context(), p)
	simCode(t, err, driver.ErrUnclear)
	inv, err := d.Observe(t.Context())
	if err != nil || len(inv.Parts) != 1 || len(inv.Verdicts) != 1 || !strings.Contains(inv.Verdicts[0].Why, "unclear state") {
		t.Errorf("it must be shown, and its GPU cordoned: %+v, %v", inv, err)
	}
	if d = openSim(t, s, d.o); len(d.parts) != 1 {
		t.Fatal("a restart forgot it")
	}
	broken = false
	if err := d.Free(t.Context(), "one", p.Owner); err != nil || len(s.gpus[0].GIs) > 0 {
		t.Errorf("free: %v, left %+v", err, s.gpus[0].GIs)
	}
}

// crash makes a driver that stops at the n-th change, as a power cut would, and opens
// another over what is left.
func crash(t *testing.T, s *sim, o Options, at int, do func(d *Driver)) (after *Driver, crashed bool) {
	d := openSim(t, s, o)
	n := 0
	s.breaks = func(r request) (bool, error) {
		if mutates(r.Op) {
			n++
		}
		if n > at {
			crashed = true
			panic("crash")
		}
		return false, nil
	}
	func() {
		defer func() {
			if x := recover(); x != nil && x != "crash" {
				panic(x)
			}
		}()
		do(d)
	}()
	s.breaks = nil
	return openSim(t, s, o), crashed
}

// TestCrashAtEachStep cuts carves and frees short at each step. The next run must be
// able to carve the same again, or free it; either way nothing is left at the end.
func TestCrashAtEachStep(t *testing.T) {
	for _, again := range []bool{true, false} {
		for at := 0; ; at++ {
			s := newSim("H100-80GB", 2)
			o := options(t, "one")
			var p driver.Part
			d, crashed := crash(t, s, o, at, func(d *Driver) {
				p = simPart(d, 1, simMIG(d, 0, "1g.10gb", 0), simMIG(d, 1, "2g.20gb", 2), simMIG(d, 0, "1g.10gb", 1))
				if _, err := d.Carve(t.Context(), p); err == nil {
					d.Free(t.Context(), "one", p.Owner) //nolint:errcheck // it crashes
				}
			})
			if again && at < 7 {
				if devices, err := d.Carve(t.Context(), p); err != nil || len(devices) != 3 || devices[0] == devices[2] {
					t.Errorf("crash after %d steps: the same carve gives %v, %v", at, devices, err)
				}
			}
			inv, err := d.Observe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, seen := range inv.Parts { // as the engine does with what nobody owns
				if err := d.Free(t.Context(), seen.Host, seen.Owner); err != nil {
					t.Errorf("crash after %d steps: free: %v", at, err)
				}
			}
			if left := len(s.gpus[0].GIs) + len(s.gpus[1].GIs) + len(leftovers(t, o.Dir)); left > 0 {
				t.Errorf("crash after %d steps: %d instances and files are left", at, left)
			}
			if !crashed {
				if at < 8 {
					t.Fatalf("only %d steps were taken", at)
				}
				break
			}
		}
	}
}

// TestOthersTakeThePlace: after a crash an instance at the planned place may be someone
// else's. Used, it is left alone; there before, it never was ours.
func TestOthersTakeThePlace(t *testing.T) {
	s := newSim("H100-80GB", 1)
	o := options(t, "one")
	var p driver.Part
	d, _ := crash(t, s, o, 1, func(d *Driver) {
		p = simPart(d, 1, simMIG(d, 0, "1g.10gb", 0))
		d.Carve(t.Context(), p) //nolint:errcheck // it crashes
	})
	g := s.gpus[0]
	g.GIs = []instance{{ID: 9, Profile: 19, Start: 0, Size: 1, CIs: []compute{{0, "MIG-other"}}, Procs: []process{{PID: 77}}}}
	_, err := d.Carve(t.Context(), p)
	simCode(t, err, driver.ErrUnclear)
	simCode(t, d.Free(t.Context(), "one", p.Owner), driver.ErrInUse)
	if len(g.GIs) != 1 || len(g.GIs[0].CIs) != 1 {
		t.Fatalf("the other's instance was touched: %+v", g.GIs)
	}

	s = newSim("H100-80GB", 1)
	s.gpus[0].MIG = true
	d = openSim(t, s, options(t, "one"))
	s.breaks = func(r request) (bool, error) {
		if r.Op == opCreateGI { // someone was quicker
			s.gpus[0].GIs = []instance{{ID: 9, Profile: 19, Start: 0, Size: 1, CIs: []compute{{0, "MIG-other"}}}}
			return true, no(r.Op, nvmlNoResources)
		}
		return false, nil
	}
	_, err = d.Carve(t.Context(), simPart(d, 1, simMIG(d, 0, "1g.10gb", 0)))
	simCode(t, err, driver.ErrOverlap)
	if len(s.gpus[0].GIs) != 1 {
		t.Error("an instance that was refused to us is gone")
	}
}

// TestModeNotInForce: the second answer of a mode change, and what the GPU shows then.
func TestModeNotInForce(t *testing.T) {
	for _, code := range []int{nvmlInUse, nvmlResetRequired, 0} {
		s := newSim("H100-80GB", 1)
		s.gpus[0].refuse, s.gpus[0].modeOdd = code, code == 0
		d := openSim(t, s, options(t, "one"))
		_, err := d.Carve(t.Context(), simPart(d, 1, simMIG(d, 0, "1g.10gb", 0)))
		simCode(t, err, driver.ErrMode)
	}
}

// TestGeometryOnlyWithMIG: a driver that names places only while MIG mode is on. If they
// are others than the table's, the first carve is given up and the driver's are used.
func TestGeometryOnlyWithMIG(t *testing.T) {
	for _, same := range []bool{true, false} {
		s := newSim("H100-80GB", 1)
		g := s.gpus[0]
		g.places = false
		if !same {
			g.model.Profiles = slices.Clone(g.model.Profiles)
			for i, p := range g.model.Profiles {
				if p.Name == "1g.20gb" {
					g.model.Profiles[i].Starts = []int{0, 2, 4}
				}
			}
		}
		d := openSim(t, s, options(t, "one"))
		_, err := d.Carve(t.Context(), simPart(d, 1, simMIG(d, 0, "1g.20gb", 6)))
		if same != (err == nil) {
			t.Fatalf("same %t: %v", same, err)
		}
		if !same {
			simCode(t, err, driver.ErrIllegal)
		}
		inv, err := d.Observe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p, _ := inv.Models[0].Profile("1g.20gb")
		if got := len(p.Starts); (got == 4) != same || p.Confidence != reported {
			t.Errorf("same %t: the profile is %+v", same, p)
		}
		d.Free(t.Context(), "one", work.Owner{Task: 1, Epoch: 1}) //nolint:errcheck // for the mode
		g.MIG = false
		if d = openSim(t, s, d.o); !d.cards[g.UUID].Settled {
			t.Errorf("same %t: a restart forgot the driver's own geometry", same)
		}
	}
}

func TestModels(t *testing.T) {
	known := map[string]string{
		"NVIDIA H100 80GB HBM3|81559": "H100-80GB", "NVIDIA H100 PCIe|81559": "H100-80GB", "NVIDIA A100-SXM4-40GB|40960": "A100-40GB", "NVIDIA A100-SXM4-80GB|81920": "A100-80GB",
		"NVIDIA H200|143771": "H200-141GB", "NVIDIA B200|183359": "B200-180GB", "NVIDIA GB200|189471": "GB200-186GB", "NVIDIA L4|23034": "L4", "NVIDIA L40S|46068": "L40S", "Tesla T4|15360": "T4",
		"NVIDIA RTX PRO 6000 Blackwell Server Edition|97887": "RTX-PRO-6000-Blackwell", "NVIDIA GeForce RTX 4090|24564": "GeForce-RTX-4090-24GB",
	}
	for what, want := range known {
		name, mem, _ := strings.Cut(what, "|")
		var mib int64
		fmt.Sscan(mem, &mib) //nolint:errcheck // a constant of this test
		m, _, err := modelOf(listed{Name: name, MemoryMiB: mib}, nil)
		if err != nil || m.Key != want {
			t.Errorf("%s with %d MiB is %s, want %s, %v", name, mib, m.Key, want, err)
		}
	}
	h100 := listed{Name: "NVIDIA H100 80GB HBM3", MemoryMiB: 81559, HasMIG: true}
	good := profileInfo{ID: 19, Compute: 1, Max: 7, MemoryMiB: 9984, Places: []place{{0, 1}, {1, 1}}}
	m, _, err := modelOf(h100, []profileInfo{good})
	if err != nil || m.Profiles[0].Name != "1g.10gb" {
		t.Errorf("an older driver's profile is %+v, %v", m, err)
	}
	for what, spoil := range map[string]func(p *profileInfo){
		"no place":       func(p *profileInfo) { p.Places = nil },
		"two sizes":      func(p *profileInfo) { p.Places = []place{{0, 1}, {2, 2}} },
		"off the board":  func(p *profileInfo) { p.Places = []place{{99, 42}} },
		"too much":       func(p *profileInfo) { p.MemoryMiB = 90000 },
		"no slices":      func(p *profileInfo) { p.Compute = 0 },
		"the same twice": func(p *profileInfo) { p.ID = 19 },
	} {
		bad := good
		bad.ID, bad.MemoryMiB = 14, 20000
		spoil(&bad)
		if _, _, err := modelOf(h100, []profileInfo{good, bad}); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// TestNonsenseIsNotPlanned: a GPU whose answers make no sense is not used, and the next
// one is.
func TestNonsenseIsNotPlanned(t *testing.T) {
	s := newSim("H100-80GB", 2)
	s.gpus[0].model.Profiles = slices.Clone(s.gpus[0].model.Profiles)
	s.gpus[0].model.Profiles[2].MemoryMiB = 1 << 20
	d := openSim(t, s, options(t, "one"))
	inv, err := d.Observe(t.Context())
	if err != nil || len(inv.Verdicts) != 1 || inv.Verdicts[0].GPUID != s.gpus[0].UUID || !strings.Contains(inv.Verdicts[0].Why, "no sense") {
		t.Errorf("got %+v, %v", inv.Verdicts, err)
	}
	_, err = d.Carve(t.Context(), simPart(d, 1, simMIG(d, 0, "1g.10gb", 0)))
	simCode(t, err, driver.ErrForbidden)
	if _, err := d.Carve(t.Context(), simPart(d, 2, simMIG(d, 1, "1g.10gb", 0))); err != nil {
		t.Error(err)
	}
}

// TestHeatMustLast uses judge's own clock.
func TestHeatMustLast(t *testing.T) {
	s := newSim("H100-80GB", 1)
	s.gpus[0].Clocks = 0x40
	d := openSim(t, s, options(t, "one"))
	inv, err := d.Observe(t.Context())
	if err != nil || len(inv.Verdicts) != 0 {
		t.Errorf("hot for a moment: %+v, %v", inv.Verdicts, err)
	}
	if inv, err = d.inventory(time.Now().Add(time.Minute)); err != nil || len(inv.Verdicts) != 1 || inv.Verdicts[0].Do != gpu.VerdictCordon {
		t.Errorf("hot for a minute: %+v, %v", inv.Verdicts, err)
	}
}

// TestXIDEnds: what a reset mends is over when the driver wants nothing done any more.
func TestXIDEnds(t *testing.T) {
	s := newSim("H100-80GB", 2)
	d := openSim(t, s, options(t, "one"))
	s.events = []event{{GPU: s.gpus[0].UUID, XID: 48, GI: everywhere}, {GPU: s.gpus[0].UUID, XID: 13, GI: everywhere}}
	inv, err := d.Observe(t.Context())
	if err != nil || len(inv.Verdicts) != 1 || inv.Verdicts[0].Do != gpu.VerdictDrain || inv.Verdicts[0].Mend == "" || len(inv.Faults) != 1 {
		t.Fatalf("XID 48: %+v, %v", inv, err)
	}
	if inv, err = d.inventory(time.Now().Add(2 * time.Minute)); err != nil || len(inv.Verdicts) != 0 {
		t.Errorf("after the reset: %+v, %v", inv.Verdicts, err)
	}
	s.events = []event{{GPU: s.gpus[1].UUID, XID: 79, GI: everywhere}}
	if inv, err = d.Observe(t.Context()); err != nil || len(inv.Verdicts) != 2 || inv.Verdicts[0].Do != gpu.VerdictCordon || inv.Verdicts[1].Do != gpu.VerdictBroken {
		t.Errorf("XID 79 is the whole machine's: %+v, %v", inv.Verdicts, err)
	}
}

func TestFreedIsBounded(t *testing.T) {
	var f freed
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 3 * freedKept {
		f.add(work.Owner{Task: work.TaskID(i), Epoch: rng.Uint32()})
	}
	if len(f.is) != freedKept || len(f.ring) != freedKept {
		t.Errorf("%d owners are kept, want %d", len(f.is), freedKept)
	}
}

// TestSweep removes what a crash left of a file that was not renamed yet.
func TestSweep(t *testing.T) {
	o := options(t, "one")
	openSim(t, newSim("H100-80GB", 1), o)
	for _, name := range []string{".machine.json-1", "parts/.7.1.0.json-22"} {
		if err := os.WriteFile(filepath.Join(o.Dir, name), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	openSim(t, newSim("H100-80GB", 1), o)
	if _, err := os.Stat(filepath.Join(o.Dir, ".machine.json-1")); err == nil || len(leftovers(t, o.Dir)) > 0 {
		t.Errorf("left are %v, and what is beside: %v", leftovers(t, o.Dir), err)
	}
}
