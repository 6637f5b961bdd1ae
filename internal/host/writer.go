// Package host is the single writer around the engine: it takes events, lets
// the engine decide, makes the facts durable, and only then lets replies and
// commands leave.
//
// Writer is the synchronous heart, driven by the simulator in virtual time and by
// Host in real time. One commit serves all events that arrived while the last
// one was being written, so its cost is shared by many callers and does not grow
// with the cluster; a snapshot, every SnapshotEvery facts, does.
package host

import (
	"context"
	"fmt"
	"time"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/journal"
	"github.com/gpupool/gpupool/internal/work"
)

// Writer applies events to an engine and a journal.
type Writer struct {
	Engine        *engine.Engine
	journal       journal.Journal // nil: nothing is kept
	snapshotEvery int
	sinceSnapshot int
	seq           uint64
	batch         Batch
	records       [][]byte
	timed         bool // a Batch says what it took; the simulator does not ask
}

// Reply answers one event of a batch.
type Reply struct {
	Task work.TaskID
	Err  error
}

// Batch is what a group of events led to. The slices are valid until the next Apply.
type Batch struct {
	Facts    []engine.Fact
	First    uint64 // sequence number of the first fact
	Commands []engine.Command
	Replies  []Reply // one for each event, in order

	Stepped, Stored time.Duration // deciding, and making it durable

	// Unsaved is why a snapshot that was due was not stored. The facts are: older ones stay in
	// the journal, and it is tried again.
	Unsaved error
}

// NewWriter makes a writer over an empty engine that keeps nothing: for the simulator.
func NewWriter(cfg engine.Config) *Writer {
	return &Writer{Engine: engine.New(cfg)}
}

// Recover makes a writer whose engine has the state that the journal holds.
// After snapshotEvery facts a new snapshot is stored (0: never).
func Recover(ctx context.Context, cfg engine.Config, j journal.Journal, snapshotEvery int) (*Writer, error) {
	w := &Writer{Engine: engine.New(cfg), journal: j, snapshotEvery: snapshotEvery}
	err := j.Load(ctx, func(seq uint64, state []byte) error {
		e, err := engine.Restore(cfg, state)
		if err != nil {
			return fmt.Errorf("snapshot at record %d: %w", seq, err)
		}
		w.Engine, w.seq = e, seq
		return nil
	}, func(seq uint64, rec []byte) error {
		at, f, err := engine.Decode(rec)
		if err == nil {
			err = w.Engine.Replay(at, f)
		}
		if err != nil {
			return fmt.Errorf("record %d: %w", seq, err)
		}
		w.seq = seq
		w.sinceSnapshot++
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("recover from the journal: %w", err)
	}
	return w, nil
}

// Apply steps the engine through a group of events at one time and makes the
// facts durable together. After an error the engine is ahead of the journal: the
// writer must not be used any more, and nothing of the batch may leave.
func (w *Writer) Apply(ctx context.Context, now work.Time, evs ...engine.Event) (Batch, error) {
	b := &w.batch
	b.Facts, b.Commands, b.Replies = b.Facts[:0], b.Commands[:0], b.Replies[:0]
	b.First, b.Unsaved = w.seq+1, nil
	start := w.clock()
	for _, ev := range evs {
		out := w.Engine.Step(now, ev)
		b.Facts = append(b.Facts, out.Facts...)
		b.Commands = append(b.Commands, out.Commands...)
		b.Replies = append(b.Replies, Reply{out.Task, out.Err})
	}
	if checked {
		if err := w.Engine.Check(); err != nil {
			return Batch{}, fmt.Errorf("an invariant is broken, and nothing of this batch was kept: %w", err)
		}
	}
	decided := w.clock()
	if err := w.store(ctx, b.Facts); err != nil {
		return Batch{}, err
	}
	b.Stepped, b.Stored = decided.Sub(start), w.clock().Sub(decided)
	if len(b.Facts) == 0 {
		b.Stored = 0
	}
	return *b, nil
}

// clock is the time for those who ask what things took.
func (w *Writer) clock() time.Time {
	if !w.timed {
		return time.Time{}
	}
	return time.Now()
}

func (w *Writer) store(ctx context.Context, facts []engine.Fact) error {
	if w.journal == nil || len(facts) == 0 {
		w.seq += uint64(len(facts))
		return nil
	}
	w.records = w.records[:0]
	for _, f := range facts {
		rec, err := engine.Encode(w.Engine.Now(), f)
		if err != nil {
			return err
		}
		w.records = append(w.records, rec)
	}
	last, err := w.journal.Append(ctx, w.records)
	if err != nil {
		return fmt.Errorf("the journal could not be written: %w", err)
	}
	w.seq = last
	w.sinceSnapshot += len(facts)
	if w.snapshotEvery > 0 && w.sinceSnapshot >= w.snapshotEvery {
		// The facts are durable, and must not be answered as if they were not. A journal that
		// takes nothing any more says so at the next append.
		if w.batch.Unsaved = w.Snapshot(ctx); w.batch.Unsaved != nil {
			w.sinceSnapshot -= w.snapshotEvery / snapshotTries
		}
	}
	return nil
}

// snapshotTries is how often a snapshot that fails is tried again, until as many facts again
// have been stored as led to it.
const snapshotTries = 8

// Snapshot stores the whole state and lets the journal drop older facts.
func (w *Writer) Snapshot(ctx context.Context) error {
	if w.journal == nil {
		return nil
	}
	state, err := w.Engine.Snapshot()
	if err != nil {
		return err
	}
	if err := w.journal.Snapshot(ctx, w.seq, state); err != nil {
		return fmt.Errorf("the snapshot could not be written: %w", err)
	}
	w.sinceSnapshot = 0
	return nil
}
