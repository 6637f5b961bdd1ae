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
//	halt [-SIGNAL]      end it, by SIGTERM unless told otherwise, and wait
//	code N CMD [ARG...] run gpupool and expect exit code N
//
// A command named stop is testscript's own: it ends the story there, and passes it.
func TestScripts(t *testing.T) { runScripts(t, "testdata/script", nil) }

// TestScriptsOverMock runs the stories in testdata/nvidia, each on a machine of its own
// whose GPUs are what its file gpus/config says.
func TestScriptsOverMock(t *testing.T) {
	_, env := mockGPUs(t)
	runScripts(t, "testdata/nvidia", func(e *testscript.Env) {
		e.Vars = append(e.Vars, env...)
		e.Setenv("MOCK_NVML_STATE", filepath.Join(e.WorkDir, "gpus", "state"))
	})
}

func runScripts(t *testing.T, stories string, more func(*testscript.Env)) {
	t.Helper()
	dir := filepath.Dir(binary(t))
	noStop(t, stories)
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: stories, RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", dir+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Setenv("GPUPOOL_DATA", filepath.Join(env.WorkDir, "data"))
			env.Setenv("REPO", repo)
			env.Setenv("HOME", env.WorkDir)
			env.Values["data"] = filepath.Join(env.WorkDir, "data")
			if more != nil {
				more(env)
			}
			env.Defer(func() { endAll(env) })
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"serve": serveCmd, "halt": haltCmd, "code": codeCmd},
	})
}

// noStop refuses stories that would end early without a word.
func noStop(t *testing.T, stories string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(stories, "*.txtar"))
	if err != nil || len(names) == 0 {
		t.Fatalf("there are no stories in %s: %v", stories, err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if word, _, _ := strings.Cut(line, " "); word == "stop" {
				t.Fatalf("%s:%d: stop ends the story there: to end the server use halt", name, i+1)
			}
		}
	}
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
	for _, name := range mockVariables {
		if v := ts.Getenv(name); v != "" {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
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

func haltCmd(ts *testscript.TestScript, _ bool, args []string) {
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
