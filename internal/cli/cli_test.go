package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/api/apitype"
)

func TestDraw(t *testing.T) {
	mig := func(task uint64, start, units int) apitype.Holding {
		return apitype.Holding{Task: task, Tenant: "a", Slice: apitype.Slice{Mode: "mig", Profile: "p", Start: start, Units: units}}
	}
	shared := func(task uint64, milli int) apitype.Holding {
		return apitype.Holding{Task: task, Tenant: "a", Slice: apitype.Slice{Mode: "shared", Milli: milli}}
	}
	for _, x := range []struct {
		gpu          apitype.GPU
		bar, holders string
	}{
		{apitype.GPU{Units: 8, Mode: "free"}, "[········]", ""},
		{apitype.GPU{Units: 12, Mode: "free"}, "[············]", ""},
		{apitype.GPU{Mode: "free"}, "[········]", ""},
		{apitype.GPU{Units: 8, Mode: "mig", Holders: []apitype.Holding{mig(1, 0, 4), mig(2, 6, 1)}}, "[aaaa··b·]", "a=a/1 p b=a/2 p"},
		{apitype.GPU{Units: 8, Mode: "whole", Holders: []apitype.Holding{{Task: 3, Tenant: "b", Slice: apitype.Slice{Mode: "whole"}}}}, "[████████]", "█=b/3"},
		{apitype.GPU{Units: 8, Mode: "mig", Holders: []apitype.Holding{{Slice: apitype.Slice{Mode: "mig", Profile: "p", Units: 2}}}}, "[aa······]", "a=another tenant p"},
		{apitype.GPU{Mode: "shared", Holders: []apitype.Holding{shared(1, 500), shared(2, 300), shared(3, 10)}}, "[aaaabbc·]", "a=a/1 50% b=a/2 30% c=a/3 1%"},
		{apitype.GPU{Mode: "shared", Holders: []apitype.Holding{shared(1, 940), shared(2, 60)}}, "[aaaaaaaa]", "a=a/1 94% b=a/2 6%"},
	} {
		if bar, holders := draw(x.gpu); bar != x.bar || holders != x.holders {
			t.Errorf("got %s %q, want %s %q", bar, holders, x.bar, x.holders)
		}
	}
}

func TestWords(t *testing.T) {
	for d, want := range map[time.Duration]string{-time.Second: "0s", 5 * time.Second: "5s", 65 * time.Second: "1m05s", 3*time.Hour + 4*time.Minute: "3h04m", 50 * time.Hour: "2d02h"} {
		if got := span(d); got != want {
			t.Errorf("%s: got %s, want %s", d, got, want)
		}
	}
	for f, want := range map[float64]string{0: "0", 1: "1", 0.143: "0.14", 10: "10", 7.15: "7.15", 2.5: "2.5"} {
		if got := gpuCount(f); got != want {
			t.Errorf("%g GPUs: got %s, want %s", f, got, want)
		}
	}
	if got := short("wörter sind lang", 7); got != "wörter…" {
		t.Errorf("got %q", got)
	}
	var b bytes.Buffer
	tabs(&b, []string{"A", "B"}, [][]string{{"x\x1b[31m\n", ""}})
	if strings.ContainsAny(b.String()[4:], "\x1b") || strings.Count(b.String(), "\n") != 2 {
		t.Errorf("a name moves the cursor: %q", b.String())
	}
}

func TestTaskFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "job.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := &App{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}, In: strings.NewReader("gpus: 2\ncommand: [from, stdin]\n")}
	write("gpus: 1/7\nname: mine\nenv: [A=1]\ncommand: [python, train.py]\n")
	for _, x := range []struct {
		args []string
		want string // of what is sent, or of the error
		ok   bool
	}{
		{[]string{"-f", path}, `gpus:"1/7" name:"mine" env:["A=1"] command:["python" "train.py"]`, true},
		{[]string{"-f", path, "--gpus", "2", "-e", "B=2"}, `gpus:"2" name:"mine" env:["A=1" "B=2"] command:["python" "train.py"]`, true},
		{[]string{"-f", path, "--", "echo", "hi"}, `gpus:"1/7" name:"mine" env:["A=1"] command:["echo" "hi"]`, true},
		{[]string{"-f", "-"}, `gpus:"2" name:"" env:[] command:["from" "stdin"]`, true},
		{[]string{"-f", path + "x"}, "cannot be read", false},
		{[]string{"-f", path, "--gpus", "x"}, "is not understood", false},
		{nil, "nothing to run", false},
	} {
		got, err := specFrom(a, x.args)
		switch {
		case x.ok && (err != nil || got != x.want):
			t.Errorf("%q: got %s, %v, want %s", x.args, got, err, x.want)
		case !x.ok && (err == nil || !strings.Contains(err.Error(), x.want)):
			t.Errorf("%q: got %v, want %q", x.args, err, x.want)
		}
	}
}

// specFrom reads a command line as submit does.
func specFrom(a *App, args []string) (string, error) {
	var s specFlags
	c := &cobra.Command{Use: "submit"}
	s.register(c)
	if err := c.ParseFlags(args); err != nil {
		return "", err
	}
	spec, err := s.read(c, a.In, c.Flags().Args())
	if spec.Env == nil {
		spec.Env = []string{}
	}
	return fmt.Sprintf("gpus:%q name:%q env:%q command:%q", spec.GPUs, spec.Name, spec.Env, spec.Command), err
}

func FuzzTaskFile(f *testing.F) {
	f.Add("gpus: 1/7\ncommand: [ls]\n")
	f.Add(`{"gpus": "3g.40gb", "members": 3, "cpus": 1.5, "memory": "16GiB", "command": ["x"], "ttl": "none"}`)
	f.Fuzz(func(t *testing.T, text string) {
		spec, err := readTaskFile("-", strings.NewReader(text))
		if err != nil {
			return
		}
		if w, err := spec.Work(); err == nil {
			if err := w.Request.Validate(); err != nil {
				t.Errorf("%+v was let through: %v", w.Request, err)
			}
		}
	})
}

func TestExitCodes(t *testing.T) {
	for _, x := range []struct {
		args []string
		code int
		say  string
	}{
		{[]string{"version"}, 0, ""}, {[]string{"nonsense"}, 2, "see gpupool --help"}, {[]string{"ps", "--nonsense"}, 2, "see gpupool ps --help"},
		{[]string{"get"}, 2, "see gpupool get --help"}, {[]string{"get", "zero"}, 2, "expected a task's number"}, {[]string{"version", "-o", "xml"}, 2, "use table"},
		{[]string{"config", "check", "/no/such/file"}, 2, "there is no configuration file"},
		{[]string{"--server", "not a url", "--token", "x", "ps"}, 2, "is not usable"},
	} {
		var out, errs bytes.Buffer
		a := &App{Version: "v1", Out: &out, Err: &errs, In: strings.NewReader("")}
		if got := a.Main(context.Background(), x.args); got != x.code || !strings.Contains(errs.String(), x.say) {
			t.Errorf("%q: exit code %d and %q, want %d and %q", x.args, got, errs.String(), x.code, x.say)
		}
	}
}
