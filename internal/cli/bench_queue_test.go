package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestBenchQueue: tables that fit a terminal, a page, and JSON whose keys others rely on.
func TestBenchQueue(t *testing.T) {
	args := []string{"bench", "queue", "--trace", "../../testdata/traces", "--demand", "0.95"}
	report := filepath.Join(t.TempDir(), "out.html")
	code, out, errs := runApp(t.Context(), append(args, "--report", report)...)
	if code != 0 || !strings.Contains(errs, "report written to "+report) {
		t.Fatalf("exit code %d, %s", code, errs)
	}
	for _, want := range []string{`(?m)^itp at demand 0.95 \(0.941 with whole hosts\): 216 GPUs, 27 hosts of 8xH100-80GB, 3094 tasks$`,
		`(?m)^POLICY +MEAN WAIT +MEDIAN +P99 +LONGEST`, `(?m)^fifo-backfill  `, `(?m)^itp\+openb +0.95 `, `(?m)^wanted +- +- +at least 50.0 % +at most 1.10`,
		`(?m)^targets met: \d+ of 10$`, `(?m)^what the order alone gains`, `(?m)^note: demand: `, `(?m)^note: itp: ITP has no users; its clusters`, `(?m)^note: itp\+openb: synthetic: `} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("wanted %s in %s", want, out)
		}
	}
	for line := range strings.Lines(out) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 100 && !strings.HasPrefix(line, "note: ") {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	page, err := os.ReadFile(report)
	if err != nil || bytes.Count(page, []byte("<svg")) != 2 {
		t.Errorf("the report: %v, %d plots, want 2", err, bytes.Count(page, []byte("<svg")))
	}
	if _, wide, _ := runApp(t.Context(), "bench", "queue", "--trace", "../../testdata/traces/own.csv", "-o", "wide"); !strings.Contains(wide, "MEAN TO END") {
		t.Errorf("wide: %s", wide)
	}
}

func TestBenchQueueJSON(t *testing.T) {
	code, out, errs := runApp(t.Context(), "bench", "queue", "--trace", "../../testdata/traces/own.csv", "--demand", "2", "--seed", "9", "--json")
	var r struct {
		Seed    int
		Targets []map[string]any
		Runs    []struct {
			Policies []map[string]any
			Met      map[string]bool
		}
	}
	if err := json.Unmarshal([]byte(out), &r); code != 0 || errs != "" || err != nil || r.Seed != 9 || len(r.Targets) != 5 || len(r.Runs) != 1 || len(r.Runs[0].Met) == 0 {
		t.Fatalf("exit code %d, %s, %v: %s", code, errs, err, out)
	}
	var names []string
	for _, p := range r.Runs[0].Policies {
		names = append(names, p["name"].(string))
		for key := range strings.FieldsSeq("wait_mean_s wait_p50_s wait_p99_s wait_max_s slowdown_mean slowdown_p99 jct_mean_s starved p90_coverage preemptions finished rejected wall_s") {
			if _, ok := p[key]; !ok {
				t.Errorf("%s has no %s", p["name"], key)
			}
		}
	}
	if got := strings.Join(names, " "); got != "fifo fifo-backfill fair las sjf-oracle gpupool" {
		t.Errorf("policies: %s", got)
	}
	for _, key := range []string{"trace", "demand", "offered", "gpus", "hosts", "tasks", "mean_below_fifo", "mean_below_fifo_backfill", "way_to_oracle", "p99_over_fifo"} {
		if !strings.Contains(out, `      "`+key+`": `) {
			t.Errorf("a run has no %s: %s", key, out)
		}
	}
}

func TestBenchQueueFaults(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"once.csv":   "submit_s,duration_s\n0,10\n0,20\n",
		"broken.csv": "submit_s,duration_s\n0,10\n0,ten\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const own = "../../testdata/traces/own.csv"
	for _, x := range []struct {
		args string
		code int
		say  string
	}{
		{"", 2, "give --trace PATH"},
		{"--trace " + own + " more", 2, "see gpupool bench queue --help"},
		{"--trace " + own + " --demand 0.7,0", 2, "demand 0 is out of range"},
		{"--trace " + own + " --demand 70", 2, "demand 70 is out of range"},
		{"--trace " + own + " --demand NaN", 2, "demand NaN is out of range"},
		{"--trace " + own + " --demand most", 2, "see gpupool bench queue --help"},
		{"--trace " + own + " --demand=", 2, "--demand"},
		{"--trace " + own + " --seed -1", 2, "see gpupool bench queue --help"},
		{"--trace " + own + " -o xml", 2, "use table"},
		{"--trace " + own + " --report " + dir + "/none/x.html", 1, "the report cannot be written"},
		{"--trace " + dir + "/none", 1, "the trace cannot be read"},
		{"--trace " + dir + "/broken.csv", 1, "broken.csv:3: duration_s"},
		{"--trace " + dir + "/once.csv", 2, "submitted at once"},
	} {
		if code, out, errs := runApp(t.Context(), append([]string{"bench", "queue"}, strings.Fields(x.args)...)...); code != x.code || !strings.Contains(errs, x.say) || out != "" {
			t.Errorf("%q: exit code %d, %q and %q, want %d and %q", x.args, code, out, errs, x.code, x.say)
		}
	}
}
