package work

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gpupool/gpupool/internal/gpu"
)

// Isolation says how a part of a GPU may be cut.
type Isolation string

// The kinds of isolation a task can ask for.
const (
	IsolationDefault Isolation = ""       // MIG where the model has it, else a share
	IsolationMIG     Isolation = "mig"    // hardware partitions only
	IsolationShared  Isolation = "shared" // MPS or time slices beside the tenant's own tasks
	IsolationAny     Isolation = "any"    // whichever takes less of a GPU
)

// Request is what each member of a task needs, and how many members there are.
// Exactly one form is used: whole GPUs (GPUs ≥ 1), a MIG profile by name, or a
// part by compute and memory (Milli, GPUMemMiB). All zero asks for a host only.
type Request struct {
	GPUs      int       `json:"gpus,omitempty"`           // whole GPUs in one host
	Profile   string    `json:"profile,omitempty"`        // "3g.40gb"
	Milli     int       `json:"milli,omitempty"`          // compute, thousandths of a GPU, < 1000
	GPUMemMiB int64     `json:"gpu_memory_mib,omitempty"` // memory of each GPU or of the part
	Isolation Isolation `json:"isolation,omitempty"`
	Models    []string  `json:"models,omitempty"`  // acceptable GPU models; empty = any
	Members   int       `json:"members,omitempty"` // gang size, all or nothing; 0 = 1
	CPUMilli  int64     `json:"cpu_milli,omitempty"`
	MemMiB    int64     `json:"memory_mib,omitempty"` // host memory
}

// Limits of a request, far above anything real, so that sums cannot overflow.
const (
	MaxGPUsPerMember = 64
	MaxMembers       = 16384
	maxAmount        = 1 << 40
)

// Count is the number of members, at least 1.
func (r Request) Count() int { return max(r.Members, 1) }

// IsPart reports whether each member asks for less than one whole GPU.
func (r Request) IsPart() bool {
	return r.Profile != "" || r.Milli > 0 || r.GPUs == 0 && r.GPUMemMiB > 0
}

// HostOnly reports whether the request is for CPU and memory alone.
func (r Request) HostOnly() bool { return r.GPUs == 0 && !r.IsPart() }

// WholeGPUs is the request as a static site would grant it: rounded up, on a GPU
// with at least the memory asked for.
func (r Request) WholeGPUs() Request {
	if r.IsPart() {
		r.GPUs, r.Profile, r.Milli, r.Isolation = 1, "", 0, ""
	}
	return r
}

// Validate checks a request by itself.
func (r Request) Validate() error {
	forms := 0
	for _, used := range []bool{r.GPUs != 0, r.Profile != "", r.Milli != 0} {
		if used {
			forms++
		}
	}
	switch {
	case forms > 1:
		return Errorf(CodeInvalid, "ask for whole GPUs, a profile or a fraction, not several of them (got %s)", r)
	case r.GPUs < 0 || r.GPUs > MaxGPUsPerMember:
		return Errorf(CodeInvalid, "%d GPUs in one host is out of range: expected 0 to %d; use members for more (--members 8 --gpus 8)", r.GPUs, MaxGPUsPerMember)
	case r.Milli < 0 || r.Milli >= 1000:
		return Errorf(CodeInvalid, "a fraction of %d/1000 GPU is out of range: expected 1 to 999; ask for whole GPUs above that (--gpus 1)", r.Milli)
	case r.Members < 0 || r.Members > MaxMembers:
		return Errorf(CodeInvalid, "%d members is out of range: expected 1 to %d", r.Members, MaxMembers)
	case r.Profile != "" && r.GPUMemMiB > 0:
		return Errorf(CodeInvalid, "profile %s already says how much memory: leave out the GPU memory", r.Profile)
	case r.GPUMemMiB < 0 || r.CPUMilli < 0 || r.MemMiB < 0:
		return Errorf(CodeInvalid, "amounts of CPU and memory must not be negative")
	case r.GPUMemMiB > maxAmount || r.CPUMilli > maxAmount || r.MemMiB > maxAmount:
		return Errorf(CodeInvalid, "an amount of CPU or memory is beyond any machine")
	}
	switch r.Isolation {
	case IsolationDefault, IsolationAny:
	case IsolationMIG, IsolationShared:
		if !r.IsPart() {
			return Errorf(CodeInvalid, "isolation %s is for a part of a GPU; this asks for %s", r.Isolation, r)
		}
		if r.Isolation == IsolationShared && r.Profile != "" {
			return Errorf(CodeInvalid, "profile %s is a MIG profile and cannot be had with isolation shared: ask for a fraction", r.Profile)
		}
	default:
		return Errorf(CodeInvalid, "isolation %q is not known: use mig, shared or any", r.Isolation)
	}
	return nil
}

func (r Request) String() string {
	var what string
	switch {
	case r.GPUs > 0:
		what = plural(r.GPUs, "whole GPU")
	case r.Profile != "":
		what = r.Profile
	case r.Milli > 0:
		what = fraction(r.Milli) + " GPU"
	case r.GPUMemMiB > 0:
		return with(r, FormatMiB(r.GPUMemMiB)+" of a GPU")
	default:
		what = "no GPU"
	}
	if r.GPUMemMiB > 0 {
		what += " with " + FormatMiB(r.GPUMemMiB)
	}
	return with(r, what)
}

// fraction writes thousandths of a GPU: as sevenths where they were asked for as
// such.
func fraction(milli int) string {
	for n := 1; n < 7; n++ {
		if milli == (n*1000+3)/7 {
			return fmt.Sprintf("%d/7", n)
		}
	}
	return strconv.FormatFloat(float64(milli)/1000, 'f', -1, 64)
}

// with adds to what each member needs the models and the number of members.
func with(r Request, what string) string {
	if len(r.Models) > 0 {
		what += " of model " + strings.Join(r.Models, " or ")
	}
	if r.Count() > 1 {
		what = fmt.Sprintf("%d members of %s", r.Count(), what)
	}
	return what
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// ParseGPUs reads what people write for GPUs: "2" or "2x" whole ones, "0.3" or
// "1/7" of one, a profile "3g.40gb", a memory size "20GiB", or "0" for none. A
// model may follow after a colon: "2:H100-80GB".
func ParseGPUs(s string) (Request, error) {
	var r Request
	s, model, hasModel := strings.Cut(strings.TrimSpace(s), ":")
	if hasModel {
		if model == "" {
			return r, Errorf(CodeInvalid, "GPU request %q ends in ':' without a model: write for example 2:H100-80GB", s+":")
		}
		r.Models = strings.Split(model, "|")
		if slices.Contains(r.Models, "") {
			return r, Errorf(CodeInvalid, "GPU request %q names an empty model: write for example 2:A100-80GB|H100-80GB", s+":"+model)
		}
	}
	if num, den, ok := strings.Cut(s, "/"); ok {
		n, err1 := strconv.Atoi(num)
		d, err2 := strconv.Atoi(den)
		if err1 != nil || err2 != nil || n < 1 || d < 1 || n > 1_000_000 || d > 1_000_000 {
			return r, badGPUs(s)
		}
		return r.fraction(s, float64(n)/float64(d))
	}
	if n, ok := strings.CutSuffix(s, "x"); ok && digits(n) {
		s = n
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		return r.fraction(s, f)
	}
	if isProfile(s) {
		r.Profile = s
		return r, r.Validate()
	}
	m, err := ParseMiB(s)
	if err != nil || m == 0 {
		return r, badGPUs(s)
	}
	r.GPUMemMiB = m
	return r, r.Validate()
}

func (r Request) fraction(s string, f float64) (Request, error) {
	switch {
	case math.IsNaN(f) || f < 0 || f > MaxGPUsPerMember:
		return r, Errorf(CodeInvalid, "GPU request %q is out of range: expected 0 to %d in one host; use --members for more", s, MaxGPUsPerMember)
	case f == math.Trunc(f):
		r.GPUs = int(f)
	case f > 1:
		return r, Errorf(CodeInvalid, "GPU request %q is more than one GPU but not whole: ask for %d, or for a fraction below 1", s, int(math.Ceil(f)))
	default:
		r.Milli = min(max(int(math.Round(f*1000)), 1), 999)
	}
	return r, r.Validate()
}

func badGPUs(s string) error {
	return Errorf(CodeInvalid, "GPU request %q is not understood: expected a count (2), a fraction (0.3, 1/7), a profile (3g.40gb) or a memory size (20GiB)", s)
}

// isProfile reports whether s looks like "<n>g.<m>gb" with an optional suffix.
func isProfile(s string) bool {
	c, rest, ok := strings.Cut(s, "g.")
	if !ok || c == "" || !digits(c) {
		return false
	}
	mem, _, ok := strings.Cut(rest, "gb")
	return ok && mem != "" && digits(mem)
}

func digits(s string) bool {
	for _, c := range s {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

var units = []struct {
	suffix string
	bytes  float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40},
	{"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"B", 1},
}

// ParseMiB reads a size with a unit ("20GiB", "10GB", "512Mi") and returns MiB,
// rounded up. "0" needs no unit.
func ParseMiB(s string) (int64, error) {
	if s == "0" {
		return 0, nil
	}
	for _, u := range units {
		if !strings.HasSuffix(s, u.suffix) {
			continue
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(s, u.suffix)), 64)
		mib := math.Ceil(f * u.bytes / (1 << 20))
		if err != nil || math.IsNaN(f) || f < 0 || mib > maxAmount {
			break
		}
		return int64(mib), nil
	}
	return 0, Errorf(CodeInvalid, "size %q is not understood: expected a number and a unit, such as 512MiB, 20GiB or 80GB", s)
}

// FormatMiB writes a size as people read it.
func FormatMiB(m int64) string {
	switch {
	case m >= 1<<20 && m%(1<<18) == 0:
		return strconv.FormatFloat(float64(m)/(1<<20), 'f', -1, 64) + "TiB"
	case m >= 1<<10:
		return strconv.FormatFloat(math.Round(float64(m)/(1<<10)*100)/100, 'f', -1, 64) + "GiB"
	}
	return strconv.FormatInt(m, 10) + "MiB"
}

// Fit is how one GPU of a model would serve a part: by a MIG profile, or by a share.
type Fit struct {
	Profile int   // index in the model's profiles, or -1
	Share   Share // when Profile is -1
	Milli   int   // what it takes of the GPU
}

// FitPart says how a part request is served on a model, best form first. An
// empty result means that the model cannot serve it.
func (r Request) FitPart(m gpu.Model) []Fit {
	fits := make([]Fit, 0, 2)
	if m.HasMIG() && r.Isolation != IsolationShared {
		i := -1
		if r.Profile == "" {
			i = m.Smallest(r.Milli, r.GPUMemMiB)
		} else {
			for k := range m.Profiles {
				if m.Profiles[k].Name == r.Profile {
					i = k
				}
			}
		}
		if i >= 0 {
			fits = append(fits, Fit{Profile: i, Milli: m.Milli(m.Profiles[i])})
		}
	}
	allowed := r.Isolation == IsolationShared || r.Isolation == IsolationAny || r.Isolation == IsolationDefault && !m.HasMIG()
	if allowed && r.Profile == "" && r.GPUMemMiB <= m.MemoryMiB {
		fits = append(fits, r.share(m))
		if len(fits) == 2 && fits[1].Milli < fits[0].Milli {
			fits[0], fits[1] = fits[1], fits[0]
		}
	}
	return fits
}

// share fills in what was not said in proportion: 0.3 of the compute comes with
// 0.3 of the memory, and the other way round.
func (r Request) share(m gpu.Model) Fit {
	milli, mem := int64(r.Milli), r.GPUMemMiB
	if mem == 0 {
		mem = m.MemoryMiB * milli / 1000
	}
	if milli == 0 {
		milli = min((mem*1000+m.MemoryMiB-1)/m.MemoryMiB, 1000)
	}
	return Fit{Profile: -1, Milli: int(milli), Share: Share{Milli: int(milli), MemMiB: mem}}
}
