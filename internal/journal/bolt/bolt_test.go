package bolt_test

import (
	"bufio"
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
	journaltest.Run(t, func(t *testing.T) func() journal.Journal {
		path := filepath.Join(t.TempDir(), "journal.db")
		return func() journal.Journal { return mustOpen(t, path) }
	})
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

func TestUnwritable(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may write everywhere")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	_, err := bolt.Open(filepath.Join(dir, "journal.db"), bolt.Options{})
	if code(err) != journal.ErrReadOnly {
		t.Fatalf("got %v, want %s", err, journal.ErrReadOnly)
	}
}

func count(t testing.TB, j journal.Journal) (n int) {
	t.Helper()
	if err := j.Load(context.Background(), func(uint64, []byte) error { return nil }, func(uint64, []byte) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	return n
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
// afterwards, and groups are whole.
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
	last, group, inGroup := uint64(0), uint64(0), 0
	err := j.Load(context.Background(), func(seq uint64, b []byte) error {
		last, group = seq, binary.BigEndian.Uint64(b)
		return nil
	}, func(seq uint64, b []byte) error {
		if n := binary.BigEndian.Uint64(b); n != group {
			if inGroup%3 != 0 {
				return fmt.Errorf("group %d has %d records", group, inGroup)
			}
			group, inGroup = n, 0
		}
		inGroup++
		last = seq
		return nil
	})
	if err != nil || inGroup%3 != 0 || last < acked {
		t.Fatalf("%v; the last group has %d records; %d records are there, %d were acknowledged", err, inGroup, last, acked)
	}
}

// sample is a valid file with a snapshot and records, as bytes.
func sample(t testing.TB) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal.db")
	j := mustOpen(t, path)
	ctx := context.Background()
	for i := range 40 {
		if _, err := j.Append(ctx, [][]byte{fmt.Appendf(nil, "record %d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Snapshot(ctx, 20, []byte("twenty")); err != nil {
		t.Fatal(err)
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

// tryDamaged opens damaged bytes: an error, or records that are a true beginning
// of what was written; never a panic, never a made-up record.
func tryDamaged(t *testing.T, b []byte) {
	path := filepath.Join(t.TempDir(), "journal.db")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		return
	}
	defer j.Close()
	_ = j.Load(context.Background(), func(seq uint64, s []byte) error {
		if string(s) != "twenty" || seq != 20 {
			t.Errorf("snapshot %d %q was never stored", seq, s)
		}
		return nil
	}, func(seq uint64, r []byte) error {
		if string(r) != fmt.Sprintf("record %d", seq-1) {
			t.Errorf("record %d %q was never stored", seq, r)
		}
		return nil
	})
}

// A file that was cut is refused, unless only unused pages at its end are missing.
func TestTruncated(t *testing.T) {
	b := sample(t)
	refused := 0
	for cut := 512; cut < len(b); cut += 512 {
		path := filepath.Join(t.TempDir(), "journal.db")
		if err := os.WriteFile(path, b[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := bolt.Open(path, bolt.Options{})
		if err == nil {
			if n := count(t, j); n != 20 {
				t.Fatalf("cut to %d of %d bytes: %d records of 20 are left, and no error", cut, len(b), n)
			}
			j.Close() //nolint:errcheck // a test
			continue
		}
		if refused++; code(err) != journal.ErrCorrupt {
			t.Fatalf("cut to %d of %d bytes: got %v, want %s", cut, len(b), err, journal.ErrCorrupt)
		}
	}
	if refused == 0 {
		t.Fatal("no cut was refused")
	}
}

func TestFlippedRecord(t *testing.T) {
	b := sample(t)
	damaged := []byte(strings.ReplaceAll(string(b), "record 30", "record 3O"))
	if string(damaged) == string(b) {
		t.Fatal("the sample has no record 30")
	}
	path := filepath.Join(t.TempDir(), "journal.db")
	if err := os.WriteFile(path, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	j := mustOpen(t, path)
	defer j.Close()
	err := j.Load(context.Background(), func(uint64, []byte) error { return nil }, func(uint64, []byte) error { return nil })
	if code(err) != journal.ErrCorrupt || !strings.Contains(err.Error(), "record 31") {
		t.Fatalf("got %v, want %s that names record 31", err, journal.ErrCorrupt)
	}
}

func FuzzDamaged(f *testing.F) {
	b := sample(f)
	f.Add(uint32(0), byte(1), uint32(len(b)))
	f.Add(uint32(4096+64), byte(0xff), uint32(len(b)))
	f.Add(uint32(8192+3), byte(0x10), uint32(len(b)-4096))
	f.Fuzz(func(t *testing.T, at uint32, flip byte, size uint32) {
		damaged := append([]byte(nil), b...)
		damaged[int(at)%len(b)] ^= flip
		tryDamaged(t, damaged[:min(int(size), len(b))])
	})
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
