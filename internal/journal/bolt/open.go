package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"go.etcd.io/bbolt"

	"github.com/gpupool/gpupool/internal/journal"
)

// Options tune a journal. Zero values mean the defaults.
type Options struct {
	LockTimeout time.Duration // how long to wait for another process to let go; default 2 s
	ReadOnly    bool          // look only; the file must exist
}

// Open opens or makes the journal at path. Its folder must exist. An existing file is
// checked first, and nothing is written to it until the first Append or Snapshot.
func Open(path string, o Options) (j *Journal, err error) {
	if o.LockTimeout == 0 {
		o.LockTimeout = 2 * time.Second
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			j, err = nil, panicked(path, "open", r)
		}
	}()
	if err := precheck(path, o); err != nil {
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
		return nil, translate(path, "open", err)
	}
	return j, nil
}

// precheck refuses what bbolt would trip over.
func precheck(path string, o Options) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !o.ReadOnly:
		return nil // bbolt makes it, or says that there is no folder
	case errors.Is(err, fs.ErrNotExist):
		return failed(err, "journal %s does not exist, and a journal is not made only to be read", path)
	case err != nil:
		return translate(path, "open", err)
	case !info.Mode().IsRegular():
		return failed(nil, "journal %s is not a file: give another --data", path)
	case info.Size() == 0 && o.ReadOnly:
		return failed(nil, "journal %s is empty: no gpupool has written to it yet", path)
	case info.Size() == 0:
		return nil // a writer ended between making and filling it
	}
	// Opened so, bbolt touches nothing but the meta pages, and its shared lock keeps
	// writers away during the check.
	lock, err := bbolt.Open(path, 0, &bbolt.Options{Timeout: o.LockTimeout, ReadOnly: true})
	if err != nil {
		return translate(path, "open", err)
	}
	defer lock.Close()
	return checkPages(path)
}

// prepare fills a new file, and checks what the journal says of itself in an old one.
func (j *Journal) prepare(readOnly bool) error {
	isNew := false
	err := j.db.View(func(tx *bbolt.Tx) error {
		if k, _ := tx.Cursor().First(); k == nil && !readOnly {
			isNew = true
			return nil
		}
		return j.check(tx)
	})
	if err != nil || readOnly {
		return err
	}
	if isNew {
		if err := j.db.Update(fill); err != nil {
			return err
		}
	}
	return syncDir(filepath.Dir(j.path)) // else a crash of the machine could take the file with all that it holds
}

func fill(tx *bbolt.Tx) error {
	meta, err := tx.CreateBucket(bucketMeta)
	if err != nil {
		return err
	}
	if _, err := tx.CreateBucket(bucketRecords); err != nil {
		return err
	}
	return errors.Join(apart(meta), meta.Put(keyVersion, number(formatVersion)), meta.Put(keyLast, number(0)), meta.Put(keySnapSeq, number(0)))
}

// check compares what the journal says of itself with its first and last record; the
// ones between are Load's business.
func (j *Journal) check(tx *bbolt.Tx) error {
	meta, recs := tx.Bucket(bucketMeta), tx.Bucket(bucketRecords)
	if meta == nil || recs == nil {
		return j.corrupt("it holds no journal")
	}
	v := meta.Get(keyVersion)
	if len(v) != 8 {
		return j.corrupt("it does not say its version")
	}
	if got := binary.BigEndian.Uint64(v); got != formatVersion {
		return &journal.Error{Code: journal.ErrVersion, Msg: fmt.Sprintf("journal %s has format %d and this gpupool reads %d: start the version that wrote it, or a newer one", j.path, got, formatVersion)}
	}
	if len(meta.Get(keyLast)) != 8 || len(meta.Get(keySnapSeq)) != 8 {
		return j.corrupt("its description is damaged")
	}
	snap, last := bounds(meta)
	if snap > 0 && meta.Get(keySnapshot) == nil {
		return j.corrupt(fmt.Sprintf("the snapshot at record %d is missing", snap))
	}
	first, newest := snap+1, snap // of no records
	if k, _ := recs.Cursor().First(); k != nil {
		l, _ := recs.Cursor().Last()
		if len(k) != 8 || len(l) != 8 {
			return j.corrupt("the number of a record is damaged")
		}
		first, newest = binary.BigEndian.Uint64(k), binary.BigEndian.Uint64(l)
	}
	if first != snap+1 || newest != last {
		return j.corrupt(fmt.Sprintf("records %d to %d were written after the snapshot, and it holds %d to %d", snap+1, last, first, newest))
	}
	return nil
}

// syncDir makes the names in a folder durable, where the file system knows how.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err
	}
	return nil
}
