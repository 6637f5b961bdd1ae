package host

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/runner"
	"github.com/gpupool/gpupool/internal/work"
)

// dispatcher carries out commands. Commands for one owner run one after another
// in the order they were given; different owners do not wait for each other.
// Watching is apart: it lasts as long as the member runs.
type dispatcher struct {
	host  *Host
	ctx   context.Context
	watch func(work.Owner) // reports the end of a member, once however often it is asked to
	wg    sync.WaitGroup

	mu       sync.Mutex
	lanes    map[work.Owner][]engine.Command // commands that wait behind a running one
	watching map[work.Owner]bool
	asking   map[string]bool // pools whose call for more GPUs is not back yet
}

func newDispatcher(h *Host) *dispatcher {
	d := &dispatcher{host: h, ctx: context.Background(), lanes: map[work.Owner][]engine.Command{}, watching: map[work.Owner]bool{}, asking: map[string]bool{}}
	d.watch = d.await
	return d
}

func (d *dispatcher) wait() { d.wg.Wait() }

// do starts a command and returns at once.
func (d *dispatcher) do(c engine.Command) {
	if ask, is := c.(engine.ScaleOutCmd); is {
		d.scaleOut(ask)
		return
	}
	o := owner(c)
	d.mu.Lock()
	defer d.mu.Unlock()
	if waiting, busy := d.lanes[o]; busy {
		d.lanes[o] = append(waiting, c)
		return
	}
	d.lanes[o] = nil
	d.wg.Go(func() { d.lane(o, c) })
}

// scaleOut calls the hook for a pool, beside everything else and once at a time: one
// that hangs holds up nothing, not even itself.
func (d *dispatcher) scaleOut(c engine.ScaleOutCmd) {
	hook, log := d.host.cfg.ScaleOut, d.host.cfg.Log
	if hook == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.asking[c.Pool] {
		log.Warn("the last call of the scale-out hook is not back yet: it is not called again", "pool", c.Pool)
		return
	}
	d.asking[c.Pool] = true
	d.wg.Go(func() {
		err := hook.Ask(d.ctx, c.Pool, c.Waiting, c.GPUs)
		d.mu.Lock()
		delete(d.asking, c.Pool)
		d.mu.Unlock()
		if err != nil {
			log.Error("the scale-out hook failed", "pool", c.Pool, "waiting", c.Waiting, "gpus", c.GPUs, "err", err)
			return
		}
		log.Info("asked for more GPUs", "pool", c.Pool, "waiting", c.Waiting, "gpus", c.GPUs)
	})
}

func (d *dispatcher) lane(o work.Owner, c engine.Command) {
	for {
		if ev := d.run(c); ev != nil {
			d.host.post(d.ctx, ev)
		}
		d.mu.Lock()
		waiting := d.lanes[o]
		if len(waiting) == 0 {
			delete(d.lanes, o)
			d.mu.Unlock()
			return
		}
		c, d.lanes[o] = waiting[0], waiting[1:]
		d.mu.Unlock()
	}
}

func owner(c engine.Command) work.Owner {
	switch c := c.(type) {
	case engine.CarveCmd:
		return c.Owner
	case engine.ResizeCmd:
		return c.Owner
	case engine.FreeCmd:
		return c.Owner
	case engine.StartCmd:
		return c.Owner
	case engine.WatchCmd:
		return c.Owner
	case engine.StopCmd:
		return c.Owner
	case engine.ForgetCmd:
		return c.Owner
	case engine.SuspendCmd:
		return c.Owner
	case engine.ResumeCmd:
		return c.Owner
	}
	panic(fmt.Sprintf("command %T has no owner", c)) // a new command was added without its line here
}

// run carries out one command and returns the event that answers it, or nil.
// Once the host is stopping no answer is given: the next server asks again.
func (d *dispatcher) run(c engine.Command) engine.Event {
	if d.ctx.Err() != nil {
		return nil
	}
	r := d.host.cfg.Runner
	switch c := c.(type) {
	case engine.CarveCmd:
		return d.carve(c)
	case engine.ResizeCmd:
		return d.resize(c)
	case engine.FreeCmd:
		drv := d.host.cfg.Drivers[c.Driver]
		if drv == nil {
			return engine.FreeFailed{Owner: c.Owner, Err: "driver " + c.Driver + " is not loaded"}
		}
		if err := drv.Free(d.ctx, c.Host, c.Owner); err != nil {
			return d.unlessStopping(engine.FreeFailed{Owner: c.Owner, Err: words(err)})
		}
		return engine.FreeDone{Owner: c.Owner}
	case engine.StartCmd:
		if err := d.start(c); err != nil {
			return d.unlessStopping(engine.StartFailed{Owner: c.Owner, Err: words(err)})
		}
		d.watch(c.Owner)
		return engine.StartDone{Owner: c.Owner}
	case engine.WatchCmd:
		d.watch(c.Owner)
	case engine.StopCmd:
		d.watch(c.Owner)
		if err := r.Stop(d.ctx, idOf(c.Owner), c.Grace, c.Signal); err != nil {
			d.host.cfg.Log.Warn("cannot stop a member", "owner", c.Owner.String(), "err", err)
		}
	case engine.SuspendCmd:
		return d.suspend(c)
	case engine.ResumeCmd:
		return d.resume(c)
	case engine.ForgetCmd:
		if err := r.Forget(d.ctx, idOf(c.Owner)); err != nil {
			d.host.cfg.Log.Warn("cannot forget a member", "owner", c.Owner.String(), "err", err)
		}
	}
	return nil
}

func (d *dispatcher) suspend(c engine.SuspendCmd) engine.Event {
	r, can := d.host.cfg.Runner.(runner.Suspender)
	if !can {
		return engine.SuspendFailed{Owner: c.Owner, Err: "this runner cannot suspend what it runs"}
	}
	if err := r.Suspend(d.ctx, idOf(c.Owner)); err != nil {
		return d.unlessStopping(engine.SuspendFailed{Owner: c.Owner, Err: words(err)})
	}
	return engine.SuspendDone(c)
}

func (d *dispatcher) resume(c engine.ResumeCmd) engine.Event {
	r, can := d.host.cfg.Runner.(runner.Suspender)
	if !can {
		return engine.ResumeFailed{Owner: c.Owner, Err: "this runner cannot resume what was suspended"}
	}
	if err := r.Resume(d.ctx, idOf(c.Owner), c.Devices); err != nil {
		return d.unlessStopping(engine.ResumeFailed{Owner: c.Owner, Err: words(err)})
	}
	return engine.ResumeDone{Owner: c.Owner}
}

// words makes an error fit for the journal, which is text: a driver may say anything.
func words(err error) string { return strings.ToValidUTF8(err.Error(), "?") }

func (d *dispatcher) unlessStopping(ev engine.Event) engine.Event {
	if d.ctx.Err() != nil {
		return nil
	}
	return ev
}

func (d *dispatcher) carve(c engine.CarveCmd) engine.Event {
	devices, err := d.make(c)
	if err != nil {
		return d.unlessStopping(engine.CarveFailed{Owner: c.Owner, Err: words(err)})
	}
	return engine.CarveDone{Owner: c.Owner, Devices: devices}
}

// resize is a carve for an owner that stands: the driver's contract makes that the new
// sizes, or leaves all as it was.
func (d *dispatcher) resize(c engine.ResizeCmd) engine.Event {
	devices, err := d.make(c.CarveCmd)
	if err != nil {
		return d.unlessStopping(engine.ResizeFailed{Owner: c.Owner, Err: words(err)})
	}
	return engine.ResizeDone{Owner: c.Owner, Devices: devices}
}

// make has a driver make the slices of a part.
func (d *dispatcher) make(c engine.CarveCmd) ([]string, error) {
	drv := d.host.cfg.Drivers[c.Driver]
	if drv == nil {
		return nil, fmt.Errorf("driver %s is not loaded", c.Driver)
	}
	p := driver.Part{Owner: c.Owner, Tenant: c.Tenant, Host: c.Host}
	for i, s := range c.Slices {
		p.Slices = append(p.Slices, driver.Slice{GPUID: c.GPUIDs[i], Slice: s})
	}
	return drv.Carve(d.ctx, p)
}

// start starts a member with what its driver says that it must see.
func (d *dispatcher) start(c engine.StartCmd) error {
	s := d.traced(c)
	if drv, has := d.host.cfg.Drivers[c.Driver].(driver.Accesser); has && len(c.Slices) > 0 {
		a, err := drv.Access(d.ctx, c.Host, c.Owner)
		if err != nil {
			return fmt.Errorf("what a program needs to use its slices is not known: %w", err)
		}
		s.Env, s.Nodes, s.Shared = append(slices.Clip(s.Env), a.Env...), a.Nodes, a.Mounts
	}
	return d.host.cfg.Runner.Start(d.ctx, s)
}

// await lets a goroutine wait for the end of a member.
func (d *dispatcher) await(o work.Owner) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.watching[o] {
		return
	}
	d.watching[o] = true
	d.wg.Go(func() {
		st, err := d.host.cfg.Runner.Wait(d.ctx, idOf(o))
		d.mu.Lock()
		delete(d.watching, o)
		d.mu.Unlock()
		if d.ctx.Err() != nil {
			return
		}
		d.host.post(d.ctx, exited(o, st, err))
	})
}

// exited is what the engine is told of the end of a member that a runner waited for.
func exited(o work.Owner, st runner.Status, err error) engine.Event {
	exit := work.Exit{Lost: "the runner does not know it"}
	switch {
	case err != nil:
		exit.Lost = words(err)
	case st.Exit != nil:
		exit = work.Exit{Code: st.Exit.Code, Signal: st.Exit.Signal, OOM: st.Exit.OOM, Lost: st.Exit.Lost}
	}
	return engine.ProcessExited{Owner: o, Exit: exit}
}

func idOf(o work.Owner) runner.ID {
	return runner.ID{Task: uint64(o.Task), Epoch: o.Epoch, Member: o.Member}
}

func ownerOf(id runner.ID) work.Owner {
	return work.Owner{Task: work.TaskID(id.Task), Epoch: id.Epoch, Member: id.Member}
}

// traced lets the spans of a process join its task's trace, unless the task says which
// trace they belong to.
func (d *dispatcher) traced(c engine.StartCmd) runner.Spec {
	s, trace := specOf(c), c.Spec.Trace
	if f := d.host.cfg.Trace; f != nil {
		trace = f(c.Owner.Task, c.Owner.Epoch, trace)
	}
	const name = "TRACEPARENT="
	if trace != "" && !slices.ContainsFunc(s.Env, func(kv string) bool { return strings.HasPrefix(kv, name) }) {
		s.Env = append(slices.Clip(s.Env), name+trace)
	}
	return s
}

func specOf(c engine.StartCmd) runner.Spec {
	s := runner.Spec{
		ID: idOf(c.Owner), Tenant: c.Spec.Tenant, Name: c.Spec.Name, Pool: c.Spec.Pool, Host: c.Host,
		Command: c.Spec.Command, Dir: c.Spec.Dir, Env: c.Spec.Env, Secrets: c.Spec.Secrets, Devices: c.Devices, Members: c.Spec.Request.Count(),
		CPUMilli: c.Spec.Request.CPUMilli, MemoryMiB: c.Spec.Request.MemMiB, Container: c.Spec.Container,
	}
	if c.Array != 0 {
		s.Env = append(slices.Clip(s.Env), fmt.Sprintf("GPUPOOL_ARRAY_ID=%d", c.Array), fmt.Sprintf("GPUPOOL_ARRAY_INDEX=%d", c.Index))
	}
	for i, x := range c.Slices {
		if i > 0 {
			s.Slices += ","
		}
		s.Slices += x.String()
		s.Parts = s.Parts || x.Mode != gpu.ModeWhole
	}
	return s
}
