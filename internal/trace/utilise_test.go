package trace

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

const cdfHead = "gpu_util_percent,cumulative_percent\n"

func TestCDF(t *testing.T) {
	c, err := parseCDF("f.csv", strings.NewReader(cdfHead+"0,40\n10,39.999\n10,60\n50,80\n49.9,80\n100,99.5\n"))
	if err != nil {
		t.Fatal(err)
	}
	for q, want := range map[float64]float64{0: 0, 0.3: 0, 0.402: 0, 0.5: 0.1, 0.70351758: 0.3, 1: 1} {
		if got := c.Quantile(q); math.Abs(got-want) > 0.002 {
			t.Errorf("quantile %g is %g, want %g", q, got, want)
		}
	}
	for _, x := range []struct {
		text string
		line int
		want string
	}{
		{"", 0, "empty"},
		{"a,b\n", 1, "is missing"},
		{cdfHead, 0, "expected 99 or more"},
		{cdfHead + "0,50\n10,40\n", 3, "does not fall"},
		{cdfHead + "50,50\n10,60\n", 3, "does not fall"},
		{cdfHead + "0,\n", 2, "got nothing"},
		{cdfHead + "0,50\n101,100\n", 3, `got "101"`},
		{cdfHead + "0,50\n100,90\n", 0, "expected 99 or more"},
	} {
		_, err := parseCDF("f.csv", strings.NewReader(x.text))
		var e *Error
		if !errors.As(err, &e) || e.Line != x.line || !strings.Contains(e.Msg, x.want) {
			t.Errorf("%q: got %v, want line %d and %q", x.text, err, x.line, x.want)
		}
	}
}

// lived is the mean use of a task's GPUs over its life as the simulator plays it.
func lived(x Task) float64 {
	used, at := 0.0, x.Load
	for at < x.Duration {
		for _, p := range x.Phases {
			d := min(p.For, x.Duration-at)
			used += float64(d) * p.Compute
			at += d
		}
	}
	return used / float64(x.Duration)
}

func TestUtilise(t *testing.T) {
	c, err := parseCDF("f.csv", strings.NewReader(cdfHead+"0,30\n50,60\n100,100\n"))
	if err != nil {
		t.Fatal(err)
	}
	x := mustRead(t, shipped+"/itp", Options{})
	x.Tasks[0].Requests, x.Tasks[1].Phases, x.Tasks[2].Utilisation, x.Tasks[3].Duration = []Request{{1, 1}}, []Phase{{1, 1}}, 0.25, 1
	x.Tasks[4].Class = Inference
	got, sum := x.UtiliseBy(c, 7), 0.0
	for i, task := range got.Tasks {
		if i < 2 || i == 4 {
			if !reflect.DeepEqual(task, x.Tasks[i]) {
				t.Errorf("task %d with requests, phases or a class became %+v", i, task)
			}
			continue
		}
		if i == 2 && math.Abs(task.Utilisation-0.25) > 1e-6 {
			t.Errorf("a utilisation of 0.25 that the data says became %g", task.Utilisation)
		}
		if task.Load < 0 || task.Load > task.Duration/10 || len(task.Phases) == 0 || task.Utilisation < 0 || task.Utilisation > 1 {
			t.Fatalf("task %d: %+v", i, task)
		}
		for _, p := range task.Phases {
			if p.For <= 0 || p.Compute < 0 || p.Compute > 1 {
				t.Fatalf("task %d of %s: phases %v", i, task.Duration, task.Phases)
			}
		}
		if task.Duration > time.Minute && math.Abs(lived(task)-task.Utilisation) > 1e-6 {
			t.Fatalf("task %d: phases with mean %g, utilisation %g: %+v", i, lived(task), task.Utilisation, task)
		}
		sum += task.Utilisation
	}
	// Mean of the distribution: 0.3·0 + 0.3·0.25 + 0.4·0.75; a load takes a little off what was near 1.
	if m := sum / float64(len(got.Tasks)); m < 0.35 || m > 0.39 {
		t.Errorf("mean utilisation %.3f, want about 0.375", m)
	}
	if !reflect.DeepEqual(got, x.UtiliseBy(c, 7)) || reflect.DeepEqual(got.Tasks, x.UtiliseBy(c, 8).Tasks) {
		t.Error("the same seed gives another trace, or another the same")
	}
	if x.Tasks[5].Phases != nil || got.Synthetic == "" {
		t.Error("the original was changed, or nothing says what was made up")
	}
}

func TestUtiliseShared(t *testing.T) {
	if _, err := os.Stat(shared); err != nil {
		t.Skip("../shared/traces is not here")
	}
	x := mustRead(t, shipped+"/itp", Options{})
	for file, want := range map[string]float64{"pai_gpu_util_cdf.csv": 0.16, "philly_gpu_util_cdf.csv": 0.47} {
		got, err := x.Utilise(filepath.Join(shared, "utilisation", file), 1)
		if err != nil {
			t.Fatal(err)
		}
		sum, zero := 0.0, 0
		for _, task := range got.Tasks {
			sum += task.Utilisation / float64(len(got.Tasks))
			if task.Utilisation == 0 {
				zero++
			}
		}
		t.Logf("%s: mean %.3f, %d of %d tasks at 0", file, sum, zero, len(got.Tasks))
		if math.Abs(sum-want) > 0.02 {
			t.Errorf("%s: mean utilisation %.3f, published is %g", file, sum, want)
		}
	}
	if _, err := x.Utilise(filepath.Join(shared, "none.csv"), 1); err == nil {
		t.Error("a file that is not there was read")
	}
}

func FuzzCDF(f *testing.F) {
	f.Add(cdfHead+"0,40\n10,39.999\n10,60\n100,99.5\n", 0.5)
	f.Add(cdfHead+"3,100\n", 1.0)
	f.Fuzz(func(t *testing.T, text string, q float64) {
		c, err := parseCDF("f.csv", strings.NewReader(text))
		if err != nil || !(q >= 0 && q <= 1) {
			return
		}
		if u := c.Quantile(q); !(u >= 0 && u <= 1) {
			t.Fatalf("quantile %g of %q is %g", q, text, u)
		}
	})
}
