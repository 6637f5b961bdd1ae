package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs the stories in testdata/script against the real binary. Beside
// testscript's own commands there are:
//
//	serve [ARG...]      start gpupool serve on a free port and wait until it is up
//	stop [-SIGNAL]      end it, by SIGTERM unless told otherwise, and wait
//	code N CMD [ARG...] run gpupool and expect exit code N
func TestScripts(t *testing.T) {
	dir := filepath.Dir(binary(t))
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", dir+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Setenv("GPUPOOL_DATA", filepath.Join(env.WorkDir, "data"))
			env.Setenv("REPO", repo)
			env.Setenv("HOME", env.WorkDir)
			env.Values["data"] = filepath.Join(env.WorkDir, "data")
			env.Defer(func() { endAll(env) })
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"serve": serveCmd, "stop": stopCmd, "code": codeCmd},
	})
}

// endAll ends what a story left: its server, and its tasks, which outlive it.
func endAll(env *testscript.Env) {
	data := env.Values["data"].(string) //nolint:forcetypeassert // set above
	if v, ok := servers.LoadAndDelete(data); ok {
		r := v.(*running)                     //nolint:forcetypeassert // only those are stored
		r.cmd.Process.Signal(syscall.SIGKILL) //nolint:errcheck // gone already, then
		<-r.done
	}
	for range 100 {
		left := processes(data)
		if len(left) == 0 {
			return
		}
		for _, p := range left {
			pid, _, _ := strings.Cut(p, " ")
			if n, err := strconv.Atoi(pid); err == nil {
				syscall.Kill(n, syscall.SIGKILL) //nolint:errcheck // gone already, then
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	env.T().Log("processes are left over: ", processes(data))
	env.T().FailNow()
}

// servers are the ones that run now, by data folder.
var servers sync.Map

type running struct {
	cmd  *exec.Cmd
	done chan struct{}
}

func serveCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("serve cannot be negated: use code 1 serve")
	}
	data := ts.Getenv("GPUPOOL_DATA")
	os.Remove(filepath.Join(data, "server.json")) //nolint:errcheck // of an earlier one
	cmd := exec.Command(binaryIn(ts), append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	cmd.Env = append(os.Environ(), "GPUPOOL_DATA="+data, "HOME="+ts.Getenv("HOME"))
	log, err := os.OpenFile(filepath.Join(ts.Getenv("WORK"), "serve.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	ts.Check(err)
	cmd.Stdout, cmd.Stderr = log, log
	ts.Check(cmd.Start())
	log.Close() //nolint:errcheck // the server has its own
	r := &running{cmd, make(chan struct{})}
	go func() {
		cmd.Wait() //nolint:errcheck // what it said is in serve.log
		close(r.done)
	}()
	servers.Store(data, r)
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		if _, err := os.Stat(filepath.Join(data, "server.json")); err == nil {
			return
		}
		select {
		case <-r.done:
			deadline = time.Now()
		case <-time.After(5 * time.Millisecond):
		}
	}
	said, _ := os.ReadFile(filepath.Join(ts.Getenv("WORK"), "serve.log"))
	ts.Fatalf("the server did not come up:\n%s", said)
}

func stopCmd(ts *testscript.TestScript, _ bool, args []string) {
	v, ok := servers.LoadAndDelete(ts.Getenv("GPUPOOL_DATA"))
	if !ok {
		ts.Fatalf("no server runs")
	}
	r := v.(*running) //nolint:forcetypeassert // only those are stored
	sig := syscall.SIGTERM
	if len(args) == 1 && args[0] == "-KILL" {
		sig = syscall.SIGKILL
	}
	ts.Check(r.cmd.Process.Signal(sig))
	select {
	case <-r.done:
	case <-time.After(20 * time.Second):
		ts.Fatalf("the server did not stop")
	}
}

func codeCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binaryIn(ts), args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"PATH", "HOME", "GPUPOOL_DATA", "GPUPOOL_TOKEN", "GPUPOOL_SERVER"} {
		if v := ts.Getenv(name); v != "" {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	out, err := cmd.CombinedOutput()
	fmt.Fprintf(ts.Stdout(), "%s", out)
	if got := cmd.ProcessState.ExitCode(); got != want {
		ts.Fatalf("gpupool %s: exit code %d, want %d (%v)\n%s", strings.Join(args[1:], " "), got, want, err, out)
	}
}

func binaryIn(ts *testscript.TestScript) string {
	dir, _, _ := strings.Cut(ts.Getenv("PATH"), string(os.PathListSeparator))
	return filepath.Join(dir, "gpupool")
}
