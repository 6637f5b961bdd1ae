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
	"slices"
	"testing"

	"pgregory.net/rapid"

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
		{"copies what it is given", copies}, {"holds large records", large}, {"holds an empty state", emptyState},
		{"drops many records at once", many},
	} {
		t.Run(x.name, func(t *testing.T) { x.test(t, place(t)) })
	}
	t.Run("random histories", func(t *testing.T) { histories(t, place) })
}

// RunRestore checks a journal.Restorer as Run checks a journal.
func RunRestore(t *testing.T, place func(t *testing.T) (open func() journal.Journal)) {
	restore := func(j journal.Journal, seq uint64, state string) error {
		return j.(journal.Restorer).Restore(ctx, seq, []byte(state)) //nolint:forcetypeassert // what this is about
	}
	t.Run("goes on after what was put in", func(t *testing.T) {
		open := place(t)
		j := open()
		must(t, restore(j, 41, "state"))
		want := content{hasSnapshot: true, snapSeq: 41, snapshot: "state"}
		expect(t, j, want)
		if got := appendAll(t, j, "next"); got != 42 {
			t.Fatalf("the next record is number %d, want 42", got)
		}
		must(t, j.Close())
		j = open()
		want.seqs, want.records = []uint64{42}, []string{"next"}
		expect(t, j, want)
		must(t, j.Snapshot(ctx, 42, []byte("later")))
		expect(t, j, content{hasSnapshot: true, snapSeq: 42, snapshot: "later"})
		must(t, j.Close())
	})
	t.Run("refuses where something is", func(t *testing.T) {
		open := place(t)
		j := open()
		appendAll(t, j, "a")
		if err := restore(j, 9, "state"); code(err) != journal.ErrSequence {
			t.Fatalf("got %v, want %s", err, journal.ErrSequence)
		}
		expect(t, j, content{seqs: []uint64{1}, records: []string{"a"}})
		must(t, j.Close())
		open = place(t)
		j = open()
		must(t, j.Snapshot(ctx, 0, []byte("of nothing")))
		if err := restore(j, 9, "state"); code(err) != journal.ErrSequence {
			t.Fatalf("got %v, want %s", err, journal.ErrSequence)
		}
		must(t, j.Close())
	})
}

var ctx = context.Background()

func must(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func appendAll(t rapid.TB, j journal.Journal, records ...string) uint64 {
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
	hasSnapshot bool
	snapSeq     uint64
	snapshot    string
	seqs        []uint64
	records     []string
}

func load(j journal.Journal) (c content, err error) {
	err = j.Load(ctx, func(seq uint64, b []byte) error {
		c.hasSnapshot, c.snapSeq, c.snapshot = true, seq, string(b)
		return nil
	}, func(seq uint64, b []byte) error {
		c.seqs, c.records = append(c.seqs, seq), append(c.records, string(b))
		return nil
	})
	return c, err
}

func expect(t rapid.TB, j journal.Journal, want content) {
	t.Helper()
	got, err := load(j)
	must(t, err)
	if got.hasSnapshot != want.hasSnapshot || got.snapSeq != want.snapSeq || got.snapshot != want.snapshot || !slices.Equal(got.seqs, want.seqs) || !slices.Equal(got.records, want.records) {
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
	want := content{hasSnapshot: true, snapSeq: 2, snapshot: "ab", seqs: []uint64{3}, records: []string{"c"}}
	expect(t, j, want)
	must(t, j.Close())
	j = open()
	expect(t, j, want)
	must(t, j.Snapshot(ctx, 3, []byte("abc")))
	expect(t, j, content{hasSnapshot: true, snapSeq: 3, snapshot: "abc"})
	must(t, j.Snapshot(ctx, 3, []byte("again")))
	if got := appendAll(t, j, "d"); got != 4 {
		t.Fatalf("after a snapshot of everything the next record is number %d, want 4", got)
	}
	expect(t, j, content{hasSnapshot: true, snapSeq: 3, snapshot: "again", seqs: []uint64{4}, records: []string{"d"}})
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
	expect(t, j, content{hasSnapshot: true, snapSeq: 2, snapshot: "ab"})
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
	must(t, j.Close()) // again
	for _, err := range []error{err, j.Snapshot(ctx, 0, nil), errLoad} {
		if code(err) != journal.ErrClosed {
			t.Fatalf("got %v, want %s", err, journal.ErrClosed)
		}
	}
}

func cancelled(t *testing.T, open func() journal.Journal) {
	j := open()
	appendAll(t, j, "a")
	dead, cancel := context.WithCancel(ctx)
	cancel()
	_, err := j.Append(dead, [][]byte{[]byte("b")})
	none := func(uint64, []byte) error { return errors.New("a cancelled load told something") }
	for _, err := range []error{err, j.Snapshot(dead, 1, []byte("a")), j.Load(dead, none, none)} {
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v, want it cancelled", err)
		}
	}
	want := content{seqs: []uint64{1}, records: []string{"a"}}
	expect(t, j, want)
	must(t, j.Close())
	j = open()
	expect(t, j, want)
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
	expect(t, j, content{hasSnapshot: true, snapSeq: 1, snapshot: "s"})
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
	if len(got.records) != 3 || got.records[0] != string(big) || got.records[1] != "small" || got.records[2] != string(big) {
		t.Fatal("large records came back changed")
	}
	must(t, j.Snapshot(ctx, 2, big))
	got, err = load(j)
	must(t, err)
	if got.snapshot != string(big) || len(got.records) != 1 || got.records[0] != string(big) {
		t.Fatal("a large state came back changed")
	}
	must(t, j.Close())
}

// A state may be empty, and stand for nothing yet.
func emptyState(t *testing.T, open func() journal.Journal) {
	j := open()
	must(t, j.Snapshot(ctx, 0, nil))
	expect(t, j, content{hasSnapshot: true})
	appendAll(t, j, "a")
	must(t, j.Close())
	j = open()
	expect(t, j, content{hasSnapshot: true, seqs: []uint64{1}, records: []string{"a"}})
	must(t, j.Snapshot(ctx, 1, nil))
	expect(t, j, content{hasSnapshot: true, snapSeq: 1})
	must(t, j.Close())
}

func many(t *testing.T, open func() journal.Journal) {
	j := open()
	var group []string
	for i := range 5000 {
		group = append(group, fmt.Sprintf("record %080d", i+1))
	}
	appendAll(t, j, group...)
	must(t, j.Snapshot(ctx, 4998, []byte("s")))
	want := content{hasSnapshot: true, snapSeq: 4998, snapshot: "s", seqs: []uint64{4999, 5000}, records: group[4998:]}
	expect(t, j, want)
	must(t, j.Close())
	j = open()
	expect(t, j, want)
	must(t, j.Close())
}

// histories plays random calls, with closing and opening between them, against
// what a list would do.
func histories(t *testing.T, place func(t *testing.T) func() journal.Journal) {
	rapid.Check(t, func(r *rapid.T) {
		open := place(t)
		j := open()
		defer func() { must(r, j.Close()) }()
		var want content
		last := uint64(0)
		reopen := func(r *rapid.T) {
			must(r, j.Close())
			j = open()
		}
		look := func(r *rapid.T) { expect(r, j, want) }
		r.Repeat(map[string]func(*rapid.T){
			"append": func(r *rapid.T) {
				group := rapid.SliceOfN(rapid.StringN(0, 40, 300), 0, 12).Draw(r, "group")
				for _, rec := range group {
					last++
					want.seqs, want.records = append(want.seqs, last), append(want.records, rec)
				}
				if got := appendAll(r, j, group...); got != last {
					r.Fatalf("last record %d, want %d", got, last)
				}
			},
			"snapshot": func(r *rapid.T) {
				seq := rapid.Uint64Range(want.snapSeq, last).Draw(r, "seq")
				state := rapid.StringN(0, 40, 300).Draw(r, "state")
				must(r, j.Snapshot(ctx, seq, []byte(state)))
				drop := int(seq - want.snapSeq)
				want.snapSeq, want.snapshot, want.hasSnapshot = seq, state, true
				want.seqs, want.records = want.seqs[drop:], want.records[drop:]
			},
			"refused": func(r *rapid.T) {
				seq := last + rapid.Uint64Range(1, 3).Draw(r, "beyond")
				if want.snapSeq > 0 && rapid.Bool().Draw(r, "before") {
					seq = want.snapSeq - 1
				}
				if err := j.Snapshot(ctx, seq, nil); code(err) != journal.ErrSequence {
					r.Fatalf("a snapshot at %d of %d to %d: got %v, want %s", seq, want.snapSeq, last, err, journal.ErrSequence)
				}
			},
			"reopen": reopen,
			"load":   look,
		})
		look(r)
		reopen(r)
		look(r)
	})
}
