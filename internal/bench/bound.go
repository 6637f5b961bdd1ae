package bench

import (
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/gpupool/gpupool/internal/baseline"
)

const (
	boundGPU      = 1000     // thousandths of one GPU
	boundWork     = 25e6     // steps of the knapsack that one search for prices may take, about 50 ms
	boundTries    = 600      // prices that one search tries at most
	boundPatience = 250      // and those it tries in a row that lower the bound by less than 1e-5 of it
	boundSlop     = 1 + 1e-9 // covers what rounding takes off, which is some 1e-12 of the bound
)

// packingBound returns a percentage of the hosts' GPUs, 0 to 100, that no placement rule can have allocated after these
// tasks were offered in this order, where nothing ends and a rule decides only where: it must place whatever fits on
// some host, and skips the rest. It is what a rule could reach that knows the future, were it also allowed
//
//   - to move CPU and memory between hosts that are alike, and to run a task of k GPUs as k tasks of one GPU and a k-th
//     of its CPU and memory, on hosts of k GPUs or more;
//   - to skip any task but those that come before one of its kind can have been refused, whatever the rule (see force);
//   - to place fractions of tasks, and no CPU-only ones.
//
// That is a linear program over the patterns that may fill a GPU, as in cutting stock (Gilmore and Gomory, "A linear
// programming approach to the cutting-stock problem", 1961). It is bounded by its Lagrangian dual (Fisher, "The
// Lagrangian relaxation method for solving integer programming problems", 1981): any prices give a true bound, so that
// a poor search for them makes it loose and never wrong. It is deterministic.
//
// The search has a fixed budget; all else costs a pass over the tasks per distinct size of task and shape of host.
func packingBound(hosts []baseline.Host, tasks []baseline.Task) float64 {
	p := newBoundProblem(hosts, tasks)
	p.force()
	return p.percent()
}

// boundProblem is the linear program.
type boundProblem struct {
	total  float64         // thousandths of all GPUs
	shapes []boundShape    // of hosts with GPUs
	tasks  []baseline.Task // as offered
	kindOf []int           // of each task; -1 = CPU only, or fits nowhere
	kinds  []boundKind     // of tasks with GPUs that fit on an empty host
	grid   int             // thousandths of a GPU that every size is a multiple of
	slots  int             // size of a GPU, rounded down to grid units
	sizes  []int           // those of the kinds, each once, in grid units, ascending
}

// boundShape is a number of hosts that are alike.
type boundShape struct {
	baseline.Host
	hosts float64
	fits  [][]int // kinds that an empty one has room for, by the index of their size
}

// boundKind is a number of tasks that are alike. An item of theirs is what they take of one GPU, and with it.
type boundKind struct {
	baseline.Task
	size            int     // of an item, in grid units
	milli, cpu, mem float64 // of an item: thousandths of a GPU and of a core, MiB
	most, must      float64 // items offered, items that every rule places
}

// newBoundProblem counts what is alike. A host or task that is not as baseline says holds nothing or fits nowhere.
func newBoundProblem(hosts []baseline.Host, tasks []baseline.Task) *boundProblem {
	p := &boundProblem{tasks: tasks, kindOf: make([]int, len(tasks))}
	known := map[baseline.Host]int{}
	for _, h := range hosts {
		p.total += boundGPU * float64(max(0, h.GPUs))
		s, ok := known[h]
		if !ok {
			s = len(p.shapes)
			known[h] = s
			p.shapes = append(p.shapes, boundShape{Host: h})
		}
		p.shapes[s].hosts++
	}
	p.shapes = slices.DeleteFunc(p.shapes, func(s boundShape) bool { return s.GPUs < 1 || s.CPUMilli < 0 || s.MemMiB < 0 })
	p.addKinds()
	for i := range p.kinds {
		p.kinds[i].size = p.kinds[i].Milli / p.grid
		if z, ok := slices.BinarySearch(p.sizes, p.kinds[i].size); !ok {
			p.sizes = slices.Insert(p.sizes, z, p.kinds[i].size)
		}
	}
	for s := range p.shapes {
		fits := make([][]int, len(p.sizes))
		for i := range p.kinds {
			if z := p.sizeOf(i); p.shapes[s].takes(&p.kinds[i].Task) {
				fits[z] = append(fits[z], i)
			}
		}
		p.shapes[s].fits = fits
	}
	return p
}

// addKinds fills in kindOf, kinds, grid and slots.
func (p *boundProblem) addKinds() {
	type key struct {
		cpu, mem, gpus, milli int64
		models                string
	}
	known := map[key]int{}
	for j, t := range p.tasks {
		k := key{t.CPUMilli, t.MemMiB, int64(t.GPUs), int64(t.Milli), strings.Join(t.Models, "\x00")}
		i, ok := known[k]
		if !ok {
			if i = -1; slices.ContainsFunc(p.shapes, func(s boundShape) bool { return s.takes(&t) }) {
				i = len(p.kinds)
				n := float64(t.GPUs)
				p.kinds = append(p.kinds, boundKind{Task: t, milli: float64(t.Milli), cpu: float64(t.CPUMilli) / n, mem: float64(t.MemMiB) / n})
				for rest := t.Milli; rest > 0; { // Euclid's greatest common divisor
					p.grid, rest = rest, p.grid%rest
				}
			}
			known[k] = i
		}
		if p.kindOf[j] = i; i >= 0 {
			p.kinds[i].most += float64(t.GPUs)
		}
	}
	p.slots = boundGPU / max(1, p.grid)
}

// takes tells whether a task has GPUs and an empty host has room for it.
func (s *boundShape) takes(t *baseline.Task) bool {
	return t.GPUs > 0 && t.GPUs <= s.GPUs && t.Milli > 0 && t.Milli <= boundGPU && (t.GPUs == 1 || t.Milli == boundGPU) &&
		t.CPUMilli >= 0 && t.CPUMilli <= s.CPUMilli && t.MemMiB >= 0 && t.MemMiB <= s.MemMiB &&
		(len(t.Models) == 0 || slices.Contains(t.Models, s.Model))
}

// sizeOf returns the index of the size of a kind.
func (p *boundProblem) sizeOf(kind int) int {
	z, _ := slices.BinarySearch(p.sizes, p.kinds[kind].size)
	return z
}

// force works out how many tasks of each kind every rule places, as none can have been refused yet. A task is refused
// when every host that might take it is short of GPUs, of CPU or of memory. Let such a host cost
//
//	min(GPUs that would be full, a·CPU that would be taken, b·memory that would be taken)
//
// and a task pay max(GPUs it helps to fill, a·CPU, b·memory). Whatever a host is short of, the tasks on it have paid
// its cost. So as long as all tasks offered before pay less than all those hosts cost, one of them has room, for any
// a and b. Those tried make all that a host of some shape has worth the same.
//
// A GPU is full when less is left than the task asks for. The part that another task fills of it is its size over the
// least that makes it full, and 1 at most.
func (p *boundProblem) force() {
	until := make([]int, len(p.kinds)) // how many tasks are offered before one of the kind can be refused
	paid := make([]float64, len(p.tasks))
	for z, size := range p.sizes {
		full := float64(p.grid * ((boundGPU-size*p.grid)/p.grid + 1))
		for _, s := range p.shapes {
			a, b := float64(s.GPUs)/float64(max(1, s.CPUMilli)), float64(s.GPUs)/float64(max(1, s.MemMiB))
			sum := 0.0
			for j := range p.tasks {
				t := &p.tasks[j]
				paid[j] = sum
				sum += max(a*float64(t.CPUMilli), b*float64(t.MemMiB), float64(t.GPUs)*min(1, float64(t.Milli)/full), 0)
			}
			for i, cost := range p.costs(z, a, b) {
				until[i] = max(until[i], sort.SearchFloat64s(paid, cost/boundSlop))
			}
		}
	}
	for j, i := range p.kindOf {
		if i >= 0 && j < until[i] {
			p.kinds[i].must += float64(p.kinds[i].GPUs)
		}
	}
}

// costs returns what the hosts cost that must all refuse a task of a kind, for all kinds of size z; 0 for other kinds.
func (p *boundProblem) costs(z int, a, b float64) []float64 {
	costs := make([]float64, len(p.kinds))
	for _, s := range p.shapes {
		for _, i := range s.fits[z] {
			k := &p.kinds[i]
			full := float64(s.GPUs - k.GPUs + 1)
			costs[i] += s.hosts * min(full, a*float64(s.CPUMilli-k.CPUMilli), b*float64(s.MemMiB-k.MemMiB))
		}
	}
	return costs
}

// percent searches for the prices of the least bound: first with one price for all kinds of a size, which is as good
// wherever CPU, memory and models are not scarce, then from there with a price for each kind.
func (p *boundProblem) percent() float64 {
	low := 0.0 // what is offered is a bound, too
	for _, k := range p.kinds {
		low += k.most * k.milli
	}
	if low == 0 {
		return 0 // or there is no GPU
	}
	d := newBoundDual(p)
	tries := min(boundTries, boundWork/(len(p.shapes)*(p.slots*len(p.sizes)+len(p.kinds))))
	prices, bySize, each := make([]float64, len(d.scale)), make([]int, len(d.scale)), make([]int, len(d.scale))
	for j := range prices {
		if each[j], bySize[j] = j, len(p.sizes)+j-len(p.kinds); j < len(p.kinds) {
			bySize[j] = p.sizeOf(j)
		}
	}
	for _, follows := range [][]int{bySize, each} {
		x := make([]float64, slices.Max(follows)+1)
		for j, v := range follows {
			x[v] = prices[j]
		}
		bound, x := boundDescend(d.tied(follows), x, tries)
		for j, v := range follows {
			prices[j] = x[v]
		}
		low = min(low, bound)
	}
	return min(100, low/p.total*100*boundSlop)
}

// boundDual is the Lagrangian dual. It has a price for every kind with GPUs, in thousandths of a GPU per item, and then
// two for every shape, in thousandths of a GPU per thousandth of a core and per MiB.
type boundDual struct {
	*boundProblem
	scale         []float64 // of each price: what the search takes for 1
	prices, slope []float64 // the prices, and how much the bound changes with each
	best          []int     // by size: the kind whose items gain most
	worth         []float64 // by room in grid units: the most that a pattern gains
	last          []int     // by room: index of a size in that pattern, -1 = nothing needs all of the room
}

func newBoundDual(p *boundProblem) *boundDual {
	n := len(p.kinds) + 2*len(p.shapes)
	d := &boundDual{boundProblem: p, scale: slices.Repeat([]float64{boundGPU}, len(p.kinds)), prices: make([]float64, n),
		slope: make([]float64, n), best: make([]int, len(p.sizes)), worth: make([]float64, p.slots+1), last: make([]int, p.slots+1)}
	for _, s := range p.shapes {
		gpus := boundGPU * float64(s.GPUs)
		d.scale = append(d.scale, gpus/float64(max(1, s.CPUMilli)), gpus/float64(max(1, s.MemMiB)))
	}
	return d
}

// tied returns the bound as a function of scaled prices, of which each price follows one.
func (d *boundDual) tied(follows []int) func(x, slope []float64) float64 {
	return func(x, slope []float64) float64 {
		for j, v := range follows {
			d.prices[j] = x[v] * d.scale[j]
		}
		bound := d.bound()
		clear(slope)
		for j, v := range follows {
			slope[v] += d.slope[j] * d.scale[j]
		}
		return bound
	}
}

// bound returns a bound on what can be allocated, in thousandths of a GPU, and fills in slope. It is
//
//	Σ over kinds of price·(most, or must if the price is below 0)
//	+ Σ over shapes of hosts·(price·what a host has, or 0 if the price is below 0, for CPU and memory)
//	+ Σ over shapes of hosts·GPUs·the most that one GPU's pattern gains
//
// where an item gains its milli less the prices of its kind and of the CPU and memory it takes. The first two sums are
// no less than what any placement pays in these prices, and the third no less than what it is worth beyond that.
func (d *boundDual) bound() float64 {
	bound := 0.0
	for i, k := range d.kinds {
		if d.slope[i] = k.most; d.prices[i] < 0 {
			d.slope[i] = k.must
		}
		bound += d.prices[i] * d.slope[i]
	}
	for s := range d.shapes {
		shape := &d.shapes[s]
		at := len(d.kinds) + 2*s
		for r, has := range []int64{shape.CPUMilli, shape.MemMiB} {
			if d.slope[at+r] = shape.hosts * float64(has); d.prices[at+r] < 0 {
				d.slope[at+r] = 0
			}
			bound += d.prices[at+r] * d.slope[at+r]
		}
		gpus := shape.hosts * float64(shape.GPUs)
		bound += gpus * d.pattern(shape, d.prices[at], d.prices[at+1])
		for room := d.slots; room > 0; {
			z := d.last[room]
			if z < 0 {
				room--
				continue
			}
			k := &d.kinds[d.best[z]]
			d.slope[d.best[z]] -= gpus
			d.slope[at] -= gpus * k.cpu
			d.slope[at+1] -= gpus * k.mem
			room -= k.size
		}
	}
	return bound
}

// pattern returns the most that one GPU of a shape gains: a knapsack, of any number of items of each kind.
func (d *boundDual) pattern(shape *boundShape, cpu, mem float64) float64 {
	for room := range d.worth {
		d.worth[room], d.last[room] = 0, -1
	}
	most := 0.0
	for z, fits := range shape.fits {
		gain := most
		for _, i := range fits {
			k := &d.kinds[i]
			if g := k.milli - d.prices[i] - cpu*k.cpu - mem*k.mem; g > gain {
				gain, d.best[z] = g, i
			}
		}
		if gain == most {
			continue // nothing, or a smaller size gains as much
		}
		most = gain
		size := d.sizes[z]
		for rest, room := 0, size; room <= d.slots; rest, room = rest+1, room+1 {
			if with := d.worth[rest] + gain; with > d.worth[room] {
				d.worth[room], d.last[room] = with, z
			}
		}
	}
	return d.worth[d.slots]
}

// boundDescend looks for the least value of a convex function, and returns it and where it is. It is Shor's r-algorithm
// ("Minimization Methods for Non-Differentiable Functions", 1985): steps against the slope, in a space that is squeezed
// in the direction of the difference of every two slopes in a row, so that the way along a narrow valley comes out.
func boundDescend(f func(x, slope []float64) float64, x []float64, tries int) (low float64, at []float64) {
	const squeeze = 1.0/3 - 1 // a third is left of a length
	stride, idle := 0.1, 0    // idle: tries in a row that brought too little
	slope, before, way := make([]float64, len(x)), make([]float64, len(x)), make([]float64, len(x))
	var squeezed [][]float64 // directions of length 1
	low, at = f(x, slope), slices.Clone(x)
	for tries > 0 && idle < boundPatience {
		copy(way, slope)
		for _, r := range squeezed {
			boundAdd(way, squeeze*boundDot(way, r), r)
		}
		length := math.Sqrt(boundDot(way, way))
		if length == 0 {
			break // nothing is lower
		}
		for _, r := range slices.Backward(squeezed) {
			boundAdd(way, squeeze*boundDot(way, r), r)
		}
		copy(before, slope)
		steps := 0
		for downhill := true; downhill && tries > 0; tries-- {
			idle++
			if steps++; steps%3 == 0 {
				stride *= 1.1
			}
			boundAdd(x, -stride/length, way)
			if value := f(x, slope); value < low {
				if value < low*(1-1e-5) {
					idle = 0
				}
				low = value
				copy(at, x)
			}
			downhill = boundDot(way, slope) > 0
		}
		if steps == 1 {
			stride *= 0.95
		}
		r := slices.Clone(slope)
		boundAdd(r, -1, before)
		for _, q := range squeezed {
			boundAdd(r, squeeze*boundDot(r, q), q)
		}
		if length = math.Sqrt(boundDot(r, r)); length > 0 {
			boundAdd(r, 1/length-1, r)
			squeezed = append(squeezed, r)
		}
	}
	return low, at
}

func boundDot(a, b []float64) (sum float64) {
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}

// boundAdd adds f times b to a.
func boundAdd(a []float64, f float64, b []float64) {
	for i, v := range b {
		a[i] += f * v
	}
}
