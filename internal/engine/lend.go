package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/elastic"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/placement"
	"github.com/gpupool/gpupool/internal/work"
)

// resettle gives a woken task GPUs of its host: those it had, else others of their model.
// Where there are none it sees to it that some come free.
func (e *Engine) resettle(t *Task) verdict {
	part := t.lease.Parts[0]
	h := e.cluster.Hosts[part.Host]
	if !h.Up {
		return nowhere
	}
	n := len(part.Was)
	if e.overLimit(t, 1000*n) {
		return notNow
	}
	model := e.cluster.GPUs[part.Was[0].GPU].Model
	var mine, others []work.Slice
	for _, g := range h.GPUs {
		x := e.cluster.GPUs[g]
		if x.Model != model || len(x.Held) > 0 || !e.cluster.Usable(g) {
			continue
		}
		s := work.Slice{GPU: g, Mode: gpu.ModeWhole, Milli: 1000}
		switch {
		case slices.ContainsFunc(part.Was, func(w work.Slice) bool { return w.GPU == g }): // its right to it is older than any reservation
			mine = append(mine, s)
		case !x.Kept:
			others = append(others, s)
		}
	}
	if free := slices.Concat(mine, others); len(free) >= n {
		r := t.Spec.Request
		e.placeAwake(t, work.Part{Host: h.Number, Slices: free[:n:n], CPUMilli: r.CPUMilli, MemMiB: r.MemMiB})
		return placed
	}
	e.makeWay(t, part, n-len(mine)-len(others))
	return noRoom
}

func (e *Engine) placeAwake(t *Task, part work.Part) {
	e.emit(Placed{Task: t.ID, Epoch: t.Epoch + 1, Parts: []work.Part{part}, Runs: t.lease.process()})
	e.command(e.carveCmd(t.lease, 0))
}

// makeWay asks others on the host of a woken task to give it n GPUs. First guests that lose
// little, who lose least first; then those who idle are parked, longest idle first; then the
// other guests yield, or are parked where they can be. Guests are whoever is on its own
// GPUs, and tasks of other pools, which have no right to any.
func (e *Engine) makeWay(t *Task, part *Part, n int) {
	h := e.cluster.Hosts[part.Host]
	own := t.pool.Name == h.Pool
	var idle, guests []*Task
	seen := map[work.TaskID]bool{}
	for _, g := range h.GPUs {
		if e.cluster.GPUs[g].Health.Out() {
			continue // it would be of no use
		}
		for _, held := range e.cluster.GPUs[g].Held {
			l := e.leaseAt(held.Owner.Task, held.Owner.Epoch)
			if l == nil || seen[l.Task] {
				continue
			}
			seen[l.Task] = true
			v := l.of
			switch lent := slices.Contains(e.liens[g], t) || own && e.guest(l); {
			case l.Closing || l.Parts[0].Phase == PhaseSuspending || l.Parts[0].Phase == PhaseVacating:
				n -= len(l.Parts[min(held.Owner.Member, len(l.Parts)-1)].Slices) // it goes already
			case v.Use.Kind == elastic.Idle && e.mayPark(v) && e.now.Sub(v.Use.Since) >= wakeIdle:
				idle = append(idle, v)
			case lent && v.State == work.StateRunning && !v.Spec.External() && !v.Spec.NoPreempt && (e.onIdle(v) != work.IdlePark || e.now >= t.Queued.Add(lendBound)):
				guests = append(guests, v)
			}
		}
	}
	slices.SortStableFunc(idle, func(a, b *Task) int { return cmp.Compare(a.Use.Since, b.Use.Since) })
	slices.SortStableFunc(guests, func(a, b *Task) int { return cmp.Compare(e.loses(a), e.loses(b)) })
	cheap := 0
	for cheap < len(guests) && e.loses(guests[cheap]) <= littleWork && e.onIdle(guests[cheap]) != work.IdlePark {
		cheap++
	}
	for i, v := range slices.Concat(guests[:cheap], idle, guests[cheap:]) {
		if n <= 0 {
			return
		}
		if i >= cheap && i < cheap+len(idle) {
			n -= len(v.lease.Parts[0].Slices)
			e.park(v, work.Reasonf(work.Idle, "parked, as its GPUs were not used for %s%s and %s, which was woken, needs one; gpupool wake %d lets it go on",
				inSeconds(e.now.Sub(v.Use.Since)), loaded(v.Use), taskList([]work.TaskID{t.ID}, e.owns(v)), v.ID))
			continue
		}
		n--
		e.sendAway(v, t)
	}
	if n > 0 {
		e.timers.add(e.now.Add(wakeLook), timerPass, work.Owner{Task: t.ID, Member: t.pool.number})
		t.asked = e.now.Add(wakeLook).Add(-reclaimEvery)
	}
}

// sendAway takes its GPUs from a guest: it is parked where it can be, as it loses nothing
// then, else it goes back to its place in line.
func (e *Engine) sendAway(v, t *Task) {
	why := work.Reasonf(work.Preempted, "it was a guest on a GPU of %s, which was woken; it goes back to its place in line", taskList([]work.TaskID{t.ID}, e.owns(v)))
	if e.onIdle(v) == work.IdlePark && v.Stuck == 0 && e.parkable(v) {
		e.park(v, why)
		e.emit(Woken{v.ID, "its pool, as it was not idle"})
		return
	}
	e.close(v.lease, work.Queued, why)
}

// littleWork is what a guest may lose so that it goes before a task that idles, which would be
// felt when that wakes.
const littleWork = 10 * time.Minute

// loses is how much work a task would lose if it stopped now.
func (e *Engine) loses(t *Task) time.Duration {
	return e.now.Sub(t.Started) + t.Carried - e.saved(t, e.now)
}

// sleepers counts the tasks of a host that may want a GPU of it again, and those that hold one
// and may sleep there.
func (e *Engine) sleepers(host int) int {
	n := 0
	for _, g := range e.cluster.Hosts[host].GPUs {
		for _, t := range e.liens[g] {
			if t.lease.Parts[0].Was[0].GPU == g {
				n++
			}
		}
		for _, held := range e.cluster.GPUs[g].Held {
			if t := e.tasks[held.Owner.Task]; t != nil && e.onIdle(t) == work.IdlePark {
				n++
			}
		}
	}
	return n
}

// perSleeper is how much work of others it is worth not to crowd a host by one more for each
// of its GPUs.
const perSleeper = 10 * time.Minute

// Bounds of waking. wakeIdle is how long a task must have been idle for a woken one to
// take its GPU; lendBound is how long a woken one waits for
// a guest on its own GPUs to idle that loses nothing by being parked; others yield at once.
const (
	wakeIdle  = 2 * time.Second
	lendBound = 10 * time.Second
	wakeLook  = 5 * time.Second
)

// parkFor parks idle tasks that are worth it, so that a task finds room. It reports
// whether it did, or leaves it to guests of the pool first.
func (e *Engine) parkFor(p *pool, t *Task) (parks bool) {
	r := p.wants(t)
	if len(p.idle) == 0 || r.HostOnly() || t.State == work.Parked {
		return false
	}
	if p.guests > 0 && t.pool == p && (t.asked == 0 || e.now >= t.asked.Add(reclaimEvery)) {
		return true // guests go first, if any can
	}
	each := max(r.GPUs, 1)
	rooms := e.idleRooms(p, r)
	for range r.Count() {
		best := -1
		for i := range rooms {
			if x := &rooms[i]; x.free+len(x.idle) >= each && (best < 0 || x.free > rooms[best].free) {
				best = i
			}
		}
		if best < 0 {
			return false // parking would not help it
		}
		x := &rooms[best]
		for x.free < each {
			v := x.idle[0]
			x.idle = x.idle[1:]
			x.free += len(v.lease.Parts[0].Slices)
			x.taken = append(x.taken, v)
		}
		x.free -= each
	}
	for _, x := range rooms {
		for _, v := range x.taken {
			parks = true
			e.park(v, work.Reasonf(work.Idle, "parked, as its GPUs were not used for %s%s and %s waits for them; gpupool wake %d lets it go on",
				inSeconds(e.now.Sub(v.Use.Since)), loaded(v.Use), taskList([]work.TaskID{t.ID}, e.owns(v)), v.ID))
		}
	}
	return parks
}

// idleRoom is what a host could give if idle tasks on it were parked.
type idleRoom struct {
	free  int     // GPUs that are free, or will be
	idle  []*Task // that are worth parking, the longest idle first
	taken []*Task
}

func (e *Engine) idleRooms(p *pool, r work.Request) []idleRoom {
	var out []idleRoom
	at := map[int]int{}
	room := func(host int) *idleRoom {
		i, ok := at[host]
		if !ok {
			i = len(out)
			at[host] = i
			x := idleRoom{}
			for _, g := range e.cluster.Hosts[host].GPUs {
				switch c := e.cluster.GPUs[g]; {
				case c.Kept || c.Health.Out():
				case len(c.Held) == 0 && e.cluster.Usable(g):
					x.free++
				case len(c.Held) == 1:
					if l := e.leaseAt(c.Held[0].Owner.Task, c.Held[0].Owner.Epoch); l != nil && (l.Parts[0].Phase == PhaseVacating || l.Parts[0].Phase == PhaseSuspending) {
						x.free++
					}
				}
			}
			out = append(out, x)
		}
		return &out[i]
	}
	for _, v := range p.idle {
		if e.onAiling(v) || !e.mayPark(v) || !elastic.WorthParking(e.now.Sub(v.Use.Since), e.parkPrice(v)) {
			continue
		}
		part := v.lease.Parts[0]
		if m := e.cluster.GPUs[part.Slices[0].GPU].Model; len(r.Models) > 0 && !slices.Contains(r.Models, m) {
			continue
		}
		x := room(part.Host)
		x.idle = append(x.idle, v)
	}
	for i := range out {
		slices.SortStableFunc(out[i].idle, func(a, b *Task) int { return cmp.Compare(a.Use.Since, b.Use.Since) })
	}
	return out
}

// onLent reports whether a task holds a GPU that a parked task has a right to.
func (e *Engine) onLent(t *Task) bool {
	for _, p := range t.lease.Parts {
		for _, s := range p.Slices {
			if len(e.liens[s.GPU]) > 0 {
				return true
			}
		}
	}
	return false
}

// find finds a place, not beside a task that it does not go together with.
func (e *Engine) find(t *Task, q placement.Query) []work.Part {
	apart := e.apartFrom(t, q.Request)
	for _, g := range apart {
		e.cluster.Keep(e.onlyGPU(g))
	}
	parts := e.findLent(t, q)
	for _, g := range apart {
		e.cluster.Unkeep(e.onlyGPU(g))
	}
	return parts
}

// findLent finds a place. GPUs that parked tasks left go last, those that most have a right
// to at the very last, and never to someone who cannot be asked to leave.
func (e *Engine) findLent(t *Task, q placement.Query) []work.Part {
	if len(e.liens) == 0 {
		return e.cluster.Find(q)
	}
	var lent []int
	stays := t.Spec.NoPreempt || t.Spec.External()
	for g := range e.liens { // order: sorted below
		if x := e.cluster.GPUs[g]; (len(x.Held) == 0 || stays) && !x.Kept && e.cluster.Hosts[x.Host].Pool == q.Pool {
			lent = append(lent, g)
		}
	}
	slices.SortFunc(lent, func(a, b int) int { return cmp.Or(len(e.liens[a])-len(e.liens[b]), a-b) })
	for most := 0; ; most = max(1, 2*most) {
		free := 0
		for free < len(lent) && len(e.liens[lent[free]]) <= most {
			free++
		}
		for _, g := range lent[free:] {
			e.cluster.Keep(e.onlyGPU(g))
		}
		parts := e.cluster.Find(q)
		for _, g := range lent[free:] {
			e.cluster.Unkeep(e.onlyGPU(g))
		}
		if parts != nil || free == len(lent) || stays {
			return parts
		}
	}
}

// untouchable withholds the GPUs of a pool that parked tasks left, for one that cannot be asked
// to leave them: it could wait for them for ever. The caller gives them back.
func (e *Engine) untouchable(p *pool, t *Task) (kept []int) {
	if !t.Spec.NoPreempt && !t.Spec.External() {
		return nil
	}
	for g := range e.liens { // order: a set
		if x := e.cluster.GPUs[g]; !x.Kept && e.cluster.Hosts[x.Host].Pool == p.Name {
			e.cluster.Keep(e.onlyGPU(g))
			kept = append(kept, g)
		}
	}
	return kept
}

func (e *Engine) onlyGPU(g int) work.Part {
	return work.Part{Host: e.cluster.GPUs[g].Host, Slices: []work.Slice{{GPU: g}}}
}
