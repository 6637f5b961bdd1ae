package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/journal"
	"github.com/gpupool/gpupool/internal/runner"
	"github.com/gpupool/gpupool/internal/work"
)

// Config wires a Host.
type Config struct {
	Engine        engine.Config
	Journal       journal.Journal
	Drivers       map[string]driver.Driver // by the name that their hosts carry
	Runner        runner.Runner
	ScaleOut      ScaleOut      // nil: none
	Watch         Watcher       // nil: nobody
	SnapshotEvery int           // facts between snapshots; default 20,000
	ObserveEvery  time.Duration // between looks at the drivers; default 5 s
	Log           *slog.Logger

	// Trace is what the process of a task at an epoch gets as TRACEPARENT, given what the
	// client sent; nil: just that.
	Trace func(task work.TaskID, epoch uint32, parent string) string
}

// ScaleOut asks someone outside for more GPUs for a pool in which so many tasks
// wait that ask for so many GPUs. They join when they are there; the end of ctx ends
// the call, and what it returns is only logged.
type ScaleOut interface {
	Ask(ctx context.Context, pool string, waiting int, gpus float64) error
}

// maxBatch bounds the events of one commit, so that a flood cannot hold up the
// replies to those who came first.
const maxBatch = 512

// errStopped answers calls that come after the end.
var errStopped = work.Errorf(work.CodeUnavailable, "the server is stopping: try again when it is back")

type request struct {
	ev    engine.Event
	reply chan Reply // nil when nobody waits
	then  func(*engine.Engine, work.TaskID)
}

// Host runs an engine in real time.
type Host struct {
	cfg   Config
	inbox chan request

	mu     sync.Mutex // held from the first Step of a batch until it is durable, and by readers: a question may try placements out
	writer *Writer
	clock  clock
	wall   func() time.Time // the wall clock: it may jump
	began  time.Time        // when the clock did

	feed     *feed
	dispatch *dispatcher
	usage    usage
	view     atomic.Pointer[View]
	known    atomic.Pointer[Known]
	changes  atomic.Uint64 // counts what a new View would show
	follows  atomic.Bool   // another server decides
	done     chan struct{} // closed when Run or Follow has ended
}

// Open recovers the state from the journal. Nothing happens until Run.
func Open(ctx context.Context, cfg Config) (*Host, error) {
	if cfg.SnapshotEvery == 0 {
		cfg.SnapshotEvery = 20_000
	}
	if cfg.ObserveEvery == 0 {
		cfg.ObserveEvery = 5 * time.Second
	}
	w, err := Recover(ctx, cfg.Engine, cfg.Journal, cfg.SnapshotEvery)
	if err != nil {
		return nil, err
	}
	h := &Host{cfg: cfg, inbox: make(chan request, 4*maxBatch), writer: w, wall: time.Now, done: make(chan struct{})}
	h.feed = newFeed(w.seq)
	h.dispatch = newDispatcher(h)
	h.writer.timed = cfg.Watch != nil
	h.view.Store(h.takeView())
	h.known.Store(knownBy(w.Engine))
	return h, nil
}

// Run serves until ctx ends, then stores a snapshot and returns nil. It returns
// an error when the journal fails: then nothing undurable has left, running
// tasks are unharmed, and a new process recovers.
func (h *Host) Run(ctx context.Context) error {
	defer close(h.done)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var edges sync.WaitGroup
	defer edges.Wait()
	defer cancel(errStopped) // runs before Wait
	h.dispatch.ctx = ctx
	h.began = time.Now()
	h.clock = newClock(h.writer.Engine.Now(), work.TimeOf(h.wall()))

	edges.Go(func() { h.resume(ctx) })
	edges.Go(func() { h.publish(ctx) })
	for name, d := range h.cfg.Drivers {
		edges.Go(func() { h.observe(ctx, name, d) })
	}
	err := h.loop(ctx)
	h.feed.close()
	cancel(errStopped)
	h.dispatch.wait()
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.writer.Snapshot(context.WithoutCancel(ctx))
}

// resume tells the engine what runs, and lets it give its open commands again.
func (h *Host) resume(ctx context.Context) {
	seen, err := h.cfg.Runner.List(ctx)
	if err != nil {
		h.cfg.Log.Error("cannot list running members; those of earlier leases may be left over", "err", err)
	}
	var owners []work.Owner
	for _, s := range seen {
		owners = append(owners, ownerOf(s.ID))
	}
	h.post(ctx, engine.Resume{})
	h.post(ctx, engine.ProcessesSeen{Owners: owners})
}

// loop is the one writer.
func (h *Host) loop(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var batch []request
	for {
		batch = batch[:0]
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			batch = append(batch, request{ev: engine.Tick{}})
		case r := <-h.inbox:
			batch = append(batch, r)
		}
		for more := true; more && len(batch) < maxBatch; {
			select {
			case r := <-h.inbox:
				batch = append(batch, r)
			default:
				more = false
			}
		}
		next, err := h.apply(context.WithoutCancel(ctx), batch)
		if err != nil {
			return err
		}
		timer.Reset(next)
	}
}

// apply takes a batch and returns when the engine wants to be woken.
func (h *Host) apply(ctx context.Context, batch []request) (time.Duration, error) {
	evs := make([]engine.Event, len(batch))
	for i, r := range batch {
		evs[i] = r.ev
	}
	h.mu.Lock()
	out, err := h.writer.Apply(ctx, h.clock.now(work.TimeOf(h.wall()), time.Since(h.began)), evs...)
	now := h.writer.Engine.Now()
	deadline, wants := h.writer.Engine.NextDeadline()
	events := h.describe(out, now)
	if err == nil {
		h.learn(out.Facts)
		for i, r := range batch {
			if r.then != nil && out.Replies[i].Err == nil {
				r.then(h.writer.Engine, out.Replies[i].Task)
			}
		}
	}
	h.mu.Unlock()
	if err != nil {
		for _, r := range batch {
			r.answer(Reply{Err: work.Errorf(work.CodeUnavailable, "%s: nothing of this call took effect for sure; the server stops now", err)})
		}
		return 0, err
	}
	for i, r := range batch {
		if e := out.Replies[i].Err; e != nil && r.reply == nil {
			h.cfg.Log.Warn("an event was refused", "event", fmt.Sprintf("%T", r.ev), "err", e)
		}
		r.answer(out.Replies[i])
	}
	for _, c := range out.Commands {
		h.dispatch.do(c)
	}
	if out.Unsaved != nil {
		h.cfg.Log.Warn("the journal grows until a snapshot is stored, which is tried again", "err", out.Unsaved)
	}
	for _, f := range out.Facts {
		if x, ok := f.(engine.ModeSet); ok && x.By == engine.ByGuard {
			h.cfg.Log.Warn("a pool fell back to static: it stays so until its mode is set again", "pool", x.Pool, "why", x.Reason, "log", x.Log)
		}
	}
	h.feed.publish(events)
	h.tell(now, batch, out, events)
	if !wants {
		return time.Hour, nil
	}
	return max(deadline.Sub(now), 0), nil
}

func (r request) answer(x Reply) {
	if r.reply != nil {
		r.reply <- x
	}
}

// Do hands an event to the engine and waits until what follows is durable.
func (h *Host) Do(ctx context.Context, ev engine.Event) (work.TaskID, error) {
	return h.do(ctx, request{ev: ev, reply: make(chan Reply, 1)})
}

// DoThen does an event, and when it is durable lets then look at the state that it led to,
// as Read would. While the writer is busy that spares whoever asks the wait for the lock,
// which is as long as a commit.
func (h *Host) DoThen(ctx context.Context, ev engine.Event, then func(*engine.Engine, work.TaskID)) (work.TaskID, error) {
	var fault any
	id, err := h.do(ctx, request{ev: ev, reply: make(chan Reply, 1), then: func(e *engine.Engine, id work.TaskID) {
		defer func() { fault = recover() }() // the fault of who looks is not the writer's
		then(e, id)
	}})
	if fault != nil {
		panic(fault)
	}
	return id, err
}

func (h *Host) do(ctx context.Context, r request) (work.TaskID, error) {
	if h.follows.Load() {
		return 0, errFollows
	}
	select {
	case h.inbox <- r:
	case <-h.done:
		return 0, errStopped
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	select {
	case x := <-r.reply:
		return x.Task, x.Err
	case <-h.done:
		select { // it may have been answered just before the end
		case x := <-r.reply:
			return x.Task, x.Err
		default:
			return 0, errStopped
		}
	}
}

// post hands over an event that nobody waits for.
func (h *Host) post(ctx context.Context, ev engine.Event) {
	select {
	case h.inbox <- request{ev: ev}:
	case <-ctx.Done():
	}
}

// Read lets f look at the state, all of it durable. f must be quick and must
// keep nothing that it did not copy.
func (h *Host) Read(f func(*engine.Engine)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(h.writer.Engine)
}

// observe looks at a driver again and again and tells the engine what it sees.
func (h *Host) observe(ctx context.Context, name string, d driver.Driver) {
	tick := time.NewTicker(h.cfg.ObserveEvery)
	defer tick.Stop()
	sampled := time.Now().Add(-h.cfg.ObserveEvery)
	for {
		inv, err := d.Observe(ctx)
		switch {
		case errors.Is(err, context.Canceled):
			return
		case err != nil:
			h.cfg.Log.Warn("cannot observe a driver", "driver", name, "err", err)
		default:
			h.post(ctx, inventory(name, inv))
			samples, err := d.Usage(ctx)
			if err != nil && !errors.Is(err, context.Canceled) {
				h.cfg.Log.Warn("cannot measure what a driver's GPUs are used for", "driver", name, "err", err)
			}
			if err == nil {
				h.usage.set(name, samples)
				h.changes.Add(1)
			}
			now := time.Now() // without samples, what was judged is not known any more after a while
			h.post(ctx, used(samples, min(now.Sub(sampled), 2*h.cfg.ObserveEvery)))
			sampled = now
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// used tells the engine what was measured, the samples of one task together.
func used(samples []driver.Sample, took time.Duration) engine.Usage {
	var u engine.Usage
	for _, s := range samples {
		u.Samples = append(u.Samples, engine.UsageSample{Owner: s.Owner, For: took, Compute: s.Compute, MemMiB: s.MemMiB})
	}
	slices.SortStableFunc(u.Samples, func(a, b engine.UsageSample) int {
		return cmp.Or(cmp.Compare(a.Owner.Task, b.Owner.Task), cmp.Compare(a.Owner.Epoch, b.Owner.Epoch), a.Owner.Member-b.Owner.Member)
	})
	return u
}

func inventory(name string, inv driver.Inventory) engine.Inventory {
	ev := engine.Inventory{Driver: name, Models: inv.Models, Hosts: inv.Hosts}
	text := func(s string) string { return strings.ToValidUTF8(s, "?") }
	for _, v := range inv.Verdicts {
		ev.Verdicts = append(ev.Verdicts, engine.Verdict{ID: v.GPUID, Do: v.Do, Why: text(v.Why), Mend: text(v.Mend)})
	}
	for _, f := range inv.Faults {
		ev.Faults = append(ev.Faults, engine.Fault{ID: f.GPUID, At: work.TimeOf(f.At), Owner: f.Owner, Code: text(f.Code), What: text(f.What)})
	}
	for _, p := range inv.Parts {
		ev.Parts = append(ev.Parts, engine.SeenPart{Host: p.Host, Owner: p.Owner})
	}
	return ev
}

// usage keeps the newest samples of each driver.
type usage struct {
	mu      sync.Mutex
	samples map[string][]driver.Sample
}

func (u *usage) set(name string, s []driver.Sample) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.samples == nil {
		u.samples = map[string][]driver.Sample{}
	}
	u.samples[name] = s
}

// Usage returns the newest sample of every slice that a driver reported on.
func (h *Host) Usage() map[work.Owner][]driver.Sample {
	h.usage.mu.Lock()
	defer h.usage.mu.Unlock()
	out := map[work.Owner][]driver.Sample{}
	for _, samples := range h.usage.samples {
		for _, s := range samples {
			out[s.Owner] = append(out[s.Owner], s)
		}
	}
	return out
}
