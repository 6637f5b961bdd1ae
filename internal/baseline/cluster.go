// Package baseline places tasks by published rules, for our benchmark to compare our own placement with: random,
// best-fit, dot product, GPU packing, GPU clustering and Fragmentation Gradient Descent. It follows the simulator of
// Weng et al., "Beware of Fragmentation" (USENIX ATC '23), whose figures are published, down to what decides ties:
// scores are whole numbers, and of equal scores the host wins that comes first in an order drawn once per run.
// Nothing that was placed ever ends, as in that experiment. Run on its workloads, the mean of ten seeds was within 0.2
// points of GPU allocation of the published mean for FGD and within 0.4 for every other rule.
//
// Placing reads one score per host. Scores are kept per distinct task and host, and only those of hosts that changed
// since the same task was last placed are computed again, so a run of n tasks, k of them distinct, on h hosts costs at
// most h·k + n·k computed scores and n·h comparisons, and memory grows with h·k.
package baseline

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

const (
	milliGPU = 1000 // one whole GPU, in thousandths
	maxGPUs  = 1024 // of one host: beyond any machine, and small enough to list
)

// Task is what a task asks of one host.
type Task struct {
	CPUMilli int64    // thousandths of a core
	MemMiB   int64    // main memory, MiB
	GPUs     int      // 0 = CPU only
	Milli    int      // thousandths of each GPU, 1 to 1000; 1000 where GPUs is above 1; ignored where it is 0
	Models   []string // GPU models it may run on; empty = any; ignored where GPUs is 0
}

// Host is a machine with nothing on it.
type Host struct {
	CPUMilli int64  // thousandths of a core
	MemMiB   int64  // main memory, MiB
	GPUs     int    // all of one model
	Model    string // compared to Task.Models letter by letter
}

// Rule is the name of a placement rule.
type Rule string

// Rules returns every rule there is, the weakest first.
func Rules() []Rule { return []Rule{Random, DotProduct, GPUClustering, GPUPacking, BestFit, FGD} }

// policy is what a rule decides. Both methods are asked only about hosts that the task fits on.
type policy interface {
	score(h *host, t *Task) int // the host of the highest score gets the task
	gpu(h *host, t *Task) int   // index of the GPU that a task of less than one GPU gets
}

// Cluster is a set of hosts and what was placed on them. It is not safe for concurrent use.
type Cluster struct {
	policy  policy
	tieRNG  *rand.Rand // nil: of equal hosts the first; else one drawn among them
	hosts   []host     // in the order that decides ties
	classes map[classKey]*class
	changed []int // hosts, oldest change first
	placed  []placement
	milli   int64
}

// host is a machine and what is free on it.
type host struct {
	Host
	at    int    // index in the list given to New
	cpu   int64  // free, thousandths of a core
	mem   int64  // free, MiB
	free  []int  // of each GPU, thousandths
	left  int    // sum of free
	kinds []bool // which Task.kind runs here
}

// classKey is what tells one task from another.
type classKey struct {
	cpu, mem    int64
	gpus, milli int
	models      string
}

// class is a distinct task and its score on every host.
type class struct {
	task  Task
	score []int // noFit where it does not fit, and then for ever: nothing ends
	seen  int   // how much of Cluster.changed the scores reflect
}

const noFit = math.MinInt

// placement is one task on one host. It is kept for Check.
type placement struct {
	host int
	task *Task
	gpus []int
}

// New returns an empty cluster of these hosts under a rule. mix is the whole workload, from which FGD takes its typical
// tasks; the other rules only check it. rng breaks ties and makes the choices of Random; the same seed gives the same
// placements.
func New(rule Rule, hosts []Host, mix []Task, rng *rand.Rand) (*Cluster, error) {
	if rng == nil {
		return nil, fmt.Errorf("no source of random numbers: expected one, seeded")
	}
	for i, h := range hosts {
		if h.CPUMilli < 0 || h.MemMiB < 0 || h.GPUs < 0 || h.GPUs > maxGPUs {
			return nil, fmt.Errorf("host %d: expected CPU and memory of 0 or more and 0 to %d GPUs, got %d, %d and %d",
				i, maxGPUs, h.CPUMilli, h.MemMiB, h.GPUs)
		}
	}
	for i := range mix {
		if err := mix[i].check(); err != nil {
			return nil, fmt.Errorf("task %d of the mix: %w", i, err)
		}
	}
	c := &Cluster{classes: map[classKey]*class{}}
	switch rule {
	case Random:
		c.policy, c.tieRNG = random{rng}, rng
	case BestFit:
		c.policy = bestFit{}
	case DotProduct:
		c.policy = dotProduct{}
	case GPUPacking:
		c.policy = packing{}
	case GPUClustering:
		c.policy = clustering{}
	case FGD:
		c.policy = newFGD(hosts, mix)
	default:
		return nil, fmt.Errorf("rule %q: expected one of %q", rule, Rules())
	}
	for _, i := range rng.Perm(len(hosts)) {
		h := hosts[i]
		c.hosts = append(c.hosts, host{Host: h, at: i, cpu: h.CPUMilli, mem: h.MemMiB,
			free: slices.Repeat([]int{milliGPU}, h.GPUs), left: milliGPU * h.GPUs, kinds: make([]bool, h.GPUs+1)})
	}
	return c, nil
}

// check tells what is wrong with a task.
func (t *Task) check() error {
	switch {
	case t.CPUMilli < 0 || t.MemMiB < 0 || t.GPUs < 0:
		return fmt.Errorf("expected CPU, memory and GPUs of 0 or more, got %d, %d and %d", t.CPUMilli, t.MemMiB, t.GPUs)
	case t.GPUs == 1 && (t.Milli < 1 || t.Milli > milliGPU):
		return fmt.Errorf("expected 1 to 1000 thousandths of one GPU, got %d", t.Milli)
	case t.GPUs > 1 && t.Milli != milliGPU:
		return fmt.Errorf("expected 1000 thousandths of each of %d GPUs, got %d", t.GPUs, t.Milli)
	}
	return nil
}

// share tells whether the task asks for less than one GPU.
func (t *Task) share() bool { return t.GPUs == 1 && t.Milli < milliGPU }

// milli is what the task asks of all its GPUs, in thousandths.
func (t *Task) milli() int { return t.GPUs * t.Milli }

// kind is what the task is among those that GPU clustering keeps together: 0 for a share, else its number of GPUs.
func (t *Task) kind() int {
	if t.share() {
		return 0
	}
	return t.GPUs
}

// accepts tells whether the task may run on GPUs of a model.
func (t *Task) accepts(model string) bool {
	return len(t.Models) == 0 || slices.Contains(t.Models, model)
}

// fits tells whether the task can run on what is free.
func (h *host) fits(t *Task) bool {
	if t.CPUMilli > h.cpu || t.MemMiB > h.mem {
		return false
	}
	if t.GPUs == 0 {
		return true
	}
	if t.milli() > h.left || !t.accepts(h.Model) {
		return false
	}
	n := 0
	for _, f := range h.free {
		if f >= t.Milli {
			n++
		}
	}
	return n >= t.GPUs
}

// idle is how many GPUs have nothing on them.
func (h *host) idle() (n int) {
	for _, f := range h.free {
		if f == milliGPU {
			n++
		}
	}
	return n
}

// Place puts a task on the host that the rule prefers, and returns false, with nothing changed, where it fits on none.
// A task that is not as Task says, such as one of two halves of GPUs, fits nowhere.
func (c *Cluster) Place(t Task) bool {
	if t.check() != nil {
		return false
	}
	k := c.class(&t)
	c.refresh(k)
	i, ok := c.best(k)
	if ok {
		c.take(i, &k.task)
	}
	return ok
}

// class returns what is known about a task, beginning with its score on every host.
func (c *Cluster) class(t *Task) *class {
	key := classKey{cpu: t.CPUMilli, mem: t.MemMiB, gpus: t.GPUs}
	if t.GPUs > 0 {
		key.milli, key.models = t.Milli, strings.Join(t.Models, "|")
	}
	k := c.classes[key]
	if k == nil {
		k = &class{task: *t, score: make([]int, len(c.hosts)), seen: len(c.changed)}
		k.task.Milli, k.task.Models = key.milli, slices.Clone(t.Models)
		for i := range c.hosts {
			c.rescore(k, i)
		}
		c.classes[key] = k
	}
	return k
}

// refresh brings a class's scores up to date.
func (c *Cluster) refresh(k *class) {
	news := c.changed[k.seen:]
	k.seen = len(c.changed)
	if len(news) >= len(c.hosts) { // most changed more than once: each once is cheaper
		for i := range c.hosts {
			c.rescore(k, i)
		}
		return
	}
	for _, i := range news {
		c.rescore(k, i)
	}
}

func (c *Cluster) rescore(k *class, i int) {
	h := &c.hosts[i]
	switch {
	case k.score[i] == noFit:
	case h.fits(&k.task):
		k.score[i] = c.policy.score(h, &k.task)
	default:
		k.score[i] = noFit
	}
}

// best returns the host with the highest score.
func (c *Cluster) best(k *class) (at int, ok bool) {
	top, equal := noFit, 0
	for i, s := range k.score {
		switch {
		case s > top:
			top, at, equal = s, i, 1
		case s == top && s != noFit && c.tieRNG != nil:
			equal++
			if c.tieRNG.IntN(equal) == 0 { // so each of the equal ones is drawn equally often
				at = i
			}
		}
	}
	return at, top != noFit
}

// take gives a task its part of a host. Whole GPUs are the first idle ones: they are all alike.
func (c *Cluster) take(i int, t *Task) {
	h := &c.hosts[i]
	var gpus []int
	switch {
	case t.share():
		gpus = []int{c.policy.gpu(h, t)}
	case t.GPUs > 0:
		for g := 0; g < len(h.free) && len(gpus) < t.GPUs; g++ {
			if h.free[g] == milliGPU {
				gpus = append(gpus, g)
			}
		}
	}
	for _, g := range gpus {
		h.free[g] -= t.Milli
		h.left -= t.Milli
	}
	if t.GPUs > 0 {
		h.kinds[t.kind()] = true
	}
	h.cpu -= t.CPUMilli
	h.mem -= t.MemMiB
	c.milli += int64(t.milli())
	c.changed = append(c.changed, i)
	c.placed = append(c.placed, placement{i, t, gpus})
}

// Allocated returns how much of the GPUs is taken, in thousandths of one.
func (c *Cluster) Allocated() int64 { return c.milli }
