package portable_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpupool/gpupool/internal/journal"
	"github.com/gpupool/gpupool/internal/journal/bolt"
	"github.com/gpupool/gpupool/internal/journal/memory"
	"github.com/gpupool/gpupool/internal/journal/portable"
	"github.com/gpupool/gpupool/internal/journal/redis"
	"github.com/gpupool/gpupool/internal/journal/redis/redistest"
)

var ctx = context.Background()

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func code(err error) journal.Code {
	if e, ok := errors.AsType[*journal.Error](err); ok {
		return e.Code
	}
	return ""
}

// fill writes records, and a snapshot in their midst if asked for.
func fill(t testing.TB, j journal.Journal, records int, snapshot bool) {
	t.Helper()
	for n := range records {
		_, err := j.Append(ctx, [][]byte{bytes.Repeat(fmt.Appendf(nil, "record %d ", n), n%70)})
		must(t, err)
		if snapshot && n == records/2 {
			must(t, j.Snapshot(ctx, uint64(n), bytes.Repeat([]byte("state"), 300_000)))
		}
	}
}

func export(t testing.TB, j journal.Journal) (path string, b []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "copy")
	f, err := os.Create(path)
	must(t, err)
	_, err = portable.Export(ctx, j, f, nil)
	must(t, errors.Join(err, f.Close()))
	b, err = os.ReadFile(path)
	must(t, err)
	return path, b
}

func importFrom(t testing.TB, path string, to journal.Journal) error {
	t.Helper()
	f, err := portable.Open(path)
	must(t, err)
	defer f.Close()
	_, err = portable.Import(ctx, f, to, nil)
	return err
}

// From bolt to Redis and back nothing is lost: every copy is the same, byte for byte.
func TestThereAndBack(t *testing.T) {
	s := redistest.Start(t)
	for _, x := range []struct {
		name     string
		records  int
		snapshot bool
	}{{"empty", 0, false}, {"records", 1234, false}, {"both", 1500, true}} {
		t.Run(x.name, func(t *testing.T) {
			first, err := bolt.Open(filepath.Join(t.TempDir(), "a.db"), bolt.Options{})
			must(t, err)
			defer first.Close()
			fill(t, first, x.records, x.snapshot)
			path, want := export(t, first)

			middle, err := redis.Open(ctx, redis.Options{URL: s.URL() + "?name=" + x.name})
			must(t, err)
			defer middle.Close()
			_, err = middle.Lead(ctx, "http://here")
			must(t, err)
			must(t, importFrom(t, path, middle))
			path, got := export(t, middle)
			if !bytes.Equal(got, want) {
				t.Fatalf("through Redis the copy is another: %d bytes, want %d", len(got), len(want))
			}
			if x.records > 0 {
				if err := importFrom(t, path, middle); code(err) != journal.ErrSequence {
					t.Fatalf("into a journal that holds something: got %v, want %s", err, journal.ErrSequence)
				}
			}

			last, err := bolt.Open(filepath.Join(t.TempDir(), "b.db"), bolt.Options{})
			must(t, err)
			defer last.Close()
			must(t, importFrom(t, path, last))
			if _, got := export(t, last); !bytes.Equal(got, want) {
				t.Fatal("back in bolt the copy is another")
			}
			seq, err := last.Append(ctx, [][]byte{[]byte("next")})
			must(t, err)
			if seq != uint64(x.records+1) {
				t.Fatalf("the next record is number %d, want %d", seq, x.records+1)
			}
		})
	}
}

// Whatever byte changes, and wherever the file ends, it is noticed, and nothing is stored.
func TestDamage(t *testing.T) {
	j := memory.New()
	fill(t, j, 5, false)
	must(t, j.Snapshot(ctx, 2, []byte("state")))
	_, whole := export(t, j)
	path := filepath.Join(t.TempDir(), "damaged")
	try := func(what string, b []byte) {
		t.Helper()
		must(t, os.WriteFile(path, b, 0o600))
		to := memory.New()
		if c := code(importFrom(t, path, to)); c != journal.ErrCorrupt && c != journal.ErrVersion {
			t.Fatalf("%s: got %q, want it refused", what, c)
		}
		if last, err := to.Append(ctx, nil); err != nil || last != 0 {
			t.Fatalf("%s: something was stored", what)
		}
	}
	for i := range whole {
		try(fmt.Sprintf("cut at %d", i), whole[:i])
		b := bytes.Clone(whole)
		b[i] ^= 0x20
		try(fmt.Sprintf("changed at %d", i), b)
	}
	try("more after the end", append(bytes.Clone(whole), 'x'))
	newer := strings.Replace(string(whole), "gpupool-journal 1", "gpupool-journal 2", 1)
	must(t, os.WriteFile(path, []byte(newer), 0o600))
	if err := importFrom(t, path, memory.New()); code(err) != journal.ErrVersion {
		t.Fatalf("a newer file: got %v, want %s", err, journal.ErrVersion)
	}
}

func TestReadOnly(t *testing.T) {
	path, _ := export(t, memory.New())
	f, err := portable.Open(path)
	must(t, err)
	defer f.Close()
	_, err = f.Append(ctx, [][]byte{{1}})
	for _, err := range []error{err, f.Snapshot(ctx, 0, nil)} {
		if code(err) != journal.ErrReadOnly {
			t.Fatalf("got %v, want %s", err, journal.ErrReadOnly)
		}
	}
	if !portable.Is(path) || portable.Is(path+".no") {
		t.Fatal("a copy is not known as one, or what is none is")
	}
}

// FuzzRead: whatever a file holds, reading ends without a panic.
func FuzzRead(f *testing.F) {
	j := memory.New()
	fill(f, j, 5, false)
	must(f, j.Snapshot(ctx, 2, []byte("state")))
	_, whole := export(f, j)
	f.Add(whole)
	f.Add([]byte("gpupool-journal 1\n"))
	nothing := func(uint64, []byte) error { return nil }
	f.Fuzz(func(_ *testing.T, b []byte) {
		_ = portable.Read(ctx, "fuzzed", bytes.NewReader(b), nothing, nothing) // an error is an answer
	})
}
