package storm

import (
	"context"
	"errors"
	"fmt"

	"github.com/gpupool/gpupool/internal/journal/memory"
)

// fate is what becomes of the next append.
type fate uint8

const (
	kept      fate = iota
	refused        // nothing is stored, and the caller is told so
	unheard        // all is stored, and the caller is told that it failed
	torn           // a part of it reaches the disk: by the journal's contract none of it counts
	noSnap         // the append is stored, the next snapshot fails
	fateCount = iota
)

var fateNames = [fateCount]Fault{"", "append_refused", "append_reply_lost", "append_torn", "snapshot_failed"}

var errDisk = errors.New("the disk failed")

// disk is a journal that can fail in every way that its contract allows. It remembers what
// was stored, for the ledger.
type disk struct {
	*memory.Journal
	next  fate
	tried [][]byte // what the last append was asked to store
	fresh [][]byte // what was stored since the ledger last looked
	tail  [][]byte // what a torn append left behind
	lied  bool     // a planted bug: an append that failed was taken for done
	bug   *planted
}

// Append implements journal.Journal.
func (d *disk) Append(ctx context.Context, records [][]byte) (uint64, error) {
	d.tried = records
	was := d.next
	if was != noSnap {
		d.next = kept
	}
	switch was {
	case refused:
		if d.bug.eager {
			d.lied = true
			return 0, nil
		}
		if d.bug.retries { // it asks again, and does not look whether the first try went through
			return d.append(ctx, records)
		}
		return 0, errDisk
	case torn:
		d.tail = append([][]byte(nil), records[:len(records)/2]...)
		return 0, errDisk
	case unheard:
		if _, err := d.append(ctx, records); err != nil {
			return 0, err
		}
		if d.bug.retries {
			return d.append(ctx, records)
		}
		return 0, errDisk
	case kept, noSnap:
	}
	return d.append(ctx, records)
}

func (d *disk) append(ctx context.Context, records [][]byte) (uint64, error) {
	d.fresh = append(d.fresh, records...)
	return d.Journal.Append(ctx, records)
}

// Snapshot implements journal.Journal.
func (d *disk) Snapshot(ctx context.Context, seq uint64, state []byte) error {
	if d.next == noSnap {
		d.next = kept
		return errDisk
	}
	return d.Journal.Snapshot(ctx, seq, state)
}

// Load implements journal.Journal. It leaves out what a torn append left behind, as every
// journal must.
func (d *disk) Load(ctx context.Context, snapshot, record func(uint64, []byte) error) error {
	d.next = kept
	if d.bug.trustsTail && len(d.tail) > 0 {
		if _, err := d.Journal.Append(ctx, d.tail); err != nil {
			return err
		}
	}
	d.tail = nil
	if f := d.bug.read; f != nil {
		plain := record
		record = func(seq uint64, b []byte) error {
			if b = f(b); b == nil {
				return nil
			}
			return plain(seq, b)
		}
		whole := snapshot
		snapshot = func(seq uint64, b []byte) error { return whole(seq, f(b)) }
	}
	if err := d.Journal.Load(ctx, snapshot, record); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	return nil
}

// take returns what was stored since it was last called.
func (d *disk) take() [][]byte {
	out := d.fresh
	d.fresh = nil
	return out
}
