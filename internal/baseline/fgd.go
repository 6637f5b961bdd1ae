package baseline

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// FGD is Fragmentation Gradient Descent (Weng et al., "Beware of Fragmentation", USENIX ATC '23): it takes the host
// whose GPUs become least fragmented. The fragmentation of a host is what the typical tasks cannot use of its free
// GPUs, in thousandths, averaged over them by how often each occurs:
//
//	F = Σ over typical tasks of share · (it fits ? Σ free GPUs with less than it asks of each : Σ all free GPUs)
//
// where fitting means its CPU, the number of GPUs with room and their model, not its memory. To a task of CPU only, and
// to one that wants other models, all free GPUs are lost. Typical are the most frequent tasks that make up 95 % of the
// workload. The score of a host is
//
//	100 / (1 + e^−((F before − F after)/1000))
//
// rounded down. A share gets the GPU of the host with the highest such score, of equals the first.
const FGD Rule = "fgd"

// typicalPercent is how much of the workload the typical tasks make up at least.
const typicalPercent = 95

type fgd struct {
	lost   map[string]*lossTable // by the host's GPU model
	weight float64               // tasks of the workload that the typical ones stand for
	sorted []int                 // scratch: a host's free GPUs, least first
	after  []int                 // scratch: the same with the task placed
}

func newFGD(hosts []Host, mix []Task) *fgd {
	tasks := typical(mix)
	f := &fgd{lost: map[string]*lossTable{}}
	for _, t := range tasks {
		f.weight += float64(t.weight)
	}
	for _, h := range hosts {
		if f.lost[h.Model] == nil {
			f.lost[h.Model] = newLossTable(h.Model, tasks)
		}
	}
	return f
}

func (f *fgd) score(h *host, t *Task) int {
	score, _ := f.consider(h, t)
	return score
}

func (f *fgd) gpu(h *host, t *Task) int {
	_, at := f.consider(h, t)
	return at
}

// consider returns the host's score and, for a share, the GPU that gives it.
func (f *fgd) consider(h *host, t *Task) (score, at int) {
	lost := f.lost[h.Model]
	f.sorted = append(f.sorted[:0], h.free...)
	slices.Sort(f.sorted)
	before := lost.of(h.cpu, f.sorted)
	row := lost.row(h.cpu - t.CPUMilli)
	if !t.share() {
		// The idle GPUs are the last; once taken they have nothing free and so come first.
		f.after = f.after[:0]
		for range t.GPUs {
			f.after = append(f.after, 0)
		}
		f.after = append(f.after, f.sorted[:len(f.sorted)-t.GPUs]...)
		return f.gradient(before - row.of(f.after)), -1
	}
	score, at = noFit, -1
	for g, free := range h.free {
		if free < t.Milli || slices.Contains(h.free[:g], free) { // an equal GPU scores the same
			continue
		}
		f.after = lower(f.after[:0], f.sorted, free, free-t.Milli)
		if s := f.gradient(before - row.of(f.after)); s > score {
			score, at = s, g
		}
	}
	return score, at
}

// gradient turns a decrease of what is lost into a score.
func (f *fgd) gradient(decrease int64) int {
	if f.weight == 0 {
		return 50
	}
	return int(100 / (1 + math.Exp(-float64(decrease)/f.weight/milliGPU)))
}

// lower appends to dst an ascending list with one value replaced by a smaller one, in order.
func lower(dst, list []int, from, to int) []int {
	i, _ := slices.BinarySearch(list, to)
	j, _ := slices.BinarySearch(list, from)
	dst = append(append(dst, list[:i]...), to)
	return append(append(dst, list[i:j]...), list[j+1:]...)
}

// typicalTask is a distinct task and how often it occurs. Memory does not tell tasks apart here.
type typicalTask struct {
	Task
	models string
	weight int64
}

// typical returns the most frequent tasks that make up typicalPercent of the mix.
func typical(mix []Task) []typicalTask {
	found := map[classKey]int{}
	var tasks []typicalTask
	for _, t := range mix {
		key := classKey{cpu: t.CPUMilli, gpus: t.GPUs}
		if t.GPUs > 0 {
			key.milli, key.models = t.Milli, strings.Join(t.Models, "|")
		}
		i, ok := found[key]
		if !ok {
			i = len(tasks)
			found[key] = i
			tasks = append(tasks, typicalTask{Task: t, models: key.models})
			tasks[i].Milli = key.milli
		}
		tasks[i].weight++
	}
	// Of tasks equally frequent the larger is the more typical: the published order.
	slices.SortFunc(tasks, func(a, b typicalTask) int {
		return -cmp.Or(cmp.Compare(a.weight, b.weight), cmp.Compare(a.CPUMilli, b.CPUMilli),
			cmp.Compare(a.Milli, b.Milli), cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.models, b.models))
	})
	n, sum := 0, int64(0)
	for ; n < len(tasks) && sum*100 < typicalPercent*int64(len(mix)); n++ {
		sum += tasks[n].weight
	}
	return tasks[:n]
}

// lossTable tells how much of the free GPUs of one model the typical tasks cannot use. Tasks that ask the same of GPUs
// are one entry, and there is a row for each amount of CPU from which on more tasks fit: so a host is weighed in some
// tens of steps instead of one per task and GPU. Weights are whole, so that no change is exactly 0, without rounding.
type lossTable struct {
	cpus []int64 // ascending; rows[i] holds below cpus[i], the last row from the last on
	rows []lossRow
}

type lossRow struct {
	never int64 // weight of the tasks that fit on no host with this CPU and model
	wants []want
}

// want is what some tasks ask of GPUs.
type want struct {
	milli, gpus int
	weight      int64
}

func newLossTable(model string, tasks []typicalTask) *lossTable {
	l := &lossTable{}
	for _, t := range tasks {
		l.cpus = append(l.cpus, t.CPUMilli)
	}
	slices.Sort(l.cpus)
	l.cpus = slices.Compact(l.cpus)
	for i := range len(l.cpus) + 1 {
		var row lossRow
		for _, t := range tasks {
			if t.GPUs > 0 && t.accepts(model) && i > 0 && t.CPUMilli <= l.cpus[i-1] {
				row.add(want{t.Milli, t.GPUs, t.weight})
			} else {
				row.never += t.weight
			}
		}
		slices.SortFunc(row.wants, func(a, b want) int { return cmp.Compare(a.milli, b.milli) })
		l.rows = append(l.rows, row)
	}
	return l
}

func (r *lossRow) add(w want) {
	for i := range r.wants {
		if o := &r.wants[i]; o.milli == w.milli && o.gpus == w.gpus {
			o.weight += w.weight
			return
		}
	}
	r.wants = append(r.wants, w)
}

// row returns the row for an amount of free CPU.
func (l *lossTable) row(cpu int64) *lossRow {
	i, found := slices.BinarySearch(l.cpus, cpu)
	if found {
		i++
	}
	return &l.rows[i]
}

// of returns what is lost of free GPUs, given least first, in thousandths times the weight of the typical tasks.
func (l *lossTable) of(cpu int64, free []int) int64 { return l.row(cpu).of(free) }

func (r *lossRow) of(free []int) int64 {
	total := 0
	for _, f := range free {
		total += f
	}
	sum := r.never * int64(total)
	i, small := 0, 0 // GPUs with too little for this want, and what is free on them
	for _, w := range r.wants {
		for i < len(free) && free[i] < w.milli {
			small += free[i]
			i++
		}
		if len(free)-i >= w.gpus {
			sum += w.weight * int64(small)
		} else {
			sum += w.weight * int64(total)
		}
	}
	return sum
}
