// Package bolt is the journal in one file on this machine (bbolt), the default: no
// other service is needed. One process has the file open at a time.
//
// An Append is one transaction and one fsync however many records it carries; its
// cost grows with the logarithm of what is stored since the last snapshot. Open reads
// all that is stored once, to judge it before bbolt follows it; Load reads it again.
// Every record and the snapshot carry a checksum, and what does not match it is
// refused with its place, never guessed around.
package bolt

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"runtime/debug"
	"sync"

	"go.etcd.io/bbolt"

	"github.com/gpupool/gpupool/internal/journal"
)

// formatVersion changes when an older gpupool could not read the file any more.
const formatVersion = 1

var (
	bucketMeta    = []byte("meta")
	bucketRecords = []byte("records")
	keyName       = []byte("journal") // says nothing; see apart
	keyVersion    = []byte("version")
	keyLast       = []byte("last")         // of the newest record
	keySnapSeq    = []byte("snapshot_seq") // 0 = no snapshot, or one of nothing
	keySnapshot   = []byte("snapshot")     // checksum and state
	castagnoli    = crc32.MakeTable(crc32.Castagnoli)
)

// Journal is an open file.
type Journal struct {
	path string
	db   *bbolt.DB

	mu       sync.Mutex
	closed   bool
	broken   error // a call whose outcome is not known: nothing more is read or written
	panicked bool  // bbolt may have left its own locks taken
	telling  bool  // a callback runs
}

// bounds returns the record that the snapshot stands for, and the newest.
func bounds(meta *bbolt.Bucket) (snap, last uint64) {
	return binary.BigEndian.Uint64(meta.Get(keySnapSeq)), binary.BigEndian.Uint64(meta.Get(keyLast))
}

// Append implements journal.Journal.
func (j *Journal) Append(ctx context.Context, records [][]byte) (last uint64, err error) {
	err = j.call(ctx, "append to", func() error {
		if len(records) == 0 {
			return j.db.View(func(tx *bbolt.Tx) error {
				_, last = bounds(tx.Bucket(bucketMeta))
				return nil
			})
		}
		return j.update(func(tx *bbolt.Tx) error {
			meta, recs := tx.Bucket(bucketMeta), tx.Bucket(bucketRecords)
			_, last = bounds(meta)
			recs.FillPercent = 1 // keys only grow
			for _, r := range records {
				last++
				if err := recs.Put(number(last), seal(r)); err != nil {
					return err
				}
			}
			return meta.Put(keyLast, number(last))
		})
	})
	if err != nil {
		return 0, err
	}
	return last, nil
}

// Snapshot implements journal.Journal.
func (j *Journal) Snapshot(ctx context.Context, seq uint64, state []byte) error {
	return j.call(ctx, "store a snapshot in", func() error {
		return j.update(func(tx *bbolt.Tx) error {
			meta, recs := tx.Bucket(bucketMeta), tx.Bucket(bucketRecords)
			was, last := bounds(meta)
			if seq > last || seq < was {
				return &journal.Error{Code: journal.ErrSequence, Msg: fmt.Sprintf("a snapshot at record %d does not fit journal %s with records %d to %d", seq, j.path, was, last)}
			}
			// By number: a cursor would walk over all that is deleted already, each time.
			for n := was + 1; n <= seq; n++ {
				if err := recs.Delete(number(n)); err != nil {
					return err
				}
			}
			if err := meta.Put(keySnapshot, seal(state)); err != nil {
				return err
			}
			return errors.Join(apart(meta), meta.Put(keySnapSeq, number(seq)))
		})
	})
}

// apart keeps the snapshot on other pages than the number of the newest record, which each
// Append writes: bbolt writes whole leaves, and never splits one of four keys or fewer. With
// a fifth before them the leaf of many MiB ends before it begins: journal, last | snapshot, ….
func apart(meta *bbolt.Bucket) error { return meta.Put(keyName, []byte("gpupool")) }

// Restore implements journal.Restorer.
func (j *Journal) Restore(ctx context.Context, seq uint64, state []byte) error {
	return j.call(ctx, "put a copy into", func() error {
		return j.update(func(tx *bbolt.Tx) error {
			meta := tx.Bucket(bucketMeta)
			if _, last := bounds(meta); last > 0 || meta.Get(keySnapshot) != nil {
				return &journal.Error{Code: journal.ErrSequence, Msg: fmt.Sprintf("a copy can only be put into an empty journal, and %s has records up to %d", j.path, last)}
			}
			return errors.Join(apart(meta), meta.Put(keySnapshot, seal(state)), meta.Put(keySnapSeq, number(seq)), meta.Put(keyLast, number(seq)))
		})
	})
}

// Load implements journal.Journal.
func (j *Journal) Load(ctx context.Context, snapshot, record func(uint64, []byte) error) error {
	var callback error // goes back as it is
	tell := func(f func(uint64, []byte) error) func(uint64, []byte) error {
		return func(seq uint64, b []byte) error {
			j.telling = true
			callback = f(seq, b)
			j.telling = false
			return callback
		}
	}
	err := j.call(ctx, "read", func() error {
		return j.db.View(func(tx *bbolt.Tx) error { return j.walk(tx, tell(snapshot), tell(record)) })
	})
	if callback != nil {
		return callback
	}
	return err
}

// walk tells what is stored, checked.
func (j *Journal) walk(tx *bbolt.Tx, snapshot, record func(uint64, []byte) error) error {
	meta := tx.Bucket(bucketMeta)
	seq, last := bounds(meta)
	if b := meta.Get(keySnapshot); b != nil {
		state, ok := open(b)
		if !ok {
			return j.corrupt(fmt.Sprintf("the snapshot at record %d does not match its checksum", seq))
		}
		if err := snapshot(seq, state); err != nil {
			return err
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
		if err := record(seq, rec); err != nil {
			return err
		}
	}
	if seq != last {
		return j.corrupt(fmt.Sprintf("it ends at record %d, and %d was written", seq, last))
	}
	return nil
}

// Close implements journal.Journal. After a panic of bbolt it lets go of nothing: bbolt
// may wait for its own locks for ever, and the end of the process frees the file.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil
	}
	j.closed = true
	if j.panicked {
		return nil
	}
	return translate(j.path, "close", j.db.Close())
}

// call runs f, alone, if the journal can be used. A panic of bbolt, or a fault in its
// map of the file, becomes an error, and the last one.
func (j *Journal) call(ctx context.Context, what string, f func() error) (err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return &journal.Error{Code: journal.ErrClosed, Msg: fmt.Sprintf("journal %s was closed: open it again", j.path)}
	}
	if j.broken != nil {
		return j.broken
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		r := recover()
		switch {
		case r == nil:
		case j.telling: // it is the caller's own
			j.telling = false
			panic(r)
		default:
			err = panicked(j.path, what, r)
			j.broken, j.panicked = err, true
		}
	}()
	return translate(j.path, what, f())
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
