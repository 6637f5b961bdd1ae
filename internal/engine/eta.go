package engine

import (
	"cmp"
	"slices"

	"github.com/gpupool/gpupool/internal/forecast"
	"github.com/gpupool/gpupool/internal/placement"
	"github.com/gpupool/gpupool/internal/work"
)

// Start is when a waiting task is expected to start. 0 = not known.
type Start struct {
	Likely work.Time // if tasks run as long as half of those like them did
	Late   work.Time // if they run as long as nine in ten did, and nobody goes past anybody
}

// Starts says when each task in line of a pool is expected to start, by playing the
// line forward with what is predicted of run times. It counts GPUs by model and looks
// neither at hosts nor at who comes later: an estimate for people. It costs a step for
// each end of a task and each kind of waiting task.
func (e *Engine) Starts(name string) map[work.TaskID]Start {
	p := e.pools[name]
	if p == nil || p.queue.Len() == 0 {
		return nil
	}
	likely := e.outlook(p, func(f forecast.Forecast) work.Time { return work.Time(f.P50) })
	likely.play(true)
	late := e.outlook(p, func(f forecast.Forecast) work.Time { return work.Time(f.P90) })
	late.play(false)
	out := make(map[work.TaskID]Start, len(likely.line))
	for i, x := range likely.line {
		s := Start{Likely: x.start, Late: late.line[i].start}
		if r := e.Reservation(e.tasks[x.id]); r != nil && r.At < never {
			s.Likely = max(s.Likely, r.At)
		}
		if s.Late != 0 {
			s.Late = max(s.Late, s.Likely)
		}
		out[x.id] = s
	}
	return out
}

// outlook is the line of a pool and the GPUs that are or come free, by model.
type outlook struct {
	now  work.Time
	free map[int]int // thousandths, by model
	ends []giving    // a heap, the soonest first
	line []expected  // in order of rank
}

// giving is GPUs of one model that come free.
type giving struct {
	at    work.Time
	model int
	milli int
}

// expected is a task in line.
type expected struct {
	id     work.TaskID
	models []int
	milli  int
	runs   work.Time // 0 = not known
	start  work.Time // 0 = not known
	never  bool      // nothing is said: it asks for no GPU, or may not be placed at present
}

func (e *Engine) outlook(p *pool, of func(forecast.Forecast) work.Time) *outlook {
	o := &outlook{now: e.now, free: map[int]int{}}
	for _, g := range e.cluster.GPUs {
		if e.cluster.Hosts[g.Host].Pool == p.Name && (e.cluster.Usable(g.Number) || g.Kept) {
			m, _ := e.cluster.Model(g.Model)
			o.free[m] += 1000 - g.Milli
		}
	}
	for _, l := range e.sortedLeases() {
		for _, part := range l.Parts {
			if part.Phase == PhaseFreed || len(part.Slices) == 0 || e.cluster.Hosts[part.Host].Pool != p.Name {
				continue
			}
			x := giving{at: e.now.Add(e.grace(l.of)), milli: part.Milli()}
			if !l.Closing {
				left := of(e.left(l.of))
				if left == 0 || l.of.Spec.External() {
					continue // it may stay for ever
				}
				x.at = e.now + left
			}
			x.model, _ = e.cluster.Model(e.cluster.GPUs[part.Slices[0].GPU].Model)
			o.push(x)
		}
	}
	o.line = e.lineUp(p, of)
	return o
}

// lineUp lists everyone in line in order of rank.
func (e *Engine) lineUp(p *pool, of func(forecast.Forecast) work.Time) []expected {
	line := make([]expected, 0, p.queue.Len())
	for w := p.queue.Walk(e.rank(p)); ; w.Pass() {
		_, item, ok := w.Next()
		if !ok {
			return line
		}
		t := e.tasks[item.ID]
		r := p.wants(t)
		x := expected{id: t.ID, runs: of(e.waitingFor(t)), milli: e.cluster.LeastMilli(p.Name, r), models: e.cluster.Candidates(p.Name, r)}
		x.never = x.milli == 0 || e.mayNot(p, t).Code != "" || !e.cluster.Possible(p.Name, r, true)
		line = append(line, x)
	}
}

// play lets tasks end and start one after another. With passing, whoever fits may go
// past those who do not.
func (o *outlook) play(passing bool) {
	const most = 50_000 // steps: beyond it, the future is not known
	waiting := make([]*expected, 0, len(o.line))
	for i := range o.line {
		if !o.line[i].never {
			waiting = append(waiting, &o.line[i])
		}
	}
	for steps := 0; len(waiting) > 0 && len(o.ends) > 0 && steps < most; {
		at := o.ends[0].at
		for len(o.ends) > 0 && o.ends[0].at == at {
			x := o.pop()
			o.free[x.model] += x.milli
		}
		stopped := false
		waiting = slices.DeleteFunc(waiting, func(x *expected) bool {
			steps++
			if stopped || !o.starts(x, max(at, o.now)) {
				stopped = !passing
				return false
			}
			return true
		})
	}
}

// starts lets a task start if it has room.
func (o *outlook) starts(x *expected, at work.Time) bool {
	for _, m := range x.models {
		if o.free[m] >= x.milli {
			o.free[m] -= x.milli
			x.start = at
			if x.runs > 0 {
				o.push(giving{at + x.runs, m, x.milli})
			}
			return true
		}
	}
	return false
}

func (o *outlook) push(x giving) {
	i, _ := slices.BinarySearchFunc(o.ends, x, func(a, b giving) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.model, b.model), cmp.Compare(a.milli, b.milli))
	})
	o.ends = slices.Insert(o.ends, i, x)
}

func (o *outlook) pop() giving {
	x := o.ends[0]
	o.ends = o.ends[1:]
	return x
}

// sooner says what would let a waiting task start now: less, or elsewhere.
func (e *Engine) sooner(t *Task) []string {
	p := t.pool
	r := p.wants(t)
	fits := func(pool string, r work.Request) bool {
		return e.cluster.Find(placement.Query{Pool: pool, Tenant: t.Spec.Tenant, Request: r}) != nil
	}
	var out []string
	for _, less := range e.lessThan(p, t.Spec.Tenant, r) {
		if fits(p.Name, less) {
			out = append(out, less.String()+" would fit now")
			break
		}
	}
	if len(r.Models) > 0 {
		all := r
		all.Models = nil
		if fits(p.Name, all) {
			out = append(out, "without naming a GPU model it would fit now")
		}
	}
	for _, o := range e.lines {
		if o != p && o.queue.Len() == 0 && fits(o.Name, o.wants(t)) {
			out = append(out, "it would fit in pool "+o.Name+" now")
		}
	}
	return out
}

// lessThan lists smaller requests of the same kind, the largest first.
func (e *Engine) lessThan(p *pool, tenant string, r work.Request) []work.Request {
	var out []work.Request
	for n := r.Count() / 2; n >= 1; n /= 2 {
		less := r
		less.Members = n
		out = append(out, less)
	}
	r.Members = 0
	for n := r.GPUs / 2; n >= 1; n /= 2 {
		less := r
		less.GPUs = n
		out = append(out, less)
	}
	least := e.cluster.LeastMilli(p.Name, r)
	if p.modeFor(tenant) != work.Dynamic || r.HostOnly() {
		return out
	}
	for _, m := range e.cluster.Candidates(p.Name, r) {
		model := e.cluster.ModelAt(m)
		var smaller []work.Request
		for _, profile := range model.Profiles {
			if model.Milli(profile) < min(least, 1000) && profile.Attr == "" {
				smaller = append(smaller, work.Request{Profile: profile.Name, Models: r.Models, CPUMilli: r.CPUMilli, MemMiB: r.MemMiB})
			}
		}
		slices.SortStableFunc(smaller, func(a, b work.Request) int {
			return cmp.Compare(e.cluster.LeastMilli(p.Name, b), e.cluster.LeastMilli(p.Name, a))
		})
		out = append(out, smaller...)
	}
	return out
}
