package api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpupool/gpupool/internal/api"
	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/work"
)

// take reads events until one of the given kind about the given task.
func take(t *testing.T, c *client.Client, q client.EventQuery, kind string, task uint64) (out []apitype.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	for ev, err := range c.Events(ctx, q) {
		ok(t, err)
		if out = append(out, ev); ev.Kind == kind && ev.Task == task {
			return out
		}
	}
	t.Fatalf("the stream ended before %s of task %d", kind, task)
	return nil
}

func TestEvents(t *testing.T) {
	w := start(t, options{})
	x := w.running(w.alice, apitype.TaskSpec{GPUs: "1/7", Env: []string{"KEY=secret-env"}})
	w.running(w.bob, apitype.TaskSpec{GPUs: "1/7"})
	w.finish(x, 0, 0)
	_, err := w.alice.WaitTask(t.Context(), x.ID, patience)
	ok(t, err)
	everything := take(t, w.admin, client.EventQuery{All: true}, "part.freed", x.ID)
	for i, ev := range everything {
		if ev.Seq != uint64(i)+1 || ev.At.IsZero() {
			t.Fatalf("event %d has number %d, time %s: want all from 1 without a gap", i, ev.Seq, ev.At)
		}
		for _, secret := range []string{"secret-env", api.HashToken(w.aliceToken), api.HashToken(w.bobToken)} {
			if strings.Contains(fmt.Sprint(ev.Fact), secret) {
				t.Errorf("event %+v shows a secret", ev)
			}
		}
	}
	var about []apitype.Event
	for _, ev := range everything {
		if ev.Task == x.ID {
			about = append(about, ev)
		}
	}
	for _, q := range []client.EventQuery{{All: true, Task: x.ID}, {After: about[0].Seq - 1, Task: x.ID}} {
		for name, c := range map[string]*client.Client{"admin": w.admin, "alice": w.alice} {
			if got := take(t, c, q, "part.freed", x.ID); !slices.EqualFunc(got, about, func(a, b apitype.Event) bool { return a.Seq == b.Seq }) {
				t.Errorf("%s sees %d events with %+v, want %d", name, len(got), q, len(about))
			}
		}
	}
	for _, ev := range take(t, w.alice, client.EventQuery{All: true}, "part.freed", x.ID) {
		if ev.Tenant != "alice" || ev.Task != x.ID {
			t.Errorf("alice sees %+v", ev)
		}
	}
	for path, want := range map[string]int{"/v1/events?after=x": 422, "/v1/events?after=-1": 422, "/v1/events?task=99": 404} {
		if a := w.call(w.aliceToken, "GET", path, ""); a.status != want {
			t.Errorf("%s: got %d %s, want %d", path, a.status, a.body, want)
		}
	}
}

// TestEventsResume cuts the connection again and again and wants every event once.
func TestEventsResume(t *testing.T) {
	w := start(t, options{})
	var mu sync.Mutex
	conns, lasts := 0, []string{}
	proxy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		ctx, cut := context.WithCancel(r.Context())
		defer cut()
		mu.Lock()
		conns++
		lasts = append(lasts, r.Header.Get("Last-Event-ID"))
		mu.Unlock()
		w.handler.ServeHTTP(&cutter{ResponseWriter: rw, left: 3, cut: cut}, r.WithContext(ctx))
	}))
	defer proxy.Close()
	c, err := client.New(proxy.URL, w.adminToken)
	ok(t, err)
	// Each task waits for the one before it to be seen, so that there is always more
	// to say than one connection may: facts that wait together go out together.
	const tasks = 5
	var submitting sync.WaitGroup
	next := func() { submitting.Go(func() { w.running(w.alice, apitype.TaskSpec{GPUs: "1/7"}) }) }
	defer submitting.Wait()
	newest := w.host.LastEvent()
	next()
	last := newest
	started := 0
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	for ev, err := range c.Events(ctx, client.EventQuery{After: newest}) {
		ok(t, err)
		if ev.Seq != last+1 {
			t.Fatalf("event %d follows %d: one is lost or came twice", ev.Seq, last)
		}
		last = ev.Seq
		if ev.Kind == "member.started" {
			if started++; started == tasks {
				break
			}
			next()
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if conns < 2 || lasts[0] != fmt.Sprint(newest) || lasts[1] == lasts[0] {
		t.Errorf("%d connections went on after %v; the test wants several", conns, lasts)
	}
}

// cutter ends a response after some writes.
type cutter struct {
	http.ResponseWriter
	left int
	cut  func()
}

func (c *cutter) Write(b []byte) (int, error) {
	if c.left--; c.left < 0 {
		c.cut()
		return 0, http.ErrHandlerTimeout
	}
	return c.ResponseWriter.Write(b)
}

func (c *cutter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// TestEventsGap asks a server that was restarted for what it no longer keeps.
func TestEventsGap(t *testing.T) {
	w := start(t, options{})
	x := w.running(w.alice, apitype.TaskSpec{GPUs: "1/7"})
	newest := w.host.LastEvent()
	w.stop()
	w.run()
	srv := httptest.NewServer(w.handler)
	defer srv.Close()
	w.url = srv.URL
	again := w.client(w.adminToken)
	w.poll("the host has started again", func() bool { _, err := again.Whoami(t.Context()); return err == nil })
	_, err := again.Cancel(t.Context(), x.ID)
	ok(t, err)
	got := take(t, again, client.EventQuery{After: newest - 2}, "part.freed", x.ID)
	if got[0].Kind != "gap" || got[0].Seq < newest || got[1].Seq != got[0].Seq+1 {
		t.Errorf("after %d the stream begins with %+v, want a gap up to %d or later", newest-2, got[0], newest)
	}
}

// TestEventsQuiet lets a stream be quiet for a minute of virtual time, then revokes
// its token.
func TestEventsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := build(t, options{})
		token := api.NewTenantToken("alice")
		_, err := w.host.Do(t.Context(), engine.SetTenant{Tenant: work.Tenant{Name: "alice", Tokens: []string{api.HashToken(token)}}})
		ok(t, err)
		rec := &written{header: http.Header{}}
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/events", nil)
		req.Header.Set("Authorization", "Bearer "+token)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.handler.ServeHTTP(rec, req)
		}()
		time.Sleep(time.Minute + time.Second)
		if n := rec.count("\n\n"); n != 1+4 {
			t.Errorf("in a quiet minute there were %d signs of life in %q, want one at the start and 4 after it", n, rec.text())
		}
		before := rec.count("id: ")
		_, err = w.host.Do(t.Context(), engine.SetTenant{Tenant: work.Tenant{Name: "alice"}}) // no event for a tenant
		ok(t, err)
		<-ended
		if rec.count("id: ") != before || rec.count("data:") != 0 {
			t.Errorf("a revoked token still heard %q", rec.text())
		}
	})
}

// TestEventsSlow reads nothing while much happens: the host goes on, and the client
// is let go rather than waited for.
func TestEventsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := build(t, options{})
		stuck := &written{header: http.Header{}, block: make(chan struct{})}
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/events", nil)
		req.Header.Set("Authorization", "Bearer "+w.adminToken)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.handler.ServeHTTP(stuck, req)
		}()
		synctest.Wait()
		for i := range 3000 {
			_, err := w.host.Do(t.Context(), engine.SetTenant{Tenant: work.Tenant{Name: "alice", LimitGPUs: float64(i)}})
			ok(t, err)
		}
		close(stuck.block)
		<-ended // though the request's context has not ended
		if n := stuck.count("event: "); n == 0 || n >= 3000 {
			t.Errorf("the slow client was told %d of 3000 facts before it was let go", n)
		}
	})
}

// written is a response that is kept, and that may block.
type written struct {
	header http.Header
	block  chan struct{} // nil: never
	mu     sync.Mutex
	b      []byte
}

func (w *written) Header() http.Header  { return w.header }
func (w *written) WriteHeader(int)      {}
func (w *written) Flush()               {}
func (w *written) count(sub string) int { return strings.Count(w.text(), sub) }

func (w *written) Write(b []byte) (int, error) {
	if w.block != nil {
		<-w.block
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b = append(w.b, b...)
	return len(b), nil
}

func (w *written) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.b)
}
