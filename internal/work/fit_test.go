package work

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gpupool/gpupool/internal/gpu"
)

// smallest is the least profile by brute force: every plain profile that meets
// both compute and memory, compared with every other.
func smallest(m gpu.Model, milli int, mem int64) int {
	best := -1
	for i, p := range m.Profiles {
		enough := p.Attr == "" && float64(p.Compute)/float64(m.Slices) >= float64(milli)/1000-0.001 && p.MemoryMiB >= mem
		if enough && (best < 0 || p.Units < m.Profiles[best].Units || p.Units == m.Profiles[best].Units && p.Compute < m.Profiles[best].Compute) {
			best = i
		}
	}
	return best
}

// TestFitPart: whatever a part is served by satisfies the request, is of an
// allowed kind, and is the smallest of its kind; nothing is refused that some
// profile or share could serve.
func TestFitPart(t *testing.T) {
	models := gpu.Builtin()
	rapid.Check(t, func(t *rapid.T) {
		m := models[rapid.IntRange(0, len(models)-1).Draw(t, "model")]
		r := Request{Isolation: rapid.SampledFrom([]Isolation{IsolationDefault, IsolationMIG, IsolationShared, IsolationAny}).Draw(t, "isolation")}
		switch rapid.IntRange(0, 3).Draw(t, "form") {
		case 0:
			r.Milli = rapid.IntRange(1, 999).Draw(t, "milli")
		case 1:
			r.GPUMemMiB = rapid.Int64Range(1, m.MemoryMiB+2000).Draw(t, "mem")
		case 2:
			r.Milli, r.GPUMemMiB = rapid.IntRange(1, 999).Draw(t, "milli"), rapid.Int64Range(1, m.MemoryMiB+2000).Draw(t, "mem")
		default:
			r.Profile = rapid.SampledFrom([]string{"1g.10gb", "3g.40gb", "1g.24gb+gfx", "9g.9gb"}).Draw(t, "profile")
			if r.Isolation == IsolationShared {
				r.Isolation = ""
			}
		}
		if err := r.Validate(); err != nil {
			t.Fatal(err)
		}
		fits := r.FitPart(m)
		mig, shared := false, false
		for i, f := range fits {
			if i > 0 && f.Milli < fits[i-1].Milli {
				t.Errorf("%+v on %s: form %d takes less than the one before", r, m.Key, i)
			}
			if f.Profile < 0 {
				shared = true
				testShare(t, m, r, f)
				continue
			}
			mig = true
			p := m.Profiles[f.Profile]
			switch {
			case r.Profile != "" && p.Name != r.Profile:
				t.Errorf("%+v is served by %s", r, p.Name)
			case r.Profile == "" && f.Profile != smallest(m, r.Milli, r.GPUMemMiB):
				t.Errorf("%+v on %s is served by %s, not the smallest", r, m.Key, p.Name)
			case f.Milli < r.Milli || p.MemoryMiB < r.GPUMemMiB || f.Milli != m.Milli(p):
				t.Errorf("%+v on %s is served by %s with %d thousandths", r, m.Key, p.Name, f.Milli)
			}
		}
		_, named := m.Profile(r.Profile)
		wantMIG := r.Isolation != IsolationShared && m.HasMIG() && (named || r.Profile == "" && smallest(m, r.Milli, r.GPUMemMiB) >= 0)
		wantShared := r.Profile == "" && r.GPUMemMiB <= m.MemoryMiB &&
			(r.Isolation == IsolationShared || r.Isolation == IsolationAny || r.Isolation == IsolationDefault && !m.HasMIG())
		if mig != wantMIG || shared != wantShared || len(fits) > 2 {
			t.Errorf("%+v on %s: MIG %v, wanted %v; share %v, wanted %v", r, m.Key, mig, wantMIG, shared, wantShared)
		}
	})
}

func testShare(t *rapid.T, m gpu.Model, r Request, f Fit) {
	s := f.Share
	if s.Milli < r.Milli || s.MemMiB < r.GPUMemMiB || s.Milli != f.Milli || s.Milli < 1 || s.Milli > 1000 || s.MemMiB > m.MemoryMiB {
		t.Errorf("%+v on %s is served by %+v", r, m.Key, s)
	}
	if r.GPUMemMiB == 0 && s.MemMiB != int64(math.Floor(float64(m.MemoryMiB)*float64(r.Milli)/1000)) ||
		r.Milli == 0 && math.Abs(float64(s.Milli)/1000-float64(s.MemMiB)/float64(m.MemoryMiB)) > 0.001 {
		t.Errorf("%+v on %s is served by %+v, which is out of proportion", r, m.Key, s)
	}
}

// TestWholeGPUs: a static site rounds compute up, but never gives less memory
// than was asked for.
func TestWholeGPUs(t *testing.T) {
	got := Request{Milli: 300, GPUMemMiB: 20 << 10, Isolation: IsolationShared, Models: []string{"T4"}, Members: 3, CPUMilli: 5}.WholeGPUs()
	if got.GPUs != 1 || got.Milli != 0 || got.Isolation != "" || got.GPUMemMiB != 20<<10 || got.Members != 3 || got.CPUMilli != 5 || len(got.Models) != 1 {
		t.Errorf("got %+v", got)
	}
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
	if got := (Request{Profile: "3g.40gb"}).WholeGPUs(); got.GPUs != 1 || got.Profile != "" {
		t.Errorf("got %+v", got)
	}
	if got := (Request{GPUs: 2}).WholeGPUs(); got.GPUs != 2 {
		t.Errorf("got %+v", got)
	}
	if got := (Request{CPUMilli: 2}).WholeGPUs(); got.GPUs != 0 {
		t.Errorf("a request for a host got %+v", got)
	}
}

func TestValidate(t *testing.T) {
	good := Spec{Tenant: "a", Pool: "p", Command: []string{"x"}, Env: []string{"A=1", "B=", "C=a=b"}}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		change func(*Spec)
		words  string
	}{
		"tenant":           {func(s *Spec) { s.Tenant = "" }, "needs a tenant"},
		"command":          {func(s *Spec) { s.Command = nil }, "needs a command, for example"},
		"empty word":       {func(s *Spec) { s.Command = []string{"", "x"} }, "first word is empty"},
		"lease":            {func(s *Spec) { s.LeaseTTL = time.Minute }, `a lease has no command: submit a task to run "x"`},
		"priority":         {func(s *Spec) { s.Priority = 3 }, "priority 3 is not known"},
		"grace":            {func(s *Spec) { s.Grace = -1 }, "is negative"},
		"class":            {func(s *Spec) { s.Class = "batch" }, "use training, inference or interactive"},
		"env without name": {func(s *Spec) { s.Env = []string{"=1"} }, "has no name"},
		"env without =":    {func(s *Spec) { s.Env = []string{"A"} }, "has no '='"},
		"zero in a name":   {func(s *Spec) { s.Env = []string{"A\x00=1"} }, "zero byte"},
		"zero in a value":  {func(s *Spec) { s.Env = []string{"A=1\x00"} }, "zero byte"},
		"two forms":        {func(s *Spec) { s.Request = Request{GPUs: 1, Milli: 5} }, "not several of them"},
		"GPUs":             {func(s *Spec) { s.Request.GPUs = 65 }, "expected 0 to 64"},
		"fraction":         {func(s *Spec) { s.Request.Milli = 1000 }, "expected 1 to 999"},
		"members":          {func(s *Spec) { s.Request.Members = MaxMembers + 1 }, "expected 1 to 16384"},
		"memory twice":     {func(s *Spec) { s.Request = Request{Profile: "1g.10gb", GPUMemMiB: 1} }, "already says how much memory"},
		"negative":         {func(s *Spec) { s.Request.CPUMilli = -1 }, "must not be negative"},
		"huge":             {func(s *Spec) { s.Request.MemMiB = 1 << 41 }, "beyond any machine"},
		"isolation":        {func(s *Spec) { s.Request = Request{Milli: 5, Isolation: "vm"} }, "use mig, shared or any"},
		"whole isolated":   {func(s *Spec) { s.Request = Request{GPUs: 1, Isolation: IsolationMIG} }, "is for a part of a GPU; this asks for 1 whole GPU"},
		"shared profile":   {func(s *Spec) { s.Request = Request{Profile: "1g.10gb", Isolation: IsolationShared} }, "cannot be had with isolation shared"},
	} {
		s := good
		x.change(&s)
		refused(t, name, s.Validate(), x.words)
	}
}

func TestRequestString(t *testing.T) {
	for want, r := range map[string]Request{
		"1 whole GPU":                       {GPUs: 1},
		"2 whole GPUs with 40GiB":           {GPUs: 2, GPUMemMiB: 40 << 10},
		"1/7 GPU":                           {Milli: 143},
		"0.3 GPU with 20GiB of model T4":    {Milli: 300, GPUMemMiB: 20 << 10, Models: []string{"T4"}},
		"8GiB of a GPU":                     {GPUMemMiB: 8 << 10},
		"3 members of 3g.40gb":              {Profile: "3g.40gb", Members: 3},
		"no GPU":                            {CPUMilli: 1000},
		"1 whole GPU of model A100 or H100": {GPUs: 1, Models: []string{"A100", "H100"}},
	} {
		if got := r.String(); got != want {
			t.Errorf("got %q, wanted %q", got, want)
		}
	}
}

// TestTimeSaturates: a deadline further away than time reaches is never, not now.
func TestTimeSaturates(t *testing.T) {
	now := TimeOf(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC))
	if got := now.Add(math.MaxInt64); got < now {
		t.Errorf("%d plus the longest duration is %d, before it", now, got)
	}
	if got := now.Add(-time.Second); got != now-1e9 {
		t.Errorf("a second before %d is %d", now, got)
	}
	if !strings.HasPrefix(now.Std().String(), "2026-12-01 00:00:00") || !Time(0).Std().IsZero() {
		t.Errorf("%v", now.Std())
	}
}
