package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/driver/fake"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/trace"
	"github.com/gpupool/gpupool/internal/work"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// instant hardware, so that numbers can be worked out by hand.
var instantTimes = fake.Times{SetMIG: -1}

func hosts(t testing.TB, shape string) []gpu.HostInfo {
	t.Helper()
	h, err := ParseHosts(shape)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func task(submit, duration, gpus, milli int) trace.Task {
	return trace.Task{Tenant: "a", Priority: "normal", Submit: time.Duration(submit) * time.Second, Duration: time.Duration(duration) * time.Second, GPUs: gpus, Milli: milli}
}

func setup(t testing.TB, shape string, tasks ...trace.Task) Setup {
	return Setup{Trace: &trace.Trace{Name: "test", Tasks: tasks}, Hosts: hosts(t, shape), Times: instantTimes}
}

func run(t testing.TB, s Setup, mode work.PoolMode) *Outcome {
	t.Helper()
	o, err := Run(context.Background(), s, mode)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-6*max(1, math.Abs(want)) {
		t.Errorf("%s is %g, want %g", what, got, want)
	}
}

func TestTwoTasksOneGPU(t *testing.T) {
	o := run(t, setup(t, "1xH100-80GB", task(0, 100, 1, 0), task(10, 50, 1, 0)), work.Static)
	if o.Tasks != 2 || o.Finished != 2 || o.GPUs != 1 || o.GPUsPeak != 1 || o.Decisions != 2 {
		t.Errorf("got %+v", o.Column)
	}
	near(t, "mean wait", o.WaitMean, 45)
	near(t, "p50", o.WaitP50, 0)
	near(t, "p99", o.WaitP99, 90)
	near(t, "mean GPUs", o.GPUsMean, 1)
	near(t, "hours held", o.HoursHeld, 150./3600)
	near(t, "hours used", o.HoursUsed, 150./3600)
	near(t, "idle", o.IdleFraction, 0)
	near(t, "mean completion", o.JCTMean, (100+140)/2.)
	near(t, "virtual time", o.Virtual.Seconds(), 150)
}

func TestQuarters(t *testing.T) {
	quarters := []trace.Task{task(0, 60, 0, 250), task(0, 60, 0, 250), task(0, 60, 0, 250), task(0, 60, 0, 250)}
	pooled, static := run(t, setup(t, "4xH100-80GB", quarters...), work.Dynamic), run(t, setup(t, "4xH100-80GB", quarters...), work.Static)
	if pooled.GPUsPeak != 1 || static.GPUsPeak != 4 {
		t.Errorf("four quarters are on %d GPUs pooled and %d static, want 1 and 4", pooled.GPUsPeak, static.GPUsPeak)
	}
	near(t, "pooled hours held", pooled.HoursHeld, 60./3600)
	near(t, "static hours held", static.HoursHeld, 240./3600)
	near(t, "hours used", static.HoursUsed, 60./3600)
	near(t, "static idle", static.IdleFraction, 0.75)
}

func TestGangAndTooLarge(t *testing.T) {
	o := run(t, setup(t, "2x8xH100-80GB", task(0, 10, 16, 0), task(0, 10, 17, 0)), work.Dynamic)
	if o.Finished != 1 || o.Rejected != 1 || o.GPUsPeak != 16 || o.Tasks != 2 {
		t.Errorf("got %+v, want the gang of 16 on both hosts and the one of 17 rejected", o.Column)
	}
}

func TestStartUp(t *testing.T) {
	s := setup(t, "1xH100-80GB", task(0, 10, 1, 0))
	s.Times = fake.Times{Whole: 3 * time.Second}
	o := run(t, s, work.Static)
	near(t, "start-up", o.StartupMean, 3)
	near(t, "wait", o.WaitMean, 0)
	near(t, "completion", o.JCTMean, 13)
	near(t, "idle", o.IdleFraction, 3./13)
}

func TestUntil(t *testing.T) {
	s := setup(t, "1xH100-80GB", task(0, 100, 1, 0), task(10, 100, 1, 0), task(500, 1, 1, 0))
	s.Until = 60 * time.Second
	o := run(t, s, work.Static)
	if o.Tasks != 2 || o.Running != 1 || o.Waiting != 1 || o.Finished != 0 {
		t.Errorf("got %+v", o.Column)
	}
	near(t, "virtual time", o.Virtual.Seconds(), 60)
	near(t, "hours used", o.HoursUsed, 60./3600)
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, setup(t, "1xH100-80GB", task(0, 1, 1, 0)), work.Static); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func drawTasks(rng *rand.Rand, n int) []trace.Task {
	var out []trace.Task
	for range n {
		x := task(rng.IntN(300), 1+rng.IntN(200), 0, 0)
		x.Tenant = []string{"a", "b"}[rng.IntN(2)]
		x.Priority = []string{"high", "normal", "low"}[rng.IntN(3)]
		switch rng.IntN(4) {
		case 0:
			x.Milli = 1 + rng.IntN(999)
		case 1:
			x.GPUMemoryMiB = 1 + rng.Int64N(90_000) // some fit on nothing
		default:
			x.GPUs = 1 + rng.IntN(20)
		}
		if rng.IntN(3) == 0 {
			x.CPUMilli, x.MemoryMiB = rng.Int64N(60_000), rng.Int64N(500<<10)
		}
		out = append(out, x)
	}
	slices.SortStableFunc(out, func(a, b trace.Task) int { return int(a.Submit - b.Submit) })
	return out
}

// Whatever comes in comes out somewhere, no more is used than held, and never are
// more GPUs in use than there are.
func TestConservation(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 9))
		s := setup(t, "2x8xH100-80GB,1x4xA100-40GB,1x4xT4", drawTasks(rng, 60)...)
		s.Times = fake.Times{}
		if rng.IntN(2) == 0 {
			s.Until = time.Duration(1+rng.IntN(400)) * time.Second
		}
		for _, mode := range []work.PoolMode{work.Static, work.Dynamic} {
			o := run(t, s, mode)
			if o.Tasks != o.Finished+o.Expired+o.Rejected+o.Failed+o.Waiting+o.Running || o.Failed > 0 || o.Expired > 0 {
				t.Fatalf("seed %d, %s: the tasks do not add up: %+v", seed, mode, o.Column)
			}
			if s.Until == 0 && (o.Waiting > 0 || o.Running > 0) {
				t.Fatalf("seed %d, %s: not all ended: %+v", seed, mode, o.Column)
			}
			if o.HoursUsed > o.HoursHeld*(1+1e-9) || o.GPUsPeak > o.GPUs || o.GPUsMean > float64(o.GPUsPeak) {
				t.Fatalf("seed %d, %s: impossible numbers: %+v", seed, mode, o.Column)
			}
		}
	}
}

func compare(t testing.TB) *Comparison {
	t.Helper()
	x, err := trace.Read("../../testdata/traces/itp+openb", trace.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	c, err := Compare(context.Background(), Setup{Trace: x, Hosts: hosts(t, "60x8xH100-80GB"), Seed: 1}, "60x8xH100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestGolden holds the numbers of the demo: a change of policy shows here.
func TestGolden(t *testing.T) {
	texts := [2]string{}
	for i := range texts {
		c := compare(t)
		c.WallS, c.DecisionsPerS = 0, 0
		b, err := json.MarshalIndent(c, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(b) + "\n"
	}
	if texts[0] != texts[1] {
		t.Fatal("the same seed gave other numbers")
	}
	const path = "testdata/itp+openb.json"
	if *update {
		if err := os.WriteFile(path, []byte(texts[0]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || texts[0] != string(want) {
		t.Errorf("%v; got %s\nif that is meant: go test ./internal/sim -update, and the numbers in README.md", err, texts[0])
	}
}

// The keys are a contract with whoever reads the JSON.
func TestKeys(t *testing.T) {
	keys := func(v any) map[string]any {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var m map[string]any
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	column := "tasks finished expired rejected gpus gpus_peak gpus_mean gpu_hours_held gpu_hours_used idle_fraction wait_mean_s wait_p50_s wait_p95_s wait_p99_s jct_mean_s preemptions resizes decisions"
	for _, x := range []struct {
		v    any
		want string
	}{{Column{}, column}, {Comparison{}, "trace seed virtual_s wall_s decisions_per_s static pooled"}, {Plan{}, "gpus_static gpus_pooled gpus_lower_bound saving"}} {
		have := keys(x.v)
		for want := range strings.FieldsSeq(x.want) {
			if _, ok := have[want]; !ok {
				t.Errorf("%T has no key %s", x.v, want)
			}
		}
	}
}

func TestReport(t *testing.T) {
	c := compare(t)
	c.Trace = `<script>alert("x")</script>`
	var b bytes.Buffer
	if err := c.WriteReport(&b); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	if strings.Contains(page, "<script") || strings.Count(page, "<svg") != 3 || !strings.Contains(page, "&lt;script&gt;") {
		t.Error("the page holds a script, or not three plots")
	}
	rest := strings.NewReplacer(`http://www.w3.org/2000/svg`, "", `http://www.w3.org/1999/xlink`, "").Replace(page)
	for _, outside := range []string{"http:", "https:", "src=", "@import", "url("} {
		if strings.Contains(rest, outside) {
			t.Errorf("the page is not self-contained: it holds %s", outside)
		}
	}
}

// TestReportNobodyWaits draws waits of none: their axis is logarithmic.
func TestReportNobodyWaits(t *testing.T) {
	c := compare(t)
	clear(c.static.Waits)
	clear(c.pooled.Waits)
	if err := c.WriteReport(io.Discard); err != nil {
		t.Fatal(err)
	}
}

// fewest finds by trying everything how many GPUs tasks of whole GPUs and whole
// seconds need, if waits may have the given mean and none may pass the limit.
func fewest(rows []trace.Task, meanWait, p99 float64) int {
	for gpus := 1; ; gpus++ {
		use := make([]int, 200)
		var try func(i int, left float64) bool
		try = func(i int, left float64) bool {
			if i == len(rows) {
				return true
			}
			x := rows[i]
			for wait := 0; float64(wait) <= min(left, p99); wait++ {
				from := int(x.Submit.Seconds()) + wait
				to := from + int(x.Duration.Seconds())
				fits := true
				for at := from; at < to; at++ {
					fits = fits && use[at]+x.GPUs <= gpus
				}
				if !fits {
					continue
				}
				for at := from; at < to; at++ {
					use[at] += x.GPUs
				}
				ok := try(i+1, left-float64(wait))
				for at := from; at < to; at++ {
					use[at] -= x.GPUs
				}
				if ok {
					return true
				}
			}
			return false
		}
		if try(0, meanWait*float64(len(rows))) {
			return gpus
		}
	}
}

// TestLowerBound: no schedule at all may do with fewer than the bound says.
func TestLowerBound(t *testing.T) {
	tight := 0
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 4))
		var tasks []trace.Task
		for range 2 + rng.IntN(4) {
			tasks = append(tasks, task(rng.IntN(8), 1+rng.IntN(8), 1+rng.IntN(3), 0))
		}
		slices.SortStableFunc(tasks, func(a, b trace.Task) int { return int(a.Submit - b.Submit) })
		mean, p99 := float64(rng.IntN(4)), float64(rng.IntN(8))
		bound := lowerBound(&trace.Trace{Tasks: tasks}, hosts(t, "8xH100-80GB"), mean, p99)
		need := fewest(tasks, mean, p99)
		if bound > need {
			t.Fatalf("seed %d: the bound is %d, and %d GPUs are enough for mean %g and limit %g: %+v", seed, bound, need, mean, p99, tasks)
		}
		if bound == need {
			tight++
		}
	}
	if tight < 100 {
		t.Errorf("the bound is met in %d of 300 cases: it says too little", tight)
	}
	t.Logf("the bound is met in %d of 300 cases", tight)
}

func TestWindowBound(t *testing.T) { // ten days of work for one GPU, all on the first day
	var tasks []trace.Task
	for i := range 240 {
		tasks = append(tasks, task(i*360, 3600, 1, 0))
	}
	if got := lowerBound(&trace.Trace{Tasks: tasks}, hosts(t, "8xH100-80GB"), 0, 0); got != 10 {
		t.Errorf("without waits the bound is %d, want 10", got)
	}
	if got := lowerBound(&trace.Trace{Tasks: tasks}, hosts(t, "8xH100-80GB"), 600, 86400); got < 7 || got > 10 {
		t.Errorf("with ten minutes of mean wait the bound is %d, want 7 to 10", got)
	}
}

func TestPlan(t *testing.T) {
	var quarters []trace.Task
	for i := range 64 {
		quarters = append(quarters, task(i%4, 600, 0, 250))
	}
	s := setup(t, "8x8xH100-80GB", quarters...)
	p, err := MakePlan(context.Background(), s, "8x8xH100-80GB", nil)
	if err != nil {
		t.Fatal(err)
	}
	if p.GPUsStatic != 64 || p.GPUsPooled != 16 || p.LowerBound != 16 || p.Saving != 0.75 || p.GPUsWhole != 64 {
		t.Errorf("64 quarters at once: got %+v, want 64 static, 16 pooled, bound 16", p)
	}
	if p.Static.GPUs != 64 || p.Pooled.GPUs != 16 || p.Pooled.Finished != 64 {
		t.Errorf("the columns are of other clusters: %+v and %+v", p.Static, p.Pooled)
	}
	s.Hosts = hosts(t, "2x8xH100-80GB,1x4xH100-80GB")
	if _, err := MakePlan(context.Background(), s, "x", nil); err == nil || !strings.Contains(err.Error(), "alike") {
		t.Errorf("hosts that differ: got %v", err)
	}
	s = setup(t, "1x8xH100-80GB", task(0, 10, 9, 0))
	if _, err := MakePlan(context.Background(), s, "x", nil); err == nil || !strings.Contains(err.Error(), "could never run") {
		t.Errorf("a task that fits nowhere: got %v", err)
	}
}

func TestSmall(t *testing.T) {
	for _, x := range []struct {
		q    float64
		want float64
	}{{0, 1}, {0.5, 5}, {0.95, 10}, {0.99, 10}, {1, 10}, {0.11, 2}} {
		if got := quantile([]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, x.q); got != x.want {
			t.Errorf("quantile %g is %g, want %g", x.q, got, x.want)
		}
	}
	if quantile(nil, 0.5) != 0 {
		t.Error("the quantile of nothing is not 0")
	}
	for _, x := range [][3]int{{16, 8, 8}, {12, 8, 4}, {20, 8, 4}, {17, 8, 1}, {64, 8, 8}, {10, 8, 2}, {9, 8, 1}, {12, 6, 6}} {
		if got := perMember(x[0], x[1]); got != x[2] {
			t.Errorf("%d GPUs on hosts of %d: members of %d, want %d", x[0], x[1], got, x[2])
		}
	}
	for s, want := range map[float64]string{0: "0 s", 0.14: "0.14 s", 76: "76 s", 1700: "28 min", 7200: "2h00m", 90000: "25h00m", 200000: "2d07h"} {
		if got := Seconds(s); got != want {
			t.Errorf("%g seconds: %q, want %q", s, got, want)
		}
	}
	var ps []Point
	for i := range 5000 {
		v := 1.
		if i == 1234 {
			v = 99
		}
		ps = append(ps, Point{time.Duration(i) * time.Second, v})
	}
	thin := thinned(ps, 5000*time.Second, 100)
	if len(thin) != 101 || !slices.ContainsFunc(thin, func(p Point) bool { return p.Value == 99 }) {
		t.Errorf("%d points are left, or the peak is lost", len(thin))
	}
}

func TestShared(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	for path, tasks := range map[string]int{"itp": 38878, "philly": 82247} {
		x, err := trace.Read("../../../shared/traces/"+path, trace.Options{})
		if err != nil {
			t.Skip("../shared/traces is not here")
		}
		o := run(t, Setup{Trace: x, Hosts: hosts(t, "200x8xH100-80GB")}, work.Dynamic)
		if o.Finished != tasks {
			t.Errorf("%s: %d of %d tasks finished", path, o.Finished, tasks)
		}
	}
}

func BenchmarkCompare(b *testing.B) {
	decisions := 0
	for b.Loop() {
		c := compare(b)
		decisions = c.Static.Decisions + c.Pooled.Decisions
	}
	b.ReportMetric(float64(decisions*b.N)/b.Elapsed().Seconds(), "decisions/s")
}
