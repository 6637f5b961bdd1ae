// Package bolt is the journal in one file on this machine (bbolt), the default: no
// other service is needed. One process has the file open at a time.
//
// An Append is one transaction and one fsync however many records it carries; its
// cost grows with the logarithm of what is stored since the last snapshot. Every
// record and the snapshot carry a checksum, and what does not match it is refused
// with its place, never guessed around.
package bolt

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/gpupool/gpupool/internal/journal"
)

// Options tune a journal. Zero values mean the defaults.
type Options struct {
	LockTimeout time.Duration // how long to wait for another process to let go; default 2 s
	ReadOnly    bool          // look only; the file must exist
}

// formatVersion changes when an older gpupool could not read the file any more.
const formatVersion = 1

var (
	bucketMeta    = []byte("meta")
	bucketRecords = []byte("records")
	keyVersion    = []byte("version")
	keyLast       = []byte("last")         // of the newest record
	keySnapSeq    = []byte("snapshot_seq") // 0 = no snapshot
	keySnapshot   = []byte("snapshot")     // checksum and state
	castagnoli    = crc32.MakeTable(crc32.Castagnoli)
)

// Journal is an open file.
type Journal struct {
	path string
	db   *bbolt.DB

	mu     sync.Mutex
	closed bool
	broken error // a commit whose outcome is not known: nothing more is written
}

// Open opens or makes the journal at path. Its folder must exist.
func Open(path string, o Options) (j *Journal, err error) {
	if o.LockTimeout == 0 {
		o.LockTimeout = 2 * time.Second
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer guard(path, "open", &err)
	if err := precheck(path); err != nil {
		return nil, err
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout: o.LockTimeout, ReadOnly: o.ReadOnly, FreelistType: bbolt.FreelistMapType, PreLoadFreelist: !o.ReadOnly,
	})
	if err != nil {
		return nil, translate(path, "open", err)
	}
	j = &Journal{path: path, db: db}
	if err := j.prepare(o.ReadOnly); err != nil {
		db.Close() //nolint:errcheck // the first fault is the one to tell
		return nil, err
	}
	return j, nil
}

// prepare makes the buckets of a new file and checks the version of an old one.
func (j *Journal) prepare(readOnly bool) error {
	check := func(tx *bbolt.Tx) error {
		meta := tx.Bucket(bucketMeta)
		if meta == nil || tx.Bucket(bucketRecords) == nil {
			return j.corrupt("it holds no journal")
		}
		v := meta.Get(keyVersion)
		if len(v) != 8 || len(meta.Get(keyLast)) != 8 || len(meta.Get(keySnapSeq)) != 8 {
			return j.corrupt("its description is damaged")
		}
		if got := binary.BigEndian.Uint64(v); got > formatVersion {
			return &journal.Error{Code: journal.ErrVersion, Msg: fmt.Sprintf("journal %s has format %d and this gpupool reads up to %d: start the version that wrote it, or a newer one", j.path, got, formatVersion)}
		}
		return nil
	}
	if readOnly {
		return translate(j.path, "open", j.db.View(check))
	}
	return translate(j.path, "open", j.db.Update(func(tx *bbolt.Tx) error {
		if k, _ := tx.Cursor().First(); k != nil { // not new
			return check(tx)
		}
		meta, err := tx.CreateBucket(bucketMeta)
		if err != nil {
			return err
		}
		if _, err = tx.CreateBucket(bucketRecords); err != nil {
			return err
		}
		for key, v := range map[string]uint64{string(keyVersion): formatVersion, string(keyLast): 0, string(keySnapSeq): 0} {
			if err := meta.Put([]byte(key), number(v)); err != nil {
				return err
			}
		}
		return nil
	}))
}

// Append implements journal.Journal.
func (j *Journal) Append(ctx context.Context, records [][]byte) (last uint64, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer j.guard("append", &err)
	if err := j.enter(ctx); err != nil {
		return 0, err
	}
	err = j.update(func(tx *bbolt.Tx) error {
		meta, recs := tx.Bucket(bucketMeta), tx.Bucket(bucketRecords)
		last = binary.BigEndian.Uint64(meta.Get(keyLast))
		if len(records) == 0 {
			return nil
		}
		recs.FillPercent = 1 // keys only grow
		for _, r := range records {
			last++
			if err := recs.Put(number(last), seal(r)); err != nil {
				return err
			}
		}
		return meta.Put(keyLast, number(last))
	})
	if err != nil {
		return 0, translate(j.path, "append to", err)
	}
	return last, nil
}

// Snapshot implements journal.Journal.
func (j *Journal) Snapshot(ctx context.Context, seq uint64, state []byte) (err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer j.guard("snapshot", &err)
	if err := j.enter(ctx); err != nil {
		return err
	}
	return translate(j.path, "store a snapshot in", j.update(func(tx *bbolt.Tx) error {
		meta, recs := tx.Bucket(bucketMeta), tx.Bucket(bucketRecords)
		last, was := binary.BigEndian.Uint64(meta.Get(keyLast)), binary.BigEndian.Uint64(meta.Get(keySnapSeq))
		if seq > last || seq < was {
			return &journal.Error{Code: journal.ErrSequence, Msg: fmt.Sprintf("a snapshot at record %d does not fit journal %s with records %d to %d", seq, j.path, was, last)}
		}
		c := recs.Cursor()
		for k, _ := c.First(); k != nil && binary.BigEndian.Uint64(k) <= seq; k, _ = c.First() {
			if err := c.Delete(); err != nil {
				return err
			}
		}
		if err := meta.Put(keySnapshot, seal(state)); err != nil {
			return err
		}
		return meta.Put(keySnapSeq, number(seq))
	}))
}

// Load implements journal.Journal.
func (j *Journal) Load(ctx context.Context, snapshot, record func(uint64, []byte) error) (err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer j.guard("read", &err)
	if err := j.enter(ctx); err != nil {
		return err
	}
	var callback error // goes back as it is
	err = j.db.View(func(tx *bbolt.Tx) error {
		meta := tx.Bucket(bucketMeta)
		seq, last := binary.BigEndian.Uint64(meta.Get(keySnapSeq)), binary.BigEndian.Uint64(meta.Get(keyLast))
		if b := meta.Get(keySnapshot); b != nil {
			state, ok := open(b)
			if !ok {
				return j.corrupt(fmt.Sprintf("the snapshot at record %d does not match its checksum", seq))
			}
			callback = snapshot(seq, state)
			if callback != nil {
				return callback
			}
		}
		c := tx.Bucket(bucketRecords).Cursor()
		for k, v := c.First(); k != nil; k, v = c.Next() {
			if seq++; len(k) != 8 || binary.BigEndian.Uint64(k) != seq {
				return j.corrupt(fmt.Sprintf("record %d is missing", seq))
			}
			rec, ok := open(v)
			if !ok {
				return j.corrupt(fmt.Sprintf("record %d does not match its checksum", seq))
			}
			callback = record(seq, rec)
			if callback != nil {
				return callback
			}
		}
		if seq != last {
			return j.corrupt(fmt.Sprintf("it ends at record %d, and %d was written", seq, last))
		}
		return nil
	})
	if callback != nil {
		return callback
	}
	return translate(j.path, "read", err)
}

// Close implements journal.Journal.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil
	}
	j.closed = true
	return translate(j.path, "close", j.db.Close())
}

// enter checks what every call checks; the caller holds the lock.
func (j *Journal) enter(ctx context.Context) error {
	switch {
	case j.closed:
		return &journal.Error{Code: journal.ErrClosed, Msg: fmt.Sprintf("journal %s was closed: open it again", j.path)}
	case j.broken != nil:
		return j.broken
	}
	return ctx.Err()
}

// update runs a transaction. When a commit fails, whether it is on the disk is not
// known until the file is opened again: so nothing more may be written after it.
func (j *Journal) update(f func(*bbolt.Tx) error) error {
	committing := false
	err := j.db.Update(func(tx *bbolt.Tx) error {
		err := f(tx)
		committing = err == nil
		return err
	})
	if err != nil && committing {
		j.broken = translate(j.path, "commit to", err)
		return j.broken
	}
	return err
}

func (j *Journal) corrupt(what string) error { return corrupt(j.path, what, nil) }

func corrupt(path, what string, cause error) error {
	return &journal.Error{Code: journal.ErrCorrupt, Err: cause, Msg: fmt.Sprintf("journal %s is damaged: %s. Nothing was changed. Keep a copy of the file, then restore a backup, or start with another --data", path, what)}
}

// translate puts an error of bbolt or the system into ours.
func translate(path, what string, err error) error {
	var ours *journal.Error
	switch {
	case err == nil, errors.As(err, &ours):
		return err
	case errors.Is(err, bolterrors.ErrTimeout):
		return &journal.Error{Code: journal.ErrLocked, Err: err, Msg: fmt.Sprintf("journal %s is in use: another gpupool serve has it open. Stop that one, or give another --data", path)}
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrVersionMismatch), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrInvalidMapping):
		return corrupt(path, "it is not a bbolt file ("+err.Error()+")", err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, bolterrors.ErrDatabaseReadOnly):
		return &journal.Error{Code: journal.ErrReadOnly, Err: err, Msg: fmt.Sprintf("cannot %s journal %s: it is not writable here (%s). Make it writable for this user, or give another --data", what, path, err)}
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, bolterrors.ErrMaxSizeReached):
		return &journal.Error{Code: journal.ErrFull, Err: err, Msg: fmt.Sprintf("cannot %s journal %s: no space is left on the disk. Make room and start again; what was acknowledged is safe", what, path)}
	case errors.Is(err, fs.ErrNotExist):
		return &journal.Error{Code: journal.ErrFailed, Err: err, Msg: fmt.Sprintf("cannot %s journal %s: its folder does not exist", what, path)}
	}
	return &journal.Error{Code: journal.ErrFailed, Err: err, Msg: fmt.Sprintf("cannot %s journal %s: %s", what, path, err)}
}

// guard turns a panic of bbolt, which it has for damaged pages, into an error.
// Callers have faults in the memory map made into panics too.
func guard(path, what string, err *error) {
	if r := recover(); r != nil {
		*err = panicked(path, what, r)
	}
}

func panicked(path, what string, r any) error {
	return corrupt(path, fmt.Sprintf("it cannot be used (%s: %v)", what, r), fmt.Errorf("%v\n%s", r, debug.Stack()))
}

// guard does the same for an open journal: after a panic nothing more is written, as what
// the transaction left is not known.
func (j *Journal) guard(what string, err *error) {
	if r := recover(); r != nil {
		*err = panicked(j.path, what, r)
		j.broken = *err
	}
}

// precheck refuses what bbolt would trip over.
func precheck(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return translate(path, "open", err)
	case !info.Mode().IsRegular():
		return &journal.Error{Code: journal.ErrFailed, Msg: fmt.Sprintf("journal %s is not a file: give another --data", path)}
	}
	return checkPages(path, info.Size())
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// seal puts a checksum before b.
func seal(b []byte) []byte {
	out := make([]byte, 4, 4+len(b))
	binary.BigEndian.PutUint32(out, crc32.Checksum(b, castagnoli))
	return append(out, b...)
}

func open(b []byte) ([]byte, bool) {
	if len(b) < 4 || binary.BigEndian.Uint32(b) != crc32.Checksum(b[4:], castagnoli) {
		return nil, false
	}
	return b[4:], true
}
