package bolt_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/journal"
	"github.com/gpupool/gpupool/internal/journal/bolt"
	"github.com/gpupool/gpupool/internal/journal/journaltest"
)

// writerEnv makes the test binary the process that TestKilled kills.
const writerEnv = "GPUPOOL_TEST_WRITER"

func TestMain(m *testing.M) {
	if path := os.Getenv(writerEnv); path != "" {
		writeForEver(path)
	}
	os.Exit(m.Run())
}

func TestJournal(t *testing.T) {
	place := func(t *testing.T) func() journal.Journal {
		path := filepath.Join(t.TempDir(), "journal.db")
		return func() journal.Journal { return mustOpen(t, path) }
	}
	journaltest.Run(t, place)
	journaltest.RunRestore(t, place)
}

func mustOpen(t testing.TB, path string) *bolt.Journal {
	t.Helper()
	j, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func code(err error) journal.Code {
	if e, ok := errors.AsType[*journal.Error](err); ok {
		return e.Code
	}
	return ""
}

func TestLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	j := mustOpen(t, path)
	defer j.Close()
	_, err := bolt.Open(path, bolt.Options{LockTimeout: 20 * time.Millisecond})
	if code(err) != journal.ErrLocked || !strings.Contains(err.Error(), path) {
		t.Fatalf("got %v, want %s with the path", err, journal.ErrLocked)
	}
}

func TestCannotOpen(t *testing.T) {
	dir := t.TempDir()
	for _, x := range []struct {
		name, path string
		want       journal.Code
		say        string
		make       func(path string) error
	}{
		{"no folder", filepath.Join(dir, "none", "journal.db"), journal.ErrFailed, "folder does not exist", nil},
		{"a folder", dir, journal.ErrFailed, "not a file", nil},
		{"text", filepath.Join(dir, "text"), journal.ErrCorrupt, "damaged", func(p string) error { return os.WriteFile(p, []byte("hello, I am not a journal"), 0o600) }},
		{"half a page", filepath.Join(dir, "half"), journal.ErrCorrupt, "damaged", func(p string) error { return os.WriteFile(p, make([]byte, 2000), 0o600) }},
		{"zeroes", filepath.Join(dir, "zeroes"), journal.ErrCorrupt, "damaged", func(p string) error { return os.WriteFile(p, make([]byte, 1<<16), 0o600) }},
	} {
		t.Run(x.name, func(t *testing.T) {
			if x.make != nil {
				if err := x.make(x.path); err != nil {
					t.Fatal(err)
				}
			}
			_, err := bolt.Open(x.path, bolt.Options{})
			if code(err) != x.want || !strings.Contains(err.Error(), x.say) || !strings.Contains(err.Error(), x.path) {
				t.Fatalf("got %v, want %s with %q and the path", err, x.want, x.say)
			}
		})
	}
}

func TestReadOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	j := mustOpen(t, path)
	if _, err := j.Append(context.Background(), [][]byte{[]byte("a")}); err != nil {
		t.Fatal(err)
	}
	j.Close() //nolint:errcheck // a test
	r, err := bolt.Open(path, bolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if n := count(t, r); n != 1 {
		t.Fatalf("read %d records, want 1", n)
	}
	if _, err := r.Append(context.Background(), [][]byte{[]byte("b")}); code(err) != journal.ErrReadOnly {
		t.Fatalf("got %v, want %s", err, journal.ErrReadOnly)
	}
}

// A journal is not made only to be read, and the folder is not to blame.
func TestReadOnlyNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	for _, say := range []string{"does not exist", "is empty"} {
		if _, err := bolt.Open(path, bolt.Options{ReadOnly: true}); code(err) != journal.ErrFailed || !strings.Contains(err.Error(), say) {
			t.Fatalf("got %v, want %s with %q", err, journal.ErrFailed, say)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mustOpen(t, path).Close() //nolint:errcheck // a writer fills an empty file
}

// Opening a journal and looking at it writes nothing.
func TestOpenWritesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	j := mustOpen(t, path)
	if _, err := j.Append(context.Background(), [][]byte{{1}}); err != nil {
		t.Fatal(err)
	}
	j.Close() //nolint:errcheck // a test
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	j = mustOpen(t, path)
	count(t, j)
	if _, err := j.Append(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	j.Close() //nolint:errcheck // a test
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Fatalf("the file changed (%v)", err)
	}
}

func count(t testing.TB, j journal.Journal) (n int) {
	t.Helper()
	if err := j.Load(context.Background(), func(uint64, []byte) error { return nil }, func(uint64, []byte) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

// A panic of a callback is its caller's, and says nothing about the file.
func TestCallbackPanics(t *testing.T) {
	j := mustOpen(t, filepath.Join(t.TempDir(), "journal.db"))
	defer j.Close()
	if _, err := j.Append(context.Background(), [][]byte{{1}}); err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if r := recover(); r != "mine" {
				t.Errorf("got panic %v, want the callback's", r)
			}
		}()
		j.Load(context.Background(), nil, func(uint64, []byte) error { panic("mine") }) //nolint:errcheck // it panics
	}()
	if _, err := j.Append(context.Background(), [][]byte{{2}}); err != nil {
		t.Fatal(err)
	}
	if n := count(t, j); n != 2 {
		t.Fatalf("%d records, want 2", n)
	}
}

// writeForEver appends groups of three records, all with the group's number, and
// says so after each.
func writeForEver(path string) {
	j, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	state := make([]byte, 1000)
	for n := uint64(1); ; n++ {
		rec := binary.BigEndian.AppendUint64(nil, n)
		last, err := j.Append(context.Background(), [][]byte{rec, rec, rec})
		if err == nil && n%50 == 0 {
			err = j.Snapshot(context.Background(), last, binary.BigEndian.AppendUint64(state[:0], n))
		}
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println(last)
	}
}

// TestKilled kills a writer at random moments: every acknowledged record is there
// afterwards, groups are whole, and the next writer goes on from there.
func TestKilled(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 10 {
		path := filepath.Join(t.TempDir(), "journal.db")
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), writerEnv+"="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// The kill follows a random acknowledgement, and lands at a random point of
		// what comes after it.
		acked, killAt := uint64(0), uint64(3+rng.IntN(600))
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			n, err := strconv.ParseUint(lines.Text(), 10, 64)
			if err != nil {
				t.Fatalf("round %d: the writer said %q", round, lines.Text())
			}
			acked = n
			if acked >= killAt {
				cmd.Process.Signal(syscall.SIGKILL) //nolint:errcheck // it may be dead already
			}
		}
		cmd.Wait() //nolint:errcheck // killed
		check(t, path, acked)
	}
}

func check(t *testing.T, path string, acked uint64) {
	t.Helper()
	j := mustOpen(t, path)
	defer j.Close()
	last := uint64(0)
	err := j.Load(context.Background(), func(seq uint64, b []byte) error {
		if n := binary.BigEndian.Uint64(b); n*3 != seq {
			return fmt.Errorf("the snapshot at record %d is that of group %d", seq, n)
		}
		last = seq
		return nil
	}, func(seq uint64, b []byte) error {
		if n := binary.BigEndian.Uint64(b); n != (seq+2)/3 {
			return fmt.Errorf("record %d is of group %d", seq, n)
		}
		last = seq
		return nil
	})
	if err != nil || last%3 != 0 || last < acked {
		t.Fatalf("%v; %d records are there in groups of 3, and %d were acknowledged", err, last, acked)
	}
	if next, err := j.Append(context.Background(), [][]byte{{1}}); err != nil || next != last+1 {
		t.Fatalf("the next record is number %d (%v), want %d", next, err, last+1)
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{1, 10, 100} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			j := mustOpen(b, filepath.Join(b.TempDir(), "journal.db"))
			defer j.Close()
			group := make([][]byte, n)
			for i := range group {
				group[i] = make([]byte, 200)
			}
			for b.Loop() {
				if _, err := j.Append(context.Background(), group); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// BenchmarkSnapshot drops all records, as the host does after SnapshotEvery facts.
func BenchmarkSnapshot(b *testing.B) {
	for _, n := range []int{1000, 20_000, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			j := mustOpen(b, filepath.Join(b.TempDir(), "journal.db"))
			defer j.Close()
			group := make([][]byte, n)
			for i := range group {
				group[i] = make([]byte, 200)
			}
			for b.Loop() {
				b.StopTimer()
				last, err := j.Append(context.Background(), group)
				b.StartTimer()
				if err == nil {
					err = j.Snapshot(context.Background(), last, group[0])
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkOpen opens a journal, all of which is judged first.
func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "journal.db")
	j := mustOpen(b, path)
	group := make([][]byte, 20_000)
	for i := range group {
		group[i] = make([]byte, 200)
	}
	if _, err := j.Append(context.Background(), group); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		j.Close() //nolint:errcheck // a benchmark
		j = mustOpen(b, path)
	}
	j.Close() //nolint:errcheck // a benchmark
}
