// Package memory is a journal that lasts as long as the process: for tests and for
// servers whose state need not outlive them.
//
// Every call costs a copy of what it carries; Load walks what was appended since
// the last snapshot.
package memory

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/gpupool/gpupool/internal/journal"
)

// Journal keeps records in memory. Open gives it back to a new user after Close,
// as a file would be.
type Journal struct {
	mu       sync.Mutex
	records  [][]byte
	last     uint64 // of the newest record
	snapSeq  uint64
	snapshot []byte
	closed   bool
	fail     func(op string) error
}

// New makes an empty journal.
func New() *Journal { return &Journal{} }

// Open makes a closed journal usable again, with all that it holds.
func (j *Journal) Open() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = false
}

// FailWith lets f decide, before each call ("append", "snapshot", "load"), whether
// it fails; nil ends that. f must not call the journal.
func (j *Journal) FailWith(f func(op string) error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fail = f
}

// enter checks what every call checks; the caller holds the lock.
func (j *Journal) enter(ctx context.Context, op string) error {
	if j.closed {
		return &journal.Error{Code: journal.ErrClosed, Msg: "the journal was closed: open it again"}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if j.fail != nil {
		return j.fail(op)
	}
	return nil
}

// Append implements journal.Journal.
func (j *Journal) Append(ctx context.Context, records [][]byte) (uint64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.enter(ctx, "append"); err != nil {
		return 0, err
	}
	for _, r := range records {
		j.records = append(j.records, bytes.Clone(r))
	}
	j.last += uint64(len(records))
	return j.last, nil
}

// Snapshot implements journal.Journal.
func (j *Journal) Snapshot(ctx context.Context, seq uint64, state []byte) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.enter(ctx, "snapshot"); err != nil {
		return err
	}
	if seq > j.last || seq < j.snapSeq {
		return &journal.Error{Code: journal.ErrSequence, Msg: fmt.Sprintf("a snapshot at record %d does not fit a journal with records %d to %d", seq, j.snapSeq, j.last)}
	}
	j.records = append([][]byte(nil), j.records[seq-j.snapSeq:]...)
	j.snapSeq, j.snapshot = seq, append([]byte{}, state...)
	return nil
}

// Restore implements journal.Restorer.
func (j *Journal) Restore(ctx context.Context, seq uint64, state []byte) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.enter(ctx, "snapshot"); err != nil {
		return err
	}
	if j.last > 0 || j.snapshot != nil {
		return &journal.Error{Code: journal.ErrSequence, Msg: fmt.Sprintf("a copy can only be put into an empty journal, and this one has records up to %d", j.last)}
	}
	j.snapSeq, j.last, j.snapshot = seq, seq, append([]byte{}, state...)
	return nil
}

// Load implements journal.Journal.
func (j *Journal) Load(ctx context.Context, snapshot, record func(uint64, []byte) error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.enter(ctx, "load"); err != nil {
		return err
	}
	if j.snapshot != nil {
		if err := snapshot(j.snapSeq, bytes.Clone(j.snapshot)); err != nil {
			return err
		}
	}
	for i, r := range j.records {
		if err := record(j.snapSeq+uint64(i)+1, bytes.Clone(r)); err != nil {
			return err
		}
	}
	return nil
}

// Close implements journal.Journal.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
	return nil
}
