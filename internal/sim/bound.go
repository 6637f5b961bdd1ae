package sim

import (
	"cmp"
	"math"
	"slices"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/trace"
)

// demandRow is a task as the lower bound sees it.
type demandRow struct {
	submit, end float64 // seconds; end as if it never waited
	milli       float64 // what it asks for, thousandths of GPUs
}

// lowerBound is a number of GPUs below which no scheduler can finish the trace
// with a mean wait of at most mean and a 99th percentile of at most p99 seconds,
// if each task runs unbroken for its duration on what it asks for.
//
// It looks at instants. At time t the tasks that were submitted and could not have
// ended yet run, except those that still wait: and a task of those waits longer
// than t - submit. All waits together are at most n × mean, and at most n/100 tasks
// wait longer than p99. So the GPUs that waiting tasks can spare at t are at most
// the fractional knapsack of demand by wait with that budget, and at most the
// demand of all tasks younger than p99 and of the n/100 largest older ones. Ends
// are the instants that matter: between two of them demand only grows and budgets
// only shrink. The same argument over windows of time, where a second of wait spares
// a task's GPUs for a second, bounds long overloads. Both are relaxations, so the
// bound is true but need not be reachable.
func lowerBound(t *trace.Trace, hosts []gpu.HostInfo, mean, p99 float64) int {
	rows := demandRows(t, hosts)
	milli := max(instantBound(rows, mean*float64(len(rows)), p99), windowBound(rows, mean*float64(len(rows))))
	for _, r := range rows {
		milli = max(milli, r.milli)
	}
	return int(math.Ceil(milli/1000 - 1e-9))
}

func demandRows(t *trace.Trace, hosts []gpu.HostInfo) []demandRow {
	d, err := newDemands(t, hosts, nil)
	if err != nil {
		return nil
	}
	var memMiB int64
	if models, _ := modelsOf(hosts); len(models) > 0 {
		memMiB = models[0].MemoryMiB
	}
	rows := make([]demandRow, 0, len(t.Tasks))
	for i := range t.Tasks {
		x := &t.Tasks[i]
		rows = append(rows, demandRow{x.Submit.Seconds(), (x.Submit + x.Duration).Seconds(), float64(asked(d.request(x), memMiB))})
	}
	return rows
}

// instant is a moment just before a task could end at the earliest.
type instant struct{ at, demand float64 }

// instantBound looks at the instants with most demand first, and stops where the
// demand itself is no more than the bound found.
func instantBound(rows []demandRow, budget, p99 float64) float64 {
	best := 0.0
	for _, in := range instants(rows) {
		if in.demand <= best {
			break
		}
		var active []demandRow
		for _, r := range rows {
			if r.submit < in.at && r.end >= in.at {
				active = append(active, r)
			}
		}
		spared := min(sparedByMean(active, in.at, budget), sparedByTail(active, in.at, p99, len(rows)/100))
		best = max(best, in.demand-spared)
	}
	return best
}

// instants returns the demand just before each end, most demand first. When there
// are many, only the greatest matter and the rest is cut: fewer instants give a
// lower bound that is still true.
func instants(rows []demandRow) []instant {
	const most = 4000
	starts, ends := slices.Clone(rows), slices.Clone(rows)
	slices.SortFunc(starts, func(a, b demandRow) int { return cmp.Compare(a.submit, b.submit) })
	slices.SortFunc(ends, func(a, b demandRow) int { return cmp.Compare(a.end, b.end) })
	var out []instant
	demand, next := 0.0, 0
	for i, e := range ends {
		for next < len(starts) && starts[next].submit < e.end {
			demand += starts[next].milli
			next++
		}
		if i == 0 || ends[i-1].end != e.end {
			out = append(out, instant{e.end, demand})
		}
		demand -= e.milli
	}
	slices.SortFunc(out, func(a, b instant) int {
		return cmp.Or(cmp.Compare(b.demand, a.demand), cmp.Compare(a.at, b.at))
	})
	return out[:min(len(out), most)]
}

// sparedByMean is the most demand that may wait at an instant for a budget of
// seconds of wait.
func sparedByMean(active []demandRow, at, budget float64) float64 {
	slices.SortFunc(active, func(a, b demandRow) int { // demand for a second of wait, most first
		return cmp.Compare(b.milli*(at-a.submit), a.milli*(at-b.submit))
	})
	spared := 0.0
	for _, r := range active {
		cost := at - r.submit
		if cost > budget {
			return spared + r.milli*budget/cost
		}
		budget -= cost
		spared += r.milli
	}
	return spared
}

// sparedByTail is the most demand that may wait when at most a number of tasks
// may wait longer than p99.
func sparedByTail(active []demandRow, at, p99 float64, late int) float64 {
	spared := 0.0
	var old []float64
	for _, r := range active {
		if at-r.submit <= p99 { // it may begin just then
			spared += r.milli
		} else {
			old = append(old, r.milli)
		}
	}
	slices.SortFunc(old, func(a, b float64) int { return cmp.Compare(b, a) })
	for _, m := range old[:min(late, len(old))] {
		spared += m
	}
	return spared
}

// windowBound looks at windows of an hour and more: the work that falls into one if
// nothing waits, less what waiting can push out of it, must fit.
func windowBound(rows []demandRow, budget float64) float64 {
	from, to := math.Inf(1), 0.0
	for _, r := range rows {
		from, to = min(from, r.submit), max(to, r.end)
	}
	bySize := slices.Clone(rows)
	slices.SortFunc(bySize, func(a, b demandRow) int { return cmp.Compare(b.milli, a.milli) })
	best := 0.0
	for length := to - from; length >= 3600; length /= 2 {
		for a := from; a < to; a += length / 2 {
			b := a + length
			inside, pushed, left := 0.0, 0.0, budget
			for _, r := range bySize {
				overlap := min(r.end, b) - max(r.submit, a)
				if overlap <= 0 {
					continue
				}
				inside += r.milli * overlap
				out := min(overlap, left) // a second of wait takes at most a second out
				left -= out
				pushed += r.milli * out
			}
			best = max(best, (inside-pushed)/length)
		}
		if (to-from)/length > 128 {
			break
		}
	}
	return best
}
