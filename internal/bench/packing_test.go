package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpupool/gpupool/internal/baseline"
)

func drawPods(t *rapid.T, least int) []baseline.Task {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) baseline.Task {
		x := baseline.Task{CPUMilli: rapid.Int64Range(0, 8000).Draw(t, "cpu"), MemMiB: rapid.Int64Range(0, 4096).Draw(t, "mem"),
			GPUs: rapid.IntRange(0, 4).Draw(t, "gpus")}
		if x.GPUs > 0 {
			x.Milli = milliGPU
			x.Models = rapid.SampledFrom([][]string{nil, nil, {"T4"}, {"V100", "T4", "V100"}, {"A10"}}).Draw(t, "models")
		}
		if x.GPUs == 1 {
			x.Milli = rapid.IntRange(100, milliGPU).Draw(t, "milli")
		}
		return x
	}), least, 30).Draw(t, "pods")
}

// count is how often each pod occurs.
func count(pods []baseline.Task) map[string]int {
	out := map[string]int{}
	for i := range pods {
		out[fmt.Sprintf("%+v", pods[i])]++
	}
	return out
}

func demand(pods []baseline.Task) (asked, most int) {
	for i := range pods {
		asked += milliOf(&pods[i])
		most = max(most, milliOf(&pods[i]))
	}
	return asked, most
}

func TestArrivals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pods := drawPods(t, 1)
		all, largest := demand(pods)
		if all == 0 {
			t.Skip("asks for no GPU: refused before")
		}
		gpus, seed := rapid.IntRange(1, 64).Draw(t, "gpus"), rapid.Uint64().Draw(t, "seed")
		got := arrivals(pods, gpus, rand.New(rand.NewPCG(seed, 0)))
		asked, _ := demand(got)
		if asked*10 > gpus*13000 {
			t.Fatalf("asks for %d thousandths of %d GPUs: more than 1.3 times", asked, gpus)
		}
		if asked*10 <= gpus*13000-largest*10 {
			t.Fatalf("asks for %d thousandths of %d GPUs: there was room for one more of %d", asked, gpus, largest)
		}
		have := count(pods)
		if len(got) >= len(pods) && all*10 <= gpus*13000 && !maps.Equal(count(got[:len(pods)]), have) {
			t.Fatal("a pod was drawn again before each came once")
		}
		for pod, n := range count(got) {
			if have[pod] == 0 || all*10 > gpus*13000 && n > have[pod] {
				t.Fatalf("%s comes %d times, of %d in the list", pod, n, have[pod])
			}
		}
		if again := arrivals(pods, gpus, rand.New(rand.NewPCG(seed, 0))); !reflect.DeepEqual(got, again) {
			t.Fatal("the same seed gave another list")
		}
	})
	pods := make([]baseline.Task, 50)
	for i := range pods {
		pods[i] = baseline.Task{GPUs: 1, Milli: i + 1}
	}
	a, b := arrivals(pods, 10, rand.New(rand.NewPCG(1, 0))), arrivals(pods, 10, rand.New(rand.NewPCG(2, 0)))
	if reflect.DeepEqual(a, b) {
		t.Error("two seeds gave one list")
	}
}

// TestPackingLegal lets the cluster's own check look at what the experiment did to it, and counts again.
func TestPackingLegal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts := []baseline.Host{{CPUMilli: 16_000, MemMiB: 8192, GPUs: 4, Model: "T4"}, {CPUMilli: 4000, MemMiB: 8192, GPUs: 2, Model: "V100"}, {CPUMilli: 64_000, MemMiB: 8192, GPUs: 8, Model: "G2"}}
		c, err := newPackingCluster(hosts, rapid.Permutation([]int{0, 1, 2}).Draw(t, "order"))
		if err != nil {
			t.Fatal(err)
		}
		pods := drawPods(t, 0)
		if err := offer(context.Background(), pods, c.place); err != nil {
			t.Fatal(err)
		}
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
		held := map[int]int{} // by task
		for _, g := range c.GPUs {
			for _, h := range g.Held {
				i := int(h.Task) - 1
				if want := pods[i].Models; len(want) > 0 && !slices.Contains(want, g.Model) {
					t.Fatalf("pod %+v stands on a %s", pods[i], g.Model)
				}
				held[i] += h.Slice.Milli
			}
		}
		sum := 0
		for i, milli := range held {
			if milli != milliOf(&pods[i]) {
				t.Fatalf("pod %+v got %d thousandths", pods[i], milli)
			}
			sum += milli
		}
		if sum != c.allocated() {
			t.Fatalf("%d thousandths are allocated, counted %d", c.allocated(), sum)
		}
	})
}

// TestNoSharingLimit puts more tasks on a GPU than a pool lets share one by default.
func TestNoSharingLimit(t *testing.T) {
	c, err := newPackingCluster([]baseline.Host{{CPUMilli: 1000, GPUs: 1, Model: "T4"}}, []int{0})
	if err != nil {
		t.Fatal(err)
	}
	if err := offer(context.Background(), slices.Repeat([]baseline.Task{{GPUs: 1, Milli: 10}}, 101), c.place); err != nil {
		t.Fatal(err)
	}
	if c.allocated() != 1000 {
		t.Errorf("a hundredth a hundred times: %d thousandths are allocated", c.allocated())
	}
}

const (
	nodesCSV = "sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,2,T4\nb,32000,1024,0,\nc,64000,262144,2,V100\n"
	podsCSV  = "cpu_milli,memory_mib,num_gpu,gpu_milli\n1000,10,1,500\n1000,10,0,0\n"
)

// folder writes files into a new folder.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestReadPacking(t *testing.T) {
	dir := folder(t, map[string]string{
		"my-nodes.csv": nodesCSV, "notes.csv": "anything,else\n1,2\n", "README.md": "",
		"openb_pod_list_new.csv": "\xef\xbb\xbfname,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos\np,1,2,1,460,V100M16|V100M32,LS\nq,,,,,,\nr,1,2,8,,,BE\n",
		"old.csv":                podsCSV,
		"published.csv":          "workload,policy,seeds,allocation_percent_mean,allocation_percent_sd\nnew,FGD,10,95.5,0.1\nother,FGD,10,1,1\n",
	})
	if names, err := PackingWorkloads(dir); err != nil || !slices.Equal(names, []string{"new", "old"}) {
		t.Errorf("workloads: got %q, %v", names, err)
	}
	in, err := readPacking(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := &packingInput{
		hosts: []baseline.Host{{CPUMilli: 64_000, MemMiB: 262_144, GPUs: 2, Model: "T4"}, {CPUMilli: 64_000, MemMiB: 262_144, GPUs: 2, Model: "V100"}},
		workloads: []packingWorkload{
			{"new", []baseline.Task{{CPUMilli: 1, MemMiB: 2, GPUs: 1, Milli: 460, Models: []string{"V100M16", "V100M32"}}, {}, {CPUMilli: 1, MemMiB: 2, GPUs: 8, Milli: 1000}}, map[string]float64{"FGD": 95.5}},
			{"old", []baseline.Task{{CPUMilli: 1000, MemMiB: 10, GPUs: 1, Milli: 500}, {CPUMilli: 1000, MemMiB: 10}}, nil},
		},
	}
	if !reflect.DeepEqual(in, want) {
		t.Errorf("got %+v, want %+v", in, want)
	}
	if in, err = readPacking(dir, []string{"old"}); err != nil || len(in.workloads) != 1 || in.workloads[0].name != "old" {
		t.Errorf("only old: got %+v, %v", in, err)
	}
}

// TestNodeListOrder has several node lists: the one of hosts with GPUs is meant.
func TestNodeListOrder(t *testing.T) {
	files := map[string]string{"openb_node_list_all_node.csv": nodesCSV, "other-node.csv": nodesCSV, "pods.csv": podsCSV}
	if in, err := readPacking(folder(t, files), nil); err != nil || in.gpus() != 4 {
		t.Errorf("got %+v, %v", in, err)
	}
	files["openb_node_list_gpu_node.csv"] = strings.Replace(nodesCSV, "2,T4", "7,T4", 1)
	if in, err := readPacking(folder(t, files), nil); err != nil || in.gpus() != 9 {
		t.Errorf("got %+v, %v", in, err)
	}
}

func TestReadPackingErrors(t *testing.T) {
	const head = "cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
	for _, x := range []struct{ file, text, want string }{
		{"p.csv", head + "1,1,1,1001,\n", "p.csv:2: gpu_milli: expected a whole number from 0 to 1000, got \"1001\""},
		{"p.csv", head + "1,1,1,500,\n1,1,1,0,\n", "p.csv:3: gpu_milli: expected 1 to 1000 of each of 1 GPUs, got 0"},
		{"p.csv", head + "1,1,2,500,\n", "p.csv:2: gpu_milli: expected 1000 of each of 2 GPUs, got 500"},
		{"p.csv", head + "1,1,65,1000,\n", "p.csv:2: num_gpu: expected a whole number from 0 to 64"},
		{"p.csv", head + "-1,1,1,1000,\n", "p.csv:2: cpu_milli: expected a whole number"},
		{"p.csv", head + "1,1e3,1,1000,\n", "p.csv:2: memory_mib: expected a whole number"},
		{"p.csv", head + "1,1,1,1000,T4|\n", "p.csv:2: gpu_spec: expected GPU models with | between them, got \"T4|\""},
		{"p.csv", head + "1,1,1,1000\n", "p.csv:2: expected 5 fields as in the header, got 4"},
		{"p.csv", head + "1,1,1,1000,\"x\n", "p.csv:2: not a row of CSV"},
		{"p.csv", head, "p.csv: it has no pod"},
		{"p.csv", head + "1,1,0,0,\n", "p.csv: its 1 pods ask for 0.000 GPUs: too little"},
		{"openb_pod_list_p.csv", "", "openb_pod_list_p.csv: it is empty: expected a header with the columns cpu_milli,"},
		{"openb_pod_list_p.csv", "cpu_milli,memory_mib,num_gpu\n", `openb_pod_list_p.csv:1: column "gpu_milli" is missing`},
		{"openb_pod_list_p.csv", head[:9] + "," + head, `openb_pod_list_p.csv:1: column "cpu_milli" stands there twice`},
		{"openb_pod_list_pods.csv", podsCSV, `is the pod list "pods" too`},
		{"node.csv", "sn,cpu_milli,memory_mib,gpu\n", `node.csv:1: column "model" is missing`},
		{"node.csv", "sn,cpu_milli,memory_mib,gpu,model\na,1,1,2,\n", "node.csv:2: model: expected the model of 2 GPUs"},
		{"node.csv", "sn,cpu_milli,memory_mib,gpu,model\na,1,1,x,T4\n", "node.csv:2: gpu: expected a whole number from 0 to 64"},
		{"node.csv", "sn,cpu_milli,memory_mib,gpu,model\na,1,1,0,\n", "node.csv: no host has a GPU"},
		{"node2.csv", nodesCSV, `which file lists the nodes? expected openb_node_list_gpu_node.csv or one file whose name has "node" in it, got ["node.csv" "node2.csv"]`},
		{"published.csv", "workload,policy\n", `published.csv:1: column "allocation_percent_mean" is missing`},
		{"published.csv", "workload,policy,allocation_percent_mean\np,FGD,101\n", "published.csv:2: allocation_percent_mean: expected a number from 0 to 100"},
		{"published.csv", "workload,policy,allocation_percent_mean\np,,10\n", "published.csv:2: expected a workload and a policy"},
		{"published.csv", "workload,policy,allocation_percent_mean\np,FGD,10\np,FGD,10\n", "published.csv:3: FGD of p stands there twice"},
	} {
		files := map[string]string{"node.csv": nodesCSV, "pods.csv": podsCSV}
		files[x.file] = x.text
		if _, err := readPacking(folder(t, files), nil); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s with %q: got %v, want %s", x.file, x.text, err, x.want)
		}
	}
	if _, err := readPacking(folder(t, map[string]string{"node.csv": nodesCSV}), nil); err == nil || !strings.Contains(err.Error(), "no pod list") {
		t.Errorf("no pod list: got %v", err)
	}
	if _, err := readPacking(filepath.Join(t.TempDir(), "none"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: got %v", err)
	}
}

func FuzzPodList(f *testing.F) {
	f.Add(podsCSV)
	f.Add("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos\np,1,2,1,460,V100M16|V100M32,LS\n\"q\",,,,,,\n")
	f.Add("\xef\xbb\xbfcpu_milli,memory_mib,num_gpu,gpu_milli\r\n1,1,8,\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		pods, err := readPods("pods.csv", strings.NewReader(text))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "pods.csv:") {
				t.Errorf("an error that does not say where: %v", err)
			}
			return
		}
		hosts := []baseline.Host{{CPUMilli: 64_000, MemMiB: 1 << 18, GPUs: 8, Model: "T4"}}
		if _, err := baseline.New(baseline.FGD, hosts, pods, rand.New(rand.NewPCG(1, 0))); err != nil {
			t.Errorf("let through what the published rules refuse: %v", err)
		}
		for i := range pods {
			if err := requestOf(&pods[i]).Validate(); err != nil {
				t.Errorf("let through what gpupool refuses: %v", err)
			}
		}
	})
}

// manyPods is a workload on which seeds and rules differ.
func manyPods() string {
	var b strings.Builder
	b.WriteString("cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n")
	for i := range 60 {
		fmt.Fprintf(&b, "%d,1024,1,%d,%s\n", 500*(i%7), 100+37*(i%19), []string{"", "T4", "V100|T4"}[i%3])
	}
	return b.String()
}

func TestPackingDeterministic(t *testing.T) {
	var nodes strings.Builder
	nodes.WriteString("sn,cpu_milli,memory_mib,gpu,model\n")
	for i := range 12 {
		fmt.Fprintf(&nodes, "n%d,%d,65536,%d,%s\n", i, 8000+4000*(i%3), 1+i%4, []string{"T4", "V100", "G2"}[i%3])
	}
	o := PackingOptions{Trace: folder(t, map[string]string{"node.csv": nodes.String(), "a.csv": manyPods(), "b.csv": manyPods()}), Seeds: 5, Rules: []string{"all"}}
	var want *PackingResult
	for _, workers := range []int{1, 3, 16} {
		o.Workers = workers
		told, total := 0, 0
		o.Progress = func(done, all int) {
			if done != told+1 {
				t.Errorf("progress went from %d to %d", told, done)
			}
			told, total = done, all
		}
		r, err := Packing(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		if told != total || total != 2*(5+besideSeeds*6) {
			t.Errorf("progress ended at %d of %d", told, total)
		}
		r.WallS = 0
		if want == nil {
			want = r
		}
		if !reflect.DeepEqual(r, want) {
			t.Errorf("%d workers: got %+v, with one %+v", workers, r, want)
		}
	}
	if a, b := want.Workloads[0], want.Workloads[1]; !slices.Equal(a.GpupoolSeeds, b.GpupoolSeeds) || a.GpupoolSD == 0 {
		t.Errorf("the same list twice: got %+v and %+v, wanted the same seeds, which differ", a, b)
	}
	for _, w := range want.Workloads {
		if w.UpperBound+1e-9 < w.Gpupool || len(w.Baselines) != 6 || w.Gpupool < 50 {
			t.Errorf("%s: got %+v", w.Name, w)
		}
	}
}

func TestPackingNames(t *testing.T) {
	dir := folder(t, map[string]string{"node.csv": nodesCSV, "a.csv": podsCSV, "b.csv": podsCSV})
	for _, x := range []struct {
		o    PackingOptions
		want string
	}{
		{PackingOptions{Trace: dir, Seeds: 1, Workloads: []string{"a", "c"}}, `workload "c" is not known: there are a, b`},
		{PackingOptions{Trace: dir, Seeds: 1, Rules: []string{"fgd", "best"}}, `rule "best" is not known: there are random, dot-product,`},
		{PackingOptions{Trace: dir, Seeds: 1, Rules: []string{"fgd", "all"}}, `rule "all" is not known: there are random`},
	} {
		_, err := Packing(context.Background(), x.o)
		if _, ok := errors.AsType[*UnknownNameError](err); !ok || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%+v: got %v, want %s", x.o, err, x.want)
		}
	}
	if _, err := Packing(context.Background(), PackingOptions{Trace: dir}); err == nil || !strings.Contains(err.Error(), "0 seeds") {
		t.Errorf("no seeds: got %v", err)
	}
	r, err := Packing(context.Background(), PackingOptions{Trace: dir, Seeds: 1, Workloads: []string{"b"}, Rules: []string{"fgd", "random", "fgd"}})
	if err != nil || len(r.Workloads) != 1 || len(r.Workloads[0].Baselines) != 2 {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestPackingCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	o := PackingOptions{Trace: folder(t, map[string]string{"node.csv": nodesCSV, "a.csv": manyPods()}), Seeds: 500, Workers: 2}
	last := 0
	o.Progress = func(done, _ int) {
		if last = done; done == 3 {
			cancel()
		}
	}
	if _, err := Packing(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if last > 20 { // each worker may finish the run that it is in
		t.Errorf("%d runs after the third, which was to be the last", last-3)
	}
}

// TestPackingPage has a pod list with a name that is HTML.
func TestPackingPage(t *testing.T) {
	files := map[string]string{"node.csv": nodesCSV, "<b>&.csv": podsCSV, "plain.csv": podsCSV,
		"published.csv": "workload,policy,allocation_percent_mean\nplain,FGD,90.5\nplain,Random,80\n"}
	r, err := Packing(context.Background(), PackingOptions{Trace: folder(t, files), Seeds: 2})
	if err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := r.Page(true).Write(&page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg role=", "&lt;b&gt;&amp;", "plain", "<td>90.50</td>", "upper bound", "&#43;9.50"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	for _, bad := range []string{"<b>&", "<?xml", "<script", "src=", "@import"} {
		if strings.Contains(page.String(), bad) {
			t.Errorf("the page has %s", bad)
		}
	}
	text := r.Page(false)
	if !slices.Contains(text.Head, "best other") || !slices.Contains(text.Head, "our FGD") || slices.Contains(text.Head, "sd") {
		t.Errorf("columns: got %q", text.Head)
	}
	if want := "above published FGD: +9.50 points in the mean, +9.50 at the least (plain)"; text.Last != want {
		t.Errorf("last line: got %q, want %q", text.Last, want)
	}
}

func TestSpread(t *testing.T) {
	for _, x := range []struct {
		xs   []float64
		want Spread
	}{{[]float64{5}, Spread{5, 0}}, {[]float64{1, 2, 3, 4}, Spread{2.5, 1.291}}, {[]float64{1, 1}, Spread{1, 0}}} {
		if got := spread(x.xs); got != x.want {
			t.Errorf("%v: got %+v, want %+v", x.xs, got, x.want)
		}
	}
}

// TestPackingOpenb runs one seed of the published experiment. What it wants is far less than what gpupool does: that
// the experiment is the published one, not how good gpupool is.
func TestPackingOpenb(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: places some 10,000 tasks twice")
	}
	const openb = "../../../shared/traces/openb"
	if _, err := os.Stat(openb); err != nil {
		t.Skipf("the published workloads are not here: %v", err)
	}
	r, err := Packing(context.Background(), PackingOptions{Trace: openb, Seeds: 1, Workloads: []string{"default"}})
	if err != nil {
		t.Fatal(err)
	}
	w := r.Workloads[0]
	t.Logf("%+v", w)
	if r.Hosts != 1213 || r.GPUs != 6212 || len(w.Published) != 6 {
		t.Errorf("%d hosts with %d GPUs, %d published figures", r.Hosts, r.GPUs, len(w.Published))
	}
	if fgd := w.Baselines["fgd"].Mean; fgd < w.Published["FGD"]-0.5 || fgd > w.Published["FGD"]+0.5 {
		t.Errorf("FGD: %.2f %%, published %.2f", fgd, w.Published["FGD"])
	}
	if w.Gpupool < 90 || w.Gpupool > w.UpperBound || w.UpperBound > 100 {
		t.Errorf("gpupool %.2f %%, upper bound %.2f", w.Gpupool, w.UpperBound)
	}
}
