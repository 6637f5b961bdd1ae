package redis

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gpupool/gpupool/internal/journal"
)

// followBlock is how long a read waits for the next record.
const followBlock = 500 * time.Millisecond

// look asks the store who leads and where it stands.
func (j *Journal) look(ctx context.Context) (s journal.Status, m metaOf, err error) {
	m, err = j.meta(ctx)
	if err != nil {
		return s, m, err
	}
	node, err := j.node(ctx)
	if err != nil {
		return s, m, err
	}
	text, err := node.Get(ctx, j.keys.lease).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return s, m, err
	}
	s.Last = m.last
	s.Elsewhere = m.site != "" && j.o.Site != "" && m.site != j.o.Site
	if f := strings.SplitN(text, " ", 3); len(f) == 3 {
		s.Leader, s.Self = f[2], f[0] == j.server
	}
	return s, m, nil
}

// Follow implements journal.Shared.
func (j *Journal) Follow(ctx context.Context, after uint64, reset, record func(uint64, []byte) error) error {
	f := follower{j: j, reset: reset, record: record}
	j.mu.Lock()
	c, known := j.seen.at(after)
	j.mu.Unlock()
	f.at, f.again = place{after, c}, !known
	for {
		if err := j.enter(ctx); err != nil {
			return err
		}
		err := f.step(ctx)
		switch {
		case f.refused != nil:
			return f.refused
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			continue
		}
		if e, ours := errors.AsType[*journal.Error](err); ours && e.Code != journal.ErrFailed && e.Code != journal.ErrCorrupt || !ours && !passes(err) {
			return j.translate("follow", err)
		}
		// Also a journal that looked damaged gets another look: it may have been trimmed
		// while it was read. Whoever leads says for sure.
		if time.Since(f.said) > time.Minute {
			f.said = time.Now()
			j.o.Log.Warn("cannot follow the journal for now", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(maxPause):
		}
	}
}

// follower is one call of Follow.
type follower struct {
	j             *Journal
	at            place
	again         bool // begin again from the snapshot
	reset, record func(uint64, []byte) error
	refused       error // by a callback
	said          time.Time
	behind        time.Time // since when the store lacks what was acknowledged; zero: it does not
}

// step begins again, or reads what came next.
func (f *follower) step(ctx context.Context) error {
	if f.again {
		return f.reload(ctx)
	}
	node, err := f.j.node(ctx)
	if err != nil {
		return err
	}
	bound, cancel := context.WithTimeout(ctx, followBlock+callTimeout)
	defer cancel()
	got, err := node.XRead(bound, &redis.XReadArgs{Streams: []string{f.j.keys.facts, idOf(f.at.seq)}, Count: pageRecords, Block: followBlock}).Result()
	if errors.Is(err, redis.Nil) {
		return f.check(bound)
	}
	if err != nil {
		return err
	}
	page, err := f.j.entries(got[0].Messages)
	if err != nil {
		return err
	}
	for _, e := range page {
		if e.seq != f.at.seq+1 || e.chain != f.at.chain.next(e.data) {
			f.again = true
			return nil
		}
		if err := f.tell(e); err != nil {
			return err
		}
	}
	return f.check(bound)
}

func (f *follower) tell(e entry) error {
	if f.refused = f.record(e.seq, e.data); f.refused != nil {
		return f.refused
	}
	f.at = e.place
	f.j.saw(e.place, e.data, false)
	return nil
}

// check notes what is acknowledged, and begins again when the store has gone another way.
func (f *follower) check(ctx context.Context) error {
	s, m, err := f.j.look(ctx)
	if err != nil {
		return err
	}
	f.j.mu.Lock()
	if c, known := f.j.seen.at(m.acked); known && m.acked <= m.last && m.acked > f.j.acked.seq {
		f.j.acked = place{m.acked, c}
	}
	f.j.mu.Unlock()
	f.j.remember()
	switch {
	case m.snap > f.at.seq: // what comes next here is no longer kept
		f.again = true
	case m.last == f.at.seq && m.chain != f.at.chain:
		f.again = true
	case m.last < f.at.seq && s.Leader != "":
		return f.shrunk(ctx, m)
	}
	f.behind = time.Time{}
	return nil
}

// shrunk judges a store that ends before what was read from it. Whoever leads may not have
// noticed yet, or be about to put back what it has: that takes a few leases at most.
func (f *follower) shrunk(ctx context.Context, m metaOf) error {
	err := f.j.compare(ctx, place{m.last, m.chain})
	switch e, ours := errors.AsType[*journal.Error](err); {
	case err == nil:
		f.again = true
	case !ours || e.Code != journal.ErrBehind:
		return err
	case f.behind.IsZero():
		f.behind = time.Now()
	case time.Since(f.behind) > behindLeases*f.j.o.Lease:
		f.refused = err
		return err
	}
	return nil
}

// reload begins again from the newest snapshot.
func (f *follower) reload(ctx context.Context) error {
	begun := false
	begin := func(seq uint64, state []byte) error {
		begun = true
		f.refused = f.reset(seq, state)
		return f.refused
	}
	err := f.j.Load(ctx, begin, func(seq uint64, rec []byte) error {
		if !begun {
			if err := begin(0, nil); err != nil {
				return err
			}
		}
		f.refused = f.record(seq, rec)
		return f.refused
	})
	if err == nil && !begun {
		err = begin(0, nil)
	}
	if err != nil {
		return err
	}
	f.j.mu.Lock()
	f.at, f.again = f.j.seen.end(), false
	f.j.mu.Unlock()
	return nil
}
