package sim

import (
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// pace is how a task without requests gets on with its work, where that may differ from how
// time goes by: it is on a part of a GPU, its use is known, or it keeps its work when it is
// stopped. All others end a fixed time after they start, and have none.
//
// What the tasks on one GPU compute is added up, as far as they hold shares of it (MPS, time
// slices). As long as that is at most the whole GPU, each runs as if alone. Beyond it each
// gets on at 1/sum: the GPU is split in proportion to demand, and switching between tasks,
// caches and memory bandwidth cost nothing. So a cap that a share may have on compute is
// not simulated; a MIG instance is one, and nobody else is slowed by it. A task on several
// GPUs goes as its slowest. Services and notebooks are not slowed.
type pace struct {
	id    work.TaskID
	owner work.Owner // of its first member
	ways  int        // members
	seats []seat
	asked float64 // GPUs that it asks of each seat
	wide  float64 // and of all

	share float64       // of what it asked for that it computes when nobody slows it
	rate  float64       // how fast it gets on: work a time
	left  time.Duration // work until its end
	step  time.Duration // work until its phase ends
	load  time.Duration // of the work of this process, what is not kept
	done  time.Duration // work of this process
	kept  time.Duration // work of those before it that is kept
	at    work.Time     // until when all this is counted

	goes        bool   // it is neither suspended nor stopped
	ends, turns uint64 // numbers in the agenda of its end and its phase's; others are void
	endsAt      work.Time
}

// seat is where a member computes.
type seat struct {
	gpu    int
	shared bool
	most   float64 // share of the GPU that it can have: the part that a MIG instance is
}

// loadOf is what a task loads when it starts, which its duration includes.
func (s *simulation) loadOf(id work.TaskID) time.Duration {
	return min(s.setup.Trace.Tasks[s.row[id-1]].Load, s.duration(id))
}

// reads is what it takes to read the work that is kept, on top of that: as long as saving it.
func (s *simulation) reads(id work.TaskID) time.Duration {
	if p := s.paces[id]; p != nil && p.kept > 0 {
		return s.restartPrice(id).Suspend
	}
	return 0
}

// leaving is how long a process takes to end, and its GPU memory to be free: assumed, of
// tasks with a pace.
const leaving = time.Second

// resizing is how long it takes to give a share another size. It is assumed: as long as
// telling the process, which runs on meanwhile.
const resizing = time.Second

// starts lets a task get on with its work, and reports whether it has a pace.
func (s *simulation) starts(now work.Time, o work.Owner) bool {
	t := s.writer.Engine.Task(o.Task)
	if o.Member > 0 {
		return s.paces[o.Task] != nil
	}
	seats := seatsOf(t.Lease().Parts)
	p := s.paces[o.Task]
	if p == nil {
		if s.lives[o.Task-1] == nil && t.Spec.OnResize != work.ResizeRestart && !slices.ContainsFunc(seats, func(x seat) bool { return x.shared }) {
			return false
		}
		p = &pace{id: o.Task}
		s.paces[o.Task] = p
	}
	p.owner, p.ways = o, len(t.Lease().Parts)
	s.sits(p, seats)
	p.wide = float64(s.rec.rows[o.Task-1].asked) / 1000
	p.asked = p.wide / float64(max(len(seats), 1))
	reads := s.reads(o.Task)
	p.load = s.loadOf(o.Task) + reads
	p.left, p.step, p.done = s.duration(o.Task)-p.kept+reads, 0, 0
	p.rate, p.share, p.at, p.goes = 1, 0, now, true
	s.expect(now, p)
	return true
}

func seatsOf(parts []*engine.Part) []seat {
	var out []seat
	for _, part := range parts {
		for _, x := range part.Slices {
			y := seat{gpu: x.GPU, shared: x.Mode == gpu.ModeShared, most: 1}
			if x.Mode == gpu.ModeMIG {
				y.most = float64(x.Milli) / 1000
			}
			out = append(out, y)
		}
	}
	return out
}

// computes says what share of what it asked for a task computes from now on, if nobody
// slows it.
func (s *simulation) computes(now work.Time, id work.TaskID, share float64) {
	p := s.paces[id]
	if p == nil {
		s.rec.setBusy(now, id, share)
		return
	}
	p.share = share
	s.repace(now, p)
}

// repace finds how fast a task, and those beside it, get on from now on.
func (s *simulation) repace(now work.Time, p *pace) {
	s.setPace(now, p)
	for _, x := range p.seats {
		if x.shared {
			for _, q := range s.crowd[x.gpu] {
				if q != p {
					s.setPace(now, q)
				}
			}
		}
	}
}

func (s *simulation) setPace(now work.Time, p *pace) {
	p.count(now)
	rate := 0.0
	if p.goes {
		rate = 1
		for _, x := range p.seats {
			rate = min(rate, s.room(p, x))
		}
	}
	s.rec.setBusy(now, p.id, p.share*rate)
	if rate != p.rate {
		p.rate = rate
		s.expect(now, p)
	}
}

// room is how fast a task can be on one of its seats.
func (s *simulation) room(p *pace, x seat) float64 {
	mine := p.share * p.asked
	if !x.shared {
		if mine <= x.most {
			return 1
		}
		return x.most / mine
	}
	all := 0.0
	for _, q := range s.crowd[x.gpu] {
		if q.goes {
			all += q.share * q.asked
		}
	}
	return 1 / max(1, all)
}

// count counts the work up to now.
func (p *pace) count(now work.Time) {
	did := now.Sub(p.at)
	if p.rate != 1 { // whole nanoseconds stay what they are where nobody is slowed
		did = time.Duration(float64(did) * p.rate)
	}
	p.left, p.step, p.done, p.at = p.left-did, p.step-did, p.done+did, now
}

// expect notes when a task's work and its phase will have ended, as it goes now.
func (s *simulation) expect(now work.Time, p *pace) {
	if p.turns = 0; p.rate == 0 {
		p.ends = 0
		return
	}
	after := func(d time.Duration) time.Duration {
		if p.rate != 1 {
			d = time.Duration(float64(d) / p.rate)
		}
		return max(d, 0)
	}
	if at := now.Add(after(p.left)); p.ends == 0 || at != p.endsAt { // it is in the agenda already
		p.ends, p.endsAt = s.due.add(now, at.Sub(now), worked, work.Owner{Task: p.id}), at
	}
	if l := s.lives[p.id-1]; l != nil && p.step > 0 {
		p.turns = s.due.add(now, after(p.step), phase, l.mark())
	}
}

// worked is told that a task may have ended.
func (s *simulation) worked(now work.Time, x agendum, evs *events) {
	p := s.paces[x.owner.Task]
	if p == nil || p.ends != x.n {
		return
	}
	s.rec.uses.worked += p.wide * (s.duration(p.id) - s.loadOf(p.id)).Seconds()
	s.halts(now, p.id, true)
	delete(s.paces, p.id)
	for i := range p.ways {
		ev := again(&evs.exit)
		ev.Owner = p.owner
		ev.Owner.Member = i
		evs.list = append(evs.list, ev)
	}
}

// halts stops the work of a task: it was suspended, or ends.
func (s *simulation) halts(now work.Time, id work.TaskID, ends bool) {
	p := s.paces[id]
	if p == nil || !p.goes {
		return
	}
	p.count(now)
	p.goes, p.rate, p.ends, p.turns = false, 0, 0, 0
	s.repace(now, p)
	if !ends {
		return
	}
	s.sits(p, nil)
}

// continues lets a suspended task go on, on the seats it has now.
func (s *simulation) continues(now work.Time, id work.TaskID) {
	if p := s.paces[id]; p != nil && !p.goes {
		p.goes, p.at = true, now
		s.reseats(now, id)
	}
}

// reseats notes what a task holds now that it was resized, or goes on elsewhere.
func (s *simulation) reseats(now work.Time, id work.TaskID) {
	p := s.paces[id]
	if p == nil || !p.goes {
		return
	}
	before := p.seats
	s.sits(p, seatsOf(s.writer.Engine.Task(id).Lease().Parts))
	s.repace(now, p)
	for _, x := range before { // who was beside it
		for _, q := range s.crowd[x.gpu] {
			s.setPace(now, q)
		}
	}
}

// sits gives a task other seats.
func (s *simulation) sits(p *pace, seats []seat) {
	for _, x := range p.seats {
		s.crowd[x.gpu] = slices.DeleteFunc(s.crowd[x.gpu], func(q *pace) bool { return q == p })
	}
	p.seats = seats
	for _, x := range seats {
		if x.shared {
			s.crowd[x.gpu] = append(s.crowd[x.gpu], p)
		}
	}
}

// saves keeps of a task's work what outlives its process, which is stopped, and says how
// long that takes. One that takes another size by a restart saves all of it, at the price
// that the engine expects, if its grace is enough; others keep what their last checkpoint
// holds, which cost them nothing.
func (s *simulation) saves(now work.Time, o work.Owner, grace time.Duration) time.Duration {
	p := s.paces[o.Task]
	if p == nil {
		return 0
	}
	spec := s.writer.Engine.Task(o.Task).Spec
	takes, all := leaving, spec.OnResize == work.ResizeRestart
	if all {
		price := s.restartPrice(o.Task).Suspend + leaving
		takes, all = min(price, grace), price <= grace
	}
	if !p.goes || o.Member > 0 {
		return takes
	}
	p.count(now)
	did := max(0, p.done-p.load)
	switch {
	case all:
	case spec.Checkpoint > 0:
		did -= did % spec.Checkpoint
	default:
		did = 0
	}
	p.kept, p.done = p.kept+did, 0
	s.halts(now, o.Task, true)
	return takes
}

// idleMark is the use that counts as none, as the engine has it unless told otherwise.
const idleMark = 0.05
