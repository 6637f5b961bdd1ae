package engine

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/gpupool/gpupool/internal/elastic"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/placement"
	"github.com/gpupool/gpupool/internal/work"
)

// grow gives a running task more of what nobody waits for, if it can make use of it.
func (e *Engine) grow(t *Task) {
	if t.Plan != nil || !e.movable(t) {
		return
	}
	if s, ok := t.onlySlice(); ok && s.Mode == gpu.ModeShared {
		e.growInPlace(t, s)
		return
	}
	if !e.mayRestart(t) || !e.larger(t) || !e.fitsLarger(t) {
		return
	}
	price, _ := e.restartPrice(t)
	if more := e.most(t) - t.lease.Parts[0].Milli(); !elastic.Worth(e.remaining(t), more*len(t.lease.Parts), price) {
		return
	}
	e.announce(t, Plan{Move: work.MoveRestart, Reason: work.Reasonf(work.Resized, "it can make use of more GPUs, and nobody waits for those that are free")})
}

// larger reports whether a task has less than it could make use of.
func (e *Engine) larger(t *Task) bool {
	held := t.lease.Parts[0].Milli()
	if t.Spec.Request.GPUs > 0 && held >= 1000 {
		return held < e.most(t)
	}
	return t.Size != nil && t.Use.Kind == elastic.Hot && held < e.most(t) // it was made smaller, and needs more
}

// most is what a member of a task can make use of, in thousandths.
func (e *Engine) most(t *Task) int { return cmp.Or(t.Spec.MaxMilli, e.askedMilli(t)) }

// remaining is how long a task will still run for: as predicted, else for as long as it
// has run so far.
func (e *Engine) remaining(t *Task) time.Duration {
	if left := e.left(t); left.P50 > 0 {
		return left.P50
	}
	return t.Ran + e.now.Sub(t.Started)
}

// fitsLarger reports whether a task would find a larger place than it has now.
func (e *Engine) fitsLarger(t *Task) bool {
	try := e.cluster.Try()
	defer try.Undo()
	for i, p := range t.lease.Parts {
		try.Free(t.lease.owner(i), p.Part)
	}
	r := t.Spec.Request
	if r.GPUs > 0 { // one GPU more than now, at least
		r.GPUs = max(r.GPUs, t.lease.Parts[0].Milli()/1000+1)
	}
	if !e.mayHave(t, len(t.lease.Parts)*(max(e.askedMilli(t), 1000*r.GPUs)-t.lease.Parts[0].Milli())) {
		return false
	}
	return e.cluster.Find(placement.Query{Pool: t.pool.Name, Tenant: t.Spec.Tenant, Request: t.pool.grants(t.Spec, r)}) != nil
}

// mayHave reports whether a running task may have so much more.
func (e *Engine) mayHave(t *Task, milli int) bool {
	return !e.overLimit(t, milli) && !e.overReserve(t.pool, t, milli)
}

// growInPlace gives a hot task more of the GPU that it shares: all of it, if it was whole
// and nobody is left beside it.
func (e *Engine) growInPlace(t *Task, s work.Slice) {
	g := e.cluster.GPUs[s.GPU]
	if t.Use.Kind != elastic.Hot || g.Kept || g.Health.Out() {
		return
	}
	why := work.Reasonf(work.Resized, "it uses over %s of its share, and there is room on its GPU", percent(elastic.MarksOf(t.pool.Elastic).High))
	if t.Spec.Request.GPUs == 1 && e.alone(t) && e.mayHave(t, 1000-s.Milli) {
		s.Mode, s.Share, s.Milli = gpu.ModeWhole, nil, 1000
		e.resize(t, []work.Slice{s}, why)
		return
	}
	size := min(e.most(t), 999, s.Milli+1000-g.Milli)
	if to, ok := e.shareOf(t, size); ok && size > s.Milli && e.mayHave(t, size-s.Milli) {
		e.resize(t, to, why)
	}
}

// findMost finds a place for a task: for as many GPUs as it can make use of while nobody
// else waits, else for those that it asked for.
func (e *Engine) findMost(p *pool, t *Task, q placement.Query) []work.Part {
	if most := t.Spec.MaxMilli / 1000; most > q.Request.GPUs && q.Request.GPUs > 0 && t.SizedBy == "" && p.queue.Len() <= 1 && len(p.kept) == 0 && p.modeFor(t.Spec.Tenant) == work.Dynamic {
		for n := most; n > q.Request.GPUs; n-- {
			more := q
			more.Request.GPUs = n
			if parts := e.find(t, more); parts != nil && !e.overLimit(t, milliOf(parts)) && !e.overReserve(p, t, milliOf(parts)) {
				return parts
			}
		}
	}
	return e.find(t, q)
}

func percent(x float64) string { return strconv.FormatFloat(100*x, 'f', 0, 64) + "%" }

// partedPairs lists the kinds of work that do not share a GPU.
func (e *Engine) partedPairs() []Parted {
	var out []Parted
	for _, f := range e.parted { // order: sorted below
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b Parted) int {
		return cmp.Or(cmp.Compare(a.Pair[0], b.Pair[0]), cmp.Compare(a.Pair[1], b.Pair[1]))
	})
	return out
}
