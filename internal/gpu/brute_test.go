package gpu

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// rest is what boards.go takes from mig-profiles.json beside the geometry.
type rest struct {
	GPUs []struct {
		Key    string `json:"key"`
		SMs    int    `json:"sm_total"`
		FB     int64  `json:"fb_total_mib"`
		Driver string `json:"driver_min"`
		Mode   struct {
			Reset bool `json:"gpu_reset_needed"`
		} `json:"mig_mode_change"`
		Profiles []struct {
			Name   string            `json:"name"`
			GiB    *float64          `json:"mem_gib_reported"`
			Attrs  []string          `json:"attributes"`
			Status map[string]string `json:"status"`
		} `json:"profiles"`
		Counts map[string]json.RawMessage `json:"config_counts"`
	} `json:"gpus"`
	NamesOnly []struct {
		Key      string   `json:"key"`
		Driver   string   `json:"driver_min"`
		FB       int64    `json:"fb_total_mib"`
		Profiles [][2]any `json:"profiles"`
	} `json:"names_only"`
}

func readRest(t *testing.T) (x rest) {
	t.Helper()
	b, err := os.ReadFile("../../../shared/mig-profiles.json")
	if err != nil {
		t.Skip("../shared/mig-profiles.json is not here")
	}
	if err := json.Unmarshal(b, &x); err != nil {
		t.Fatal(err)
	}
	return x
}

// TestBoardsHaveNoMore: memory, drivers and attributes agree with the table too,
// and boards.go has no board with MIG and no profile that the table lacks.
func TestBoardsHaveNoMore(t *testing.T) {
	names := map[string][]string{}
	x := readRest(t)
	for _, g := range x.GPUs {
		m := builtin(t, g.Key)
		if m.MinDriver != g.Driver || m.SMs != g.SMs || g.FB != 0 && m.MemoryMiB != g.FB {
			t.Errorf("%s: got driver %q, %d SMs, %d MiB, want %q, %d, %d", g.Key, m.MinDriver, m.SMs, m.MemoryMiB, g.Driver, g.SMs, g.FB)
		}
		if m.SlowMode != g.Mode.Reset {
			t.Errorf("%s: a change of MIG mode is slow: %t, the table says %t", g.Key, m.SlowMode, g.Mode.Reset)
		}
		for _, want := range g.Profiles {
			names[g.Key] = append(names[g.Key], want.Name)
			p, _ := m.Profile(want.Name)
			if want.GiB != nil && math.Abs(float64(p.MemoryMiB)-*want.GiB*1024) > 1 {
				t.Errorf("%s %s: %d MiB, want %g GiB", g.Key, want.Name, p.MemoryMiB, *want.GiB)
			}
			if attr := strings.Join(want.Attrs, ","); p.Attr != attr || p.Confidence.ID != want.Status["profile_id"] ||
				!strings.HasPrefix(p.Confidence.Size, want.Status["sm_mem"]) {
				t.Errorf("%s %s: got %+v, want attributes %q and status %v", g.Key, want.Name, p, attr, want.Status)
			}
		}
	}
	for _, g := range x.NamesOnly {
		m := builtin(t, g.Key)
		if m.MinDriver != g.Driver || g.FB != 0 && m.MemoryMiB != g.FB {
			t.Errorf("%s: got driver %q, %d MiB, want %q, %d", g.Key, m.MinDriver, m.MemoryMiB, g.Driver, g.FB)
		}
		for _, row := range g.Profiles {
			name, most := row[0].(string), int(row[1].(float64))
			names[g.Key] = append(names[g.Key], name)
			p, _ := m.Profile(name)
			if p.Max != most || !strings.HasPrefix(p.Confidence.ID, "assumed") || !strings.HasPrefix(p.Confidence.Placement, "assumed") {
				t.Errorf("%s %s: got %+v, want %d at most and all of it assumed", g.Key, name, p, most)
			}
		}
	}
	for _, m := range Builtin() {
		var got []string
		for _, p := range m.Profiles {
			got = append(got, p.Name)
		}
		if !slices.Equal(got, names[m.Key]) {
			t.Errorf("%s has profiles %v, want %v", m.Key, got, names[m.Key])
		}
	}
}

// TestLayoutCountsOfTable counts the layouts of every board as the table has them.
func TestLayoutCountsOfTable(t *testing.T) {
	kinds := map[string]func(Profile) bool{
		"classic_1g_2g_3g_4g_7g": func(p Profile) bool { return p.Attr == "" && p.Units >= p.Compute && (p.Compute > 1 || p.Units == 1) },
		"plus_double_memory_1g":  func(p Profile) bool { return p.Attr == "" },
		"plus_me":                func(p Profile) bool { return p.Attr == "" || p.Attr == "me" },
		"plain_1g_2g_4g":         func(p Profile) bool { return p.Attr == "" },
	}
	checked := 0
	for _, g := range readRest(t).GPUs {
		for kind, raw := range g.Counts {
			var want struct {
				Maximal  int `json:"maximal_placement_layouts"`
				Nonempty int `json:"nonempty_placement_layouts"`
			}
			if kinds[kind] == nil || json.Unmarshal(raw, &want) != nil {
				continue
			}
			checked++
			if maximal, nonempty := layouts(builtin(t, g.Key), kinds[kind]); maximal != want.Maximal || nonempty != want.Nonempty {
				t.Errorf("%s, %s: %d maximal and %d layouts in all, want %+v", g.Key, kind, maximal, nonempty, want)
			}
		}
	}
	if checked != 25 {
		t.Errorf("%d counts were compared, want 3 of 8 boards and 1 of the RTX PRO", checked)
	}
}

// mayStand is Legal again, with a list of units in place of masks.
func mayStand(m Model, ps []Placed) bool {
	units, compute, count := map[int]bool{}, 0, map[string]int{}
	for _, pl := range ps {
		p, ok := m.Profile(pl.Profile)
		if !ok || !slices.Contains(p.Starts, pl.Start) {
			return false
		}
		for u := pl.Start; u < pl.Start+p.Units; u++ {
			if units[u] {
				return false
			}
			units[u] = true
		}
		compute += p.Compute
		if count[p.Name]++; count[p.Name] > p.Max {
			return false
		}
	}
	return compute <= m.Slices
}

// scarce is a board on which compute slices run out before memory units.
func scarce() Model {
	return Model{Key: "scarce", Units: 16, Slices: 5, Profiles: []Profile{
		{Name: "1g", Compute: 1, Units: 1, Starts: []int{0, 3, 9, 15}, Max: 3}, {Name: "2g", Compute: 2, Units: 3, Starts: []int{0, 1, 6, 13}, Max: 2},
		{Name: "5g", Compute: 5, Units: 16, Starts: []int{0}, Max: 1},
	}}
}

// TestLegalBrute holds Legal against mayStand: on random layouts of every board.
func TestLegalBrute(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, m := range append(Builtin(), scarce()) {
		if !m.HasMIG() {
			continue
		}
		g, legal := NewGeometry(m), 0
		for range 3000 {
			var ps []Placed
			for range rng.IntN(6) {
				p := m.Profiles[rng.IntN(len(m.Profiles))]
				start := p.Starts[rng.IntN(len(p.Starts))]
				if rng.IntN(20) == 0 {
					start = rng.IntN(m.Units+2) - 1
				}
				ps = append(ps, Placed{p.Name, start})
			}
			got, want := g.Legal(ps), mayStand(m, ps)
			if (got == "") != want {
				t.Fatalf("%s %v: got %q, want legal = %t", m.Key, ps, got, want)
			}
			if want && len(ps) > 1 {
				legal++
			}
		}
		if legal < 30 {
			t.Errorf("%s: only %d layouts of several slices were legal", m.Key, legal)
		}
	}
}

// TestMaskDecides: on every known board, whether a plain profile may be added to a
// legal layout of plain profiles follows from the taken units alone. Placement
// counts on it: it keeps units, not compute slices.
func TestMaskDecides(t *testing.T) {
	for _, m := range Builtin() {
		g := NewGeometry(m)
		var walk func(ps []Placed, taken Mask, from int)
		walk = func(ps []Placed, taken Mask, from int) {
			room, at := 0, 0
			for i, p := range m.Profiles {
				if p.Attr != "" {
					continue
				}
				for _, s := range p.Starts {
					free := g.Starts(i, taken)&(1<<s) != 0
					if free {
						room += p.Units
					}
					next := append(slices.Clone(ps), Placed{p.Name, s})
					if may := mayStand(m, next); may != free {
						t.Fatalf("%s: %v beside %v is legal = %t, the mask says %t", m.Key, next[len(ps)], ps, may, free)
					}
					if at++; free && at > from {
						walk(next, taken|p.Mask(s), at)
					}
				}
			}
			if got := g.Room(taken); m.HasMIG() && got != room {
				t.Fatalf("%s, %v: room %d, want %d", m.Key, ps, got, room)
			}
		}
		walk(nil, 0, 0)
	}
}

// TestValidateOverflow: a start near the largest number is outside the board too.
func TestValidateOverflow(t *testing.T) {
	for _, p := range []Profile{
		{Name: "a", Compute: 1, Units: 1, Starts: []int{math.MaxInt}, Max: 1}, {Name: "a", Compute: 1, Units: math.MaxInt, Starts: []int{0}, Max: 1},
		{Name: "a", Compute: 1, Units: math.MaxInt, Starts: []int{1}, Max: 1},
	} {
		if err := (Model{Key: "X", Units: 8, Slices: 7, Profiles: []Profile{p}}).Validate(); err == nil {
			t.Errorf("profile %+v is valid on a board of 8 units", p)
		}
	}
}

// FuzzLegalBrute reads placements from bytes, two for each.
func FuzzLegalBrute(f *testing.F) {
	f.Add([]byte{0, 0, 3, 4})
	f.Add([]byte{1, 0, 1, 1, 6, 0})
	models := []Model{builtin(f, "A100-40GB"), scarce(), builtin(f, "RTX-PRO-6000-Blackwell")}
	var geos []*Geometry
	for _, m := range models {
		geos = append(geos, NewGeometry(m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 64 {
			return
		}
		for _, g := range geos {
			var ps []Placed
			for i := 0; i+1 < len(b); i += 2 {
				name := "none"
				if n := int(b[i]); n < len(g.Model.Profiles) {
					name = g.Model.Profiles[n].Name
				}
				ps = append(ps, Placed{name, int(int8(b[i+1]))})
			}
			if got, want := g.Legal(ps), mayStand(g.Model, ps); (got == "") != want {
				t.Errorf("%s %v: got %q, want legal = %t", g.Model.Key, ps, got, want)
			}
		}
	})
}
