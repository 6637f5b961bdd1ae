// Package checkpoint moves what a process holds of GPUs to main memory and back, by the checkpoint calls of NVIDIA's
// driver library (libcuda.so.1, driver 570 and later).
//
// It is a program more than a library: Main runs in a process of its own (gpupool __checkpoint) and takes the arguments
// of NVIDIA's cuda-checkpoint, so that a fault of the driver library ends one command and never the server. One run is
// one step for one process; the order of steps, and their undoing, is the caller's business (package runner/process).
// A run costs loading the library, and for checkpoint and restore the copying of the GPU memory. Nothing grows with the
// cluster.
//
// It was tested against a library that keeps the driver's rules (testdata/cuda), and never run on a GPU.
package checkpoint

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
)

// What Main returns beside 0.
const (
	exitFailed  = 1  // the step failed; of --get-state: the process uses no GPU
	exitUsage   = 2  // the arguments are not understood
	exitRefused = 69 // EX_UNAVAILABLE of sysexits.h: it cannot be done here, or not to this process
)

// lockWait is how long a lock waits for the GPU work that was begun: an idle process has none.
const lockWait = 30 * time.Second

// refusal says why a step was not tried.
type refusal string

func (r refusal) Error() string { return string(r) }

func refuse(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

// Main does one step and returns the exit code. The steps are those of NVIDIA's cuda-checkpoint: --get-state --pid N,
// which prints the state, and --action lock|checkpoint|restore|unlock --pid N, with --timeout MS for a lock and
// --device-map OLD=NEW,... for a restore. Beside them --held-mib N says how much GPU memory the process holds, where the
// caller knows it, and --probe whether this machine can do it at all.
func Main(args []string, out, errs io.Writer) int {
	c, err := parse(args)
	if err != nil {
		fmt.Fprintf(errs, "%s; this command is gpupool's own, with the arguments of NVIDIA's cuda-checkpoint\n", err)
		return exitUsage
	}
	os.Unsetenv("CUDA_VISIBLE_DEVICES") //nolint:errcheck // cannot fail; GPUs that the server does not see would have no place in a map
	c.root = os.DirFS("/")
	said, err := c.run()
	if said != "" {
		fmt.Fprintln(out, said)
	}
	if err == nil {
		return 0
	}
	fmt.Fprintln(errs, err)
	if _, refused := errors.AsType[refusal](err); refused {
		return exitRefused
	}
	return exitFailed
}

// command is one step.
type command struct {
	step  string
	pid   int
	wait  time.Duration // of a lock
	pairs []pair        // of a restore
	held  int64         // MiB of GPU memory; under 0 = not known
	root  fs.FS         // of the file system
}

func parse(args []string) (c command, err error) {
	f := flag.NewFlagSet("__checkpoint", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	probe := f.Bool("probe", false, "")
	state := f.Bool("get-state", false, "")
	f.StringVar(&c.step, "action", "", "")
	f.IntVar(&c.pid, "pid", 0, "")
	ms := f.Uint("timeout", uint(lockWait.Milliseconds()), "")
	devices := f.String("device-map", "", "")
	f.Int64Var(&c.held, "held-mib", -1, "")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	steps := map[string]bool{"lock": true, "checkpoint": true, "restore": true, "unlock": true}
	switch {
	case f.NArg() > 0:
		return c, fmt.Errorf("%q is too much", f.Arg(0))
	case *probe && !*state && c.step == "":
		c.step = "probe"
		return c, nil
	case *state && !*probe && c.step == "":
		c.step = "get-state"
	case *probe, *state, !steps[c.step]:
		return c, errors.New("expected one of --probe, --get-state and --action lock, checkpoint, restore or unlock")
	}
	if c.pid <= 0 {
		return c, errors.New("expected --pid with the number of a process")
	}
	c.wait = time.Duration(*ms) * time.Millisecond
	if *devices != "" {
		c.pairs, err = parsePairs(*devices)
	}
	return c, err
}

// run does the step.
func (c command) run() (said string, err error) {
	lib, version, err := open()
	if err != nil {
		return "", err
	}
	switch c.step {
	case "probe":
		return fmt.Sprintf("GPU memory can be moved to main memory: the driver serves CUDA %s", version), nil
	case "get-state":
		return lib.stateOf(c.pid)
	case "lock":
		return "", failed(c, lib.lock(int32(c.pid), &lockArgs{timeoutMS: uint32(c.wait.Milliseconds())}))
	case "checkpoint":
		if err := c.fits(lib); err != nil {
			return "", err
		}
		return "", lib.after(c, lib.checkpoint(int32(c.pid), nil))
	case "restore":
		return "", c.restore(lib, version)
	default:
		return "", failed(c, lib.unlock(int32(c.pid), nil))
	}
}

// restore needs a library that is initialised, or the driver's persistence mode.
func (c command) restore(lib *library, v cudaVersion) error {
	if len(c.pairs) > 0 && v < versionMoves {
		return refuse("process %d cannot go on on other GPUs than it had: that takes driver 580 (CUDA %s), and this driver serves CUDA %s", c.pid, versionMoves, v)
	}
	if r := lib.start(0); r != success {
		return refuse("the GPUs cannot be reached: cuInit: %s", r)
	}
	var args *restoreArgs
	if len(c.pairs) > 0 {
		args = &restoreArgs{pairs: &c.pairs[0], count: uint32(len(c.pairs))}
	}
	return lib.after(c, lib.restore(int32(c.pid), args))
}

// fits refuses what the driver could not checkpoint, or main memory not take.
func (c command) fits(lib *library) error {
	devices, err := wholeGPUs(c.root, c.pid)
	if err != nil {
		return err
	}
	held, word := c.held, ""
	if held < 0 { // the driver does not tell it of another process: no more than its GPUs have
		if held, err = lib.memoryOf(devices); err != nil {
			return err
		}
		word = "up to "
	}
	room, why, err := room(c.root, c.pid)
	if err == nil && held > room {
		err = refuse("process %d holds %s%d MiB of GPU memory, which would go to main memory. %s: %d MiB too few", c.pid, word, held, why, held-room)
	}
	return err
}

// parsePairs reads OLD=NEW,OLD=NEW.
func parsePairs(text string) (out []pair, err error) {
	for p := range strings.SplitSeq(text, ",") {
		from, to, ok := strings.Cut(p, "=")
		if !ok {
			return nil, fmt.Errorf("expected OLD=NEW in --device-map, got %q", p)
		}
		var x pair
		if x.from, err = parseUUID(from); err == nil {
			x.to, err = parseUUID(to)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	return out, nil
}
