package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/gpupool/gpupool/internal/journal"
)

// term is a time in which this server leads. It ends by itself when its lease was not
// renewed in time, measured by a clock that no one sets.
type term struct {
	holder, token string
	text          string // what the lease says
	url           string
	lost          chan struct{}
	at            place // the newest record; guarded by Journal.writing
	snaps         int   // guarded by Journal.writing

	mu    sync.Mutex
	until time.Time
	err   error // why the store does not answer
}

func (t *term) left() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-t.lost:
		return 0
	default:
		return time.Until(t.until)
	}
}

func (t *term) holds() bool { return t.left() > 0 }

func (t *term) troubled(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
}

func (t *term) trouble() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// end ends a term on this side.
func (j *Journal) end(t *term) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.term == t {
		j.term = nil
		close(t.lost)
	}
}

// Lead implements journal.Shared.
func (j *Journal) Lead(ctx context.Context, url string) (<-chan struct{}, error) {
	if strings.ContainsAny(url, " \n") {
		return nil, fmt.Errorf("the address %q of this server cannot be told to others: it holds a space", url)
	}
	var behind, said time.Time
	for {
		if err := j.enter(ctx); err != nil {
			return nil, err
		}
		wait, err := j.try(ctx, url)
		switch e, ours := errors.AsType[*journal.Error](err); {
		case err == nil && wait == 0:
			return j.lost(), nil
		case ours && e.Code == journal.ErrBehind:
			// Another server may still have what is missing, and may get the lead first.
			if behind.IsZero() {
				behind = time.Now()
			}
			if time.Since(behind) > behindLeases*j.o.Lease {
				return nil, err
			}
			wait = j.o.Lease / 2
		case ours && (e.Code == journal.ErrDeposed || passes(err)): // at its very beginning
			if time.Since(said) > time.Minute {
				said = time.Now()
				j.o.Log.Warn("this server had the lead, and could not begin: it tries again", "err", err)
			}
		case ours:
			return nil, err
		case err != nil && !passes(err):
			return nil, j.translate("lead", err)
		case err == nil:
			behind = time.Time{}
		}
		if wait <= 0 {
			wait = j.o.Lease / 6
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
		}
	}
}

// try asks for the lease once. It returns how long to wait when another has it, and 0
// when this server leads now.
func (j *Journal) try(ctx context.Context, url string) (time.Duration, error) {
	asked := time.Now()
	bound, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	node, err := j.node(bound)
	if err != nil {
		return 0, err
	}
	said, err := words(acquire.Eval(bound, node, []string{j.keys.meta, j.keys.lease}, j.server, j.o.Lease.Milliseconds(), url, j.o.Site, formatVersion))
	if err != nil {
		return 0, err
	}
	switch said[0] {
	case "held":
		var ms int64
		fmt.Sscan(said[1], &ms) //nolint:errcheck // a number from PTTL; 0 is the default
		// Not before it can have run out, and soon after; often enough to see one that was given up.
		return min(max(time.Duration(ms+1)*time.Millisecond, 5*time.Millisecond), j.o.Lease/6), nil
	case "site":
		return 0, &journal.Error{Code: journal.ErrSite, Msg: fmt.Sprintf("the tasks of journal %s run at %q, and this server is at %q: it can follow, and it must not lead, "+
			"as it cannot see them. Start it on that machine with the same --data; or, once that machine is surely off, move the journal here: gpupool journal adopt", j.name, said[1], j.o.Site)}
	case "version":
		return 0, j.newer(said[1])
	}
	t := &term{token: said[1], holder: said[1] + ":" + j.server, url: url, lost: make(chan struct{}), until: asked.Add(j.o.Lease)}
	t.text = j.server + " " + t.token + " " + url
	if _, err := fmt.Sscan(said[2], &t.at.seq); err != nil {
		return 0, j.corrupt(fmt.Sprintf("its last record is %q, which is no number", said[2]))
	}
	t.at.chain = chain(said[3])
	if err := j.begin(ctx, t); err != nil {
		return 0, err
	}
	return 0, nil
}

// lost is closed when the term is over, which it may be already.
func (j *Journal) lost() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.term == nil {
		gone := make(chan struct{})
		close(gone)
		return gone
	}
	return j.term.lost
}

// begin starts a term: what the store has lost and this server still has is put back; what
// neither has ends the term, if it was acknowledged.
func (j *Journal) begin(ctx context.Context, t *term) error {
	j.writing.Lock()
	defer j.writing.Unlock()
	j.mu.Lock()
	if old := j.term; old != nil {
		close(old.lost)
	}
	j.term = t
	lost, known := j.seen.after(t.at)
	j.mu.Unlock()
	go j.renewing(t)  //nolint:gosec // a term outlasts the call that began it
	err := j.recall() // servers that share the file may have seen more than this one
	for n := 0; known && n < len(lost) && err == nil; n += pageRecords {
		var records [][]byte
		for _, k := range lost[n:min(n+pageRecords, len(lost))] {
			records = append(records, k.data)
		}
		err = j.add(ctx, t, records)
	}
	if err == nil && known && len(lost) > 0 {
		j.o.Log.Warn("the journal had lost records that this server still had: they are back", "records", len(lost), "last", t.at.seq)
	}
	if err == nil {
		err = j.compare(ctx, t.at)
	}
	if err == nil && (j.o.MinReplicas > 0 || j.o.Fsync) {
		err = j.add(ctx, t, nil) // the last leader may have gone before it knew that its records are safe: here they count
	}
	if err != nil {
		j.end(t)
		_ = j.letGo(ctx, t) // else it runs out
		return err
	}
	j.mu.Lock()
	if !known {
		j.seen.reset(t.at)
	}
	j.mu.Unlock()
	return nil
}

// compare says whether the store, which ends at a place, holds the newest record that this
// server knows to be acknowledged.
func (j *Journal) compare(ctx context.Context, at place) error {
	j.mu.Lock()
	mine := j.acked
	if j.saved.seq > mine.seq {
		mine = j.saved
	}
	j.mu.Unlock()
	if mine.seq == 0 {
		return nil
	}
	there := at.chain
	if at.seq > mine.seq {
		m, err := j.meta(ctx)
		if err != nil {
			return err
		}
		switch {
		case m.snap > mine.seq:
			return nil // nothing is left to compare with
		case m.snap == mine.seq:
			there = m.snapChain
		default:
			page, err := j.page(ctx, place{seq: mine.seq - 1}, idOf(mine.seq), 1)
			if err != nil {
				return err
			}
			if len(page) == 0 {
				return j.corrupt(fmt.Sprintf("record %d is missing", mine.seq))
			}
			there = page[0].chain
		}
	}
	if at.seq >= mine.seq && there == mine.chain {
		return nil
	}
	what := fmt.Sprintf("it ends at record %d", at.seq)
	if at.seq >= mine.seq {
		what = fmt.Sprintf("its record %d is another", mine.seq)
	}
	return &journal.Error{Code: journal.ErrBehind, Msg: fmt.Sprintf("journal %s has lost what was acknowledged: this server knows of record %d, and %s. "+
		"Going on would lose tasks or run some twice, so this server does not lead. Restore newer Redis data, or import the newest export; "+
		"to go on with what there is, remove %s on every server (docs/operations.md says what is lost then)", j.name, mine.seq, what, j.seenFile())}
}

func (j *Journal) seenFile() string {
	if j.o.Seen == "" {
		return "nothing, but start anew"
	}
	return j.o.Seen
}

// renewing keeps the lease of a term for as long as it can.
func (j *Journal) renewing(t *term) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer j.end(t)
	every, soon := j.o.Lease/3, j.o.Lease/20
	for wait := every; ; {
		left := t.left()
		select {
		case <-t.lost:
			return
		case <-time.After(min(wait, left)):
		}
		asked := time.Now()
		if left = t.left(); left <= 0 {
			j.o.Log.Warn("the lease ran out: this server leads no more", "err", t.trouble())
			return
		}
		bound, stop := context.WithTimeout(ctx, min(left, every))
		said, err := j.renew(bound, t)
		stop()
		switch {
		case err != nil:
			t.troubled(err)
			wait = soon
		case said[0] != "ok":
			j.o.Log.Warn("another server leads now", "holder", said[1])
			return
		default:
			t.mu.Lock()
			t.until, t.err = asked.Add(j.o.Lease), nil
			t.mu.Unlock()
			wait = every
			j.remember()
		}
	}
}

func (j *Journal) renew(ctx context.Context, t *term) ([]string, error) {
	node, err := j.node(ctx)
	if err != nil {
		return nil, err
	}
	j.mu.Lock()
	acked := j.acked.seq
	j.mu.Unlock()
	return words(renew.Eval(ctx, node, []string{j.keys.meta, j.keys.lease}, t.holder, t.text, j.o.Lease.Milliseconds(), number(acked)))
}

// Resign implements journal.Shared.
func (j *Journal) Resign(ctx context.Context) error {
	j.writing.Lock()
	defer j.writing.Unlock()
	j.mu.Lock()
	t := j.term
	j.mu.Unlock()
	if t == nil {
		return nil
	}
	j.end(t)
	return j.letGo(ctx, t)
}

// letGo gives the lease back to the store.
func (j *Journal) letGo(ctx context.Context, t *term) error {
	node, err := j.node(ctx)
	if err == nil {
		_, err = words(resign.Eval(ctx, node, []string{j.keys.meta, j.keys.lease}, t.holder))
	}
	return j.translate("resign from", err)
}

// Adopt makes this server's site the one whose servers may lead, while nobody does. It
// returns the site that it was.
func (j *Journal) Adopt(ctx context.Context) (was string, err error) {
	if err := j.enter(ctx); err != nil {
		return "", err
	}
	bound, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	node, err := j.node(bound)
	if err != nil {
		return "", j.translate("move", err)
	}
	said, err := words(adopt.Eval(bound, node, []string{j.keys.meta, j.keys.lease}, j.o.Site, formatVersion))
	switch {
	case err != nil:
		return "", j.translate("move", err)
	case said[0] == "held":
		return "", &journal.Error{Code: journal.ErrLocked, Msg: fmt.Sprintf("a server leads now (%s): stop all servers of the old site first", said[1])}
	case said[0] == "version" && said[1] == "none":
		return "", &journal.Error{Code: journal.ErrFailed, Msg: fmt.Sprintf("journal %s is empty: any server may lead", j.name)}
	case said[0] == "version":
		return "", j.newer(said[1])
	}
	return said[1], nil
}

// Status implements journal.Shared.
func (j *Journal) Status(ctx context.Context) (s journal.Status, err error) {
	if err := j.enter(ctx); err != nil {
		return s, err
	}
	bound, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	s, _, err = j.look(bound)
	return s, j.translate("read", err)
}
