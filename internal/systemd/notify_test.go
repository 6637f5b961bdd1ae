package systemd

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
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
		var told, failed atomic.Int32
		var state atomic.Value // of error; nothing while well
		hang := make(chan struct{})
		n := Notifier{watchdog: time.Minute, send: func(s string) error {
			if s != "WATCHDOG=1" {
				t.Errorf("told %q", s)
			}
			told.Add(1)
			return nil
		}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			n.Watch(ctx, func(ctx context.Context) error {
				sick, _ := state.Load().(error)
				if sick == nil || !errors.Is(sick, errHangs) {
					return sick
				}
				close(hang)
				<-ctx.Done()
				return ctx.Err()
			}, func(error) { failed.Add(1) })
		}()
		time.Sleep(5*time.Minute + time.Second)
		synctest.Wait()
		if told.Load() != 11 || failed.Load() != 0 {
			t.Errorf("in five minutes told %d times, failed %d: want 11, at once and each half of a minute", told.Load(), failed.Load())
		}
		state.Store(errNoDisk)
		time.Sleep(time.Minute)
		synctest.Wait()
		if told.Load() != 11 || failed.Load() != 2 {
			t.Errorf("sick: told %d times, failed %d: want no more than 11, and 2", told.Load(), failed.Load())
		}
		state.Store(errHangs)
		<-hang
		time.Sleep(time.Hour)
		if told.Load() != 11 {
			t.Error("the watchdog is kept quiet while the server hangs")
		}
		cancel()
		<-ended
	})
}

var (
	errNoDisk = errors.New("no disk")
	errHangs  = errors.New("hangs")
)
