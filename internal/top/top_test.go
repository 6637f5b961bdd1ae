package top

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"

	"github.com/gpupool/gpupool/internal/api/apitype"
)

var update = flag.Bool("update", false, "write the golden frames anew")

// world is a Source that a test writes.
type world struct {
	mu      sync.Mutex
	snap    Snapshot
	err     error
	wants   []Want
	acts    []string
	events  []apitype.Event // told at once, then silence
	details Detail
}

func (w *world) Look(_ context.Context, want Want) (Snapshot, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wants = append(w.wants, want)
	s := w.snap
	if !want.GPUs {
		s.GPUs = nil
	}
	return s, w.err
}

func (w *world) Detail(context.Context, uint64) (Detail, error) { return w.details, w.err }

func (w *world) Events(ctx context.Context, task, _ uint64) iter.Seq2[apitype.Event, error] {
	return func(yield func(apitype.Event, error) bool) {
		for _, ev := range w.events {
			if task != 0 && ev.Task != task {
				continue
			}
			if !yield(ev, nil) {
				return
			}
		}
		<-ctx.Done()
		yield(apitype.Event{}, ctx.Err())
	}
}

func (w *world) Act(_ context.Context, what Action, id uint64) (apitype.Task, error) {
	w.acts = append(w.acts, fmt.Sprint(what, " ", id))
	return apitype.Task{ID: id, State: "running"}, w.err
}

func noon() time.Time { return time.Date(2026, 12, 3, 12, 0, 0, 0, time.Local) }

// screen is a model and what a terminal would do with it.
type screen struct {
	t   *testing.T
	m   *model
	now time.Time
}

func show(t *testing.T, w *world, width, height int) *screen {
	t.Helper()
	s := &screen{t: t, now: noon()}
	words := Words{
		Event:   func(ev apitype.Event) string { return fmt.Sprint(ev.Fact) },
		Explain: func(x apitype.Explanation, _ time.Time) []string { return x.Detail },
		Bar: func(g apitype.GPU) (string, string) {
			var who []string
			for _, h := range g.Holders {
				who = append(who, fmt.Sprintf("a=%s/%d", h.Tenant, h.Task))
			}
			return "[" + strings.Repeat("a", len(who)) + strings.Repeat("·", max(8-len(who), 0)) + "]", strings.Join(who, " ")
		},
		Ref:   func(t apitype.Task) string { return fmt.Sprint(t.ID) },
		Where: func(t apitype.Task) string { return t.Reason.Message },
		Start: func(apitype.Task, time.Time) string { return "" },
		Span:  func(d time.Duration) string { return d.Truncate(time.Second).String() },
		Count: func(f float64) string { return fmt.Sprintf("%g", f) },
	}
	s.m = newModel(t.Context(), Options{Source: w, Words: words, Server: "http://127.0.0.1:8470", Self: apitype.Self{Role: "admin"}, Now: func() time.Time { return s.now }})
	s.run(s.m.look())
	s.send(tea.WindowSizeMsg{Width: width, Height: height})
	return s
}

// send hands a message over, and what follows from it but for the clock.
func (s *screen) send(msg tea.Msg) {
	_, cmd := s.m.Update(msg)
	s.run(cmd)
}

// run runs a command; one that waits, for an event or for the clock, is left behind.
func (s *screen) run(cmd tea.Cmd) {
	if cmd == nil {
		return
	}
	done := make(chan tea.Msg, 1)
	go func() { done <- cmd() }()
	var msg tea.Msg
	select {
	case msg = <-done:
	case <-time.After(100 * time.Millisecond): // of the bubble: all the others wait
		return
	}
	switch msg := msg.(type) {
	case nil, tickMsg:
	case tea.BatchMsg:
		for _, c := range msg {
			s.run(c)
		}
	default:
		s.send(msg)
	}
}

// keys presses keys: words such as enter, or letters.
func (s *screen) keys(names ...string) {
	special := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "tab": tea.KeyTab}
	for _, name := range names {
		k := tea.KeyPressMsg{Code: []rune(name)[0], Text: name}
		if code, is := special[name]; is {
			k = tea.KeyPressMsg{Code: code}
		}
		s.send(k)
	}
}

// pass lets time go by.
func (s *screen) pass(d time.Duration) {
	s.now = s.now.Add(d)
	_, cmd := s.m.Update(tickMsg{})
	if batch, is := cmd().(tea.BatchMsg); is {
		for _, c := range batch[1:] { // the first is the next tick
			s.run(c)
		}
	}
}

func (s *screen) golden(name string) {
	s.t.Helper()
	got := s.m.frame()
	lines := strings.Split(got, "\n")
	if len(lines) != s.m.height {
		s.t.Errorf("%s: %d lines on a screen of %d", name, len(lines), s.m.height)
	}
	for i, l := range lines {
		if w := ansi.StringWidth(l); w > s.m.width {
			s.t.Errorf("%s: line %d is %d wide, the screen %d: %q", name, i+1, w, s.m.width, l)
		}
		lines[i] = strings.TrimRight(l, " ")
	}
	golden(s.t, name, strings.Join(lines, "\n")+"\n")
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (go test ./internal/top -update writes it anew):\n%s", name, diff)
	}
}

func (s *screen) has(want string) {
	s.t.Helper()
	if got := s.m.frame(); !strings.Contains(got, want) {
		s.t.Errorf("the screen does not say %q:\n%s", want, got)
	}
}

func task(id uint64, tenant, name, state string) apitype.Task {
	started := noon().Add(-time.Duration(id) * time.Minute)
	t := apitype.Task{ID: id, Tenant: tenant, Name: name, State: state, Pool: "default", Request: "1/7 GPU", Priority: "normal", Submitted: noon().Add(-time.Hour), Command: []string{"python", name + ".py"}}
	if state == "running" {
		t.Started = &started
	}
	return t
}

// small is a pool that fits on a page.
func small() *world {
	w := &world{}
	w.snap.Pools = []apitype.Pool{
		{Name: "default", Mode: "dynamic", GPUs: 8, FreeGPUs: 2, HeldGPUs: 5.4, Running: 3, Waiting: 1, Parked: 1, Capacity: 1000},
		{Name: "lab", Mode: "static", GPUs: 4, HeldGPUs: 4, Running: 4, Unusable: 1, Warning: "mode static holds whole GPUs"},
	}
	w.snap.Tasks = []apitype.Task{task(1, "vision", "train", "running"), task(2, "llm", "serve", "running"), task(3, "vision", "notebook", "parked"), task(4, "speech", "tune", "queued")}
	w.snap.Tasks[3].Reason.Message = "needs 2 whole GPUs; H100-80GB: 0 of 2 GPUs free"
	w.snap.Tasks[1].Pool = "lab"
	w.snap.Tenants = []apitype.Tenant{{Name: "llm", HeldGPUs: 4, Weight: 1, Running: 1}, {Name: "vision", HeldGPUs: 1.4, LimitGPUs: 4, Guarantee: 2, Weight: 1, Running: 2, MaxRunning: 10}}
	for i := range 8 {
		g := apitype.GPU{GPU: i, Host: "fake-0001", Model: "H100-80GB", Pool: "default", Health: "ok", Mode: "mig", Units: 8, ID: fmt.Sprint("GPU-", i)}
		if i < 2 {
			g.Milli = 143
			g.Holders = []apitype.Holding{{Task: uint64(i + 1), Tenant: "vision", Name: "train", Phase: "running", Slice: apitype.Slice{Mode: "mig", Milli: 143, Text: "1g.10gb at 0", Use: &apitype.Use{Compute: 0.5}}}}
		}
		w.snap.GPUs = append(w.snap.GPUs, g)
	}
	w.snap.GPUs[7].Health, w.snap.GPUs[7].Why = "broken", "XID 79"
	w.events = []apitype.Event{
		{Seq: 1, At: noon().Add(-time.Hour), Kind: "task.submitted", Task: 1, Tenant: "vision", Fact: "submitted as train"},
		{Seq: 2, At: noon().Add(-time.Minute), Kind: "task.state", Task: 1, Tenant: "vision", Fact: "is running"},
		{Seq: 3, At: noon(), Kind: "host.joined", Fact: "host fake-0001 with 8 GPUs joined pool default"},
	}
	w.details = Detail{Explanation: apitype.Explanation{Task: w.snap.Tasks[0], Message: "it runs for 1m", Detail: []string{"holds 1g.10gb at 0 of GPU 0"}}, Log: "epoch 1\nloss\t0.5\x1b[2J\n"}
	return w
}

// TestFrames draws every view on the smallest usual terminal, and on others.
func TestFrames(t *testing.T) { synctest.Test(t, testFrames) }

func testFrames(t *testing.T) {
	s := show(t, small(), 80, 24)
	s.golden("tasks")
	s.keys("1")
	s.golden("pools")
	s.keys("j")
	s.has("mode static holds whole GPUs")
	s.keys("2")
	s.golden("gpus")
	s.keys("j", "enter")
	s.golden("gpu")
	s.keys("esc", "4")
	s.golden("tenants")
	s.keys("5")
	s.golden("events")
	s.keys("?")
	s.golden("help")
	s.keys("x", "3", "enter")
	s.golden("task")
	s.keys("esc")
	s.send(tea.WindowSizeMsg{Width: 120, Height: 12})
	s.golden("wide")
	s.send(tea.WindowSizeMsg{Width: 44, Height: 10})
	s.golden("narrow")
	s.send(tea.WindowSizeMsg{Width: 20, Height: 5})
	s.has("is too small")
}

// TestNoColour writes no escape codes, and colour only where it is asked for.
func TestNoColour(t *testing.T) { synctest.Test(t, testNoColour) }

func testNoColour(t *testing.T) {
	s := show(t, small(), 80, 24)
	if v := s.m.frame(); strings.Contains(v, "\x1b") {
		t.Errorf("escape codes without colour: %q", v)
	}
	s.m.o.Colour = true
	s.m.s = stylesFor(s.m.o)
	if v := s.m.frame(); !strings.Contains(v, "\x1b[32mrunning") {
		t.Errorf("no green: %q", v)
	}
}

func TestFilterAndSort(t *testing.T) { synctest.Test(t, testFilterAndSort) }

func testFilterAndSort(t *testing.T) {
	w := small()
	s := show(t, w, 80, 24)
	shown := func() (out []uint64) {
		for _, i := range s.m.tasks {
			out = append(out, s.m.snap.Tasks[i].ID)
		}
		return out
	}
	expect := func(what string, want ...uint64) {
		t.Helper()
		if got := shown(); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	expect("at first", 1, 2, 3, 4)
	s.keys("/", "V", "i", "s")
	expect("while typing", 1, 3)
	s.keys("q") // a letter of the search, and not the end
	expect("visq")
	s.keys("esc")
	expect("given up", 1, 2, 3, 4)
	s.keys("/", "t", "u", "n", "e", "enter")
	expect("kept", 4)
	s.has(`only "tune"`)
	s.keys("esc", "t", "t")
	expect("of vision", 1, 3)
	s.keys("esc", "o", "o")
	expect("in lab", 2)
	s.keys("esc", "f")
	expect("queued", 4)
	s.keys("esc", "s")
	expect("by state", 3, 4, 1, 2)
	s.keys("S")
	expect("backward", 2, 1, 4, 3)
	s.keys("S", "s", "s", "s")
	expect("by start", 2, 1, 3, 4)

	s.keys("esc", "g", "j") // task 1
	w.snap.Tasks = append([]apitype.Task{task(9, "x", "y", "running")}, w.snap.Tasks...)
	s.keys("r")
	expect("another", 9, 2, 1, 3, 4)
	if x, _ := s.m.selected(); x.ID != 1 {
		t.Errorf("the cursor went from task 1 to %d", x.ID)
	}
	s.keys("f", "f", "f", "f") // ended
	if last := w.wants[len(w.wants)-1]; !last.Ended {
		t.Errorf("ended tasks are not fetched: %+v", last)
	}
	s.has("no tasks here")
	s.keys("esc", "1", "j", "enter")
	expect("of the pool under the cursor", 2)
	s.keys("4", "j", "enter")
	expect("of the tenant under the cursor", 1, 3)
}

func TestActions(t *testing.T) { synctest.Test(t, testActions) }

func testActions(t *testing.T) {
	w := small()
	s := show(t, w, 80, 24)
	s.keys("c")
	s.has("cancel task 1 of vision (train)? y/n")
	s.keys("n")
	s.has("nothing was done")
	s.keys("c", "q") // no answer but y does anything, and none ends the program
	if len(w.acts) > 0 {
		t.Fatalf("done without a yes: %v", w.acts)
	}
	s.keys("c", "y")
	s.has("task 1 is being ended")
	s.keys("p", "y", "h")
	s.has("only a waiting task can be held")
	s.keys("G", "h", "y", "p")
	s.has("only a running task can be parked")
	w.snap.Tasks[3].Held = true
	s.keys("r", "h", "y", "k", "w", "y", "k", "k", "enter", "c", "y")
	w.err = errors.New("task 1 is not known")
	s.keys("c", "y")
	s.has("task 1 is not known")
	if want := []string{"cancel 1", "park 1", "hold 4", "release 4", "wake 3", "cancel 1", "cancel 1"}; !slices.Equal(w.acts, want) {
		t.Errorf("done: %v, want %v", w.acts, want)
	}
}

// TestReconnect says that the server is away, asks less and less often, and goes on.
func TestReconnect(t *testing.T) { synctest.Test(t, testReconnect) }

func testReconnect(t *testing.T) {
	w := small()
	s := show(t, w, 80, 24)
	asked := func() int { return len(w.wants) }
	s.pass(2 * time.Second) // the events at the start
	n := asked()
	s.pass(4 * time.Second)
	if asked() != n {
		t.Errorf("asked again after 4 s in which nothing happened")
	}
	s.pass(2 * time.Second)
	if asked() != n+1 {
		t.Errorf("asked %d times within 6 s, want once", asked()-n)
	}
	w.err = errors.New("cannot reach gpupool at http://127.0.0.1:8470: connection refused")
	s.pass(6 * time.Second)
	s.golden("lost")
	var waits []int
	n = asked()
	for waited := 0; len(waits) < 7; waited++ {
		s.pass(time.Second)
		if asked() > n {
			waits = append(waits, waited+1)
			waited, n = -1, asked()
		}
	}
	if want := []int{1, 2, 4, 8, 16, 30, 30}; !slices.Equal(waits, want) {
		t.Errorf("asked after %v seconds, want %v", waits, want)
	}
	w.err = nil
	s.pass(30 * time.Second)
	s.has("connected again")
}

// TestManyGPUs draws what is on the screen and no more, and is quick about it.
func TestManyGPUs(t *testing.T) { synctest.Test(t, testManyGPUs) }

func testManyGPUs(t *testing.T) {
	w := small()
	for i := len(w.snap.GPUs); i < 10_000; i++ {
		w.snap.GPUs = append(w.snap.GPUs, apitype.GPU{GPU: i, Host: fmt.Sprintf("fake-%04d", i/8), Model: "H100-80GB", Pool: "default", Health: "ok", Units: 8})
	}
	s := show(t, w, 80, 24)
	s.keys("2")
	drawn := 0
	bar := s.m.o.Words.Bar
	s.m.o.Words.Bar = func(g apitype.GPU) (string, string) { drawn++; return bar(g) }
	for range 100 {
		s.keys("j")
		s.m.frame()
	}
	if drawn > 100*24 {
		t.Errorf("100 frames of 24 lines drew %d GPUs", drawn)
	}
	s.keys("G")
	s.has("fake-1249")
	s.keys("g", "/", "f", "a", "k", "e", "-", "1", "2", "4", "9", "enter")
	if len(s.m.gpus) != 8 {
		t.Errorf("%d GPUs of one host, want 8", len(s.m.gpus))
	}
	if want := w.wants; want[0].GPUs || !want[len(want)-1].GPUs {
		t.Errorf("GPUs are fetched when they are looked at, and only then: %+v", want)
	}
}

// TestEventsStay keeps the row that is looked at while others come.
func TestEventsStay(t *testing.T) { synctest.Test(t, testEventsStay) }

func testEventsStay(t *testing.T) {
	w := small()
	s := show(t, w, 80, 24)
	s.keys("5", "j")
	s.send(eventMsg{of: s.m.stream, events: []apitype.Event{{Seq: 4, Kind: "task.state", Task: 2, Fact: "new"}}})
	if c := s.m.lists[eventsTab]; c.at != 2 {
		t.Errorf("the cursor is on row %d, want 2", c.at)
	}
	s.keys("enter")
	if s.m.detail == nil || s.m.detail.id != 1 {
		t.Errorf("enter on an event of task 1 opened %+v", s.m.detail)
	}
	s.keys("q")
	if s.m.detail != nil {
		t.Error("q does not close the detail")
	}
	if _, cmd := s.m.Update(tea.KeyPressMsg{Code: 'q', Text: "q"}); cmd == nil {
		t.Error("q does not quit")
	}
}

func TestPrintOnce(t *testing.T) { synctest.Test(t, testPrintOnce) }

func testPrintOnce(t *testing.T) {
	w := small()
	s := show(t, w, 80, 24)
	var b strings.Builder
	if err := PrintOnce(&b, w.snap, s.m.o, 80, 5); err != nil {
		t.Fatal(err)
	}
	golden(t, "once", b.String())
}
