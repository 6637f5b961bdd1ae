package api_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpupool/gpupool/internal/api"
	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/runner"
	"github.com/gpupool/gpupool/internal/work"
)

const patience = 10 * time.Second

func (w *world) logs(x apitype.Task, q client.LogQuery) io.ReadCloser {
	w.t.Helper()
	r, err := w.alice.Logs(w.t.Context(), x.ID, q)
	ok(w.t, err)
	w.t.Cleanup(func() { r.Close() })
	return r
}

func readAll(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	ok(t, err)
	return string(b)
}

func TestLogs(t *testing.T) {
	w := start(t, options{})
	x := w.running(w.alice, apitype.TaskSpec{GPUs: "1", Members: 2})
	w.print(x, "one\ntwo\nthree\n")
	for q, want := range map[client.LogQuery]string{
		{}:          fmt.Sprintf("started %d.1.0\none\ntwo\nthree\n", x.ID),
		{Tail: 2}:   "two\nthree\n",
		{Member: 1}: fmt.Sprintf("started %d.1.1\n", x.ID),
	} {
		if got := readAll(t, w.logs(x, q)); got != want {
			t.Errorf("%+v: got %q, want %q", q, got, want)
		}
	}
	_, err := w.alice.Logs(t.Context(), x.ID, client.LogQuery{Member: 2})
	refused(t, err, work.CodeNotFound)
	l := w.held(w.alice, apitype.LeaseSpec{GPUs: "1/7"})
	_, err = w.alice.Logs(t.Context(), l.ID, client.LogQuery{Follow: true})
	refused(t, err, work.CodeNotFound)
	if a := w.call(w.aliceToken, "HEAD", fmt.Sprintf("/v1/tasks/%d/logs?follow=true", x.ID), ""); a.status != 200 || a.header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("a HEAD of a log that goes on: %d %v", a.status, a.header)
	}
	// A member that has ended is followed no longer, though the other still runs.
	w.finish(x, 1, 0)
	if got := readAll(t, w.logs(x, client.LogQuery{Member: 1, Follow: true})); !strings.HasPrefix(got, "started") {
		t.Errorf("the ended member's log is %q", got)
	}
}

// TestLogsFollowed follows a task from the queue to its end.
func TestLogsFollowed(t *testing.T) {
	w := start(t, options{shape: "1xH100-80GB"})
	first := w.running(w.alice, apitype.TaskSpec{})
	x := w.submit(w.alice, apitype.TaskSpec{})
	_, err := w.alice.Logs(t.Context(), x.ID, client.LogQuery{})
	if says := refused(t, err, work.CodeNotFound); !strings.Contains(says, "has not started") {
		t.Errorf("a log before the start: %q", says)
	}
	r := w.logs(x, client.LogQuery{Follow: true, Tail: 1}) // answered at once
	w.finish(first, 0, 0)
	lines := bufio.NewReader(r)
	expect(t, lines, fmt.Sprintf("started %d.1.0\n", x.ID))
	x.Epoch = 1
	w.print(x, "hello\n")
	expect(t, lines, "hello\n") // each line as it comes
	w.finish(x, 0, 0)
	if rest := readAll(t, lines); rest != "" {
		t.Errorf("after the end there is %q", rest)
	}
	if got := readAll(t, w.logs(x, client.LogQuery{Follow: true})); got != fmt.Sprintf("started %d.1.0\nhello\n", x.ID) {
		t.Errorf("an ended task followed: %q", got)
	}
}

func expect(t *testing.T, r *bufio.Reader, want string) {
	t.Helper()
	got, err := r.ReadString('\n')
	if err != nil || got != want {
		t.Fatalf("got %q, %v, want %q", got, err, want)
	}
}

// TestLogsRevoked: whoever follows output is let go when its token counts no more, though the
// task goes on.
func TestLogsRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := build(t, options{})
		token := api.NewTenantToken("alice")
		_, err := w.host.Do(t.Context(), engine.SetTenant{Tenant: work.Tenant{Name: "alice", Tokens: []string{api.HashToken(token)}}})
		ok(t, err)
		id, err := w.host.Do(t.Context(), engine.Submit{Spec: work.Spec{Tenant: "alice", Pool: "main", Command: []string{"x"}, Request: work.Request{GPUs: 1}}})
		ok(t, err)
		time.Sleep(time.Minute) // it runs
		rec := &written{header: http.Header{}}
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("/v1/tasks/%d/logs?follow=true", id), nil)
		req.Header.Set("Authorization", "Bearer "+token)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.handler.ServeHTTP(rec, req)
		}()
		time.Sleep(time.Minute)
		select {
		case <-ended:
			t.Fatalf("the stream ended: %q", rec.text())
		default:
		}
		_, err = w.host.Do(t.Context(), engine.SetTenant{Tenant: work.Tenant{Name: "alice"}})
		ok(t, err)
		<-ended
		if !strings.Contains(rec.text(), "started") {
			t.Errorf("it was told %q", rec.text())
		}
	})
}

// TestLogsMoved follows a task to another host.
func TestLogsMoved(t *testing.T) {
	w := start(t, options{})
	x := w.running(w.alice, apitype.TaskSpec{GPUs: "8"})
	w.print(x, "last\n")
	r := bufio.NewReader(w.logs(x, client.LogQuery{Follow: true, Tail: 1}))
	expect(t, r, "last\n")
	w.runs.mu.Lock()
	w.runs.banner = "moved\n"
	w.runs.mu.Unlock()
	w.drv.LoseHost(x.Members[0].Host, true)
	w.poll("it runs elsewhere", func() bool {
		now, err := w.alice.Task(t.Context(), x.ID)
		ok(t, err)
		return now.State == "running" && now.Epoch == 2
	})
	w.runs.end(runner.ID{Task: x.ID, Epoch: 1}, runner.Exit{Lost: "host lost"})
	expect(t, r, "moved\n")
	expect(t, r, fmt.Sprintf("started %d.2.0\n", x.ID))
	if got := readAll(t, w.logs(x, client.LogQuery{})); got != fmt.Sprintf("moved\nstarted %d.2.0\n", x.ID) {
		t.Errorf("the log of the moved task is %q, want that of its newest epoch", got)
	}
	x.Epoch = 2
	w.finish(x, 0, 0)
	if rest := readAll(t, r); rest != "" {
		t.Errorf("after the end there is %q", rest)
	}
}

// TestLogsNeverStarted follows a task that is cancelled in line.
func TestLogsNeverStarted(t *testing.T) {
	w := start(t, options{shape: "1xH100-80GB"})
	w.running(w.alice, apitype.TaskSpec{})
	x := w.submit(w.alice, apitype.TaskSpec{})
	r := w.logs(x, client.LogQuery{Follow: true})
	_, err := w.alice.Cancel(t.Context(), x.ID)
	ok(t, err)
	if got := readAll(t, r); got != "" {
		t.Errorf("a task that never ran wrote %q", got)
	}
	_, err = w.alice.Logs(t.Context(), x.ID, client.LogQuery{Follow: true})
	if says := refused(t, err, work.CodeNotFound); !strings.Contains(says, "never wrote") {
		t.Errorf("its log afterwards: %q", says)
	}
}

// TestLogsCut wants a follower to tell a server that stops from a log that ends.
func TestLogsCut(t *testing.T) {
	w := start(t, options{shape: "1xH100-80GB"})
	w.running(w.alice, apitype.TaskSpec{})
	x := w.submit(w.alice, apitype.TaskSpec{})
	r := w.logs(x, client.LogQuery{Follow: true})
	w.stop()
	if b, err := io.ReadAll(r); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the log of a task that waits, when the host stops: %q, %v, want an unexpected end", b, err)
	}
}
