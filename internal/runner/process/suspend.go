package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gpupool/gpupool/internal/runner"
)

// Suspend implements runner.Suspender: every process below the shim gets SIGSTOP, until
// none runs any more. That they are stopped is the kernel's knowledge and outlives a
// server; the shim goes on, reaps, and can end them.
//
// With Options.Checkpoint, what each process holds of GPUs is moved to main memory first:
// all are locked, then each is checkpointed. A step that fails is undone, and those before
// it. A member that has parts of GPUs is refused then, as drivers checkpoint whole GPUs
// only. Without Options.Checkpoint GPU memory stays where it is.
func (r *Runner) Suspend(ctx context.Context, id runner.ID) error {
	f, shim, err := r.runs(id)
	if err != nil {
		return err
	}
	if err = r.checkpoint(ctx, f, shim); err != nil {
		return fmt.Errorf("member %s was not suspended: %w", id, err)
	}
	clean := 0 // looks in a row that found nobody running: a process may have forked, and ended, between two
	for range 1000 {
		running := stopAll(shim)
		if clean++; running > 0 {
			clean = 0
		}
		if clean == 2 {
			if f.has(fileStop) { // asked to end meanwhile: it shall get to use its grace
				r.goOn(shim)
				return errors.Join(fmt.Errorf("member %s is being ended", id), r.restore(context.WithoutCancel(ctx), shim, nil))
			}
			if f.has(fileExit) || len(descendants(shim)) == 0 {
				return fmt.Errorf("no process of member %s was found that could be suspended: it has ended, or this system does not tell", id)
			}
			return nil
		}
		if err = ctx.Err(); err != nil {
			break
		}
		if running > 0 {
			time.Sleep(time.Millisecond) // a signal takes a moment
		}
	}
	r.goOn(shim)
	return errors.Join(fmt.Errorf("member %s was not suspended: some of its processes do not stop", id), err, r.restore(context.WithoutCancel(ctx), shim, nil))
}

// stopAll tells every process below a shim to stop and returns how many ran still. A
// process that waits for its child to execute a program (vfork: shells and Python start
// programs so) cannot stop before that has; so the child, if it was stopped first, goes on
// for a moment.
func stopAll(shim int) (running int) {
	all := descendants(shim)
	waits := map[string]bool{}
	for _, pid := range all {
		switch st := stat(pid); {
		case len(st) < 2 || slices.Contains([]string{"T", "t", "Z", "X"}, st[0]):
			continue
		case st[0] == "D":
			waits[strconv.Itoa(pid)] = true
		}
		running++
		syscall.Kill(pid, syscall.SIGSTOP) //nolint:errcheck // gone already, then
	}
	for _, pid := range all {
		if st := stat(pid); len(st) > 1 && st[0] == "T" && waits[st[1]] {
			syscall.Kill(pid, syscall.SIGCONT) //nolint:errcheck // gone already, then
		}
	}
	return running
}

// Resume implements runner.Suspender.
func (r *Runner) Resume(ctx context.Context, id runner.ID, devices []string) error {
	_, shim, err := r.runs(id)
	if err != nil {
		return err
	}
	r.goOn(shim)
	return r.restore(ctx, shim, devices)
}

// runs finds the process above all those of a member that runs: its shim, or the init of
// its container.
func (r *Runner) runs(id runner.ID) (folder, int, error) {
	f := folderOf(r.root, id)
	st, known, err := r.status(id)
	switch {
	case err != nil:
		return f, 0, err
	case !known:
		return f, 0, fmt.Errorf("member %s is not known", id)
	case st.State != runner.Running:
		return f, 0, fmt.Errorf("member %s is %s: only a running one can be suspended", id, st.State)
	}
	top := f.shimPID()
	if init := pidIn(f.path(fileInit)); init > 0 { // of a container: what runs that goes on
		top = init
	}
	if top <= 0 {
		return f, 0, fmt.Errorf("the shim of member %s has not said its pid", id)
	}
	return f, top, nil
}

// goOn lets every process below a shim run, the youngest first, so that no parent sees a
// child that is stopped.
func (r *Runner) goOn(shim int) {
	all := descendants(shim)
	slices.Reverse(all)
	for _, pid := range all {
		syscall.Kill(pid, syscall.SIGCONT) //nolint:errcheck // gone already, then
	}
}

// What the checkpoint command says of a process.
const (
	gpuNone         = "" // it uses no GPU
	gpuRunning      = "running"
	gpuLocked       = "locked" // its calls to the GPU wait
	gpuCheckpointed = "checkpointed"
)

// Exit codes of the checkpoint command that say nothing about a process.
const (
	exitDied    = 2  // of a Go program, such as gpupool's own command when the driver's library crashes in it
	exitRefused = 69 // it cannot work on this machine, or with this process (EX_UNAVAILABLE of sysexits.h)
)

// checkpoint moves what the processes below a shim hold of GPUs to main memory. All are
// locked before the first is moved, so that most of what can fail fails before a copy. On
// an error it moves back what it had moved.
func (r *Runner) checkpoint(ctx context.Context, f folder, shim int) error {
	if len(r.o.Checkpoint) == 0 {
		return nil
	}
	if err := wholeGPUs(f); err != nil {
		return err
	}
	locked, err := r.lock(ctx, shim)
	for i := 0; i < len(locked) && err == nil; i++ {
		err = r.gpu(ctx, locked[i], "checkpoint")
	}
	if err != nil {
		return errors.Join(err, r.restore(context.WithoutCancel(ctx), shim, nil))
	}
	return nil
}

// wholeGPUs refuses a member that was started on parts of GPUs.
func wholeGPUs(f folder) error {
	var l launch
	if known, err := f.read(fileSpec, &l); err != nil || !known {
		return errors.Join(errors.New("what it was started with cannot be read"), err)
	}
	part := slices.IndexFunc(l.Spec.Devices, func(d string) bool { return strings.HasPrefix(d, "MIG-") })
	switch {
	case part >= 0:
		return fmt.Errorf("it has the MIG instance %s, and GPU memory can be moved to main memory on whole GPUs only", l.Spec.Devices[part])
	case l.Spec.Parts:
		return fmt.Errorf("it has %s, and GPU memory can be moved to main memory on whole GPUs only", l.Spec.Slices)
	}
	return nil
}

// lock locks the processes below a shim that use a GPU, and lists those whose memory is
// still to be moved. One that is locked was left so by a server that was killed.
func (r *Runner) lock(ctx context.Context, shim int) (locked []int, err error) {
	for _, pid := range descendants(shim) {
		state, err := r.stateOf(ctx, pid)
		switch {
		case err != nil:
			return nil, err
		case state == gpuRunning:
			if err := r.gpu(ctx, pid, "lock"); err != nil {
				return nil, err
			}
			locked = append(locked, pid)
		case state == gpuLocked:
			locked = append(locked, pid)
		case state != gpuNone && state != gpuCheckpointed:
			return nil, unusable(pid, state)
		}
	}
	return locked, nil
}

func unusable(pid int, state string) error {
	return fmt.Errorf("process %d is %s to the GPU driver, not running, locked or checkpointed: it may be unusable, and would have to be ended", pid, state)
}

// restore moves back what processes below a shim have of GPU memory in main memory, onto
// the devices given where the program had others (driver 580 and later), and unlocks them.
// A process that fails to be restored stays locked: drivers may have broken it, and
// another try does not mend it (NVIDIA/cuda-checkpoint issue 44).
func (r *Runner) restore(ctx context.Context, shim int, devices []string) (err error) {
	if len(r.o.Checkpoint) == 0 {
		return nil
	}
	for _, pid := range descendants(shim) {
		state, stateErr := r.stateOf(ctx, pid)
		switch {
		case stateErr != nil:
			err = errors.Join(err, stateErr)
			continue
		case state == gpuNone, state == gpuRunning:
			continue
		case state == gpuCheckpointed:
			if e := r.gpu(ctx, pid, "restore", deviceMap(visible(pid), devices)...); e != nil {
				err = errors.Join(err, fmt.Errorf("process %d stays locked and may be unusable: %w", pid, e))
				continue
			}
		case state != gpuLocked:
			err = errors.Join(err, unusable(pid, state))
			continue
		}
		err = errors.Join(err, r.gpu(ctx, pid, "unlock"))
	}
	return err
}

// deviceMap is the argument that says which device stands in for which; none when all are
// the same.
func deviceMap(was, devices []string) []string {
	if len(was) != len(devices) || slices.Equal(was, devices) {
		return nil
	}
	pairs := make([]string, len(was))
	for i := range was {
		pairs[i] = was[i] + "=" + devices[i]
	}
	return []string{"--device-map", strings.Join(pairs, ",")}
}

func (r *Runner) gpu(ctx context.Context, pid int, action string, more ...string) error {
	_, err := r.ask(ctx, append([]string{"--action", action, "--pid", strconv.Itoa(pid)}, more...)...)
	return err
}

// stateOf is what the checkpoint command says of a process; gpuNone when it exits with an
// error, as it does of one that uses no GPU. That it cannot be run, dies or refuses is an
// error.
func (r *Runner) stateOf(ctx context.Context, pid int) (string, error) {
	out, err := r.ask(ctx, "--get-state", "--pid", strconv.Itoa(pid))
	if x, exited := errors.AsType[*exec.ExitError](err); exited && !slices.Contains([]int{-1, exitDied, exitRefused}, x.ExitCode()) {
		return gpuNone, nil
	}
	return out, err
}

func (r *Runner) ask(ctx context.Context, args ...string) (string, error) {
	c := r.o.Checkpoint
	cmd := exec.CommandContext(ctx, c[0], append(slices.Clone(c[1:]), args...)...)
	out, err := cmd.CombinedOutput()
	said := strings.TrimSpace(string(bytes.ToValidUTF8(out, []byte("?"))))
	if err != nil {
		said, _, _ = strings.Cut(said, "\n\n") // a program that died goes on with its stacks
		return "", fmt.Errorf("%s %s: %w: %s", c[0], strings.Join(args, " "), err, said)
	}
	return said, nil
}
