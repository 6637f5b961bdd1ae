// Package audit keeps who did what, from where and with what result: JSON lines in a
// file that is only ever appended to, with rotation. Nothing secret is in an entry: no
// body, no query, no token.
//
// An entry is with the operating system before its call is answered, so that killing
// gpupool loses none; it is on the disk within a second, so that a machine that loses
// its power loses a second of them. A call costs one small write. Several servers may
// have one folder: each writes files of its own. Reading walks the files that may hold
// what is asked for.
package audit

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/gpupool/gpupool/internal/api/apitype"
)

// Entry is one call.
type Entry = apitype.AuditEntry

// Options of a Log. Zero values mean the defaults.
type Options struct {
	MaxMiB int // of a file, before the next is begun; default 64
	Files  int // kept beside the current one; default 30
	Log    *slog.Logger
}

const (
	fileName   = "audit.jsonl" // of the first server of a folder
	syncEvery  = time.Second
	maxWriters = 64 // servers of one folder
)

// Log is the files of a folder. It is safe for concurrent use.
type Log struct {
	dir  string
	log  *slog.Logger
	lock *os.File // says that the files that this server writes are taken

	mu     sync.Mutex
	out    *lumberjack.Logger
	unsafe bool // something was written since the last sync
	failed bool // the last write was
}

// Open opens the log in a folder, which is made if need be.
func Open(dir string, o Options) (*Log, error) {
	if o.MaxMiB == 0 {
		o.MaxMiB = 64
	}
	if o.Files == 0 {
		o.Files = 30
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("the folder of the audit log cannot be made: %w", err)
	}
	l := &Log{dir: dir, log: o.Log, out: &lumberjack.Logger{MaxSize: o.MaxMiB, MaxBackups: o.Files}}
	n, err := l.take()
	if err != nil {
		return nil, err
	}
	l.out.Filename = filepath.Join(dir, nameOf(n))
	f, err := os.OpenFile(l.out.Filename, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) // told here, not at the first call
	if err != nil {
		l.lock.Close() //nolint:errcheck // nothing was written
		return nil, fmt.Errorf("the audit log cannot be written: %w", err)
	}
	return l, f.Close()
}

// nameOf names the file that the n-th server of a folder writes now.
func nameOf(n int) string {
	if n == 1 {
		return fileName
	}
	return fmt.Sprintf("audit.%d.jsonl", n)
}

// take finds files that no other server writes, and keeps them until the process ends: two
// that turn over one file would write over each other.
func (l *Log) take() (n int, err error) {
	for n := 1; n <= maxWriters; n++ {
		f, err := os.OpenFile(filepath.Join(l.dir, "."+nameOf(n)+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return 0, fmt.Errorf("the audit log cannot be written: %w", err)
		}
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			l.lock = f
			return n, nil
		}
		f.Close() //nolint:errcheck // another's
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return 0, fmt.Errorf("the audit log cannot be locked: %w", err)
		}
	}
	return 0, fmt.Errorf("the audit log cannot be written: %d servers write into %s already", maxWriters, l.dir)
}

// Add appends an entry. A log that cannot be written is said so once, and does not hold
// up the pool: whoever fills its disk stops the journal too, and with it the server.
func (l *Log) Add(e Entry) {
	b, err := json.Marshal(e)
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		_, err = l.out.Write(append(b, '\n'))
		l.unsafe = true
	}
	if err != nil && !l.failed {
		l.log.Error("the audit log cannot be written: calls are answered and not in it", "err", err)
	}
	l.failed = err != nil
}

// Run brings what was written to the disk until ctx ends.
func (l *Log) Run(ctx context.Context) {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.sync()
		case <-ctx.Done():
			l.sync()
			return
		}
	}
}

// Close closes the file.
func (l *Log) Close() error {
	l.sync()
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.out.Close(), l.lock.Close())
}

// sync syncs the current file: any descriptor of it will do.
func (l *Log) sync() {
	l.mu.Lock()
	needed := l.unsafe
	l.unsafe = false
	l.mu.Unlock()
	if !needed {
		return
	}
	f, err := os.OpenFile(l.out.Filename, os.O_WRONLY, 0)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil {
		l.log.Warn("the audit log could not be brought to the disk", "err", err)
	}
}

// Query narrows what is read. Zero values are no bound.
type Query struct {
	Since, Until time.Time
	Tenant       string // of who called
	By           string // ID of who called
}

func (q Query) wants(e Entry) bool {
	return (q.Since.IsZero() || !e.At.Before(q.Since)) && (q.Until.IsZero() || e.At.Before(q.Until)) &&
		(q.Tenant == "" || q.Tenant == e.Tenant) && (q.By == "" || q.By == e.By)
}

// Each calls f with what was written, the oldest first, until f fails.
func (l *Log) Each(ctx context.Context, q Query, f func(Entry) error) error {
	var heads []*head
	for n := 1; n <= maxWriters; n++ {
		files, err := l.files(nameOf(n), q)
		if err != nil {
			return err
		}
		if len(files) == 0 {
			continue
		}
		h := &head{}
		var stop func()
		h.next, stop = iter.Pull2(entries(ctx, files, q))
		defer stop() //nolint:gocritic // all are read side by side, to the end
		heads = append(heads, h)
		h.step()
	}
	for {
		var first *head // whose entry is the oldest
		for _, h := range heads {
			if h.more && (first == nil || h.err != nil || h.e.At.Before(first.e.At)) {
				first = h
			}
		}
		if first == nil {
			return ctx.Err()
		}
		if first.err != nil {
			return first.err
		}
		if err := f(first.e); err != nil {
			return err
		}
		first.step()
	}
}

// head is the next entry of what one server wrote.
type head struct {
	next func() (Entry, error, bool)
	e    Entry
	err  error
	more bool
}

func (h *head) step() { h.e, h.err, h.more = h.next() }

// files are those of one server that may hold what is asked for, the oldest first: one that
// was written last before that does not.
func (l *Log) files(name string, q Query) ([]string, error) {
	aside, err := filepath.Glob(filepath.Join(l.dir, strings.TrimSuffix(name, ".jsonl")+"-*.jsonl"))
	if err != nil {
		return nil, err
	}
	slices.Sort(aside) // by the time at which they were put aside
	return slices.DeleteFunc(append(aside, filepath.Join(l.dir, name)), func(name string) bool {
		info, err := os.Stat(name)
		return err != nil || info.ModTime().Add(time.Second).Before(q.Since)
	}), nil
}

// entries reads files, one after the other. It ends with the first error.
func entries(ctx context.Context, files []string, q Query) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for _, name := range files {
			if more, err := eachOf(ctx, name, q, yield); err != nil {
				yield(Entry{}, err)
				return
			} else if !more {
				return
			}
		}
	}
}

// eachOf reads one file. more is false when nobody wants more.
func eachOf(ctx context.Context, name string, q Query, yield func(Entry, error) bool) (more bool, err error) {
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) { // removed meanwhile, as the oldest are
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("the audit log cannot be read: %w", err)
	}
	defer file.Close()
	r := bufio.NewReader(file)
	for ctx.Err() == nil {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) { // a line without an end is being written, or was cut by a crash
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("the audit log cannot be read: %w", err)
		}
		var e Entry
		if json.Unmarshal(line, &e) != nil || !q.wants(e) { // torn by a crash: the next line is whole
			continue
		}
		if !yield(e, nil) {
			return false, nil
		}
	}
	return false, nil
}
