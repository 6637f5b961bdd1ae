package bench

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/baseline"
)

// boundState is what is free on the hosts of a tiny cluster.
type boundState [3]struct {
	cpu, mem int64
	gpus     [3]int // descending: which is which does not matter
}

// boundBest returns the most that can be allocated, in thousandths of a GPU, by trying every placement of every task in
// turn. A task that fits may be left out only if skip.
func boundBest(hosts []baseline.Host, tasks []baseline.Task, skip bool) (best int) {
	var empty boundState
	for i, h := range hosts {
		empty[i].cpu, empty[i].mem = h.CPUMilli, h.MemMiB
		for g := range h.GPUs {
			empty[i].gpus[g] = 1000
		}
	}
	states := map[boundState]bool{empty: true}
	for _, t := range tasks {
		next := map[boundState]bool{}
		for s := range states {
			after := boundPlacements(s, hosts, t)
			if len(after) == 0 || skip {
				after = append(after, s)
			}
			for _, s := range after {
				next[s] = true
			}
		}
		states = next
	}
	for s := range states {
		allocated := 0
		for i := range s {
			for g := range s[i].gpus {
				allocated += empty[i].gpus[g] - s[i].gpus[g]
			}
		}
		best = max(best, allocated)
	}
	return best
}

// boundPlacements returns what may be free once a task is placed.
func boundPlacements(s boundState, hosts []baseline.Host, t baseline.Task) (after []boundState) {
	for i, h := range hosts {
		if t.CPUMilli > s[i].cpu || t.MemMiB > s[i].mem || t.GPUs > 0 && len(t.Models) > 0 && !slices.Contains(t.Models, h.Model) {
			continue
		}
		n := s
		n[i].cpu -= t.CPUMilli
		n[i].mem -= t.MemMiB
		for first := 0; first+max(1, t.GPUs) <= len(n[i].gpus); first++ { // the task gets this GPU and those after it
			with, fits := n, true
			for g := range t.GPUs {
				with[i].gpus[first+g] -= t.Milli
				fits = fits && with[i].gpus[first+g] >= 0
			}
			slices.SortFunc(with[i].gpus[:], func(a, b int) int { return b - a })
			if fits {
				after = append(after, with)
			}
		}
	}
	return after
}

// boundDraw returns a tiny cluster that is short of GPUs, CPU or memory, and tasks of few kinds.
func boundDraw(rng *rand.Rand) (hosts []baseline.Host, tasks []baseline.Task) {
	models := []string{"A", "B"}
	for range 1 + rng.IntN(3) {
		gpus := rng.IntN(4)
		h := baseline.Host{CPUMilli: int64(gpus*(1+rng.IntN(4))+rng.IntN(3)) * 1000, MemMiB: int64(gpus*(1+rng.IntN(9)) + rng.IntN(5)),
			GPUs: gpus, Model: models[rng.IntN(2)]}
		if len(hosts) > 0 && rng.IntN(2) == 0 {
			h = hosts[0]
		}
		hosts = append(hosts, h)
	}
	var kinds []baseline.Task
	for range 1 + rng.IntN(4) {
		t := baseline.Task{CPUMilli: int64(rng.IntN(5)) * 1000, MemMiB: int64(rng.IntN(7)), GPUs: 1}
		switch rng.IntN(8) {
		case 0:
			t.GPUs = 0
		case 1, 2:
			t.GPUs, t.Milli = 1+rng.IntN(3), 1000
		default:
			t.Milli = []int{30, 100, 230, 320, 470, 500, 530, 650, 810, 1 + rng.IntN(1000)}[rng.IntN(10)]
		}
		switch rng.IntN(4) {
		case 0:
			t.Models = models[:1]
		case 1:
			t.Models = []string{"C", "B"}
		}
		kinds = append(kinds, t)
	}
	for range 1 + rng.IntN(8) {
		tasks = append(tasks, kinds[rng.IntN(len(kinds))])
	}
	return hosts, tasks
}

// TestBoundAboveBest compares the bound with the best of all placements on clusters small enough to try them all: where
// every task that fits must be placed, and, without force, where it need not be.
func TestBoundAboveBest(t *testing.T) {
	const runs = 2000
	var over [2]float64 // sum of how much the bounds are above the best
	for seed := range uint64(runs) {
		hosts, tasks := boundDraw(rand.New(rand.NewPCG(seed, 0)))
		total := 0
		for _, h := range hosts {
			total += h.GPUs * 1000
		}
		for i, bound := range []float64{packingBound(hosts, tasks), newBoundProblem(hosts, tasks).percent()} {
			best := 0.0
			if total > 0 {
				best = float64(boundBest(hosts, tasks, i == 1)) / float64(total) * 100
			}
			if bound < best || bound > 100 || math.IsNaN(bound) {
				t.Errorf("seed %d, tasks may be skipped: %v: bound %v %%, but %v %% is possible\nhosts %+v\ntasks %+v", seed, i == 1, bound, best, hosts, tasks)
			}
			over[i] += (bound - best) / runs
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("on average %.1f points above the best, %.1f where tasks may be skipped", over[0], over[1])
}

func TestBoundByHand(t *testing.T) {
	host := func(n, gpus int, cpu, mem int64, model string) []baseline.Host {
		return slices.Repeat([]baseline.Host{{CPUMilli: cpu, MemMiB: mem, GPUs: gpus, Model: model}}, n)
	}
	task := func(n, gpus, milli int, cpu, mem int64, models ...string) []baseline.Task {
		return slices.Repeat([]baseline.Task{{CPUMilli: cpu, MemMiB: mem, GPUs: gpus, Milli: milli, Models: models}}, n)
	}
	for _, x := range []struct {
		name  string
		hosts []baseline.Host
		tasks []baseline.Task
		want  float64
	}{
		{"nothing", nil, nil, 0},
		{"no GPUs", host(3, 0, 9, 9, ""), task(3, 0, 0, 1, 1), 0},
		{"no tasks with GPUs", host(3, 1, 9, 9, ""), task(3, 0, 0, 1, 1), 0},
		{"too large", host(8, 1, 9, 9, ""), task(3, 2, 1000, 1, 1), 0},
		{"little offered", host(10, 1, 9, 9, ""), task(3, 1, 500, 1, 1), 15},
		{"all that is offered fits", host(2, 8, 9, 9, ""), task(2, 8, 1000, 1, 1), 100},
		{"sizes", host(100, 1, 9, 9, ""), task(200, 1, 810, 1, 1), 81},
		{"sizes off the grid", host(7, 1, 9, 9, ""), task(200, 1, 333, 1, 1), 99.9},
		// 60 GPUs of 600 + 400 and 40 of 400 + 400
		{"counts", host(100, 1, 9, 9, ""), slices.Concat(task(60, 1, 600, 1, 1), task(500, 1, 400, 1, 1)), 92},
		{"CPU", host(10, 8, 40_000, 9, ""), task(200, 1, 1000, 10_000, 1), 50},
		{"CPU of tasks of many GPUs", host(10, 8, 40_000, 9, ""), task(200, 2, 1000, 20_000, 1), 50},
		// two large ones and one small one on each host
		{"CPU, two kinds", host(20, 4, 22_000, 9, ""), slices.Concat(task(20, 1, 1000, 2000, 1), task(300, 1, 1000, 10_000, 1)), 75},
		{"memory", host(10, 4, 90_000, 300, ""), task(200, 1, 500, 1, 100), 37.5},
		{"models", slices.Concat(host(30, 2, 9, 9, "A"), host(10, 2, 9, 9, "B")), task(99, 1, 1000, 1, 1, "B", "C"), 25},
		{"each model its own", slices.Concat(host(10, 1, 9, 9, "A"), host(10, 1, 9, 9, "B")),
			slices.Concat(task(99, 1, 810, 1, 1, "A"), task(99, 1, 650, 1, 1, "B")), 73},
		// 810 cannot be refused, and then 1000 does not fit
		{"first come", host(1, 1, 9, 9, ""), slices.Concat(task(1, 1, 810, 1, 1), task(9, 1, 1000, 1, 1)), 81},
		{"first come, of many", host(100, 1, 9, 9, ""), slices.Concat(task(50, 1, 810, 1, 1), task(99, 1, 1000, 1, 1)), 90.5},
	} {
		t.Run(x.name, func(t *testing.T) {
			if got := packingBound(x.hosts, x.tasks); got < x.want || got > x.want+0.01 {
				t.Errorf("got %v %%, want %v %%", got, x.want)
			}
		})
	}
}

// TestBoundBadInput has hosts and tasks that cannot be: they hold nothing and fit nowhere.
func TestBoundBadInput(t *testing.T) {
	hosts := []baseline.Host{{GPUs: -1}, {CPUMilli: -1, GPUs: 1}, {MemMiB: -1, GPUs: 1}, {CPUMilli: 9, MemMiB: 9, GPUs: 2}}
	tasks := []baseline.Task{{GPUs: -1, Milli: 1000}, {GPUs: 1, Milli: -5}, {GPUs: 1}, {GPUs: 1, Milli: 1001}, {GPUs: 2, Milli: 500},
		{CPUMilli: -1, GPUs: 1, Milli: 1}, {MemMiB: -1, GPUs: 1, Milli: 1}, {CPUMilli: math.MaxInt64}, {GPUs: math.MaxInt, Milli: 1000}}
	if got := packingBound(hosts, tasks); got != 0 {
		t.Errorf("got %v %%, want 0", got)
	}
	good := slices.Repeat([]baseline.Task{{GPUs: 1, Milli: 500}}, 9)
	if got := packingBound(hosts, append(tasks, good...)); got < 50 || got > 50.01 {
		t.Errorf("two good GPUs of four: got %v %%, want 50", got)
	}
}

const boundTraces = "../../../shared/traces/openb"

// boundTable returns the rows of a published CSV file, by column.
func boundTable(t *testing.T, name string) (rows []map[string]string) {
	t.Helper()
	f, err := os.Open(filepath.Join(boundTraces, name))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("the published workloads are not here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines[1:] {
		row := map[string]string{}
		for i, column := range lines[0] {
			row[column] = line[i]
		}
		rows = append(rows, row)
	}
	return rows
}

// boundOpenb returns the published hosts, and a workload's tasks as they arrive in the published experiment.
func boundOpenb(t *testing.T, workload string, rng *rand.Rand) (hosts []baseline.Host, mix, offered []baseline.Task) {
	t.Helper()
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	room := 0
	for _, r := range boundTable(t, "openb_node_list_gpu_node.csv") {
		hosts = append(hosts, baseline.Host{CPUMilli: int64(number(r["cpu_milli"])), MemMiB: int64(number(r["memory_mib"])),
			GPUs: number(r["gpu"]), Model: r["model"]})
		room += 1300 * number(r["gpu"])
	}
	for _, r := range boundTable(t, "openb_pod_list_"+workload+".csv") {
		task := baseline.Task{CPUMilli: int64(number(r["cpu_milli"])), MemMiB: int64(number(r["memory_mib"])), GPUs: number(r["num_gpu"])}
		if task.GPUs > 0 {
			task.Milli = number(r["gpu_milli"])
		}
		if r["gpu_spec"] != "" {
			task.Models = strings.Split(r["gpu_spec"], "|")
		}
		mix = append(mix, task)
	}
	order := rng.Perm(len(mix))
	for i := 0; ; i++ {
		at := rng.IntN(len(mix))
		if i < len(order) {
			at = order[i]
		}
		if room -= mix[at].GPUs * mix[at].Milli; room < 0 {
			return hosts, mix, offered
		}
		offered = append(offered, mix[at])
	}
}

// TestBoundOpenb lets the published rules place published workloads: all rules one, the best rules also others.
func TestBoundOpenb(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: places some 10,000 tasks ten times")
	}
	for workload, rules := range map[string][]baseline.Rule{
		"default": baseline.Rules(), "gpushare100": {baseline.FGD, baseline.BestFit}, "gpuspec33": {baseline.FGD}, "multigpu50": {baseline.FGD},
	} {
		hosts, mix, offered := boundOpenb(t, workload, rand.New(rand.NewPCG(42, 0)))
		start := time.Now()
		bound := packingBound(hosts, offered)
		t.Logf("%s: bound %.2f %%, in %v; %.2f %% where tasks may be skipped", workload, bound, time.Since(start).Round(time.Millisecond),
			newBoundProblem(hosts, offered).percent())
		gpus := 0
		for _, h := range hosts {
			gpus += h.GPUs
		}
		for _, rule := range rules {
			c, err := baseline.New(rule, hosts, mix, rand.New(rand.NewPCG(42, 1)))
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range offered {
				c.Place(x)
			}
			reached := float64(c.Allocated()) / float64(gpus*1000) * 100
			t.Logf("%s, %s: %.2f %%", workload, rule, reached)
			if reached > bound {
				t.Errorf("%s, %s: %v %% allocated, above the bound of %v %%", workload, rule, reached, bound)
			}
		}
	}
}

func BenchmarkBound(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 0))
	var hosts []baseline.Host
	for i := range 1213 {
		hosts = append(hosts, baseline.Host{CPUMilli: 96_000, MemMiB: 400_000, GPUs: 1 << (i % 4), Model: fmt.Sprint(i % 3)})
	}
	var tasks []baseline.Task
	for range 10_000 {
		tasks = append(tasks, baseline.Task{CPUMilli: int64(1+rng.IntN(20)) * 1000, MemMiB: 20_000, GPUs: 1, Milli: 50 * (1 + rng.IntN(20))})
	}
	for b.Loop() {
		packingBound(hosts, tasks)
	}
}
