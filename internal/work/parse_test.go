package work

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const notUnderstood = `is not understood: expected a count (2), a fraction (0.3, 1/7), a profile (3g.40gb) or a memory size (20GiB)`

// refused fails unless err is an *Error with the code and the words.
func refused(t *testing.T, in string, err error, words string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Code != CodeInvalid || !strings.Contains(e.Msg, words) {
		t.Errorf("%q: got %v, wanted a refusal with %q", in, err, words)
	}
}

func TestParseGPUs(t *testing.T) {
	for in, want := range map[string]Request{
		"0": {}, "1": {GPUs: 1}, "2": {GPUs: 2}, " 4 ": {GPUs: 4}, "64": {GPUs: 64}, "1.0": {GPUs: 1}, "8/4": {GPUs: 2},
		"2x": {GPUs: 2}, "2x:T4": {GPUs: 2, Models: []string{"T4"}},
		"0.3": {Milli: 300}, "1/7": {Milli: 143}, "1/3": {Milli: 333}, "2/3": {Milli: 667}, ".5": {Milli: 500},
		"0.9999": {Milli: 999}, "0.0001": {Milli: 1}, "1/1000000": {Milli: 1},
		"1g.10gb": {Profile: "1g.10gb"}, "1g.10gb+me": {Profile: "1g.10gb+me"}, "1g.24gb-me": {Profile: "1g.24gb-me"}, "7g.141gb": {Profile: "7g.141gb"},
		"20GiB": {GPUMemMiB: 20 << 10}, "512MiB": {GPUMemMiB: 512}, "80GB": {GPUMemMiB: 76294}, "20 Gi": {GPUMemMiB: 20 << 10},
		"2:H100-80GB": {GPUs: 2, Models: []string{"H100-80GB"}}, "1/7:A100-80GB|H100-80GB": {Milli: 143, Models: []string{"A100-80GB", "H100-80GB"}},
		"20GiB:L40S": {GPUMemMiB: 20 << 10, Models: []string{"L40S"}},
	} {
		if got, err := ParseGPUs(in); err != nil || !cmp.Equal(got, want) {
			t.Errorf("%q: got %+v, %v, wanted %+v", in, got, err, want)
		}
	}
	for in, words := range map[string]string{
		"":          notUnderstood,
		"two":       notUnderstood,
		"x":         notUnderstood,
		"0.5x":      notUnderstood,
		"1/0":       notUnderstood,
		"0/7":       notUnderstood,
		"-1/7":      notUnderstood,
		"1/7/2":     notUnderstood,
		"1/2000000": notUnderstood,
		"20gib":     notUnderstood,
		"3g.40":     notUnderstood,
		"g.40gb":    notUnderstood,
		"3g.gb":     notUnderstood,
		"0GiB":      notUnderstood,
		"GiB":       notUnderstood,
		"-1":        `GPU request "-1" is out of range: expected 0 to 64 in one host; use --members for more`,
		"65":        `is out of range: expected 0 to 64`,
		"nan":       `is out of range`,
		"inf":       `is out of range`,
		"1e300":     `is out of range`,
		"1.5":       `GPU request "1.5" is more than one GPU but not whole: ask for 2, or for a fraction below 1`,
		"9/7":       `ask for 2, or for a fraction below 1`,
		"2:":        `GPU request "2:" ends in ':' without a model: write for example 2:H100-80GB`,
		"2:H100|":   `names an empty model`,
		"2:|":       `names an empty model`,
	} {
		_, err := ParseGPUs(in)
		refused(t, in, err, words)
	}
}

func TestParseMiB(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "0GiB": 0, "1B": 1, "1MiB": 1, "1MB": 1, "2MB": 2, "1024KiB": 1, "1025KiB": 2, "1Gi": 1 << 10, "1GB": 954, "10G": 9537,
		"1.5GiB": 1536, "0.1MiB": 1, "1TiB": 1 << 20, "1TB": 953675, "2T": 1907349, "512 MiB": 512, "1048576TiB": 1 << 40,
	} {
		if got, err := ParseMiB(in); err != nil || got != want {
			t.Errorf("%q: got %d, %v, wanted %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "5", "MiB", "-1GiB", "nanGiB", "infGiB", "1e30TiB", "1048577TiB", "1gib", "1GiBs", "1 2GiB", "0x1p1000GiB"} {
		_, err := ParseMiB(in)
		refused(t, in, err, `is not understood: expected a number and a unit, such as 512MiB, 20GiB or 80GB`)
	}
}

func TestParsePriority(t *testing.T) {
	for in, want := range map[string]Priority{"high": High, "normal": Normal, "low": Low, "": Normal} {
		got, err := ParsePriority(in)
		if err != nil || got != want {
			t.Errorf("%q: got %v, %v, wanted %v", in, got, err, want)
		}
		var p Priority
		if err := p.UnmarshalText([]byte(in)); err != nil || p != want {
			t.Errorf("UnmarshalText(%q) gives %v, %v", in, p, err)
		}
		b, err := json.Marshal(want)
		if err != nil || json.Unmarshal(b, &p) != nil || p != want {
			t.Errorf("%v is not what it was after %s", want, b)
		}
	}
	for _, in := range []string{"High", "urgent", "0", " normal"} {
		_, err := ParsePriority(in)
		refused(t, in, err, `is not known: use high, normal or low`)
		p := Low
		if err := p.UnmarshalText([]byte(in)); err == nil || p != Low {
			t.Errorf("UnmarshalText(%q) gives %v, %v", in, p, err)
		}
	}
	if got := Priority(7).String(); got != "priority(7)" {
		t.Errorf("an unknown priority is called %q", got)
	}
}

// TestFormatMiB: what is written can be read, and says the same up to the
// rounding that people want.
func TestFormatMiB(t *testing.T) {
	for m, want := range map[int64]string{0: "0MiB", 1: "1MiB", 1023: "1023MiB", 1 << 10: "1GiB", 1536: "1.5GiB", 20 << 10: "20GiB",
		81559: "79.65GiB", 1 << 20: "1TiB", 5 << 18: "1.25TiB", 1<<20 + 1: "1024GiB"} {
		if got := FormatMiB(m); got != want {
			t.Errorf("%d: got %q, wanted %q", m, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.OneOf(rapid.Int64Range(0, 5000), rapid.Int64Range(0, 1<<24), rapid.Int64Range(0, 1<<40)).Draw(t, "m")
		got, err := ParseMiB(FormatMiB(m))
		if err != nil {
			t.Fatal(err)
		}
		if exact := m < 1<<10 || m%(1<<8) == 0; exact && got != m || math.Abs(float64(got-m)) > 7 {
			t.Fatalf("%d is written %s and read %d", m, FormatMiB(m), got)
		}
	})
}

func FuzzParseGPUs(f *testing.F) {
	for _, s := range []string{"2", "0.3", "1/7", "3g.40gb", "20GiB", "2:H100-80GB|T4", "2x", "1e9", "-0", "0x1p-3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseGPUs(s)
		if err != nil {
			refused(t, s, err, "")
			return
		}
		if err := r.Validate(); err != nil {
			t.Errorf("%q gives %+v, which is not valid: %v", s, r, err)
		}
		if r.CPUMilli != 0 || r.MemMiB != 0 || r.Members != 0 || r.Isolation != "" {
			t.Errorf("%q gives %+v: more than GPUs", s, r)
		}
		for _, m := range r.Models {
			if m == "" {
				t.Errorf("%q gives an empty model", s)
			}
		}
	})
}

func FuzzParseMiB(f *testing.F) {
	for _, s := range []string{"0", "20GiB", "80GB", "512Mi", "1.5T", "1e3B", "0x1p4GiB", "-1GB", "nanKB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := ParseMiB(s)
		if err != nil {
			refused(t, s, err, "")
			return
		}
		if m < 0 || m > maxAmount {
			t.Errorf("%q gives %d MiB", s, m)
		}
	})
}
