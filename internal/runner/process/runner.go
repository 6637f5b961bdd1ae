// Package process runs members of tasks as processes of the operating system, with
// a small shim of the same binary above each. The shim outlives the server, reaps
// whatever the program leaves, and writes down the true end.
//
// Who decides what is settled by files that only one process can make (see folder),
// so that a member is started at most once and never orphaned whichever process is
// killed when. A member costs one idle shim, and each Wait a file look-up four
// times a second; List walks the members that are not forgotten.
//
// On Linux descendants are found wherever they hide; elsewhere (macOS) only those
// that stay in the program's process group are ended with it.
package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gpupool/gpupool/internal/runner"
	"github.com/gpupool/gpupool/internal/secrets"
)

// Options of a Runner. Zero values mean the defaults.
type Options struct {
	ShimCommand []string // runs ShimMain with the arguments that follow it; required
	Log         *slog.Logger
	LogMaxMiB   int             // size at which a log is rotated; default 16
	LogFiles    int             // rotated logs kept beside the current one; default 3
	KeepLogs    int             // forgotten members whose output is kept, the newest; default 10,000
	Checkpoint  []string        // command that moves the GPU memory of a process to main memory and back; see Suspend. Empty: none
	Secrets     secrets.Store   // where the values lie that programs name
	Dirs        []string        // working directories that processes may have, and what is below them; empty: any
	Users       map[string]User // whom the processes of each tenant run as; takes root
	DefaultUser *User           // those of all other tenants; nil: the server's own user
	Work        string          // where those who run as another user get their working directories; default /var/lib/gpupool/work
	Cgroup      string          // control group (v2) to make members' groups in; default /sys/fs/cgroup/gpupool where that is possible
}

// Runner implements runner.Runner and runner.LogReader over a folder.
type Runner struct {
	root string
	o    Options

	forgets atomic.Int64
}

// pruneEvery is how many members are forgotten between two looks for old logs.
const pruneEvery = 256

// New makes a runner over a folder, which is made if need be. Members that were
// started over the same folder before are known.
func New(root string, o Options) (*Runner, error) {
	if len(o.ShimCommand) == 0 {
		return nil, errors.New("the process runner needs the command of its shim")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.LogMaxMiB == 0 {
		o.LogMaxMiB = 16
	}
	if o.LogFiles == 0 {
		o.LogFiles = 3
	}
	if o.Work == "" {
		o.Work = defaultWork
	}
	if o.KeepLogs == 0 {
		o.KeepLogs = 10_000
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("the folder of running tasks cannot be made: %w", err)
	}
	if o.Cgroup == "" {
		var why string
		if o.Cgroup, why = defaultCgroup(); why != "" {
			o.Log.Warn("CPU and memory limits are counted but not enforced", "why", why)
		}
	}
	r := &Runner{root: root, o: o}
	r.prune()
	return r, nil
}

// Start implements runner.Runner.
func (r *Runner) Start(ctx context.Context, s runner.Spec) error {
	return r.begin(ctx, s, nil)
}

// begin starts a member, as a process or in a container.
func (r *Runner) begin(ctx context.Context, s runner.Spec, c *Container) error {
	f := folderOf(r.root, s.ID)
	if f.has(fileStarted) {
		return nil
	}
	if err := os.MkdirAll(string(f), 0o700); err != nil {
		return fmt.Errorf("the folder of member %s cannot be made: %w", s.ID, err)
	}
	l := launch{Spec: s, LogMaxMiB: r.o.LogMaxMiB, LogFiles: r.o.LogFiles, Container: c, Secrets: r.o.Secrets, Dirs: r.o.Dirs}
	if c == nil {
		if err := r.asUser(&l); err != nil {
			return err
		}
	}
	if c == nil && r.o.Cgroup != "" && (s.CPUMilli > 0 || s.MemoryMiB > 0) {
		l.Cgroup = memberCgroup(r.o.Cgroup, s.ID)
	}
	err := f.write(fileSpec, l)
	if err == nil {
		err = r.launch(ctx, f)
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	// Only who claims may say that it never runs.
	if mine, claimErr := f.claim(); !mine && claimErr == nil {
		return nil
	}
	os.Remove(f.path(fileSpec)) //nolint:errcheck // without it the member is not listed; the claim stands
	return fmt.Errorf("member %s could not be started: %w", s.ID, err)
}

// launch starts the shim and returns when it has taken over.
func (r *Runner) launch(ctx context.Context, f folder) error {
	ready, tell, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	out, err := os.OpenFile(f.path(fileErr), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		tell.Close() //nolint:errcheck // never used
		return err
	}
	cmd := exec.Command(r.o.ShimCommand[0], append(r.o.ShimCommand[1:len(r.o.ShimCommand):len(r.o.ShimCommand)], string(f))...) //nolint:noctx // the shim outlives whoever starts it
	cmd.Stdout, cmd.Stderr = out, out
	cmd.ExtraFiles = []*os.File{tell} // descriptor 3
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	tell.Close() //nolint:errcheck // the shim has its own
	out.Close()  //nolint:errcheck // the shim has its own
	if err != nil {
		return err
	}
	go cmd.Wait()                                                                //nolint:errcheck // reaps the shim; what it did stands in the folder
	stop := context.AfterFunc(ctx, func() { ready.SetReadDeadline(time.Now()) }) //nolint:errcheck // then the read waits for the shim
	defer stop()
	b, err := io.ReadAll(ready)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case strings.HasPrefix(string(b), shimReady):
		return nil
	case err != nil:
		return err
	}
	said, _ := os.ReadFile(f.path(fileErr))
	return fmt.Errorf("its shim failed: %s", strings.TrimSpace(string(said[max(0, len(said)-2000):])))
}

// Stop implements runner.Runner.
func (r *Runner) Stop(_ context.Context, id runner.ID, grace time.Duration, signal string) error {
	if _, err := signalOf(signal); err != nil {
		return fmt.Errorf("member %s could not be told to end: %w", id, err)
	}
	f := folderOf(r.root, id)
	if !f.has(fileSpec) || f.has(fileExit) {
		return nil
	}
	want := stopRequest{Kill: time.Now().Add(grace), Signal: signal}
	var before stopRequest
	if known, err := f.read(fileStop, &before); err == nil && known && before.Kill.Before(want.Kill) {
		want.Kill = before.Kill
	}
	if err := f.write(fileStop, want); err != nil {
		return fmt.Errorf("member %s could not be told to end: %w", id, err)
	}
	if settled, err := r.settle(f); err != nil || settled {
		return err
	}
	// The shim holds the lock. If it has not said its pid yet it looks at stop.json
	// after it has.
	if pid := f.shimPID(); pid > 0 {
		if err := syscall.Kill(pid, syscall.SIGUSR1); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("the shim of member %s could not be told: %w", id, err)
		}
	}
	return nil
}

// settle writes the end of a member whose shim is gone without having done so. It
// is false while the shim lives.
func (r *Runner) settle(f folder) (bool, error) {
	lock, err := f.lock()
	if err != nil || lock == nil {
		return false, err
	}
	defer lock.Close()
	if f.has(fileExit) {
		return true, nil
	}
	exit := runner.Exit{Code: 128 + int(syscall.SIGTERM), Signal: "SIGTERM", Ended: time.Now()} // ended before it began
	mine, err := f.claim()
	if err != nil {
		return false, err
	}
	if !mine {
		r.killLeft(f)
		exit = runner.Exit{Lost: "its shim was killed, and with it the program", Ended: time.Now()}
	}
	return true, f.write(fileExit, exit)
}

// killLeft ends what a killed shim left behind.
func (r *Runner) killLeft(f folder) {
	var l launch
	if known, err := f.read(fileSpec, &l); err == nil && known {
		if l.Container != nil {
			r.killContainer(f, l.Container)
		}
		if l.Cgroup != "" {
			endCgroup(l.Cgroup)
		}
	}
	for range 100 { // what forks while it is looked for is found in the next round
		left := marked(string(f))
		if len(left) == 0 {
			break
		}
		for _, pid := range left {
			syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck // gone already, then
		}
		time.Sleep(time.Millisecond)
	}
	var st programState
	if known, err := f.read(fileState, &st); err == nil && known && st.Since != 0 && startTime(st.PID) == st.Since {
		syscall.Kill(-st.PID, syscall.SIGKILL) //nolint:errcheck // gone already, then
	}
}

// status says where a member stands; ok is false for one that is not known.
func (r *Runner) status(id runner.ID) (st runner.Status, ok bool, err error) {
	f := folderOf(r.root, id)
	st = runner.Status{ID: id, State: runner.Starting}
	var p programState
	if known, err := f.read(fileState, &p); err == nil && known {
		st.State, st.PID, st.Started = runner.Running, p.PID, p.Started
		if p.Container {
			if st.PID, st.Started, known = containerPID(f.path(fileInit)); !known { // its image may have to be fetched first
				st.State = runner.Starting
			}
		}
	}
	for range 2 {
		var x runner.Exit
		if known, err := f.read(fileExit, &x); err != nil {
			return st, true, err
		} else if known {
			st.State, st.Exit, st.PID = runner.Exited, &x, 0
			return st, true, nil
		}
		if !f.has(fileSpec) {
			return st, false, nil
		}
		if !f.has(fileStarted) {
			return st, true, nil // its shim is on the way, or Start comes again
		}
		if settled, err := r.settle(f); err != nil || !settled {
			return st, true, err
		}
	}
	return st, true, fmt.Errorf("member %s ended and left no word", id)
}

// Wait implements runner.Runner.
func (r *Runner) Wait(ctx context.Context, id runner.ID) (runner.Status, error) {
	const closely = 8 // looks between two that ask whether the shim still lives
	pause := 5 * time.Millisecond
	timer := time.NewTimer(0)
	defer timer.Stop()
	f := folderOf(r.root, id)
	for look := 0; ; look++ {
		select {
		case <-ctx.Done():
			return runner.Status{ID: id}, ctx.Err()
		case <-timer.C:
		}
		if pause = min(pause*2, 250*time.Millisecond); look%closely != 0 && !f.has(fileExit) {
			timer.Reset(pause) // one look-up: this is what many members cost
			continue
		}
		st, known, err := r.status(id)
		switch {
		case err != nil:
			r.o.Log.Warn("cannot look at a member; trying again", "member", id.String(), "err", err)
		case !known:
			return runner.Status{ID: id, State: runner.Exited, Exit: &runner.Exit{Lost: "the runner does not know it", Ended: time.Now()}}, nil
		case st.State == runner.Exited:
			return st, nil
		}
		timer.Reset(pause)
	}
}

// List implements runner.Runner.
func (r *Runner) List(ctx context.Context) ([]runner.Status, error) {
	entries, err := os.ReadDir(r.root)
	if err != nil {
		return nil, fmt.Errorf("members cannot be listed: %w", err)
	}
	var out []runner.Status
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		id, ok := parseID(e.Name())
		if !ok {
			continue
		}
		st, known, err := r.status(id)
		if err != nil {
			r.o.Log.Warn("cannot look at a member", "member", id.String(), "err", err)
		}
		if known {
			out = append(out, st)
		}
	}
	return out, nil
}

// Forget implements runner.Runner. The claim and the logs stay, so that the member
// never runs again and its output can still be read.
func (r *Runner) Forget(_ context.Context, id runner.ID) error {
	f := folderOf(r.root, id)
	st, known, err := r.status(id)
	switch {
	case err != nil:
		return err
	case !known:
		return nil
	case st.State != runner.Exited:
		return fmt.Errorf("member %s is still %s: stop it first", id, st.State)
	}
	var l launch
	if had, err := f.read(fileSpec, &l); err == nil && had && l.Container != nil {
		os.Remove(l.Container.CDI) //nolint:errcheck // the shim removed it, if it could
	}
	for _, name := range []string{fileSpec, fileState, fileStop, fileLock, fileExit, fileInit, fileOOM} { // the spec first: without it nothing is known
		if err := os.Remove(f.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("member %s cannot be forgotten: %w", id, err)
		}
	}
	if info, err := os.Stat(f.path(fileErr)); err == nil && info.Size() == 0 {
		os.Remove(f.path(fileErr)) //nolint:errcheck // empty
	}
	for _, dir := range []string{f.path(dirWork), r.workOf(id)} {
		os.Remove(dir) //nolint:errcheck // stays when there is something in it
	}
	if r.forgets.Add(1)%pruneEvery == 0 {
		r.prune()
	}
	return nil
}

// prune removes what is kept of the oldest forgotten members, with the files that
// they left in a folder of their own. Their claims go too: an epoch is never used
// again, so nobody will ask to start them.
func (r *Runner) prune() {
	entries, err := os.ReadDir(r.root)
	if err != nil {
		return // whoever starts or lists next will be told
	}
	var old []runner.ID
	for _, e := range entries {
		if id, ok := parseID(e.Name()); ok && !folderOf(r.root, id).has(fileSpec) && folderOf(r.root, id).has(fileStarted) {
			old = append(old, id)
		}
	}
	slices.SortFunc(old, func(a, b runner.ID) int {
		return cmp.Or(cmp.Compare(a.Task, b.Task), cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Member, b.Member))
	})
	for _, id := range old[:max(0, len(old)-r.o.KeepLogs)] {
		if err := errors.Join(os.RemoveAll(string(folderOf(r.root, id))), os.RemoveAll(r.workOf(id))); err != nil {
			r.o.Log.Warn("old output cannot be removed", "member", id.String(), "err", err)
		}
	}
}
