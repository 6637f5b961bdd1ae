package trace

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// mustDraw checks what every drawn workload keeps to.
func mustDraw(t testing.TB, x *Trace, err error) *Trace {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if x.Synthetic == "" || x.Source == "" || x.Licence == "" || x.Tasks[0].Submit != 0 {
		t.Fatalf("%q from %q under %q, from %s on", x.Synthetic, x.Source, x.Licence, x.Tasks[0].Submit)
	}
	for i, task := range x.Tasks {
		if why := wrong(task); why != "" {
			t.Fatalf("task %d %s: %s", i, task.Name, why)
		}
		if i > 0 && task.Submit < x.Tasks[i-1].Submit {
			t.Fatalf("task %d was submitted before the one in front of it", i)
		}
		for k, r := range task.Requests {
			if r.At < task.Submit || r.At >= task.Submit+task.Duration || r.Takes <= 0 || k > 0 && r.At < task.Requests[k-1].At {
				t.Fatalf("task %s, request %d of %d: %+v of a life from %s for %s", task.Name, k, len(task.Requests), r, task.Submit, task.Duration)
			}
		}
		if got := float64(takes(task.Requests)) / float64(task.Duration); len(task.Requests) > 0 && math.Abs(min(1, got)-task.Utilisation) > 1e-6 {
			t.Fatalf("task %s: utilisation %g, its requests take %g", task.Name, task.Utilisation, got)
		}
	}
	return x
}

// duty is the share of all GPU time that requests take.
func duty(x *Trace) float64 {
	busy, all := 0.0, 0.0
	for _, task := range x.Tasks {
		busy += float64(takes(task.Requests))
		all += float64(task.Duration)
	}
	return busy / all
}

func TestMarket(t *testing.T) {
	for _, o := range []MarketOptions{
		{}, {Seed: 2}, {Models: 20, Length: 72 * time.Hour}, {Models: 500, Duty: 0.03}, {Duty: 0.2, MaxDuty: 0.8, Tenants: 1}, {Models: 1000, Length: 6*time.Hour + 7*time.Minute},
	} {
		got, err := Market("", o)
		x := mustDraw(t, got, err)
		want := o.Duty
		if want == 0 {
			want = 0.07
		}
		if d := duty(x); math.Abs(d-want) > 0.05*want {
			t.Errorf("%+v: mean duty %.4f, want %g", o, d, want)
		}
		again, err := Market("", o)
		if !reflect.DeepEqual(x, mustDraw(t, again, err)) {
			t.Errorf("%+v: the same seed gives another market", o)
		}
		o.Seed += 100
		other, err := Market("", o)
		if reflect.DeepEqual(x.Tasks, mustDraw(t, other, err).Tasks) {
			t.Errorf("%+v: another seed gives the same market", o)
		}
	}
}

func TestReplicas(t *testing.T) {
	x, err := Market("", MarketOptions{Seed: 5})
	mustDraw(t, x, err)
	most, least, first := 0, 1<<30, 0
	for _, task := range x.Tasks {
		if strings.HasPrefix(task.Name, "model-001") {
			first++
			most, least = max(most, len(task.Requests)), min(least, len(task.Requests))
		}
		if task.Class != Inference || task.GPUs != 1 || task.Load <= 0 || task.UsedMiB <= 0 || task.Duration != 24*time.Hour {
			t.Fatalf("%+v", task)
		}
	}
	if first < 10 || most-least > 1 {
		t.Errorf("the most popular model has %d replicas with %d to %d requests", first, least, most)
	}
	// As popularity and duty are given, so is the number of GPUs: the mean duty over them is asked for.
	for _, duty := range []float64{0.01, 0.07, 0.2} {
		shares := zipf(300, 1.2)
		w, gpus := busyGPUs(shares, duty, 0.25), 0
		for _, p := range shares {
			gpus += replicas(w*p, 0.25)
			if w*p/float64(replicas(w*p, 0.25)) > 0.25+1e-9 {
				t.Fatalf("duty %g: a replica of share %g is busier than 0.25", duty, p)
			}
		}
		if math.Abs(w-duty*float64(gpus)) > 1e-6*w {
			t.Errorf("duty %g: %g GPUs busy of %d", duty, w, gpus)
		}
	}
}

func TestMarketRefused(t *testing.T) {
	for want, o := range map[string]MarketOptions{
		"models": {Models: -1}, "tenants": {Tenants: -1}, "length": {Length: time.Second}, "duty": {Duty: 2}, "max duty": {MaxDuty: math.NaN()},
		"raise MaxDuty": {Duty: 0.3}, "fewer models": {Models: 10_000, Length: 300 * 24 * time.Hour},
	} {
		if _, err := Market("", o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", o, err, want)
		}
	}
	if _, err := Market(t.TempDir(), MarketOptions{}); err == nil || !strings.Contains(err.Error(), "lora_request_trace.csv") {
		t.Errorf("an empty folder: got %v", err)
	}
}

func quantile(list []float64, q float64) float64 {
	slices.Sort(list)
	return list[int(q*float64(len(list)-1))]
}

// cv is the coefficient of variation of the gaps between times.
func cv(at []time.Duration) float64 {
	slices.Sort(at)
	sum, squares, n := 0.0, 0.0, float64(len(at)-1)
	for i := 1; i < len(at); i++ {
		d := (at[i] - at[i-1]).Seconds()
		sum += d
		squares += d * d
	}
	return math.Sqrt(max(0, squares/n-sum/n*sum/n)) / (sum / n)
}

// waits tells how long requests wait for the ones in front of them when each service
// has its GPU to itself: what the static column of a simulation can reach at best.
func waits(x *Trace) string {
	var list []float64
	for _, task := range x.Tasks {
		free := task.Load
		for _, r := range task.Requests {
			free = max(free, r.At)
			list = append(list, (free - r.At).Seconds())
			free += r.Takes
		}
	}
	return fmt.Sprintf("mean %.0f, median %.0f, p90 %.0f, p99 %.0f, at most %.0f s", mean(list), quantile(list, 0.5), quantile(list, 0.9), quantile(list, 0.99), quantile(list, 1))
}

// describe prints what a market is like.
func describe(t *testing.T, x *Trace) (loads []float64) {
	t.Helper()
	byModel, n := map[string][]time.Duration{}, 0
	var all []time.Duration
	var memory, takes, busy []float64
	for _, task := range x.Tasks {
		model := task.Name[:min(len("model-000"), len(task.Name))]
		for _, r := range task.Requests {
			byModel[model] = append(byModel[model], r.At)
			all = append(all, r.At)
			takes = append(takes, r.Takes.Seconds())
		}
		n += len(task.Requests)
		loads, memory, busy = append(loads, task.Load.Seconds()), append(memory, float64(task.UsedMiB)), append(busy, task.Utilisation)
	}
	t.Logf("with a GPU to itself a request waits %s", waits(x))
	top := 0
	var cvs []float64
	for _, at := range byModel {
		top = max(top, len(at))
		if len(at) >= 20 {
			cvs = append(cvs, cv(at))
		}
	}
	t.Logf("%s", x.Synthetic)
	t.Logf("%d services, %d requests, mean duty %.4f, busiest service %.3f, median %.4f", len(x.Tasks), n, duty(x), quantile(busy, 1), quantile(busy, 0.5))
	t.Logf("CV of gaps: all %.2f; models with 20 requests (%d): median %.2f, p90 %.2f; without a request: %d services", cv(all), len(cvs), quantile(cvs, 0.5), quantile(cvs, 0.9),
		len(slices.DeleteFunc(slices.Clone(busy), func(f float64) bool { return f > 0 })))
	t.Logf("load median %.1f p95 %.1f s; takes median %.1f mean %.1f p95 %.1f s; memory median %.0f p95 %.0f MiB; top model %.3f of requests",
		quantile(loads, 0.5), quantile(loads, 0.95), quantile(takes, 0.5), mean(takes), quantile(takes, 0.95), quantile(memory, 0.5), quantile(memory, 0.95), float64(top)/float64(n))
	return loads
}

func TestMarketDescribed(t *testing.T) {
	x, err := Market("", MarketOptions{Seed: 1})
	describe(t, mustDraw(t, x, err))
}

// TestMarketShared draws from the real files and holds the result against what the
// data says.
func TestMarketShared(t *testing.T) {
	dir := filepath.Join(shared, "serving")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("../shared/traces/serving is not here")
	}
	for _, o := range []MarketOptions{{Seed: 1}, {Seed: 1, Models: 80}, {Seed: 1, Models: 1000}, {Seed: 1, Length: 7 * 24 * time.Hour}} {
		t.Run(fmt.Sprint(o.Models, o.Length), func(t *testing.T) {
			got, err := Market(dir, o)
			x := mustDraw(t, got, err)
			loads := describe(t, x)
			if d := duty(x); math.Abs(d-0.07) > 0.004 {
				t.Errorf("mean duty %.4f, measured is 0.07", d)
			}
			if m := quantile(loads, 0.5); len(loads) > 1000 && (m < 20 || m > 26) {
				t.Errorf("median load %.1f s, measured is 22.7", m)
			}
			if !strings.Contains(x.Licence, "do not ship") {
				t.Errorf("licence %q", x.Licence)
			}
		})
	}
	again, err := Read(filepath.Join(shared, "market"), Options{Seed: 1})
	first, err2 := Market(dir, MarketOptions{Seed: 1})
	if err != nil || err2 != nil || !reflect.DeepEqual(again, first) {
		t.Errorf("DIR/market is another market: %v, %v", err, err2)
	}
}
