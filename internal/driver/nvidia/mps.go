package nvidia

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/work"
)

// MPS says how shares of a GPU are kept apart.
type MPS struct {
	Off     bool   // time slices, even where MPS could be used
	Program string // default nvidia-cuda-mps-control, where it is in PATH
	Dir     string // of pipes and logs; default the driver's folder. Other users' programs must be able to enter it
}

// daemons are the MPS control daemons, one for each GPU with shares. They outlive this
// process, as the programs do that use them.
type daemons struct {
	program string // "" = there is none: time slices
	dir     string
	log     *slog.Logger

	mu      sync.Mutex
	running map[string]daemon // by GPU
}

// daemon is a process that was started, in daemon.json.
type daemon struct {
	GPU     string `json:"gpu"`
	PID     int    `json:"pid"`
	Started uint64 `json:"started"` // ticks since the machine was: a number is used again
}

func (p daemon) alive() bool { return p.PID > 0 && started(p.PID) == p.Started && p.Started > 0 }

// socketMax is what the name of a Unix socket may be long.
const socketMax = 107

// openMPS finds the program, and the daemons that an earlier run started.
func openMPS(o MPS, dir string, log *slog.Logger) (*daemons, error) {
	if o.Dir == "" {
		o.Dir = dir
	}
	m := &daemons{dir: o.Dir, log: log, running: map[string]daemon{}}
	if !o.Off {
		if o.Program == "" {
			o.Program = "nvidia-cuda-mps-control"
		}
		path, err := exec.LookPath(o.Program)
		if err != nil {
			log.Info("shares of a GPU take turns (time slices): nothing caps their memory", "why", err)
		} else {
			m.program = path
		}
	}
	names, err := filepath.Glob(filepath.Join(m.dir, "*", "daemon.json"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		var p daemon
		if err := getFile(name, &p); err != nil {
			log.Warn("what is known of an MPS daemon is not readable, it is started anew when needed", "err", err)
			continue
		}
		if p.alive() {
			m.running[p.GPU] = p
		}
	}
	return m, nil
}

func (m *daemons) on() bool { return m.program != "" }

// folder is where the daemon of a GPU has its pipe and log.
func (m *daemons) folder(gpuID string) string {
	return filepath.Join(m.dir, strings.TrimPrefix(gpuID, "GPU-"))
}

func (m *daemons) pipe(gpuID string) string { return filepath.Join(m.folder(gpuID), "pipe") }

func (m *daemons) env(gpuID string) []string {
	return append(os.Environ(), "CUDA_VISIBLE_DEVICES="+gpuID, "CUDA_MPS_PIPE_DIRECTORY="+m.pipe(gpuID), "CUDA_MPS_LOG_DIRECTORY="+filepath.Join(m.folder(gpuID), "log"))
}

// serves tells whether a process is an MPS server: not a program that uses a GPU, but
// what programs use it through.
func (m *daemons) serves(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	return err == nil && strings.HasPrefix(string(b), "nvidia-cuda-mps")
}

func (m *daemons) known(gpuID string) daemon {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running[gpuID]
}

func (m *daemons) set(p daemon) error {
	m.mu.Lock()
	m.running[p.GPU] = p
	m.mu.Unlock()
	return putFile(filepath.Join(m.folder(p.GPU), "daemon.json"), p)
}

// start lets the daemon of a GPU run. The caller holds the GPU's lock.
func (m *daemons) start(ctx context.Context, gpuID string) error {
	if !m.on() {
		return nil
	}
	old := m.known(gpuID)
	if old.alive() {
		return nil
	}
	if old.PID != 0 {
		m.log.Warn("the MPS daemon of a GPU ended, and with it the programs that used it; it is started again", "gpu", gpuID, "pid", old.PID)
	}
	if n := len(m.pipe(gpuID)) + len("/control_lock"); n > socketMax {
		return refuse(driver.ErrHardware, "the folder for MPS pipes, %s, has too long a name for a socket: give gpupool a shorter data folder", m.pipe(gpuID))
	}
	err := os.MkdirAll(m.pipe(gpuID), 0o711) //nolint:gosec // other users' programs must find the pipe; first, as what is above must be open to them too
	if err == nil {
		err = os.MkdirAll(filepath.Join(m.folder(gpuID), "log"), 0o700)
	}
	if err != nil {
		return fmt.Errorf("the folder of the MPS daemon cannot be made: %w", err)
	}
	if p, is := m.orphan(gpuID); is {
		return m.set(p)
	}
	out, err := os.OpenFile(filepath.Join(m.folder(gpuID), "log", "daemon.out"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	c := exec.Command(m.program, "-f") //nolint:noctx // it outlives the call, and this process
	c.Env, c.Stdout, c.Stderr, c.SysProcAttr = m.env(gpuID), out, out, &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return fmt.Errorf("the MPS daemon cannot be started: %w", err)
	}
	p := daemon{GPU: gpuID, PID: c.Process.Pid, Started: started(c.Process.Pid)}
	go c.Wait() //nolint:errcheck // only so that no dead process is left; whether it lives is asked of the kernel
	if err := m.set(p); err != nil {
		return err
	}
	return m.ready(ctx, p)
}

// orphan finds a daemon that was started just before a crash: it wrote its number into
// its pipe folder itself.
func (m *daemons) orphan(gpuID string) (daemon, bool) {
	b, err := os.ReadFile(filepath.Join(m.pipe(gpuID), "nvidia-cuda-mps-control.pid"))
	if err != nil {
		return daemon{}, false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || !commandIs(pid, filepath.Base(m.program)) {
		return daemon{}, false
	}
	p := daemon{GPU: gpuID, PID: pid, Started: started(pid)}
	return p, p.alive()
}

// commandIs tells whether a process runs a program of that name.
func commandIs(pid int, name string) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err == nil && strings.Contains(strings.ReplaceAll(string(b), "\x00", " "), name)
}

const (
	mpsWait = 10 * time.Second
	mpsLook = 20 * time.Millisecond
)

// ready waits until a daemon answers.
func (m *daemons) ready(ctx context.Context, p daemon) error {
	ctx, cancel := context.WithTimeout(ctx, mpsWait)
	defer cancel()
	for {
		err := m.say(ctx, p.GPU, "get_server_list")
		if err == nil {
			return nil
		}
		if !p.alive() || ctx.Err() != nil {
			return refuse(driver.ErrHardware, "the MPS daemon of GPU %s does not answer (%v): see %s", p.GPU, err, filepath.Join(m.folder(p.GPU), "log"))
		}
		pause(ctx, mpsLook)
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// say gives a command to the daemon of a GPU.
func (m *daemons) say(ctx context.Context, gpuID, command string) error {
	c := exec.CommandContext(ctx, m.program)
	c.Env, c.Stdin, c.WaitDelay = m.env(gpuID), strings.NewReader(command+"\n"), time.Second
	out, err := c.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// quit ends the daemon of a GPU that has no share any more.
func (m *daemons) quit(gpuID string) {
	p := m.known(gpuID)
	if p.PID == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), mpsWait)
	defer cancel()
	if p.alive() && m.on() {
		if err := m.say(ctx, gpuID, "quit"); err != nil {
			m.log.Warn("an MPS daemon does not quit and is killed", "gpu", gpuID, "err", err)
			syscall.Kill(p.PID, syscall.SIGKILL) //nolint:errcheck // looked at below
		}
	}
	for p.alive() && ctx.Err() == nil {
		pause(ctx, mpsLook)
	}
	if p.alive() {
		syscall.Kill(p.PID, syscall.SIGKILL) //nolint:errcheck // nothing is left to be done about it
	}
	m.mu.Lock()
	delete(m.running, gpuID)
	m.mu.Unlock()
	if err := os.RemoveAll(m.folder(gpuID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.log.Warn("the folder of an MPS daemon stays", "err", err)
	}
}

// access is what the programs of a part need to share a GPU by MPS. A program speaks
// to one daemon alone, so who has shares of several GPUs takes turns on them.
func (m *daemons) access(r *record) (env, mounts []string) {
	shares := r.shares()
	if !m.on() || len(shares) == 0 || len(r.on()) > 1 || len(shares) < len(r.Slices) {
		return nil, nil
	}
	milli, mem := 0, int64(0)
	for _, p := range shares {
		milli, mem = milli+p.Share.Milli, mem+p.Share.MemMiB
	}
	pipe := m.pipe(shares[0].GPUID)
	env = []string{"CUDA_MPS_PIPE_DIRECTORY=" + pipe, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=" + strconv.Itoa(max(milli/10, 1))}
	if mem > 0 { // the daemon sees one GPU alone, so to it that is device 0
		env = append(env, fmt.Sprintf("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=%dM", mem))
	}
	return env, []string{pipe}
}

// quitMPS ends the daemons of GPUs on which a part was the last to share.
func (d *Driver) quitMPS(r *record) {
	for _, id := range r.on() {
		if d.sharers(id, work.Owner{}) == 0 {
			d.mps.quit(id)
		}
	}
}
