//go:build linux && cgo

package checkpoint

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/gpupool/gpupool/internal/runner"
	"github.com/gpupool/gpupool/internal/runner/process"
)

const (
	gpuA = "GPU-00112233-4455-6677-8899-aabbccddeeff"
	gpuB = "GPU-ffeeddcc-bbaa-9988-7766-554433221100"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "__shim":
			os.Exit(process.ShimMain(os.Args[2:]))
		case "__checkpoint":
			os.Exit(Main(os.Args[2:], os.Stdout, os.Stderr))
		}
	}
	os.Exit(m.Run())
}

// built is where the fake driver library lies, once it is built.
var built = sync.OnceValues(func() (string, error) {
	out, err := filepath.Abs(filepath.Join("..", "..", "bin", "mock-cuda"))
	if err != nil {
		return "", err
	}
	if said, err := exec.Command(filepath.Join("..", "..", "testdata", "cuda", "build.sh"), out).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, said)
	}
	return out, nil
})

// machine is one with the fake driver library (see testdata/cuda).
type machine struct {
	*testing.T
	dir string
	exe string
}

func newMachine(t *testing.T) *machine {
	lib, err := built()
	switch {
	case err != nil && os.Getenv("CI") != "":
		t.Fatalf("the fake libcuda cannot be built: %v", err)
	case err != nil:
		t.Skipf("the fake libcuda cannot be built: %v", err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{T: t, dir: t.TempDir(), exe: exe}
	t.Setenv("FAKE_CUDA", m.dir)
	t.Setenv("LD_LIBRARY_PATH", lib)
	t.Setenv("GORACE", "atexit_sleep_ms=0") // or each step takes a second under the race detector
	t.Setenv("CUDA_VISIBLE_DEVICES", "")    // of the server: the command shall see every GPU all the same
	m.write("gpus", gpuA+" 16\n"+gpuB+" 16\n")
	return m
}

func (m *machine) write(name, content string) {
	m.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, name), []byte(content), 0o600); err != nil {
		m.Fatal(err)
	}
}

// fails tells the library which calls fail from now on.
func (m *machine) fails(lines string) {
	m.Helper()
	counts, err := filepath.Glob(filepath.Join(m.dir, "count-*"))
	if err != nil {
		m.Fatal(err)
	}
	for _, f := range counts {
		os.Remove(f) //nolint:errcheck // it is there
	}
	m.write("fail", lines)
}

// called wants the calls since the last look that change something; processes are named a, b in the order of the
// pids given.
func (m *machine) called(pids []int, want ...string) {
	m.Helper()
	b, _ := os.ReadFile(filepath.Join(m.dir, "calls"))
	os.Remove(filepath.Join(m.dir, "calls")) //nolint:errcheck // read
	text := string(b)
	for i, pid := range pids {
		text = regexp.MustCompile(`\b`+strconv.Itoa(pid)+`\b`).ReplaceAllString(text, string(rune('a'+i)))
	}
	if got := strings.Split(strings.TrimSpace(text), "\n"); !slices.Equal(got, want) && (len(want) > 0 || len(b) > 0) {
		m.Errorf("the library was called for %q, want %q", got, want)
	}
}

// run does one step in a process of its own.
func (m *machine) run(args ...string) (code int, said string) {
	m.Helper()
	cmd := exec.Command(m.exe, append([]string{"__checkpoint"}, args...)...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		m.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), strings.TrimSpace(string(out))
}

// program runs a process with an environment until the test is over.
func (m *machine) program(env ...string) (pid string) {
	m.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.Env = append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // it runs
		cmd.Wait()         //nolint:errcheck // killed
	})
	return strconv.Itoa(cmd.Process.Pid)
}

// TestLayout: the sizes that cuda.h has.
func TestLayout(t *testing.T) {
	for name, n := range map[string]uintptr{"lock": unsafe.Sizeof(lockArgs{}), "checkpoint": unsafe.Sizeof(noArgs{}), "restore": unsafe.Sizeof(restoreArgs{})} {
		if n != 64 {
			t.Errorf("the arguments of %s have %d bytes, want 64", name, n)
		}
	}
}

// TestRefusals: where it cannot be done, it is not tried, and why is said.
func TestRefusals(t *testing.T) {
	m := newMachine(t)
	whole, mig, mps := m.program("CUDA_VISIBLE_DEVICES="+gpuA), m.program("CUDA_VISIBLE_DEVICES=MIG-1"), m.program("CUDA_MPS_PIPE_DIRECTORY=/x")
	other, unnamed := m.program("CUDA_VISIBLE_DEVICES=GPU-gone"), m.program("CUDA_VISIBLE_DEVICES=")
	lib, err := built()
	if err != nil {
		t.Fatal(err)
	}
	const huge = gpuA + " 16\n" + gpuB + " 1000000000\n"
	for name, c := range map[string]struct {
		lib  string
		file []string // name and content
		args []string
		code int
		said string
	}{
		"it can":                         {args: []string{"--probe"}, said: "serves CUDA 13.0"},
		"no driver":                      {lib: t.TempDir(), args: []string{"--probe"}, code: exitRefused, said: "cannot be loaded: libcuda.so.1"},
		"no driver, asked for a process": {lib: t.TempDir(), args: []string{"--get-state", "--pid", whole}, code: exitRefused, said: "cannot be loaded"},
		"a driver without the calls":     {lib: filepath.Join(lib, "old"), args: []string{"--get-state", "--pid", whole}, code: exitRefused, said: "no cuCheckpointProcessGetState: moving GPU memory to main memory takes driver 570"},
		"an older version":               {file: []string{"version", "12040"}, args: []string{"--action", "lock", "--pid", whole}, code: exitRefused, said: "serves CUDA 12.4: moving GPU memory to main memory takes CUDA 12.8, which is driver 570"},
		"other GPUs on driver 570":       {file: []string{"version", "12080"}, args: []string{"--action", "restore", "--pid", whole, "--device-map", gpuA + "=" + gpuB}, code: exitRefused, said: "takes driver 580"},
		"MIG":                            {args: []string{"--action", "checkpoint", "--pid", mig}, code: exitRefused, said: "MIG instance MIG-1"},
		"MPS":                            {args: []string{"--action", "checkpoint", "--pid", mps}, code: exitRefused, said: "shares its GPU by MPS"},
		"no GPU":                         {file: []string{"gpus", ""}, args: []string{"--action", "checkpoint", "--pid", whole}, code: exitRefused, said: "cuInit: the driver finds no GPU"},
		"not a program with CUDA":        {args: []string{"--get-state", "--pid", strconv.Itoa(os.Getpid())}, code: exitFailed, said: "uses no GPU"},
		"no state to be had":             {file: []string{"fail", "state 304"}, args: []string{"--get-state", "--pid", whole}, code: exitRefused, said: "CAP_SYS_PTRACE"},
		"too much, as is known":          {args: []string{"--action", "checkpoint", "--pid", whole, "--held-mib", "1000000000"}, code: exitRefused, said: "holds 1000000000 MiB of GPU memory, which would go to main memory. "},
		"too much on an unknown GPU":     {file: []string{"gpus", huge}, args: []string{"--action", "checkpoint", "--pid", other}, code: exitRefused, said: "holds up to 1000000016 MiB"},
		"too much on all GPUs":           {file: []string{"gpus", huge}, args: []string{"--action", "checkpoint", "--pid", unnamed}, code: exitRefused, said: "holds up to 1000000016 MiB"},
		"too much only on another GPU":   {file: []string{"gpus", huge}, args: []string{"--action", "checkpoint", "--pid", whole}, code: exitFailed, said: "not in the state"}, // as it was not locked
		"a step of no kind":              {args: []string{"--action", "toggle", "--pid", whole}, code: exitUsage, said: "expected one of"},
	} {
		m.T = t
		t.Run(name, func(t *testing.T) {
			if c.lib != "" {
				t.Setenv("LD_LIBRARY_PATH", c.lib)
			}
			if c.file != nil {
				old, _ := os.ReadFile(filepath.Join(m.dir, c.file[0]))
				m.write(c.file[0], c.file[1])
				defer func() {
					m.write(c.file[0], string(old))
					if old == nil {
						os.Remove(filepath.Join(m.dir, c.file[0])) //nolint:errcheck // it is there
					}
				}()
			}
			code, said := m.run(c.args...)
			if code != c.code || !strings.Contains(said, c.said) {
				t.Errorf("got exit %d and %q, want %d and %q", code, said, c.code, c.said)
			}
		})
	}
	calls, err := os.ReadFile(filepath.Join(m.dir, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(calls)) {
		if line != "init\n" && line != "checkpoint "+whole+"\n" {
			t.Errorf("a step was tried although it was refused: %q", line)
		}
	}
}

// member is a task that runs two programs which use GPUs below a shell, which does not.
type member struct {
	*machine
	r    *process.Runner
	id   runner.ID
	pids []int
}

func newMember(t *testing.T, spec runner.Spec) *member {
	m := &member{machine: newMachine(t), id: runner.ID{Task: 1, Epoch: 1}}
	var err error
	m.r, err = process.New(t.TempDir(), process.Options{ShimCommand: []string{m.exe, "__shim"}, Checkpoint: []string{m.exe, "__checkpoint"}})
	if err != nil {
		t.Fatal(err)
	}
	spec.ID, spec.Members, spec.Dir = m.id, 1, t.TempDir()
	spec.Command = []string{"sh", "-c", "sleep 1000 & echo $! > a; sleep 1000 & echo $! > b; wait"}
	if err := m.r.Start(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		m.r.Stop(ctx, m.id, 0, "") //nolint:errcheck // the test is over
		m.r.Wait(ctx, m.id)        //nolint:errcheck // the test is over
	})
	for _, name := range []string{"a", "b"} {
		pid := 0
		for pid == 0 || m.comm(pid) != "sleep" { // until the shell has written it, and the program is there
			if t.Context().Err() != nil {
				t.Fatal("the programs of the member did not start")
			}
			b, _ := os.ReadFile(filepath.Join(spec.Dir, name))
			pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
			time.Sleep(time.Millisecond)
		}
		m.pids = append(m.pids, pid)
	}
	return m
}

func (m *member) comm(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSpace(string(b))
}

// are wants the states of the programs to the driver, and whether the system has stopped them.
func (m *member) are(stopped bool, states ...string) {
	m.Helper()
	m.fails("")
	for i, pid := range m.pids {
		if _, said := m.run("--get-state", "--pid", strconv.Itoa(pid)); said != states[i] {
			m.Errorf("program %c is %q to the driver, want %q", 'a'+i, said, states[i])
		}
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			m.Fatal(err)
		}
		if is := strings.Contains(string(b), ") T "); is != stopped {
			m.Errorf("program %c: stopped is %v, want %v", 'a'+i, is, stopped)
		}
	}
}

// TestParkAndWake: the steps of a member of two programs, in order, and back onto another GPU.
func TestParkAndWake(t *testing.T) {
	m := newMember(t, runner.Spec{Devices: []string{gpuA}})
	if err := m.r.Suspend(t.Context(), m.id); err != nil {
		t.Fatal(err)
	}
	m.called(m.pids, "lock a 30000", "lock b 30000", "init", "checkpoint a", "init", "checkpoint b")
	m.are(true, "checkpointed", "checkpointed")
	if err := m.r.Suspend(t.Context(), m.id); err != nil {
		t.Errorf("suspended again: %v", err)
	}
	m.called(m.pids)
	if err := m.r.Resume(t.Context(), m.id, []string{gpuB}); err != nil {
		t.Fatal(err)
	}
	moves := " " + gpuA + "=" + gpuB
	m.called(m.pids, "init", "restore a"+moves, "unlock a", "init", "restore b"+moves, "unlock b")
	m.are(false, "running", "running")
}

// TestUndo: whichever step fails, what was done before it is undone, and the member runs on as before.
func TestUndo(t *testing.T) {
	m := newMember(t, runner.Spec{Devices: []string{gpuA}})
	for name, c := range map[string]struct {
		fail   string
		said   string
		calls  []string
		states []string // all running when empty
	}{
		"the first lock":  {fail: "lock 600", said: "could not be locked within 30s", calls: []string{"lock a 30000"}},
		"the second lock": {fail: "lock:2 801", said: "the driver does not do it", calls: []string{"lock a 30000", "lock b 30000", "unlock a"}},
		"the first checkpoint": {fail: "checkpoint 801", said: "managed memory",
			calls: []string{"lock a 30000", "lock b 30000", "init", "checkpoint a", "unlock a", "unlock b"}},
		"the second checkpoint": {fail: "checkpoint:2 2", said: "memory ran out",
			calls: []string{"lock a 30000", "lock b 30000", "init", "checkpoint a", "init", "checkpoint b", "init", "restore a", "unlock a", "unlock b"}},
		"the library, before a checkpoint":     {fail: "init 999", said: "cuInit: CUDA error 999", calls: []string{"lock a 30000", "lock b 30000", "init", "unlock a", "unlock b"}},
		"the state of the second":              {fail: "state:3 304", said: "does not tell the state", calls: []string{"lock a 30000", "unlock a"}},
		"the program that asks for the state":  {fail: "state:3 0 crash", said: "SIGABRT", calls: []string{"lock a 30000", "unlock a"}},
		"the program that locks, after it has": {fail: "lock 0 crash", said: "SIGABRT", calls: []string{"lock a 30000", "unlock a"}},
		"the program that checkpoints, after it has": {fail: "checkpoint:2 0 crash", said: "SIGABRT",
			calls: []string{"lock a 30000", "lock b 30000", "init", "checkpoint a", "init", "checkpoint b", "init", "restore a", "unlock a", "init", "restore b", "unlock b"}},
		"the undoing too": {fail: "checkpoint:2 2\nrestore 2", said: "stays locked and may be unusable",
			calls:  []string{"lock a 30000", "lock b 30000", "init", "checkpoint a", "init", "checkpoint b", "init", "restore a", "unlock b"},
			states: []string{"checkpointed", "running"}},
		"a checkpoint that breaks a process": {fail: "checkpoint 801 failed", said: "it cannot be used any more and must be ended",
			calls: []string{"lock a 30000", "lock b 30000", "init", "checkpoint a", "unlock b"}, states: []string{"failed", "running"}},
	} {
		m.T = t
		t.Run(name, func(t *testing.T) {
			m.T = t
			for _, pid := range m.pids {
				os.Remove(filepath.Join(m.dir, fmt.Sprintf("state-%d", pid))) //nolint:errcheck // as new
			}
			m.fails(c.fail)
			if err := m.r.Suspend(t.Context(), m.id); err == nil || !strings.Contains(err.Error(), c.said) || !strings.Contains(err.Error(), "was not suspended") {
				t.Errorf("got %v, want an error with %q", err, c.said)
			}
			m.called(m.pids, c.calls...)
			if c.states == nil {
				c.states = []string{"running", "running"}
			}
			m.are(false, c.states...)
		})
	}
}

// TestBroken: a member that cannot be woken says that it may be unusable, and stays locked; one that is broken is not
// parked.
func TestBroken(t *testing.T) {
	m := newMember(t, runner.Spec{Devices: []string{gpuA}})
	if err := m.r.Suspend(t.Context(), m.id); err != nil {
		t.Fatal(err)
	}
	m.called(m.pids, "lock a 30000", "lock b 30000", "init", "checkpoint a", "init", "checkpoint b")
	m.fails("restore:1 2")
	err := m.r.Resume(t.Context(), m.id, []string{gpuA})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d stays locked and may be unusable", m.pids[0])) || !strings.Contains(err.Error(), "memory ran out") {
		t.Errorf("a restore that fails: got %v", err)
	}
	m.called(m.pids, "init", "restore a", "init", "restore b", "unlock b")
	m.are(false, "checkpointed", "running")
	m.write(fmt.Sprintf("state-%d", m.pids[0]), "3")
	for name, err := range map[string]error{"suspend": m.r.Suspend(t.Context(), m.id), "resume": m.r.Resume(t.Context(), m.id, []string{gpuA})} {
		if err == nil || !strings.Contains(err.Error(), "is failed to the GPU driver") {
			t.Errorf("%s of a broken member: got %v", name, err)
		}
	}
}

// TestLeftLocked: a server that was killed between a lock and a checkpoint left the member locked. Told again to
// suspend it, the next one goes on; told to resume it, it unlocks.
func TestLeftLocked(t *testing.T) {
	m := newMember(t, runner.Spec{Devices: []string{gpuA}})
	left := func() { m.run("--action", "lock", "--pid", strconv.Itoa(m.pids[0]), "--timeout", "7") }
	left()
	if err := m.r.Resume(t.Context(), m.id, []string{gpuA}); err != nil {
		t.Error(err)
	}
	m.called(m.pids, "lock a 7", "unlock a")
	left()
	if err := m.r.Suspend(t.Context(), m.id); err != nil {
		t.Error(err)
	}
	m.called(m.pids, "lock a 7", "lock b 30000", "init", "checkpoint a", "init", "checkpoint b")
	m.are(true, "checkpointed", "checkpointed")
}

// TestParts: a member with parts of GPUs is refused before anything is done to it, and one that the server cannot
// checkpoint at all.
func TestParts(t *testing.T) {
	for name, c := range map[string]struct {
		spec runner.Spec
		lib  string
		said string
	}{
		"MIG":       {spec: runner.Spec{Devices: []string{"MIG-1"}, Slices: "1g.10gb at 0 of GPU 0", Parts: true}, said: "it has the MIG instance MIG-1, and"},
		"a share":   {spec: runner.Spec{Devices: []string{gpuA}, Slices: "50% and 20 GiB of GPU 0", Parts: true}, said: "it has 50% and 20 GiB of GPU 0, and"},
		"no driver": {spec: runner.Spec{Devices: []string{gpuA}}, lib: t.TempDir(), said: "cannot be loaded"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMember(t, c.spec)
			lib := os.Getenv("LD_LIBRARY_PATH")
			if c.lib != "" {
				t.Setenv("LD_LIBRARY_PATH", c.lib)
			}
			if err := m.r.Suspend(t.Context(), m.id); err == nil || !strings.Contains(err.Error(), c.said) || !strings.Contains(err.Error(), "was not suspended") {
				t.Errorf("got %v, want an error with %q", err, c.said)
			}
			t.Setenv("LD_LIBRARY_PATH", lib)
			m.called(m.pids)
			m.are(false, "running", "running")
		})
	}
}
