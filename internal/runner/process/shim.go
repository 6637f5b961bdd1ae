package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/gpupool/gpupool/internal/runner"
	"github.com/gpupool/gpupool/internal/work"
)

// shimReady is what the shim says on descriptor 3 once Start may return: the member
// runs, or has ended, or another shim has it.
const shimReady = "ok"

// Exit codes of a shell for a program that cannot be executed.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// ShimMain is the shim: it runs the member whose folder is the one argument, stays
// above it until nothing of it is left, and returns the exit code of the shim itself.
func ShimMain(args []string) int {
	// The program is told to die with the thread that started it, so that thread
	// must live as long as the shim.
	runtime.LockOSThread()
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "this command is gpupool's own: it is run for each task, by gpupool serve")
		return 2
	}
	sealFiles() // what came from the server open is not for the program
	s := &shim{f: folder(args[0]), ready: os.NewFile(3, "ready")}
	if err := s.run(); err != nil {
		fmt.Fprintf(os.Stderr, "%s shim: %s\n", time.Now().UTC().Format(time.RFC3339), err)
		return 1
	}
	return 0
}

type shim struct {
	f     folder
	ready *os.File // nil once told
	l     launch
	log   *lumberjack.Logger
	pid   int            // of the program, and its process group
	asked stopRequest    // to end; its Kill is zero while nobody asked
	told  syscall.Signal // that it got last; 0 = none

	reaped bool // pid is no more
}

// tell lets Start return.
func (s *shim) tell() {
	if s.ready != nil {
		s.ready.WriteString(shimReady) //nolint:errcheck // whoever started us may be gone
		s.ready.Close()                //nolint:errcheck // as above
		s.ready = nil
	}
}

func (s *shim) run() error {
	signals := make(chan os.Signal, 8)
	// Heard and dropped, not ignored: what is ignored here would be ignored by the
	// program too, and some of these may be what tells it to save its work.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE, syscall.SIGUSR2)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGTERM)
	lock, err := s.f.lock()
	if err != nil {
		return err
	}
	if lock == nil { // another shim has the member
		s.tell()
		return nil
	}
	defer runtime.KeepAlive(lock)
	if err := lock.Truncate(0); err != nil {
		return err
	}
	if _, err := lock.WriteString(strconv.Itoa(os.Getpid())); err != nil {
		return err
	}
	known, err := s.f.read(fileSpec, &s.l)
	if err != nil || !known {
		return errors.Join(err, errors.New("there is no spec"))
	}
	mine, err := s.f.claim()
	if err != nil {
		return err
	}
	if !mine { // it ran before
		s.tell()
		return nil
	}
	exit := s.member(signals)
	exit.Ended = time.Now()
	err = s.f.write(fileExit, exit)
	s.tell()
	return err
}

// member runs the program and returns how it ended, when nothing of it is left.
func (s *shim) member(signals <-chan os.Signal) runner.Exit {
	s.log = &lumberjack.Logger{Filename: s.f.path(fileLog), MaxSize: s.l.LogMaxMiB, MaxBackups: s.l.LogFiles}
	defer s.log.Close()
	if s.stopAsked() {
		return runner.Exit{Code: 128 + int(syscall.SIGTERM), Signal: "SIGTERM"}
	}
	adopt()
	out, in, err := os.Pipe()
	if err != nil {
		return s.cannot(exitNotExecutable, err)
	}
	cg, err := makeCgroup(s.l)
	if err != nil {
		fmt.Fprintln(s.log, "gpupool: limits are not enforced:", err)
	}
	start := s.start
	if s.l.Container != nil {
		start = s.startContainer
	}
	code, err := start(in, cg)
	in.Close() //nolint:errcheck // the program has its own
	if err != nil {
		out.Close() //nolint:errcheck // nothing was written
		cg.end()
		return s.cannot(code, err)
	}
	copied, said := make(chan struct{}), &lastWords{from: out}
	go func() {
		defer close(copied)
		copyOut(s.log, said)
	}()
	if err := s.f.write(fileState, programState{PID: s.pid, Since: startTime(s.pid), Started: time.Now(), Container: s.l.Container != nil}); err != nil {
		fmt.Fprintln(os.Stderr, "state:", err) // it runs all the same; only its pid cannot be shown
	}
	s.tell()
	exit := s.watch(signals, cg)
	end := ""
	select { // nothing is left that could write; only what was handed to a stranger
	case <-copied:
		end = string(said.end)
	case <-time.After(2 * time.Second):
	}
	out.Close() //nolint:errcheck // only read from
	exit.OOM = cg.oom()
	if s.l.Container != nil {
		s.endContainer(&exit, end)
	}
	cg.end()
	return exit
}

// cannot says in the member's log why its program was not executed.
func (s *shim) cannot(code int, err error) runner.Exit {
	fmt.Fprintf(s.log, "gpupool: %s\n", err)
	return runner.Exit{Code: code}
}

// stopAsked reads whether the member shall end, and remembers how and until when.
func (s *shim) stopAsked() bool {
	var req stopRequest
	if known, err := s.f.read(fileStop, &req); err != nil || !known {
		return false
	}
	s.asked = req
	return true
}

// signalOf is the signal of a name without SIG; "" is TERM.
func signalOf(name string) (syscall.Signal, error) {
	if name == "" {
		return syscall.SIGTERM, nil
	}
	if !slices.Contains(work.Signals(), name) {
		return 0, fmt.Errorf("signal %q is not known: use one of %s", name, strings.Join(work.Signals(), ", "))
	}
	return unix.SignalNum("SIG" + name), nil
}

// start starts the program; on failure code is what a shell would exit with.
func (s *shim) start(out *os.File, cg *cgroup) (code int, err error) {
	spec := s.l.Spec
	dir := spec.Dir
	if dir == "" {
		if dir, err = s.makeWork(); err != nil {
			return exitNotExecutable, err
		}
	} else if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return exitNotExecutable, fmt.Errorf("the working directory %s is not there on this host: give another --dir", dir)
	} else if dir, err = within(dir, s.l.Dirs); err != nil {
		return exitNotExecutable, err
	}
	// Only here, so that a value is nowhere but in the program's environment.
	values, err := s.l.Secrets.Env(spec.Tenant, spec.Secrets)
	if err != nil {
		return exitNotExecutable, err
	}
	env := environment(string(s.f), spec, s.l.User.env(dir), values)
	path, code, err := lookUp(spec.Command[0], dir, env)
	if err != nil {
		return code, err
	}
	cmd := &exec.Cmd{Path: path, Args: spec.Command, Env: env, Dir: dir, Stdout: out, Stderr: out, SysProcAttr: attributes(cg)}
	s.l.User.become(cmd)
	if err := cmd.Start(); err != nil {
		return exitNotExecutable, fmt.Errorf("%s cannot be executed: %w", spec.Command[0], err)
	}
	s.pid = cmd.Process.Pid // reaped by watch, not by cmd
	return 0, nil
}

// watch reaps until nothing is left, and ends the member when asked to.
func (s *shim) watch(signals <-chan os.Signal, cg *cgroup) (exit runner.Exit) {
	type death struct {
		pid    int
		status unix.WaitStatus
	}
	deaths := make(chan death)
	go func() {
		defer close(deaths)
		for {
			var ws unix.WaitStatus
			pid, err := unix.Wait4(-1, &ws, 0, nil)
			switch {
			case errors.Is(err, unix.EINTR):
			case err != nil: // no child is left
				return
			case ws.Exited() || ws.Signaled():
				deaths <- death{pid, ws}
			}
		}
	}()
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	again := time.NewTimer(time.Hour)
	again.Stop()
	ended := false
	stop := func() {
		timer.Reset(time.Until(s.asked.Kill))
		by, err := signalOf(s.asked.Signal)
		if err != nil { // of a newer gpupool
			by = syscall.SIGTERM
		}
		if by == s.told { // asked again, as after a restart of the server
			return
		}
		if !s.signalAll(by) {
			again.Reset(10 * time.Millisecond)
			return
		}
		s.told = by
		s.signalAll(syscall.SIGCONT) // one that is suspended gets to use its grace
	}
	if s.stopAsked() { // before the pid was known to whoever asked
		stop()
	}
	for {
		select {
		case d, more := <-deaths:
			if !more {
				return exit
			}
			if d.pid == s.pid {
				exit, ended, s.reaped = exitOf(d.status), true, true
			}
			if ended { // the member is over; whatever it left is not
				cg.kill()
				s.signalAll(syscall.SIGKILL)
				timer.Reset(10 * time.Millisecond) // and what forked meanwhile
			}
		case sig := <-signals:
			switch asked := s.stopAsked(); {
			case sig == syscall.SIGTERM: // from outside gpupool, as when the machine goes down
				if s.asked.Signal = ""; !asked {
					s.asked.Kill = time.Now().Add(10 * time.Second)
				}
				stop()
			case asked:
				stop()
			}
		case <-again.C:
			stop()
		case <-timer.C:
			cg.kill()
			s.signalAll(syscall.SIGKILL)
			timer.Reset(50 * time.Millisecond)
		}
	}
}

// signalAll signals the program's group and every descendant outside it. It is false when
// there will be someone to signal soon.
func (s *shim) signalAll(sig syscall.Signal) bool {
	if s.l.Container != nil {
		return s.signalContainer(sig)
	}
	syscall.Kill(-s.pid, sig) //nolint:errcheck // the group may be empty
	for _, pid := range descendants(os.Getpid()) {
		if group, err := syscall.Getpgid(pid); err == nil && group != s.pid {
			syscall.Kill(pid, sig) //nolint:errcheck // gone already, then
		}
	}
	return true
}

func exitOf(ws unix.WaitStatus) runner.Exit {
	if ws.Signaled() {
		return runner.Exit{Code: 128 + int(ws.Signal()), Signal: unix.SignalName(ws.Signal())}
	}
	return runner.Exit{Code: ws.ExitStatus()}
}

// lookUp finds a program as a shell does, in the PATH that the program will have.
func lookUp(name, dir string, env []string) (path string, code int, err error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return name, exitNotFound, executable(name)
	}
	var list string
	for _, kv := range env { // the last one counts
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			list = v
		}
	}
	for _, d := range filepath.SplitList(list) {
		if p := filepath.Join(d, name); filepath.IsAbs(p) && executable(p) == nil {
			return p, 0, nil
		}
	}
	return "", exitNotFound, fmt.Errorf("%s: not found in PATH %s", name, list)
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fmt.Errorf("%s: not found", path)
	case info.IsDir() || info.Mode()&0o111 == 0:
		return fmt.Errorf("%s: not executable", path)
	}
	return nil
}
