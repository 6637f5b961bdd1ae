package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// What is wrong with a GPU is said by three, each for itself: an operator, the GPU's
// driver, and the engine, which doubts a GPU for a while on which slices could not be
// made. Nobody lifts what another said; the heaviest word counts (docs/adr/013-health.md).

// Said is what an operator or a driver wants done with a GPU.
type Said struct {
	Do   gpu.Verdict `json:"do"`
	Why  string      `json:"why,omitempty"`
	By   string      `json:"by"`             // the operator, or the driver
	Mend string      `json:"mend,omitempty"` // the command that mends it once it is empty
	At   work.Time   `json:"at"`
}

// ill is what is known of a GPU that is not simply well.
type ill struct {
	operator, driver *Said
	strikes          int       // failed carves in a row
	until            work.Time // doubted until then; 0 = not
	doubt            string    // why
	since            work.Time // its health is what it is
}

// verdict is the heaviest word on the GPU, and whose it is.
func (x ill) verdict() *Said {
	weight := func(s *Said) int {
		if s == nil {
			return 0
		}
		return slices.Index(gpu.Verdicts(), s.Do)
	}
	if weight(x.operator) > weight(x.driver) {
		return x.operator
	}
	return x.driver
}

// health is what follows for a GPU on which something stands, or nothing.
func (x ill) health(empty bool) (gpu.Health, string) {
	if v := x.verdict(); v != nil {
		switch {
		case v.Do == gpu.VerdictBroken:
			return gpu.HealthBroken, v.Why
		case v.Do == gpu.VerdictCordon:
			return gpu.HealthCordoned, v.Why
		case empty:
			return gpu.HealthDrained, v.Why
		}
		return gpu.HealthDraining, v.Why
	}
	if x.until > 0 {
		return gpu.HealthSuspect, x.doubt
	}
	return gpu.HealthOK, ""
}

// restate states the health of a GPU as it is after something was learned of it.
func (e *Engine) restate(n int, learn func(*ill)) {
	x := e.ills[n]
	learn(&x)
	g := e.cluster.GPUs[n]
	was := g.Health
	health, why := x.health(len(g.Held) == 0)
	if health != was {
		x.since = e.now
	}
	e.emit(GPUChanged{GPU: n, Health: health, Strikes: x.strikes, Until: x.until, Why: why, Doubt: x.doubt,
		Operator: x.operator, Driver: x.driver, Since: x.since})
}

// stated is the last word on a GPU as a fact.
func (e *Engine) stated(n int) GPUChanged {
	g, x := e.cluster.GPUs[n], e.ills[n]
	return GPUChanged{GPU: n, Health: g.Health, Strikes: x.strikes, Until: x.until, Why: g.Why, Doubt: x.doubt,
		Operator: x.operator, Driver: x.driver, Since: x.since}
}

func (e *Engine) applyGPU(f GPUChanged) {
	e.unscaled = true
	x := ill{f.Operator, f.Driver, f.Strikes, f.Until, f.Doubt, f.Since}
	if f.Health == gpu.HealthBroken && f.Driver == nil { // written by an older gpupool
		x.driver = &Said{Do: gpu.VerdictBroken, Why: f.Why, At: e.now}
	}
	if f.Health == gpu.HealthSuspect {
		x.doubt = f.Why
	}
	e.setIll(f.GPU, x)
	e.cluster.SetHealth(f.GPU, f.Health, f.Until, f.Why)
	if f.Until > 0 {
		e.timers.add(f.Until, timerGPU, work.Owner{Member: f.GPU})
	}
	host := e.cluster.Hosts[e.cluster.GPUs[f.GPU].Host]
	e.disturbed = append(e.disturbed, f.GPU)
	if f.Health.Out() { // those that sleep there may have nowhere to wake
		for _, n := range host.GPUs {
			if len(e.liens[n]) > 0 {
				e.disturbed = append(e.disturbed, n)
			}
		}
	}
	e.wakeHost(host.Number)
}

// setIll keeps what is known of a GPU, if anything is wrong.
func (e *Engine) setIll(n int, x ill) {
	if x == (ill{since: x.since}) {
		delete(e.ills, n)
	} else {
		e.ills[n] = x
	}
}

// cleared forgets failed carves of a GPU, as one went well.
func (e *Engine) cleared(n int) {
	if x, is := e.ills[n]; is {
		x.strikes = 0
		e.setIll(n, x)
	}
}

// judgeGPU is an operator's word on a GPU.
func (e *Engine) judgeGPU(ev JudgeGPU) error {
	if ev.GPU < 0 || ev.GPU >= len(e.cluster.GPUs) {
		return work.Errorf(work.CodeNotFound, "GPU %d is not known: gpupool gpus lists them", ev.GPU)
	}
	x := e.ills[ev.GPU]
	switch {
	case ev.Do != gpu.VerdictNone && ev.Do != gpu.VerdictCordon && ev.Do != gpu.VerdictDrain:
		return work.Errorf(work.CodeInvalid, "a GPU can be cordoned, drained or uncordoned; %q is none of these", ev.Do)
	case ev.Do == gpu.VerdictNone && x.operator == nil && x.driver != nil:
		return work.Errorf(work.CodeConflict, "GPU %d is %s because its driver says so (%s), and no operator's word lifts that: it comes back by itself once that is mended%s",
			ev.GPU, e.cluster.GPUs[ev.GPU].Health, x.driver.Why, mendNote(x.driver.Mend))
	case ev.Do == gpu.VerdictNone && x.operator == nil:
		return nil
	case x.operator != nil && x.operator.Do == ev.Do && x.operator.Why == ev.Why:
		return nil
	}
	e.restate(ev.GPU, func(x *ill) {
		x.operator = nil
		if ev.Do != gpu.VerdictNone {
			x.operator = &Said{Do: ev.Do, Why: ev.Why, By: ev.By, At: e.now}
		}
	})
	return nil
}

func mendNote(mend string) string {
	if mend == "" {
		return ""
	}
	return ": " + mend
}

// seeVerdicts compares what a driver wants done with its GPUs with what it wanted.
func (e *Engine) seeVerdicts(ev Inventory) {
	said := map[string]Verdict{}
	for _, v := range ev.Verdicts {
		said[v.ID] = v
	}
	for _, info := range ev.Hosts {
		if h := e.cluster.HostByName(info.Name); h == nil || h.Info.Driver != ev.Driver {
			continue
		}
		for _, gi := range info.GPUs {
			if g := e.cluster.GPUByID(gi.ID); g != nil {
				v := said[gi.ID]
				e.seeVerdict(g.Number, v, ev.Driver)
			}
		}
	}
}

func (e *Engine) seeVerdict(n int, v Verdict, driver string) {
	var was Said
	if d := e.ills[n].driver; d != nil {
		was = *d
	}
	if was.Do == v.Do && was.Why == v.Why && was.Mend == v.Mend {
		return
	}
	e.restate(n, func(x *ill) {
		x.driver = nil
		if v.Do != gpu.VerdictNone {
			x.driver = &Said{Do: v.Do, Why: v.Why, By: driver, Mend: v.Mend, At: e.now}
			if v.Do == was.Do {
				x.driver.At = was.At
			}
		}
		if v.Do == gpu.VerdictBroken { // what it did before does not matter any more
			x.strikes, x.until, x.doubt = 0, 0, ""
		}
	})
	if v.Do == gpu.VerdictBroken {
		e.loseGPU(n, v.Why)
	}
}

// loseGPU sends the tasks on a broken GPU back to the queue.
func (e *Engine) loseGPU(n int, why string) {
	for _, l := range e.leasesAt(n) {
		switch struck := e.struck(l.of); {
		case l.Closing:
		case struck >= e.cfg.AllocRetries:
			e.close(l, work.Failed, work.Reasonf(work.GPUFailed, "GPU %d broke (%s), the last of %d in a row to fail soon after this task was started there: given up, as it may be what breaks them", n, why, struck))
		default:
			e.lose(l, work.Reasonf(work.GPUFailed, "GPU %d broke: %s", n, why))
		}
	}
}

// leasesAt lists the leases with slices on a GPU.
func (e *Engine) leasesAt(n int) (out []*Lease) {
	for _, h := range e.cluster.GPUs[n].Held {
		if l := e.leaseAt(h.Owner.Task, h.Owner.Epoch); l != nil && !slices.Contains(out, l) {
			out = append(out, l)
		}
	}
	return out
}

// disturb asks for a look at GPUs that are out of use, as what stands on them has changed.
func (e *Engine) disturb(s []work.Slice) {
	for _, x := range s {
		if e.cluster.GPUs[x.GPU].Health.Out() {
			e.disturbed = append(e.disturbed, x.GPU)
		}
	}
}

// attend looks at GPUs whose health changed, and at those out of use of which something
// came free: whoever is to leave one does. It costs what stands on them.
func (e *Engine) attend() {
	for len(e.disturbed) > 0 {
		all := e.disturbed
		e.disturbed = nil
		slices.Sort(all)
		for _, n := range slices.Compact(all) {
			e.attendTo(n)
		}
	}
}

func (e *Engine) attendTo(n int) {
	g := e.cluster.GPUs[n]
	switch g.Health {
	case gpu.HealthDraining:
		for _, l := range e.leasesAt(n) {
			e.moveOff(l, n)
		}
		if len(g.Held) == 0 {
			e.restate(n, func(*ill) {})
		}
	case gpu.HealthOK, gpu.HealthSuspect, gpu.HealthCordoned:
		for _, l := range e.leasesAt(n) {
			if l.Recalled && !l.Closing && e.drains(l) < 0 {
				e.emit(Recalled{Task: l.Task, Epoch: l.Epoch, Off: true,
					Reason: work.Reasonf(work.Running, "GPU %d is not drained any more: the lease may be renewed as before", n)})
			}
		}
	case gpu.HealthDrained, gpu.HealthBroken:
	}
	for _, t := range slices.Clone(e.liens[n]) {
		e.wakesNowhere(t, n)
	}
}

// drains is a GPU of a lease that is being drained, or -1.
func (e *Engine) drains(l *Lease) int {
	for _, p := range l.Parts {
		for _, s := range p.Slices {
			if e.cluster.GPUs[s.GPU].Health == gpu.HealthDraining {
				return s.GPU
			}
		}
	}
	return -1
}

// moveOff sends a lease away from a GPU that is being drained. A task ends within its
// grace and goes back to its place in line; one that is being parked leaves anyway. An
// outside client cannot be asked to move: it is told, keeps what it has for one more TTL,
// and cannot renew it.
func (e *Engine) moveOff(l *Lease, n int) {
	t := l.of
	if l.Closing || l.Parts[0].Phase == PhaseSuspending || l.Parts[0].Phase == PhaseVacating {
		return
	}
	if t.Spec.External() && t.State == work.StateRunning {
		if !l.Recalled {
			e.emit(Renewed{l.Task, l.Epoch, e.now.Add(t.Spec.LeaseTTL)})
			e.emit(Recalled{Task: l.Task, Epoch: l.Epoch, Reason: work.Reasonf(work.Drained,
				"GPU %d is being drained (%s): give it back; it is taken in %s, and cannot be renewed", n, e.whyOut(n), t.Spec.LeaseTTL)})
		}
		return
	}
	e.evict(l, n)
}

// evict ends a lease on a GPU that is being drained. A task whose GPUs fail under it soon
// after it starts, one after another, may be what breaks them: it ends after as many as
// an allocation may fail.
func (e *Engine) evict(l *Lease, n int) {
	t := l.of
	why := work.Reasonf(work.Drained, "GPU %d is being drained (%s); it goes back to its place in line", n, e.whyOut(n))
	if e.ills[n].verdict() == e.ills[n].driver {
		why.Code = work.GPUFailed
		if struck := e.struck(t); struck >= e.cfg.AllocRetries {
			e.close(l, work.Failed, work.Reasonf(work.GPUFailed, "GPU %d is being drained (%s), the last of %d in a row to fail soon after this task was started there: given up, as it may be what breaks them",
				n, e.whyOut(n), struck))
			return
		}
	}
	e.close(l, work.Queued, why)
}

// strikeTime is how long a task must have run for a GPU that fails then not to be held
// against it.
const strikeTime = time.Hour

// struck is how many GPUs failed in a row under a task that ran on each for less than
// strikeTime, if one does now.
func (e *Engine) struck(t *Task) int {
	if t.State != work.Starting && e.now >= t.Started.Add(strikeTime) {
		return 0
	}
	return t.Struck + 1
}

// applyStruck counts an attempt that ends because of its GPU.
func (e *Engine) applyStruck(l *Lease) {
	switch l.Reason.Code {
	case work.GPUFailed:
		l.of.Struck = e.struck(l.of)
		l.of.Drained++
	case work.Drained:
		l.of.Drained++
	}
}

// wakesNowhere sends a parked task back to the queue when its host does not have as many
// GPUs left as it needs to wake, so that it starts again elsewhere.
func (e *Engine) wakesNowhere(t *Task, n int) {
	if !e.sleeps(t) || t.lease.Closing {
		return
	}
	p := t.lease.Parts[0]
	left := e.wakeable(t.lease)
	if left >= len(p.Was) {
		return
	}
	e.close(t.lease, work.Queued, work.Reasonf(work.Drained, "it is suspended on host %s, where GPU %d is %s (%s) and too few are left for it to wake; it starts again elsewhere",
		e.cluster.Hosts[p.Host].Info.Name, n, e.cluster.GPUs[n].Health, e.whyOut(n)))
}

// wakeable is how many GPUs of its host a parked lease might wake on.
func (e *Engine) wakeable(l *Lease) (left int) {
	p := l.Parts[0]
	for _, x := range e.cluster.Hosts[p.Host].GPUs {
		g := e.cluster.GPUs[x]
		switch {
		case g.Model != e.cluster.GPUs[p.Was[0].GPU].Model:
		case g.Health == gpu.HealthDraining || g.Health == gpu.HealthDrained || g.Health == gpu.HealthBroken:
		default:
			left++
		}
	}
	return left
}

// whyOut says why a GPU is out of use, and who said so.
func (e *Engine) whyOut(n int) string {
	v := e.ills[n].verdict()
	if v == nil {
		return "it is not"
	}
	by := "its driver"
	if v == e.ills[n].operator {
		by = v.By
	}
	if v.Why == "" {
		return by + " says so"
	}
	return by + ": " + v.Why
}

// recalled refuses to renew a lease on a GPU that is being drained.
func (e *Engine) recalled(l *Lease) error {
	n := e.drains(l)
	if !l.Recalled || n < 0 {
		return nil
	}
	return work.Errorf(work.CodeConflict, "lease %d cannot be renewed, as GPU %d is being drained (%s): give it back before %s UTC and ask for another",
		l.Task, n, e.whyOut(n), l.Expires.Std().UTC().Format("15:04:05"))
}

func (e *Engine) applyRecalled(f Recalled) {
	l := e.leaseAt(f.Task, f.Epoch)
	l.Recalled = !f.Off
	l.of.Reason = f.Reason
}

// onAiling reports whether a GPU that a task has is out of use: what the task gives
// up of it is of use to nobody, and it must not have more of it.
func (e *Engine) onAiling(t *Task) bool {
	for _, p := range t.lease.Parts {
		for _, s := range p.Slices {
			if e.cluster.GPUs[s.GPU].Health.Out() {
				return true
			}
		}
	}
	return false
}

// ailingNote tells of a GPU of a running task that is out of use for others.
func (e *Engine) ailingNote(t *Task) string {
	for _, p := range t.lease.Parts {
		for _, s := range p.Slices {
			if g := e.cluster.GPUs[s.GPU]; g.Health.Out() {
				return fmt.Sprintf("; its GPU %d is %s (%s), and it goes on there", g.Number, g.Health, e.whyOut(g.Number))
			}
		}
	}
	return ""
}
