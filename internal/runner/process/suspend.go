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
// With Options.Checkpoint, such as cuda-checkpoint, what each process holds of GPUs is
// moved to main memory first (actions lock and checkpoint, driver 555 and later; see
// NVIDIA/cuda-checkpoint). It was tested with a program that takes the same arguments, and
// not run against a GPU. Without it GPU memory stays where it is.
func (r *Runner) Suspend(ctx context.Context, id runner.ID) error {
	f, shim, err := r.runs(id)
	if err != nil {
		return err
	}
	held, err := r.checkpoint(ctx, shim)
	if err != nil {
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
				return errors.Join(fmt.Errorf("member %s is being ended", id), r.restore(context.WithoutCancel(ctx), held, nil))
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
	return errors.Join(fmt.Errorf("member %s was not suspended: some of its processes do not stop", id), err, r.restore(context.WithoutCancel(ctx), held, nil))
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
	return r.restore(ctx, r.checkpointed(ctx, shim), devices)
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

// checkpoint moves what the processes below a shim hold of GPUs to main memory. On an
// error it moves back what it had moved.
func (r *Runner) checkpoint(ctx context.Context, shim int) (held []int, err error) {
	if len(r.o.Checkpoint) == 0 {
		return nil, nil
	}
	for _, pid := range descendants(shim) {
		state, stateErr := r.stateOf(ctx, pid)
		if stateErr != nil {
			return nil, errors.Join(stateErr, r.restore(context.WithoutCancel(ctx), held, nil))
		}
		switch state {
		case "running":
		case "checkpointed":
			held = append(held, pid)
			continue
		default: // not a process that uses a GPU
			continue
		}
		if err = r.gpu(ctx, pid, "lock"); err == nil {
			if err = r.gpu(ctx, pid, "checkpoint"); err == nil {
				held = append(held, pid)
				continue
			}
			err = errors.Join(err, r.gpu(context.WithoutCancel(ctx), pid, "unlock"))
		}
		return nil, errors.Join(err, r.restore(context.WithoutCancel(ctx), held, nil))
	}
	return held, nil
}

// checkpointed lists the processes below a shim whose GPU memory is in main memory.
func (r *Runner) checkpointed(ctx context.Context, shim int) (out []int) {
	if len(r.o.Checkpoint) == 0 {
		return nil
	}
	for _, pid := range descendants(shim) {
		if s, _ := r.stateOf(ctx, pid); s == "checkpointed" || s == "locked" {
			out = append(out, pid)
		}
	}
	return out
}

// restore moves GPU memory back, onto the devices given where the program had others
// (driver 580 and later).
func (r *Runner) restore(ctx context.Context, pids []int, devices []string) (err error) {
	for _, pid := range pids {
		if state, _ := r.stateOf(ctx, pid); state == "checkpointed" {
			args := []string{}
			if was := visible(pid); len(was) == len(devices) && !slices.Equal(was, devices) {
				pairs := make([]string, len(was))
				for i := range was {
					pairs[i] = was[i] + "=" + devices[i]
				}
				args = append(args, "--device-map", strings.Join(pairs, ","))
			}
			err = errors.Join(err, r.gpu(ctx, pid, "restore", args...))
		}
		err = errors.Join(err, r.gpu(ctx, pid, "unlock"))
	}
	return err
}

func (r *Runner) gpu(ctx context.Context, pid int, action string, more ...string) error {
	_, err := r.ask(ctx, append([]string{"--action", action, "--pid", strconv.Itoa(pid)}, more...)...)
	return err
}

// stateOf is what the checkpoint command says of a process; "" when it exits with an
// error, as it does of one that uses no GPU. That it cannot be run at all is another error.
func (r *Runner) stateOf(ctx context.Context, pid int) (string, error) {
	out, err := r.ask(ctx, "--get-state", "--pid", strconv.Itoa(pid))
	if _, said := errors.AsType[*exec.ExitError](err); said && ctx.Err() == nil {
		return "", nil
	}
	return out, err
}

func (r *Runner) ask(ctx context.Context, args ...string) (string, error) {
	c := r.o.Checkpoint
	cmd := exec.CommandContext(ctx, c[0], append(slices.Clone(c[1:]), args...)...)
	out, err := cmd.CombinedOutput()
	said := strings.TrimSpace(string(bytes.ToValidUTF8(out, []byte("?"))))
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", c[0], strings.Join(args, " "), err, said)
	}
	return said, nil
}
