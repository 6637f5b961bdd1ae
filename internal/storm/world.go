package storm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"time"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/driver/fake"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/host"
	"github.com/gpupool/gpupool/internal/journal/memory"
	"github.com/gpupool/gpupool/internal/work"
)

// Fault names a kind of fault.
type Fault string

// AllFaults lists the kinds of faults: all of them happen.
func AllFaults() []Fault {
	return []Fault{"crash", "command_done_unheard", "command_lost", "append_refused", "append_reply_lost", "append_torn", "snapshot_failed",
		"driver_partition", "runner_partition", "answer_cut_off", "delay", "late_answer", "reorder", "duplicate", "command_twice",
		"client_retry", "client_retry_unsure", "config_change", "clock_forward", "clock_back", "clock_set",
		"host_lost", "host_back", "host_rebooted", "gpu_broken", "gpu_repaired", "gpu_verdict", "program_fault", "process_failed",
		"carve_failed", "carve_half", "free_half", "start_failed", "suspend_failed", "resume_failed"}
}

// world is one history: everything outside the server, which comes and goes.
type world struct {
	plan   plan
	pcg    rand.PCG
	rng    *rand.Rand // of the step that is played
	cfg    engine.Config
	hostOf host.Config
	now    work.Time
	skew   time.Duration // of the server's clock

	hosts    []gpu.HostInfo
	driver   *fake.Driver
	machines *machines
	disk     *disk
	away     map[string]bool
	broken   map[string]bool
	cutOff   [2]bool // driver, runner: calls do not come back

	srv     *server // nil: it is down
	clients clients
	truth   truth
	ledger  *engine.Ledger
	script  *script          // nil: not kept
	log     *strings.Builder // nil: not kept
	bug     *planted

	resuming, returning bool // what is taken lets a restart, or the return of a host, give commands again

	gentle bool // nothing fails now
	healed bool // nothing fails any more, and what failed before has had its effects
	faults map[Fault]int
	facts  int
	kinds  map[string]int // facts
	digest uint64
	steps  int
	every  int // facts between snapshots
}

// violation is something that must always hold and did not.
type violation struct {
	kind string // "invariant", "replay", "lost", "doubled", "untrue", "leaked", "stuck", "undecided", "panic", "recovery"
	what string
}

func (v *violation) Error() string { return v.kind + ": " + v.what }

func broke(kind, format string, args ...any) error {
	return &violation{kind, fmt.Sprintf(format, args...)}
}

// models are those of the GPUs in a storm. Their tables are read only.
func models() (out []*gpu.Geometry) {
	for _, m := range gpu.Builtin() {
		if m.Key == "H100-80GB" || m.Key == "T4" {
			out = append(out, gpu.NewGeometry(m))
		}
	}
	return out
}

// begins is when histories begin: when those in testdata/scenarios do.
var begins = work.TimeOf(time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC))

func newWorld(p plan, geometries []*gpu.Geometry, bug *planted) (*world, error) {
	w := &world{plan: p, now: begins, away: map[string]bool{}, broken: map[string]bool{}, faults: map[Fault]int{}, kinds: map[string]int{}, bug: bug,
		cfg: engine.Config{Models: geometries, KeepEnded: 20, AllocRetries: 3}}
	w.rng = rand.New(&w.pcg)
	w.pcg.Seed(p.seed, 4)
	w.every = 10 + w.rng.IntN(100)
	for h := range 2 + w.rng.IntN(2) {
		info := gpu.HostInfo{Name: fmt.Sprintf("h%d", h), Driver: "fake", CPUMilli: 16000, MemMiB: 64 << 10}
		if p.temper.idle {
			info.CPUMilli, info.MemMiB = 64000, 512<<10
		}
		model := "H100-80GB"
		if h == 2 {
			model = "T4"
		}
		for g := range 1 + w.rng.IntN(4) {
			info.GPUs = append(info.GPUs, gpu.GPUInfo{ID: fmt.Sprintf("h%d-%d", h, g), Model: model})
		}
		w.hosts = append(w.hosts, info)
	}
	var err error
	none := fake.Times{SetMIG: -1, SetMIGSlow: -1, Create: -1, Destroy: -1, Whole: -1, Share: -1}
	if w.driver, err = fake.New(w.hosts, gpu.Builtin(), fake.Options{Times: none}); err != nil {
		return nil, err
	}
	w.machines = newMachines(w.driver, bug)
	w.disk = &disk{Journal: memory.New(), bug: bug}
	w.hostOf = host.Config{Engine: w.cfg, Drivers: map[string]driver.Driver{"fake": w.driver}, Runner: w.machines, Log: slog.New(slog.DiscardHandler)}
	w.ledger = engine.NewLedger(w.cfg)
	w.clients = clients{byTask: map[work.TaskID]*request{}}
	w.truth = newTruth()
	return w, nil
}

// play plays the history to its end and returns what did not hold, if anything.
func (w *world) play() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = broke("panic", "%v\n%s", r, where(debug.Stack()))
		}
	}()
	if err := w.restart(); err != nil {
		return err
	}
	for _, ev := range []engine.Event{engine.SetPools{Pools: w.somePools()}, engine.SetTenant{Tenant: w.tenant("a")}, engine.SetTenant{Tenant: w.tenant("b")},
		engine.SetTenant{Tenant: w.tenant("c")}, w.look()} {
		if err := w.apply(call{ev: ev}); err != nil {
			return err
		}
	}
	for _, s := range w.plan.steps {
		w.pcg.Seed(s.seed, 5)
		w.steps++
		w.now = w.now.Add(time.Duration(w.rng.IntN(1500)) * time.Millisecond)
		if err := w.act(s.act); err != nil {
			return err
		}
	}
	w.pcg.Seed(w.plan.seed, 6)
	return w.drain()
}

// where is the part of a stack that says where a panic came from.
func where(stack []byte) string {
	var out []string
	for line := range strings.Lines(string(stack)) {
		if strings.Contains(line, "/internal/") && strings.HasPrefix(line, "\t") {
			_, at, _ := strings.Cut(line, "/internal/")
			out = append(out, "internal/"+strings.Fields(at)[0])
		}
	}
	return strings.Join(out[:min(len(out), 5)], " < ")
}

func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

func pick[T any](w *world, xs ...T) T { return xs[w.rng.IntN(len(xs))] }

func (w *world) fault(f Fault) {
	w.faults[f]++
	w.note("%s", f)
}

// note writes to the log of a history that is told.
func (w *world) note(format string, args ...any) {
	if w.log != nil {
		fmt.Fprintf(w.log, format+"\n", args...)
	}
}

// clock is the time as the server's host has it.
func (w *world) clock() work.Time { return w.now.Add(w.skew) }

// look is what the engine is told of what the driver sees now.
func (w *world) look() engine.Inventory {
	inv, err := w.driver.Observe(context.Background())
	if err != nil {
		panic(err) // no fault of Observe is ever asked for
	}
	return host.Inventory("fake", inv)
}

// kindOf is the kind of a violation, or "" for another error.
func kindOf(err error) string {
	if v, ok := errors.AsType[*violation](err); ok {
		return v.kind
	}
	return ""
}
