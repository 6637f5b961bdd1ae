package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpupool/gpupool/internal/runner"
	"github.com/gpupool/gpupool/internal/secrets"
)

// folder is what is kept of one member, and the only thing that the runner and the
// shim share. Every file is written whole or not at all.
//
//	spec.json   what to run; written before the shim is launched; gone once forgotten
//	lock        held (flock) by the shim as long as it lives; holds its pid
//	started     made by whoever decides that the member runs or never will: only one can
//	state.json  the program's pid, once it runs
//	stop.json   that it shall end, by which signal, and when by force
//	exit.json   how it ended; written when nothing of it is left
//	log, log-*  its output, rotated
//	shim.err    what the shim had to say
//	init.pid    the pid of the init of its container
//	oom         made when a container was killed for its memory limit
type folder string

const (
	fileSpec    = "spec.json"
	fileLock    = "lock"
	fileStarted = "started"
	fileState   = "state.json"
	fileStop    = "stop.json"
	fileExit    = "exit.json"
	fileLog     = "log"
	fileErr     = "shim.err"
	fileInit    = "init.pid"
	fileOOM     = "oom"
	dirWork     = "work"
)

// launch is the content of spec.json.
type launch struct {
	Spec      runner.Spec `json:"spec"`
	Cgroup    string      `json:"cgroup,omitempty"` // folder of the member's control group; "" = none
	LogMaxMiB int         `json:"log_max_mib"`
	LogFiles  int         `json:"log_files"`

	Container *Container    `json:"container,omitempty"` // nil: it runs as a process
	User      *User         `json:"user,omitempty"`      // of the process; nil: the server's own
	Work      string        `json:"work,omitempty"`      // its working directory, unless it names one; "" = in this folder
	Secrets   secrets.Store `json:"secrets"`             // where they lie: never a value
	Dirs      []string      `json:"dirs,omitempty"`      // that the working directory must be in
}

// programState is the content of state.json.
type programState struct {
	PID     int       `json:"pid"`
	Since   uint64    `json:"since"` // the kernel's start time of the pid, against its reuse; 0 = not known
	Started time.Time `json:"started"`

	Container bool `json:"container,omitempty"` // PID is of what runs the container
}

// stopRequest is the content of stop.json.
type stopRequest struct {
	Kill   time.Time `json:"kill"`             // when what is left is killed
	Signal string    `json:"signal,omitempty"` // that tells it, "USR1"; "" = TERM
}

func folderOf(root string, id runner.ID) folder {
	return folder(filepath.Join(root, id.String()))
}

// parseID reads the name of a folder.
func parseID(name string) (id runner.ID, ok bool) {
	parts := strings.Split(name, ".")
	if len(parts) != 3 {
		return id, false
	}
	task, err1 := strconv.ParseUint(parts[0], 10, 64)
	epoch, err2 := strconv.ParseUint(parts[1], 10, 32)
	member, err3 := strconv.Atoi(parts[2])
	id = runner.ID{Task: task, Epoch: uint32(epoch), Member: member}
	return id, err1 == nil && err2 == nil && err3 == nil && id.String() == name
}

func (f folder) path(name string) string { return filepath.Join(string(f), name) }

func (f folder) has(name string) bool {
	_, err := os.Lstat(f.path(name))
	return err == nil
}

// read decodes a file. It is false when there is none.
func (f folder) read(name string, v any) (bool, error) {
	b, err := os.ReadFile(f.path(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return false, fmt.Errorf("%s is damaged: %w", f.path(name), err)
	}
	return true, nil
}

// write puts a file in place, durably.
func (f folder) write(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(string(f), "."+name+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) //nolint:errcheck // renamed already when all went well
	if _, err = tmp.Write(b); err == nil {
		err = tmp.Sync()
	}
	if e := tmp.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(tmp.Name(), f.path(name))
	}
	if err == nil {
		err = f.sync()
	}
	return err
}

// sync makes the names in the folder durable.
func (f folder) sync() error {
	d, err := os.Open(string(f))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// claim decides, once for ever, that the caller and nobody else says whether the
// member runs. It is false when that was decided before.
func (f folder) claim() (bool, error) {
	c, err := os.OpenFile(f.path(fileStarted), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return false, nil
	case err != nil:
		return false, err
	}
	err = c.Sync()
	if e := c.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = f.sync()
	}
	return err == nil, err
}

// lock takes the member's lock without waiting; nil when another process has it.
func (f folder) lock() (*os.File, error) {
	l, err := os.OpenFile(f.path(fileLock), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(l.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		l.Close() //nolint:errcheck // not locked
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, nil //nolint:nilnil // nil is the answer: someone else has it
		}
		return nil, fmt.Errorf("lock %s: %w", f.path(fileLock), err)
	}
	return l, nil
}

// shimPID reads who holds the lock; 0 when it has not said yet.
func (f folder) shimPID() int {
	b, err := os.ReadFile(f.path(fileLock))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return pid
}
