package forecast

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestPattern(t *testing.T) {
	for _, x := range []struct{ name, want string }{
		{"train-001", "train-#"},
		{"train-002", "train-#"},
		{"train", "train"},
		{"", ""},
		{"17", ""},
		{"17-4.2", ""},
		{"cf0df860-ebc9-2914-5176-a9d19a3624d6", ""},
		{"eval-cf0df860-ebc9-2914-5176-A9D19A3624D6-b", "eval-#-b"},
		{"cf0df860-ebc9-2914-5176-a9d19a3624d6x", "#-ebc#-#-#-#"},
		{"build-9fceb02", "build-#"},
		{"deadbeef", "deadbeef"},
		{"resnet50-b16", "resnet#-b#"},
		{"llama-7b", "llama-#b"},
		{"job-x7k2p", "job-#"},
		{"notebook_anna", "notebook_anna"},
		{"modèle-3", "modèle-#"},
		{"a\xff-1", "a?-#"},
		{"日本", "日本"},
		{"2024-01-02_run", "#-#-#_run"},
	} {
		if got := pattern(x.name); got != x.want {
			t.Errorf("%q: got %q, want %q", x.name, got, x.want)
		}
	}
}

func FuzzPattern(f *testing.F) {
	for _, s := range []string{"train-001", "cf0df860-ebc9-2914-5176-a9d19a3624d6", "\xff\xfe", strings.Repeat("é", 40), strings.Repeat("9", 100), "a1b2c3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		p := pattern(name)
		switch {
		case len(p) > longestText || !utf8.ValidString(p):
			t.Errorf("%q: pattern %q is too long or not UTF-8", name, p)
		case strings.ContainsAny(p, "0123456789"):
			t.Errorf("%q: pattern %q has digits", name, p)
		case p != clean(p):
			t.Errorf("%q: pattern %q is changed by a round trip", name, p)
		}
	})
}
