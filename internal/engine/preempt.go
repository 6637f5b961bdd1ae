package engine

import (
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/placement"
	"github.com/gpupool/gpupool/internal/queue"
	"github.com/gpupool/gpupool/internal/work"
)

// reclaim lets tasks yield for those who have a right to what they hold: tenants who
// have less than they are guaranteed, from those who have more; and the tasks of a
// pool, from guests. Who loses the least work since its last checkpoint goes first.
// What is freed is kept for the task that it is freed for. It reports whether what was
// kept for another was given up.
func (e *Engine) reclaim(p *pool) (gaveUp bool) {
	const most = 16 // tasks in one pass
	looks := 0
	for _, line := range p.failed {
		if line.Len() == 0 {
			continue
		}
		t := e.tasks[line.First().ID]
		if r := e.Reservation(t); r != nil && len(r.Victims) > 0 {
			continue // some yield already
		}
		if !e.mayReclaim(p, t) {
			continue
		}
		if t.asked != 0 && e.now < t.asked.Add(reclaimEvery) {
			continue // nobody could yield, just now
		}
		if looks++; looks > most {
			break
		}
		lifted := e.lift(p)
		for _, r := range lifted {
			if len(r.Victims) > 0 { // they yield for its task, and for no other
				e.keepParts(r)
			}
		}
		had := e.Reservation(t)
		e.reclaimFor(p, t)
		gaveUp = e.restore(p, lifted) || had != nil && e.Reservation(t) != had || gaveUp
	}
	return gaveUp
}

// mayReclaim reports whether a task has a right to what some others hold.
func (e *Engine) mayReclaim(p *pool, t *Task) bool {
	if e.cfg.Rules.Order == queue.ByAttained {
		return queue.Level(e.attained(t)) == 0
	}
	return p.guests > 0 && t.pool == p || e.guaranteed(t)
}

// reclaimEvery is how long nobody is asked again to yield for a task after it was asked
// in vain: the search is for someone to wait for, and not free.
const reclaimEvery = time.Minute

func (e *Engine) reclaimFor(p *pool, t *Task) {
	x := &reclaimer{e: e, p: p, t: t, right: e.guaranteed(t)}
	y, ok := e.cluster.Reclaim(placement.Reclaim{
		Query: placement.Query{Pool: p.Name, Tenant: t.Spec.Tenant, Request: p.wants(t)},
		Below: work.High, Claim: x.claim, Budget: x.budget,
	})
	if most := p.PreemptPerHour; ok && most > 0 {
		var f Reserved
		for _, o := range y.Tasks {
			f.Victims = append(f.Victims, o.Task)
		}
		own := e.ownVictims(f)
		ok = own == 0 || e.preemptedLately(p)+own <= most
	}
	if !ok || len(y.Tasks) == 0 {
		t.asked = e.now
		e.timers.add(e.now.Add(reclaimEvery), timerPass, work.Owner{Task: t.ID, Member: p.number})
		return
	}
	f := Reserved{Task: t.ID, At: e.now, Parts: namesOnly(y.Parts)}
	for _, o := range y.Tasks {
		f.Victims = append(f.Victims, o.Task)
		f.At = max(f.At, e.now.Add(e.grace(e.tasks[o.Task])))
	}
	e.emit(f)
	for _, o := range y.Tasks {
		l := e.leaseAt(o.Task, o.Epoch)
		why := work.Reasonf(work.Preempted, "it yields to %s, which has a right to its GPUs; it goes back to its place in line", taskList([]work.TaskID{t.ID}, e.owns(l.of)))
		e.close(l, work.Queued, why)
	}
}

// namesOnly leaves of parts what Keep needs: each GPU once, though members may share it.
func namesOnly(parts []work.Part) []work.Part {
	out := slices.Clone(parts)
	seen := map[int]bool{}
	for i := range out {
		s := make([]work.Slice, 0, len(out[i].Slices))
		for _, x := range out[i].Slices {
			if !seen[x.GPU] {
				seen[x.GPU] = true
				s = append(s, work.Slice{GPU: x.GPU})
			}
		}
		out[i].Slices = s
	}
	return out
}

// reclaimer says who may be asked to yield for a task.
type reclaimer struct {
	e     *Engine
	p     *pool
	t     *Task
	right bool           // by its tenant's guarantee
	spare map[string]int // what tenants may lose, as found so far
}

func (x *reclaimer) claim(o work.Owner) (placement.Claim, bool) {
	e := x.e
	v := e.tasks[o.Task]
	if v == nil || v.State != work.StateRunning || v.lease.Closing || v.Spec.NoPreempt {
		return placement.Claim{}, false
	}
	if e.cfg.Rules.Order == queue.ByAttained {
		had := e.attained(v)
		if queue.Level(had) <= queue.Level(e.attained(x.t)) {
			return placement.Claim{}, false
		}
		k, ok := e.claim(o)
		k.Lost = int64(1<<40 - had/time.Second) // who has had the most goes first
		return k, ok
	}
	guest := e.guest(v.lease)
	mine := guest || x.right && v.Spec.Tenant != x.t.Spec.Tenant
	if !mine || e.now < v.Started.Add(x.p.MinRuntime) {
		return placement.Claim{}, false
	}
	k, ok := e.claim(o)
	if guest {
		k.Tenant = "" // it has no right to what it holds: that is nobody's budget
	}
	if ok && e.onIdle(x.t) == work.IdlePark { // it will want a GPU of this very host whenever it wakes, as those do that sleep there
		h := v.lease.Parts[0].Host
		k.Lost += int64(e.sleepers(h)) * int64(perSleeper/time.Millisecond) / int64(len(e.cluster.Hosts[h].GPUs))
	}
	return k, ok
}

// budget is how much of GPUs a tenant may be asked for, in thousandths: never so much
// that it falls below its own guarantee, once those have ended that are ending already.
func (x *reclaimer) budget(tenant string) int {
	if tenant == "" || x.e.cfg.Rules.Order == queue.ByAttained {
		return 1 << 40
	}
	if most, known := x.spare[tenant]; known {
		return most
	}
	most := x.e.use[tenant].milli - x.e.closingMilli(tenant)
	if o := x.e.tenants[tenant]; o != nil {
		most -= x.e.guarantee(o)
	}
	if x.spare == nil {
		x.spare = map[string]int{}
	}
	x.spare[tenant] = max(most, 0)
	return x.spare[tenant]
}

// preemptedLately counts the preemptions of the last hour.
func (e *Engine) preemptedLately(p *pool) int {
	n := 0
	for _, t := range p.preempts {
		if t.Add(time.Hour) > e.now {
			n++
		}
	}
	return n
}

// preempt sends a running task back to the queue.
func (e *Engine) preempt(ev Preempt) error {
	t, err := e.active(ev.Task)
	switch {
	case err != nil:
		return err
	case t.Spec.External() || t.State != work.StateRunning || t.lease == nil || t.lease.Closing:
		return work.Errorf(work.CodeConflict, "task %d is %s: only a running task can be sent back to the queue", t.ID, t.State)
	}
	e.close(t.lease, work.Queued, work.Reasonf(work.Preempted, "sent back to the queue by %s", ev.By))
	return nil
}

// checkpoint notes that a task has saved its work.
func (e *Engine) checkpoint(ev Checkpoint) error {
	t, err := e.active(ev.Task)
	switch {
	case err != nil:
		return err
	case t.State != work.StateRunning:
		return work.Errorf(work.CodeConflict, "task %d is %s: only a running task saves its work", t.ID, t.State)
	}
	e.emit(Checkpointed(ev))
	return nil
}

// saved is how much of this attempt a task would keep if it stopped now.
func (e *Engine) saved(t *Task, now work.Time) time.Duration {
	ran := t.Carried
	if t.State != work.Parked {
		ran += now.Sub(t.Started)
	}
	switch {
	case t.Spec.OnResize == work.ResizeRestart: // it is told, and has its grace for that
		return ran
	case t.Checked > t.Started:
		return t.Carried + t.Checked.Sub(t.Started)
	case t.Spec.Checkpoint > 0:
		return ran - ran%t.Spec.Checkpoint
	}
	return 0
}

// attained is the GPU time that a task has had.
func (e *Engine) attained(t *Task) time.Duration {
	ran := t.Ran
	if t.State == work.StateRunning {
		ran += e.now.Sub(t.Started)
	}
	r := t.pool.wants(t)
	return time.Duration(float64(ran) * gpus(leastMilli(r)))
}
