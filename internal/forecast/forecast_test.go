package forecast

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gpupool/gpupool/internal/work"
)

const hour = time.Hour

// near tells whether a time is within a bucket of another.
func near(got, want time.Duration) bool { return got > want*7/8-fine && got < want*9/8+fine }

func teach(f *Forecaster, j Job, times int, ran time.Duration) {
	for range times {
		f.Learn(j, Forecast{Basis: None}, ran)
	}
}

// TestLadder: each basis answers where all that are more special know nothing.
func TestLadder(t *testing.T) {
	one, two := work.Request{GPUs: 1}, work.Request{GPUs: 2}
	f := New(Config{})
	if x := f.Ask(Job{Tenant: "a"}); x != (Forecast{Basis: None}) {
		t.Errorf("knowing nothing it said %+v", x)
	}
	teach(f, Job{Tenant: "a", Name: "train-1", Request: one, Model: "H100-80GB"}, 50, hour)
	teach(f, Job{Tenant: "a", Name: "train-2", Request: one, Model: "A100-80GB"}, 50, 2*hour)
	teach(f, Job{Tenant: "a", Name: "eval", Request: one}, 150, 3*hour)
	teach(f, Job{Tenant: "a", Request: two}, 300, 4*hour)
	teach(f, Job{Tenant: "b", Request: one}, 900, 5*hour)
	teach(f, Job{Tenant: "b", Request: work.Request{GPUs: 8}}, 900, 6*hour)
	for _, x := range []struct {
		job   Job
		basis Basis
		want  time.Duration
	}{
		{Job{Tenant: "a", Name: "train-3", Request: one, Model: "H100-80GB"}, OwnModel, hour},
		{Job{Tenant: "a", Name: "train-3", Request: one}, OwnTask, 2 * hour},
		{Job{Tenant: "a", Name: "other", Request: one}, OwnRequest, 3 * hour},
		{Job{Tenant: "a", Request: work.Request{Milli: 300}}, OwnTenant, 4 * hour},
		{Job{Tenant: "c", Request: one}, AnyoneRequest, 5 * hour},
		{Job{Tenant: "c"}, Anyone, 6 * hour},
	} {
		got := f.Ask(x.job)
		if got.Basis != x.basis || !near(got.P50, x.want) || got.P90 < got.P50 || got.Samples < 50 {
			t.Errorf("%+v: got %+v, want %s on %s", x.job, got, x.want, x.basis)
		}
	}
}

func TestThinHistory(t *testing.T) {
	f := New(Config{Least: 3})
	j := Job{Tenant: "a", Request: work.Request{GPUs: 1}}
	teach(f, j, 1, hour)
	if x := f.Ask(j); x.Basis != Anyone || x.Samples != 1 || !near(x.P50, hour) {
		t.Errorf("after one task it said %+v, want the most general", x)
	}
	teach(f, j, 2, hour)
	if x := f.Ask(j); x.Basis != OwnRequest {
		t.Errorf("after three tasks it said %+v", x)
	}
}

func TestMax(t *testing.T) {
	f := New(Config{})
	j := Job{Tenant: "a", Max: hour}
	if x := f.Ask(j); x.P50 != hour || x.P90 != hour || x.Basis != None {
		t.Errorf("knowing only the limit it said %+v", x)
	}
	teach(f, j, 20, 5*hour)
	if x := f.Ask(j); x.P50 != hour || x.P90 != hour || x.Typical != hour {
		t.Errorf("over the limit: %+v", x)
	}
	if x := f.Remaining(j, 45*time.Minute); x.P50 != 15*time.Minute || x.P90 != 15*time.Minute {
		t.Errorf("a quarter before the limit: %+v", x)
	}
	if x := f.Remaining(j, 2*hour); x.P50 != 0 || x.P90 != 0 {
		t.Errorf("after the limit: %+v", x)
	}
}

func TestEstimate(t *testing.T) {
	f := New(Config{})
	j := Job{Tenant: "a", Request: work.Request{GPUs: 1}, Estimate: 4 * hour}
	if x := f.Ask(j); x.Basis != Estimate || x.P50 != 4*hour || x.P90 != 8*hour {
		t.Errorf("an estimate alone: %+v", x)
	}
	if x := f.Remaining(j, hour); x.Basis != Estimate || x.P50 != 3*hour || x.P90 != 7*hour {
		t.Errorf("an estimate after an hour: %+v", x)
	}
	// Estimates are four times too long, but tell the tasks apart.
	for i := range 60 {
		e := time.Duration(1+i%7) * 2 * hour
		f.Learn(Job{Tenant: "a", Request: work.Request{GPUs: 1}, Estimate: e}, Forecast{Basis: None}, e/4)
	}
	j.Estimate = 10 * hour
	if x := f.Ask(j); x.Basis != Estimate || !near(x.P50, 150*time.Minute) || !near(x.Typical, 150*time.Minute) {
		t.Errorf("after good estimates: %+v", x)
	}
	if x := f.Remaining(j, 2*hour); x.Basis != Estimate || x.P50 > 50*time.Minute {
		t.Errorf("after good estimates and two hours: %+v", x)
	}
	// A third take as long as estimated, the others fail at once: what has run a while is
	// of that third.
	for i := range 60 {
		e := time.Duration(1+i%7) * 4 * hour
		f.Learn(Job{Tenant: "c", Estimate: e}, Forecast{Basis: None}, e/time.Duration(1+min(i/7%3, 1)*99))
	}
	if x := f.Remaining(Job{Tenant: "c", Estimate: 10 * hour}, 2*hour); x.Basis != Estimate || !near(x.P50+2*hour, 10*hour) {
		t.Errorf("two hours into a good estimate: %+v", x)
	}
	// Estimates are always the same; history knows better.
	for i := range 60 {
		g := 1 + i%4
		f.Learn(Job{Tenant: "b", Request: work.Request{GPUs: g}, Estimate: 24 * hour}, Forecast{Basis: None}, time.Duration(g)*hour)
	}
	if x := f.Ask(Job{Tenant: "b", Request: work.Request{GPUs: 3}, Estimate: 24 * hour}); x.Basis != OwnRequest || !near(x.P50, 3*hour) {
		t.Errorf("after empty estimates: %+v", x)
	}
}

func TestRemaining(t *testing.T) {
	f := New(Config{})
	j := Job{Tenant: "a", Request: work.Request{GPUs: 1}}
	if x := f.Remaining(j, hour); x.Basis != AsLongAgain || x.P50 != hour || x.P90 != 9*hour {
		t.Errorf("knowing nothing: %+v", x)
	}
	for range 30 { // most fail in a minute, some run ten hours
		teach(f, j, 3, time.Minute)
		teach(f, j, 1, 10*hour)
	}
	if x := f.Ask(j); x.P50 > 2*time.Minute {
		t.Errorf("before it starts: %+v", x)
	}
	if x := f.Remaining(j, hour); x.Basis != OwnRequest || !near(x.P50+hour, 10*hour) {
		t.Errorf("after an hour: %+v", x)
	}
	teach(f, Job{Tenant: "b"}, 10, 40*hour)
	if x := f.Remaining(j, 20*hour); x.Basis != Anyone || !near(x.P50+20*hour, 40*hour) {
		t.Errorf("longer than its own kind: %+v", x)
	}
	if x := f.Remaining(j, 100*hour); x.Basis != AsLongAgain || x.P50 != 100*hour {
		t.Errorf("longer than any: %+v", x)
	}
}

// TestNames: where names tell tasks apart, what they tell is used, though no name comes
// twice.
func TestNames(t *testing.T) {
	f := New(Config{})
	for i := range 200 {
		for k, name := range []string{"eval", "train", "tune"} {
			teach(f, Job{Tenant: "a", Name: fmt.Sprintf("%s-%04d", name, i)}, 1, time.Duration(1+5*k)*hour)
		}
	}
	for k, name := range []string{"eval", "train", "tune"} {
		if x := f.Ask(Job{Tenant: "a", Name: name + "-9999"}); x.Basis != OwnTask || !near(x.P50, time.Duration(1+5*k)*hour) {
			t.Errorf("%s: %+v", name, x)
		}
	}
}

// TestStream: names that never come again do not push out one that does, and memory
// is bounded.
func TestStream(t *testing.T) {
	f := New(Config{Keep: 64})
	known := Job{Tenant: "a", Name: "nightly-1"}
	teach(f, known, 2, hour)
	for i := range 2000 {
		name := []byte{'a' + byte(i%26), 'a' + byte(i/26%26), 'a' + byte(i/676), 'z'}
		teach(f, Job{Tenant: "a", Name: string(name)}, 1, time.Minute)
		if len(f.store.of) > 64 || f.store.once.length+f.store.often.length != len(f.store.of) {
			t.Fatalf("%d kinds kept: %d once, %d often", len(f.store.of), f.store.once.length, f.store.often.length)
		}
	}
	if x := f.Ask(known); x.Basis != OwnTask || !near(x.P50, hour) {
		t.Errorf("the known name: %+v", x)
	}
}

func TestCoverage(t *testing.T) {
	f := New(Config{})
	f.Learn(Job{}, Forecast{Basis: None, P90: hour}, 1)
	f.Learn(Job{}, Forecast{}, 1)
	f.Learn(Job{}, Forecast{Basis: Anyone, P90: hour}, hour)
	f.Learn(Job{}, Forecast{Basis: Anyone, P90: hour}, hour+1)
	if within, of := f.Coverage(); within != 1 || of != 2 {
		t.Errorf("got %d of %d, want 1 of 2", within, of)
	}
	for range 100_000 {
		f.Learn(Job{}, Forecast{Basis: Anyone}, hour)
	}
	if f.margin != mostMargin {
		t.Errorf("margin %d after misses alone", f.margin)
	}
	for range 100_000 {
		f.Learn(Job{}, Forecast{Basis: Anyone, P90: hour}, 1)
	}
	if f.margin != leastMargin {
		t.Errorf("margin %d after hits alone", f.margin)
	}
}

// TestCalibrated: run times drift upward, so that plain quantiles lag; P90 still holds
// for about nine in ten.
func TestCalibrated(t *testing.T) {
	f := New(Config{})
	seed := uint64(1)
	for i := range 20_000 {
		seed = seed*6364136223846793005 + 1442695040888963407
		ran := time.Duration(float64(time.Minute) * math.Exp2(float64(i)/2000+float64(seed>>40)/float64(1<<22)))
		j := Job{Tenant: "a"}
		f.Learn(j, f.Ask(j), ran)
	}
	if within, of := f.Coverage(); float64(within) < 0.88*float64(of) || float64(within) > 0.92*float64(of) {
		t.Errorf("%d of %d ended within their P90", within, of)
	}
}

func jobs() *rapid.Generator[Job] {
	return rapid.Custom(func(t *rapid.T) Job {
		return Job{
			Tenant:   rapid.SampledFrom([]string{"a", "b", "", "\xff"}).Draw(t, "tenant"),
			Name:     rapid.OneOf(rapid.SampledFrom([]string{"", "train-1", "train-2", "eval"}), rapid.String()).Draw(t, "name"),
			Request:  work.Request{GPUs: rapid.IntRange(0, 2).Draw(t, "gpus"), CPUMilli: rapid.Int64().Draw(t, "cpu"), Members: rapid.IntRange(-1, 2).Draw(t, "members")},
			Model:    rapid.SampledFrom([]string{"", "H100-80GB", "<&\u2028>"}).Draw(t, "model"),
			Estimate: rapid.OneOf(rapid.Just(time.Duration(0)), runTime(), anyTime()).Draw(t, "estimate"),
			Max:      rapid.OneOf(rapid.Just(time.Duration(0)), anyTime()).Draw(t, "max"),
		}
	})
}

func anyTime() *rapid.Generator[time.Duration] {
	return rapid.Custom(func(t *rapid.T) time.Duration { return time.Duration(rapid.Int64().Draw(t, "time")) })
}

// TestHistories: the same history gives the same answers and bytes, also after a
// restart at any moment; all answers make sense, whatever was asked.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Config{Keep: 24, Memory: rapid.IntRange(0, 300).Draw(t, "memory")}
		a, b := New(c), New(c)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			j := jobs().Draw(t, "job")
			ran := rapid.OneOf(runTime(), anyTime()).Draw(t, "ran")
			said := a.Ask(j)
			sane(t, j, said)
			left := a.Remaining(j, ran)
			sane(t, j, left)
			if said != b.Ask(j) || left != b.Remaining(j, ran) {
				t.Fatalf("two of one history differ on %+v", j)
			}
			a.Learn(j, said, ran)
			b.Learn(j, said, ran)
			if len(a.store.of) > 24 {
				t.Fatalf("%d kinds kept", len(a.store.of))
			}
			if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
				b = restarted(t, c, b)
			}
		}
		if x, y := marshal(t, a), marshal(t, restarted(t, c, b)); !bytes.Equal(x, y) {
			t.Errorf("states differ:\n%s\n%s", x, y)
		}
	})
}

func sane(t *rapid.T, j Job, x Forecast) {
	if x.P50 < 0 || x.P90 < x.P50 || x.Typical < 0 || x.Basis == "" || j.Max > 0 && (x.P90 > j.Max || x.Typical > j.Max) {
		t.Fatalf("of %+v it said %+v", j, x)
	}
}

func marshal(t rapid.TB, f *Forecaster) []byte {
	b, err := json.Marshal(f.State())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func restarted(t rapid.TB, c Config, f *Forecaster) *Forecaster {
	b := marshal(t, f)
	var s State
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	again, err := Restore(c, s)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, marshal(t, again)) {
		t.Fatalf("state %s came back as %s", b, marshal(t, again))
	}
	return again
}

func TestRestoreFewer(t *testing.T) {
	f := New(Config{})
	for i := range 100 {
		teach(f, Job{Tenant: fmt.Sprint("t", i)}, 2, hour)
	}
	again, err := Restore(Config{Keep: 30}, f.State())
	if err != nil || len(again.store.of) != 30 {
		t.Fatalf("%d kinds kept, %v", len(again.store.of), err)
	}
	if x := again.Ask(Job{Tenant: "t99"}); x.Basis != OwnRequest {
		t.Errorf("the latest tenant: %+v", x)
	}
}

func TestRestoreRefuses(t *testing.T) {
	good := func() State {
		f := New(Config{})
		teach(f, Job{Tenant: "a", Name: "b", Estimate: hour}, 1, hour)
		teach(f, Job{Tenant: "a"}, 3, 2*hour)
		return f.State()
	}
	if _, err := Restore(Config{}, good()); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*State){
		"more within than all": func(s *State) { s.Within = 7 },
		"negative count":       func(s *State) { s.Within, s.Of = -2, -1 },
		"margin":               func(s *State) { s.Margin = mostMargin + 1 },
		"basis":                func(s *State) { s.Often[0].Basis = "luck" },
		"basis of no kind":     func(s *State) { s.Often[0].Basis = None },
		"no samples":           func(s *State) { s.Often[0].Samples = 0 },
		"place":                func(s *State) { s.Often[0].Recent = highest + 1 },
		"negative place":       func(s *State) { s.Once[0].Guess = -1 },
		"text":                 func(s *State) { s.Often[0].Tenant = "\xff" },
		"newest":               func(s *State) { s.Often[0].Newest = 2 * unit },
		"no bars":              func(s *State) { s.Often[0].Bars = nil },
		"half a bar":           func(s *State) { s.Often[0].Bars = s.Often[0].Bars[:1] },
		"bucket":               func(s *State) { s.Often[0].Bars[0] = 192 },
		"order":                func(s *State) { s.Often[0].Bars = append(s.Often[0].Bars, s.Often[0].Bars...) },
		"weight":               func(s *State) { s.Often[0].Bars[1] = 0 },
		"huge weight":          func(s *State) { s.Often[0].Bars[1] = math.MaxUint32 },
		"twice":                func(s *State) { s.Once = append(s.Once, s.Often[0]) },
	} {
		s := good()
		spoil(&s)
		if f, err := Restore(Config{}, s); err == nil || f != nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzRestore(f *testing.F) {
	x := New(Config{})
	teach(x, Job{Tenant: "a", Name: "train-1", Model: "H100-80GB", Estimate: hour, Request: work.Request{GPUs: 1}}, 3, hour)
	b, err := json.Marshal(x.State())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"often":[{"basis":"everyone","samples":1,"newest":1024,"recent":0,"lately":0,"bars":[0,16]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s State
		if json.Unmarshal(b, &s) != nil {
			return
		}
		x, err := Restore(Config{}, s)
		if err != nil {
			return
		}
		for _, j := range []Job{{}, {Tenant: "a", Name: "train-9", Model: "H100-80GB", Estimate: hour, Request: work.Request{GPUs: 1}}} {
			said := x.Ask(j)
			for _, ran := range []time.Duration{0, hour, math.MaxInt64} {
				x.Remaining(j, ran)
				x.Learn(j, said, ran)
			}
		}
		again, err := Restore(Config{}, x.State())
		if err != nil || !reflect.DeepEqual(again.State(), x.State()) {
			t.Errorf("%v, or the state came back another", err)
		}
	})
}

// busy is a forecaster with a long and mixed history.
func busy(b *testing.B) (*Forecaster, []Job) {
	f := New(Config{})
	var all []Job
	for i := range 4096 {
		j := Job{Tenant: fmt.Sprint("tenant-", i%50), Name: fmt.Sprintf("train%c-%05d", 'a'+i%20, i), Model: "H100-80GB", Request: work.Request{GPUs: 1 << (i % 4)}}
		all = append(all, j)
	}
	for i := range 100_000 {
		f.Learn(all[i%len(all)], Forecast{Basis: None}, time.Duration(i%977*i%1013)*time.Second)
	}
	b.ReportAllocs()
	b.ResetTimer()
	return f, all
}

func BenchmarkAsk(b *testing.B) {
	f, all := busy(b)
	for i := 0; b.Loop(); i++ {
		f.Ask(all[i%len(all)])
	}
}

func BenchmarkRemaining(b *testing.B) {
	f, all := busy(b)
	for i := 0; b.Loop(); i++ {
		f.Remaining(all[i%len(all)], time.Duration(i%5000)*time.Minute)
	}
}

func BenchmarkLearn(b *testing.B) {
	f, all := busy(b)
	for i := 0; b.Loop(); i++ {
		f.Learn(all[i%len(all)], Forecast{Basis: OwnTask, P90: hour}, time.Duration(i%977)*time.Minute)
	}
}

func BenchmarkState(b *testing.B) {
	f, _ := busy(b)
	for b.Loop() {
		buf, err := json.Marshal(f.State())
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(buf)), "bytes")
		b.ReportMetric(float64(len(f.store.of)), "kinds")
	}
}
