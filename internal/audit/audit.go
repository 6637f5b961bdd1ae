// Package audit keeps who did what, from where and with what result: JSON lines in a
// file that is only ever appended to, with rotation. Nothing secret is in an entry: no
// body, no query, no token.
//
// An entry is with the operating system before its call is answered, so that killing
// gpupool loses none; it is on the disk within a second, so that a machine that loses
// its power loses a second of them. A call costs one small write. Reading walks the
// files that may hold what is asked for.
package audit

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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
	fileName  = "audit.jsonl"
	syncEvery = time.Second
)

// Log is the files of a folder. It is safe for concurrent use.
type Log struct {
	dir string
	log *slog.Logger

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
	l := &Log{dir: dir, log: o.Log, out: &lumberjack.Logger{Filename: filepath.Join(dir, fileName), MaxSize: o.MaxMiB, MaxBackups: o.Files}}
	f, err := os.OpenFile(l.out.Filename, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) // told here, not at the first call
	if err != nil {
		return nil, fmt.Errorf("the audit log cannot be written: %w", err)
	}
	return l, f.Close()
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
	return l.out.Close()
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
	files, err := l.files(q)
	if err != nil {
		return err
	}
	for _, name := range files {
		if err := eachOf(ctx, name, q, f); err != nil {
			return err
		}
	}
	return nil
}

// files are those that may hold what is asked for: one that was written last before that
// does not. The name of a file that was put aside says less, as another server of the same
// folder may have gone on in it for a while.
func (l *Log) files(q Query) ([]string, error) {
	stem, ext := strings.TrimSuffix(fileName, ".jsonl"), ".jsonl"
	aside, err := filepath.Glob(filepath.Join(l.dir, stem+"-*"+ext))
	if err != nil {
		return nil, err
	}
	slices.Sort(aside)
	aside = slices.DeleteFunc(aside, func(name string) bool {
		info, err := os.Stat(name)
		return err == nil && info.ModTime().Add(time.Second).Before(q.Since)
	})
	return append(aside, l.out.Filename), nil
}

func eachOf(ctx context.Context, name string, q Query, f func(Entry) error) error {
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) { // removed meanwhile, as the oldest are
		return nil
	}
	if err != nil {
		return fmt.Errorf("the audit log cannot be read: %w", err)
	}
	defer file.Close()
	r := bufio.NewReader(file)
	for ctx.Err() == nil {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) { // a line without an end is being written, or was cut by a crash
			return nil
		}
		if err != nil {
			return fmt.Errorf("the audit log cannot be read: %w", err)
		}
		var e Entry
		if json.Unmarshal(line, &e) != nil || !q.wants(e) { // torn by a crash: the next line is whole
			continue
		}
		if err := f(e); err != nil {
			return err
		}
	}
	return ctx.Err()
}
