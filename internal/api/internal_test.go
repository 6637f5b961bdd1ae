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

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/host"
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

func FuzzTenantOf(f *testing.F) {
	for _, s := range []string{"", "gpt_", "gpt_a_", "gpt__b", "gpt_a_b_c", "gpa_x", NewTenantToken("team_a")} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, token string) {
		tenant, ok := tenantOf(token)
		if ok != (tenant != "") {
			t.Errorf("%q: tenant %q, %v", token, tenant, ok)
		}
		if ok && !strings.HasPrefix(token, "gpt_"+tenant+"_") {
			t.Errorf("%q is said to be of %q", token, tenant)
		}
		if got, ok := tenantOf(NewTenantToken(token)); token != "" && (!ok || got != token) {
			t.Errorf("a token made for tenant %q is of %q, %v", token, got, ok)
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
