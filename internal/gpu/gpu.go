// Package gpu holds the hardware words of gpupool: models, profiles, placements
// and the geometry that says which placements may stand on one GPU together.
//
// It is pure data and table look-ups: nothing here grows with the cluster. A
// Geometry costs a few kilobytes per model (2^units states times the number of
// profiles) and is computed once when a model becomes known.
package gpu

import "fmt"

// Mask says which memory units of a GPU are taken: bit i is unit i. Seven-slice
// boards have eight units, the RTX PRO 6000 has twelve.
type Mask uint16

// Mode says how a GPU is divided at the moment. An empty GPU has ModeFree and
// may take any mode its model allows.
type Mode string

// The sharing modes of a GPU.
const (
	ModeFree   Mode = "free"   // nothing stands on it
	ModeWhole  Mode = "whole"  // one task has it all
	ModeMIG    Mode = "mig"    // hardware partitions; tenants may differ
	ModeShared Mode = "shared" // MPS or time slices; one tenant only
)

// Health says whether a GPU may be given out. Only one that is ok is.
type Health string

// The health of a GPU.
const (
	HealthOK       Health = "ok"
	HealthSuspect  Health = "suspect"  // a carve failed lately: not used until a given time
	HealthCordoned Health = "cordoned" // gets no new work; what runs on it goes on
	HealthDraining Health = "draining" // and what runs on it is moved away
	HealthDrained  Health = "drained"  // nothing is left on it
	HealthBroken   Health = "broken"   // nothing on it can be believed
)

// Out reports whether a GPU is out of use until someone says otherwise.
func (h Health) Out() bool { return h != HealthOK && h != HealthSuspect }

// Verdict is what someone, an operator or a driver, wants done with a GPU that ails.
type Verdict string

// The verdicts, in the order of their weight.
const (
	VerdictNone   Verdict = ""       // nothing is wrong with it
	VerdictCordon Verdict = "cordon" // no new work; what runs goes on
	VerdictDrain  Verdict = "drain"  // and what runs is moved away: asked to end, ended after its grace, back in line
	VerdictBroken Verdict = "broken" // it is lost, and what ran on it too; only a driver can know
)

// Verdicts lists the verdicts in the order of their weight.
func Verdicts() []Verdict {
	return []Verdict{VerdictNone, VerdictCordon, VerdictDrain, VerdictBroken}
}

// Confidence says how well a row of the tables is known, in the words of
// mig-profiles.json: "verified", "derived", "single capture", "assumed", …
type Confidence struct {
	ID        string `json:"id"`        // of the NVML profile id
	Placement string `json:"placement"` // of size and starts
	Size      string `json:"size"`      // of SM count and memory
}

// Profile is one kind of MIG partition of a model.
type Profile struct {
	Name       string     `json:"name"`           // "3g.40gb"
	ID         int        `json:"id"`             // NVML profile id (info.id), not the enum
	Compute    int        `json:"compute"`        // compute slices it takes
	Units      int        `json:"units"`          // memory units it takes, from its start
	Starts     []int      `json:"starts"`         // every legal start, whatever else stands there
	Max        int        `json:"max"`            // instances of this profile on one GPU at most
	SMs        int        `json:"sms"`            // 0 = not known
	MemoryMiB  int64      `json:"memory_mib"`     // as the driver reports it, where known
	Attr       string     `json:"attr,omitempty"` // "" for plain profiles, else "me", "gfx", "me.all", "no_me"
	Confidence Confidence `json:"confidence"`
}

// Mask returns the units that the profile takes when it starts at start.
func (p Profile) Mask(start int) Mask { return Mask((1<<p.Units - 1) << start) }

// Model describes a GPU model. MIG geometry is absent (Units 0) where the
// hardware has none.
type Model struct {
	Key       string    `json:"key"` // "H100-80GB"
	Arch      string    `json:"arch"`
	MemoryMiB int64     `json:"memory_mib"` // frame buffer in all; 0 = not known
	SMs       int       `json:"sms"`        // 0 = not known
	Units     int       `json:"units"`      // memory units; 0 = no MIG
	Slices    int       `json:"slices"`     // compute slices; 0 = no MIG
	MinDriver string    `json:"min_driver,omitempty"`
	SlowMode  bool      `json:"slow_mode,omitempty"` // a change of MIG mode needs a GPU reset (Ampere)
	Profiles  []Profile `json:"profiles,omitempty"`
}

// HasMIG reports whether the model can be partitioned in hardware.
func (m Model) HasMIG() bool { return m.Units > 0 }

// Milli returns the compute of a profile in thousandths of the GPU, rounded up
// so that a request for 1/7 is met by one slice of seven.
func (m Model) Milli(p Profile) int {
	if m.Slices == 0 {
		return 1000
	}
	return (p.Compute*1000 + m.Slices - 1) / m.Slices
}

// Profile finds a profile by name.
func (m Model) Profile(name string) (Profile, bool) {
	for _, p := range m.Profiles {
		if p.Name == name {
			return p, true
		}
	}
	return Profile{}, false
}

// Smallest returns the index of the smallest plain profile with at least milli
// thousandths of the GPU's compute and memMiB of memory, or -1. Smallest means
// fewest memory units, then fewest compute slices.
func (m Model) Smallest(milli int, memMiB int64) int {
	best := -1
	for i, p := range m.Profiles {
		if p.Attr != "" || m.Milli(p) < milli || p.MemoryMiB < memMiB {
			continue
		}
		if best < 0 || p.Units < m.Profiles[best].Units ||
			p.Units == m.Profiles[best].Units && p.Compute < m.Profiles[best].Compute {
			best = i
		}
	}
	return best
}

// Validate checks that a model is usable: a key, and profiles that lie inside
// the board. It is meant for models that a driver reports at run time.
func (m Model) Validate() error {
	if m.Key == "" {
		return fmt.Errorf("a GPU model has no key")
	}
	if m.Units < 0 || m.Units > 16 || (m.Units == 0) != (len(m.Profiles) == 0) || (m.Units == 0) != (m.Slices == 0) {
		return fmt.Errorf("model %s: expected 0 to 16 memory units, with profiles and compute slices exactly when there are some, got %d units, %d slices, %d profiles", m.Key, m.Units, m.Slices, len(m.Profiles))
	}
	for _, p := range m.Profiles {
		if p.Name == "" || p.Units < 1 || p.Compute < 1 || p.Compute > m.Slices || p.Max < 1 || len(p.Starts) == 0 {
			return fmt.Errorf("model %s: profile %q needs a name, units, compute slices up to %d, a maximum and starts", m.Key, p.Name, m.Slices)
		}
		for _, s := range p.Starts {
			if s < 0 || s > m.Units-p.Units {
				return fmt.Errorf("model %s: profile %s at start %d lies outside the %d units of the board", m.Key, p.Name, s, m.Units)
			}
		}
	}
	return nil
}

// HostInfo is a host as its driver describes it.
type HostInfo struct {
	Name     string            `json:"name"`
	Driver   string            `json:"driver"`     // which driver speaks for it
	CPUMilli int64             `json:"cpu_milli"`  // thousandths of a core
	MemMiB   int64             `json:"memory_mib"` // main memory
	Labels   map[string]string `json:"labels,omitempty"`
	GPUs     []GPUInfo         `json:"gpus"`
	// Sharing is how tasks share its GPUs: SharingMPS, or "" for time slices. It may change
	// from one report to the next: what is shared from then on is shared so.
	Sharing string `json:"sharing,omitempty"`
}

// SharingMPS says that shares of a GPU are clients of its MPS daemon, whose memory is capped.
const SharingMPS = "mps"

// GPUInfo is a GPU as its driver describes it.
type GPUInfo struct {
	ID    string `json:"id"` // UUID
	Model string `json:"model"`
	// NVLink names the NVLink domain of the GPU within its host; GPUs with the same
	// name (or none) are joined. Empty = not known, taken to be joined.
	NVLink string `json:"nvlink_domain,omitempty"`
}
