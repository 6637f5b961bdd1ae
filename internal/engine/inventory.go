package engine

import (
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

func (e *Engine) setPools(pools []work.Pool) error {
	seen := map[string]bool{}
	for _, p := range pools {
		switch {
		case p.Name == "" || strings.ContainsAny(p.Name, " \t\n/"):
			return work.Errorf(work.CodeInvalid, "pool name %q is not usable: expected one word without spaces or slashes", p.Name)
		case seen[p.Name]:
			return work.Errorf(work.CodeInvalid, "pool %s is named twice", p.Name)
		case !slices.Contains(work.Modes(), p.Mode):
			return work.Errorf(work.CodeInvalid, "pool %s: mode %q is not known: use static, shadow or dynamic", p.Name, p.Mode)
		}
		if w := weightOf(p); !(w >= 0 && w <= 1 && p.BackPressure >= 0 && p.BackPressure <= 1 && p.Capacity >= 0 && p.AskAt >= 0 && p.ReserveGPUs >= 0) {
			return work.Errorf(work.CodeInvalid, "pool %s: expected a weight and a back-pressure from 0 to 1, and bounds that are not negative", p.Name)
		}
		for _, pattern := range p.Hosts {
			if _, err := path.Match(pattern, ""); err != nil {
				return work.Errorf(work.CodeInvalid, "pool %s: host pattern %q is not understood: use * and ? and [a-z]", p.Name, pattern)
			}
		}
		seen[p.Name] = true
	}
	for _, p := range pools {
		if old := e.pools[p.Name]; old == nil || !reflect.DeepEqual(old.Pool, p) {
			if old != nil && old.Mode != p.Mode {
				e.rolloutOverruled(old, "the settings of pool "+p.Name+" name another mode")
			}
			e.emit(PoolSet{p})
		}
	}
	for _, h := range e.cluster.Hosts { // one that no pool names any more stays where it is
		if name := e.poolFor(h.Info.Name); name != h.Pool && name != "" {
			e.emit(HostMoved{h.Number, name})
		}
	}
	return nil
}

// poolFor is the first pool that names the host by a pattern, else the first
// that has no patterns.
func (e *Engine) poolFor(host string) string {
	rest := ""
	for _, name := range e.order {
		p := e.pools[name]
		if len(p.Hosts) == 0 && rest == "" {
			rest = name
		}
		for _, pattern := range p.Hosts {
			if ok, err := path.Match(pattern, host); ok && err == nil {
				return name
			}
		}
	}
	return rest
}

// inventory compares what a driver sees with what is known. A host that cannot
// be taken in spoils nothing for the others; the first such fault is returned.
func (e *Engine) inventory(ev Inventory) error {
	var first error
	for _, m := range ev.Models {
		if err := e.learn(m); err != nil && first == nil {
			first = err
		}
	}
	seen := map[string]bool{}
	for _, info := range ev.Hosts {
		info.Driver = ev.Driver
		seen[info.Name] = true
		if err := e.seeHost(info); err != nil && first == nil {
			first = work.Errorf(work.CodeInvalid, "driver %s: %s", ev.Driver, err.Error())
		}
	}
	for _, h := range e.cluster.Hosts {
		if h.Info.Driver == ev.Driver && !seen[h.Info.Name] && h.Up {
			e.loseHost(h.Number, work.Reasonf(work.HostLost, "driver %s no longer sees host %s", ev.Driver, h.Info.Name))
		}
	}
	e.seeVerdicts(ev)
	e.seeFaults(ev)
	for _, p := range ev.Parts { // what stands for nobody is freed
		if l, part := e.part(p.Owner); l == nil || part.Phase == PhaseFreed || part.Phase == PhaseParked {
			e.command(FreeCmd{p.Owner, ev.Driver, p.Host})
		}
	}
	return first
}

func (e *Engine) learn(m gpu.Model) error {
	if _, known := e.cluster.Model(m.Key); known != nil && reflect.DeepEqual(known.Model, m) {
		return nil
	}
	if err := m.Validate(); err != nil {
		return work.Errorf(work.CodeInvalid, "a driver reports a GPU model that is not usable: %s", err.Error())
	}
	for _, g := range e.cluster.GPUs {
		if g.Model == m.Key && len(g.Held) > 0 {
			return work.Errorf(work.CodeConflict, "a driver reports another geometry for %s while tasks run on it: drain its hosts, then restart", m.Key)
		}
	}
	e.emit(ModelLearned{m})
	return nil
}

func (e *Engine) seeHost(info gpu.HostInfo) error {
	h := e.cluster.HostByName(info.Name)
	if h == nil {
		if err := e.cluster.CheckHost(info); err != nil {
			return err
		}
		pool := e.poolFor(info.Name)
		if pool == "" {
			return work.Errorf(work.CodeInvalid, "host %s belongs to no pool: add its name to one, or a pool without patterns", info.Name)
		}
		e.emit(HostJoined{info, pool})
		h = e.cluster.HostByName(info.Name)
	} else if err := sameHost(h.Info, info); err != nil {
		if h.Up {
			e.loseHost(h.Number, work.Reasonf(work.HostLost, "%s", err.Error()))
		}
		return err
	}
	if h.Info.Sharing != info.Sharing {
		e.emit(HostShares{h.Number, info.Sharing})
	}
	if !h.Up {
		e.emit(HostChanged{h.Number, true, work.Reasonf("host_up", "driver %s sees it", info.Driver)})
		e.resumeHost(h.Number)
	}
	return nil
}

// sameHost refuses a host that came back as another machine.
func sameHost(was, is gpu.HostInfo) error {
	if was.Driver != is.Driver {
		return work.Errorf(work.CodeConflict, "host %s is reported by driver %s and by %s: give one of them another name", was.Name, was.Driver, is.Driver)
	}
	if was.CPUMilli != is.CPUMilli || was.MemMiB != is.MemMiB || !slices.Equal(was.GPUs, is.GPUs) {
		return work.Errorf(work.CodeConflict, "host %s came back with other CPUs, memory or GPUs than it had: give it another name", was.Name)
	}
	return nil
}

func (e *Engine) loseHost(n int, why work.Reason) {
	e.emit(HostChanged{n, false, why})
	for _, l := range e.leasesOn(n) {
		if l.Closing {
			e.settleLease(l)
		} else {
			e.lose(l, why)
		}
	}
}

// lose ends a lease whose hardware is gone: a task waits again in its old place,
// an outside client is told by its lease having ended.
func (e *Engine) lose(l *Lease, why work.Reason) {
	if l.of.Spec.External() {
		e.close(l, work.Failed, why)
		return
	}
	e.close(l, work.Queued, why)
}

// leasesOn lists the leases with a part on a host, by task and epoch.
func (e *Engine) leasesOn(host int) []*Lease {
	var out []*Lease
	for _, l := range e.sortedLeases() {
		for _, p := range l.Parts {
			if p.Host == host {
				out = append(out, l)
				break
			}
		}
	}
	return out
}

// resume gives every command again whose answer is still awaited.
func (e *Engine) resume() {
	for _, l := range e.sortedLeases() {
		for i := range l.Parts {
			e.resumePart(l, i)
		}
	}
	for _, p := range e.lines {
		for _, t := range p.idle {
			e.lookAgain(t)
		}
		e.lookLater(p)
	}
	for _, g := range e.cluster.GPUs {
		if g.Health.Out() {
			e.disturbed = append(e.disturbed, g.Number)
		}
	}
	e.lookAtGuards()
	e.wakeAll()
}

func (e *Engine) resumeHost(host int) {
	for _, l := range e.leasesOn(host) {
		for i, p := range l.Parts {
			if p.Host == host {
				e.resumePart(l, i)
			}
		}
	}
}

func (e *Engine) resumePart(l *Lease, i int) {
	p, o := l.Parts[i], l.owner(i)
	switch p.Phase {
	case PhaseCarving:
		if l.Runs != 0 {
			e.command(WatchCmd{l.runner(i)})
		}
		e.command(e.carveCmd(l, i))
	case PhaseStarting:
		e.command(e.startCmd(l, i))
	case PhaseRunning:
		e.command(WatchCmd{l.runner(i)})
		if p.To != nil {
			e.command(e.resizeCmd(l, i))
		}
	case PhaseStopping:
		e.command(e.stopCmd(l, i))
		e.command(WatchCmd{l.runner(i)})
	case PhaseSuspending:
		e.command(WatchCmd{l.runner(i)})
		e.command(SuspendCmd{l.runner(i)})
	case PhaseVacating:
		e.command(WatchCmd{l.runner(i)})
		if p.Retry <= e.now {
			e.command(e.freeCmd(o, p))
		}
	case PhaseParked:
		e.command(WatchCmd{l.runner(i)})
	case PhaseResuming:
		e.command(WatchCmd{l.runner(i)})
		e.command(ResumeCmd{l.runner(i), p.Devices})
	case PhaseFreeing:
		if p.Retry <= e.now { // else its timer does
			e.command(e.freeCmd(o, p))
		}
	case PhaseReady, PhaseEnded, PhaseFreed:
	}
}

// processesSeen ends processes that belong to no lease: their start outlived the
// server that asked for it.
func (e *Engine) processesSeen(owners []work.Owner) {
	for _, o := range owners {
		l, p := e.member(o)
		switch {
		case l == nil:
			e.command(StopCmd{Owner: o})
			e.command(WatchCmd{o})
		case !p.Phase.live() && !(l.Runs != 0 && p.Phase == PhaseCarving):
			e.command(ForgetCmd{o})
		}
	}
}
