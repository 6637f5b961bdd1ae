package journaltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/journal"
)

// SharedJournal is a journal that several servers have open.
type SharedJournal interface {
	journal.Journal
	journal.Shared
}

// Place is one store, empty at first.
type Place struct {
	Open   func() SharedJournal // each is a server of its own; no lease may run out by itself during a test
	Expire func()               // ends the lease as time would, without telling the leader
}

// RunShared checks what journals have beyond Run where several servers share them.
func RunShared(t *testing.T, place func(t *testing.T) Place) {
	for _, x := range []struct {
		name string
		test func(t *testing.T, p Place)
	}{
		{"one leads, and the next when it resigns", oneLeads}, {"who does not lead writes nothing", bystander},
		{"a deposed leader never writes again", deposed}, {"a leader leads again after another", again},
		{"a follower is told what comes", follow}, {"a follower that is far behind begins again", farBehind},
		{"a follower that is behind a snapshot hears of it", behindAll},
		{"a follower of nothing begins with nothing", fromNothing}, {"the end of a journal ends its lead", closing},
	} {
		t.Run(x.name, func(t *testing.T) { x.test(t, place(t)) })
	}
}

const soon = 20 * time.Second // longer than anything here takes

func leads(t *testing.T, j SharedJournal, url string) <-chan struct{} {
	t.Helper()
	bound, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	lost, err := j.Lead(bound, url)
	must(t, err)
	return lost
}

func refused(t *testing.T, j SharedJournal) {
	t.Helper()
	if _, err := j.Append(ctx, [][]byte{[]byte("late")}); code(err) != journal.ErrDeposed {
		t.Fatalf("an append got %v, want %s", err, journal.ErrDeposed)
	}
	if err := j.Snapshot(ctx, 1, []byte("late")); code(err) != journal.ErrDeposed {
		t.Fatalf("a snapshot got %v, want %s", err, journal.ErrDeposed)
	}
}

func ended(t *testing.T, lost <-chan struct{}) {
	t.Helper()
	select {
	case <-lost:
	case <-time.After(soon):
		t.Fatal("the lead is lost, and its channel is not closed")
	}
}

func status(t *testing.T, j SharedJournal, want journal.Status) {
	t.Helper()
	got, err := j.Status(ctx)
	must(t, err)
	if got != want {
		t.Fatalf("status %+v, want %+v", got, want)
	}
}

func oneLeads(t *testing.T, p Place) {
	a, b := p.Open(), p.Open()
	status(t, a, journal.Status{})
	leads(t, a, "http://a")
	appendAll(t, a, "1")
	status(t, a, journal.Status{Leader: "http://a", Self: true, Last: 1})
	status(t, b, journal.Status{Leader: "http://a", Last: 1})
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := b.Lead(short, "http://b"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a second server leads beside the first (%v)", err)
	}
	must(t, a.Resign(ctx))
	refused(t, a)
	leads(t, b, "http://b")
	if got := appendAll(t, b, "2"); got != 2 {
		t.Fatalf("the next leader's first record is %d, want 2", got)
	}
	status(t, a, journal.Status{Leader: "http://b", Last: 2})
	must(t, errors.Join(a.Close(), b.Close()))
}

func bystander(t *testing.T, p Place) {
	a, b := p.Open(), p.Open()
	refused(t, a)
	leads(t, a, "http://a")
	appendAll(t, a, "1")
	refused(t, b)
	expect(t, b, content{seqs: []uint64{1}, records: []string{"1"}})
	must(t, errors.Join(a.Close(), b.Close()))
}

func deposed(t *testing.T, p Place) {
	a, b := p.Open(), p.Open()
	lost := leads(t, a, "http://a")
	appendAll(t, a, "1")
	p.Expire()
	leads(t, b, "http://b")
	refused(t, a) // it has not heard yet
	appendAll(t, b, "2")
	refused(t, a)
	ended(t, lost)
	expect(t, b, content{seqs: []uint64{1, 2}, records: []string{"1", "2"}})
	must(t, b.Snapshot(ctx, 2, []byte("12")))
	refused(t, a)
	expect(t, a, content{hasSnapshot: true, snapSeq: 2, snapshot: "12"})
	must(t, errors.Join(a.Close(), b.Close()))
}

func again(t *testing.T, p Place) {
	a, b := p.Open(), p.Open()
	leads(t, a, "http://a")
	appendAll(t, a, "1")
	p.Expire()
	lost := leads(t, b, "http://b")
	appendAll(t, b, "2", "3")
	p.Expire()
	leads(t, a, "http://a")
	if got := appendAll(t, a, "4"); got != 4 {
		t.Fatalf("the first record of the second lead is %d, want 4", got)
	}
	refused(t, b)
	ended(t, lost)
	expect(t, a, content{seqs: []uint64{1, 2, 3, 4}, records: []string{"1", "2", "3", "4"}})
	must(t, errors.Join(a.Close(), b.Close()))
}

// told is what a follower heard.
type told struct {
	mu   sync.Mutex
	news chan struct{}
	all  []string
}

func (h *told) add(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, what)
	select {
	case h.news <- struct{}{}:
	default:
	}
}

func (h *told) wait(t *testing.T, want ...string) {
	t.Helper()
	deadline := time.After(soon)
	for {
		h.mu.Lock()
		got := slices.Clone(h.all)
		h.mu.Unlock()
		if slices.Equal(got, want) {
			return
		}
		select {
		case <-h.news:
		case <-deadline:
			t.Fatalf("a follower heard %q, want %q", got, want)
		}
	}
}

// following lets j follow until the test ends, or stop is called.
func following(t *testing.T, j SharedJournal, after uint64) (h *told, stop func()) {
	h = &told{news: make(chan struct{}, 1)}
	bound, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- j.Follow(bound, after, func(seq uint64, b []byte) error {
			h.add(fmt.Sprintf("reset %d %s", seq, b))
			return nil
		}, func(seq uint64, b []byte) error {
			h.add(fmt.Sprintf("%d %s", seq, b))
			return nil
		})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Follow ended with %v, want it cancelled", err)
		}
	})
	t.Cleanup(stop)
	return h, stop
}

func follow(t *testing.T, p Place) {
	a, b := p.Open(), p.Open()
	leads(t, a, "http://a")
	appendAll(t, a, "one", "two")
	_, err := load(b)
	must(t, err)
	h, stop := following(t, b, 2)
	appendAll(t, a, "three")
	h.wait(t, "3 three")
	appendAll(t, a, "four", "five")
	h.wait(t, "3 three", "4 four", "5 five")
	must(t, a.Snapshot(ctx, 5, []byte("all"))) // nothing new to one who keeps up
	appendAll(t, a, "six")
	h.wait(t, "3 three", "4 four", "5 five", "6 six")
	stop()
	must(t, errors.Join(a.Close(), b.Close()))
}

func farBehind(t *testing.T, p Place) {
	a, b := p.Open(), p.Open()
	leads(t, a, "http://a")
	appendAll(t, a, "one", "two", "three")
	_, err := load(b)
	must(t, err)
	appendAll(t, a, "four", "five")
	must(t, a.Snapshot(ctx, 4, []byte("1-4")))
	h, stop := following(t, b, 3)
	h.wait(t, "reset 4 1-4", "5 five")
	appendAll(t, a, "six")
	h.wait(t, "reset 4 1-4", "5 five", "6 six")
	stop()
	must(t, errors.Join(a.Close(), b.Close()))
}

// behindAll has nothing after the snapshot, so that no record shows that some are missing.
func behindAll(t *testing.T, p Place) {
	a, b := p.Open(), p.Open()
	leads(t, a, "http://a")
	appendAll(t, a, "one", "two")
	_, err := load(b)
	must(t, err)
	appendAll(t, a, "three")
	must(t, a.Snapshot(ctx, 3, []byte("1-3")))
	h, stop := following(t, b, 2)
	h.wait(t, "reset 3 1-3")
	stop()
	must(t, errors.Join(a.Close(), b.Close()))
}

func fromNothing(t *testing.T, p Place) {
	a, b := p.Open(), p.Open()
	_, err := load(b)
	must(t, err)
	h, stop := following(t, b, 0)
	leads(t, a, "http://a")
	appendAll(t, a, "one")
	h.wait(t, "1 one")
	stop()
	must(t, errors.Join(a.Close(), b.Close()))
}

func closing(t *testing.T, p Place) {
	a, b := p.Open(), p.Open()
	lost := leads(t, a, "http://a")
	must(t, a.Close())
	ended(t, lost)
	leads(t, b, "http://b")
	if _, err := a.Lead(ctx, "http://a"); code(err) != journal.ErrClosed {
		t.Fatalf("got %v, want %s", err, journal.ErrClosed)
	}
	must(t, b.Close())
}
