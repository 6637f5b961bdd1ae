package baseline

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// lostByDefinition is FGD's F as the paper has it: task by task, GPU by GPU.
func lostByDefinition(model string, cpu int64, free []int, tasks []typicalTask) (sum int64) {
	for _, k := range tasks {
		room, small, total := 0, 0, 0
		for _, f := range free {
			total += f
			if f >= k.Milli {
				room++
			} else {
				small += f
			}
		}
		models := len(k.Models) == 0 || slices.Contains(k.Models, model)
		if k.GPUs > 0 && k.CPUMilli <= cpu && room >= k.GPUs && models {
			sum += k.weight * int64(small)
		} else {
			sum += k.weight * int64(total)
		}
	}
	return sum
}

func TestLossTable(t *testing.T) {
	rng := seeded(3)
	for range 300 {
		mix := randomTasks(rng, 40)
		tasks := typical(mix)
		model := []string{"T", "X"}[rng.IntN(2)]
		l := newLossTable(model, tasks)
		free := make([]int, rng.IntN(9))
		for i := range free {
			free[i] = min(milliGPU, rng.IntN(1300))
		}
		slices.Sort(free)
		cpu := int64(rng.IntN(9000))
		if got, want := l.of(cpu, free), lostByDefinition(model, cpu, free, tasks); got != want {
			t.Fatalf("%v with CPU %d: got %d, want %d", free, cpu, got, want)
		}
		if i := rng.IntN(len(free) + 1); i < len(free) {
			to := rng.IntN(free[i] + 1)
			want := slices.Clone(free)
			want[i] = to
			slices.Sort(want)
			if got := lower(nil, free, free[i], to); !slices.Equal(got, want) {
				t.Fatalf("%v with one %d lowered to %d: got %v", free, free[i], to, got)
			}
		}
	}
}

// randomTasks makes tasks that repeat, as those of a workload do, some of which no host can run.
func randomTasks(rng *rand.Rand, n int) (tasks []Task) {
	for range n {
		x := Task{CPUMilli: int64(rng.IntN(9)) * 1000, MemMiB: int64(rng.IntN(4)) * 100}
		switch rng.IntN(4) {
		case 0, 1:
			x.GPUs, x.Milli = 1, 1+rng.IntN(4)*333
		case 2:
			x.GPUs, x.Milli = 1+rng.IntN(9), milliGPU
		}
		if rng.IntN(4) == 0 {
			x.Models = [][]string{{"T"}, {"X"}, {"T", "X"}, {"Y"}}[rng.IntN(4)]
		}
		tasks = append(tasks, x)
	}
	return tasks
}

// TestHistories places random tasks, and holds every answer to a search of all hosts.
func TestHistories(t *testing.T) {
	for _, rule := range Rules() {
		t.Run(string(rule), func(t *testing.T) {
			for seed := range uint64(6) {
				rng := seeded(seed)
				var hosts []Host
				for range 1 + rng.IntN(25) {
					hosts = append(hosts, Host{CPUMilli: int64(rng.IntN(60)) * 1000, MemMiB: int64(rng.IntN(20)) * 100, GPUs: rng.IntN(9), Model: []string{"T", "X"}[rng.IntN(2)]})
				}
				history(t, rule, hosts, randomTasks(rng, 400), seed)
			}
		})
	}
}

func history(t *testing.T, rule Rule, hosts []Host, tasks []Task, seed uint64) {
	t.Helper()
	c, err := New(rule, hosts, tasks, seeded(seed))
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range tasks {
		free, milli := fmt.Sprint(c.hosts), c.Allocated()
		room := slices.ContainsFunc(c.hosts, func(h host) bool { return roomByDefinition(h, x) })
		switch placed := c.Place(x); {
		case placed != room:
			t.Fatalf("seed %d, task %d, %+v: placed %t, but there is room: %t", seed, i, x, placed, room)
		case !placed && (fmt.Sprint(c.hosts) != free || c.Allocated() != milli):
			t.Fatalf("seed %d, task %d: not placed, and yet something changed", seed, i)
		case placed && c.Allocated() != milli+int64(x.GPUs*x.Milli):
			t.Fatalf("seed %d, task %d, %+v: allocated %d after %d", seed, i, x, c.Allocated(), milli)
		}
		if i%20 == 0 || i == len(tasks)-1 {
			if err := c.Check(); err != nil {
				t.Fatalf("seed %d, task %d: %v", seed, i, err)
			}
		}
	}
	again, err := New(rule, hosts, tasks, seeded(seed))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range tasks {
		again.Place(x)
	}
	if !reflect.DeepEqual(c.placed, again.placed) {
		t.Fatalf("seed %d: placed another way the second time", seed)
	}
}

func roomByDefinition(h host, x Task) bool {
	if h.cpu < x.CPUMilli || h.mem < x.MemMiB || x.GPUs > len(h.free) {
		return false
	}
	if x.GPUs == 0 {
		return true
	}
	most := slices.Sorted(slices.Values(h.free))
	return most[len(most)-x.GPUs] >= x.Milli && (x.Models == nil || slices.Contains(x.Models, h.Model))
}

func TestCheckNotices(t *testing.T) {
	for name, spoil := range map[string]func(c *Cluster){
		"a GPU":       func(c *Cluster) { c.hosts[0].free[0]-- },
		"the sum":     func(c *Cluster) { c.hosts[0].left++ },
		"CPU":         func(c *Cluster) { c.hosts[0].cpu-- },
		"memory":      func(c *Cluster) { c.hosts[0].mem-- },
		"a kind":      func(c *Cluster) { c.hosts[0].kinds[2] = true },
		"the total":   func(c *Cluster) { c.milli++ },
		"GPUs":        func(c *Cluster) { c.placed[0].gpus = nil },
		"one too far": func(c *Cluster) { c.placed[0].gpus = []int{9} },
		"one twice":   func(c *Cluster) { c.placed = append(c.placed, c.placed[0]) },
		"its model":   func(c *Cluster) { c.placed[0].task.Models = []string{"X"} },
		"a score": func(c *Cluster) {
			for _, k := range c.classes {
				k.score[0]++
			}
		},
	} {
		c := cluster(t, BestFit, []Host{{CPUMilli: 9000, MemMiB: 9, GPUs: 2, Model: "T"}}, nil)
		if !c.Place(share(1000, 600)) || c.Check() != nil {
			t.Fatal("the unbroken cluster does not pass")
		}
		if spoil(c); c.Check() == nil {
			t.Errorf("%s: not noticed", name)
		}
	}
}

func TestBadInput(t *testing.T) {
	good := []Host{{CPUMilli: 1000, MemMiB: 1, GPUs: 2, Model: "T"}}
	for name, x := range map[string]struct {
		rule  Rule
		hosts []Host
		mix   []Task
		rng   *rand.Rand
		want  string
	}{
		"rule":     {"firstfit", good, nil, seeded(1), `rule "firstfit": expected one of ["random" "dot-product" "gpu-clustering" "gpu-packing" "best-fit" "fgd"]`},
		"no rng":   {FGD, good, nil, nil, "no source of random numbers"},
		"host":     {FGD, append(good, Host{CPUMilli: -1}), nil, seeded(1), "host 1: expected CPU and memory of 0 or more"},
		"GPUs":     {FGD, []Host{{GPUs: math.MaxInt}}, nil, seeded(1), "0 to 1024 GPUs"},
		"task":     {FGD, good, []Task{{}, whole(-1, 1)}, seeded(1), "task 1 of the mix: expected CPU, memory and GPUs of 0 or more"},
		"no share": {Random, good, []Task{share(1, 0)}, seeded(1), "expected 1 to 1000 thousandths of one GPU, got 0"},
		"shares":   {Random, good, []Task{{GPUs: 2, Milli: 500}}, seeded(1), "expected 1000 thousandths of each of 2 GPUs, got 500"},
	} {
		if _, err := New(x.rule, x.hosts, x.mix, x.rng); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: got error %v, want %q", name, err, x.want)
		}
	}
	for _, rule := range Rules() {
		c := cluster(t, rule, good, nil)
		for _, x := range []Task{share(1, 0), share(1, 1001), share(-1, 5), {GPUs: -1}, {GPUs: 2, Milli: 7}, whole(0, math.MaxInt), {CPUMilli: math.MaxInt64}} {
			if c.Place(x) || c.Allocated() != 0 {
				t.Errorf("%s: placed %+v", rule, x)
			}
		}
		huge := cluster(t, rule, []Host{{CPUMilli: math.MaxInt64, MemMiB: math.MaxInt64, GPUs: 1, Model: "T"}}, []Task{whole(math.MaxInt64, 1)})
		if !huge.Place(whole(math.MaxInt64, 1)) || huge.Check() != nil {
			t.Errorf("%s: does not place a task as large as the host", rule)
		}
	}
}
