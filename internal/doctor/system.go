package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// System is the machine as the checks see it.
type System struct {
	FS     fs.FS  // its files, from the root; fs.ReadLinkFS where links can be read
	Path   string // folders of programs, as in $PATH
	Run    func(ctx context.Context, name string, args ...string) (string, error)
	Clock  func() (Clock, error)
	Disk   func(dir string) (Disk, error)
	Listen func(ctx context.Context, addr string) error
}

// Clock is what the kernel says of the machine's time.
type Clock struct {
	Synced   bool          `json:"synced"`
	MaxError time.Duration `json:"max_error"` // how far off it may be
	Step     time.Duration `json:"step"`      // how far the wall clock was set while it was watched
	Watched  time.Duration `json:"watched"`
}

// Disk is what is known of the disk below a folder.
type Disk struct {
	Exists bool          `json:"exists"` // the folder does; else it is the nearest one above that is looked at
	Denied bool          `json:"denied"` // this user cannot write there
	Open   bool          `json:"open"`   // other users can enter the folder
	Free   uint64        `json:"free"`   // bytes
	Kind   string        `json:"kind"`   // such as ext4, nfs; empty: unknown
	Sync   time.Duration `json:"sync"`   // a small write until it is on the disk, the median of several; 0: not tried
}

// runLimit bounds each command: one that hangs is a finding.
const runLimit = 10 * time.Second

// Machine is this machine.
func Machine() System {
	return System{
		FS: os.DirFS("/"), Path: os.Getenv("PATH") + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		Run: run, Clock: readClock, Disk: readDisk,
		Listen: func(ctx context.Context, addr string) error {
			l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
			if err == nil {
				err = l.Close()
			}
			return err
		},
	}
}

// run returns what a command wrote; its error holds what it complained of.
func run(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return "", fmt.Errorf("%s did not answer within %s", name, runLimit)
	}
	if ended, is := errors.AsType[*exec.ExitError](err); is {
		return string(out), fmt.Errorf("%s %s: %s", name, strings.Join(args, " "), last(string(ended.Stderr), err.Error()))
	}
	return string(out), err
}

// last is the last line that says something, or else what.
func last(s, otherwise string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	if l := strings.TrimSpace(lines[len(lines)-1]); l != "" {
		return l
	}
	return otherwise
}

// readDisk writes a small file into dir, if there is one, and removes it.
func readDisk(dir string) (Disk, error) {
	var d Disk
	at, err := filepath.Abs(dir)
	if err != nil {
		return d, err
	}
	if info, err := os.Stat(at); err == nil {
		if !info.IsDir() {
			return d, fmt.Errorf("%s is not a folder", at)
		}
		d.Exists, d.Open = true, info.Mode().Perm()&0o077 != 0
	}
	for {
		if _, err := os.Stat(at); err == nil || filepath.Dir(at) == at {
			break
		}
		at = filepath.Dir(at)
	}
	d.Denied = syscall.Access(at, 2) != nil // W_OK
	d.Free, d.Kind = room(at)
	if d.Exists && !d.Denied {
		d.Sync, err = syncTime(at)
	}
	return d, err
}

// syncTime is the median time of a 4 KiB write and fsync.
func syncTime(dir string) (time.Duration, error) {
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // nothing is left to do about it
	defer f.Close()
	var took []time.Duration
	block := make([]byte, 4096)
	for range 9 {
		start := time.Now()
		if _, err := f.Write(block); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// text reads a file, or "" where there is none.
func (e *exam) text(name string) string {
	b, err := fs.ReadFile(e.o.System.FS, name)
	if err != nil {
		return ""
	}
	return string(b)
}

// stat is nil where there is no such file.
func (e *exam) stat(name string) fs.FileInfo {
	info, err := fs.Stat(e.o.System.FS, strings.TrimPrefix(name, "/"))
	if err != nil {
		return nil
	}
	return info
}

// glob lists files in order; a bad pattern is a bug and matches nothing.
func (e *exam) glob(pattern string) []string {
	names, _ := fs.Glob(e.o.System.FS, pattern)
	return names
}

// which is the path of a program, or "".
func (e *exam) which(name string) string {
	for _, dir := range filepath.SplitList(e.o.System.Path) {
		p := path.Join(strings.TrimPrefix(dir, "/"), name)
		if info := e.stat(p); info != nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return "/" + p
		}
	}
	return ""
}
