// Package runnertest is the conformance suite that every runner passes.
//
// It runs real programs (a POSIX shell and the usual tools), a few dozen of them;
// its own cost does not matter.
package runnertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/runner"
)

// deadline ends a test that hangs; no result depends on it.
const deadline = 60 * time.Second

// suite is what the tests share.
type suite struct {
	r    runner.Runner
	open func() runner.Runner // another one over the same place
	dir  string               // scratch
	next uint64
	ctx  context.Context //nolint:containedctx // of the one test that the suite serves
}

// Run checks a runner. place returns a function that opens one and the same place
// again and again, empty at first.
func Run(t *testing.T, place func(t *testing.T) (open func() runner.Runner)) {
	for _, x := range []struct {
		name string
		test func(t *testing.T, s *suite)
	}{
		{"passes on how a member ends", ends}, {"says why a program cannot be executed", cannot},
		{"starts once however often it is asked", once}, {"starts once for two at the same time", race},
		{"stops with SIGTERM", stopTerm}, {"kills after grace", stopKill}, {"a shorter grace holds", shorter},
		{"ends everything that a member started", tree}, {"finds daemons", daemon},
		{"stops what ended or is not known", stopNothing}, {"sets the environment", environment},
		{"limits what leaks from the server", leaks}, {"finds running members again", adopt},
		{"lists and forgets", forget}, {"knows what it does not know", unknown}, {"a wait can be given up", giveUp},
		{"runs many", many}, {"keeps logs", logs}, {"follows logs", follow}, {"a talkative member does not hang", talkative},
		{"suspends and resumes", suspends}, {"stops a suspended member", stopSuspended}, {"cannot suspend what ended", suspendEnded},
		{"suspends one that starts programs", suspendForking},
		{"stops with the signal that is named", signals}, {"sends no other signal before the kill", signalOnly}, {"a signal outlives a restart", signalLater},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			open := place(t)
			ctx, cancel := context.WithTimeout(context.Background(), deadline)
			s := &suite{r: open(), open: open, dir: t.TempDir(), ctx: ctx}
			defer s.cleanUp(t, cancel)
			x.test(t, s)
		})
	}
}

// cleanUp ends whatever a test left running.
func (s *suite) cleanUp(t *testing.T, cancel func()) {
	defer cancel()
	all, err := s.r.List(s.ctx)
	must(t, err)
	for _, st := range all {
		must(t, s.r.Stop(s.ctx, st.ID, 0, ""))
		_, err := s.r.Wait(s.ctx, st.ID)
		must(t, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *suite) spec(script string) runner.Spec {
	s.next++
	return runner.Spec{ID: runner.ID{Task: s.next, Epoch: 1}, Tenant: "a", Pool: "main", Host: "h1", Members: 1,
		Command: []string{"/bin/sh", "-c", script}}
}

func (s *suite) start(t *testing.T, script string) runner.ID {
	t.Helper()
	x := s.spec(script)
	must(t, s.r.Start(s.ctx, x))
	return x.ID
}

func (s *suite) wait(t *testing.T, id runner.ID) runner.Exit {
	t.Helper()
	st, err := s.r.Wait(s.ctx, id)
	must(t, err)
	if st.State != runner.Exited || st.Exit == nil || st.ID != id {
		t.Fatalf("member %s: waited and got %+v", id, st)
	}
	return *st.Exit
}

func (s *suite) expect(t *testing.T, id runner.ID, code int, signal string) {
	t.Helper()
	if x := s.wait(t, id); x.Code != code || x.Signal != signal || x.Lost != "" || x.Ended.IsZero() {
		t.Fatalf("member %s ended with %+v, want code %d and signal %q", id, x, code, signal)
	}
}

// file waits until a member has written a file, and returns what is in it.
func (s *suite) file(t *testing.T, name string) string {
	t.Helper()
	for s.ctx.Err() == nil {
		if b, err := os.ReadFile(filepath.Join(s.dir, name)); err == nil && bytes.HasSuffix(b, []byte("\n")) {
			return strings.TrimSpace(string(b))
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("no member wrote %s", name)
	return ""
}

// HostPIDs is what a runner offers whose members have pids of their own: pid is what a
// process inside says that it has. 0: there is no such process, or no longer.
type HostPIDs interface {
	HostPID(id runner.ID, pid int) int
}

// pid waits until a member has written a pid, and returns the host's for it; "" when that
// process has ended.
func (s *suite) pid(t *testing.T, id runner.ID, name string) string {
	t.Helper()
	said := s.file(t, name)
	hosts, apart := s.r.(HostPIDs)
	if !apart {
		return said
	}
	n, err := strconv.Atoi(said)
	must(t, err)
	if n = hosts.HostPID(id, n); n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// gone waits until a process is no more.
func (s *suite) gone(t *testing.T, pid string) {
	t.Helper()
	if pid == "" {
		return
	}
	var n int
	if _, err := fmt.Sscan(pid, &n); err != nil {
		t.Fatal(err)
	}
	for s.ctx.Err() == nil {
		if err := syscall.Kill(n, 0); errors.Is(err, syscall.ESRCH) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("process %s is still there", pid)
}

func ends(t *testing.T, s *suite) {
	s.expect(t, s.start(t, "exit 0"), 0, "")
	s.expect(t, s.start(t, "exit 3"), 3, "")
	s.expect(t, s.start(t, "kill -9 $$"), 137, "SIGKILL")
	s.expect(t, s.start(t, "kill -15 $$"), 143, "SIGTERM")
}

func cannot(t *testing.T, s *suite) {
	plain := filepath.Join(s.dir, "plain")
	must(t, os.WriteFile(plain, []byte("hello"), 0o600))
	for _, x := range []struct {
		command string
		dir     string
		code    int
		say     string
	}{{"no-such-program", "", 127, "not found"}, {"/no/such/program", "", 127, "not found"}, {plain, "", 126, "not executable"}, {"/bin/sh", "/no/such/dir", 126, "working directory"}} {
		spec := s.spec("")
		spec.Command, spec.Dir = []string{x.command}, x.dir
		must(t, s.r.Start(s.ctx, spec))
		got := s.wait(t, spec.ID)
		if x.code == 127 || x.dir != "" { // 126 and 127 differ between shells for a plain file
			if got.Code != x.code {
				t.Errorf("%s: got %+v, want code %d", x.command, got, x.code)
			}
		} else if got.Code != 126 && got.Code != 127 {
			t.Errorf("%s: got %+v, want code 126 or 127", x.command, got)
		}
		if l, ok := s.r.(runner.LogReader); ok && !strings.Contains(read(t, s, l, spec.ID, runner.LogOptions{}), x.say) {
			t.Errorf("%s: its log does not say %q", x.command, x.say)
		}
	}
}

func once(t *testing.T, s *suite) {
	spec := s.spec("echo x >> " + filepath.Join(s.dir, "runs"))
	for range 3 {
		must(t, s.r.Start(s.ctx, spec))
	}
	s.expect(t, spec.ID, 0, "")
	must(t, s.r.Start(s.ctx, spec))
	s.expect(t, spec.ID, 0, "")
	must(t, s.r.Forget(s.ctx, spec.ID))
	must(t, s.open().Start(s.ctx, spec))
	if got := s.file(t, "runs"); got != "x" {
		t.Fatalf("it ran %d times", strings.Count(got, "x"))
	}
}

func race(t *testing.T, s *suite) {
	spec := s.spec("echo x >> " + filepath.Join(s.dir, "runs"))
	var all sync.WaitGroup
	for range 4 {
		r := s.open()
		all.Go(func() {
			if err := r.Start(s.ctx, spec); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	s.expect(t, spec.ID, 0, "")
	if got := s.file(t, "runs"); got != "x" {
		t.Fatalf("it ran %d times", strings.Count(got, "x"))
	}
}

// sleeper runs until it is ended; ready is written when its traps stand.
func (s *suite) sleeper(traps string) string {
	return traps + "; echo $$ > " + filepath.Join(s.dir, "ready") + "; while :; do sleep 0.05; done"
}

func stopTerm(t *testing.T, s *suite) {
	id := s.start(t, s.sleeper("trap 'exit 7' TERM"))
	s.file(t, "ready")
	must(t, s.r.Stop(s.ctx, id, time.Hour, ""))
	s.expect(t, id, 7, "")
	s.next++
	id = s.start(t, "sleep 1000")
	must(t, s.r.Stop(s.ctx, id, time.Hour, "")) // perhaps before it began
	if x := s.wait(t, id); x.Code != 143 {
		t.Fatalf("got %+v, want code 143", x)
	}
}

func stopKill(t *testing.T, s *suite) {
	id := s.start(t, s.sleeper("trap '' TERM"))
	s.file(t, "ready")
	must(t, s.r.Stop(s.ctx, id, 50*time.Millisecond, ""))
	s.expect(t, id, 137, "SIGKILL")
}

func shorter(t *testing.T, s *suite) {
	id := s.start(t, s.sleeper("trap '' TERM"))
	s.file(t, "ready")
	must(t, s.r.Stop(s.ctx, id, time.Hour, ""))
	must(t, s.r.Stop(s.ctx, id, 10*time.Millisecond, ""))
	must(t, s.r.Stop(s.ctx, id, time.Hour, "")) // longer again: does not count
	s.expect(t, id, 137, "SIGKILL")
}

func tree(t *testing.T, s *suite) {
	child := filepath.Join(s.dir, "child")
	id := s.start(t, "(trap '' TERM; echo $(exec sh -c 'echo $PPID') > "+child+"; sleep 1000) & wait")
	pid := s.pid(t, id, "child")
	must(t, s.r.Stop(s.ctx, id, 20*time.Millisecond, ""))
	s.wait(t, id)
	s.gone(t, pid)
	// and when the program ends by itself
	id = s.start(t, "sleep 1000 & echo $! > "+filepath.Join(s.dir, "child2")+"; exit 4")
	s.expect(t, id, 4, "")
	s.gone(t, s.pid(t, id, "child2"))
}

func daemon(t *testing.T, s *suite) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("needs Linux: elsewhere a daemon leaves the group for good")
	}
	id := s.start(t, "setsid sh -c 'echo $$ > "+filepath.Join(s.dir, "daemon")+"; exec sleep 1000' & exec sleep 1000")
	pid := s.pid(t, id, "daemon")
	must(t, s.r.Stop(s.ctx, id, 20*time.Millisecond, ""))
	s.wait(t, id)
	s.gone(t, pid)
}

func stopNothing(t *testing.T, s *suite) {
	must(t, s.r.Stop(s.ctx, runner.ID{Task: 999, Epoch: 1}, 0, ""))
	id := s.start(t, "exit 5")
	s.wait(t, id)
	must(t, s.r.Stop(s.ctx, id, 0, ""))
	s.expect(t, id, 5, "")
}

func environment(t *testing.T, s *suite) {
	spec := s.spec("env > " + filepath.Join(s.dir, "env") + "; pwd > " + filepath.Join(s.dir, "pwd"))
	spec.ID.Member, spec.ID.Epoch, spec.Members = 2, 3, 4
	spec.Slices, spec.Name, spec.Dir = "1g.10gb at 3 of GPU 2", "job", s.dir
	spec.Devices = []string{"MIG-1", "MIG-2"}
	spec.Env = []string{"MINE=yes", "CUDA_VISIBLE_DEVICES=all", "PATH=/usr/bin:/bin"}
	must(t, s.r.Start(s.ctx, spec))
	s.expect(t, spec.ID, 0, "")
	env := "\n" + s.file(t, "env") + "\n"
	for _, want := range []string{"CUDA_VISIBLE_DEVICES=MIG-1,MIG-2", "NVIDIA_VISIBLE_DEVICES=MIG-1,MIG-2", "GPUPOOL_TASK=1", "GPUPOOL_EPOCH=3",
		"GPUPOOL_MEMBER=2", "GPUPOOL_MEMBERS=4", "GPUPOOL_TENANT=a", "GPUPOOL_POOL=main", "GPUPOOL_HOST=h1",
		"GPUPOOL_SLICES=1g.10gb at 3 of GPU 2", "MINE=yes", "PATH=/usr/bin:/bin"} {
		if !strings.Contains(env, "\n"+want+"\n") {
			t.Errorf("%s is not set in %s", want, env)
		}
	}
	resolved, err := filepath.EvalSymlinks(s.dir)
	must(t, err)
	if got := s.file(t, "pwd"); got != s.dir && got != resolved {
		t.Errorf("it runs in %s, want %s", got, s.dir)
	}
	spec = s.spec("echo \"[$CUDA_VISIBLE_DEVICES]\" > " + filepath.Join(s.dir, "none"))
	must(t, s.r.Start(s.ctx, spec))
	if got := s.file(t, "none"); got != "[]" {
		t.Errorf("without devices CUDA_VISIBLE_DEVICES is %s, want it empty, which hides all", got)
	}
}

func leaks(t *testing.T, s *suite) {
	must(t, os.Setenv("GPUPOOL_TEST_SECRET", "secret")) //nolint:usetesting // not t.Setenv: the suite is parallel, and the name is only used here
	id := s.start(t, "env > "+filepath.Join(s.dir, "env")+"; exec ls /proc/self/fd")
	x := s.wait(t, id)
	if strings.Contains(s.file(t, "env"), "secret") {
		t.Error("a variable of the server reached the program")
	}
	l, ok := s.r.(runner.LogReader)
	if !ok || x.Code != 0 {
		return // no /proc here
	}
	if got := strings.Fields(read(t, s, l, id, runner.LogOptions{})); len(got) != 4 { // the three standard ones, and the folder that ls reads
		t.Errorf("files %v are open in the program, want the three standard ones", got)
	}
}

func adopt(t *testing.T, s *suite) {
	id := s.start(t, s.sleeper("trap 'exit 9' TERM"))
	pid := s.pid(t, id, "ready")
	again := s.open()
	all, err := again.List(s.ctx)
	must(t, err)
	if len(all) != 1 || all[0].ID != id || all[0].State != runner.Running || fmt.Sprint(all[0].PID) != pid || all[0].Started.IsZero() {
		t.Fatalf("another runner sees %+v, want member %s running as %s", all, id, pid)
	}
	must(t, again.Stop(s.ctx, id, time.Hour, ""))
	s.expect(t, id, 9, "")
}

func forget(t *testing.T, s *suite) {
	id := s.start(t, s.sleeper("trap 'exit 0' TERM"))
	s.file(t, "ready")
	if err := s.r.Forget(s.ctx, id); err == nil {
		t.Fatal("a running member was forgotten")
	}
	must(t, s.r.Stop(s.ctx, id, time.Hour, ""))
	s.expect(t, id, 0, "")
	all, err := s.r.List(s.ctx)
	must(t, err)
	if len(all) != 1 || all[0].State != runner.Exited {
		t.Fatalf("after its end the list is %+v", all)
	}
	must(t, s.r.Forget(s.ctx, id))
	must(t, s.r.Forget(s.ctx, id))
	if all, err = s.r.List(s.ctx); err != nil || len(all) != 0 {
		t.Fatalf("after forgetting the list is %+v, %v", all, err)
	}
	if x := s.wait(t, id); x.Lost == "" {
		t.Fatalf("a forgotten member is known: %+v", x)
	}
}

func unknown(t *testing.T, s *suite) {
	id := runner.ID{Task: 12345, Epoch: 6}
	if x := s.wait(t, id); x.Lost == "" {
		t.Fatalf("got %+v, want it lost", x)
	}
	must(t, s.r.Forget(s.ctx, id))
	if l, ok := s.r.(runner.LogReader); ok {
		if _, err := l.Logs(s.ctx, id, runner.LogOptions{}); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("its logs: got %v, want fs.ErrNotExist", err)
		}
	}
}

func giveUp(t *testing.T, s *suite) {
	id := s.start(t, "sleep 1000")
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	if _, err := s.r.Wait(ctx, id); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want it cancelled", err)
	}
}

func many(t *testing.T, s *suite) {
	const n = 40
	var ids []runner.ID
	var all sync.WaitGroup
	for i := range n {
		spec := s.spec(fmt.Sprintf("exit %d", i))
		ids = append(ids, spec.ID)
		all.Go(func() {
			if err := s.r.Start(s.ctx, spec); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for i, id := range ids {
		s.expect(t, id, i, "")
	}
}
