package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// benchDir is a folder of the packing experiment in which every rule comes to the same numbers.
func benchDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"openb_node_list_gpu_node.csv": "sn,cpu_milli,memory_mib,gpu,model\na,64000,65536,2,T4\nb,64000,65536,2,T4\nc,64000,65536,1,V100\nd,64000,65536,0,\n",
		"openb_pod_list_halves.csv":    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos\np,1000,1024,1,500,,LS\nq,1000,1024,1,500,,LS\n",
		"picky.csv":                    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np,1000,1024,1,1000,V100\n",
		"tight.csv":                    "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1000,1024,1,600\n",
		"published.csv":                "workload,policy,seeds,allocation_percent_mean,allocation_percent_sd\nhalves,FGD,10,98.5,0.1\nhalves,Random,10,90,0.5\ntight,FGD,10,58,0.1\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// runApp runs a command line.
func runApp(ctx context.Context, args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	a := &App{Version: "v1", Out: &o, Err: &e, In: strings.NewReader("")}
	code = a.Main(ctx, args)
	return code, o.String(), e.String()
}

// packingGolden is what the folder gives: of 5 GPUs 10 halves fit, one pod of a V100, and 5 of three fifths.
const packingGolden = `{
  "experiment": "packing",
  "trace": "DIR",
  "hosts": 3,
  "gpus": 5,
  "seeds": 2,
  "arrival": 1.3,
  "workloads": [
    {
      "name": "halves",
      "tasks_offered": 13,
      "published": {
        "FGD": 98.5,
        "Random": 90
      },
      "baselines": {
        "best-fit": {
          "mean": 100,
          "sd": 0
        },
        "fgd": {
          "mean": 100,
          "sd": 0
        }
      },
      "gpupool": 100,
      "gpupool_sd": 0,
      "gpupool_seeds": [
        100,
        100
      ],
      "upper_bound": BOUND,
      "above_published_fgd": 1.5
    },
    {
      "name": "picky",
      "tasks_offered": 6,
      "published": {},
      "baselines": {
        "best-fit": {
          "mean": 20,
          "sd": 0
        },
        "fgd": {
          "mean": 20,
          "sd": 0
        }
      },
      "gpupool": 20,
      "gpupool_sd": 0,
      "gpupool_seeds": [
        20,
        20
      ],
      "upper_bound": BOUND,
      "above_published_fgd": null
    },
    {
      "name": "tight",
      "tasks_offered": 10,
      "published": {
        "FGD": 58
      },
      "baselines": {
        "best-fit": {
          "mean": 60,
          "sd": 0
        },
        "fgd": {
          "mean": 60,
          "sd": 0
        }
      },
      "gpupool": 60,
      "gpupool_sd": 0,
      "gpupool_seeds": [
        60,
        60
      ],
      "upper_bound": BOUND,
      "above_published_fgd": 2
    }
  ],
  "above_published_fgd_mean": 1.75,
  "above_published_fgd_min": 1.5,
  "wall_s": WALL,
  "notes": NOTES
}
`

func TestBenchPackingJSON(t *testing.T) {
	dir := benchDir(t)
	mask := func(s string) string {
		s = regexp.MustCompile(`"wall_s": [^,]*`).ReplaceAllString(s, `"wall_s": WALL`)
		s = regexp.MustCompile(`"upper_bound": [^,]*`).ReplaceAllString(s, `"upper_bound": BOUND`)
		s = regexp.MustCompile(`(?s)"notes": \[.*\]`).ReplaceAllString(s, `"notes": NOTES`)
		return strings.ReplaceAll(s, dir, "DIR")
	}
	args := []string{"bench", "packing", "--trace", dir, "--seeds", "2", "--rules", "fgd,best-fit"}
	code, out, errs := runApp(t.Context(), append(args, "--json")...)
	if code != 0 || errs != "" || mask(out) != packingGolden {
		t.Errorf("exit code %d, %s; got %s", code, errs, mask(out))
	}
	if _, same, _ := runApp(t.Context(), append(args, "-o", "json")...); mask(same) != mask(out) {
		t.Errorf("-o json: got %s", same)
	}
	var r struct {
		Workloads []struct {
			Gpupool float64
			Bound   float64 `json:"upper_bound"`
		}
		Notes []string
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Notes) < 5 {
		t.Errorf("got %+v, %v", r, err)
	}
	for _, w := range r.Workloads {
		if w.Bound < w.Gpupool || w.Bound > 100 {
			t.Errorf("gpupool %g, upper bound %g", w.Gpupool, w.Bound)
		}
	}
}

func TestBenchPackingTable(t *testing.T) {
	dir := benchDir(t)
	report := filepath.Join(dir, "out.html")
	code, out, errs := runApp(t.Context(), "bench", "packing", "--trace", dir, "--seeds", "1", "--workload", "tight", "--workload", "halves", "--rules", "all", "--report", report)
	if code != 0 || !strings.Contains(errs, "report written to "+report) {
		t.Errorf("exit code %d, %s", code, errs)
	}
	lines := strings.Split(out, "\n")
	for i, want := range []string{`^WORKLOAD +PUBLISHED FGD +OUR FGD +BEST OTHER +GPUPOOL +UPPER BOUND +ABOVE PUBLISHED FGD$`,
		`^halves +98\.50 +100\.00 +100\.00 \([a-z-]+\) +100\.00 +\d+\.\d\d +\+1\.50$`, `^tight +58\.00 +60\.00 +60\.00 \([a-z-]+\) +60\.00 +\d+\.\d\d +\+2\.00$`,
		`^above published FGD: \+1\.75 points in the mean, \+1\.50 at the least \(halves\)$`, `^note: offered: `} {
		if i >= len(lines) || !regexp.MustCompile(want).MatchString(lines[i]) {
			t.Errorf("line %d: wanted %s in %s", i, want, out)
		}
	}
	page, err := os.ReadFile(report)
	if err != nil || !bytes.Contains(page, []byte("<svg")) || !bytes.Contains(page, []byte("halves")) {
		t.Errorf("the report: %v, %s", err, page)
	}
	if _, out, _ := runApp(t.Context(), "bench", "packing", "--trace", dir, "--seeds", "1", "--workload", "picky", "--rules", "none", "-o", "wide"); !strings.Contains(out, "TASKS OFFERED") ||
		strings.Contains(out, "OUR FGD") || !strings.Contains(out, "nothing was published") {
		t.Errorf("without rules and figures: got %s", out)
	}
}

func TestBenchFaults(t *testing.T) {
	dir := benchDir(t)
	broken := benchDir(t)
	if err := os.WriteFile(filepath.Join(broken, "openb_pod_list_halves.csv"), []byte("cpu_milli,memory_mib,num_gpu,gpu_milli\n1,1,1,1,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	packing := func(more ...string) []string { return append([]string{"bench", "packing"}, more...) }
	for _, x := range []struct {
		args []string
		code int
		say  string
	}{
		{packing(), 2, "give --trace DIR"},
		{packing("--trace", dir, "--workload", "third"), 2, `workload "third" is not known: there are halves, picky, tight`},
		{packing("--trace", dir, "--rules", "fgd,worst-fit"), 2, `rule "worst-fit" is not known: there are random, dot-product`},
		{packing("--trace", dir, "--seeds", "0"), 2, "--seeds 0 is out of range"},
		{packing("--trace", dir, "extra"), 2, "see gpupool bench packing --help"},
		{packing("--trace", broken), 1, "openb_pod_list_halves.csv:2: expected 4 fields as in the header, got 5"},
		{packing("--trace", filepath.Join(dir, "none")), 1, "the trace cannot be read"},
		{packing("--trace", dir, "--report", filepath.Join(dir, "none", "x.html")), 1, "the report cannot be written"},
		{packing("--trace", dir, "-o", "xml"), 2, "use table"},
		{[]string{"bench", "nonsense"}, 2, "nonsense"},
		{[]string{"bench", "mig", "--mix", "huge"}, 2, "balanced, small-heavy, large-heavy"},
		{[]string{"bench", "mig", "--gpus", "0"}, 2, "--gpus 0 is out of range"},
		{[]string{"bench", "mig", "--loads", "0.7,no"}, 2, "see gpupool bench mig --help"},
		{[]string{"bench", "engine", "--gpus", "12"}, 2, "expected a multiple of 8"},
		{[]string{"bench", "simulate", "--tasks", "0"}, 2, "--tasks 0 is out of range"},
		{[]string{"bench", "simulate", "--hosts", "many"}, 2, `hosts "many" are not understood`},
	} {
		if code, out, errs := runApp(t.Context(), x.args...); code != x.code || !strings.Contains(errs, x.say) || out != "" {
			t.Errorf("%q: exit code %d, %q and %q, want %d and %q", x.args, code, out, errs, x.code, x.say)
		}
	}
}

func TestBenchCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range [][]string{{"packing", "--trace", benchDir(t)}, {"mig"}, {"queue", "--trace", "../../testdata/traces/itp"}, {"engine"}, {"simulate"}} {
		if code, _, errs := runApp(ctx, append([]string{"bench"}, args...)...); code != 130 || errs != "gpupool: interrupted\n" {
			t.Errorf("%q: exit code %d and %q", args, code, errs)
		}
	}
}

func TestBenchMIG(t *testing.T) {
	args := []string{"bench", "mig", "--gpus", "8", "--loads", "0.9", "--seeds", "2", "--requests", "50"}
	for _, x := range []struct{ more, want string }{{"--json", `"rules": [`}, {"-otable", "\n0.9  "}, {"-owide", " ± "}, {"--mix=small-heavy", "note: mix small-heavy"}} {
		if code, out, errs := runApp(t.Context(), append(args, x.more)...); code != 0 || !strings.Contains(out, x.want) {
			t.Errorf("%s: exit code %d, %q, wanted %q in %s", x.more, code, errs, x.want, out)
		}
	}
	for _, mix := range migMixes() {
		if code, _, errs := runApp(t.Context(), append(args, "--mix", mix)...); code != 0 {
			t.Errorf("completion offers the mix %s: %s", mix, errs)
		}
	}
	for _, model := range sevenSlices() {
		if code, _, errs := runApp(t.Context(), append(args, "--model", model)...); code != 0 {
			t.Errorf("completion offers the model %s: %s", model, errs)
		}
	}
}

// TestBenchSelf has the two experiments whose numbers differ from run to run.
func TestBenchSelf(t *testing.T) {
	for _, x := range []struct {
		args        []string
		table, json string
	}{
		{[]string{"simulate", "--tasks", "100", "--clusters", "1", "--hosts", "2x8xH100-80GB"}, `(?m)^succeeded +100$`, `"experiment": "simulate"`},
		{[]string{"engine", "--gpus", "80"}, `(?m)^80  .* ms$`, `"experiment": "engine"`},
	} {
		if x.args[0] == "engine" && testing.Short() {
			continue // measures for more than a second
		}
		report := filepath.Join(t.TempDir(), "out.html")
		args := append([]string{"bench"}, x.args...)
		if code, out, errs := runApp(t.Context(), append(args, "--report", report)...); code != 0 || !regexp.MustCompile(x.table).MatchString(out) {
			t.Errorf("%q: exit code %d, %s, %s", args, code, errs, out)
		}
		if page, err := os.ReadFile(report); err != nil || !bytes.Contains(page, []byte("</table>")) {
			t.Errorf("%q: the report: %v, %s", args, err, page)
		}
		if code, out, errs := runApp(t.Context(), append(args, "--json")...); code != 0 || !strings.Contains(out, x.json) {
			t.Errorf("%q: exit code %d, %s, %s", args, code, errs, out)
		}
	}
}

func TestBenchCompletion(t *testing.T) {
	dir := benchDir(t)
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"packing", "--rules", "gpu-"}, "gpu-clustering\ngpu-packing\n"},
		{[]string{"packing", "--rules", "fgd,best-fit,f"}, ""},
		{[]string{"packing", "--rules", "fgd,b"}, "fgd,best-fit\n"},
		{[]string{"packing", "--trace", dir, "--workload", "halves,"}, "halves,picky\nhalves,tight\n"},
		{[]string{"packing", "--trace", filepath.Join(dir, "none"), "--workload", ""}, ""},
		{[]string{"mig", "--mix", ""}, "balanced\nsmall-heavy\nlarge-heavy\n"},
	} {
		_, out, _ := runApp(t.Context(), append([]string{"__complete", "bench"}, x.args...)...)
		if got, _, _ := strings.Cut(out, ":"); got != x.want {
			t.Errorf("%q: got %q, want %q", x.args, got, x.want)
		}
	}
}
