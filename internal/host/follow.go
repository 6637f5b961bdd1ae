package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/journal"
	"github.com/gpupool/gpupool/internal/work"
)

// ErrFarBehind ends Follow when the journal no longer has, or no longer agrees with, what
// this host knows: open another host from it.
var ErrFarBehind = errors.New("the journal went on without this server: its state has to be read again")

// errFollows answers calls to a host that only follows.
var errFollows = work.Errorf(work.CodeUnavailable, "this server does not lead: ask the one that does")

// Follow keeps the state, in place of Run, as another server's journal says, until ctx
// ends or the journal cannot be followed. Readers and subscribers see what they would see
// at the other server, a little later; Do refuses. Nothing is observed, started or stored.
func (h *Host) Follow(ctx context.Context, from journal.Shared) error {
	h.follows.Store(true)
	defer close(h.done)
	ctx, cancel := context.WithCancel(ctx)
	views := make(chan struct{})
	go func() {
		defer close(views)
		h.publish(ctx)
	}()
	defer func() { <-views }()
	defer cancel()
	defer h.feed.close()
	err := from.Follow(ctx, h.LastEvent(), func(uint64, []byte) error { return ErrFarBehind }, h.hear)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// hear takes over a fact that another server decided.
func (h *Host) hear(seq uint64, rec []byte) error {
	at, f, err := engine.Decode(rec)
	if err != nil {
		return fmt.Errorf("record %d: %w", seq, err)
	}
	h.mu.Lock()
	if err = h.writer.Engine.Replay(at, f); err == nil {
		h.writer.seq = seq
		h.learn([]engine.Fact{f})
	}
	events := h.describe(Batch{Facts: []engine.Fact{f}, First: seq}, at)
	h.mu.Unlock()
	if err != nil {
		return fmt.Errorf("record %d: %w", seq, err)
	}
	h.feed.publish(events)
	h.tell(at, nil, Batch{Facts: []engine.Fact{f}}, events)
	return nil
}

// Durable is the number of the newest fact in the state. Unlike LastEvent it counts a fact
// before the reply that follows from it has left.
func (h *Host) Durable() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.writer.seq
}
