package engine

import (
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/elastic"
	"github.com/gpupool/gpupool/internal/work"
)

// usage takes what was measured. Windows are not kept over a restart; what is judged of
// them is a fact, and whatever is done rests on that alone.
func (e *Engine) usage(samples []UsageSample) {
	for len(samples) > 0 {
		n := 1
		for n < len(samples) && samples[n].Owner.Task == samples[0].Owner.Task {
			n++
		}
		e.used(samples[:n])
		samples = samples[n:]
	}
	for _, p := range e.lines {
		for _, t := range slices.Clone(p.idle) {
			if e.now > t.window.At().Add(blind) { // nobody knows any more
				e.judged(t, elastic.Use{Kind: elastic.Unknown, Since: e.now})
			}
		}
	}
}

// blind is how long after its last sample an idle task is still taken to idle. A sample
// counts for as long again as it took.
const blind = time.Minute

// used takes the samples of one task: the mean over its slices, and the sum of memory.
func (e *Engine) used(samples []UsageSample) {
	t := e.tasks[samples[0].Owner.Task]
	if t == nil || t.State != work.StateRunning || t.lease == nil || t.lease.Parts[0].Phase.halted() || t.lease.Parts[0].Phase == PhaseResuming {
		return
	}
	n, compute, mem := 0, 0.0, int64(0)
	var took time.Duration
	for _, s := range samples {
		if s.Owner.Epoch != t.lease.Epoch {
			continue // of slices that it no longer has
		}
		n, took = n+1, max(took, s.For)
		if s.Compute < 0 || compute < 0 {
			compute = -1
		} else {
			compute += s.Compute
		}
		if s.MemMiB < 0 || mem < 0 {
			mem = -1
		} else {
			mem += s.MemMiB
		}
	}
	if n == 0 {
		return
	}
	if compute > 0 {
		compute /= float64(n)
	}
	m := elastic.MarksOf(t.pool.Elastic)
	t.window.Add(e.now, took, compute, mem, m.Idle)
	if u := m.Judge(&t.window, e.now, t.Use); u.Changed(t.Use) {
		e.judged(t, u)
	}
	e.watchNeighbours(t)
}

func (e *Engine) judged(t *Task, u elastic.Use) {
	if u.Kind != elastic.Idle {
		e.tellWoken(t)
	}
	e.emit(Judged{t.ID, u})
	if u.Kind == elastic.Idle {
		e.lookAtIdle(t)
	}
}

func (e *Engine) applyJudged(f Judged) {
	t := e.tasks[f.Task]
	e.notIdle(t)
	if t.Use = f.Use; f.Use.Kind == elastic.Idle {
		p := t.pool
		i, _ := slices.BinarySearchFunc(p.idle, t, byNumber)
		p.idle = slices.Insert(p.idle, i, t)
		e.watchIdle(t)
	}
	e.enrolSupple(t, t.State == work.StateRunning)
}

func byNumber(a, b *Task) int { return int(a.ID) - int(b.ID) }

// watchIdle sets the times at which an idle task may be worth moving.
func (e *Engine) watchIdle(t *Task) {
	o := work.Owner{Task: t.ID, Epoch: t.Epoch}
	at := []work.Time{t.Use.Since.Add(e.parkPrice(t).Total())}
	if after := t.pool.Elastic.After[classOf(t)]; after > 0 {
		at = append(at, t.Use.Since.Add(after))
	}
	if t.Moved != 0 {
		at = append(at, t.Moved.Add(e.cooldown(t.pool)))
	}
	for _, at := range at {
		if at > e.now {
			e.timers.add(at, timerIdle, o)
		}
	}
}

// relook is how often an idle task is looked at again that nothing could be done with.
const relook = time.Minute

func (e *Engine) lookAgain(t *Task) {
	if a := e.onIdle(t); a == work.IdlePark || a == work.IdleStop {
		e.timers.add(e.now.Add(relook), timerIdle, work.Owner{Task: t.ID, Epoch: t.Epoch})
	}
}

// notIdle forgets that a task idles.
func (e *Engine) notIdle(t *Task) {
	if i, is := slices.BinarySearchFunc(t.pool.idle, t, byNumber); is {
		t.pool.idle = slices.Delete(t.pool.idle, i, i+1)
	}
	t.Use = elastic.Use{}
	e.enrolSupple(t, t.State == work.StateRunning)
}

// lookAtIdle does what is to be done with a task that idles, now that it may be worth it.
func (e *Engine) lookAtIdle(t *Task) {
	p := t.pool
	e.lookAgain(t)
	idle := e.now.Sub(t.Use.Since)
	after := p.Elastic.After[classOf(t)]
	has := after > 0 && idle >= after
	switch e.onIdle(t) {
	case work.IdleStop:
		if has && p.modeFor(t.Spec.Tenant) == work.Dynamic && !e.exempt(t) && !t.lease.Closing {
			e.close(t.lease, work.StateCancel, work.Reasonf(work.Idle, "stopped, as its GPUs were not used for %s and it asked for that (on-idle stop)", inSeconds(idle)))
		}
	case work.IdlePark:
		e.tellShadow(t)
		if has && e.mayPark(t) {
			e.park(t, work.Reasonf(work.Idle, "parked, as its GPUs were not used for %s%s; gpupool wake %d lets it go on", inSeconds(idle), loaded(t.Use), t.ID))
			return
		}
		p.full = p.full || p.queue.Len() > 0 // someone may wait for them
	case work.IdleDefault, work.IdleKeep:
	}
}

func loaded(u elastic.Use) string {
	if u.Loaded() {
		return " (loaded, and waiting)"
	}
	return ""
}

func inSeconds(d time.Duration) string { return work.FormatDuration(d.Round(time.Second)) }

func classOf(t *Task) work.Class {
	if t.Spec.Class == "" {
		return work.Training
	}
	return t.Spec.Class
}

// onIdle is what is to be done with a task that idles.
func (e *Engine) onIdle(t *Task) work.IdleAction {
	if a := t.Spec.OnIdle; a != work.IdleDefault {
		return a
	}
	return t.pool.Elastic.OnIdle[classOf(t)]
}

// exempt reports whether nothing may be taken from a task, by its tenant or a label.
func (e *Engine) exempt(t *Task) bool {
	for _, x := range t.pool.Elastic.Exempt {
		if x == t.Spec.Tenant {
			return true
		}
		for k, v := range t.Spec.Labels { // order: only a yes or no comes out
			if k+"="+v == x {
				return true
			}
		}
	}
	return false
}
