package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/binarytest"
	"github.com/gpupool/gpupool/internal/cli"
)

func TestMain(m *testing.M) { binarytest.Main(m) }

// binary builds gpupool and returns its path.
func binary(t *testing.T) string {
	t.Helper()
	return binarytest.Path(t)
}

// server is a real gpupool serve that a test starts, kills and starts again.
type testServer struct {
	t     *testing.T
	data  string
	shape string
	flags []string // of serve, instead of --fake with the shape
	addr  string   // once it is known, so that clients find it again
	env   []string
	cmd   *exec.Cmd
	log   lockedBuffer
}

func (s *testServer) start() {
	s.t.Helper()
	listen := s.addr
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	flags := s.flags
	if flags == nil && s.shape != "" { // else what the environment shows
		flags = []string{"--fake", s.shape}
	}
	s.cmd = exec.Command(binary(s.t), append([]string{"serve", "--data", s.data, "--listen", listen}, flags...)...)
	s.cmd.Stderr = &s.log
	s.cmd.Env = append(os.Environ(), s.env...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
}

// up waits until the server that runs now has said where it listens.
func (s *testServer) up(ctx context.Context) *client.Client {
	s.t.Helper()
	url := s.url(ctx)
	s.addr = strings.TrimPrefix(url, "http://")
	return s.client(url)
}

func (s *testServer) url(ctx context.Context) string {
	s.t.Helper()
	for ctx.Err() == nil {
		var info cli.ServerInfo
		b, err := os.ReadFile(filepath.Join(s.data, cli.ServerFile))
		if err == nil && json.Unmarshal(b, &info) == nil && info.PID == s.cmd.Process.Pid {
			return info.URL
		}
		time.Sleep(5 * time.Millisecond)
	}
	s.t.Fatalf("the server did not come up; it said:\n%s", s.log.String())
	return ""
}

func (s *testServer) client(url string) *client.Client {
	s.t.Helper()
	token, err := os.ReadFile(filepath.Join(s.data, cli.AdminTokenFile))
	if err != nil {
		s.t.Fatal(err)
	}
	c, err := client.New(url, strings.TrimSpace(string(token)), client.WithRetry(time.Minute))
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// end sends a signal and waits until the server is no more.
func (s *testServer) end(sig syscall.Signal) {
	s.cmd.Process.Signal(sig) //nolint:errcheck // it may be gone
	s.cmd.Wait()              //nolint:errcheck // killed
}

// processes lists those that belong to a data folder: the server, shims, members.
func processes(data string) (out []string) {
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	for _, p := range names {
		cmdline, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		environ, _ := os.ReadFile(filepath.Join(p, "environ"))
		pid, _ := strconv.Atoi(filepath.Base(p))
		if pid != os.Getpid() && (bytes.Contains(cmdline, []byte(data)) || bytes.Contains(environ, []byte("GPUPOOL_DIR="+data)) || bytes.Contains(environ, []byte("GPUPOOL_DATA="+data))) {
			out = append(out, filepath.Base(p)+" "+string(bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '})))
		}
	}
	return out
}
