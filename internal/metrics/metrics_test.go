package metrics

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/host"
	"github.com/gpupool/gpupool/internal/journal/memory"
	"github.com/gpupool/gpupool/internal/work"
)

var update = flag.Bool("update", false, "rewrite the table in docs/metrics.md")

func (w *world) submit(s work.Spec) work.TaskID {
	w.t.Helper()
	id, err := w.do(engine.Submit{Spec: s})
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

func (w *world) exit(id work.TaskID, code int) {
	w.t.Helper()
	w.tell(engine.ProcessExited{Owner: work.Owner{Task: id, Epoch: w.e.Task(id).Epoch}, Exit: work.Exit{Code: code}})
	w.answer(all)
}

func TestLifeOfATask(t *testing.T) {
	w := newWorld(t, 8, 8, 2)
	id := w.submit(spec(0, "8"))
	waiting := w.submit(spec(1, "3g.40gb"))
	w.now += 2 * second
	w.answer(all)
	w.show(0.25)
	w.has(`gpupool_gpus{model="H100-80GB",pool="p0",state="full"} 8`, `gpupool_held_gpus{model="H100-80GB",pool="p0"} 8`,
		`gpupool_pool_utilisation_ratio{model="H100-80GB",pool="p0"} 0.25`, `gpupool_gpu_utilisation_ratio{gpu="7",host="p0-0",model="H100-80GB",pool="p0"} 0.25`,
		`gpupool_gpu_info{gpu="7",host="p0-0",model="H100-80GB",pool="p0",uuid="GPU-fake-00000-7"} 1`, `gpupool_slices_held{model="H100-80GB",pool="p0",profile="whole"} 8`,
		`gpupool_queue_tasks{pool="p0",priority="normal"} 1`, `gpupool_tenant_waiting_tasks{tenant="t1"} 1`, `gpupool_tenant_held_gpus{tenant="t0"} 8`, `gpupool_static_gpus{pool="p0"} 8`,
		`gpupool_task_wait_seconds_count{pool="p0",priority="normal"} 1`, `gpupool_carve_seconds_sum{model="H100-80GB",profile="whole"} 2`, `gpupool_task_start_seconds_sum{pool="p0"} 2`)
	w.now += 100 * second
	w.exit(id, 3)
	w.now += second
	w.exit(waiting, 0)
	w.submit(spec(0, "1g.10gb"))
	w.show(0.5)
	w.has(`gpupool_tasks_ended_total{class="training",pool="p0",reason="exit_code",state="failed"} 1`, `gpupool_tasks_ended_total{class="training",pool="p0",reason="exit_zero",state="succeeded"} 1`,
		`gpupool_tenant_tasks_ended_total{state="failed",tenant="t0"} 1`, `gpupool_task_run_seconds_sum{class="training",pool="p0"} 101`,
		`gpupool_task_wait_seconds_sum{pool="p0",priority="normal"} 102`, `gpupool_tenant_wait_seconds_total{tenant="t1"} 102`,
		`gpupool_static_gpus{pool="p0"} 1`, `gpupool_slices_held{model="H100-80GB",pool="p0",profile="1g.10gb"} 1`, `gpupool_slices_placeable{model="H100-80GB",pool="p0",profile="whole"} 7`,
		`gpupool_slices_placeable{model="H100-80GB",pool="p0",profile="1g.10gb"} 55`, `gpupool_queue_tasks{pool="p0",priority="normal"} 0`, `gpupool_free_gpus_largest_host{model="H100-80GB",pool="p0"} 7`)
	if open := w.m.scrape(t, "application/openmetrics-text; version=1.0.0"); !strings.Contains(open, `# {task="2"} 102`) || !strings.HasSuffix(open, "# EOF\n") {
		t.Errorf("a wait has no exemplar that names its task, or the text is cut short")
	}
}

func TestRefusals(t *testing.T) {
	w := newWorld(t, 8, 8, 1)
	w.show(0)
	for _, s := range []work.Spec{func() work.Spec { s := spec(0, "9"); return s }(), func() work.Spec { s := spec(0, "1"); s.Pool = "made-up-by-a-user"; return s }()} {
		if _, err := w.do(engine.Submit{Spec: s}); err == nil {
			t.Fatal("it was accepted")
		}
	}
	w.has(`gpupool_submissions_rejected_total{pool="p0",reason="impossible"} 1`)
	if got := w.m.scrape(t, ""); strings.Contains(got, "made-up") {
		t.Error("whatever a user writes as a pool becomes a series")
	}
}

func TestUnsaved(t *testing.T) {
	w := newWorld(t, 8, 8, 1)
	w.show(0)
	w.has(`gpupool_journal_snapshot_failures_total 0`)
	w.m.Commit(host.Commit{At: w.now, Unsaved: errors.New("no room")})
	w.has(`gpupool_journal_snapshot_failures_total 1`)
}

func TestParkAndWake(t *testing.T) {
	w := newWorld(t, 8, 8, 1)
	id := w.submit(spec(0, "1"))
	w.answer(all)
	w.tell(engine.Park{Task: id, By: "ann"})
	w.now += 3 * second
	w.answer(all)
	w.show(0)
	w.has(`gpupool_move_seconds_sum{move="park",pool="p0"} 3`, `gpupool_pool_parked_tasks{pool="p0"} 1`, `gpupool_static_gpus{pool="p0"} 1`, `gpupool_held_gpus{model="H100-80GB",pool="p0"} 0`)
	w.tell(engine.Wake{Task: id, By: "ann"})
	w.now += 5 * second
	w.answer(all)
	w.show(0)
	w.has(`gpupool_move_seconds_sum{move="wake",pool="p0"} 5`, `gpupool_task_wait_seconds_count{pool="p0",priority="normal"} 1`)
}

func TestOverdue(t *testing.T) {
	w := newWorld(t, 8, 8, 1)
	id := w.submit(spec(0, "1"))
	w.answer(all)
	w.tell(engine.Cancel{Task: id, By: "ann"})
	w.answer(func(c engine.Command) bool { _, free := c.(engine.FreeCmd); return !free })
	w.tell(engine.FreeFailed{Owner: work.Owner{Task: id, Epoch: 1}, Err: "in use"})
	w.show(0)
	w.has(`gpupool_parts_freeing{pool="p0"} 1`, `gpupool_free_retries_total{pool="p0"} 1`)
	w.tell(engine.FreeDone{Owner: work.Owner{Task: id, Epoch: 1}})
	w.has(`gpupool_parts_freeing{pool="p0"} 0`, `gpupool_parts_freeing_oldest_seconds{pool="p0"} 0`)
}

func TestCarveFails(t *testing.T) {
	w := newWorld(t, 8, 8, 1)
	w.show(0)
	id := w.submit(spec(0, "1"))
	w.tell(engine.CarveFailed{Owner: work.Owner{Task: id, Epoch: 1}, Err: "no"})
	w.show(0)
	w.tell(engine.JudgeGPU{GPU: 0, Do: gpu.VerdictCordon, By: "ann"}) // which is no failed carve
	w.tell(engine.JudgeGPU{GPU: 0, By: "ann"})
	w.has(`gpupool_carves_failed_total{model="H100-80GB",pool="p0"} 1`, `gpupool_tasks_requeued_total{pool="p0",reason="carve_failed"} 1`, `gpupool_gpus{model="H100-80GB",pool="p0",state="suspect"} 1`)
}

func TestHealth(t *testing.T) {
	w := newWorld(t, 8, 8, 1)
	w.submit(spec(0, "1"))
	w.answer(all)
	g := w.e.GPUs()[0]
	host := w.e.Hosts()[g.Host].Info
	at := w.now
	see := func(v ...engine.Verdict) {
		w.tell(engine.Inventory{Driver: host.Driver, Hosts: hostsOf(w.e), Verdicts: v, Faults: []engine.Fault{{ID: g.ID, At: at, Code: "XID 31", What: "page fault"}}})
	}
	see()
	see() // the same fault
	w.tell(engine.JudgeGPU{GPU: 1, Do: gpu.VerdictCordon, By: "ann"})
	see(engine.Verdict{ID: w.e.GPUs()[2].ID, Do: gpu.VerdictDrain, Why: "XID 48"}, engine.Verdict{ID: w.e.GPUs()[1].ID, Do: gpu.VerdictCordon, Why: "XID 63"})
	w.show(0)
	of := func(by, verdict string) string {
		return `gpupool_gpu_verdicts{by="` + by + `",model="H100-80GB",pool="p0",verdict="` + verdict + `"} `
	}
	w.has(`gpupool_gpu_faults_total{code="XID 31",model="H100-80GB",pool="p0"} 1`, of("operator", "cordon")+"1", of("operator", "drain")+"0", of("driver", "cordon")+"1", of("driver", "drain")+"1", of("driver", "broken")+"0",
		`gpupool_gpus{model="H100-80GB",pool="p0",state="cordoned"} 1`, `gpupool_gpus{model="H100-80GB",pool="p0",state="drained"} 1`)
}

// hostsOf is what the driver saw.
func hostsOf(e *engine.Engine) (out []gpu.HostInfo) {
	for _, h := range e.Hosts() {
		out = append(out, h.Info)
	}
	return out
}

func TestModes(t *testing.T) {
	w := newWorld(t, 8, 8, 1)
	w.tell(engine.SetMode{Pool: "p0", Mode: work.Static, By: "ann"})
	w.show(0)
	w.has(`gpupool_pool_mode{mode="static",pool="p0"} 1`, `gpupool_pool_mode{mode="dynamic",pool="p0"} 0`, `gpupool_pool_fallen_back{pool="p0"} 1`, `gpupool_pool_mode_changes_total{mode="static",pool="p0"} 1`)
	if got := grep(w.m.scrape(t, ""), "gpupool_pool_fallbacks_total"); len(got) != 1 || !strings.HasSuffix(got[0], " 0") {
		t.Errorf("what an operator did counts as done by the pool itself: %v", got)
	}
}

// Names beyond the bounds are one together, and nothing is lost.
func TestBounds(t *testing.T) {
	w := newWorld(t, 16, 16, 5)
	w.m.opts.GPUs, w.m.tenants.most = 3, 2
	for i := range 5 {
		w.submit(spec(i, "1"))
	}
	w.answer(all)
	w.show(0.5)
	got := w.m.scrape(t, "")
	if n := len(grep(got, "gpupool_gpu_held_ratio{")); n != 4 {
		t.Errorf("%d series of GPUs, expected 3 and one for the others", n)
	}
	w.has(`gpupool_tenant_tasks_submitted_total{tenant="other"} 3`, `gpupool_tenant_held_gpus{tenant="other"} 3`, `gpupool_tenant_tasks_submitted_total{tenant="t1"} 1`)
}

// What a Metrics says of who waits is what the engine says, whatever happens; and one that
// is seeded from an engine says the same as one that saw it all.
func TestAgreesWithEngine(t *testing.T) {
	for seed := range uint64(20) {
		w := newWorld(t, 16, 8, 3)
		r := rand.New(rand.NewPCG(seed, 1))
		for i := range 300 {
			w.now += work.Time(r.IntN(20)) * second
			w.anything(r)
			if r.IntN(3) > 0 {
				w.answer(func(engine.Command) bool { return r.IntN(4) > 0 })
			}
			if i%4 == 0 {
				w.agrees(w.m, seed)
			}
		}
		snapshot, err := w.e.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		again := New(Options{})
		j := memory.New()
		if err := j.Snapshot(t.Context(), 0, snapshot); err != nil {
			t.Fatal(err)
		}
		again.Seed(openHost(t, w.cfg, again, j))
		w.agrees(again, seed)
		if t.Failed() {
			return
		}
	}
}

// anything does something that a user or the outside may do.
func (w *world) anything(r *rand.Rand) {
	id := work.TaskID(1 + r.IntN(max(1, int(w.e.LastTask()))))
	switch r.IntN(12) {
	case 0, 1, 2, 3:
		s := spec(r.IntN(3), []string{"1", "8", "1g.10gb", "2", "0.5"}[r.IntN(5)])
		s.Pool, s.Priority = fmt.Sprintf("p%d", r.IntN(2)), work.Priority(r.IntN(3))
		s.Hold = r.IntN(6) == 0
		if r.IntN(5) == 0 {
			s.TTL = time.Minute
		}
		if r.IntN(4) == 0 {
			s.AfterAny = []work.TaskID{id}
		}
		if r.IntN(6) == 0 {
			s.Array = &work.Array{Last: 3, Step: 1}
		}
		w.tell(engine.Submit{Spec: s})
	case 4:
		w.tell(engine.Cancel{Task: id, By: "ann"})
	case 5, 6, 7:
		if t := w.e.Task(id); t != nil {
			w.tell(engine.ProcessExited{Owner: work.Owner{Task: id, Epoch: t.Epoch}, Exit: work.Exit{Code: r.IntN(2)}})
		}
	case 8:
		w.tell(engine.Hold{Task: id, On: r.IntN(2) == 0, By: "ann"})
	case 9:
		w.tell(engine.Park{Task: id, By: "ann"})
	case 10:
		w.tell(engine.Wake{Task: id, By: "ann"})
	case 11:
		w.tell(engine.Preempt{Task: id, By: "ann"})
	}
}

func (w *world) agrees(m *Metrics, seed uint64) {
	w.t.Helper()
	m.drain()
	m.tracker.waiting(w.now)
	for _, p := range w.e.Pools() {
		n := 0
		var oldest work.Time
		for _, x := range m.tracker.pool(p.Name).waiting {
			n += x.tasks + x.back
			if x.oldest != 0 && (oldest == 0 || x.oldest < oldest) {
				oldest = x.oldest
			}
		}
		var want work.Time
		for _, t := range w.e.Tasks() {
			inLine := t.Spec.Pool == p.Name && (t.State == work.Queued && !t.Held && t.Awaits == 0 ||
				t.State == work.Parked && t.Awake && t.Lease() != nil && t.Lease().Parts[0].Phase == engine.PhaseParked && !t.Lease().Closing)
			if inLine && (want == 0 || t.Queued < want) {
				want = t.Queued
			}
		}
		if n != p.Waiting || oldest != want {
			w.t.Errorf("seed %d, pool %s: %d wait, the first since %d; the engine says %d, since %d", seed, p.Name, n, oldest, p.Waiting, want)
		}
	}
	stand := 0
	for _, l := range w.e.Leases() {
		for _, p := range l.Parts {
			if p.Phase != engine.PhaseFreed && len(p.Slices) > 0 { // one that is parked holds none
				stand++
			}
		}
	}
	if stand != len(m.tracker.parts) {
		w.t.Errorf("seed %d: %d parts stand, the engine says %d", seed, len(m.tracker.parts), stand)
	}
	if w.t.Failed() {
		w.t.FailNow()
	}
}

// A histogram is both: native for those who can read that, and in buckets.
func TestHistogramsAreBoth(t *testing.T) {
	w := newWorld(t, 8, 8, 1)
	w.submit(spec(0, "1"))
	families, err := w.m.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "gpupool_task_wait_seconds" {
			continue
		}
		if h := f.GetMetric()[0].GetHistogram(); h.Schema == nil || h.GetZeroCount() != 1 || len(h.GetBucket()) == 0 || h.GetBucket()[0].GetCumulativeCount() != 1 {
			t.Errorf("got %v", h)
		}
		return
	}
	t.Error("there is no such histogram")
}

// How many series there are must not grow with what was done.
func TestSeriesDoNotGrow(t *testing.T) {
	w := newWorld(t, 8, 8, 2)
	count := func(rounds int) int {
		for range rounds {
			id := w.submit(spec(0, "1"))
			w.answer(all)
			w.now += second
			w.exit(id, 0)
		}
		w.show(0)
		n := 0
		for l := range strings.Lines(w.m.scrape(t, "")) {
			if strings.HasPrefix(l, "gpupool_") {
				n++
			}
		}
		return n
	}
	if a, b := count(10), count(500); a != b {
		t.Errorf("%d series after 10 tasks, %d after 510", a, b)
	}
	if n := len(w.m.tracker.tasks) + len(w.m.tracker.parts) + len(w.m.tracker.after) + len(w.m.tracker.arrays); n != 0 {
		t.Errorf("%d things are remembered of tasks that have ended", n)
	}
}

// What is shown is what is defined, with these labels, and the page has it all.
func TestDefined(t *testing.T) {
	w := newWorld(t, 8, 8, 2)
	r := rand.New(rand.NewPCG(7, 7))
	for range 400 {
		w.now += second
		w.anything(r)
		w.answer(all)
	}
	w.show(0.5)
	families, err := w.m.Gather()
	if err != nil {
		t.Fatal(err)
	}
	defs := map[string]Def{}
	for _, d := range w.m.Defs() {
		defs[d.Name] = d
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "gpupool_") {
			continue
		}
		d, known := defs[f.GetName()]
		if !known {
			t.Errorf("%s is shown and not defined", f.GetName())
			continue
		}
		if kind := strings.ToLower(f.GetType().String()); kind != d.Kind || f.GetHelp() != d.Help {
			t.Errorf("%s is a %s with the help %q; defined as a %s with %q", d.Name, kind, f.GetHelp(), d.Kind, d.Help)
		}
		for _, x := range f.GetMetric() {
			if got := labelNames(x); !slices.Equal(got, slices.Sorted(slices.Values(d.Labels))) {
				t.Fatalf("%s has the labels %v, defined are %v", d.Name, got, d.Labels)
			}
		}
	}
	const page, mark = "../../docs/metrics.md", "<!-- generated: go test ./internal/metrics -run Defined -update -->\n"
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, _, ok := strings.Cut(string(b), mark)
	if !ok {
		t.Fatalf("%s has no line %q", page, mark)
	}
	want := head + mark + w.m.Doc()
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(b) != want {
		t.Errorf("%s differs from what is defined: run go test ./internal/metrics -run Defined -update and look at the difference", page)
	}
}

func labelNames(m *dto.Metric) []string {
	names := map[string]bool{}
	for _, l := range m.GetLabel() {
		names[l.GetName()] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// The view that a host publishes, and what it is told, reach the metrics.
func TestSeeded(t *testing.T) {
	m := New(Options{Bounds: map[string]float64{"waiting_above": 5}})
	h := openHost(t, engine.Config{}, m, memory.New())
	m.Seed(h)
	if got := m.scrape(t, ""); !strings.Contains(got, `gpupool_alert_bound{bound="waiting_above"} 5`) || !strings.Contains(got, "process_cpu_seconds_total") {
		t.Error("there is no bound, or nothing about the process")
	}
	const lost = "\ngpupool_trace_spans_dropped_total "
	if got := m.scrape(t, ""); !strings.Contains(got, lost+"0\n") {
		t.Error("without traces spans are lost")
	}
	m.Traces(func() uint64 { return 17 })
	if got := m.scrape(t, ""); !strings.Contains(got, lost+"17\n") {
		t.Error("lost spans are not counted")
	}
}
