// Package redistest starts real Redis servers for tests: each on a free port and a socket
// of its own, in a folder that goes away. Where there is no redis-server a test is
// skipped, unless CI is set; scripts/redis.sh installs one.
//
// A server takes some milliseconds to start and a few MiB.
package redistest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Server is a Redis that a test stops, pauses, and starts again.
type Server struct {
	Dir  string
	Port int
	Sock string

	t    testing.TB
	args []string
	cmd  *exec.Cmd
}

// Need skips or fails a test on a machine without the programs.
func Need(t testing.TB, programs ...string) {
	t.Helper()
	for _, p := range append(programs, "redis-server", "redis-cli") {
		if _, err := exec.LookPath(p); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("%s is missing, and CI must run this test: scripts/redis.sh installs it", p)
			}
			t.Skipf("%s is missing: scripts/redis.sh installs it", p)
		}
	}
}

// Start starts a server that writes every command to its disk, with more settings after
// it, as pairs without dashes: Start(t, "requirepass", "secret").
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	Need(t)
	dir, err := os.MkdirTemp("", "redis-") //nolint:usetesting // t.TempDir is too long a path for a socket
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, Dir: dir, Port: FreePort(t), Sock: filepath.Join(dir, "s")}
	s.args = append([]string{
		"port", strconv.Itoa(s.Port), "bind", "127.0.0.1", "unixsocket", s.Sock, "dir", dir, "save", "", "appendonly", "yes", "appendfsync", "always",
		"logfile", filepath.Join(dir, "log"), "repl-diskless-sync-delay", "0", "enable-debug-command", "yes",
	}, settings...)
	t.Cleanup(func() {
		s.End(syscall.SIGKILL)
		os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	})
	s.Up()
	return s
}

// FreePort returns a port that nobody listens on now.
func FreePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // on this machine
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // as asked for
}

// URL is where the server is.
func (s *Server) URL() string { return fmt.Sprintf("redis://127.0.0.1:%d", s.Port) }

// Up starts the server and waits until it answers.
func (s *Server) Up() {
	s.t.Helper()
	var args []string
	for i := 0; i+1 < len(s.args); i += 2 {
		args = append(args, "--"+s.args[i])
		if f := strings.Fields(s.args[i+1]); len(f) > 0 {
			args = append(args, f...)
		} else {
			args = append(args, "")
		}
	}
	s.cmd = exec.Command("redis-server", args...) //nolint:noctx // it lasts as long as the test
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) && alive(s.cmd.Process.Pid) {
		c, err := net.Dial("unix", s.Sock) //nolint:noctx // on this machine
		if err == nil {
			c.Close() //nolint:errcheck // it answered
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	log, _ := os.ReadFile(filepath.Join(s.Dir, "log"))
	s.t.Fatalf("redis-server did not come up:\n%s", log)
}

// Set changes a setting for the next Up.
func (s *Server) Set(name, value string) { s.args = append(s.args, name, value) }

// End ends the server by a signal and waits until it is gone.
func (s *Server) End(sig syscall.Signal) {
	if s.cmd == nil {
		return
	}
	s.Signal(syscall.SIGCONT)
	s.Signal(sig)
	s.cmd.Wait() //nolint:errcheck // killed
	s.cmd = nil
}

// Signal sends a signal, such as SIGSTOP to pause it.
func (s *Server) Signal(sig syscall.Signal) {
	if s.cmd != nil {
		s.cmd.Process.Signal(sig) //nolint:errcheck // it may be gone
	}
}

// Do runs a command on the server by redis-cli and returns what it said.
func (s *Server) Do(args ...string) string {
	s.t.Helper()
	out, err := exec.Command("redis-cli", append([]string{"-s", s.Sock, "--raw"}, args...)...).CombinedOutput() //nolint:noctx // on this machine
	if err != nil {
		s.t.Fatalf("redis-cli %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// alive reports whether a child has not ended; one that has is a zombie until it is waited for.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return os.IsNotExist(err) && !exists("/proc/self/stat") // no /proc here: let the time decide
	}
	_, after, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(after, "Z")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
