package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpupool/gpupool/internal/api/apitype"
)

// requests are those that a server has seen.
type requests struct {
	mu   sync.Mutex
	seen []*http.Request
}

func (r *requests) add(x *http.Request) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, x.Clone(context.Background()))
	return len(r.seen)
}

func (r *requests) all() []*http.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen)
}

// answers serves one handler after another, the last one for ever.
func answers(t *testing.T, hs ...http.HandlerFunc) (*Client, *requests) {
	t.Helper()
	var seen requests
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hs[min(seen.add(r), len(hs))-1](w, r)
	}))
	t.Cleanup(srv.Close)
	c, err := New(srv.URL+"/", "gpa_x")
	if err != nil {
		t.Fatal(err)
	}
	return c, &seen
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

const busy = `{"title":"Service Unavailable","status":503,"code":"unavailable","detail":"the server is stopping"}`

func TestNew(t *testing.T) {
	for _, server := range []string{"", "127.0.0.1:8470", "ftp://x", "http://", "http://x?y=1", "http://x#y", "://", "http://[::1"} {
		if _, err := New(server, "gpa_x"); err == nil || !strings.Contains(err.Error(), "http://127.0.0.1:8470") {
			t.Errorf("server %q: got %v, want an error that shows an address", server, err)
		}
	}
	for _, token := range []string{"", "a b", "a\n", "\x00"} {
		if _, err := New("http://x", token); err == nil || strings.Contains(err.Error(), token) && token != "" {
			t.Errorf("token %q: got %v, want an error that does not show it", token, err)
		}
	}
}

// TestRetries says for each kind of call what is tried again.
func TestRetries(t *testing.T) {
	cut := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	calls := map[string]struct {
		again bool
		call  func(context.Context, *Client) error
	}{
		"get": {true, func(ctx context.Context, c *Client) error { _, err := c.Task(ctx, 1); return err }},
		"submit": {true, func(ctx context.Context, c *Client) error {
			_, err := c.Submit(ctx, apitype.TaskSpec{}, "")
			return err
		}},
		"lease": {true, func(ctx context.Context, c *Client) error {
			_, err := c.CreateLease(ctx, apitype.LeaseSpec{}, "k")
			return err
		}},
		"renew": {true, func(ctx context.Context, c *Client) error { _, err := c.RenewLease(ctx, 1, 1); return err }},
		"put": {true, func(ctx context.Context, c *Client) error {
			_, err := c.PutTenant(ctx, "a", apitype.TenantSpec{})
			return err
		}},
		"revoke":     {true, func(ctx context.Context, c *Client) error { return c.RevokeTokens(ctx, "a") }},
		"hold":       {true, func(ctx context.Context, c *Client) error { _, err := c.Hold(ctx, 1); return err }},
		"release":    {true, func(ctx context.Context, c *Client) error { _, err := c.Release(ctx, 1); return err }},
		"checkpoint": {true, func(ctx context.Context, c *Client) error { _, err := c.Checkpoint(ctx, 1); return err }},
		"preempt":    {false, func(ctx context.Context, c *Client) error { _, err := c.Preempt(ctx, 1); return err }},
		"cancel":     {false, func(ctx context.Context, c *Client) error { _, err := c.Cancel(ctx, 1); return err }},
		"delete":     {false, func(ctx context.Context, c *Client) error { return c.DeleteTenant(ctx, "a") }},
		"token":      {false, func(ctx context.Context, c *Client) error { _, err := c.CreateToken(ctx, "a"); return err }},
		"free":       {false, func(ctx context.Context, c *Client) error { return c.ReleaseLease(ctx, 1, 1) }},
	}
	for name, k := range calls {
		t.Run(name, func(t *testing.T) {
			for what, first := range map[string]http.HandlerFunc{"503": says(503, busy), "a cut connection": cut} {
				c, seen := answers(t, first, says(200, "{}"))
				err := k.call(t.Context(), c)
				if (err == nil) != k.again || (len(seen.all()) == 2) != k.again {
					t.Errorf("after %s: %d requests, %v", what, len(seen.all()), err)
				}
				if keys := seen.all()[0].Header.Values("Idempotency-Key"); len(seen.all()) == 2 && !slices.Equal(keys, seen.all()[1].Header.Values("Idempotency-Key")) {
					t.Errorf("after %s the key changed from %v", what, keys)
				}
			}
		})
	}
	c, seen := answers(t, says(409, `{"title":"Conflict","status":409,"code":"conflict","detail":"no"}`))
	_, err := c.Task(t.Context(), 1)
	var e *Error
	if !errors.As(err, &e) || e.Status != 409 || e.Code != "conflict" || e.Title != "Conflict" || e.Error() != "no" || len(seen.all()) != 1 {
		t.Errorf("a refusal: %#v after %d requests", err, len(seen.all()))
	}
}

// TestRetryAfter passes on when to come back, and leaves it to the caller.
func TestRetryAfter(t *testing.T) {
	c, seen := answers(t, says(429, `{"title":"Too Many Requests","status":429,"code":"queue_full","detail":"full","retry_after_s":40}`))
	_, err := c.Submit(t.Context(), apitype.TaskSpec{}, "")
	var e *Error
	if !errors.As(err, &e) || e.Status != 429 || e.Code != "queue_full" || e.RetryAfter != 40*time.Second || len(seen.all()) != 1 {
		t.Errorf("a full queue: %#v after %d requests", err, len(seen.all()))
	}
}

func TestRetryIsBounded(t *testing.T) {
	c, seen := answers(t, says(503, busy))
	c.retry = 0
	if _, err := c.Task(t.Context(), 1); err == nil || len(seen.all()) != 1 {
		t.Errorf("without retries: %d requests, %v", len(seen.all()), err)
	}
	c.retry = 500 * time.Millisecond
	var e *Error
	if _, err := c.Task(t.Context(), 1); !errors.As(err, &e) || e.Status != 503 || len(seen.all()) < 3 {
		t.Errorf("with half a second of retries: %d requests, %v", len(seen.all()), err)
	}
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := "http://" + l.Addr().String()
	_ = l.Close() // only its address was wanted
	for _, server := range []string{addr, "http://no-such-host.invalid:1"} {
		c, err := New(server, "gpa_x", WithRetry(0))
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{second(c.Task(t.Context(), 1)), second(c.Cancel(t.Context(), 1))} {
			var e *Error
			if !errors.As(err, &e) || e.Code != CodeUnreachable || !strings.Contains(e.Detail, "cannot reach gpupool at "+server) || !strings.Contains(e.Detail, "is gpupool serve running?") {
				t.Errorf("nobody at %s: %v", server, err)
			}
		}
	}
	c, err := New(addr, "gpa_x", WithRetry(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Task(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an impatient caller: %v, want its context's error", err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestNotGpupool talks to servers that are something else.
func TestNotGpupool(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"a web page": says(200, "<html>"), "nothing": says(200, ""), "an error page": says(404, "<html>"), "other JSON": says(500, `{"error":"x"}`),
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://example.invalid/", http.StatusFound)
		},
	} {
		c, _ := answers(t, h)
		var e *Error
		if _, err := c.Task(t.Context(), 1); !errors.As(err, &e) || e.Code != codeUnexpected || !strings.Contains(e.Detail, c.base) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestListEndsWithAnError(t *testing.T) {
	c, seen := answers(t, says(200, `{"items":[{"id":1},{"id":2}],"next":"2"}`), says(404, `{"status":404,"code":"not_found","detail":"gone"}`))
	var ids []uint64
	var last error
	for x, err := range c.Tasks(t.Context(), TaskQuery{States: []string{"active", "failed"}, Name: "a b"}) {
		if last = err; err == nil {
			ids = append(ids, x.ID)
		}
	}
	if !slices.Equal(ids, []uint64{1, 2}) || last == nil || last.Error() != "gone" {
		t.Errorf("walked %v, then %v", ids, last)
	}
	if q := seen.all()[1].URL.Query(); q.Get("after") != "2" || q.Get("name") != "a b" || !slices.Equal(q["state"], []string{"active", "failed"}) {
		t.Errorf("the second page was asked for with %v", q)
	}
	for _, err := range c.Tasks(t.Context(), TaskQuery{}) {
		if err == nil {
			t.Error("the list goes on after its error")
		}
		break // must not go on
	}
}

// TestEventsGiveUp lets a server go away for good, in virtual time.
func TestEventsGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conns := 0
		trip := tripper(func(r *http.Request) (*http.Response, error) {
			if conns++; conns > 1 {
				return nil, errors.New("gone")
			}
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("id: 7\n\n"))}, nil
		})
		c, err := New("http://x", "gpa_x", WithHTTPClient(&http.Client{Transport: trip}))
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		var last error
		for _, last = range c.Events(t.Context(), EventQuery{}) {
		}
		if took := time.Since(begin); last == nil || took < time.Minute || took > 2*time.Minute || conns < 10 {
			t.Errorf("gave up after %s and %d attempts with %v, want a minute and more attempts", took, conns, last)
		}
	})
}

// TestEventsSilence connects again when a connection says nothing for too long.
func TestEventsSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lasts []string
		trip := tripper(func(r *http.Request) (*http.Response, error) {
			lasts = append(lasts, r.Header.Get("Last-Event-ID"))
			if len(lasts) == 3 {
				return &http.Response{StatusCode: 403, Status: "403", Body: io.NopCloser(strings.NewReader(`{"code":"forbidden","detail":"enough"}`))}, nil
			}
			read, write := io.Pipe()
			context.AfterFunc(r.Context(), func() { write.CloseWithError(r.Context().Err()) })
			go fmt.Fprintf(write, "id: %d\n\n", len(lasts))
			return &http.Response{StatusCode: 200, Body: read}, nil
		})
		c, err := New("http://x", "gpa_x", WithHTTPClient(&http.Client{Transport: trip}))
		if err != nil {
			t.Fatal(err)
		}
		var last error
		for _, last = range c.Events(t.Context(), EventQuery{}) {
		}
		if last == nil || last.Error() != "enough" || !slices.Equal(lasts, []string{"", "1", "2"}) {
			t.Errorf("went on after %q, then %v", lasts, last)
		}
	})
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestEventsLeave(t *testing.T) {
	var open atomic.Int32
	c, _ := answers(t, func(w http.ResponseWriter, r *http.Request) {
		open.Add(1)
		defer open.Add(-1)
		_, _ = io.WriteString(w, "id: 1\nevent: x\ndata: {\"seq\":1}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	for ev, err := range c.Events(t.Context(), EventQuery{All: true}) {
		if err != nil || ev.Seq != 1 {
			t.Fatal(ev, err)
		}
		break
	}
	for end := time.Now().Add(10 * time.Second); open.Load() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("leaving the loop left the connection open")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for _, err := range c.Events(ctx, EventQuery{All: true}) {
		cancel()
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("a cancelled walk ends with %v", last)
	}
}

func FuzzEventStream(f *testing.F) {
	for _, s := range []string{"", "\n", ": hi\nid: 3\n\n", "id: 1\nevent: a\ndata: {\"seq\":1}\n\n", "data: {\ndata: }\n\n", "data\n\n", "id: 2\r\ndata:{}\r\n\r\n", "data: x\n\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := 0
		s := stream{yield: func(apitype.Event, error) bool { got++; return true }}
		err := s.read(strings.NewReader(text), func() {})
		if err == nil {
			t.Error("a stream ended without an error")
		}
		if got > strings.Count(text, "\n") {
			t.Errorf("%d events in %q", got, text)
		}
	})
}
