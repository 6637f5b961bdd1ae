package storm

import (
	"context"
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/runner"
	"github.com/gpupool/gpupool/internal/work"
)

// How long a drain may take. A GPU that was set aside after failed carves comes back after ten
// minutes at the most, and a pool that fell back to static stays so.
const (
	drainRounds = 300
	lastRounds  = 40
)

// drain heals everything outside and lets all work come to an end: nothing that was
// acknowledged may be left over, and nothing of it may stand or run.
func (w *world) drain() error {
	w.heal()
	if w.srv == nil {
		if err := w.restart(); err != nil {
			return err
		}
	}
	w.skew = max(0, w.srv.writer.Engine.Now().Sub(w.now)) // the clock is set right, and the engine's time has come
	for _, t := range w.srv.writer.Engine.Tenants() {     // a limit may be less by now than a suspended task needs to go on
		t.LimitGPUs, t.MaxRunning = 0, 0
		if err := w.apply(call{ev: engine.SetTenant{Tenant: t}}); err != nil {
			return err
		}
	}
	for _, g := range w.srv.writer.Engine.GPUs() { // refused where no operator said anything
		if err := w.apply(call{ev: engine.JudgeGPU{GPU: g.Number, Do: gpu.VerdictNone, By: "storm"}}); err != nil {
			return err
		}
	}
	for round := range drainRounds {
		w.healed = round > 2 // what was under way has arrived
		if err := w.round(round); err != nil {
			return err
		}
		if done, err := w.ended(false); done || err != nil {
			if err != nil {
				return err
			}
			break
		}
		if round == drainRounds-1 {
			_, err := w.ended(true)
			return err
		}
	}
	for _, t := range w.srv.writer.Engine.Tasks() { // what can never be placed as things are
		if !t.State.Terminal() {
			if err := w.apply(call{ev: engine.Cancel{Task: t.ID, By: "storm"}}); err != nil {
				return err
			}
		}
	}
	return w.empty()
}

// heal ends all faults.
func (w *world) heal() {
	w.gentle = true
	w.disk.next = kept
	for i, cut := range w.cutOff {
		if cut {
			w.toggleCut(i)
		}
	}
	for _, h := range w.hosts {
		if w.away[h.Name] {
			w.toggleHost(h.Name)
		}
		for _, g := range h.GPUs {
			if w.broken[g.ID] {
				w.toggleGPU(h.Name, g.ID)
			}
			w.driver.Judge(driver.Verdict{GPUID: g.ID, Do: gpu.VerdictNone})
		}
	}
}

// round lets a little time pass in which everything outside does what it is told.
func (w *world) round(n int) error {
	w.now = w.now.Add(11 * time.Second)
	if n%8 == 7 {
		w.now = w.now.Add(2 * time.Minute)
	}
	w.post("observe", w.look())
	if err := w.quiet(); err != nil {
		return err
	}
	for _, t := range w.srv.writer.Engine.Tasks() {
		var ev engine.Event
		switch {
		case t.Held && t.State == work.Queued:
			ev = engine.Hold{Task: t.ID, By: "storm"}
		case t.State == work.Parked && !t.Awake:
			ev = engine.Wake{Task: t.ID, By: "storm"}
		default:
			continue
		}
		if err := w.apply(call{ev: ev}); err != nil {
			return err
		}
	}
	if err := w.apply(call{ev: engine.Tick{}}); err != nil {
		return err
	}
	if err := w.quiet(); err != nil {
		return err
	}
	for _, m := range w.machines.those(func(m *member) bool { return m.runs() && !m.suspended }) {
		w.machines.end(m, runner.Exit{})
	}
	w.report()
	return w.quiet()
}

// quiet lets everything arrive that is under way and can.
func (w *world) quiet() error {
	was := w.gentle
	w.gentle = true
	defer func() { w.gentle = was }()
	for w.srv != nil {
		for _, l := range slices.Clone(w.srv.lanes) {
			for len(l.todo) > 0 && w.reachable(l.todo[0]) {
				w.carryOn(l)
			}
		}
		for _, m := range w.machines.those(func(m *member) bool { return m.runs() && m.stopping && !w.away[m.host] }) {
			w.exit(m, runner.Exit{Code: 143, Signal: "SIGTERM"})
		}
		if len(w.srv.inbox) == 0 {
			return nil
		}
		if err := w.deliver(); err != nil {
			return err
		}
	}
	return nil
}

// ended reports whether only that is left which can never be placed as things are, and what
// comes after it. If it must be so, what else is left is a violation.
func (w *world) ended(must bool) (bool, error) {
	e := w.srv.writer.Engine
	for _, t := range e.Tasks() {
		if t.State.Terminal() {
			continue
		}
		why := e.Why(t)
		switch why.Code {
		case work.WaitCapacity, work.WaitReserve, work.WaitAfter:
			continue
		}
		if must {
			return false, broke("stuck", "task %d is %s for ever: %s %s", t.ID, t.State, why.Code, why.Msg)
		}
		return false, nil
	}
	if ls := e.Leases(); len(ls) > 0 {
		if must {
			return false, leftOver(ls[0])
		}
		return false, nil
	}
	return true, nil
}

func leftOver(l *engine.Lease) error {
	return broke("leaked", "lease %d.%d is left over: its first part is %s", l.Task, l.Epoch, l.Parts[0].Phase)
}

// idle reports whether no task is left and no lease.
func (w *world) idle() bool {
	e := w.srv.writer.Engine
	return len(e.Leases()) == 0 && !slices.ContainsFunc(e.Tasks(), func(t *engine.Task) bool { return !t.State.Terminal() })
}

// empty checks that nothing is left anywhere, before and after a restart.
func (w *world) empty() error {
	for round := range lastRounds {
		if err := w.round(round); err != nil {
			return err
		}
		if w.idle() {
			break
		}
	}
	if err := w.srv.writer.Snapshot(context.Background()); err != nil {
		return broke("recovery", "the last snapshot: %v", err)
	}
	if err := w.restart(); err != nil {
		return err
	}
	if err := w.quiet(); err != nil {
		return err
	}
	e := w.srv.writer.Engine
	for _, t := range e.Tasks() {
		if !t.State.Terminal() {
			return broke("stuck", "task %d is %s after everything was cancelled: %s", t.ID, t.State, e.Why(t).Msg)
		}
	}
	if ls := e.Leases(); len(ls) > 0 {
		return leftOver(ls[0])
	}
	if parts := w.look().Parts; len(parts) > 0 {
		return broke("leaked", "slices stand for %s on %s, and nobody has a lease", parts[0].Owner, parts[0].Host)
	}
	if ms := w.machines.those(func(m *member) bool { return !m.refused }); len(ms) > 0 {
		if ms[0].runs() {
			return broke("leaked", "%s runs, and nobody has a lease", ms[0].owner())
		}
		return broke("leaked", "%s ended, and its end was never taken note of", ms[0].owner())
	}
	for _, g := range e.GPUs() {
		if len(g.Held) > 0 {
			return broke("leaked", "GPU %d is held by %s, and nobody has a lease", g.Number, g.Held[0].Owner)
		}
	}
	return w.same()
}
