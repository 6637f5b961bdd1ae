package scaleout

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCommand(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	h := Hook{Command: []string{"sh", "-c", `echo "$GPUPOOL_POOL $GPUPOOL_WAITING $GPUPOOL_GPUS" > "$1"`, "sh", out}}
	if err := h.Ask(t.Context(), "main", 12, 3.5); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(out); err != nil || string(got) != "main 12 3.5\n" {
		t.Errorf("the command saw %q, %v", got, err)
	}
}

func TestCommandFails(t *testing.T) {
	for _, x := range []struct {
		command []string
		want    string
	}{
		{[]string{"sh", "-c", "echo no quota; exit 3"}, "command sh: exit status 3; it said: no quota"},
		{[]string{"/no/such/program"}, "no such file"},
		{[]string{"sh", "-c", "kill -9 $$"}, "killed"},
	} {
		err := Hook{Command: x.command}.Ask(t.Context(), "main", 1, 1)
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%q: got %v, want %q", x.command, err, x.want)
		}
	}
}

// TestCommandTooLong ends a command and its child: the pipe that both hold comes to
// its end.
func TestCommandTooLong(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "alive")
	h := Hook{Command: []string{"sh", "-c", `mkfifo "$1"; sleep 600 > "$1" & exec sleep 600 > "$1"`, "sh", fifo}, Within: 300 * time.Millisecond}
	ended := make(chan error, 1)
	go func() { ended <- h.Ask(t.Context(), "main", 1, 1) }()
	var alive *os.File
	for alive == nil {
		select {
		case err := <-ended:
			t.Fatal("it ended early: ", err)
		default:
			alive, _ = os.Open(fifo) // waits for a writer once it is there
		}
	}
	defer alive.Close()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "longer than 300ms") {
		t.Errorf("got %v, want that it took too long", err)
	}
	if _, err := io.ReadAll(alive); err != nil { // until nobody writes any more
		t.Error(err)
	}
}

func TestWebhook(t *testing.T) {
	var method, kind, body string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		method, kind, body = r.Method, r.Header.Get("Content-Type"), string(b)
		if r.URL.Path == "/full" {
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, "no quota")
		}
	}))
	defer srv.Close()
	if err := (Hook{Webhook: srv.URL + "/ok"}).Ask(t.Context(), "main", 12, 3.5); err != nil {
		t.Fatal(err)
	}
	if method != "POST" || kind != "application/json" || body != `{"gpus":3.5,"pool":"main","waiting":12}` {
		t.Errorf("the webhook got %s %s %s", method, kind, body)
	}
	err := Hook{Webhook: srv.URL + "/full?key=secret"}.Ask(t.Context(), "main", 1, 1)
	if err == nil || !strings.Contains(err.Error(), "409") || !strings.Contains(err.Error(), "no quota") || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v, want the status and what was said, without the address", err)
	}
}

func TestWebhookAway(t *testing.T) {
	hang := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body) // only then is a client that leaves noticed
		<-r.Context().Done()
	}))
	defer hang.Close()
	err := Hook{Webhook: hang.URL + "?key=secret", Within: 50 * time.Millisecond}.Ask(t.Context(), "main", 1, 1)
	if err == nil || !strings.Contains(err.Error(), "longer than 50ms") || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v, want that it took too long, without the address", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = Hook{Webhook: "http://127.0.0.1:1/?key=secret", Command: []string{"true"}}.Ask(ctx, "main", 1, 1)
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v, want an error without the address", err)
	}
}
