package tracing

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/host"
	"github.com/gpupool/gpupool/internal/work"
)

// collector is a receiver of OTLP over HTTP.
type collector struct {
	*httptest.Server
	mu      sync.Mutex
	spans   []*tracepb.Span
	who     map[string]string
	headers http.Header
	answers []int         // status of the first requests; then 200
	hang    chan struct{} // if there is one, requests wait for its end
	asked   int
}

func collect(t *testing.T) *collector {
	c := &collector{who: map[string]string{}}
	c.Server = httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) serve(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.asked++
	hang, status := c.hang, http.StatusOK
	if len(c.answers) > 0 {
		status, c.answers = c.answers[0], c.answers[1:]
	}
	c.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
		return
	}
	if status != http.StatusOK {
		http.Error(w, "not now", status)
		return
	}
	z, err := gzip.NewReader(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	raw, err := io.ReadAll(z)
	var data tracepb.TracesData
	if err != nil || proto.Unmarshal(raw, &data) != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
		http.Error(w, "this is not OTLP", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.headers = r.Header
	for _, rs := range data.GetResourceSpans() {
		for _, kv := range rs.GetResource().GetAttributes() {
			c.who[kv.GetKey()] = kv.GetValue().GetStringValue()
		}
		for _, ss := range rs.GetScopeSpans() {
			c.spans = append(c.spans, ss.GetSpans()...)
		}
	}
}

// told is a feed of facts that a test makes.
type told struct {
	seq  uint64
	next chan host.Event
	e    *engine.Engine
}

func (f *told) Subscribe(uint64) ([]host.Event, <-chan host.Event, func()) {
	return nil, f.next, func() {}
}
func (f *told) LastEvent() uint64              { return f.seq }
func (f *told) Read(read func(*engine.Engine)) { read(f.e) }

const second = work.Time(time.Second)

// say tells facts, at seconds since the beginning.
func (f *told) say(at work.Time, facts ...engine.Fact) {
	for _, x := range facts {
		f.seq++
		f.next <- host.Event{Seq: f.seq, At: at * second, Fact: x, Task: engine.TaskOf(x)}
	}
}

// log is what a server said.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *log) count(words string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), words)
}

func follow(t *testing.T, o Options) (*Tracer, *told, *log) {
	t.Helper()
	var said log
	o.Log, o.Installation = slog.New(slog.NewTextHandler(&said, nil)), "here"
	if o.Sample == 0 {
		o.Sample = 1
	}
	o.batch = time.Millisecond
	tr := New(o)
	f := &told{next: make(chan host.Event), e: engine.New(engine.Config{})}
	tr.Follow(f)
	return tr, f, &said
}

func spec(name, trace string) *work.Spec {
	return &work.Spec{Name: name, Tenant: "vision", Pool: "lab", Command: []string{"true"}, Request: work.Request{GPUs: 1, Members: 1}, Trace: trace}
}

func why(code, msg string) work.Reason { return work.Reason{Code: work.Code(code), Msg: msg} }

func placed(epoch, runs uint32) engine.Placed {
	return engine.Placed{Task: 1, Epoch: epoch, Runs: runs, Parts: []work.Part{{Slices: []work.Slice{{GPU: 3, Mode: "whole", Milli: 1000}}}}}
}

func became(s work.State, code string) engine.Became {
	return engine.Became{Task: 1, State: s, Reason: why(code, "as "+code)}
}

// lines are the spans as a person would draw them: name, from, to, epoch, error.
func (c *collector) lines() (out []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	spans := slices.Clone(c.spans)
	slices.SortStableFunc(spans, func(a, b *tracepb.Span) int {
		return int(a.GetStartTimeUnixNano()/1e9) - int(b.GetStartTimeUnixNano()/1e9)
	})
	for _, s := range spans {
		line := fmt.Sprintf("%s %d-%d epoch %d", s.GetName(), s.GetStartTimeUnixNano()/1e9, s.GetEndTimeUnixNano()/1e9, attr(s.GetAttributes(), "gpupool.epoch").GetIntValue())
		if s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR {
			line += " error: " + s.GetStatus().GetMessage()
		}
		for _, ev := range s.GetEvents() {
			line += fmt.Sprintf("; %s at %d", ev.GetName(), ev.GetTimeUnixNano()/1e9)
		}
		out = append(out, line)
	}
	return out
}

func attr(in []*commonpb.KeyValue, key string) *commonpb.AnyValue {
	for _, kv := range in {
		if kv.GetKey() == key {
			return kv.GetValue()
		}
	}
	return nil
}

// TestLife follows a task through everything that can happen to one.
func TestLife(t *testing.T) {
	c := collect(t)
	tr, f, _ := follow(t, Options{Endpoint: c.URL + "/v1/traces", Headers: map[string]string{"X-Token": "secret"}, Resource: map[string]string{"service.name": "gpupool"}})
	o := func(epoch uint32) work.Owner { return work.Owner{Task: 1, Epoch: epoch} }
	bad := work.Exit{Code: 3}
	f.say(100, engine.Submitted{Task: 1, Spec: spec("train", "")})
	f.say(101, engine.Reserved{Task: 1})
	f.say(110, placed(1, 0), became(work.Starting, "placed"))
	f.say(111, engine.Closing{Task: 1, Epoch: 1, Then: work.Queued, Reason: why("carve_failed", "broken")}, became(work.Queued, "carve_failed"))
	f.say(113, engine.Freed{Owner: o(1)})
	f.say(120, placed(2, 0), became(work.Starting, "placed"))
	f.say(122, engine.Carved{Owner: o(2)})
	f.say(125, engine.Started{Owner: o(2)}, became(work.StateRunning, "running"))
	f.say(126, engine.Resizing{Owner: o(2), Reason: why("hot", "it is hot")})
	f.say(127, engine.Resized{Owner: o(2)})
	f.say(130, engine.Suspending{Owner: o(2), Reason: why("idle", "not used")})
	f.say(131, engine.Suspended{Owner: o(2)}, became(work.Parked, "idle"))
	f.say(132, engine.Freed{Owner: o(2)})
	f.say(140, engine.Woken{Task: 1, By: "its user"})
	f.say(145, placed(3, 2))
	f.say(146, engine.Carved{Owner: o(3)})
	f.say(147, engine.Resumed{Owner: o(3)}, became(work.StateRunning, "woken"))
	f.say(150, became(work.Yielding, "preempted"), engine.Closing{Task: 1, Epoch: 3, Then: work.Queued, Reason: why("preempted", "others first")})
	f.say(152, engine.Exited{Owner: o(3), Exit: bad}, became(work.Queued, "preempted"))
	f.say(153, engine.Freed{Owner: o(3)})
	f.say(160, placed(4, 0), became(work.Starting, "placed"), engine.Carved{Owner: o(4)})
	f.say(161, engine.Started{Owner: o(4)}, became(work.StateRunning, "running"))
	f.say(162, engine.Suspending{Owner: o(4)})
	f.say(163, engine.MoveFailed{Task: 1, Move: work.MovePark, Why: "it would not stop"}, engine.Resumed{Owner: o(4)})
	f.say(170, engine.Exited{Owner: o(4), Exit: bad}, engine.Closing{Task: 1, Epoch: 4, Then: work.Failed, Reason: why("exited", "exited with code 3")}, became(work.Failed, "exited"))
	f.say(172, engine.Freed{Owner: o(4)})
	close(f.next)
	tr.Close(t.Context())
	want := []string{
		"queue 100-110 epoch 0; reserved at 101",
		"train 100-170 epoch 4 error: as exited",
		"placement 110-110 epoch 1", "carve 110-111 epoch 1 error: broken", "stop 111-111 epoch 1", "free 111-113 epoch 1", "queue 111-120 epoch 1",
		"placement 120-120 epoch 2", "carve 120-122 epoch 2; slices made at 122", "start 122-125 epoch 2; started at 125", "run 125-130 epoch 2", "resize 126-127 epoch 2",
		"suspend 130-131 epoch 2", "parked 131-140 epoch 2; slices freed at 132", "wake 140-145 epoch 2; woken at 140",
		"placement 145-145 epoch 3", "carve 145-146 epoch 3; slices made at 146", "resume 146-147 epoch 3", "run 147-150 epoch 3",
		"yield 150-152 epoch 3; exited at 152", "queue 152-160 epoch 3", "free 152-153 epoch 3",
		"placement 160-160 epoch 4", "carve 160-160 epoch 4; slices made at 160", "start 160-161 epoch 4; started at 161", "run 161-162 epoch 4",
		"suspend 162-163 epoch 4 error: it would not stop; move failed at 163",
		"run 163-170 epoch 4 error: exited with code 3; exited at 170", "stop 170-170 epoch 4", "free 170-172 epoch 4",
	}
	got := c.lines()
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	if c.headers.Get("X-Token") != "secret" || c.who["service.name"] != "gpupool" {
		t.Errorf("headers %v, resource %v", c.headers, c.who)
	}
	c.oneTrace(t)
	if n := len(tr.ids.span(1, 0, "task", 0)); n != 8 {
		t.Errorf("an id of %d bytes", n)
	}
}

// oneTrace checks that the spans are one tree with ids of their own, and that nobody's
// secrets are in it.
func (c *collector) oneTrace(t *testing.T) {
	t.Helper()
	ids := map[string]string{}
	var root *tracepb.Span
	for _, s := range c.spans {
		if was, twice := ids[string(s.GetSpanId())]; twice {
			t.Errorf("%s and %s have one id", was, s.GetName())
		}
		ids[string(s.GetSpanId())] = s.GetName()
		if s.GetKind() == tracepb.Span_SPAN_KIND_SERVER {
			root = s
		}
	}
	for _, s := range c.spans {
		switch {
		case !bytes.Equal(s.GetTraceId(), root.GetTraceId()):
			t.Errorf("%s is of another trace", s.GetName())
		case s != root && !bytes.Equal(s.GetParentSpanId(), root.GetSpanId()):
			t.Errorf("%s is not below the task", s.GetName())
		case s != root && attr(s.GetAttributes(), "gpupool.tenant").GetStringValue() != "vision":
			t.Errorf("%s does not say whose it is: %v", s.GetName(), s.GetAttributes())
		}
		if strings.Contains(s.String(), "SECRET") {
			t.Errorf("%s shows the environment", s.GetName())
		}
	}
}

// TestParent joins the trace of the client, and tells the process of the task where its
// own spans belong.
func TestParent(t *testing.T) {
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	c := collect(t)
	tr, f, _ := follow(t, Options{Endpoint: c.URL + "/v1/traces", Sample: 1e-9})
	s := spec("x", "00-"+trace+"-"+parent+"-01")
	s.Env = []string{"KEY=SECRET"}
	f.say(1, engine.Submitted{Task: 1, Spec: s}, placed(1, 0), engine.Carved{Owner: work.Owner{Task: 1, Epoch: 1}}, engine.Started{Owner: work.Owner{Task: 1, Epoch: 1}}, became(work.StateRunning, "running"))
	f.say(2, engine.Closing{Task: 1, Epoch: 1, Then: work.Succeeded}, became(work.Succeeded, "exited"))
	f.say(3, engine.Submitted{Task: 2, Spec: spec("not sampled", "00-"+trace+"-"+parent+"-00")}, engine.Submitted{Task: 3, Spec: spec("not drawn", "")}, engine.Forgotten{Tasks: []work.TaskID{1, 2, 3}})
	close(f.next)
	tr.Close(t.Context())
	c.oneTrace(t)
	told := tr.Traceparent(1, 1, s.Trace)
	for _, x := range c.spans {
		if got := fmt.Sprintf("%x", x.GetTraceId()); got != trace {
			t.Errorf("%s is of trace %s, want %s", x.GetName(), got, trace)
		}
		if x.GetName() == "x" && fmt.Sprintf("%x", x.GetParentSpanId()) != parent {
			t.Errorf("the task is below %x, want %s", x.GetParentSpanId(), parent)
		}
		if want := fmt.Sprintf("00-%s-%x-01", trace, x.GetSpanId()); x.GetName() == "run" && told != want {
			t.Errorf("the process is told %s, want %s", told, want)
		}
	}
	if len(c.spans) != 7 {
		t.Errorf("%d spans, want task, queue, placement, carve, start, run and stop of one task:\n%s", len(c.spans), strings.Join(c.lines(), "\n"))
	}
	if got := tr.Traceparent(2, 1, "00-"+trace+"-"+parent+"-00"); !strings.HasSuffix(got, "-00") {
		t.Errorf("a process whose task is not sampled is told %s", got)
	}
}

func TestTraceparent(t *testing.T) {
	const id, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for s, want := range map[string]bool{
		"": false, "00-" + id + "-" + span + "-01": true, "00-" + id + "-" + span + "-00": true, "01-" + id + "-" + span + "-01-more": true,
		"00-" + id + "-" + span + "-01-more": false, "ff-" + id + "-" + span + "-01": false, "00-" + strings.Repeat("0", 32) + "-" + span + "-01": false,
		"00-" + id + "-" + strings.Repeat("0", 16) + "-01": false, "00-" + strings.ToUpper(id) + "-" + span + "-01": false, "00-" + id + "-" + span: false,
	} {
		if x, ok := parse(s); ok != want || ok && (x.sampled != strings.Contains(s, "-01") || fmt.Sprintf("%x", x.trace) != id) {
			t.Errorf("%q: got %+v %v", s, x, ok)
		}
	}
	one, two := ids{"a", 1}, ids{"b", 1}
	if one.of(1, "").trace == two.of(1, "").trace || one.of(1, "").trace == one.of(2, "").trace || one.of(1, "").trace != one.of(1, "x").trace {
		t.Error("the trace of a task is not its own, or not always the same")
	}
	n := 0
	for id := range work.TaskID(10_000) {
		if (ids{"a", 0.25}).of(id, "").sampled {
			n++
		}
	}
	if n < 2300 || n > 2700 {
		t.Errorf("%d of 10,000 tasks are sampled, want about 2,500", n)
	}
}

// until waits for something that another goroutine does.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for range 2000 {
		if done() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("waited in vain: " + what)
}

// TestHangingCollector never waits for one: facts are taken, spans dropped and counted,
// the log says so once; and when it is back, it gets what follows.
func TestHangingCollector(t *testing.T) {
	c := collect(t)
	c.hang = make(chan struct{})
	tr, f, said := follow(t, Options{Endpoint: c.URL + "/v1/traces", queue: 10, timeout: 50 * time.Millisecond, retry: 100 * time.Millisecond})
	for id := range work.TaskID(1000) {
		f.say(1, engine.Submitted{Task: id, Spec: spec("x", "")}, engine.Became{Task: id, State: work.StateCancel})
	}
	until(t, "a batch is given up", func() bool { return tr.Dropped() > 1000 && said.count("spans are dropped") > 0 })
	if n := said.count("spans are dropped"); n != 1 {
		t.Errorf("said %d times that spans are dropped", n)
	}
	c.mu.Lock()
	close(c.hang)
	c.hang = nil
	c.mu.Unlock()
	until(t, "it gets spans again", func() bool {
		f.say(2, engine.Submitted{Task: 5000, Spec: spec("x", "")}, engine.Became{Task: 5000, State: work.StateCancel})
		return said.count("takes spans again") == 1
	})
	close(f.next)
	tr.Close(t.Context())
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.spans) == 0 {
		t.Error("no spans arrived after it came back")
	}
}

// TestClose does not wait for a collector that hangs for longer than it is told to.
func TestClose(t *testing.T) {
	c := collect(t)
	c.hang = make(chan struct{})
	defer close(c.hang)
	tr, f, _ := follow(t, Options{Endpoint: c.URL + "/v1/traces", timeout: time.Hour, retry: time.Hour})
	f.say(1, engine.Submitted{Task: 1, Spec: spec("x", "")}, became(work.StateCancel, "cancelled"))
	close(f.next)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	tr.Close(ctx)
	if tr.Dropped() != 2 {
		t.Errorf("%d spans were dropped, want both", tr.Dropped())
	}
}

// TestRefused tries again where that may help, and only there.
func TestRefused(t *testing.T) {
	for status, want := range map[int]struct{ asked, spans int }{503: {2, 2}, 429: {2, 2}, 400: {1, 0}, 401: {1, 0}} {
		c := collect(t)
		c.answers = []int{status}
		tr, f, _ := follow(t, Options{Endpoint: c.URL + "/v1/traces"})
		tr.o.batch = time.Second // both in one request
		f.say(1, engine.Submitted{Task: 1, Spec: spec("x", "")}, became(work.StateCancel, "cancelled"))
		close(f.next)
		tr.Close(t.Context())
		if c.asked != want.asked || len(c.spans) != want.spans || int(tr.Dropped()) != 2-want.spans {
			t.Errorf("after %d: asked %d times, %d spans arrived, %d were dropped", status, c.asked, len(c.spans), tr.Dropped())
		}
	}
}

// TestSubmit times the call that made a task, of the client's trace if there is one.
func TestSubmit(t *testing.T) {
	c := collect(t)
	tr, f, _ := follow(t, Options{Endpoint: c.URL + "/v1/traces"})
	h := tr.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Refuse") != "" {
			w.WriteHeader(http.StatusConflict)
			return
		}
		w.Header().Set("Location", "/v1/tasks/17")
		w.WriteHeader(http.StatusCreated)
	}))
	for _, x := range []struct{ method, path, refuse string }{{"POST", "/v1/tasks", ""}, {"POST", "/v1/tasks", "yes"}, {"POST", "/v1/pools", ""}, {"GET", "/v1/tasks", ""}} {
		r := httptest.NewRequest(x.method, x.path, nil)
		r.Header.Set("Refuse", x.refuse)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	close(f.next)
	tr.Close(t.Context())
	trace := tr.ids.of(17, "")
	if len(c.spans) != 1 || c.spans[0].GetName() != "submit" || !bytes.Equal(c.spans[0].GetTraceId(), trace.trace[:]) || !bytes.Equal(c.spans[0].GetParentSpanId(), tr.ids.span(17, 0, "task", 0)) {
		t.Errorf("got %v", c.spans)
	}
}

// rounds is a feed that lets its follower go, as if it had been too slow.
type rounds struct {
	told
	all [][]host.Event
}

func (r *rounds) Subscribe(uint64) ([]host.Event, <-chan host.Event, func()) {
	ch := make(chan host.Event)
	close(ch)
	if len(r.all) == 0 {
		return nil, ch, func() {}
	}
	next := r.all[0]
	r.all = r.all[1:]
	return next, ch, func() {}
}

// TestTooSlow goes on where it was, and says so if something is missing.
func TestTooSlow(t *testing.T) {
	event := func(seq uint64, f engine.Fact) host.Event {
		return host.Event{Seq: seq, At: work.Time(seq) * second, Fact: f, Task: engine.TaskOf(f)}
	}
	begun, ended := engine.Submitted{Task: 1, Spec: spec("x", "")}, became(work.StateCancel, "cancelled")
	for _, x := range []struct {
		seq  uint64
		want int
		says int
	}{{2, 2, 0}, {7, 0, 1}} {
		c := collect(t)
		var said log
		tr := New(Options{Endpoint: c.URL + "/v1/traces", Sample: 1, Log: slog.New(slog.NewTextHandler(&said, nil)), batch: time.Millisecond})
		f := &rounds{told: told{e: engine.New(engine.Config{})}, all: [][]host.Event{{event(1, begun)}, {event(x.seq, ended)}}}
		tr.Follow(f)
		tr.Close(t.Context())
		if len(c.spans) != x.want || said.count("facts=5") != x.says {
			t.Errorf("after fact 1 comes fact %d: %d spans, the log says %s", x.seq, len(c.spans), said.b.String())
		}
	}
}
