package trace

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func fixed() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

func TestGamma(t *testing.T) {
	for _, cv := range []float64{0.3, 1, 2, 5} {
		rng, sum, squares, n := fixed(), 0.0, 0.0, 400_000.0
		for range int(n) {
			g := gamma(rng, 1/(cv*cv))
			sum += g
			squares += g * g
		}
		if m, got := sum/n, math.Sqrt(squares/n-sum/n*sum/n); math.Abs(m-1) > 0.03*max(1, cv) || math.Abs(got-cv) > 0.05*cv {
			t.Errorf("CV %g: drawn with mean %.3f and CV %.3f", cv, m, got)
		}
	}
}

func TestFitZipf(t *testing.T) {
	for _, s := range []float64{0.5, 1, 1.43, 3} {
		if got := fitZipf(zipf(87, s)); math.Abs(got-s) > 1e-9 {
			t.Errorf("the shares of exponent %g fit %g", s, got)
		}
	}
}

// TestArrivals: calls come where the rate is, as many as asked, with the CV asked for.
func TestArrivals(t *testing.T) {
	c := client{[]float64{1, 0, 3, 0, 0, 4}, []float64{1, 1, 1, 1, 1, 1}}
	at := c.arrivals(fixed(), 80_000, time.Hour)
	var in [6]int
	for _, x := range at {
		in[x/window]++
	}
	for i, want := range []int{10_000, 0, 30_000, 0, 0, 40_000} {
		if d := in[i] - want; d*d > 600*600 {
			t.Errorf("window %d has %d calls, want about %d", i, in[i], want)
		}
	}
	for _, want := range []float64{0.5, 1, 3} {
		even := client{[]float64{2, 2, 2, 2, 2, 2}, slices.Repeat([]float64{want}, 6)}
		if got := cv(even.arrivals(fixed(), 100_000, time.Hour)); math.Abs(got-want) > 0.05*want {
			t.Errorf("gaps of CV %.3f, want %g", got, want)
		}
	}
	for seed := range uint64(300) { // few calls, wild CVs, lengths that end within a window
		rng := rand.New(rand.NewPCG(seed, 9))
		length := window + time.Duration(rng.Int64N(int64(30*time.Hour)))
		c := fittedClient(rng, rng.Float64())
		for i := range c.cv {
			c.cv[i] = []float64{minCV, 1, maxCV}[rng.IntN(3)]
		}
		n := rng.IntN(30)
		w := c.anyDay(rng, length)
		at := w.arrivals(rng, n, length)
		if len(at) != n || !slices.IsSorted(at) || n > 0 && (at[0] < 0 || at[n-1] >= length) {
			t.Fatalf("seed %d: %d calls within %s: %v", seed, n, length, at)
		}
		for _, x := range at {
			if w.rate[x/window] == 0 {
				t.Fatalf("seed %d: a call at %s, in a window without any", seed, x)
			}
		}
	}
}

func TestNotebooks(t *testing.T) {
	for _, o := range []NotebookOptions{{}, {Seed: 9, Busy: 0.3}, {Users: 300, Days: 12, Busy: 0.05, Tenants: 2}, {Users: 1, Days: 1}} {
		got, err := Notebooks(o)
		x := mustDraw(t, got, err)
		want := o.Busy
		if want == 0 {
			want = 0.125
		}
		if d := duty(x); o.Users != 1 && math.Abs(d-want) > 0.02*want {
			t.Errorf("%+v: cells run for %.4f of the sessions, want %g", o, d, want)
		}
		for i, task := range x.Tasks {
			if task.Class != Interactive || task.GPUs != 1 || task.Load <= 0 || task.UsedMiB <= 0 {
				t.Fatalf("%+v", task)
			}
			free := time.Duration(0)
			for _, r := range task.Requests {
				if r.At < free || r.At+r.Takes > task.Submit+task.Duration+1 {
					t.Fatalf("session %d: a cell at %s for %s, the one before ends at %s, the session at %s", i, r.At, r.Takes, free, task.Submit+task.Duration)
				}
				free = r.At + r.Takes
			}
		}
		again, err := Notebooks(o)
		if !reflect.DeepEqual(x, mustDraw(t, again, err)) {
			t.Errorf("%+v: the same seed gives other notebooks", o)
		}
		o.Seed += 100
		other, err := Notebooks(o)
		if reflect.DeepEqual(x.Tasks, mustDraw(t, other, err).Tasks) {
			t.Errorf("%+v: another seed gives the same notebooks", o)
		}
	}
	for want, o := range map[string]NotebookOptions{"users": {Users: -1}, "days": {Days: 1000}, "tenants": {Tenants: -1}, "busy": {Busy: 0.9}} {
		if _, err := Notebooks(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", o, err, want)
		}
	}
}

func TestNotebooksDescribed(t *testing.T) {
	got, err := Notebooks(NotebookOptions{Seed: 1})
	x := mustDraw(t, got, err)
	var pauses, cells, lengths []float64
	for _, task := range x.Tasks {
		lengths = append(lengths, task.Duration.Hours())
		for k, r := range task.Requests {
			cells = append(cells, r.Takes.Seconds())
			if k > 0 {
				pauses = append(pauses, (r.At - task.Requests[k-1].At - task.Requests[k-1].Takes).Minutes())
			}
		}
	}
	t.Logf("%s: %d sessions of median %.1f h, %d cells of median %.0f s, p95 %.0f s, gaps median %.1f, p90 %.1f, p99 %.1f min, busy %.4f", x.Synthetic, len(x.Tasks), quantile(lengths, 0.5),
		len(cells), quantile(cells, 0.5), quantile(cells, 0.95), quantile(pauses, 0.5), quantile(pauses, 0.9), quantile(pauses, 0.99), duty(x))
}

func TestBuiltin(t *testing.T) {
	t.Chdir(t.TempDir())
	for path, class := range map[string]string{"market": Inference, "notebooks": Interactive, "./market": Inference} {
		got, err := Read(path, Options{Seed: 4})
		if x := mustDraw(t, got, err); x.Tasks[0].Class != class {
			t.Errorf("%s: class %q", path, x.Tasks[0].Class)
		}
	}
	if _, err := Read("sub/market", Options{}); err == nil || !strings.Contains(err.Error(), filepath.Join("sub", "serving")) {
		t.Errorf("a market of a folder that is not there: %v", err)
	}
	if err := os.WriteFile("market", []byte("submit_s,duration_s\n1,2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if x, err := Read("market", Options{}); err != nil || len(x.Tasks) != 1 {
		t.Errorf("a file of that name: %v", err)
	}
}

func TestSilos(t *testing.T) {
	x := mustRead(t, shipped+"/itp", Options{})
	x.Tasks[3].Pool = "own"
	pools := map[string]int{}
	for i, task := range x.Silos().Tasks {
		pools[task.Pool]++
		if want := x.Tasks[i].Tenant; task.Pool != want && i != 3 || task.Tenant != want {
			t.Fatalf("task %d of %s is in pool %s", i, want, task.Pool)
		}
	}
	if len(pools) != 5 || pools["own"] != 1 || x.Tasks[0].Pool != "" {
		t.Errorf("pools %v; the original's is %q", pools, x.Tasks[0].Pool)
	}
}

func TestRequestsSettleUntilScale(t *testing.T) {
	x := &Trace{Tasks: []Task{
		{Name: "late", Submit: 20, Duration: 10, Requests: []Request{{22, 1}, {25, 1}}},
		{Name: "early", Submit: 10, Duration: 20, Requests: []Request{{5, 1}, {12, 2}, {29, 3}}, Phases: []Phase{{5, 0.5}}},
	}}
	x, err := x.settle("x")
	if err != nil {
		t.Fatal(err)
	}
	show := func(x *Trace) string {
		var b bytes.Buffer
		for _, task := range x.Tasks {
			fmt.Fprint(&b, task.Name, int64(task.Submit), task.Requests, len(task.Phases), ";")
		}
		return b.String()
	}
	all := "early0 [{0s 1ns} {2ns 2ns} {19ns 3ns}] 1;late10 [{12ns 1ns} {15ns 1ns}] 0;"
	if got := show(x); got != all {
		t.Errorf("settled: %s, want %s", got, all)
	}
	if got, want := show(x.Until(15)), "early0 [{0s 1ns} {2ns 2ns}] 1;late10 [{12ns 1ns}] 0;"; got != want {
		t.Errorf("until 15: %s, want %s", got, want)
	}
	if got := show(x); got != all {
		t.Errorf("Until changed the original: %s", got)
	}
	for _, task := range x.Scale(3, 1).Tasks {
		of := x.Tasks[0]
		if task.Name == "late" {
			of = x.Tasks[1]
		}
		if !reflect.DeepEqual(task.Requests, of.Requests) || !reflect.DeepEqual(task.Phases, of.Phases) {
			t.Errorf("scaled: %+v of %+v", task, of)
		}
	}
}
