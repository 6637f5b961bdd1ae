package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/auth"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/host"
	"github.com/gpupool/gpupool/internal/work"
)

func TestPanic(t *testing.T) {
	var log bytes.Buffer
	s := &server{log: slog.New(slog.NewTextHandler(&log, nil))}
	srv := httptest.NewServer(s.record(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/late" {
			_, _ = w.Write([]byte("half an answer"))
			_ = http.NewResponseController(w).Flush()
		}
		panic("planted")
	})))
	defer srv.Close()
	resp, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var p apitype.Problem
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || resp.StatusCode != 500 || p.Code != "internal" || strings.Contains(p.Detail, "planted") {
		t.Errorf("a panic gave %d %+v, %v", resp.StatusCode, p, err)
	}
	late, err := srv.Client().Get(srv.URL + "/late")
	if err != nil {
		t.Fatal(err)
	}
	defer late.Body.Close()
	if _, err := new(bytes.Buffer).ReadFrom(late.Body); err == nil {
		t.Error("a panic after half an answer looks like a whole one")
	}
	srv.Close() // waits for what writes the log
	if n := strings.Count(log.String(), "panic=planted"); n != 2 || !strings.Contains(log.String(), "internal_test.go") {
		t.Errorf("the log holds %d panics, want 2 with their stacks:\n%s", n, log.String())
	}
}

// TestAwaitOnFullBuffer wants a waiter that was let go for its full buffer to come
// back, and one whose host has ended to be told so.
func TestAwaitOnFullBuffer(t *testing.T) {
	never := func() (bool, error) { return false, nil }
	next := make(chan host.Event, 1)
	next <- host.Event{Seq: 1, Task: 1}
	close(next)
	if again, err := new(server).awaitOn(t.Context(), next, 1, never); !again || err != nil {
		t.Errorf("let go after an event: again %v, %v", again, err)
	}
	if again, err := new(server).awaitOn(t.Context(), next, 1, never); again || !errors.Is(err, errStopping) {
		t.Errorf("closed from the start: again %v, %v", again, err)
	}
}

// FuzzClaimed: whatever a token claims to be is in it, and one that was made says what of.
func FuzzClaimed(f *testing.F) {
	for _, s := range []string{"", "gpt_", "gpt_a_", "gpt__b", "gpt_a_b_c", "gpa_x", NewTenantToken("team_a")} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, token string) {
		if tenant := claimed(token, tenantPrefix); tenant != "" && !strings.HasPrefix(token, "gpt_"+tenant+"_") {
			t.Errorf("%q is said to be of %q", token, tenant)
		}
		if got := claimed(NewTenantToken(token), tenantPrefix); got != token {
			t.Errorf("a token made for tenant %q is of %q", token, got)
		}
		if got := claimed(newSecret(token), namedPrefix); got != token {
			t.Errorf("a token made with ID %q has ID %q", token, got)
		}
	})
}

func TestNewWants(t *testing.T) {
	for _, cfg := range []Config{{}, {AdminToken: HashToken("x")}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("New(%+v) made an API", cfg)
		}
	}
}

// TestShown: a tenant learns that GPUs are kept for its task, not whose tasks yield.
func TestShown(t *testing.T) {
	f := engine.Reserved{Task: 1, Victims: []work.TaskID{2}}
	if got, is := shown(f, tenantCaller("a")).(engine.Reserved); !is || got.Victims != nil {
		t.Errorf("a tenant is shown %+v", got)
	}
	if got, is := shown(f, adminCaller()).(engine.Reserved); !is || len(got.Victims) != 1 {
		t.Errorf("an admin is shown %+v", got)
	}
}

func TestRetryAfterRoundsUp(t *testing.T) {
	for d, want := range map[time.Duration]int{0: 0, time.Millisecond: 1, time.Second: 1, 1001 * time.Millisecond: 2, 40 * time.Second: 40} {
		if got := seconds(d); got != want {
			t.Errorf("%s: got %d, want %d", d, got, want)
		}
	}
}

func TestExpect(t *testing.T) {
	at := work.TimeOf(time.Date(2026, 12, 2, 14, 20, 0, 0, time.UTC))
	var x apitype.Task
	expect(&x, engine.Start{Likely: at, Late: 1<<63 - 1}) // late is the end of time: not known
	if x.ExpectedStart == nil || !x.ExpectedStart.Equal(at.Std()) || x.ExpectedStartLate != nil {
		t.Errorf("got %v and %v", x.ExpectedStart, x.ExpectedStartLate)
	}
	if expect(&x, engine.Start{}); x.ExpectedStart != nil {
		t.Errorf("what is not known is shown as %v", x.ExpectedStart)
	}
}

// TestAccepted are the numbers that admit in package engine refuses at.
func TestAccepted(t *testing.T) {
	for _, x := range []struct {
		pool        work.Pool
		normal, low int // -1: any number
	}{
		{work.Pool{}, -1, -1}, {work.Pool{AskAt: 10}, -1, 10}, {work.Pool{Capacity: 1000, BackPressure: 0.8, AskAt: 10}, 800, 10},
		{work.Pool{Capacity: 10, BackPressure: 0.8, AskAt: 10}, 8, 8}, {work.Pool{Capacity: 5, BackPressure: 0}, 0, 0},
	} {
		normal, low := accepted(x.pool)
		number := func(n *int) int {
			if n == nil {
				return -1
			}
			return *n
		}
		if number(normal) != x.normal || number(low) != x.low {
			t.Errorf("%+v: got %d and %d, want %d and %d", x.pool, number(normal), number(low), x.normal, x.low)
		}
	}
}

// tenantCaller and adminCaller are who may see what is of one tenant, and of all.
func tenantCaller(name string) caller {
	return caller{Identity: auth.Identity{Role: work.RoleTenant, Tenant: name}}
}

func adminCaller() caller { return caller{Identity: auth.Identity{Role: work.RoleAdmin}} }
