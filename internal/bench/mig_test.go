package bench

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gpupool/gpupool/internal/gpu"
)

// Profiles of the mix, as indices of migAsk.kinds.
const (
	g1 = iota
	g2
	g3
	g4
	g7
)

func askMIG(t *testing.T, o MIGOptions) *migAsk {
	t.Helper()
	a, err := o.withDefaults().ask()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestMIGRules plays small examples through each published rule, worked out by hand.
// The pool has two GPUs.
func TestMIGRules(t *testing.T) {
	refused := migSpot{-1, -1}
	type play struct {
		kind int // of migAsk.kinds; -1 = free the slice of step start
		want migSpot
	}
	free := func(step int) play { return play{-1, migSpot{start: step}} }
	for _, x := range []struct {
		rule, name string
		plays      []play
	}{
		{migLowest, "lowest start of the first GPU", []play{
			{g1, migSpot{0, 0}}, {g2, migSpot{0, 2}}, {g4, migSpot{1, 0}}, {g3, migSpot{0, 4}}, {g3, migSpot{1, 4}}, {g1, migSpot{0, 1}}, {g1, refused}}},
		{migLowest, "a hole is used before the next GPU", []play{
			{g7, migSpot{0, 0}}, {g3, migSpot{1, 0}}, free(0), {g1, migSpot{0, 0}}, {g7, refused}}},
		{migBinpack, "1g and 3g from the high end, others from the low end", []play{
			{g1, migSpot{0, 6}}, {g2, migSpot{0, 0}}, {g1, migSpot{0, 5}}, {g3, migSpot{1, 4}}, {g4, migSpot{1, 0}}, {g2, migSpot{0, 2}}, {g3, refused}}},
		{migBinpack, "the fullest that fits", []play{
			{g2, migSpot{0, 0}}, {g7, migSpot{1, 0}}, free(1), {g3, migSpot{0, 4}}, {g4, migSpot{1, 0}}, {g1, migSpot{0, 3}}, {g3, migSpot{1, 4}}}},
		{migBinpack, "full is by slots, compute and memory: three 1g outdo a 2g", []play{
			{g2, migSpot{0, 0}}, {g7, migSpot{1, 0}}, {g3, migSpot{0, 4}}, free(1), {g1, migSpot{0, 3}}, {g1, migSpot{0, 2}}, {g1, migSpot{1, 6}},
			{g1, migSpot{1, 5}}, {g1, migSpot{1, 4}}, free(2), free(4), free(5), {g1, migSpot{1, 3}}}},
		{migSpread, "the emptiest that fits", []play{
			{g1, migSpot{0, 6}}, {g2, migSpot{1, 0}}, {g1, migSpot{0, 5}}, {g2, migSpot{1, 2}}, {g7, refused}, {g3, migSpot{0, 0}}, {g4, refused}, {g3, migSpot{1, 4}}, {g3, refused}}},
		{migTemplate, "locked to seven 1g until empty", []play{
			{g1, migSpot{0, 0}}, {g1, migSpot{0, 1}}, {g3, migSpot{1, 0}}, {g2, refused}, {g3, migSpot{1, 4}}, free(0), {g2, refused}, free(1), {g2, migSpot{0, 0}}}},
		{migTemplate, "three 2g and a 1g; 4g and 3g", []play{
			{g2, migSpot{0, 0}}, {g1, migSpot{0, 6}}, {g4, migSpot{1, 0}}, {g1, refused}, {g3, migSpot{1, 4}}, {g2, migSpot{0, 2}}, {g2, migSpot{0, 4}}, {g2, refused}}},
	} {
		t.Run(x.rule+"/"+x.name, func(t *testing.T) {
			a := askMIG(t, MIGOptions{})
			rules := a.rules()
			p := rules[slices.IndexFunc(rules, func(r migRule) bool { return r.name == x.rule })].make(2)
			for i, y := range x.plays {
				if y.kind < 0 {
					n := y.want.start
					p.free(n, a.kinds[x.plays[n].kind], x.plays[n].want)
					continue
				}
				spot, ok := p.take(i, a.kinds[y.kind])
				if !ok {
					spot = refused
				}
				if spot != y.want {
					t.Fatalf("step %d: %s at %v, wanted %v", i, a.geo.Model.Profiles[a.kinds[y.kind]].Name, spot, y.want)
				}
			}
		})
	}
}

// TestMIGLayouts compares the templates with NVIDIA's number of layouts.
func TestMIGLayouts(t *testing.T) {
	a := askMIG(t, MIGOptions{})
	layouts := migLayouts(a.geo, a.kinds)
	if len(layouts) != 19 {
		t.Fatalf("%d layouts, wanted 19", len(layouts))
	}
	for _, l := range layouts {
		var placed []gpu.Placed
		for _, s := range l {
			placed = append(placed, gpu.Placed{Profile: a.geo.Model.Profiles[s.profile].Name, Start: s.start})
		}
		if bad := a.geo.Legal(placed); bad != "" {
			t.Errorf("%v: %s", placed, bad)
		}
	}
}

// legalPlacer passes everything on and checks what stands on each GPU.
type legalPlacer struct {
	migPlacer
	t      *testing.T
	geo    *gpu.Geometry
	placed [][]gpu.Placed
}

func (l *legalPlacer) take(n, profile int) (migSpot, bool) {
	s, ok := l.migPlacer.take(n, profile)
	if ok {
		l.placed[s.gpu] = append(l.placed[s.gpu], gpu.Placed{Profile: l.geo.Model.Profiles[profile].Name, Start: s.start})
		if bad := l.geo.Legal(l.placed[s.gpu]); bad != "" {
			l.t.Fatalf("request %d: GPU %d has %v: %s", n, s.gpu, l.placed[s.gpu], bad)
		}
	}
	return s, ok
}

func (l *legalPlacer) free(n, profile int, at migSpot) {
	i := slices.IndexFunc(l.placed[at.gpu], func(p gpu.Placed) bool { return p.Start == at.start })
	l.placed[at.gpu] = slices.Delete(l.placed[at.gpu], i, i+1)
	l.migPlacer.free(n, profile, at)
}

// TestMIGLegal runs every rule on every mix and sees only legal layouts.
func TestMIGLegal(t *testing.T) {
	for _, mix := range migMixes() {
		a := askMIG(t, MIGOptions{Mix: mix.name})
		s := a.stream(1, 0.9, 10, 2000) // 10 GPUs: the second host has two
		for _, r := range a.rules() {
			t.Run(mix.name+"/"+r.name, func(t *testing.T) {
				c, err := s.run(t.Context(), &legalPlacer{r.make(10), t, a.geo, make([][]gpu.Placed, 10)})
				if err != nil || c.asked != 2000 || c.refused == 0 || c.refused == c.asked {
					t.Errorf("%+v, %v", c, err)
				}
			})
		}
	}
}

// TestMIGStreams: one seed gives one stream, with the same sizes and run times at every
// load, and another seed another.
func TestMIGStreams(t *testing.T) {
	a := askMIG(t, MIGOptions{})
	s := a.stream(3, 0.5, 8, 500)
	if !reflect.DeepEqual(s, a.stream(3, 0.5, 8, 500)) {
		t.Error("one seed, two streams")
	}
	if reflect.DeepEqual(s, a.stream(4, 0.5, 8, 500)) {
		t.Error("two seeds, one stream")
	}
	for i, q := range a.stream(3, 1, 8, 500)[:500] {
		if q.kind != s[i].kind || q.runs != s[i].runs || q.at >= s[i].at {
			t.Fatalf("request %d is %+v at twice the load of %+v", i, q, s[i])
		}
	}
	units, runs := 0.0, 0.0
	s = a.stream(1, 0.8, 8, 20_000)
	for _, q := range s {
		units += float64(q.units) * q.runs
		runs += q.runs
	}
	if load := units / s[len(s)-1].at / (8 * 8); load < 0.76 || load > 0.84 {
		t.Errorf("a stream of load 0.8 asks for %.3f", load)
	}
}

// recorder notes what it is asked for and places nothing.
type recorder struct{ kinds []int }

func (r *recorder) take(_, profile int) (migSpot, bool) {
	r.kinds = append(r.kinds, profile)
	return migSpot{}, false
}

func (r *recorder) free(int, int, migSpot) {}

// TestMIGCounts: what comes in the warm-up does not count, and units do.
func TestMIGCounts(t *testing.T) {
	a := askMIG(t, MIGOptions{})
	s := a.stream(1, 0.8, 8, 300)
	var r recorder
	c, err := s.run(t.Context(), &r)
	if err != nil || c.asked != 300 || c.refused != 300 || c.askedUnits != c.refusedUnits || c.askedUnits <= 300 {
		t.Errorf("%+v, %v", c, err)
	}
	if len(r.kinds) != len(s) || len(s) <= 300 {
		t.Errorf("a rule saw %d of %d requests", len(r.kinds), len(s))
	}
}

func TestMIG(t *testing.T) {
	var done, total int
	o := MIGOptions{GPUs: 8, Loads: []float64{0.3, 1.2}, Seeds: 2, Requests: 400, Model: "A100-40GB",
		Progress: func(d, n int) { done, total = d, n }}
	a, err := MIG(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	b, err := MIG(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	a.WallS, b.WallS = 0, 0
	if !reflect.DeepEqual(a, b) {
		t.Errorf("two runs differ:\n%+v\n%+v", a, b)
	}
	if done != 20 || total != 20 || len(a.Loads) != 2 || a.Mix != "balanced" {
		t.Errorf("%d of %d runs: %+v", done, total, a)
	}
	for _, r := range a.Rules {
		low, high := a.Loads[0].Refused[r], a.Loads[1].Refused[r]
		if low < 0 || high > 1 || low >= high || a.Loads[1].RefusedSD[r] <= 0 || a.Loads[1].RefusedWeighted[r] <= high {
			t.Errorf("%s: %v refused at load 0.3, %v at 1.2 (%+v)", r, low, high, a.Loads[1])
		}
	}
}

func TestMIGBadOptions(t *testing.T) {
	for _, x := range []struct {
		o    MIGOptions
		want string
	}{
		{MIGOptions{GPUs: -1}, "-1 GPUs is out of range: expected 1 to 4096"},
		{MIGOptions{Seeds: 2000}, "2000 seeds is out of range: expected 1 to 1000"},
		{MIGOptions{Requests: -5}, "-5 requests is out of range"},
		{MIGOptions{Loads: []float64{0.5, 0}}, "load 0 is out of range: expected above 0"},
		{MIGOptions{Mix: "odd"}, `mix "odd" is not known: expected balanced, small-heavy, large-heavy`},
		{MIGOptions{Model: "T4"}, `model "T4" has no slices`},
		{MIGOptions{Model: "RTX-PRO-6000"}, "expected one of A100-40GB"},
	} {
		if _, err := MIG(t.Context(), x.o); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%+v gave %v, wanted %q", x.o, err, x.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := MIG(ctx, MIGOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
