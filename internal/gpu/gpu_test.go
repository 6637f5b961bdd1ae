package gpu

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// table is what this file needs of mig-profiles.json.
type table struct {
	GPUs []struct {
		Key      string `json:"key"`
		Arch     string `json:"arch"`
		Units    int    `json:"memory_units_total"`
		Slices   int    `json:"compute_slices_total"`
		Profiles []struct {
			Name    string            `json:"name"`
			ID      *int              `json:"profile_id"`
			Compute int               `json:"compute_slices"`
			Size    int               `json:"placement_size"`
			Starts  []int             `json:"placement_starts"`
			Max     int               `json:"max_instances"`
			SM      *int              `json:"sm"`
			Status  map[string]string `json:"status"`
		} `json:"profiles"`
		Counts map[string]json.RawMessage `json:"config_counts"`
	} `json:"gpus"`
}

func readTable(t *testing.T) table {
	t.Helper()
	b, err := os.ReadFile("../../../shared/mig-profiles.json")
	if err != nil {
		t.Skip("../shared/mig-profiles.json is not here")
	}
	var x table
	if err := json.Unmarshal(b, &x); err != nil {
		t.Fatal(err)
	}
	return x
}

func builtin(t testing.TB, key string) Model {
	t.Helper()
	for _, m := range Builtin() {
		if m.Key == key {
			return m
		}
	}
	t.Fatalf("there is no model %s", key)
	return Model{}
}

// TestBoardsAgree holds every row of boards.go against the table it comes from.
func TestBoardsAgree(t *testing.T) {
	checked := 0
	for _, g := range readTable(t).GPUs {
		i := slices.IndexFunc(Builtin(), func(m Model) bool { return m.Key == g.Key })
		if i < 0 {
			t.Errorf("board %s is missing", g.Key)
			continue
		}
		m := Builtin()[i]
		if m.Arch != g.Arch || m.HasMIG() && (m.Units != g.Units || m.Slices != g.Slices) {
			t.Errorf("%s: got %+v", g.Key, m)
		}
		for _, want := range g.Profiles {
			p, ok := m.Profile(want.Name)
			if !ok {
				if want.Size > 0 && len(want.Starts) > 0 {
					t.Errorf("%s: profile %s is missing", g.Key, want.Name)
				}
				continue
			}
			checked++
			if want.ID != nil && p.ID != *want.ID || p.Compute != want.Compute || p.Units != want.Size || !slices.Equal(p.Starts, want.Starts) ||
				p.Max != want.Max || want.SM != nil && p.SMs != *want.SM {
				t.Errorf("%s %s: got %+v, want %+v", g.Key, want.Name, p, want)
			}
			if p.Confidence.Placement != want.Status["placement"] {
				t.Errorf("%s %s: placement is known as %q, the table says %q", g.Key, want.Name, p.Confidence.Placement, want.Status["placement"])
			}
			if p.MemoryMiB <= 0 || p.MemoryMiB > m.MemoryMiB {
				t.Errorf("%s %s: %d MiB of %d", g.Key, want.Name, p.MemoryMiB, m.MemoryMiB)
			}
		}
	}
	if checked < 60 {
		t.Errorf("only %d rows were compared", checked)
	}
}

// layouts counts by trying everything how profiles may stand on a board together.
func layouts(m Model, allowed func(Profile) bool) (maximal, nonempty int) {
	var profiles []Profile
	for _, p := range m.Profiles {
		if allowed(p) {
			profiles = append(profiles, p)
		}
	}
	fits := func(p Profile, start int, taken Mask, compute int, count []int, i int) bool {
		return taken&p.Mask(start) == 0 && compute+p.Compute <= m.Slices && count[i] < p.Max
	}
	count := make([]int, len(profiles))
	var walk func(from int, taken Mask, compute int)
	walk = func(from int, taken Mask, compute int) {
		if taken != 0 {
			nonempty++
			room := false
			for i, p := range profiles {
				for _, s := range p.Starts {
					room = room || fits(p, s, taken, compute, count, i)
				}
			}
			if !room {
				maximal++
			}
		}
		at := 0 // placements in a fixed order, so that each layout is met once
		for i, p := range profiles {
			for _, s := range p.Starts {
				if at++; at > from && fits(p, s, taken, compute, count, i) {
					count[i]++
					walk(at, taken|p.Mask(s), compute+p.Compute)
					count[i]--
				}
			}
		}
	}
	walk(0, 0, 0)
	return maximal, nonempty
}

func TestLayoutCounts(t *testing.T) {
	classic := func(p Profile) bool {
		return p.Attr == "" && !strings.HasPrefix(p.Name, "1g.") || p.Attr == "" && p.Units == 1
	}
	for _, x := range []struct {
		key               string
		allowed           func(Profile) bool
		maximal, nonempty int
	}{
		{"A100-40GB", classic, 19, 297},
		{"A100-40GB", func(p Profile) bool { return p.Attr == "" }, 78, 722},
		{"A100-40GB", func(p Profile) bool { return p.Attr == "" || p.Attr == "me" }, 239, 2318},
		{"H100-80GB", classic, 19, 297},
		{"H100-80GB", func(p Profile) bool { return p.Attr == "" }, 78, 722},
	} {
		if maximal, nonempty := layouts(builtin(t, x.key), x.allowed); maximal != x.maximal || nonempty != x.nonempty {
			t.Errorf("%s: %d maximal and %d layouts in all, want %d and %d", x.key, maximal, nonempty, x.maximal, x.nonempty)
		}
	}
}

// TestGeometry holds the tables against what they say, for every board.
func TestGeometry(t *testing.T) {
	for _, m := range Builtin() {
		if err := m.Validate(); err != nil {
			t.Error(err)
		}
		g := NewGeometry(m)
		for i, p := range m.Profiles {
			if g.Index(p.Name) != i {
				t.Errorf("%s: profile %s is number %d, the table says %d", m.Key, p.Name, i, g.Index(p.Name))
			}
			for state := range Mask(1 << m.Units) {
				var starts Mask
				for _, s := range p.Starts {
					if state&p.Mask(s) == 0 {
						starts |= 1 << s
					}
				}
				if g.Starts(i, state) != starts {
					t.Fatalf("%s %s in state %b: starts %b, want %b", m.Key, p.Name, state, g.Starts(i, state), starts)
				}
				if got, want := g.Count(i, state), mostOf(p, state, p.Max); got != want {
					t.Fatalf("%s %s in state %b: %d fit, want %d", m.Key, p.Name, state, got, want)
				}
			}
		}
	}
}

// mostOf tries every order to put a profile on a board.
func mostOf(p Profile, state Mask, left int) int {
	best := 0
	for _, s := range p.Starts {
		if left > 0 && state&p.Mask(s) == 0 {
			best = max(best, 1+mostOf(p, state|p.Mask(s), left-1))
		}
	}
	return best
}

func TestSmallest(t *testing.T) {
	for _, m := range Builtin() {
		for milli := 0; milli <= 1000; milli += 37 {
			for mem := int64(0); mem <= m.MemoryMiB+5000; mem += m.MemoryMiB/9 + 1 {
				got, want := m.Smallest(milli, mem), -1
				for i, p := range m.Profiles {
					meets := p.Attr == "" && m.Milli(p) >= milli && p.MemoryMiB >= mem
					if meets && (want < 0 || p.Units < m.Profiles[want].Units || p.Units == m.Profiles[want].Units && p.Compute < m.Profiles[want].Compute) {
						want = i
					}
				}
				if got != want {
					t.Fatalf("%s, %d/1000 with %d MiB: profile %d, want %d", m.Key, milli, mem, got, want)
				}
			}
		}
	}
	h := builtin(t, "H100-80GB")
	for ask, want := range map[int]string{143: "1g.10gb", 144: "2g.20gb", 286: "2g.20gb", 300: "3g.40gb", 430: "4g.40gb", 600: "7g.80gb"} {
		if got := h.Profiles[h.Smallest(ask, 0)].Name; got != want {
			t.Errorf("%d/1000 of an H100 is %s, want %s", ask, got, want)
		}
	}
}

func TestLegal(t *testing.T) {
	g := NewGeometry(builtin(t, "H100-80GB"))
	for _, x := range []struct {
		ps   []Placed
		want string
	}{
		{nil, ""}, {[]Placed{{"4g.40gb", 0}, {"3g.40gb", 4}}, ""}, {[]Placed{{"3g.40gb", 0}, {"3g.40gb", 4}}, ""},
		{[]Placed{{"3g.40gb", 4}, {"4g.40gb", 4}}, "may not start"}, {[]Placed{{"3g.40gb", 0}, {"1g.10gb", 3}}, "overlaps"},
		{[]Placed{{"5g", 0}}, "no profile"}, {[]Placed{{"1g.10gb", 7}}, "may not start"}, {[]Placed{{"1g.10gb", -1}}, "may not start"},
		{[]Placed{{"1g.10gb+me", 0}, {"1g.10gb+me", 1}}, "too many"},
		{[]Placed{{"4g.40gb", 0}, {"3g.40gb", 4}, {"1g.10gb", 6}}, "overlaps"},
	} {
		if got := g.Legal(x.ps); (got == "") != (x.want == "") || !strings.Contains(got, x.want) {
			t.Errorf("%v: got %q, want %q", x.ps, got, x.want)
		}
	}
}

func TestValidate(t *testing.T) {
	good := func() Model {
		return Model{Key: "X", Units: 8, Slices: 7, Profiles: []Profile{{Name: "a", Compute: 1, Units: 1, Starts: []int{0}, Max: 1}}}
	}
	if err := good().Validate(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(m *Model){
		"no key": func(m *Model) { m.Key = "" }, "too many units": func(m *Model) { m.Units = 17 }, "negative units": func(m *Model) { m.Units = -1 },
		"no slices": func(m *Model) { m.Slices = 0 }, "no profiles": func(m *Model) { m.Profiles = nil }, "no name": func(m *Model) { m.Profiles[0].Name = "" },
		"no compute": func(m *Model) { m.Profiles[0].Compute = 0 }, "more compute than there is": func(m *Model) { m.Profiles[0].Compute = 8 },
		"no units": func(m *Model) { m.Profiles[0].Units = 0 }, "no starts": func(m *Model) { m.Profiles[0].Starts = nil },
		"no maximum": func(m *Model) { m.Profiles[0].Max = 0 }, "outside": func(m *Model) { m.Profiles[0].Starts = []int{8} }, "before": func(m *Model) { m.Profiles[0].Starts = []int{-1} },
	} {
		m := good()
		spoil(&m)
		if m.Validate() == nil {
			t.Errorf("a model with %s is valid", name)
		}
	}
}

func FuzzLegal(f *testing.F) {
	f.Add("3g.40gb", 0, "1g.10gb", 4)
	g := NewGeometry(builtin(f, "H100-80GB"))
	f.Fuzz(func(t *testing.T, a string, at int, b string, bt int) {
		one, two := []Placed{{a, at}, {b, bt}}, []Placed{{b, bt}, {a, at}}
		if (g.Legal(one) == "") != (g.Legal(two) == "") {
			t.Errorf("%v: the order matters", one)
		}
	})
}
