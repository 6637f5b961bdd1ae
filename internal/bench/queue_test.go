package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/trace"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const shipped = "../../testdata/traces/"

func queueTask(submit, duration, gpus, milli int) trace.Task {
	return trace.Task{Priority: "normal", Submit: time.Duration(submit) * time.Second, Duration: time.Duration(duration) * time.Second, GPUs: gpus, Milli: milli}
}

// TestQueueSize: the cluster is the whole hosts that come closest to the demand.
func TestQueueSize(t *testing.T) {
	eights := []trace.Task{queueTask(0, 100, 8, 0), queueTask(100, 100, 8, 0)} // 1,600 GPU seconds in 100 s: 16 GPUs
	halves := []trace.Task{queueTask(0, 1000, 0, 500), queueTask(100, 600, 2, 0), queueTask(100, 20000, 0, 100)}
	for _, x := range []struct {
		name    string
		tasks   []trace.Task
		demand  float64
		hosts   int
		offered float64
	}{
		{"half", eights, 0.5, 4, 0.5},
		{"all", eights, 1, 2, 1},
		{"more than all", eights, 2, 1, 2},
		{"rounded up", eights, 0.7, 3, 16. / 24},
		{"rounded down", eights, 0.6, 3, 16. / 24},
		{"fractions count as what they ask for", halves, 1, 5, 37. / 40}, // 500 + 1,200 + 2,000 GPU seconds
		{"enough for the largest", append(slices.Clone(eights), queueTask(100, 1, 50, 0)), 1, 7, 16.5 / 56},
		{"one at the least", []trace.Task{queueTask(0, 1, 1, 0), queueTask(1000, 1, 1, 0)}, 0.5, 1, 0.002 / 8},
	} {
		p, err := newQueuePlan(&trace.Trace{Name: "t", Tasks: x.tasks}, x.demand)
		if err != nil {
			t.Fatalf("%s: %v", x.name, err)
		}
		if p.run.Hosts != x.hosts || p.run.GPUs != 8*x.hosts || len(p.hosts) != x.hosts || math.Abs(p.run.Offered-x.offered) > 1e-9 || p.run.Tasks != len(x.tasks) {
			t.Errorf("%s: %d hosts, %d GPUs, offered %g; want %d hosts and %g", x.name, p.run.Hosts, p.run.GPUs, p.run.Offered, x.hosts, x.offered)
		}
	}
	for _, x := range []struct {
		tasks  []trace.Task
		demand float64
		say    string
	}{{eights[:1], 0.5, "submitted at once"}, {eights, 1e-5, "give a higher demand"}} {
		_, err := newQueuePlan(&trace.Trace{Name: "t", Tasks: x.tasks}, x.demand)
		if unusable := (*OptionError)(nil); !errors.As(err, &unusable) || !strings.Contains(err.Error(), x.say) {
			t.Errorf("%d tasks at %g: got %v, want %q", len(x.tasks), x.demand, err, x.say)
		}
	}
}

// queueRun is a run whose policies have these waits.
func queueRun(waits map[string][]float64) *QueueRun {
	r := &QueueRun{Trace: "t", Demand: 0.5}
	for _, p := range queuePolicies() {
		w := waits[p.name]
		sum := 0.0
		for _, x := range w {
			sum += x
		}
		r.Policies = append(r.Policies, QueuePolicy{Name: p.name, WaitMean: sum / float64(len(w)), WaitP99: w[len(w)-1], waits: w})
	}
	r.derive()
	return r
}

func TestQueueDerived(t *testing.T) {
	r := queueRun(map[string][]float64{policyFIFO: {10, 30}, policyBackfill: {8, 24}, policyFair: {0, 301}, policyLAS: {300, 300.5},
		policyOracle: {0, 20}, policyOurs: {0, 36}})
	for name, want := range map[string]float64{"below fifo": 1 - 18./20, "below backfill": 1 - 18./16, "way": 2. / 10, "p99": 36. / 30} {
		got := map[string]*float64{"below fifo": r.MeanBelowFIFO, "below backfill": r.MeanBelowBackfill, "way": r.WayToOracle, "p99": r.P99OverFIFO}[name]
		if got == nil || math.Abs(*got-want) > 1e-12 {
			t.Errorf("%s: got %v, want %g", name, got, want)
		}
	}
	for name, want := range map[string]int{policyFIFO: 0, policyFair: 1, policyLAS: 1, policyOurs: 0} { // 300 s is not more than ten times 30
		if got := r.of(name).Starved; got != want {
			t.Errorf("%s: %d starved, want %d", name, got, want)
		}
	}
	if r.Met["mean_below_fifo"] || r.Met["p99_over_fifo"] || r.Met["way_to_oracle"] || !r.Met["starved"] || len(r.Met) != 4 {
		t.Errorf("met: %v", r.Met)
	}
	want := []string{
		"missed: t at 0.5: mean below fifo 10.0 %, wanted at least 50.0 %: off by 40.0 points",
		"missed: t at 0.5: p99 over fifo 1.20, wanted at most 1.10: off by 0.10",
		"missed: t at 0.5: way to oracle 20.0 %, wanted at least 50.0 %: off by 30.0 points",
	}
	if got := r.misses(); !slices.Equal(got, want) {
		t.Errorf("misses: %q, want %q", got, want)
	}
	none := map[string][]float64{}
	for _, p := range queuePolicies() {
		none[p.name] = []float64{0, 0}
	}
	r = queueRun(none)
	if r.MeanBelowFIFO != nil || r.MeanBelowBackfill != nil || r.WayToOracle != nil || r.P99OverFIFO != nil || len(r.Met) != 1 || !r.Met["starved"] {
		t.Errorf("nothing waits: got %+v", r)
	}
	none[policyOurs] = []float64{0, 1}
	if r = queueRun(none); r.Met["starved"] {
		t.Errorf("only gpupool's tasks wait, and nothing is missed: %+v", r)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}

func TestQueueGoals(t *testing.T) {
	for _, x := range []struct {
		goal  string
		value float64
		short float64
	}{
		{"mean_below_fifo", 0.5, 0}, {"mean_below_fifo", 0.25, 0.25}, {"p99_over_fifo", 1.10, 0}, {"p99_over_fifo", 1.35, 0.25},
		{"starved", 0, 0}, {"starved", 3, 3}, {"p90_coverage", 0.85, 0}, {"p90_coverage", 0.95, 0}, {"p90_coverage", 0.75, 0.1}, {"p90_coverage", 1, 0.05},
	} {
		g := queueGoals()[slices.IndexFunc(queueGoals(), func(g queueGoal) bool { return g.name == x.goal })]
		if got := g.short(x.value); math.Abs(got-x.short) > 1e-12 {
			t.Errorf("%s %g is off by %g, want %g", x.goal, x.value, got, x.short)
		}
	}
}

func TestQueueTraces(t *testing.T) {
	dir := t.TempDir()
	for _, x := range []struct {
		add  string
		want []string
	}{
		{"other", []string{"."}}, {"openb", []string{"."}}, {"philly", []string{"philly"}},
		{"itp", []string{"itp", "philly", "itp+openb"}},
	} {
		if err := os.Mkdir(filepath.Join(dir, x.add), 0o700); err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, name := range x.want {
			want = append(want, filepath.Join(dir, name))
		}
		if got := queueTraces(dir); !slices.Equal(got, want) {
			t.Errorf("with %s: got %q, want %q", x.add, got, want)
		}
	}
}

// TestQueueDropped: a policy that did not finish all may not be compared.
func TestQueueDropped(t *testing.T) {
	p := queuePlan{run: QueueRun{Trace: "t", Demand: 0.5, Tasks: 3, Policies: []QueuePolicy{{Name: policyFIFO, Finished: 3}, {Name: policyOurs, Finished: 2, Rejected: 1}}}}
	if err := p.check(); err == nil || !strings.Contains(err.Error(), "t at a demand of 0.5 under gpupool: of 3 tasks 2 finished and 1 were rejected") {
		t.Errorf("got %v", err)
	}
}

// TestQueueGolden holds the numbers of the trace that ships, and that gpupool meets its targets there. They do not
// depend on how many runs are made at a time.
func TestQueueGolden(t *testing.T) {
	var texts []string
	for _, workers := range []int{1, 4} {
		most, told := 0, 0
		r, err := Queue(t.Context(), QueueOptions{Trace: shipped + "itp", Demands: []float64{0.7}, Workers: workers, Progress: func(done, total int) {
			if told, most = told+1, max(most, done); total != 6*3094 || done > total || done < most {
				t.Errorf("told %d of %d after %d", done, total, most)
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		if told == 0 || most != 6*3094 {
			t.Errorf("told %d times, the last %d", told, most)
		}
		for _, run := range r.Runs {
			for _, missed := range run.misses() {
				t.Error(missed)
			}
			if len(run.Met) != len(r.Targets) {
				t.Errorf("%d of %d targets can be told: %v", len(run.Met), len(r.Targets), run.Met)
			}
		}
		r.WallS = 0
		for i := range r.Runs {
			for k := range r.Runs[i].Policies {
				r.Runs[i].Policies[k].WallS = 0
			}
		}
		b, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(b)+"\n")
	}
	if texts[0] != texts[1] {
		t.Fatal("runs made side by side gave other numbers")
	}
	const path = "testdata/queue-itp.json"
	if *update {
		if err := os.WriteFile(path, []byte(texts[0]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || texts[0] != string(want) {
		t.Errorf("%v; got %s\nif that is meant: go test ./internal/bench -update", err, texts[0])
	}
}

func TestQueuePage(t *testing.T) {
	r, err := Queue(t.Context(), QueueOptions{Trace: shipped + "own.csv"})
	if err != nil {
		t.Fatal(err)
	}
	p := r.Page(false)
	if len(p.Sections) != 3 || len(p.Rows) != 1+3 || len(p.Sections[0].Rows) != 6 || len(r.Page(true).Sections[0].Head) <= len(p.Sections[0].Head) {
		t.Errorf("got %+v", p)
	}
	p.Sections[0].Title = `<script>alert("x")</script>`
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	if page := b.String(); strings.Count(page, "<svg") != 3 || strings.Count(page, "</table>") != 4 || strings.Contains(page, "<script") {
		t.Errorf("the page: %s", page)
	}
}

func TestQueueOptions(t *testing.T) {
	for _, d := range []float64{0, -1, math.NaN(), math.Inf(1), maxDemand + 0.1} {
		_, err := Queue(t.Context(), QueueOptions{Trace: shipped + "itp", Demands: []float64{d}})
		if unusable := (*OptionError)(nil); !errors.As(err, &unusable) {
			t.Errorf("demand %g: got %v", d, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Queue(ctx, QueueOptions{Trace: shipped + "itp"}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	if _, err := Queue(t.Context(), QueueOptions{Trace: shipped + "none"}); err == nil || !strings.Contains(err.Error(), "the trace cannot be read") {
		t.Errorf("no trace: got %v", err)
	}
}
