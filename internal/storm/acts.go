package storm

import (
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/host"
	"github.com/gpupool/gpupool/internal/runner"
	"github.com/gpupool/gpupool/internal/work"
)

// act plays one step.
func (w *world) act(a act) error {
	if w.outside(a) {
		return nil
	}
	if w.srv == nil {
		if w.chance(40) {
			return nil // it stays down
		}
		return w.restart()
	}
	switch a {
	case submits:
		return w.submit(w.newRequest())
	case retries:
		return w.retry()
	case cancels:
		return w.cancel()
	case leases:
		return w.leaseCall()
	case asks:
		return w.ask()
	case settings:
		return w.settle()
	case carries:
		for range 1 + w.rng.IntN(5) {
			w.carryOne()
		}
	case answers:
		return w.deliver()
	case observes:
		if !w.cutOff[0] {
			w.post("observe", w.look())
		}
	case measures:
		return w.apply(call{ev: w.used()})
	case ticks:
		if at, ok := w.srv.writer.Engine.NextDeadline(); ok && w.chance(50) { // as a host's timer does
			w.now = w.now.Add(max(min(at.Sub(w.clock()), 10*time.Minute), 0))
		}
		return w.apply(call{ev: engine.Tick{}})
	case lulls:
		if len(w.srv.inbox)+len(w.srv.lanes) > 0 {
			w.fault("delay")
		}
		w.now = w.now.Add(pick(w, 20*time.Second, 40*time.Second, 3*time.Minute))
		return w.apply(call{ev: engine.Tick{}})
	case rests:
		return w.quiet()
	case crashes:
		w.fault("crash")
		w.crash()
	case diskFaults:
		w.disk.next = fate(1 + w.rng.IntN(fateCount-1))
	}
	return nil
}

// outside plays what needs no server, and reports whether that is all.
func (w *world) outside(a act) bool {
	switch a {
	case exits:
		if ms := w.machines.those(func(m *member) bool { return m.runs() && !m.suspended && !w.away[m.host] }); len(ms) > 0 {
			w.exit(pick(w, ms...), pick(w, runner.Exit{}, runner.Exit{}, runner.Exit{}, runner.Exit{Code: 3}, runner.Exit{Code: 137, Signal: "SIGKILL"}))
		}
	case obeys:
		if ms := w.machines.those(func(m *member) bool { return m.runs() && m.stopping && !w.away[m.host] }); len(ms) > 0 {
			w.exit(pick(w, ms...), pick(w, runner.Exit{Code: 143, Signal: "SIGTERM"}, runner.Exit{}))
		}
	case cuts:
		what := w.rng.IntN(2)
		if w.cutOff[1-what] { // rather back than both
			what = 1 - what
		}
		w.toggleCut(what)
	case hostFaults:
		name := pick(w, w.hosts...).Name
		for _, h := range w.hosts {
			if w.away[h.Name] && w.chance(70) { // rather back than one more
				name = h.Name
			}
		}
		w.toggleHost(name)
	case reboots:
		w.reboot(pick(w, w.hosts...).Name)
	case gpuFaults:
		w.gpuFault()
	case clockJumps:
		w.jump()
	default:
		return false
	}
	return true
}

func (w *world) exit(m *member, x runner.Exit) {
	if x.Code != 0 && !m.stopping {
		w.fault("process_failed")
	}
	w.machines.end(m, x)
	w.report()
}

func (w *world) toggleCut(what int) {
	w.cutOff[what] = !w.cutOff[what]
	if w.cutOff[what] {
		w.fault([]Fault{"driver_partition", "runner_partition"}[what])
		return
	}
	if w.srv != nil {
		for _, l := range slices.Clone(w.srv.lanes) {
			w.settleLane(l)
		}
	}
	w.report()
}

func (w *world) toggleHost(name string) {
	w.away[name] = !w.away[name]
	w.driver.LoseHost(name, w.away[name])
	if w.away[name] {
		w.fault("host_lost")
		return
	}
	w.fault("host_back")
	w.report()
}

// reboot empties a host: no instance and no process survives that.
func (w *world) reboot(name string) {
	w.fault("host_rebooted")
	w.driver.Reboot(name)
	for _, m := range w.machines.those(func(m *member) bool { return m.runs() && m.host == name }) {
		w.machines.end(m, runner.Exit{Lost: "its host was restarted"})
	}
	w.report()
}

// toggleGPU breaks a GPU, or has it repaired: what was on it is gone then, and whoever used it
// dies.
func (w *world) toggleGPU(name, id string) {
	if w.away[name] {
		return
	}
	w.broken[id] = !w.broken[id]
	if w.broken[id] {
		w.fault("gpu_broken")
		w.driver.LoseGPU(id, "XID 79")
		return
	}
	w.fault("gpu_repaired")
	before := w.look().Parts
	w.driver.LoseGPU(id, "")
	after := w.look().Parts
	for _, p := range before {
		if slices.Contains(after, p) {
			continue
		}
		for _, m := range w.machines.those(func(m *member) bool { return m.runs() && !m.suspended && slices.Contains(m.holds, p.Owner) }) {
			w.machines.end(m, runner.Exit{Code: 1})
		}
	}
	w.report()
}

// gpuFault breaks a GPU, or has one repaired that is broken.
func (w *world) gpuFault() {
	h := pick(w, w.hosts...)
	id := pick(w, h.GPUs...).ID
	for _, x := range w.hosts {
		for _, g := range x.GPUs {
			if w.broken[g.ID] && w.chance(60) {
				h, id = x, g.ID
			}
		}
	}
	switch {
	case w.chance(50):
		w.toggleGPU(h.Name, id)
	case w.chance(70):
		w.fault("gpu_verdict")
		w.driver.Judge(driver.Verdict{GPUID: id, Do: pick(w, gpu.VerdictNone, gpu.VerdictNone, gpu.VerdictCordon, gpu.VerdictDrain), Why: "XID 48"})
	default:
		w.fault("program_fault")
		f := driver.Fault{GPUID: id, At: w.clock().Std(), Code: "XID 31", What: "memory page fault"}
		if ms := w.machines.those(func(m *member) bool { return m.runs() && m.host == h.Name }); len(ms) > 0 && w.chance(70) {
			f.Owner = pick(w, ms...).owner()
		}
		w.driver.Fault(f)
	}
}

func (w *world) jump() {
	switch w.rng.IntN(3) {
	case 0:
		w.fault("clock_forward")
		w.skew += time.Duration(1+w.rng.IntN(7200)) * time.Second
	case 1:
		w.fault("clock_back")
		w.skew -= time.Duration(1+w.rng.IntN(600)) * time.Second
	default:
		w.fault("clock_set")
		w.skew = 0
	}
}

// deliver lets mail reach the writer: some of it, from any place first, now and then twice.
func (w *world) deliver() error {
	s := w.srv
	var calls []call
	for range 1 + w.rng.IntN(4) {
		if len(s.inbox) == 0 {
			break
		}
		i := w.rng.IntN(len(s.inbox))
		for j := range i { // what comes from one place stays in order
			if s.inbox[j].from == s.inbox[i].from {
				i = j
				break
			}
		}
		x := s.inbox[i]
		if i > 0 {
			w.fault("reorder")
		}
		if w.now.Sub(x.sent) > 20*time.Second {
			w.fault("late_answer")
		}
		s.inbox = slices.Delete(s.inbox, i, i+1)
		ev := x.ev
		if w.bug.answer != nil {
			if ev = w.bug.answer(w, ev); ev == nil {
				continue
			}
		}
		calls = append(calls, call{ev: ev})
		if !w.plan.temper.calm && !w.gentle && w.chance(6) {
			w.fault("duplicate")
			calls = append(calls, call{ev: ev})
		}
	}
	if len(calls) == 0 {
		return nil
	}
	return w.apply(calls...)
}

// carryOne goes on with one lane, as far as its other side can be reached.
func (w *world) carryOne() {
	s := w.srv
	if len(s.lanes) == 0 {
		return
	}
	w.carryOn(s.lanes[w.rng.IntN(len(s.lanes))])
}

// carryOn carries the first command of a lane out.
func (w *world) carryOn(l *lane) {
	s, c := w.srv, l.todo[0]
	switch {
	case l.done: // nobody hears of it yet
	case w.reachable(c):
		w.sabotage(c)
		l.answer, l.done = w.carry(s, c), true
		w.driver.FailCarves(0, "")
		w.driver.HalfCarves(0)
		w.driver.HalfFrees(0)
		w.machines.fail = false
		if !w.cutOff[0] && !w.cutOff[1] && !w.plan.temper.calm && !w.gentle && w.chance(3) {
			w.fault("command_twice")
			l.todo = slices.Insert(l.todo, 1, c)
		}
	case w.chance(30) && w.side(c) >= 0 && w.cutOff[w.side(c)] && !w.hostAway(c): // it went through; its answer does not
		w.fault("answer_cut_off")
		l.answer, l.done = w.carry(s, c), true
		return
	}
	w.settleLane(l)
}

// settleLane sends the answer of a lane's first command, if it has one that can arrive.
func (w *world) settleLane(l *lane) {
	s := w.srv
	if !l.done || !w.reachable(l.todo[0]) {
		return
	}
	if l.answer != nil {
		w.post("lane "+l.owner.String(), l.answer)
	}
	l.todo, l.answer, l.done = l.todo[1:], nil, false
	if len(l.todo) == 0 {
		s.lanes = slices.DeleteFunc(s.lanes, func(x *lane) bool { return x == l })
	}
}

// carry carries a command out.
func (w *world) carry(s *server, c engine.Command) engine.Event {
	ev := s.hands.Do(c)
	if done, is := ev.(engine.ResumeDone); is { // it is on other slices now
		id := runner.ID{Task: uint64(done.Owner.Task), Epoch: done.Owner.Epoch, Member: done.Owner.Member}
		for _, l := range s.writer.Engine.Leases() {
			if l.Task == done.Owner.Task && (l.Runs == done.Owner.Epoch || l.Runs == 0 && l.Epoch == done.Owner.Epoch) {
				w.machines.attach(w.machines.known(id), work.Owner{Task: l.Task, Epoch: l.Epoch, Member: done.Owner.Member})
			}
		}
	}
	return ev
}

// side is what a command goes to: 0 the driver, 1 the runner, -1 neither.
func (w *world) side(c engine.Command) int {
	switch c.(type) {
	case engine.CarveCmd, engine.ResizeCmd, engine.FreeCmd:
		return 0
	}
	return 1
}

// reachable reports whether a call comes back: those of a driver do where a host is lost, with
// an error; those of a runner do not.
func (w *world) reachable(c engine.Command) bool {
	return !w.cutOff[w.side(c)] && (w.side(c) == 0 || !w.hostAway(c))
}

func (w *world) hostAway(c engine.Command) bool {
	if start, is := c.(engine.StartCmd); is {
		return w.away[start.Host]
	}
	o, _ := host.LaneOf(c)
	m := w.machines.known(runner.ID{Task: uint64(o.Task), Epoch: o.Epoch, Member: o.Member})
	return m != nil && w.away[m.host]
}

// sabotage lets the next call fail, now and then.
func (w *world) sabotage(c engine.Command) {
	if w.plan.temper.calm || w.gentle || !w.chance(12) {
		return
	}
	switch c.(type) {
	case engine.CarveCmd:
		if w.chance(50) {
			w.fault("carve_half")
			w.driver.HalfCarves(1)
			return
		}
		w.fault("carve_failed")
		w.driver.FailCarves(1, driver.ErrHardware)
	case engine.FreeCmd:
		w.fault("free_half")
		w.driver.HalfFrees(1)
	case engine.StartCmd:
		w.fault("start_failed")
		w.machines.fail = true
	case engine.SuspendCmd:
		w.fault("suspend_failed")
		w.machines.fail = true
	case engine.ResumeCmd:
		w.fault("resume_failed")
		w.machines.fail = true
	}
}

// used measures some of what runs: busy, idle, or not known.
func (w *world) used() engine.Event {
	var u engine.Usage
	took := 20 * time.Second
	if w.plan.temper.supple {
		w.now = w.now.Add(pick(w, time.Minute, 10*time.Minute))
		took = 10 * time.Minute
	}
	for _, l := range w.srv.writer.Engine.Leases() {
		if !w.chance(70) {
			continue
		}
		for i := range l.Parts {
			x := engine.UsageSample{Owner: work.Owner{Task: l.Task, Epoch: l.Epoch, Member: i}, For: took, Compute: pick(w, 0, 0, 0, 0.5, 1, -1), MemMiB: pick[int64](w, -1, 0, 20_000)}
			if w.plan.temper.supple && w.chance(80) {
				x.Compute, x.MemMiB = []float64{0, 0.2, 0.4, 1}[(int(l.Task)+int(l.Epoch))%4], 1000
			}
			u.Samples = append(u.Samples, x)
		}
	}
	return u
}
