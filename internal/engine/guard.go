package engine

import (
	"fmt"
	"slices"

	"github.com/gpupool/gpupool/internal/elastic"
	"github.com/gpupool/gpupool/internal/work"
)

// The guard: a dynamic pool that moves too much, whose moves fail, or whose woken tasks
// wait for too long, becomes static by itself. It stays so until someone sets another
// mode: what went wrong is for a person to look at, and a pool that returned by itself
// would go back and forth.

// ByGuard and byRollout set modes beside people (ModeSet.By).
const (
	ByGuard   = "guard"
	byRollout = "rollout"
)

// ModeChange is the last time that the mode of a pool was set beside its settings.
type ModeChange struct {
	At     work.Time `json:"at"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	Log    []string  `json:"log,omitempty"`
}

// moveNote is a move of a task, or what went wrong with one.
type moveNote struct {
	At   work.Time   `json:"at"`
	Task work.TaskID `json:"task"`
	What string      `json:"what"`
	Why  string      `json:"why,omitempty"`
}

func (n moveNote) String() string {
	line := fmt.Sprintf("%s task %d %s", n.At.Std().Format("2006-01-02 15:04:05"), n.Task, n.What)
	if n.Why != "" {
		line += ": " + n.Why
	}
	return line
}

// mostNotes is how many of the last moves a pool remembers.
const mostNotes = 20

// guardState is what a pool keeps for its guard.
type guardState struct {
	jitter elastic.Jitter
	notes  []moveNote  // the last moves, oldest first
	change *ModeChange // nil = its mode is that of its settings
	falls  int         // how often it fell back
	stale  bool        // something moved since it was last looked at
}

// guardRecord is a guardState in a snapshot.
type guardRecord struct {
	Jitter elastic.Jitter `json:"jitter"`
	Notes  []moveNote     `json:"notes,omitempty"`
	Change *ModeChange    `json:"change,omitempty"`
	Falls  int            `json:"falls,omitempty"`
}

func (p *pool) guardRecord() *guardRecord {
	return &guardRecord{p.guard.jitter, p.guard.notes, p.guard.change, p.guard.falls}
}

func (p *pool) restoreGuard(r *guardRecord) {
	p.guard.stale = true
	if r == nil { // written by an older gpupool
		return
	}
	active, woken := p.guard.jitter.Active, p.guard.jitter.Woken
	p.guard.jitter, p.guard.notes, p.guard.change, p.guard.falls = r.Jitter, r.Notes, r.Change, r.Falls
	p.guard.jitter.Active, p.guard.jitter.Woken = active, woken
}

// passed is the count of a pool's moves with the time up to now.
func (p *pool) passed(now work.Time) *elastic.Jitter {
	p.guard.jitter.Pass(now, elastic.GuardOf(p.Elastic.Guard).Window)
	return &p.guard.jitter
}

// recount begins to count moves anew.
func (p *pool) recount(now work.Time) {
	p.guard.jitter.Reset(now)
	p.guard.notes = nil
}

// countActive counts a task of a pool that begins or ceases to hold something.
func (e *Engine) countActive(t *Task, sign int) { t.pool.passed(e.now).Active += sign }

// wasParked reports whether a task runs that had been parked.
func wasParked(t *Task) bool {
	return t.State == work.StateRunning && t.lease != nil && t.lease.Runs != 0
}

// countMoves counts what a fact says of moves, before it is applied.
func (e *Engine) countMoves(f Fact) {
	switch f := f.(type) {
	case Suspending:
		e.noteMove(f.Owner.Task, elastic.Count{Moves: 1}, "is suspended", f.Reason.Msg)
	case Resuming:
		e.noteMove(f.Owner.Task, elastic.Count{Moves: 1}, "goes on without having left", "")
	case Placed:
		if f.Runs != 0 {
			e.noteMove(f.Task, elastic.Count{Moves: 1}, "was woken and has GPUs again", "")
		}
	case Resizing:
		e.noteMove(f.Owner.Task, elastic.Count{Moves: 1}, "is resized", f.Reason.Msg)
	case MoveFailed:
		if l := e.tasks[f.Task].lease; l != nil && l.Parts[0].Phase == PhaseCarving {
			e.tasks[f.Task].pool.guard.jitter.CarveFailed(e.now)
		}
		e.noteMove(f.Task, elastic.Count{Failed: 1}, string(f.Move)+" failed", f.Why)
	case Closing:
		if f.Reason.Code == work.CarveFailed || f.Reason.Code == work.AllocTimeout {
			e.countCarve(f)
		}
	case Became:
		t := e.tasks[f.Task]
		if f.State == work.Yielding && (f.Reason.Code == work.Resized || f.Reason.Code == work.Moved) {
			e.noteMove(f.Task, elastic.Count{Moves: 1}, "starts again", f.Reason.Msg)
		}
		switch {
		case f.State == work.StateRunning && t.State == work.Parked && t.lease.Runs != 0:
			t.pool.guard.stale = true
			t.pool.guard.jitter.Add(e.now, elastic.GuardOf(t.pool.Elastic.Guard).Window, elastic.Count{Wakes: 1, Waited: e.now.Sub(t.Queued)})
			t.pool.guard.jitter.Woken++
		case wasParked(t) && f.State != work.StateRunning:
			t.pool.passed(e.now).Woken--
		}
	}
}

// countCarve counts a lease that is given up because its slices were not made.
func (e *Engine) countCarve(f Closing) {
	l := e.leaseAt(f.Task, f.Epoch)
	if f.Reason.Code == work.AllocTimeout && !slices.ContainsFunc(l.Parts, func(p *Part) bool { return p.Phase == PhaseCarving }) {
		return // they were made, and it did not start
	}
	l.of.pool.guard.jitter.CarveFailed(e.now)
	e.noteMove(f.Task, elastic.Count{}, "could not be given its slices", f.Reason.Msg)
}

func (e *Engine) noteMove(id work.TaskID, c elastic.Count, what, why string) {
	p := e.tasks[id].pool
	p.guard.stale = true
	p.guard.jitter.Add(e.now, elastic.GuardOf(p.Elastic.Guard).Window, c)
	if n := len(p.guard.notes); n >= mostNotes {
		p.guard.notes = slices.Delete(p.guard.notes, 0, n-mostNotes+1)
	}
	p.guard.notes = append(p.guard.notes, moveNote{e.now, id, what, why})
}

// guardPools lets pools fall back that passed a bound since they were last looked at.
func (e *Engine) guardPools() {
	for _, p := range e.lines {
		if !p.guard.stale {
			continue
		}
		p.guard.stale = false
		if !p.isDynamic() {
			continue
		}
		why := p.guard.jitter.Over(p.Elastic.Guard, e.now)
		if why == "" {
			continue
		}
		log := make([]string, 0, len(p.guard.notes))
		for _, n := range p.guard.notes {
			log = append(log, n.String())
		}
		e.emit(ModeSet{Pool: p.Name, Mode: work.Static, By: ByGuard, Reason: why, Log: log})
		e.rolloutGuarded(p, why)
	}
}

// lookAtGuards has every pool looked at.
func (e *Engine) lookAtGuards() {
	for _, p := range e.lines {
		p.guard.stale = true
	}
}

// whyStatic says that a pool fell back, while it is so.
func (p *pool) whyStatic() string {
	if c := p.guard.change; c != nil && c.By == ByGuard {
		return fmt.Sprintf("pool %s fell back to static at %s UTC: %s; gpupool pools set-mode %s dynamic lets it move again", p.Name, c.At.Std().Format("2006-01-02 15:04:05"), c.Reason, p.Name)
	}
	return ""
}
