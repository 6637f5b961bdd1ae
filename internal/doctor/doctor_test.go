package doctor_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/gpupool/gpupool/internal/doctor"
)

var update = flag.Bool("update", false, "rewrite what doctor says in testdata")

// A machine is a txtar archive in testdata. Names that begin with / are its files, with
// what stands behind the name: "/dev/nvidia0 0666" a mode, "/proc/7/fd/3 -> /dev/nvidia0" a
// link, "/dev/nvidia0 gone" that there is none although the base has one. The others:
//
//	base      the name of the machine that this one is like
//	have      programs in PATH, one a line
//	run CMD   what a command writes; "error: ..." that it fails
//	nvml      what NVML says, as JSON; "error: ..." that it does not answer
//	clock, disk  as JSON
//	options   data=, listen=, port=busy, redis=ok|refused|risky, server=ok|refused|broken, journal=ok|absent|broken
//	want      what doctor says, with --verbose where the file verbose stands
type world struct {
	files   fstest.MapFS
	runs    map[string]string
	options map[string]string
	nvml    string
	clock   doctor.Clock
	disk    doctor.Disk
	verbose bool
	want    string
}

func read(t *testing.T, name string) *world {
	t.Helper()
	a, err := txtar.ParseFile(filepath.Join("testdata", name+".txtar"))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{files: fstest.MapFS{}, runs: map[string]string{}, options: map[string]string{}}
	for _, f := range a.Files {
		if f.Name == "base" {
			w = read(t, strings.TrimSpace(string(f.Data)))
			w.want, w.verbose = "", false
		}
	}
	for _, f := range a.Files {
		w.add(t, f.Name, string(f.Data))
	}
	return w
}

func (w *world) add(t *testing.T, name, text string) {
	t.Helper()
	fromJSON := func(v any) {
		if err := json.Unmarshal([]byte(text), v); err != nil {
			t.Fatalf("%s: %s", name, err)
		}
	}
	cmd, isRun := strings.CutPrefix(name, "run ")
	switch {
	case strings.HasPrefix(name, "/"):
		w.file(t, strings.TrimPrefix(name, "/"), text)
	case isRun:
		w.runs[cmd] = text
	case name == "have":
		for p := range strings.FieldsSeq(text) {
			w.files["usr/bin/"+p] = &fstest.MapFile{Mode: 0o755}
		}
	case name == "options":
		for kv := range strings.FieldsSeq(text) {
			k, v, _ := strings.Cut(kv, "=")
			w.options[k] = v
		}
	case name == "nvml":
		w.nvml = strings.TrimSpace(text)
	case name == "clock":
		w.clock = doctor.Clock{}
		fromJSON(&w.clock)
	case name == "disk":
		w.disk = doctor.Disk{}
		fromJSON(&w.disk)
	case name == "verbose":
		w.verbose = true
	case name == "want":
		w.want = text
	case name != "base":
		t.Fatalf("%q says nothing about a machine", name)
	}
}

func (w *world) file(t *testing.T, name, text string) {
	t.Helper()
	if from, to, is := strings.Cut(name, " -> "); is {
		w.files[from] = &fstest.MapFile{Mode: fs.ModeSymlink | 0o777, Data: []byte(to)}
		return
	}
	name, how, _ := strings.Cut(name, " ")
	switch mode, err := strconv.ParseUint(how, 8, 32); {
	case how == "gone":
		for f := range w.files {
			if f == name || strings.HasPrefix(f, name+"/") {
				delete(w.files, f)
			}
		}
	case how == "":
		w.files[name] = &fstest.MapFile{Mode: 0o644, Data: []byte(text)}
	case err != nil:
		t.Fatalf("%s: %q is neither a mode nor gone", name, how)
	default:
		w.files[name] = &fstest.MapFile{Mode: fs.ModeDevice | fs.ModeCharDevice | fs.FileMode(mode)}
	}
}

// examine lets doctor look at the machine.
func (w *world) examine(ctx context.Context) doctor.Report {
	o := doctor.Options{Data: w.options["data"], Listen: w.options["listen"], System: doctor.System{
		FS: w.files, Path: "/usr/bin",
		Run: func(_ context.Context, name string, args ...string) (string, error) {
			out, is := w.runs[strings.Join(append([]string{name}, args...), " ")]
			if !is {
				return "", fmt.Errorf("%s: not in this machine", name)
			}
			if why, is := strings.CutPrefix(out, "error: "); is {
				return "", errors.New(strings.TrimSpace(why))
			}
			return out, nil
		},
		Clock: func() (doctor.Clock, error) { return w.clock, nil },
		Disk:  func(string) (doctor.Disk, error) { return w.disk, nil },
		Listen: func(context.Context, string) error {
			if w.options["port"] == "busy" {
				return syscall.EADDRINUSE
			}
			return nil
		},
	}}
	if w.nvml != "" {
		o.Hardware = func(context.Context) (h doctor.Hardware, err error) {
			if why, is := strings.CutPrefix(w.nvml, "error: "); is {
				if why == "no cgo" {
					return h, doctor.ErrNoNVML
				}
				return h, errors.New(why)
			}
			err = json.Unmarshal([]byte(w.nvml), &h)
			return h, err
		}
	}
	if s := w.options["server"]; s != "" {
		o.Server = func(context.Context) (string, error) {
			return "http://127.0.0.1:8470", map[string]error{"refused": syscall.ECONNREFUSED, "broken": errors.New("it answers 500 Internal Server Error")}[s]
		}
	}
	if s := w.options["redis"]; s != "" {
		o.Redis = func(context.Context) (string, []string, error) {
			err := map[string]error{"refused": errors.New("cannot open journal redis://127.0.0.1:6379: connection refused. Is it running, and the address right?")}[s]
			return "redis://127.0.0.1:6379", map[string][]string{"risky": {"it keeps nothing on disk"}}[s], err
		}
	}
	if s := w.options["journal"]; s != "" {
		o.Journal = func(_ context.Context, path string) error {
			return map[string]error{"absent": fs.ErrNotExist, "broken": fmt.Errorf("journal %s is damaged at page 7: restore it from a copy", path)}[s]
		}
	}
	return doctor.Examine(ctx, o)
}

// TestMachines shows what doctor says of each machine in testdata.
func TestMachines(t *testing.T) {
	names, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatal("no machines in testdata", err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			w := read(t, strings.TrimSuffix(filepath.Base(name), ".txtar"))
			r := w.examine(t.Context())
			var b strings.Builder
			r.Write(&b, w.verbose, func(_ doctor.Level, s string) string { return s })
			fmt.Fprintf(&b, "exit code %d\n", r.Exit())
			if *update {
				rewrite(t, name, b.String())
				return
			}
			if d := cmp.Diff(w.want, b.String()); d != "" {
				t.Errorf("doctor says otherwise (-want +got; go test ./internal/doctor -update when it is meant):\n%s", d)
			}
			consistent(t, r)
		})
	}
}

func rewrite(t *testing.T, name, said string) {
	t.Helper()
	a, err := txtar.ParseFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(a.Files); n > 0 && a.Files[n-1].Name == "want" {
		a.Files = a.Files[:n-1]
	}
	a.Files = append(a.Files, txtar.File{Name: "want", Data: []byte(said)})
	if err := os.WriteFile(name, txtar.Format(a), 0o600); err != nil {
		t.Fatal(err)
	}
}

// consistent holds for every report: whatever is wrong says what it costs and how it is
// mended, whatever is fine does neither, and the counts are right.
func consistent(t *testing.T, r doctor.Report) {
	t.Helper()
	counts := map[doctor.Level]int{}
	seen := map[string]bool{}
	for _, x := range r.Results {
		counts[x.Level]++
		bad := x.Level == doctor.Warn || x.Level == doctor.Fail
		if bad != (x.Effect != "") || !bad && len(x.Fix) > 0 || x.Level == doctor.Fail && len(x.Fix) == 0 {
			t.Errorf("%s: level %s with effect %q and fix %q", x.Check, x.Level, x.Effect, x.Fix)
		}
		if x.Text == "" || strings.Contains(x.Text, "\n") || seen[x.Check] {
			t.Errorf("%s: text %q is not one sentence, or the check stands twice", x.Check, x.Text)
		}
		seen[x.Check] = true
	}
	want := map[doctor.Level]int{}
	for level, n := range map[doctor.Level]int{doctor.OK: r.Passed, doctor.Warn: r.Warned, doctor.Fail: r.Failed, doctor.Skip: r.Skipped} {
		if n > 0 {
			want[level] = n
		}
	}
	if d := cmp.Diff(want, counts); d != "" {
		t.Errorf("counts (-said +found):\n%s", d)
	}
}

// TestThisMachine lets doctor look at the machine that runs the test: whatever it is, there
// is a report, and nothing is left in the data folder.
func TestThisMachine(t *testing.T) {
	dir := t.TempDir()
	o := doctor.Options{System: doctor.Machine(), Data: dir, Listen: "127.0.0.1:0"}
	r := doctor.Examine(t.Context(), o)
	consistent(t, r)
	for _, x := range r.Results {
		if (x.Check == "data" || x.Check == "port") && x.Level == doctor.Fail {
			t.Errorf("%s: %s", x.Check, x.Text)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left in the data folder: %v (%v)", left, err)
	}
}

// TestGuide keeps what the guide shows of two H100s as they should be what doctor says of them.
func TestGuide(t *testing.T) {
	const file, mark = "../../docs/guide-h100.md", "<!-- doctor: h100 -->\n```text\n"
	guide, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(guide), mark)
	shown, tail, closed := strings.Cut(rest, "```\n")
	if !found || !closed {
		t.Fatalf("%s shows no report after %q", file, mark)
	}
	var b strings.Builder
	read(t, "h100").examine(t.Context()).Write(&b, false, func(_ doctor.Level, s string) string { return s })
	if *update {
		if err := os.WriteFile(file, []byte(head+mark+b.String()+"```\n"+tail), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(shown, b.String()); d != "" {
		t.Errorf("%s (-shown +said; go test ./internal/doctor -update):\n%s", file, d)
	}
}
