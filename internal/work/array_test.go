package work

import (
	"strings"
	"testing"
)

func TestParseArray(t *testing.T) {
	for in, want := range map[string]struct {
		a    Array
		size int
		last int // index
	}{
		"0-99":                    {Array{First: 0, Last: 99}, 100, 99},
		"5":                       {Array{First: 5, Last: 5}, 1, 5},
		"0-98:2":                  {Array{First: 0, Last: 98, Step: 2}, 50, 98},
		"1-10:4":                  {Array{First: 1, Last: 10, Step: 4}, 3, 9},
		"0-99%10":                 {Array{First: 0, Last: 99, Limit: 10}, 100, 99},
		"3-7:1%2":                 {Array{First: 3, Last: 7, Step: 1, Limit: 2}, 5, 7},
		"0-9999":                  {Array{Last: 9999}, 10_000, 9999},
		"7-2147483647:2147483647": {Array{First: 7, Last: 2147483647, Step: 2147483647}, 1, 7},
	} {
		got, err := ParseArray(in)
		if err != nil || got != want.a {
			t.Errorf("%s: got %+v, %v, wanted %+v", in, got, err, want.a)
			continue
		}
		if got.Size() != want.size || got.Index(0) != got.First || got.Index(got.Size()-1) != want.last {
			t.Errorf("%s: %d tasks from %d to %d, wanted %d to %d", in, got.Size(), got.Index(0), got.Index(got.Size()-1), want.size, want.last)
		}
	}
	for in, words := range map[string]string{
		"": "expected FIRST-LAST", "-": "expected FIRST-LAST", "a-b": "expected FIRST-LAST", "0-": "expected FIRST-LAST", "-1-3": "expected FIRST-LAST",
		"9-3": "expected FIRST-LAST", "0-9:0": "expected FIRST-LAST", "0-9%0": "expected FIRST-LAST", "0-9%": "expected FIRST-LAST", "0-9:": "expected FIRST-LAST",
		"0-9%2:2": "expected FIRST-LAST", "+1-2": "expected FIRST-LAST", "0-4294967296": "expected FIRST-LAST", "0 -1": "expected FIRST-LAST",
		"0-10000": "has 10001 tasks: expected at most 10000",
	} {
		if got, err := ParseArray(in); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: got %+v, %v, wanted %q", in, got, err, words)
		}
	}
}

// FuzzArray: bytes of any kind give an array or an error; an array is within its bounds,
// is written as itself, and its indices go up to its last by its step.
func FuzzArray(f *testing.F) {
	for _, s := range []string{"0-99", "5", "0-98:2", "0-99%10", "1-10:4%3", "0-", "9-3", "0-99999999999", "1-2147483647:2147483646"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseArray(s)
		if err != nil {
			return
		}
		if err := a.Validate(); err != nil {
			t.Fatalf("%q gives %+v, which is not valid: %v", s, a, err)
		}
		again, err := ParseArray(a.String())
		if a.Step == 1 {
			a.Step = 0 // what is not said
		}
		if err != nil || again != a {
			t.Fatalf("%q gives %+v, which is written %s and read %+v, %v", s, a, a, again, err)
		}
		n := a.Size()
		if n < 1 || n > MaxArray || a.Index(0) != a.First || a.Index(n-1) > a.Last || a.Index(n) <= a.Last {
			t.Fatalf("%q has %d tasks from %d to %d", s, n, a.Index(0), a.Index(n-1))
		}
	})
}
