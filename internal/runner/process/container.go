package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpupool/gpupool/internal/runner"
	"github.com/gpupool/gpupool/internal/runner/cdi"
)

// Container is a member that runs in a container. Another program, such as podman run,
// makes the container and stays in the foreground until it has ended; the shim stands above
// that as it does above a process. It finds the processes inside by their parents, so the
// container must be made by that program itself and not by a daemon, and an init inside
// must be their first.
type Container struct {
	Refused string   `json:"refused,omitempty"` // why it may not run: it ends at once, and its log says so
	Run     []string `json:"run"`               // writes the pid of the container's init to PIDFile before the program begins
	PIDFile string   `json:"pid_file"`
	Remove  []string `json:"remove"`  // removes the container, running or not; none is no error
	Killed  []string `json:"killed"`  // prints true when it was killed for its memory limit
	CDI     string   `json:"cdi"`     // the file that Devices is written to while the container is there
	Devices cdi.Spec `json:"devices"` // its one device is told the environment, too
	Home    string   `json:"home"`    // HOME, unless the task says another
}

// removeWait bounds the removal of a container.
const removeWait = time.Minute

// StartIn is Start for a member that runs in a container.
func (r *Runner) StartIn(ctx context.Context, s runner.Spec, c Container) error {
	return r.begin(ctx, s, &c)
}

// PIDFile is where the pid of a container's init is to be written.
func (r *Runner) PIDFile(id runner.ID) string { return folderOf(r.root, id).path(fileInit) }

// containerEnv is what a program in a container sees beside its image's own variables.
func containerEnv(home string, s runner.Spec, secrets []string) []string {
	env := append(append([]string{"HOME=" + home}, s.Env...), secrets...)
	return lastOf(append(env, told(s)...))
}

// lastOf keeps the last of the entries with one name.
func lastOf(env []string) (out []string) {
	seen := map[string]bool{}
	for _, kv := range slices.Backward(env) {
		if name, _, _ := strings.Cut(kv, "="); !seen[name] {
			seen[name], out = true, append(out, kv)
		}
	}
	slices.Reverse(out)
	return out
}

// startContainer starts the program that runs the container.
func (s *shim) startContainer(out *os.File, _ *cgroup) (code int, err error) {
	c := s.l.Container
	if c.Refused != "" {
		return exitNotExecutable, errors.New(c.Refused)
	}
	values, err := s.l.Secrets.Env(s.l.Spec.Tenant, s.l.Spec.Secrets)
	if err != nil {
		return exitNotExecutable, err
	}
	os.Remove(c.PIDFile) //nolint:errcheck // none is there
	spec := c.Devices
	spec.Devices = slices.Clone(spec.Devices)
	spec.Devices[0].Edits.Env = append(slices.Clone(spec.Devices[0].Edits.Env), containerEnv(c.Home, s.l.Spec, values)...) // the file is for root only, and goes with the container
	if err := spec.Write(c.CDI); err != nil {
		return exitNotExecutable, err
	}
	cmd := exec.Command(c.Run[0], c.Run[1:]...) //nolint:noctx // it is what the server said; it outlives it
	cmd.Env = append(os.Environ(), markVariable+"="+string(s.f))
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = out, out, attributes(nil)
	cmd.Dir = string(s.f) // where conmon leaves word that the kernel killed for the memory limit: podman 4 does not look there
	if err := cmd.Start(); err != nil {
		return exitNotExecutable, fmt.Errorf("containers cannot be run: %w; install podman, or say in podman.command where it is", err)
	}
	s.pid = cmd.Process.Pid // reaped by watch, not by cmd
	return 0, nil
}

// init is the pid of the container's init; 0 before there is one and after its end. It is
// believed only while it is below the shim: a number may be another's by now.
func (s *shim) init() int {
	if pid := pidIn(s.l.Container.PIDFile); pid > 0 && slices.Contains(descendants(os.Getpid()), pid) {
		return pid
	}
	return 0
}

// signalContainer signals every process in the container but its init, which would pass
// it on to the first of them a second time. Its init is only killed, and with it the
// kernel kills all that is inside. It is false when the program has not begun yet and
// may do so any moment.
func (s *shim) signalContainer(sig syscall.Signal) bool {
	if pidIn(s.l.Container.PIDFile) == 0 { // it is being made: no program runs yet
		if sig != syscall.SIGKILL {
			sig = syscall.SIGTERM
		}
		s.signalRunner(sig)
		return true
	}
	init := s.init()
	switch {
	case init == 0 && sig != syscall.SIGKILL && !s.reaped && syscall.Kill(pidIn(s.l.Container.PIDFile), 0) == nil:
		return false // it is between the parents that it had and this one: nobody's child, for a moment
	case init == 0: // it has ended, and what ran it cleans up
		if sig == syscall.SIGKILL && !s.asked.Kill.IsZero() && time.Since(s.asked.Kill) > removeWait {
			s.signalRunner(sig)
		}
		return true
	case sig == syscall.SIGKILL:
		syscall.Kill(init, sig) //nolint:errcheck // gone already, then
		return true
	}
	inside := descendants(init)
	for _, pid := range inside {
		syscall.Kill(pid, sig) //nolint:errcheck // gone already, then
	}
	return len(inside) > 0
}

// signalRunner signals what runs the container.
func (s *shim) signalRunner(sig syscall.Signal) {
	if !s.reaped {
		syscall.Kill(s.pid, sig) //nolint:errcheck // gone already, then
	}
}

// endContainer removes the container, and sets right how it ended: what ran it says so in
// a shell's way only.
func (s *shim) endContainer(exit *runner.Exit, said string) {
	c := s.l.Container
	switch made := pidIn(c.PIDFile) != 0; {
	case !made && !s.asked.Kill.IsZero() && exit.Signal == "": // what makes it ends in its own way when it is told to
		*exit = runner.Exit{Code: 128 + int(syscall.SIGTERM), Signal: "SIGTERM"}
	case !made && exit.Code == exitNotExecutable && strings.Contains(said, "workdir "):
		fmt.Fprintf(s.log, "gpupool: the working directory %s is not there in the image: give another --dir\n", s.l.Spec.Dir)
	case made && exit.Signal != "":
		exit.Lost = "what ran its container was killed by " + exit.Signal
	case made:
		s.settleCode(exit, said)
	}
	if exit.OOM = s.f.has(fileOOM); !exit.OOM && exit.Code == 128+int(syscall.SIGKILL) {
		out, err := quick(c.Killed)
		exit.OOM = err == nil && strings.TrimSpace(out) == "true"
	}
	if out, err := quick(c.Remove); err != nil {
		fmt.Fprintf(os.Stderr, "the container cannot be removed: %s: %s\n", err, out)
	}
	os.Remove(c.CDI) //nolint:errcheck // Forget tries again
}

// settleCode reads an exit code as a shell gives it.
func (s *shim) settleCode(exit *runner.Exit, said string) {
	if n := exit.Code - 128; exit.Signal == "" && n > 0 && n < 32 {
		exit.Signal = unix.SignalName(syscall.Signal(n))
	}
	// catatonit, the init that podman puts into containers, exits with 1 when there is no
	// program to execute.
	if exit.Code == 1 && strings.Contains(said, "ERROR (catatonit:") {
		switch {
		case strings.Contains(said, "failed to exec pid1: No such file"):
			exit.Code = exitNotFound
			fmt.Fprintf(s.log, "gpupool: %s: not found in the image\n", s.l.Spec.Command[0])
		case strings.Contains(said, "failed to exec pid1:"):
			exit.Code = exitNotExecutable
			fmt.Fprintf(s.log, "gpupool: %s: not executable in the image\n", s.l.Spec.Command[0])
		}
	}
}

// quick runs a command that the shim or the runner needs the end of.
func quick(command []string) (string, error) {
	if len(command) == 0 { // of a container that was refused
		return "", nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), removeWait)
	defer cancel()
	out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	return string(bytes.ToValidUTF8(out, []byte("?"))), err
}

// killContainer ends what a killed shim left of a container.
func (r *Runner) killContainer(f folder, c *Container) {
	// The program that runs it dies with the shim, so nothing is made any more.
	if out, err := quick(c.Remove); err != nil {
		r.o.Log.Warn("a container cannot be removed", "member", filepath.Base(string(f)), "err", err, "said", out)
	}
	os.Remove(c.CDI) //nolint:errcheck // Forget tries again
}

// containerPID is the pid of the program in a container: its init's first child.
func containerPID(pidFile string) (pid int, since time.Time, known bool) {
	info, err := os.Stat(pidFile)
	init := pidIn(pidFile)
	if err != nil || init == 0 {
		return 0, time.Time{}, false
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", init, init))
	if err == nil {
		if first, _, _ := strings.Cut(strings.TrimSpace(string(b)), " "); first != "" {
			pid, _ = strconv.Atoi(first)
		}
	}
	return pid, info.ModTime(), true
}

// pidIn reads a file that holds a pid; 0 when there is none.
func pidIn(path string) int {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return pid
}

// lastWords passes output on and keeps the end of it.
type lastWords struct {
	from io.Reader
	end  []byte
}

func (l *lastWords) Read(b []byte) (int, error) {
	n, err := l.from.Read(b)
	l.end = append(l.end, b[max(0, n-lastWordsKept):n]...)
	l.end = l.end[max(0, len(l.end)-lastWordsKept):]
	return n, err
}

const lastWordsKept = 512
