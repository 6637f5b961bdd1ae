// Package journal is the port through which facts are kept: an ordered list of
// records and the newest snapshot that stands for the oldest of them. What the
// bytes mean is the host's business.
//
// An Append costs one durable write however many records it carries, and does not
// grow with what is stored; Load costs what was appended since the last snapshot.
package journal

import "context"

// Journal keeps records in order. One caller at a time writes. Every
// implementation passes journaltest.Run.
type Journal interface {
	// Append stores the records together: all of them durably, or none. It returns
	// the sequence number of the last one; the first record ever is number 1.
	Append(ctx context.Context, records [][]byte) (last uint64, err error)

	// Snapshot stores a state that stands for all records up to and including seq,
	// in place of an older snapshot, and drops those records. After a failure the
	// older snapshot and its records are still there. A seq that was never
	// appended, or lies before the stored snapshot, is refused.
	Snapshot(ctx context.Context, seq uint64, state []byte) error

	// Load calls snapshot with the newest snapshot, if there is one, then record
	// for each record after it, in order. The bytes are valid during the call
	// only, and not to be changed; a callback must not call the journal. An error of
	// a callback ends the walk and is returned.
	Load(ctx context.Context, snapshot, record func(seq uint64, b []byte) error) error

	// Close lets go of the store. Everything appended stays.
	Close() error
}

// Restorer is what a Journal has too when a copy of another can be put into it. Every
// implementation passes journaltest.RunRestore.
type Restorer interface {
	// Restore stores a state that stands for all records up to and including seq, of
	// which this journal has none; the next record is seq+1. A journal that holds anything
	// refuses with ErrSequence.
	Restore(ctx context.Context, seq uint64, state []byte) error
}

// Shared is what a Journal has too when several servers have it open at once. One
// of them leads, and it alone writes: an Append or a Snapshot of another is refused with
// ErrDeposed by the store itself, however late it comes. Every implementation passes
// journaltest.RunShared.
type Shared interface {
	// Lead waits until this server leads and may write; the others are told url. Lost is
	// closed as soon as it leads no more, or cannot be sure to. A lead that was lost can
	// be had again by another call. ErrBehind and ErrSite end the wait.
	Lead(ctx context.Context, url string) (lost <-chan struct{}, err error)

	// Resign gives the lead up, so that another has it at once.
	Resign(ctx context.Context) error

	// Status asks the store who leads and how far the records go.
	Status(ctx context.Context) (Status, error)

	// Follow calls record for each record after the given one, as they come, until ctx
	// ends or a callback fails. Where the records after it are no longer kept, or are not
	// the ones that were told before, it begins again: it calls reset with the newest
	// snapshot, or with 0 and nil where there is none. It waits through failures of the store.
	Follow(ctx context.Context, after uint64, reset, record func(seq uint64, b []byte) error) error
}

// Status is what a shared journal says of itself.
type Status struct {
	Leader string // its URL; "" while nobody leads
	Self   bool   // this server leads
	Last   uint64 // the newest record

	Elsewhere bool // its tasks run at another site: this server cannot see them, and must not lead
}

// Code names what went wrong in a journal.
type Code string

// The codes of journal errors.
const (
	ErrLocked   Code = "journal_locked"   // another process has it open
	ErrReadOnly Code = "journal_readonly" // it cannot be written here
	ErrCorrupt  Code = "journal_corrupt"  // what is stored does not match its checksum or shape
	ErrVersion  Code = "journal_version"  // written by a newer gpupool
	ErrFull     Code = "journal_full"     // no space left
	ErrClosed   Code = "journal_closed"   // used after Close
	ErrSequence Code = "journal_sequence" // a snapshot for records that it has not, or has dropped
	ErrFailed   Code = "journal_failed"   // the store refused for a reason of its own
	ErrDeposed  Code = "journal_deposed"  // this server does not lead, or leads no more
	ErrBehind   Code = "journal_behind"   // the store has lost records that were acknowledged
	ErrSite     Code = "journal_site"     // the tasks of this journal run at another place
)

// Error is what a journal answers when it cannot. Nothing was stored then; after
// ErrDeposed whoever leads next may find it stored all the same.
type Error struct {
	Code Code
	Msg  string // what was expected, what came, what to do
	Err  error  // the cause, if there is one
}

func (e *Error) Error() string { return e.Msg }

func (e *Error) Unwrap() error { return e.Err }
