package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/api/client"
)

// TestUnderSystemd starts the server as the unit does, and listens as systemd would.
func TestUnderSystemd(t *testing.T) {
	dir, err := os.MkdirTemp("", "s") //nolint:usetesting // a short one: paths of sockets end after 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) }) //nolint:errcheck // a temporary folder
	socket := filepath.Join(dir, "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	token := "gpa_" + strings.Repeat("t", 40)
	if err := os.WriteFile(filepath.Join(dir, "admin.token"), []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &testServer{t: t, data: t.TempDir(), shape: "1xH100-80GB", env: []string{"NOTIFY_SOCKET=" + socket, "WATCHDOG_USEC=100000", "CREDENTIALS_DIRECTORY=" + dir}}
	s.start()
	defer s.end(syscall.SIGKILL)

	heard := func(want string) string {
		t.Helper()
		b := make([]byte, 512)
		l.SetReadDeadline(time.Now().Add(30 * time.Second)) //nolint:errcheck // then the read says so
		for {
			n, err := l.Read(b)
			if err != nil {
				t.Fatalf("systemd heard no %s: %v\n%s", want, err, s.log.String())
			}
			if said := string(b[:n]); strings.HasPrefix(said, want) {
				return said
			}
		}
	}
	status := heard("READY=1")
	_, url, _ := strings.Cut(status, "STATUS=serves on ")
	for range 3 {
		heard("WATCHDOG=1")
	}

	c, err := client.New(url, token)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := c.Whoami(ctx); err != nil {
		t.Errorf("the token that systemd handed over is not the admin's: %v", err)
	}
	if _, err := os.Stat(filepath.Join(s.data, "admin.token")); !os.IsNotExist(err) {
		t.Error("a token that systemd handed over is written down")
	}

	s.cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // the next line tells
	heard("STOPPING=1")
}
