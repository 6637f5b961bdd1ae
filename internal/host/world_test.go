package host

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/driver/fake"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/journal/memory"
	"github.com/gpupool/gpupool/internal/runner"
	"github.com/gpupool/gpupool/internal/work"
)

// clockRunner runs members that are nothing but a time: a command is how long it
// lasts, and its second word its exit code. It outlives hosts, as a machine does.
type clockRunner struct {
	mu      sync.Mutex
	members map[runner.ID]*clockMember
}

type clockMember struct {
	done    chan struct{}
	exit    *runner.Exit
	stopped bool
	signal  string // that it was stopped by
}

func newClockRunner() *clockRunner { return &clockRunner{members: map[runner.ID]*clockMember{}} }

func (r *clockRunner) Start(_ context.Context, s runner.Spec) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.members[s.ID]; known {
		return nil
	}
	last, err := time.ParseDuration(s.Command[0])
	if err != nil {
		return err
	}
	m := &clockMember{done: make(chan struct{})}
	r.members[s.ID] = m
	code := 0
	if len(s.Command) > 1 {
		code = 3
	}
	time.AfterFunc(last, func() { r.end(m, runner.Exit{Code: code}) })
	return nil
}

func (r *clockRunner) end(m *clockMember, x runner.Exit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.exit == nil {
		m.exit = &x
		close(m.done)
	}
}

func (r *clockRunner) member(id runner.ID) *clockMember {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.members[id]
}

func (r *clockRunner) Stop(_ context.Context, id runner.ID, _ time.Duration, signal string) error {
	if m := r.member(id); m != nil {
		m.stopped, m.signal = true, signal
		r.end(m, runner.Exit{Code: 143, Signal: "SIGTERM"})
	}
	return nil
}

func (r *clockRunner) Wait(ctx context.Context, id runner.ID) (runner.Status, error) {
	m := r.member(id)
	if m == nil {
		return runner.Status{ID: id, State: runner.Exited, Exit: &runner.Exit{Lost: "not known"}}, nil
	}
	select {
	case <-m.done:
		return runner.Status{ID: id, State: runner.Exited, Exit: m.exit}, nil
	case <-ctx.Done():
		return runner.Status{}, ctx.Err()
	}
}

func (r *clockRunner) List(context.Context) (out []runner.Status, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.members {
		out = append(out, runner.Status{ID: id})
	}
	return out, nil
}

func (r *clockRunner) Forget(context.Context, runner.ID) error { return nil } // it is remembered, so that a second start is seen

// world is what outlives a host: the journal, the hardware and the processes.
type world struct {
	t       *testing.T
	journal *memory.Journal
	driver  *fake.Driver
	runner  *clockRunner
	cfg     Config
	wall    func() time.Time // nil: a wall clock that nobody sets
}

func newWorld(t *testing.T, shape string) *world {
	t.Helper()
	hosts, err := fake.ParseHosts(shape)
	if err != nil {
		t.Fatal(err)
	}
	d, err := fake.New(hosts, gpu.Builtin(), fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, journal: memory.New(), driver: d, runner: newClockRunner()}
	w.cfg = Config{Drivers: map[string]driver.Driver{"fake": d}, Journal: w.journal, Runner: w.runner, Log: slog.New(slog.DiscardHandler)}
	for _, m := range gpu.Builtin() {
		if m.Key == "H100-80GB" {
			w.cfg.Engine.Models = append(w.cfg.Engine.Models, gpu.NewGeometry(m))
		}
	}
	return w
}

// live is a running host.
type live struct {
	*Host
	w    *world
	stop context.CancelFunc
	err  chan error
}

// start opens a host over the world and lets it run.
func (w *world) start() *live {
	w.t.Helper()
	w.journal.Open()
	h, err := Open(w.t.Context(), w.cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	if w.wall != nil {
		h.wall = w.wall
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	l := &live{Host: h, w: w, stop: cancel, err: make(chan error, 1)}
	go func() { l.err <- h.Run(ctx) }()
	return l
}

// setUp makes the pool and a tenant; at the second start they are there already.
func (l *live) setUp() {
	l.w.t.Helper()
	for _, ev := range []engine.Event{engine.SetPools{Pools: []work.Pool{{Name: "p", Mode: work.Dynamic}}}, engine.SetTenant{Tenant: work.Tenant{Name: "a"}}} {
		if _, err := l.Do(l.w.t.Context(), ev); err != nil {
			l.w.t.Fatal(err)
		}
	}
	time.Sleep(6 * time.Second) // the first look came before the pool was there
	synctest.Wait()
}

// end stops the host and returns what Run did.
func (l *live) end() error {
	l.stop()
	return <-l.err
}

func spec(gpus string, command ...string) work.Spec {
	r, err := work.ParseGPUs(gpus)
	if err != nil {
		panic(err)
	}
	return work.Spec{Tenant: "a", Pool: "p", Request: r, Command: command, Priority: work.Normal}
}

func (l *live) submit(s work.Spec) work.TaskID {
	l.w.t.Helper()
	id, err := l.Do(l.w.t.Context(), engine.Submit{Spec: s})
	if err != nil {
		l.w.t.Fatal(err)
	}
	return id
}

func (l *live) state(id work.TaskID) (s work.State) {
	l.Read(func(e *engine.Engine) {
		if t := e.Task(id); t != nil {
			s = t.State
		}
	})
	return s
}

// after lets time pass and everything that was started come to rest.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// sound checks the state, and that the journal gives the same one.
func (l *live) sound() {
	l.w.t.Helper()
	var snapshot []byte
	l.Read(func(e *engine.Engine) {
		if err := e.Check(); err != nil {
			l.w.t.Error(err)
		}
		snapshot, _ = e.Snapshot()
	})
	again, err := Recover(l.w.t.Context(), l.w.cfg.Engine, l.w.journal, 0)
	if err != nil {
		l.w.t.Fatal(err)
	}
	replayed, err := again.Engine.Snapshot()
	if err != nil {
		l.w.t.Fatal(err)
	}
	if !sameButTime(snapshot, replayed) {
		l.w.t.Errorf("the journal gives another state:\nlive     %s\nreplayed %s", snapshot, replayed)
	}
}

// sameButTime compares two snapshots apart from the moment of the last step, which
// is no fact.
func sameButTime(a, b []byte) bool {
	cut := func(s []byte) []byte {
		i := slices.Index(s, ',')               // after the version
		j := i + 1 + slices.Index(s[i+1:], ',') // after now
		return append(slices.Clone(s[:i]), s[j:]...)
	}
	return string(cut(a)) == string(cut(b))
}

// nothingHeld checks that the hardware is empty.
func (w *world) nothingHeld() {
	w.t.Helper()
	inv, err := w.driver.Observe(w.t.Context())
	if err != nil || len(inv.Parts) > 0 {
		w.t.Errorf("parts %+v still stand (%v)", inv.Parts, err)
	}
}

var errPlanted = errors.New("the disk is gone")
