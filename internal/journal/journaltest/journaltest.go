// Package journaltest is the conformance suite that every journal passes.
//
// It opens each journal many times over small histories; its own cost does not
// matter.
package journaltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gpupool/gpupool/internal/journal"
)

// Run checks a journal. place returns a function that opens one and the same store
// again and again, empty at first.
func Run(t *testing.T, place func(t *testing.T) (open func() journal.Journal)) {
	for _, x := range []struct {
		name string
		test func(t *testing.T, open func() journal.Journal)
	}{
		{"numbers records from 1", numbers}, {"keeps groups whole and in order", order},
		{"an empty group stores nothing", emptyGroup}, {"a snapshot replaces what it stands for", snapshot},
		{"refuses a snapshot that does not fit", badSnapshot}, {"an error of a callback ends the walk", callbackError},
		{"refuses use after close", afterClose}, {"a cancelled call stores nothing", cancelled},
		{"copies what it is given", copies}, {"holds large records", large}, {"random histories", histories},
	} {
		t.Run(x.name, func(t *testing.T) { x.test(t, place(t)) })
	}
}

var ctx = context.Background()

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func appendAll(t *testing.T, j journal.Journal, records ...string) uint64 {
	t.Helper()
	var group [][]byte
	for _, r := range records {
		group = append(group, []byte(r))
	}
	last, err := j.Append(ctx, group)
	must(t, err)
	return last
}

// content is what a journal holds.
type content struct {
	snapSeq  uint64
	snapshot string
	seqs     []uint64
	records  []string
}

func load(j journal.Journal) (c content, err error) {
	err = j.Load(ctx, func(seq uint64, b []byte) error {
		c.snapSeq, c.snapshot = seq, string(b)
		return nil
	}, func(seq uint64, b []byte) error {
		c.seqs, c.records = append(c.seqs, seq), append(c.records, string(b))
		return nil
	})
	return c, err
}

func expect(t *testing.T, j journal.Journal, want content) {
	t.Helper()
	got, err := load(j)
	must(t, err)
	if got.snapSeq != want.snapSeq || got.snapshot != want.snapshot || !slices.Equal(got.seqs, want.seqs) || !slices.Equal(got.records, want.records) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}

func code(err error) journal.Code {
	if e, ok := errors.AsType[*journal.Error](err); ok {
		return e.Code
	}
	return ""
}

func numbers(t *testing.T, open func() journal.Journal) {
	j := open()
	if got := appendAll(t, j, "a"); got != 1 {
		t.Fatalf("the first record is number %d, want 1", got)
	}
	if got := appendAll(t, j, "b", "c"); got != 3 {
		t.Fatalf("the third record is number %d, want 3", got)
	}
	must(t, j.Close())
}

func order(t *testing.T, open func() journal.Journal) {
	j := open()
	expect(t, j, content{})
	appendAll(t, j, "a", "b")
	appendAll(t, j, "c")
	want := content{seqs: []uint64{1, 2, 3}, records: []string{"a", "b", "c"}}
	expect(t, j, want)
	must(t, j.Close())
	j = open()
	expect(t, j, want)
	if got := appendAll(t, j, "d"); got != 4 {
		t.Fatalf("after opening again the next record is number %d, want 4", got)
	}
	must(t, j.Close())
}

func emptyGroup(t *testing.T, open func() journal.Journal) {
	j := open()
	appendAll(t, j, "a")
	if got := appendAll(t, j); got != 1 {
		t.Fatalf("an empty group returned %d, want 1", got)
	}
	appendAll(t, j, "")
	expect(t, j, content{seqs: []uint64{1, 2}, records: []string{"a", ""}})
	must(t, j.Close())
}

func snapshot(t *testing.T, open func() journal.Journal) {
	j := open()
	appendAll(t, j, "a", "b", "c")
	must(t, j.Snapshot(ctx, 2, []byte("ab")))
	want := content{snapSeq: 2, snapshot: "ab", seqs: []uint64{3}, records: []string{"c"}}
	expect(t, j, want)
	must(t, j.Close())
	j = open()
	expect(t, j, want)
	must(t, j.Snapshot(ctx, 3, []byte("abc")))
	expect(t, j, content{snapSeq: 3, snapshot: "abc"})
	must(t, j.Snapshot(ctx, 3, []byte("again")))
	if got := appendAll(t, j, "d"); got != 4 {
		t.Fatalf("after a snapshot of everything the next record is number %d, want 4", got)
	}
	expect(t, j, content{snapSeq: 3, snapshot: "again", seqs: []uint64{4}, records: []string{"d"}})
	must(t, j.Close())
}

func badSnapshot(t *testing.T, open func() journal.Journal) {
	j := open()
	appendAll(t, j, "a", "b")
	must(t, j.Snapshot(ctx, 2, []byte("ab")))
	for _, seq := range []uint64{1, 3} {
		if err := j.Snapshot(ctx, seq, []byte("x")); code(err) != journal.ErrSequence {
			t.Fatalf("a snapshot at %d: got %v, want %s", seq, err, journal.ErrSequence)
		}
	}
	expect(t, j, content{snapSeq: 2, snapshot: "ab"})
	must(t, j.Close())
}

func callbackError(t *testing.T, open func() journal.Journal) {
	j := open()
	appendAll(t, j, "a", "b", "c")
	stop := errors.New("stop")
	seen := 0
	err := j.Load(ctx, nil, func(seq uint64, _ []byte) error {
		if seen++; seq == 2 {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) || seen != 2 {
		t.Fatalf("got %v after %d records, want the callback's error after 2", err, seen)
	}
	must(t, j.Snapshot(ctx, 3, []byte("abc")))
	err = j.Load(ctx, func(uint64, []byte) error { return stop }, nil)
	if !errors.Is(err, stop) {
		t.Fatalf("got %v, want the snapshot callback's error", err)
	}
	must(t, j.Close())
}

func afterClose(t *testing.T, open func() journal.Journal) {
	j := open()
	must(t, j.Close())
	_, err := j.Append(ctx, [][]byte{[]byte("a")})
	_, errLoad := load(j)
	for _, err := range []error{err, j.Snapshot(ctx, 0, nil), errLoad} {
		if code(err) != journal.ErrClosed {
			t.Fatalf("got %v, want %s", err, journal.ErrClosed)
		}
	}
}

func cancelled(t *testing.T, open func() journal.Journal) {
	j := open()
	dead, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := j.Append(dead, [][]byte{[]byte("a")}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want it cancelled", err)
	}
	expect(t, j, content{})
	must(t, j.Close())
}

func copies(t *testing.T, open func() journal.Journal) {
	j := open()
	rec, state := []byte("a"), []byte("s")
	_, err := j.Append(ctx, [][]byte{rec})
	must(t, err)
	rec[0] = 'x'
	expect(t, j, content{seqs: []uint64{1}, records: []string{"a"}})
	must(t, j.Snapshot(ctx, 1, state))
	state[0] = 'x'
	expect(t, j, content{snapSeq: 1, snapshot: "s"})
	must(t, j.Close())
}

func large(t *testing.T, open func() journal.Journal) {
	j := open()
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
	_, err := j.Append(ctx, [][]byte{big, []byte("small"), big})
	must(t, err)
	must(t, j.Close())
	j = open()
	got, err := load(j)
	must(t, err)
	if len(got.records) != 3 || got.records[0] != string(big) || got.records[1] != "small" {
		t.Fatal("large records came back changed")
	}
	must(t, j.Close())
}

// histories plays random calls, with closing and opening between them, against
// what a list would do.
func histories(t *testing.T, open func() journal.Journal) {
	rng := rand.New(rand.NewPCG(7, 7))
	j := open()
	var want content
	last := uint64(0)
	for step := range 120 {
		switch rng.IntN(6) {
		case 0:
			must(t, j.Close())
			j = open()
		case 1:
			seq := want.snapSeq + rng.Uint64N(last-want.snapSeq+1)
			state := fmt.Sprint("state ", step)
			must(t, j.Snapshot(ctx, seq, []byte(state)))
			drop := int(seq - want.snapSeq)
			want.snapSeq, want.snapshot = seq, state
			want.seqs, want.records = want.seqs[drop:], want.records[drop:]
		default:
			var group []string
			for i := range rng.IntN(5) {
				group = append(group, fmt.Sprintf("%d-%d", step, i))
				last++
				want.seqs, want.records = append(want.seqs, last), append(want.records, group[i])
			}
			if got := appendAll(t, j, group...); got != last {
				t.Fatalf("step %d: last record %d, want %d", step, got, last)
			}
		}
		expect(t, j, want)
	}
	must(t, j.Close())
}
