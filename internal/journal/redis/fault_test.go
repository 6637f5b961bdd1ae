package redis_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/journal"
	"github.com/gpupool/gpupool/internal/journal/redis"
	"github.com/gpupool/gpupool/internal/journal/redis/redistest"
)

// wire stands between a journal and its store, and cuts connections when asked to.
type wire struct {
	addr string
	mu   sync.Mutex
	cut  func(request bool, b []byte) bool // true: this data is not passed on, and the connection is cut
}

func newWire(t *testing.T, to string) *wire {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() }) //nolint:errcheck // the end
	w := &wire{addr: l.Addr().String()}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("unix", to)
			if err != nil {
				c.Close() //nolint:errcheck // no store, no connection
				continue
			}
			go w.pass(s, c, true)
			go w.pass(c, s, false)
		}
	}()
	return w
}

func (w *wire) pass(to, from net.Conn, request bool) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 1<<20)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		w.mu.Lock()
		cut := w.cut != nil && w.cut(request, b[:n])
		w.mu.Unlock()
		if cut {
			return
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

func (w *wire) set(cut func(request bool, b []byte) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
}

// recordsOf reads all records of a journal without a snapshot.
func recordsOf(t testing.TB, j journal.Journal) (out []string) {
	t.Helper()
	err := j.Load(ctx, func(uint64, []byte) error { return nil }, func(_ uint64, b []byte) error {
		out = append(out, string(b))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// An append whose reply is lost is neither lost nor doubled.
func TestLostReply(t *testing.T) {
	s := redistest.Start(t)
	w := newWire(t, s.Sock)
	j := lead(t, redis.Options{URL: "redis://" + w.addr})
	for n := range 20 {
		cuts := 0
		w.set(func(request bool, b []byte) bool {
			if !request && strings.Contains(string(b), "ok") && cuts < 2 { // the script ran, and nobody hears of it
				cuts++
				return true
			}
			return false
		})
		if last, err := j.Append(ctx, [][]byte{fmt.Appendf(nil, "%d a", n), fmt.Appendf(nil, "%d b", n)}); err != nil || last != uint64(2*n+2) {
			t.Fatalf("append %d: %d, %v", n, last, err)
		}
		if cuts == 0 {
			t.Fatal("no reply was cut: the test does not test")
		}
	}
	w.set(nil)
	got := recordsOf(t, j)
	if len(got) != 40 || got[0] != "0 a" || got[39] != "19 b" {
		t.Fatalf("%d records, want 40 in order: %q", len(got), got)
	}
}

// However connections break, what was answered is there once, in order.
func TestBrokenConnections(t *testing.T) {
	s := redistest.Start(t, "appendfsync", "everysec")
	w := newWire(t, s.Sock)
	rng := rand.New(rand.NewPCG(7, 7))
	w.set(func(bool, []byte) bool { return rng.IntN(12) == 0 })
	o := redis.Options{URL: "redis://" + w.addr, Lease: time.Second}
	var j *redis.Journal
	for j == nil {
		j, _ = redis.Open(ctx, o)
	}
	t.Cleanup(func() { j.Close() }) //nolint:errcheck // the end
	var want []string
	leads(t, j)
	for n := range 150 {
		rec := strconv.Itoa(n)
		_, err := j.Append(ctx, [][]byte{[]byte(rec)})
		if code(err) == journal.ErrDeposed { // not known: whoever leads next finds out
			leads(t, j)
			if got := recordsVia(t, s, o); len(got) > len(want) {
				want = append(want, rec)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, rec)
	}
	if got := recordsVia(t, s, o); !slices.Equal(got, want) {
		t.Fatalf("the journal holds %q, want %q", got, want)
	}
}

// recordsVia reads past the wire.
func recordsVia(t *testing.T, s *redistest.Server, o redis.Options) []string {
	o.URL = s.URL()
	j := open(t, o)
	defer j.Close()
	return recordsOf(t, j)
}

// A leader that is cut off stops within its lease, and another leads.
func TestCutOff(t *testing.T) {
	s := redistest.Start(t)
	w := newWire(t, s.Sock)
	o := redis.Options{URL: "redis://" + w.addr, Lease: 500 * time.Millisecond}
	a := open(t, o)
	lost := leads(t, a)
	if _, err := a.Append(ctx, [][]byte{[]byte("one")}); err != nil {
		t.Fatal(err)
	}
	w.set(func(bool, []byte) bool { return true })
	if _, err := a.Append(ctx, [][]byte{[]byte("never")}); code(err) != journal.ErrDeposed {
		t.Fatalf("got %v, want %s", err, journal.ErrDeposed)
	}
	<-lost
	o.URL = s.URL()
	b := lead(t, o)
	if last, err := b.Append(ctx, [][]byte{[]byte("two")}); err != nil || last != 2 {
		t.Fatalf("%d, %v", last, err)
	}
	w.set(nil)
	if _, err := a.Append(ctx, [][]byte{[]byte("late")}); code(err) != journal.ErrDeposed {
		t.Fatalf("got %v, want %s", err, journal.ErrDeposed)
	}
	if got := recordsOf(t, a); !slices.Equal(got, []string{"one", "two"}) {
		t.Fatalf("the journal holds %q", got)
	}
}

// A store that stands still holds up appends, and the lease with them.
func TestPausedStore(t *testing.T) {
	s := redistest.Start(t)
	j := open(t, redis.Options{URL: s.URL(), Lease: 10 * time.Second})
	leads(t, j)
	s.Signal(syscall.SIGSTOP)
	done := make(chan error, 1)
	go func() {
		_, err := j.Append(ctx, [][]byte{[]byte("slow")})
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("an append was answered (%v) by a store that stands still", err)
	case <-time.After(300 * time.Millisecond):
	}
	s.Signal(syscall.SIGCONT)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := recordsOf(t, j); !slices.Equal(got, []string{"slow"}) {
		t.Fatalf("the journal holds %q", got)
	}
}

// A store without memory refuses, stores nothing, and works again when there is room.
func TestFull(t *testing.T) {
	s := redistest.Start(t)
	o := redis.Options{URL: s.URL()}
	j := lead(t, o)
	s.Do("CONFIG", "SET", "maxmemory", "1")
	if _, err := j.Append(ctx, [][]byte{[]byte("one")}); code(err) != journal.ErrFull {
		t.Fatalf("got %v, want %s", err, journal.ErrFull)
	}
	s.Do("CONFIG", "SET", "maxmemory", "0")
	leads(t, j)
	if last, err := j.Append(ctx, [][]byte{[]byte("one")}); err != nil || last != 1 {
		t.Fatalf("%d, %v", last, err)
	}
}

// A snapshot for which there is no room leaves none of itself, and appends go on.
func TestNoRoomForSnapshot(t *testing.T) {
	s := redistest.Start(t)
	j := lead(t, redis.Options{URL: s.URL()})
	must := func(_ uint64, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(j.Append(ctx, [][]byte{[]byte("one")}))
	var used int
	if _, err := fmt.Sscan(s.Do("EVAL", `return redis.call('INFO', 'memory'):match('used_memory:(%d+)')`, "0"), &used); err != nil {
		t.Fatal(err)
	}
	s.Do("CONFIG", "SET", "maxmemory", strconv.Itoa(used+16<<20))
	if err := j.Snapshot(ctx, 1, make([]byte, 64<<20)); code(err) != journal.ErrFull {
		t.Fatalf("got %v, want %s", err, journal.ErrFull)
	}
	if keys := s.Do("KEYS", "*snap*"); keys != "" {
		t.Errorf("parts are left: %s", keys)
	}
	must(j.Append(ctx, [][]byte{[]byte("two")}))
	if err := j.Snapshot(ctx, 2, []byte("small")); err != nil {
		t.Fatal(err)
	}
}

// put writes records and returns a copy of the store's data as it was then.
func put(t *testing.T, s *redistest.Server, j journal.Journal, records ...string) (backup string) {
	t.Helper()
	for _, r := range records {
		if _, err := j.Append(ctx, [][]byte{[]byte(r)}); err != nil {
			t.Fatal(err)
		}
	}
	s.End(syscall.SIGKILL)
	backup = t.TempDir()
	if err := os.CopyFS(backup, os.DirFS(filepath.Join(s.Dir, "appendonlydir"))); err != nil {
		t.Fatal(err)
	}
	s.Up()
	return backup
}

func restore(t *testing.T, s *redistest.Server, backup string) {
	t.Helper()
	s.End(syscall.SIGKILL)
	dir := filepath.Join(s.Dir, "appendonlydir")
	if err := errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(backup))); err != nil {
		t.Fatal(err)
	}
	s.Up()
}

// A server that still has what the store lost puts it back; one that only knows that it
// was there does not lead.
func TestOlderData(t *testing.T) {
	s := redistest.Start(t)
	seen := filepath.Join(t.TempDir(), "seen")
	o := redis.Options{URL: s.URL(), Lease: 300 * time.Millisecond, Seen: seen}
	j := lead(t, o)
	older := put(t, s, j, "one", "two")
	leads(t, j)
	put(t, s, j, "three", "four")

	restore(t, s, older)
	leads(t, j)
	if got := recordsOf(t, j); !slices.Equal(got, []string{"one", "two", "three", "four"}) {
		t.Fatalf("after an older backup the journal holds %q", got)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	restore(t, s, older)
	fresh := open(t, o)
	_, err := fresh.Lead(ctx, "http://fresh")
	if code(err) != journal.ErrBehind || !strings.Contains(err.Error(), seen) {
		t.Fatalf("got %v, want %s and the file to remove", err, journal.ErrBehind)
	}
	fresh.Close() //nolint:errcheck // refused
	if err := os.Remove(seen); err != nil {
		t.Fatal(err)
	}
	fresh = lead(t, o)
	if got := recordsOf(t, fresh); !slices.Equal(got, []string{"one", "two"}) {
		t.Fatalf("the journal holds %q", got)
	}
}

// A server that missed that the others went another way, from older data, follows them
// if nothing that it knew as acknowledged is gone, and says so if it is.
func TestAnotherWay(t *testing.T) {
	s := redistest.Start(t)
	o := redis.Options{URL: s.URL(), Lease: 300 * time.Millisecond}
	a := lead(t, o)
	older := put(t, s, a, "one")
	leads(t, a)
	put(t, s, a, "two")
	restore(t, s, older)
	b := lead(t, o) // knows nothing of two
	if _, err := b.Append(ctx, [][]byte{[]byte("another")}); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Lead(ctx, "http://a"); code(err) != journal.ErrBehind {
		t.Fatalf("got %v, want %s", err, journal.ErrBehind)
	}
}

// What is asked of replicas is waited for: without them nothing counts, and nobody leads.
func TestReplicas(t *testing.T) {
	s := redistest.Start(t)
	o := redis.Options{URL: s.URL(), MinReplicas: 1, Lease: 500 * time.Millisecond}
	j := open(t, o)
	bound, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := j.Lead(bound, "http://alone"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("without a replica Lead got %v, want it to wait", err)
	}
	r := redistest.Start(t, "replicaof", fmt.Sprintf("127.0.0.1 %d", s.Port))
	linked(r)
	leads(t, j)
	if _, err := j.Append(ctx, [][]byte{[]byte("copied")}); err != nil {
		t.Fatal(err)
	}
	r.Signal(syscall.SIGSTOP)
	if _, err := j.Append(ctx, [][]byte{[]byte("here alone")}); code(err) != journal.ErrFailed {
		t.Fatalf("without its replica an append got %v, want %s", err, journal.ErrFailed)
	}
	r.Signal(syscall.SIGCONT)
	linked(r)
	leads(t, j)
	if got := recordsOf(t, open(t, redis.Options{URL: r.URL()})); !slices.Equal(got, []string{"copied", "here alone"}) {
		t.Fatalf("the replica holds %q", got)
	}
	_, err := redis.Open(ctx, redis.Options{URL: s.URL(), Fsync: true})
	if version := s.Do("INFO", "server"); strings.Contains(version, "redis_version:7.0") && (code(err) != journal.ErrFailed || !strings.Contains(err.Error(), "7.2")) {
		t.Fatalf("got %v, want it refused with the version that it takes", err)
	}
}

// A lost reply does not make a record count before the replicas have it.
func TestReplicasAfterLostReply(t *testing.T) {
	s := redistest.Start(t)
	r := redistest.Start(t, "replicaof", fmt.Sprintf("127.0.0.1 %d", s.Port))
	linked(r)
	w := newWire(t, s.Sock)
	j := lead(t, redis.Options{URL: "redis://" + w.addr, MinReplicas: 1, Lease: time.Second})
	r.Signal(syscall.SIGSTOP)
	cuts := 0
	w.set(func(request bool, b []byte) bool {
		if !request && strings.Contains(string(b), "ok\r\n$1\r\n1") && cuts < 1 { // ok 1: it is stored, and the next try comes by another connection
			cuts++
			return true
		}
		return false
	})
	if last, err := j.Append(ctx, [][]byte{[]byte("here alone")}); err == nil {
		t.Fatalf("record %d counts, and the replica stands still", last)
	}
	if cuts == 0 {
		t.Fatal("no reply was cut: the test does not test")
	}
	r.Signal(syscall.SIGCONT)
	linked(r)
	w.set(nil)
	leads(t, j) // whoever leads next lets it count, once the replica has it
	if got := recordsOf(t, open(t, redis.Options{URL: r.URL()})); !slices.Equal(got, []string{"here alone"}) {
		t.Fatalf("the replica holds %q", got)
	}
}

// Parts of a snapshot that come late, when it counts already, change nothing: a network
// that was cut delivers what was sent long ago.
func TestLateParts(t *testing.T) {
	s := redistest.Start(t)
	w := newWire(t, s.Sock)
	j := lead(t, redis.Options{URL: "redis://" + w.addr})
	var late []byte
	w.set(func(request bool, b []byte) bool {
		if request && late == nil && strings.Contains(string(b), "the whole state") {
			late = slices.Clone(b)
			return true
		}
		return false
	})
	if _, err := j.Append(ctx, [][]byte{[]byte("one")}); err != nil {
		t.Fatal(err)
	}
	if err := j.Snapshot(ctx, 1, []byte("the whole state")); err != nil {
		t.Fatal(err)
	}
	if late == nil {
		t.Fatal("nothing was late: the test does not test")
	}
	c, err := net.Dial("unix", s.Sock)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(late); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	if ttl := s.Do("EVAL", `return redis.call('TTL', redis.call('HGET', KEYS[1], 'snap_key'))`, "1", "gpupool:{gpupool}:meta"); ttl != "-1" {
		t.Errorf("the snapshot that counts will be gone in %s s", ttl)
	}
	state := ""
	err = j.Load(ctx, func(_ uint64, b []byte) error { state = string(b); return nil }, func(uint64, []byte) error { return nil })
	if err != nil || state != "the whole state" {
		t.Errorf("the snapshot is %q, %v", state, err)
	}
}

func TestDamage(t *testing.T) {
	s := redistest.Start(t)
	for _, x := range []struct{ what, script, says string }{
		{"a record is gone", `redis.call('XDEL', KEYS[1]..'facts', '2-0')`, "record 2 is missing"},
		{"the last record is gone", `redis.call('XDEL', KEYS[1]..'facts', '3-0')`, "ends at record 2"},
		{"another record", `local c=redis.call('XRANGE', KEYS[1]..'facts', '3-0', '3-0')[1][2][4]; redis.call('XDEL', KEYS[1]..'facts', '3-0');
			redis.call('COPY', KEYS[1]..'facts', KEYS[1]..'x'); redis.call('DEL', KEYS[1]..'facts')
			for _, e in ipairs(redis.call('XRANGE', KEYS[1]..'x', '-', '+')) do redis.call('XADD', KEYS[1]..'facts', e[1], unpack(e[2])) end
			redis.call('XADD', KEYS[1]..'facts', '3-0', 'd', 'changed', 'c', c, 't', '1')`, "record 3 does not match"},
		{"a part of the snapshot is gone", `redis.call('HDEL', redis.call('HGET', KEYS[1]..'meta', 'snap_key'), '0')`, "snapshot at record 1"},
		{"not a record", `redis.call('XADD', KEYS[1]..'facts', '4-7', 'x', 'y'); redis.call('HSET', KEYS[1]..'meta', 'last', '4')`, "not a record"},
		{"a newer format", `redis.call('HSET', KEYS[1]..'meta', 'version', '2')`, "format 2"},
	} {
		name := fmt.Sprintf("d%d", names.Add(1))
		o := redis.Options{URL: s.URL() + "?name=" + name}
		j := lead(t, o)
		for _, r := range []string{"one", "two", "three"} {
			if _, err := j.Append(ctx, [][]byte{[]byte(r)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.Snapshot(ctx, 1, []byte("state")); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(x.script, "'2-0'") {
			x.says = "record 2 is missing"
		}
		s.Do("EVAL", x.script, "1", "gpupool:{"+name+"}:")
		err := j.Load(ctx, func(uint64, []byte) error { return nil }, func(uint64, []byte) error { return nil })
		if c := code(err); c != journal.ErrCorrupt && c != journal.ErrVersion || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s: got %v, want %q", x.what, err, x.says)
		}
	}
}

func TestRisks(t *testing.T) {
	for _, x := range []struct {
		settings []string
		min      int
		want     string // "" = none
	}{
		{nil, 0, ""},
		{[]string{"appendonly", "no"}, 0, "keeps nothing on disk"},
		{[]string{"appendonly", "no", "save", "60 1"}, 0, "now and then"},
		{[]string{"appendfsync", "everysec"}, 0, "everysec"},
		{[]string{"appendfsync", "no"}, 0, "appendfsync no"},
		{[]string{"maxmemory-policy", "allkeys-lru", "maxmemory", "100mb"}, 0, "throw away the journal"},
		{nil, 1, "has 0 replicas"},
		{[]string{"user", "pool on nopass ~* +@all -config"}, -1, "may not read"},
		{[]string{"user", "pool on nopass ~* +@all -config", "appendonly", "no"}, -1, "aof_enabled:0"},
	} {
		s := redistest.Start(t, x.settings...)
		url := s.URL()
		if x.min < 0 {
			url = fmt.Sprintf("redis://pool@127.0.0.1:%d", s.Port)
		}
		o := redis.Options{URL: url, MinReplicas: max(x.min, 0)}
		if x.min < 0 {
			o.PasswordFile = filepath.Join(t.TempDir(), "password")
			if err := os.WriteFile(o.PasswordFile, []byte("any\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := open(t, o).Risks(ctx)
		text := strings.Join(got, "\n")
		if err != nil || x.want == "" && text != "" || !strings.Contains(text, x.want) {
			t.Errorf("%v with %d replicas: got %q, %v; want %q", x.settings, x.min, text, err, x.want)
		}
		s.End(syscall.SIGKILL)
	}
}

// A follower of a store that lost something waits for whoever still has it.
func TestFollowPutBack(t *testing.T) {
	s := redistest.Start(t)
	o := redis.Options{URL: s.URL(), Lease: time.Second}
	a := lead(t, o)
	older := put(t, s, a, "one")
	leads(t, a)
	put(t, s, a, "two", "three")
	leads(t, a)

	f := open(t, o)
	_ = recordsOf(t, f)
	bound, cancel := context.WithCancel(ctx)
	defer cancel()
	heard, ended := make(chan string, 100), make(chan error, 1)
	go func() {
		ended <- f.Follow(bound, 3, func(uint64, []byte) error { return errors.New("it began again") }, func(_ uint64, b []byte) error {
			heard <- string(b)
			return nil
		})
	}()
	if _, err := a.Append(ctx, [][]byte{[]byte("four")}); err != nil {
		t.Fatal(err)
	}
	if got := <-heard; got != "four" {
		t.Fatalf("heard %q", got)
	}
	if _, err := a.Append(ctx, [][]byte{[]byte("five")}); err != nil { // so that it knows that four is acknowledged
		t.Fatal(err)
	}
	if got := <-heard; got != "five" {
		t.Fatalf("heard %q", got)
	}
	restore(t, s, older)
	s.Do("SET", "gpupool:{gpupool}:lease", "another 9 http://another", "PX", "1500") // who seems to lead, and has not noticed
	select {
	case err := <-ended:
		t.Fatalf("the follower ended: %v", err)
	case <-time.After(1500 * time.Millisecond):
	}
	leads(t, a)
	if _, err := a.Append(ctx, [][]byte{[]byte("six")}); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-heard:
		if got != "six" {
			t.Fatalf("heard %q", got)
		}
	case err := <-ended:
		t.Fatalf("the follower ended: %v", err)
	case <-time.After(20 * time.Second):
		t.Fatal("heard nothing")
	}
}

// A follower whose store went another way begins again.
func TestFollowAnotherWay(t *testing.T) {
	s := redistest.Start(t)
	o := redis.Options{URL: s.URL(), Lease: 300 * time.Millisecond}
	a := lead(t, o)
	older := put(t, s, a, "one")
	leads(t, a)
	put(t, s, a, "two")

	f := open(t, o)
	_ = recordsOf(t, f)
	bound, cancel := context.WithCancel(ctx)
	defer cancel()
	heard := make(chan string, 100)
	go f.Follow(bound, 2, func(seq uint64, _ []byte) error { //nolint:errcheck // cancelled
		heard <- fmt.Sprint("reset ", seq)
		return nil
	}, func(_ uint64, b []byte) error {
		heard <- string(b)
		return nil
	})
	a.Close() //nolint:errcheck // its store ended under it
	restore(t, s, older)
	b := lead(t, o)
	if _, err := b.Append(ctx, [][]byte{[]byte("another"), []byte("more")}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"reset 0", "one", "another", "more"} {
		select {
		case got := <-heard:
			if got != want {
				t.Fatalf("heard %q, want %q", got, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("heard nothing, want %q", want)
		}
	}
}
