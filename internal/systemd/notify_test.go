package systemd

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func env(kv map[string]string) func(string) string { return func(k string) string { return kv[k] } }

// TestDatagrams listens as systemd does, on a path and on an abstract name.
func TestDatagrams(t *testing.T) {
	dir, err := os.MkdirTemp("", "n") //nolint:usetesting // a short one: paths of sockets end after 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) }) //nolint:errcheck // a temporary folder
	for _, name := range []string{filepath.Join(dir, "notify"), "@gpupool-test-" + filepath.Base(dir)} {
		l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			t.Skipf("no such socket here: %s", err)
		}
		n, err := NewNotifier(env(map[string]string{"NOTIFY_SOCKET": name}), 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(n.Ready("serves"), n.Stopping()); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 512)
		for _, want := range []string{"READY=1\nSTATUS=serves", "STOPPING=1\nSTATUS=stopping; tasks go on"} {
			l.SetReadDeadline(time.Now().Add(10 * time.Second)) //nolint:errcheck // then the read says so
			k, err := l.Read(b)
			if got := string(b[:k]); err != nil || got != want {
				t.Errorf("%s: got %q (%v), want %q", name, got, err, want)
			}
		}
		l.Close() //nolint:errcheck // done
		if err := n.Ready("nobody listens"); err == nil {
			t.Error("no error though nobody listens")
		}
	}
}

func TestNobodyListens(t *testing.T) {
	n, err := NewNotifier(env(nil), 1)
	if err := errors.Join(err, n.Ready("x"), n.Stopping()); err != nil {
		t.Error(err)
	}
	n.Watch(t.Context(), nil, nil) // comes back at once
	for _, kv := range []map[string]string{{"NOTIFY_SOCKET": "vsock:2:1"}, {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "soon"}, {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "-1"}} {
		if _, err := NewNotifier(env(kv), 1); err == nil {
			t.Errorf("%v: no error", kv)
		}
	}
	other, err := NewNotifier(env(map[string]string{"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "7"}), 1)
	if err != nil || other.watchdog != 0 {
		t.Errorf("another's watchdog is kept quiet: %v, %v", other.watchdog, err)
	}
}

// TestWatchdog lets the server be well, then answer with errors, then hang.
func TestWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told, failed int
		var state error
		hang := make(chan struct{})
		n := Notifier{watchdog: time.Minute, send: func(s string) error {
			if s != "WATCHDOG=1" {
				t.Errorf("told %q", s)
			}
			told++
			return nil
		}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			n.Watch(ctx, func(ctx context.Context) error {
				if state == nil {
					return nil
				}
				if !errors.Is(state, errHangs) {
					return state
				}
				close(hang)
				<-ctx.Done()
				return ctx.Err()
			}, func(error) { failed++ })
		}()
		time.Sleep(5*time.Minute + time.Second)
		synctest.Wait()
		if told != 11 || failed != 0 {
			t.Errorf("in five minutes told %d times, failed %d: want 11, at once and each half of a minute", told, failed)
		}
		state = errors.New("no disk")
		time.Sleep(time.Minute)
		synctest.Wait()
		if told != 11 || failed != 2 {
			t.Errorf("sick: told %d times, failed %d: want no more than 11, and 2", told, failed)
		}
		state = errHangs
		<-hang
		time.Sleep(time.Hour)
		if told != 11 {
			t.Error("the watchdog is kept quiet while the server hangs")
		}
		cancel()
		<-ended
	})
}

var errHangs = errors.New("hangs")
