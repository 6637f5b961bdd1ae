package process_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/runner"
	"github.com/gpupool/gpupool/internal/runner/process"
	"github.com/gpupool/gpupool/internal/runner/runnertest"
)

// serverEnv makes the test binary a server that starts one member and waits to be
// killed.
const serverEnv = "GPUPOOL_TEST_SERVER"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "__shim" {
		os.Exit(process.ShimMain(os.Args[2:]))
	}
	if dir := os.Getenv(serverEnv); dir != "" {
		server(dir)
	}
	os.Exit(m.Run())
}

func open(t *testing.T, dir string) *process.Runner {
	t.Helper()
	r, err := newRunner(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newRunner(dir string) (*process.Runner, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return process.New(dir, process.Options{ShimCommand: []string{exe, "__shim"}, LogMaxMiB: 1, LogFiles: 2})
}

func TestRunner(t *testing.T) {
	runnertest.Run(t, func(t *testing.T) func() runner.Runner {
		dir := t.TempDir()
		return func() runner.Runner { return open(t, dir) }
	})
}

func server(dir string) {
	r, err := newRunner(dir)
	if err == nil {
		err = r.Start(context.Background(), runner.Spec{ID: runner.ID{Task: 1, Epoch: 1},
			Command: []string{"/bin/sh", "-c", "trap 'exit 8' TERM; echo up; while :; do sleep 0.05; done"}})
	}
	fmt.Println("started", err)
	select {}
}

func bound(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// until waits for something another process does.
func until(ctx context.Context, t *testing.T, what string, done func() bool) {
	t.Helper()
	for !done() {
		if ctx.Err() != nil {
			t.Fatalf("waited in vain until %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestServerKilled(t *testing.T) {
	ctx, dir, id := bound(t), t.TempDir(), runner.ID{Task: 1, Epoch: 1}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serverEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "started <nil>\n" {
		t.Fatalf("the server said %q, %v", line, err)
	}
	cmd.Process.Kill() //nolint:errcheck // it runs
	cmd.Wait()         //nolint:errcheck // killed

	r := open(t, dir)
	all, err := r.List(ctx)
	if err != nil || len(all) != 1 || all[0].State != runner.Running {
		t.Fatalf("after the server's death: %+v, %v; want the member running", all, err)
	}
	until(ctx, t, "it is up", func() bool {
		l, err := r.Logs(ctx, id, runner.LogOptions{})
		if err != nil {
			return false
		}
		defer l.Close()
		b, _ := io.ReadAll(l)
		return string(b) == "up\n"
	})
	if err := r.Stop(ctx, id, time.Hour, ""); err != nil {
		t.Fatal(err)
	}
	st, err := r.Wait(ctx, id)
	if err != nil || st.Exit == nil || st.Exit.Code != 8 {
		t.Fatalf("got %+v, %v; want the true exit code 8", st, err)
	}
}

// TestShimKilled: without its shim a member is over, nothing of it is left, and the
// runner says that the end is not known.
func TestShimKilled(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("needs Linux: elsewhere a program outlives a killed shim")
	}
	ctx, dir, id := bound(t), t.TempDir(), runner.ID{Task: 7, Epoch: 2, Member: 1}
	r := open(t, dir)
	child := filepath.Join(t.TempDir(), "child")
	err := r.Start(ctx, runner.Spec{ID: id, Command: []string{"/bin/sh", "-c", "setsid sleep 1000 & echo $! > " + child + "; wait"}})
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	until(ctx, t, "its child runs", func() bool {
		b, err := os.ReadFile(child)
		if err == nil {
			_, err = fmt.Sscan(string(b), &pid)
		}
		return err == nil
	})
	b, err := os.ReadFile(filepath.Join(dir, id.String(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	var shim int
	if _, err := fmt.Sscan(string(b), &shim); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(shim, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	st, err := r.Wait(ctx, id)
	if err != nil || st.Exit == nil || !strings.Contains(st.Exit.Lost, "shim") {
		t.Fatalf("got %+v, %v; want it lost", st, err)
	}
	until(ctx, t, "its child is gone", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH || zombie(pid) })
	if err := r.Start(ctx, runner.Spec{ID: id, Command: []string{"/bin/sh", "-c", "echo again >> " + child}}); err != nil {
		t.Fatal(err)
	}
	if st, err = r.Wait(ctx, id); err != nil || st.Exit.Lost == "" {
		t.Fatalf("a lost member was started again: %+v, %v", st, err)
	}
}

// zombie reports whether a process has ended and only waits to be reaped, which a
// container's first process may never do.
func zombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(b), ") Z ")
}

func TestRotation(t *testing.T) {
	ctx, dir, id := bound(t), t.TempDir(), runner.ID{Task: 1, Epoch: 1}
	r := open(t, dir)
	// 3 MiB in lines of 64 bytes: the log is rotated at each MiB, and two old parts are kept.
	script := "i=0; while [ $i -lt 49152 ]; do echo \"$i\"; i=$((i+1)); done | awk '{printf \"%063d\\n\", $1}'"
	if err := r.Start(ctx, runner.Spec{ID: id, Command: []string{"/bin/sh", "-c", script}}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(ctx, id); err != nil {
		t.Fatal(err)
	}
	parts, err := filepath.Glob(filepath.Join(dir, id.String(), "log*"))
	if err != nil || len(parts) != 3 {
		t.Fatalf("the log is in %v, %v; want three files", parts, err)
	}
	l, err := r.Logs(ctx, id, runner.LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(l)
	if err != nil {
		t.Fatal(err)
	}
	last := -1
	for line := range strings.Lines(string(b)) {
		var n int
		if _, err := fmt.Sscanf(strings.TrimLeft(strings.TrimSpace(line), "0")+" ", "%d", &n); err != nil && strings.Trim(line, "0\n") != "" {
			continue // the first line kept may have lost its beginning
		}
		if last >= 0 && n != last+1 {
			t.Fatalf("line %d follows line %d", n, last)
		}
		last = n
	}
	if last != 49151 {
		t.Fatalf("the last line is %d", last)
	}
}

// TestUnwritable: what cannot be started is refused, once for ever.
func TestShimFails(t *testing.T) {
	ctx, dir := bound(t), t.TempDir()
	r, err := process.New(dir, process.Options{ShimCommand: []string{"/bin/false"}})
	if err != nil {
		t.Fatal(err)
	}
	spec := runner.Spec{ID: runner.ID{Task: 1, Epoch: 1}, Command: []string{"/bin/true"}}
	if err := r.Start(ctx, spec); err == nil {
		t.Fatal("a member without a shim was said to run")
	}
	good := open(t, dir)
	if err := good.Start(ctx, spec); err != nil {
		t.Fatal(err)
	}
	if all, err := good.List(ctx); err != nil || len(all) != 0 {
		t.Fatalf("what was said never to run is listed: %+v, %v", all, err)
	}
}

func TestPrune(t *testing.T) {
	ctx, dir := bound(t), t.TempDir()
	r := open(t, dir)
	for i := range uint64(5) {
		id := runner.ID{Task: i + 8, Epoch: 1} // 8, 9, 10, 11, 12: by number, not by name
		if err := r.Start(ctx, runner.Spec{ID: id, Command: []string{"/bin/true"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Wait(ctx, id); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			continue // ended and not forgotten: it stays whatever its age
		}
		if err := r.Forget(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := process.New(dir, process.Options{ShimCommand: []string{exe, "__shim"}, KeepLogs: 2}); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != 3 || filepath.Base(left[0]) != "11.1.0" || filepath.Base(left[1]) != "12.1.0" || filepath.Base(left[2]) != "8.1.0" {
		t.Fatalf("left are %v, %v; want 8, which is not forgotten, and the two newest", left, err)
	}
}
