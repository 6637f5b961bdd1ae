package sim

import (
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/trace"
	"github.com/gpupool/gpupool/internal/work"
)

// life is how a task of the trace uses what it holds, where the trace says: by the
// requests that come to it, or by phases.
//
// A task with requests lives for its Duration from its first start, whether it holds GPUs
// or is parked. Each time its process starts it loads, which is measured as use: it must
// not be parked then. Then it serves what comes, in order, so many at once as its class
// allows. A request that comes while it is suspended wakes it; those that it was at stay
// where they were until it goes on. If its process is ended they begin again.
//
// A task with phases runs at its pace, and is measured.
type life struct {
	x     *trace.Task
	task  work.TaskID
	owner work.Owner // of its process
	state lifeState
	turn  uint32 // counts starts, suspends and ends: what is due from before is void
	lull  uint32 // counts idle times, likewise
	since work.Time
	woken bool
	begun bool // its Duration counts
	over  bool

	arrived, next int // of its requests: those that came, and those begun
	at            []request
	took, takes   time.Duration // of those that ended: from coming to the end, and what they take
	phase         int
}

type lifeState uint8

const (
	absent lifeState = iota
	loading
	running
	asleep // or on its way there, or back
)

// request is one that a task is at.
type request struct {
	came work.Time
	end  work.Time
	left time.Duration // while it is not served
	all  time.Duration
}

// How many requests a task serves at once. A model server batches; a notebook runs one
// cell after the other.
const (
	InferenceAtOnce   = 4
	InteractiveAtOnce = 1
)

// Times of measuring. A task that has become idle is measured after enough time for it to
// be judged so, and then now and then, as the engine believes a sample for a minute.
const (
	firstLook = 5 * time.Second
	nextLook  = 30 * time.Second
)

// Defaults of a pool that does something with idle tasks. Moves are not limited: the
// numbers shall say what they come to.
const (
	parkAfter    = 10 * time.Minute
	moveCooldown = 5 * time.Second
)

// pools is what the engine is told of the cluster's pools.
func (s Setup) pools(mode work.PoolMode) []work.Pool {
	out := slices.Clone(s.Pools)
	for i := range out {
		out[i].Mode = mode
		if out[i].Elastic.Guard == (work.Guard{}) {
			out[i].Elastic.Guard = work.NoGuard()
		}
	}
	if len(out) > 0 {
		return out
	}
	x := s.Elastic
	if x.OnIdle == nil && mode == work.Dynamic {
		x.OnIdle = map[work.Class]work.IdleAction{work.Interactive: work.IdlePark, work.Inference: work.IdlePark}
		x.After = map[work.Class]time.Duration{work.Interactive: parkAfter, work.Inference: parkAfter}
		x.Cooldown = moveCooldown
	}
	if x.Guard == (work.Guard{}) {
		x.Guard = work.NoGuard()
	}
	return []work.Pool{{Name: poolName, Mode: mode, Elastic: x}}
}

// born notes a task that was submitted, if its use is known.
func (s *simulation) born(now work.Time, id work.TaskID, x *trace.Task) {
	if len(x.Requests) == 0 && len(x.Phases) == 0 {
		return
	}
	l := &life{x: x, task: id}
	s.lives[id-1] = l
	s.rec.uses.known = true
	s.awaitRequest(now, l)
}

// awaitRequest notes when the next request comes.
func (s *simulation) awaitRequest(now work.Time, l *life) {
	if l.arrived < len(l.x.Requests) {
		at := max(epoch.Add(l.x.Requests[l.arrived].At), now)
		s.due.add(now, at.Sub(now), arrives, work.Owner{Task: l.task})
	}
}

func (l *life) mark() work.Owner { return work.Owner{Task: l.task, Epoch: l.turn} }

// begins notes that a process starts, and reports whether its end is not to be noted.
func (s *simulation) begins(now work.Time, o work.Owner) bool {
	l := s.lives[o.Task-1]
	if l == nil {
		return false
	}
	if o.Member == 0 {
		l.turn++
		l.owner, l.state, l.since, l.phase = o, loading, now, -1
		s.due.add(now, l.x.Load+s.reads(o.Task), loaded, l.mark())
	}
	if len(l.x.Requests) == 0 {
		return false
	}
	if !l.begun {
		l.begun = true
		s.due.add(now, l.x.Duration, ends, work.Owner{Task: l.task})
	}
	return true
}

// lived is told what was due about a life.
func (s *simulation) lived(now work.Time, x agendum, evs *events) {
	if x.what == beat {
		s.beat(now, evs)
		return
	}
	l := s.lives[x.owner.Task-1]
	switch x.what {
	case worked:
		s.worked(now, x, evs)
	case resized:
		evs.list = append(evs.list, engine.ResizeDone{Owner: x.owner})
	case phase:
		if p := s.paces[x.owner.Task]; p != nil && p.turns == x.n {
			s.nextPhase(now, l, evs)
		}
	case suspended:
		evs.list = append(evs.list, engine.SuspendDone{Owner: x.owner})
	case resumed:
		evs.list = append(evs.list, engine.ResumeDone{Owner: x.owner})
		s.continues(now, x.owner.Task)
		s.resumes(now, l, evs)
	case arrives:
		s.arrived(now, l, evs)
	case ends:
		s.ended(now, l, evs)
	case quiet:
		if l.state == running && x.owner.Epoch == l.lull && len(l.at) == 0 {
			s.measured(now, l, 0, evs)
			s.beatSoon(now)
		}
	default:
		if x.owner.Epoch == l.turn {
			s.turned(now, l, x.what, evs)
		}
	}
}

// turned is told what was due in one turn of a life.
func (s *simulation) turned(now work.Time, l *life, what happening, evs *events) {
	switch what {
	case loaded:
		l.state = running
		s.measured(now, l, 1, evs)
		if len(l.x.Phases) > 0 {
			s.nextPhase(now, l, evs)
			return
		}
		s.serve(now, l, evs)
	case served:
		i := slices.IndexFunc(l.at, func(r request) bool { return r.end <= now })
		if i < 0 {
			return
		}
		r := l.at[i]
		l.at = slices.Delete(l.at, i, i+1)
		l.took, l.takes = l.took+now.Sub(r.came), l.takes+r.all
		s.rec.uses.done(now.Sub(r.came), r.all)
		s.serve(now, l, evs)
	case rouses:
		s.wake(l, evs)
	default:
	}
}

// arrived takes a request.
func (s *simulation) arrived(now work.Time, l *life, evs *events) {
	if l.over {
		return
	}
	l.arrived++
	s.rec.uses.requests++
	s.awaitRequest(now, l)
	switch l.state {
	case running:
		s.serve(now, l, evs)
	case asleep:
		s.wake(l, evs)
	case absent, loading: // it stands in line
	}
}

func (s *simulation) wake(l *life, evs *events) {
	if l.state == asleep && !l.woken && !l.over {
		l.woken = true
		evs.list = append(evs.list, engine.Wake{Task: l.task, By: "a request"})
	}
}

// serve lets requests begin, as many as may, and says if the task is busy or idle.
func (s *simulation) serve(now work.Time, l *life, evs *events) {
	most := InferenceAtOnce
	if l.x.Class == trace.Interactive {
		most = InteractiveAtOnce
	}
	for len(l.at) < most && l.next < l.arrived {
		r := l.x.Requests[l.next]
		l.next++
		l.at = append(l.at, request{came: epoch.Add(r.At), end: now.Add(r.Takes), all: r.Takes})
		s.due.add(now, r.Takes, served, l.mark())
		s.rec.uses.began(now.Sub(epoch.Add(r.At)))
	}
	switch was := s.rec.rows[l.task-1].busy > 0; {
	case len(l.at) > 0 && !was:
		// What went before was idle, and saying so now could park it at this very moment.
		l.since = now
		s.measured(now, l, 1, evs)
		s.rec.setBusy(now, l.task, 1)
	case len(l.at) == 0:
		if was {
			s.measured(now, l, 1, evs)
		}
		s.rec.setBusy(now, l.task, 0)
		l.since = now
		l.lull++
		s.due.add(now, firstLook, quiet, work.Owner{Task: l.task, Epoch: l.lull})
	}
}

// nextPhase measures the phase that ends and begins the next.
func (s *simulation) nextPhase(now work.Time, l *life, evs *events) {
	p := s.paces[l.task]
	if t := s.writer.Engine.Task(l.task); t == nil || t.State.Terminal() || l.state != running || p == nil {
		return
	}
	p.count(now)
	if l.phase >= 0 {
		s.measured(now, l, s.rec.rows[l.task-1].busy, evs)
	}
	l.phase = (l.phase + 1) % len(l.x.Phases)
	p.step = max(l.x.Phases[l.phase].For, time.Second)
	s.computes(now, l.task, l.x.Phases[l.phase].Compute)
	s.expect(now, p)
}

// freeze stops everything that a task is at.
func (s *simulation) freeze(now work.Time, l *life, to lifeState) {
	l.turn++
	l.lull++
	if l.state == running {
		for i := range l.at {
			l.at[i].left = max(0, l.at[i].end.Sub(now))
		}
	}
	if s.rec.rows[l.task-1].busy > 0 {
		s.rec.setBusy(now, l.task, 0)
	}
	l.state, l.woken = to, false
}

// suspends stops a task where it is, and notes when that is done.
func (s *simulation) suspends(now work.Time, o work.Owner) {
	s.halts(now, o.Task, false)
	if l := s.lives[o.Task-1]; l != nil {
		s.freeze(now, l, asleep)
		if len(l.at) > 0 || l.next < l.arrived { // someone else wanted its GPUs, or it was just too late
			s.due.add(now, 0, rouses, l.mark())
		}
	}
	s.due.add(now, s.parkPrice(o.Task).Suspend, suspended, o)
}

// resumes lets a task go on.
func (s *simulation) resumes(now work.Time, l *life, evs *events) {
	if l == nil || l.state != asleep {
		return
	}
	l.turn++
	l.state, l.woken, l.since = running, false, now
	if len(l.x.Phases) > 0 {
		if l.phase < 0 { // it was suspended before it computed
			s.nextPhase(now, l, evs)
			return
		}
		s.computes(now, l.task, l.x.Phases[l.phase].Compute)
		return
	}
	for i := range l.at {
		l.at[i].end = now.Add(l.at[i].left)
		s.due.add(now, l.at[i].left, served, l.mark())
	}
	s.serve(now, l, evs)
}

// stops ends a process; what it was at begins again if there is another.
func (s *simulation) stops(now work.Time, id work.TaskID) {
	l := s.lives[id-1]
	if l == nil {
		return
	}
	s.freeze(now, l, absent)
	for i := range l.at {
		l.at[i].left = l.at[i].all
	}
}

// ended is told that the time of a task is over.
func (s *simulation) ended(now work.Time, l *life, evs *events) {
	s.late(now, l)
	l.over = true
	was := l.state
	s.freeze(now, l, absent)
	if was == running || was == loading {
		ev := again(&evs.exit)
		ev.Owner = l.owner
		evs.list = append(evs.list, ev)
		return
	}
	evs.list = append(evs.list, engine.Cancel{Task: l.task, By: "the end of its time"})
}

// late counts the requests that came and have not begun, as if they began now.
func (s *simulation) late(now work.Time, l *life) {
	for ; l.next < l.arrived; l.next++ {
		s.rec.uses.left(now.Sub(epoch.Add(l.x.Requests[l.next].At)))
	}
}

// leave counts what is left when a run ends.
func (s *simulation) leave() {
	for _, l := range s.lives {
		if l != nil && !l.over {
			s.late(s.rec.last, l)
		}
	}
}

// steady is the use of a task whose life is not known in detail.
func (s *simulation) steady(id work.TaskID) float64 {
	if s.lives[id-1] != nil {
		return 0
	}
	if u := s.setup.Trace.Tasks[s.row[id-1]].Utilisation; u >= 0 {
		return u
	}
	return 1
}

// over reports whether a task was ended because its time was over.
func (s *simulation) over(id work.TaskID) bool {
	l := s.lives[id-1]
	return l != nil && l.over
}
