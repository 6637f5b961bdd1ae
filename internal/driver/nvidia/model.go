package nvidia

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gpupool/gpupool/internal/gpu"
)

// reported is how well a row is known that the driver itself gave.
var reported = gpu.Confidence{ID: "reported", Placement: "reported", Size: "reported"}

// modelOf makes the model of a GPU from what the driver says of it, and why that makes
// no sense where it does not. Where MIG mode is off some drivers name no places; then
// the table's are taken until the mode is on, as settled says.
func modelOf(g listed, ps []profileInfo) (m gpu.Model, settled bool, err error) {
	known, isKnown := builtin(g)
	m = gpu.Model{Key: keyOf(g), Arch: g.Arch, MemoryMiB: g.MemoryMiB, SMs: g.SMs}
	if isKnown {
		m.Key, m.Arch, m.SMs, m.MinDriver, m.SlowMode = known.Key, known.Arch, known.SMs, known.MinDriver, known.SlowMode
	}
	m.SlowMode = m.SlowMode || m.Arch == "Ampere"
	if !g.HasMIG || len(ps) == 0 {
		return m, true, m.Validate()
	}
	if !slices.ContainsFunc(ps, func(p profileInfo) bool { return len(p.Places) > 0 }) {
		if !isKnown || !known.HasMIG() {
			return m, false, nil // whole GPUs and shares only, until MIG mode is on
		}
		m.Units, m.Slices, m.Profiles = known.Units, known.Slices, known.Profiles
		return m, false, m.Validate()
	}
	for _, p := range ps {
		q, err := profileOf(g, p)
		if err != nil {
			return m, true, fmt.Errorf("%s: %w", g.Name, err)
		}
		m.Profiles = append(m.Profiles, q)
		m.Slices = max(m.Slices, q.Compute)
		m.Units = max(m.Units, slices.Max(q.Starts)+q.Units)
	}
	slices.SortStableFunc(m.Profiles, func(a, b gpu.Profile) int { return a.Units*100 + a.Compute - b.Units*100 - b.Compute })
	for i, p := range m.Profiles {
		if slices.ContainsFunc(m.Profiles[:i], func(q gpu.Profile) bool { return q.Name == p.Name || q.ID == p.ID }) {
			return m, true, fmt.Errorf("%s: the driver lists profile %s (%d) twice", g.Name, p.Name, p.ID)
		}
	}
	return m, true, m.Validate()
}

func profileOf(g listed, p profileInfo) (gpu.Profile, error) {
	q := gpu.Profile{Name: nameOf(g, p), ID: p.ID, Compute: p.Compute, Max: p.Max, SMs: p.SMs, MemoryMiB: p.MemoryMiB, Attr: p.Attr, Confidence: reported}
	if len(p.Places) == 0 {
		return q, fmt.Errorf("the driver names no place for profile %s, and does for others", q.Name)
	}
	q.Units = p.Places[0].Size
	for _, x := range p.Places {
		if x.Size != q.Units {
			return q, fmt.Errorf("the driver says that profile %s takes %d memory units at one place and %d at another", q.Name, q.Units, x.Size)
		}
		if x.Start < 0 || x.Size < 1 || x.Start+x.Size > maxUnits {
			return q, fmt.Errorf("the driver places profile %s at %d with %d memory units: expected them within %d", q.Name, x.Start, x.Size, maxUnits)
		}
		if !slices.Contains(q.Starts, x.Start) {
			q.Starts = append(q.Starts, x.Start)
		}
	}
	slices.Sort(q.Starts)
	switch {
	case q.Compute < 1 || q.Max < 1:
		return q, fmt.Errorf("the driver says that profile %s has %d compute slices and fits %d times", q.Name, q.Compute, q.Max)
	case q.MemoryMiB > g.MemoryMiB:
		return q, fmt.Errorf("the driver says that profile %s has %d MiB, and the whole GPU %d", q.Name, q.MemoryMiB, g.MemoryMiB)
	}
	return q, nil
}

// maxUnits is what a gpu.Mask holds.
const maxUnits = 16

// nameOf is what the driver calls a profile, or what NVIDIA's tools would.
func nameOf(g listed, p profileInfo) string {
	if name := strings.TrimPrefix(p.Name, "MIG "); name != "" {
		return name
	}
	whole := math.Ceil(float64(g.MemoryMiB) / 1024)
	eighths := math.Ceil(8 * float64(p.MemoryMiB) / float64(max(g.MemoryMiB, 1)))
	name := fmt.Sprintf("%dg.%.0fgb", p.Compute, math.Round(eighths/8*whole))
	switch p.Attr {
	case "":
		return name
	case "no_me":
		return name + "-me"
	}
	return name + "+" + p.Attr
}

// builtin finds the row of the table that a GPU belongs to: one of its family with
// about its memory.
func builtin(g listed) (gpu.Model, bool) {
	name := strings.ReplaceAll(strings.ToUpper(g.Name), " ", "-")
	var best gpu.Model
	for _, m := range gpu.Builtin() {
		family, _, _ := strings.Cut(strings.ToUpper(m.Key), "-")
		if family == "RTX" {
			family = "RTX-PRO-6000"
		}
		near := math.Abs(float64(m.MemoryMiB-g.MemoryMiB)) < 0.06*float64(g.MemoryMiB)
		if hasWord(name, family) && near && (best.Key == "" || math.Abs(float64(m.MemoryMiB-g.MemoryMiB)) < math.Abs(float64(best.MemoryMiB-g.MemoryMiB))) {
			best = m
		}
	}
	return best, best.Key != ""
}

// hasWord tells whether one of the words of a name joined by dashes is w: L4 is not L40S.
func hasWord(name, w string) bool {
	return strings.Contains("-"+name+"-", "-"+w+"-")
}

// keyOf names a model that no table knows.
func keyOf(g listed) string {
	key := strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(g.Name, "NVIDIA "), "Tesla "), " ", "-")
	if key == "" {
		key = "GPU"
	}
	return fmt.Sprintf("%s-%dGB", key, (g.MemoryMiB+512)/1024)
}

// differs says in what a model that a driver reported differs from the table; "" =
// in nothing that matters for planning, or there is none.
func differs(m gpu.Model) string {
	for _, b := range gpu.Builtin() {
		if b.Key != m.Key || !b.HasMIG() || !m.HasMIG() {
			continue
		}
		if b.Units != m.Units || b.Slices != m.Slices {
			return fmt.Sprintf("%d memory units and %d compute slices, the table says %d and %d", m.Units, m.Slices, b.Units, b.Slices)
		}
		var out []string
		for _, p := range m.Profiles {
			i := slices.IndexFunc(b.Profiles, func(q gpu.Profile) bool { return q.ID == p.ID })
			switch {
			case i < 0:
				out = append(out, p.Name+" is not in the table")
			case b.Profiles[i].Name != p.Name || b.Profiles[i].Units != p.Units || b.Profiles[i].Compute != p.Compute || b.Profiles[i].Max != p.Max || !slices.Equal(b.Profiles[i].Starts, p.Starts):
				out = append(out, fmt.Sprintf("%s takes %d units at %v, at most %d of it; the table's %s takes %d at %v, at most %d", p.Name, p.Units, p.Starts, p.Max,
					b.Profiles[i].Name, b.Profiles[i].Units, b.Profiles[i].Starts, b.Profiles[i].Max))
			}
		}
		for _, q := range b.Profiles {
			if !slices.ContainsFunc(m.Profiles, func(p gpu.Profile) bool { return p.ID == q.ID }) {
				out = append(out, q.Name+" of the table is missing")
			}
		}
		return strings.Join(out, "; ")
	}
	return ""
}
