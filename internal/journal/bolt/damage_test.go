package bolt_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/gpupool/gpupool/internal/journal"
	"github.com/gpupool/gpupool/internal/journal/bolt"
)

var page = os.Getpagesize() // of the sample

// state and record are what the sample holds under a number.
func state(seq uint64) []byte { return bytes.Repeat(fmt.Appendf(nil, "state %d ", seq), 1000) }

func record(seq uint64) []byte {
	if seq%97 == 0 {
		return bytes.Repeat(fmt.Appendf(nil, "%d ", seq), 2000)
	}
	return fmt.Appendf(nil, "record %0100d", seq)
}

// sample is a valid file of several levels of pages, a large snapshot, large records
// and free pages. Its last group is the numbers 691 to 700.
const sampleSnap, sampleLast, sampleGroup = 100, 700, 10

func sample(t testing.TB) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal.db")
	j := mustOpen(t, path)
	for last := uint64(0); last < sampleLast; last += sampleGroup {
		appendRecords(t, j, last, sampleGroup)
		if last == 2*sampleSnap {
			if err := j.Snapshot(context.Background(), sampleSnap, state(sampleSnap)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func appendRecords(t testing.TB, j journal.Journal, last uint64, n int) {
	t.Helper()
	var group [][]byte
	for range n {
		last++
		group = append(group, record(last))
	}
	if got, err := j.Append(context.Background(), group); err != nil || got != last {
		t.Fatalf("append: %d, %v; want %d", got, err, last)
	}
}

// loadSample loads, and fails the test if what it gets was never stored.
func loadSample(t testing.TB, j journal.Journal) (snap, last uint64, err error) {
	t.Helper()
	err = j.Load(context.Background(), func(seq uint64, b []byte) error {
		if !bytes.Equal(b, state(seq)) {
			t.Errorf("the snapshot at record %d was never stored", seq)
		}
		snap, last = seq, seq
		return nil
	}, func(seq uint64, b []byte) error {
		if last++; seq != last || !bytes.Equal(b, record(seq)) {
			t.Errorf("record %d (want %d) was never stored", seq, last)
		}
		return nil
	})
	return snap, last, err
}

// tryDamaged opens damaged bytes: it is refused, or what it holds is all that was
// written, perhaps without the last group, and can be worked with.
func tryDamaged(t testing.TB, b []byte) (refused error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal.db")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		mustBeDamage(t, path, b, err)
		return err
	}
	defer func() { j.Close() }()
	snap, last, err := loadSample(t, j)
	if err != nil {
		mustBeDamage(t, path, b, err)
		return err
	}
	if snap != sampleSnap || last != sampleLast && last != sampleLast-sampleGroup {
		t.Fatalf("no error, and a snapshot at %d and records up to %d; want %d and %d", snap, last, sampleSnap, sampleLast)
	}
	appendRecords(t, j, last, sampleGroup)
	if err := j.Snapshot(context.Background(), last, state(last)); err != nil {
		t.Fatal(err)
	}
	appendRecords(t, j, last+sampleGroup, sampleGroup)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = mustOpen(t, path)
	if gotSnap, gotLast, err := loadSample(t, j); err != nil || gotSnap != last || gotLast != last+2*sampleGroup {
		t.Fatalf("afterwards: snapshot at %d, records up to %d, %v; want %d, %d", gotSnap, gotLast, err, last, last+2*sampleGroup)
	}
	return nil
}

// mustBeDamage: the error says what is wrong, found by looking and not by a panic, and
// the file is as it was.
func mustBeDamage(t testing.TB, path string, was []byte, err error) {
	t.Helper()
	if c := code(err); c != journal.ErrCorrupt && c != journal.ErrVersion || !strings.Contains(err.Error(), path) {
		t.Fatalf("got %v (%s), want %s with the path", err, c, journal.ErrCorrupt)
	}
	if strings.Contains(err.Error(), "it cannot be used") {
		t.Fatalf("it took a panic to see that the file is damaged: %v", err)
	}
	if is, err := os.ReadFile(path); err != nil || !bytes.Equal(is, was) {
		t.Fatalf("the damaged file was changed (%v)", err)
	}
}

// A file that was cut is refused, unless only unused space at its end is missing.
func TestTruncated(t *testing.T) {
	b := sample(t)
	refused := 0
	for cut := 512; cut < len(b); cut += 512 + cut/8 {
		if tryDamaged(t, b[:cut]) != nil {
			refused++
		}
	}
	if refused < 10 {
		t.Fatalf("%d cuts were refused", refused)
	}
}

// TestDamaged plays what goes wrong on disks, at random.
func TestDamaged(t *testing.T) {
	b := sample(t)
	rng := rand.New(rand.NewPCG(3, 4))
	refused, rounds := 0, 400
	for range rounds {
		d := bytes.Clone(b)
		at := rng.IntN(len(b)/page) * page
		switch rng.IntN(5) {
		case 0: // a bit of a header, or of what follows it
			d[at+rng.IntN(400)] ^= 1 << rng.IntN(8)
		case 1:
			d[at+rng.IntN(page)] ^= byte(1 + rng.IntN(255))
		case 2: // a sector
			clear(d[at+rng.IntN(8)*512:][:512])
		case 3: // a page in the wrong place
			copy(d[at:at+page], b[rng.IntN(len(b)/page)*page:])
		case 4: // a small number where there was another
			binary.NativeEndian.PutUint32(d[at+4*rng.IntN(100):], rng.Uint32N(300))
		}
		if tryDamaged(t, d) != nil {
			refused++
		}
	}
	if refused < rounds/4 {
		t.Fatalf("of %d damaged files only %d were refused", rounds, refused)
	}
}

// A file that another process has open is in use, and not to be judged: half of what
// that process writes looks like damage.
func TestLockedFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	if err := os.WriteFile(path, sample(t), 0o600); err != nil {
		t.Fatal(err)
	}
	j := mustOpen(t, path)
	defer j.Close()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(make([]byte, 2*page), int64(2*page))
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := bolt.Open(path, bolt.Options{LockTimeout: time.Millisecond}); code(err) != journal.ErrLocked {
		t.Fatalf("got %v, want %s", err, journal.ErrLocked)
	}
	if _, err := bolt.Open(path, bolt.Options{LockTimeout: time.Millisecond, ReadOnly: true}); code(err) != journal.ErrLocked {
		t.Fatalf("read only: got %v, want %s", err, journal.ErrLocked)
	}
}

// A branch that leads back to itself would keep bbolt busy until the stack is full.
func TestCircle(t *testing.T) {
	b := sample(t)
	branches := 0
	for at := 2 * page; at < len(b); at += page {
		if kind, n := binary.NativeEndian.Uint16(b[at+8:]), int(binary.NativeEndian.Uint16(b[at+10:])); kind == 1 && n < 200 {
			branches++
			for i := range n {
				binary.NativeEndian.PutUint64(b[at+16+16*i+8:], uint64(at/page))
			}
		}
	}
	if branches == 0 {
		t.Fatal("the sample has no branch page")
	}
	if tryDamaged(t, b) == nil {
		t.Fatal("a circle was not refused")
	}
}

// A page in use that is also listed as free would be written over.
func TestFreeInUse(t *testing.T) {
	b := sample(t)
	for at := 2 * page; at < len(b); at += page {
		if kind, n := binary.NativeEndian.Uint16(b[at+8:]), binary.NativeEndian.Uint16(b[at+10:]); kind == 0x10 && n > 0 {
			binary.NativeEndian.PutUint64(b[at+16:], uint64(at/page))
		}
	}
	if tryDamaged(t, b) == nil {
		t.Fatal("a free page in use was not refused")
	}
}

// edit changes the sample through bbolt itself: whole pages, wrong content.
func edit(t *testing.T, f func(meta, records *bbolt.Bucket) error) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal.db")
	if err := os.WriteFile(path, sample(t), 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error { return f(tx.Bucket([]byte("meta")), tx.Bucket([]byte("records"))) })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return tryDamaged(t, b)
}

func TestWrongContent(t *testing.T) {
	num := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	for _, x := range []struct {
		name string
		say  string
		f    func(meta, records *bbolt.Bucket) error
	}{
		{"a record changed", "record 300 does not match", func(_, r *bbolt.Bucket) error {
			v := bytes.Clone(r.Get(num(300)))
			v[len(v)-1] ^= 1
			return r.Put(num(300), v)
		}},
		{"a record without checksum", "record 300 does not match", func(_, r *bbolt.Bucket) error { return r.Put(num(300), []byte{1}) }},
		{"a gap", "record 300 is missing", func(_, r *bbolt.Bucket) error { return r.Delete(num(300)) }},
		{"the first record is missing", "it holds 102 to 700", func(_, r *bbolt.Bucket) error { return r.Delete(num(101)) }},
		{"the last record is missing", "it holds 101 to 699", func(_, r *bbolt.Bucket) error { return r.Delete(num(700)) }},
		{"a record too many", "it holds 101 to 701", func(_, r *bbolt.Bucket) error { return r.Put(num(701), []byte("?")) }},
		{"a record of no number", "number of a record", func(_, r *bbolt.Bucket) error { return r.Put([]byte("a"), []byte("?")) }},
		{"the snapshot is missing", "snapshot at record 100 is missing", func(m, _ *bbolt.Bucket) error { return m.Delete([]byte("snapshot")) }},
		{"the snapshot changed", "snapshot at record 100 does not match", func(m, _ *bbolt.Bucket) error { return m.Put([]byte("snapshot"), []byte("12345")) }},
		{"no numbers", "description is damaged", func(m, _ *bbolt.Bucket) error { return m.Delete([]byte("last")) }},
		{"no version", "version", func(m, _ *bbolt.Bucket) error { return m.Delete([]byte("version")) }},
		{"another journal's buckets", "it holds no journal", func(m, _ *bbolt.Bucket) error {
			return errors.Join(m.Tx().DeleteBucket([]byte("records")), m.Tx().DeleteBucket([]byte("meta")), func() error {
				_, err := m.Tx().CreateBucket([]byte("else"))
				return err
			}())
		}},
		{"a bucket in a bucket", "flags", func(m, _ *bbolt.Bucket) error {
			_, err := m.CreateBucket([]byte("inner"))
			return err
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			if err := edit(t, x.f); code(err) != journal.ErrCorrupt || !strings.Contains(err.Error(), x.say) {
				t.Fatalf("got %v, want %s with %q", err, journal.ErrCorrupt, x.say)
			}
		})
	}
}

// A newer gpupool may keep other things under other names: only the version counts.
func TestNewer(t *testing.T) {
	err := edit(t, func(meta, _ *bbolt.Bucket) error {
		return errors.Join(meta.Put([]byte("version"), binary.BigEndian.AppendUint64(nil, 2)), meta.Delete([]byte("last")))
	})
	if code(err) != journal.ErrVersion || !strings.Contains(err.Error(), "format 2") {
		t.Fatalf("got %v, want %s", err, journal.ErrVersion)
	}
}

// A file that is cut while it is open ends neither the process nor Close.
func TestCutWhileOpen(t *testing.T) {
	for name, use := range map[string]func(j journal.Journal) error{
		"append": func(j journal.Journal) error {
			_, err := j.Append(context.Background(), [][]byte{record(1)})
			return err
		},
		"snapshot": func(j journal.Journal) error { return j.Snapshot(context.Background(), 300, state(300)) },
		"load": func(j journal.Journal) error {
			none := func(uint64, []byte) error { return nil }
			return j.Load(context.Background(), none, none)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "journal.db")
			if err := os.WriteFile(path, sample(t), 0o600); err != nil {
				t.Fatal(err)
			}
			j := mustOpen(t, path)
			if err := os.Truncate(path, int64(2*page)); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := use(j); code(err) != journal.ErrCorrupt {
					t.Fatalf("got %v, want %s", err, journal.ErrCorrupt)
				}
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func FuzzDamaged(f *testing.F) {
	b := sample(f)
	f.Add([]byte{}, uint32(len(b)))
	f.Add([]byte{0, 16, 0, 0, 1}, uint32(len(b)))
	f.Add([]byte{0, 0, 64, 0, 0xff, 0, 0, 80, 12, 3}, uint32(len(b)))
	f.Add([]byte{0, 1, 3, 0x10}, uint32(len(b)-page))
	f.Fuzz(func(t *testing.T, changes []byte, size uint32) {
		d := bytes.Clone(b)
		for ; len(changes) >= 5; changes = changes[5:] { // where, how
			d[int(binary.BigEndian.Uint32(changes))%len(d)] ^= changes[4]
		}
		_ = tryDamaged(t, d[:min(int(size), len(d))]) // refused or not, both may be
	})
}
