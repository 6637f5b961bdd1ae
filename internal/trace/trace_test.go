package trace

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	shipped = "../../testdata/traces"
	shared  = "../../../shared/traces"
)

func mustRead(t testing.TB, path string, o Options) *Trace {
	t.Helper()
	x, err := Read(path, o)
	if err != nil {
		t.Fatal(err)
	}
	for i, task := range x.Tasks {
		if why := wrong(task); why != "" {
			t.Fatalf("%s: task %d %+v: %s", path, i, task, why)
		}
		if i > 0 && task.Submit < x.Tasks[i-1].Submit {
			t.Fatalf("%s: task %d was submitted before the one in front of it", path, i)
		}
	}
	if x.Tasks[0].Submit != 0 {
		t.Fatalf("%s begins at %s, want 0", path, x.Tasks[0].Submit)
	}
	return x
}

// wrong says what of a task no reader may let through.
func wrong(x Task) string {
	switch {
	case x.Duration <= 0 || x.Duration > maxSeconds*time.Second:
		return "its duration is out of bounds"
	case x.GPUs < 0 || x.GPUs > maxGPUs || x.Milli < 0 || x.Milli > 999 || x.GPUs > 0 && x.Milli > 0:
		return "its GPUs are out of bounds"
	case x.GPUMemoryMiB < 0 || x.CPUMilli < 0 || x.MemoryMiB < 0:
		return "an amount is negative"
	case x.Priority != "high" && x.Priority != "normal" && x.Priority != "low":
		return "its priority is not known"
	case x.Utilisation > 1:
		return "its utilisation is over 1"
	case x.Class != "" && x.Class != Training && x.Class != Inference && x.Class != Interactive:
		return "its class is not known"
	}
	return ""
}

func TestShipped(t *testing.T) {
	itp := mustRead(t, shipped+"/itp", Options{})
	tenants := map[string]int{}
	for _, x := range itp.Tasks {
		tenants[x.Tenant]++
	}
	if len(itp.Tasks) != 3094 || len(tenants) != 4 || itp.Licence != "MIT" {
		t.Errorf("itp: %d tasks of %d tenants under %s", len(itp.Tasks), len(tenants), itp.Licence)
	}
	openb := mustRead(t, shipped+"/openb", Options{})
	if len(openb.Hosts) != 1213 || len(openb.Tasks) < 5000 {
		t.Errorf("openb: %d hosts and %d tasks", len(openb.Hosts), len(openb.Tasks))
	}
	own := mustRead(t, shipped+"/own.csv", Options{})
	if len(own.Tasks) != 30 || own.Tasks[1].Milli != 250 || own.Tasks[1].Utilisation != 0.04 || own.Tasks[len(own.Tasks)-1].Priority != "low" {
		t.Errorf("own.csv: %d tasks, the second %+v", len(own.Tasks), own.Tasks[1])
	}
}

func TestMixed(t *testing.T) {
	a, again, other := mustRead(t, shipped+"/itp+openb", Options{Seed: 1}), mustRead(t, shipped+"/itp+openb", Options{Seed: 1}), mustRead(t, shipped+"/itp+openb", Options{Seed: 2})
	itp := mustRead(t, shipped+"/itp", Options{})
	if !reflect.DeepEqual(a, again) {
		t.Error("the same seed gives another trace")
	}
	if reflect.DeepEqual(a.Tasks, other.Tasks) || a.Synthetic == "" {
		t.Error("another seed gives the same trace, or it is not named synthetic")
	}
	parts := 0
	for i, x := range a.Tasks {
		if x.Submit != itp.Tasks[i].Submit || x.Duration != itp.Tasks[i].Duration || itp.Tasks[i].GPUs > 1 && x.GPUs != itp.Tasks[i].GPUs {
			t.Fatalf("task %d is %+v, ITP's is %+v", i, x, itp.Tasks[i])
		}
		if x.Milli > 0 {
			parts++
		}
	}
	if parts == 0 {
		t.Error("no task took a part of a GPU")
	}
}

func TestShared(t *testing.T) {
	if _, err := os.Stat(shared); err != nil {
		t.Skip("../shared/traces is not here")
	}
	for _, x := range []struct {
		path           string
		tasks, skipped int
	}{{"itp", 38878, 0}, {"philly", 82247, 0}, {"openb", 8151, 1}} {
		got := mustRead(t, filepath.Join(shared, x.path), Options{})
		skipped := 0
		for _, s := range got.Skipped {
			skipped += s.Count
		}
		if len(got.Tasks) != x.tasks || skipped != x.skipped {
			t.Errorf("%s: %d tasks and %d rows left out, want %d and %d", x.path, len(got.Tasks), skipped, x.tasks, x.skipped)
		}
	}
	if got := mustRead(t, shared+"/openb", Options{OpenbPods: "openb_pod_list_gpuspec33.csv"}); !slices.ContainsFunc(got.Tasks, func(x Task) bool { return slices.Contains(x.Models, "V100-16GB") }) {
		t.Error("no task of gpuspec33 asks for a V100")
	}
}

// parse reads one text as if it were a file.
func parse(text string) (*Trace, error) {
	t := &Trace{}
	if err := t.add("f.csv", strings.NewReader(text)); err != nil {
		return nil, err
	}
	return t.settle("f.csv")
}

const ownHead = "submit_s,duration_s,gpus,fraction,gpu_memory_mib,tenant,priority,name,utilisation\n"

func TestRefused(t *testing.T) {
	const itpHead, phillyHead = "job_id,submission_time,duration,num_gpu\n", "timestamp,duration,num_gpus,gpu_time,cluster\n"
	podHead := strings.Join(podColumns, ",") + "\n"
	for _, x := range []struct {
		name, text string
		line       int
		want       string
	}{
		{"empty", "", 0, "it is empty"},
		{"header alone", ownHead, 0, "no task"},
		{"unknown header", "a,b\n1,2\n", 1, "the format is not known"},
		{"node list", strings.Join(nodeColumns, ",") + "\n", 0, "node list"},
		{"missing column", "submit_s\n1\n", 1, `column "duration_s" is missing`},
		{"unknown column", "submit_s,duration_s,colour\n1,2,red\n", 1, `column "colour" is not known`},
		{"column twice", "submit_s,submit_s,duration_s\n1,2,3\n", 1, "twice"},
		{"too few fields", ownHead + "1,2\n", 2, "expected 9 fields"},
		{"not a number", ownHead + "1,2,1,,,,,,\nsoon,2,1,,,,,,\n", 3, `got "soon"`},
		{"NaN", ownHead + "NaN,2,1,,,,,,\n", 2, `got "NaN"`},
		{"negative", ownHead + "-1,2,1,,,,,,\n", 2, `got "-1"`},
		{"huge", ownHead + "1,1e300,1,,,,,,\n", 2, `got "1e300"`},
		{"infinite", ownHead + "1,Inf,1,,,,,,\n", 2, `got "Inf"`},
		{"half a GPU as a count", ownHead + "1,2,0.5,,,,,,\n", 2, "whole number"},
		{"fraction over 1", ownHead + "1,2,,1.5,,,,,\n", 2, "from 0 to 1"},
		{"both", ownHead + "1,2,1,0.5,,,,,\n", 2, "got both"},
		{"no duration", ownHead + "1,,1,,,,,,\n", 2, "expected seconds, got nothing"},
		{"zero duration", ownHead + "1,0,1,,,,,,\n", 2, "more than 0"},
		{"priority", ownHead + "1,2,1,,,,urgent,,\n", 2, "high, normal or low"},
		{"utilisation", ownHead + "1,2,1,,,,,,7\n", 2, "from 0 to 1"},
		{"class", "submit_s,duration_s,class\n1,2,batch\n", 2, "training, inference or interactive"},
		{"quotes", ownHead + "1,\"2,1,,,,,,\n", 2, "not a row of CSV"},
		{"itp", itpHead + "a,1,x,1\n", 2, "duration: expected"},
		{"itp with another column", "job_id,submission_time,duration,num_gpu,x\n", 1, "not known"},
		{"philly time", phillyHead + "yesterday,1,1,1,c\n", 2, "expected a time such as"},
		{"philly year", phillyHead + "0001-01-01 00:00:00,1,1,1,c\n", 2, "expected a time such as"},
		{"pod qos", podHead + "p,1,1,1,500,,XX,Running,1,2,1\n", 2, "expected LS"},
		{"pod share", podHead + "p,1,1,1,1500,,LS,Running,1,2,1\n", 2, "from 0 to 1000"},
	} {
		t.Run(x.name, func(t *testing.T) {
			_, err := parse(x.text)
			var e *Error
			if !errors.As(err, &e) || e.Line != x.line || e.Path != "f.csv" || !strings.Contains(e.Msg, x.want) {
				t.Errorf("got %v, want f.csv, line %d and %q", err, x.line, x.want)
			}
		})
	}
}

func TestAccepted(t *testing.T) {
	x, err := parse("\xef\xbb\xbfduration_s,submit_s,fraction\r\n10,5,0.25\r\n20,4.5,1\r\n\r\n30,6,0.00001\r\n40,7,\r\n")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, t := range x.Tasks {
		got = append(got, fmt.Sprint(t.Submit, t.Duration, t.GPUs, t.Milli))
	}
	if want := []string{"0s 20s 1 0", "500ms 10s 0 250", "1.5s 30s 0 1", "2.5s 40s 1 0"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	fmt.Fprint(w, "submit_s,duration_s\n1,2\n")
	w.Close() //nolint:errcheck // in memory
	if x := mustRead(t, write("x.csv.gz", z.Bytes()), Options{}); x.Name != "x" || len(x.Tasks) != 1 {
		t.Errorf("packed: %+v", x)
	}
	for path, want := range map[string]string{
		write("bad.csv.gz", []byte("plain")):    "not packed by gzip",
		filepath.Join(dir, "none"):              "no such file",
		t.TempDir():                             "holds no CSV file",
		filepath.Join(t.TempDir(), "itp+openb"): "itp is not there",
	} {
		if _, err := Read(path, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
}

// draw makes a random trace that our own format can hold.
func draw(rng *rand.Rand) *Trace {
	t := &Trace{}
	for range 1 + rng.IntN(40) {
		x := Task{Name: []string{"", "a", "with, comma", "with \"quotes\""}[rng.IntN(4)], Tenant: fmt.Sprint("t", rng.IntN(3)),
			Priority: []string{"high", "normal", "low"}[rng.IntN(3)], Submit: time.Duration(rng.IntN(1e6)) * time.Millisecond,
			Duration: time.Duration(1+rng.IntN(1e6)) * time.Millisecond, Utilisation: -1}
		switch rng.IntN(3) {
		case 0:
			x.GPUs = 1 + rng.IntN(20)
		case 1:
			x.Milli = 1 + rng.IntN(999)
		case 2:
			x.GPUMemoryMiB = 1 + rng.Int64N(80000)
		}
		x.Class, x.Pool = []string{"", Training, Inference, Interactive}[rng.IntN(4)], []string{"", "p"}[rng.IntN(2)]
		if rng.IntN(2) == 0 {
			x.Utilisation = float64(rng.IntN(101)) / 100
		}
		t.Tasks = append(t.Tasks, x)
	}
	t, err := t.settle("drawn")
	if err != nil {
		panic(err)
	}
	return t
}

func TestRoundTrip(t *testing.T) {
	for seed := range uint64(200) {
		want := draw(rand.New(rand.NewPCG(seed, 3)))
		var b bytes.Buffer
		if err := want.writeCSV(&b); err != nil {
			t.Fatal(err)
		}
		got, err := parse(b.String())
		if err != nil || !reflect.DeepEqual(got.Tasks, want.Tasks) {
			t.Fatalf("seed %d: %v\nwrote %+v\nread  %+v", seed, err, want.Tasks, got)
		}
	}
}

func TestScaleAndUntil(t *testing.T) {
	x := mustRead(t, shipped+"/itp", Options{})
	n := float64(len(x.Tasks))
	for _, load := range []float64{0.25, 0.5, 1, 1.3, 3} {
		a, b := x.Scale(load, 7), x.Scale(load, 7)
		if !reflect.DeepEqual(a, b) {
			t.Errorf("load %g: the same seed gives another trace", load)
		}
		if got := float64(len(a.Tasks)); got < n*load*0.9 || got > n*load*1.1 {
			t.Errorf("load %g: %g tasks of %g", load, got, n)
		}
		if !slices.IsSortedFunc(a.Tasks, func(p, q Task) int { return int(p.Submit - q.Submit) }) {
			t.Errorf("load %g: the tasks are out of order", load)
		}
		if (a.Synthetic != "") != (load != 1) {
			t.Errorf("load %g: synthetic is %q", load, a.Synthetic)
		}
	}
	half := x.Until(x.Tasks[len(x.Tasks)/2].Submit)
	for _, task := range half.Tasks {
		if task.Submit >= x.Tasks[len(x.Tasks)/2].Submit {
			t.Fatal("a task from after the end stayed")
		}
	}
	if len(half.Tasks) == 0 || len(half.Tasks) > len(x.Tasks)/2 {
		t.Errorf("%d of %d tasks are left", len(half.Tasks), len(x.Tasks))
	}
}

// fuzz feeds a parser and holds what it lets through against the bounds.
func fuzz(f *testing.F, seeds ...string) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		x, err := parse(text)
		if err != nil {
			return
		}
		for _, task := range x.Tasks {
			if why := wrong(task); why != "" || task.Submit < 0 {
				t.Fatalf("%+v was let through: %s", task, why)
			}
		}
	})
}

func FuzzOwn(f *testing.F) {
	fuzz(f, ownHead+"0,10,1,,,a,high,x,0.5\n1,20,,0.25,1000,b,,y,\n", "duration_s,submit_s\n1e3,0x1p4\n", "duration_s,submit_s,class,pool\n1,1,inference,a\n")
}

func FuzzITP(f *testing.F) {
	fuzz(f, "job_id,submission_time,duration,num_gpu\na,1932025,2429,64\nb,2000581,1532,1\n")
}

func FuzzPhilly(f *testing.F) {
	fuzz(f, "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,11cb48\n")
}

func FuzzPods(f *testing.F) {
	fuzz(f, strings.Join(podColumns, ",")+"\nopenb-pod-0001,6000,12288,1,460,G2|T4,LS,Running,427061,12902960,427061\n")
}

func FuzzNodes(f *testing.F) {
	f.Add("sn,cpu_milli,memory_mib,gpu,model\nopenb-node-0000,64000,262144,2,P100\n")
	f.Fuzz(func(t *testing.T, text string) {
		hosts, err := readNodes("f.csv", strings.NewReader(text))
		if err != nil {
			return
		}
		for _, h := range hosts {
			if h.Name == "" || h.GPUs < 0 || h.GPUs > 64 || h.GPUs > 0 && h.Model == "" || h.CPUMilli < 0 || h.MemoryMiB < 0 {
				t.Fatalf("%+v was let through", h)
			}
		}
	})
}

func BenchmarkReadITP(b *testing.B) {
	for b.Loop() {
		mustRead(b, shipped+"/itp", Options{})
	}
}
