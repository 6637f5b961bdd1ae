package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// Tasks that share a GPU may slow each other down. What shows that from outside: the
// whole GPU is busy, and a task computes clearly less than it did while it was alone.
// Then its kind of work and its neighbour's do not share a GPU any more for a week, and
// whoever may be restarted is moved.

// Bounds of what counts as slowed down.
const (
	slowed    = 1.10               // the published bound on the slowdown of a task
	busyGPU   = 900                // thousandths of a GPU that are in use
	slowSpan  = time.Minute        // for so long
	apartSpan = 7 * 24 * time.Hour // pairs are remembered
)

// neighbours is what is known of a task that shares its GPU. It is measured, and forgotten
// in a restart of the server.
type neighbours struct {
	alone float64 // thousandths of the GPU that it used while it was alone; 0 = not known
	with  []work.TaskID
	since work.Time // with them
}

// watchNeighbours looks at whether a task that was measured is slowed down by another.
func (e *Engine) watchNeighbours(t *Task) {
	s, ok := t.onlySlice()
	if !ok || s.Mode == gpu.ModeMIG {
		return
	}
	x := &t.neighbours
	others := e.heldBeside(t)
	if len(others) == 0 {
		if used, took := t.window.Quantile(0.5, slowSpan); took >= slowSpan {
			x.alone = used * float64(s.Milli)
		}
		x.with, x.since = nil, 0
		return
	}
	var ids []work.TaskID
	for _, o := range others {
		ids = append(ids, o.ID)
	}
	if !slices.Equal(ids, x.with) {
		x.with, x.since = ids, e.now
	}
	if x.alone == 0 || e.now.Sub(x.since) < slowSpan || t.Plan != nil || !e.movable(t) {
		return
	}
	now := e.usedOf(t)
	all := now
	worst := others[0]
	for _, o := range others {
		all += e.usedOf(o)
		if e.usedOf(o) > e.usedOf(worst) {
			worst = o
		}
	}
	if all >= busyGPU && now > 0 && x.alone > slowed*now {
		e.setApart(t, worst, x.alone/now)
	}
}

// usedOf is what a task used of its GPU lately, in thousandths.
func (e *Engine) usedOf(t *Task) float64 {
	s, ok := t.onlySlice()
	if !ok {
		return 0
	}
	used, _ := t.window.Quantile(0.5, slowSpan)
	return used * float64(s.Milli)
}

// setApart remembers that two tasks do not go together, and announces that one is moved.
func (e *Engine) setApart(t, other *Task, by float64) {
	pair := pairOf(t, other)
	if f, known := e.parted[pair]; !known || f.Until <= e.now {
		e.emit(Parted{pair, e.now.Add(apartSpan), "beside " + pairName(other) + " " + pairName(t) + " computed " + percent(1/by) + " of what it did alone, on a GPU that was busy all the time"})
	}
	movers := slices.DeleteFunc([]*Task{t, other}, func(v *Task) bool { return v.Plan != nil || !e.movable(v) || !e.mayRestart(v) })
	if len(movers) == 0 || t.Plan != nil || other.Plan != nil {
		return
	}
	v := slices.MinFunc(movers, func(a, b *Task) int {
		x, _ := e.restartPrice(a)
		y, _ := e.restartPrice(b)
		return cmp.Compare(x, y)
	})
	e.announce(v, Plan{Move: work.MoveAway, To: v.Size, Reason: work.Reasonf(work.Moved, "it shares a GPU with another of its tenant, and they slow each other down")})
}

// pairName is the kind of work of a task: what it is called, else what it runs.
func pairName(t *Task) string {
	name := t.Spec.Name
	if name == "" && len(t.Spec.Command) > 0 {
		name = t.Spec.Command[0]
	}
	return t.Spec.Tenant + "/" + name
}

func pairOf(a, b *Task) [2]string {
	pair := [2]string{pairName(a), pairName(b)}
	slices.Sort(pair[:])
	return pair
}

func (e *Engine) isParted(a, b *Task) bool {
	f, ok := e.parted[pairOf(a, b)]
	return ok && f.Until > e.now
}

// besideParted reports whether a task is on a GPU with one that it does not go together with.
func (e *Engine) besideParted(t *Task) bool {
	return slices.ContainsFunc(e.heldBeside(t), func(o *Task) bool { return e.isParted(t, o) })
}

// apartFrom lists the GPUs on which a task would be beside one that it does not go
// together with. It costs a walk over all leases, while any pair is remembered.
func (e *Engine) apartFrom(t *Task, r work.Request) []int {
	if len(e.parted) == 0 || !r.IsPart() {
		return nil
	}
	var out []int
	for _, l := range e.sortedLeases() {
		s, ok := l.of.onlySlice()
		if !ok || l.of.lease != l || s.Mode != gpu.ModeShared || l.of.Spec.Tenant != t.Spec.Tenant || !e.isParted(t, l.of) {
			continue
		}
		if !e.cluster.GPUs[s.GPU].Kept && !slices.Contains(out, s.GPU) {
			out = append(out, s.GPU)
		}
	}
	return out
}
