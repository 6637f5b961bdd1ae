package metrics

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/host"
	"github.com/gpupool/gpupool/internal/journal/memory"
	"github.com/gpupool/gpupool/internal/runner"
	"github.com/gpupool/gpupool/internal/work"
)

// world is an engine in virtual time whose commits go to a Metrics, and which nobody answers
// but the test.
type world struct {
	t   testing.TB
	m   *Metrics
	cfg engine.Config
	e   *engine.Engine
	now work.Time
	seq uint64
	out []engine.Command // not yet answered
}

const second = work.Time(time.Second)

func newWorld(t testing.TB, gpus, perPool, tenants int) *world {
	var cfg engine.Config
	cfg.AllocTimeout = -1
	for _, m := range gpu.Builtin() {
		if m.Key == "H100-80GB" {
			cfg.Models = append(cfg.Models, gpu.NewGeometry(m))
		}
	}
	w := &world{t: t, m: New(Options{Version: "test"}), cfg: cfg, e: engine.New(cfg), now: work.TimeOf(time.Now().Add(-time.Hour))}
	var pools []work.Pool
	inv := engine.Inventory{Driver: "fake"}
	for h := range gpus / 8 {
		pool := h * 8 / perPool
		if pool == len(pools) {
			pools = append(pools, work.Pool{Name: fmt.Sprintf("p%d", pool), Mode: work.Dynamic, Hosts: []string{fmt.Sprintf("p%d-*", pool)}})
		}
		info := gpu.HostInfo{Name: fmt.Sprintf("p%d-%d", pool, h), Driver: "fake", CPUMilli: 128_000, MemMiB: 1 << 20}
		for g := range 8 {
			info.GPUs = append(info.GPUs, gpu.GPUInfo{ID: fmt.Sprintf("GPU-fake-%05d-%d", h, g), Model: "H100-80GB"})
		}
		inv.Hosts = append(inv.Hosts, info)
	}
	w.tell(engine.SetPools{Pools: pools})
	for i := range tenants {
		w.tell(engine.SetTenant{Tenant: work.Tenant{Name: fmt.Sprintf("t%d", i), LimitGPUs: 1000, GuaranteeGPUs: 1}})
	}
	w.tell(inv)
	return w
}

// do lets the engine take an event, and the Metrics hear of it.
func (w *world) do(ev engine.Event) (work.TaskID, error) {
	w.t.Helper()
	out := w.e.Step(w.now, ev)
	c := host.Commit{At: w.e.Now(), Asked: 1, Stepped: time.Microsecond, Stored: time.Millisecond}
	for _, f := range out.Facts {
		w.seq++
		c.Events = append(c.Events, host.Event{Seq: w.seq, At: c.At, Fact: f, Task: engine.TaskOf(f)})
	}
	if out.Err != nil {
		c.Refused = append(c.Refused, host.Refusal{Event: ev, Err: out.Err})
	}
	w.out = append(w.out, out.Commands...)
	w.m.Commit(c)
	return out.Task, out.Err
}

// tell is do for events whose answer is of no account: random ones are often refused.
func (w *world) tell(ev engine.Event) {
	w.t.Helper()
	w.do(ev) //nolint:errcheck // see above
}

// answer answers commands well until there are none, of those that pick takes.
func (w *world) answer(pick func(engine.Command) bool) {
	for again := true; again; {
		again = false
		due := w.out
		w.out = nil
		for _, c := range due {
			if !pick(c) {
				w.out = append(w.out, c)
				continue
			}
			again = true
			switch c := c.(type) {
			case engine.CarveCmd:
				w.tell(engine.CarveDone{Owner: c.Owner, Devices: c.GPUIDs})
			case engine.StartCmd:
				w.tell(engine.StartDone{Owner: c.Owner})
			case engine.StopCmd:
				w.tell(engine.ProcessExited{Owner: c.Owner, Exit: work.Exit{Code: 143, Signal: "SIGTERM"}})
			case engine.FreeCmd:
				w.tell(engine.FreeDone{Owner: c.Owner})
			case engine.SuspendCmd:
				w.tell(engine.SuspendDone(c))
			case engine.ResumeCmd:
				w.tell(engine.ResumeDone{Owner: c.Owner})
			case engine.ResizeCmd:
				w.tell(engine.ResizeDone{Owner: c.Owner, Devices: c.GPUIDs})
			}
		}
	}
}

func all(engine.Command) bool { return true }

// show publishes a view in which every slice is as busy as compute says.
func (w *world) show(compute float64) {
	v := &host.View{At: w.e.Now(), Pools: w.e.Pools(), Debts: w.e.Debts(), Models: map[string]*gpu.Geometry{}}
	for _, h := range w.e.Hosts() {
		v.Hosts = append(v.Hosts, host.HostView{Name: h.Info.Name, Pool: h.Pool, Up: h.Up})
	}
	var samples []driver.Sample
	for _, g := range w.e.GPUs() {
		v.Models[g.Model] = w.e.Cluster().Geometry(g.Number)
		operator, own := w.e.VerdictsOn(g.Number)
		v.GPUs = append(v.GPUs, host.GPUView{ID: g.ID, Model: g.Model, Host: g.Host, Health: g.Health, Mode: g.Mode, Mask: g.Mask, Milli: g.Milli, Operator: operator, Driver: own, First: len(v.Held), Held: len(g.Held)})
		for _, x := range g.Held {
			v.Held = append(v.Held, host.HeldView{Owner: x.Owner, Mode: x.Slice.Mode, Profile: x.Slice.Profile, Milli: x.Slice.Milli})
			samples = append(samples, driver.Sample{GPUID: g.ID, Owner: x.Owner, Compute: compute, MemMiB: 1024})
		}
	}
	v.Samples = append(v.Samples, samples)
	for _, t := range w.e.Tenants() {
		v.Tenants = append(v.Tenants, host.TenantView{Name: t.Name, HeldMilli: w.e.HeldMilli(t.Name), LimitGPUs: t.LimitGPUs, GuaranteeGPUs: t.GuaranteeGPUs})
	}
	w.m.Published(v)
}

// scrape is what a Prometheus gets, as text.
func (m *Metrics) scrape(t testing.TB, accept string) string {
	t.Helper()
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/metrics", http.NoBody)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, r)
	if rec.Code != http.StatusOK {
		t.Fatalf("status %d: %s", rec.Code, rec.Body)
	}
	return rec.Body.String()
}

// has checks that lines are in a scrape.
func (w *world) has(lines ...string) {
	w.t.Helper()
	got := w.m.scrape(w.t, "")
	for _, l := range lines {
		if !strings.Contains(got, "\n"+l+"\n") {
			name, _, _ := strings.Cut(l, "{")
			name, _, _ = strings.Cut(name, " ")
			w.t.Errorf("there is no line\n  %s\namong\n  %s", l, strings.Join(grep(got, name), "\n  "))
		}
	}
}

func grep(text, start string) (out []string) {
	for l := range strings.Lines(text) {
		if strings.HasPrefix(l, start) {
			out = append(out, strings.TrimSpace(l))
		}
	}
	return out
}

func spec(tenant int, gpus string) work.Spec {
	r, err := work.ParseGPUs(gpus)
	if err != nil {
		panic(err) // of the test's own making
	}
	return work.Spec{Tenant: fmt.Sprintf("t%d", tenant), Pool: "p0", Priority: work.Normal, Request: r, Command: []string{"x"}, TTL: 2 * time.Hour}
}

// nobody runs nothing.
type nobody struct{ runner.Runner }

// List has nothing.
func (nobody) List(context.Context) ([]runner.Status, error) { return nil, nil }

// openHost is a host over a memory journal that does not run yet.
func openHost(t testing.TB, cfg engine.Config, watch host.Watcher, j *memory.Journal) *host.Host {
	t.Helper()
	h, err := host.Open(context.Background(), host.Config{Engine: cfg, Journal: j, Runner: nobody{}, Watch: watch, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return h
}
