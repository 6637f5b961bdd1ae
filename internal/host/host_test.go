package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/journal"
	"github.com/gpupool/gpupool/internal/journal/memory"
	"github.com/gpupool/gpupool/internal/work"
)

func TestTaskRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "8xH100-80GB")
		l := w.start()
		l.setUp()
		id := l.submit(spec("1/7", "10s"))
		if s := l.state(id); s != work.Starting {
			t.Errorf("after its submission it is %s, want starting: there is room", s)
		}
		after(1900 * time.Millisecond) // MIG on and an instance made take two seconds
		if s := l.state(id); s != work.Starting {
			t.Errorf("while its slice is made it is %s", s)
		}
		after(200 * time.Millisecond)
		if s := l.state(id); s != work.StateRunning {
			t.Errorf("after that it is %s, want running", s)
		}
		after(10 * time.Second)
		if s := l.state(id); s != work.Succeeded {
			t.Errorf("at the end it is %s", s)
		}
		failing := l.submit(spec("1", "1s", "badly"))
		after(5 * time.Second)
		if s := l.state(failing); s != work.Failed {
			t.Errorf("the failing one is %s", s)
		}
		l.sound()
		w.nothingHeld()
		if err := l.end(); err != nil {
			t.Error(err)
		}
	})
}

// slowJournal lets a test hold an append up, and counts them.
type slowJournal struct {
	*memory.Journal
	gate    chan struct{} // nil = open
	appends int
}

func (j *slowJournal) Append(ctx context.Context, records [][]byte) (uint64, error) {
	j.appends++
	if j.gate != nil {
		<-j.gate
	}
	return j.Journal.Append(ctx, records)
}

// TestDurableFirst: before facts are in the journal no reply, no command and no
// fact leaves; what arrives meanwhile shares the next commit.
func TestDurableFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "8xH100-80GB")
		slow := &slowJournal{Journal: w.journal}
		w.cfg.Journal = slow
		l := w.start()
		l.setUp()
		_, next, stop := l.Subscribe(l.LastEvent())
		defer stop()
		slow.gate = make(chan struct{})
		before := slow.appends
		var replies sync.WaitGroup
		answered := make(chan work.TaskID, 20)
		for range 20 {
			replies.Go(func() { answered <- l.submit(spec("1/7", "1h")) })
			synctest.Wait()
		}
		after(time.Second)
		if len(answered) > 0 || len(next) > 0 {
			t.Errorf("%d replies and %d facts left before the journal had them", len(answered), len(next))
		}
		if inv, err := w.driver.Observe(t.Context()); err != nil || len(inv.Parts) > 0 {
			t.Errorf("commands left before the journal had their facts: %+v, %v", inv.Parts, err)
		}
		close(slow.gate)
		replies.Wait()
		if got := slow.appends - before; got != 2 {
			t.Errorf("20 submissions took %d commits, want 2: the first, and the rest together", got)
		}
		if len(next) == 0 {
			t.Error("subscribers heard nothing")
		}
		l.end() //nolint:errcheck // of no interest here
	})
}

// TestJournalFails: the host stops, whoever waits is told, no command leaves, and a
// new host goes on from what is durable.
func TestJournalFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "8xH100-80GB")
		l := w.start()
		l.setUp()
		kept := l.submit(spec("1", "1m"))
		synctest.Wait() // its carve has reached the driver
		w.journal.FailWith(func(op string) error { return errPlanted })
		_, err := l.Do(t.Context(), engine.Submit{Spec: spec("1", "1m")})
		var refused *work.Error
		if !errors.As(err, &refused) || refused.Code != work.CodeUnavailable {
			t.Errorf("the submission got %v, want unavailable", err)
		}
		if err := <-l.err; !errors.Is(err, errPlanted) {
			t.Errorf("Run returned %v, want the journal's error", err)
		}
		if _, err := l.Do(t.Context(), engine.Tick{}); err == nil {
			t.Error("a stopped host took an event")
		}
		if inv, err := w.driver.Observe(t.Context()); err != nil || len(inv.Parts) != 1 {
			t.Errorf("%+v stand, %v; want the first task's part alone", inv.Parts, err)
		}
		w.journal.FailWith(nil)
		l = w.start()
		after(time.Second)
		if s := l.state(kept); s != work.StateRunning {
			t.Errorf("the task from before is %s", s)
		}
		if s := l.state(kept + 1); s != "" {
			t.Errorf("the task that was not acknowledged is %s", s)
		}
		l.sound()
		l.end() //nolint:errcheck // of no interest here
	})
}

// failFrom lets the journal fail from its nth append on.
func failFrom(j *memory.Journal, n int) {
	seen := 0
	j.FailWith(func(op string) error {
		if op == "append" {
			if seen++; seen >= n {
				return errPlanted
			}
		}
		return nil
	})
}

// TestCrashEverywhere lets the server die at every commit of a history in turn, and
// checks that the next one brings all that was acknowledged to its one true end.
func TestCrashEverywhere(t *testing.T) {
	for n := 1; ; n++ {
		died := false
		synctest.Test(t, func(t *testing.T) { died = crashAt(t, n) })
		if t.Failed() {
			t.Fatalf("when the server died at commit %d", n)
		}
		if !died {
			t.Logf("%d commits, died at each", n-1)
			if n < 20 {
				t.Errorf("the history is too short to say much")
			}
			return
		}
	}
}

func crashAt(t *testing.T, n int) (died bool) {
	w := newWorld(t, "2x2xH100-80GB")
	l := w.start()
	l.setUp()
	failFrom(w.journal, n)
	specs := []work.Spec{spec("1/7", "5s"), spec("2", "3s"), spec("3g.40gb", "4s", "badly"), spec("1", "2s"), spec("1", "7s"), spec("2", "3s")}
	specs[3].Request.Members = 3
	acked := map[work.TaskID]work.Spec{}
	for i, s := range specs {
		s.Key = fmt.Sprint(i)
		if id, err := l.Do(t.Context(), engine.Submit{Spec: s}); err == nil {
			acked[id] = s
		}
		after(time.Second)
	}
	l.Do(t.Context(), engine.Cancel{Task: 5, By: "test"}) //nolint:errcheck // the server may be dead
	after(2 * time.Minute)
	select {
	case err := <-l.err:
		died = true
		if !errors.Is(err, errPlanted) {
			t.Errorf("Run returned %v", err)
		}
	default:
		l.end() //nolint:errcheck // not killed: the last round
	}
	w.journal.FailWith(nil)
	l = w.start()
	for i, s := range specs { // clients try again what was not acknowledged
		s.Key = fmt.Sprint(i)
		id, err := l.Do(t.Context(), engine.Submit{Spec: s})
		if err != nil {
			t.Fatal(err)
		}
		if before, known := acked[id]; known && before.Key != s.Key {
			t.Errorf("task %d was acknowledged for keys %s and %s", id, before.Key, s.Key)
		}
		acked[id] = s
	}
	after(3 * time.Minute)
	for id, s := range acked {
		want := work.Succeeded
		if len(s.Command) > 1 {
			want = work.Failed
		}
		if got := l.state(id); got != want && got != work.StateCancel {
			t.Errorf("task %d is %s, want %s", id, got, want)
		}
	}
	if len(acked) != len(specs) {
		t.Errorf("%d tasks for %d submissions", len(acked), len(specs))
	}
	l.sound()
	w.nothingHeld()
	if err := l.end(); err != nil {
		t.Error(err)
	}
	return died
}

// TestAdoption: what runs while no server does is found again, with its true end,
// and what nobody owns is ended.
func TestAdoption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "8xH100-80GB")
		l := w.start()
		l.setUp()
		short, long := l.submit(spec("1", "10s", "badly")), l.submit(spec("1", "1h"))
		after(5 * time.Second)
		if err := l.end(); err != nil {
			t.Fatal(err)
		}
		after(time.Minute) // the short one ends
		stray := idOf(work.Owner{Task: 99, Epoch: 1})
		w.runner.Start(t.Context(), specOf(engine.StartCmd{Owner: ownerOf(stray), Spec: &work.Spec{Command: []string{"1h"}}})) //nolint:errcheck // it cannot fail
		l = w.start()
		after(time.Second)
		if s := l.state(short); s != work.Failed {
			t.Errorf("the one that ended meanwhile is %s, want failed", s)
		}
		if s := l.state(long); s != work.StateRunning {
			t.Errorf("the one that runs is %s", s)
		}
		if !w.runner.member(stray).stopped {
			t.Error("a process that nobody owns was left running")
		}
		if w.runner.member(idOf(work.Owner{Task: long, Epoch: 1})).stopped {
			t.Error("a process with an owner was stopped")
		}
		l.end() //nolint:errcheck // of no interest here
	})
}

func TestDriverFaults(t *testing.T) {
	for _, x := range []struct {
		name    string
		fault   func(w *world)
		heal    func(w *world)
		failing int // allocations that fail at least
	}{
		{"a carve fails", func(w *world) { w.driver.FailCarves(2, driver.ErrHardware) }, nil, 1}, // both members at once, or one after the other,
		{"a carve stops half way", func(w *world) { w.driver.HalfCarves(1) }, nil, 1},
		{"a free stops half way", func(w *world) { w.driver.HalfFrees(2) }, nil, 0},
		{"the driver hangs", func(w *world) { w.driver.Slow(-1) }, func(w *world) { w.driver.Slow(0) }, 1},
		{"the driver is slow", func(w *world) { w.driver.Slow(3 * time.Second) }, nil, 0},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "2x2xH100-80GB")
				l := w.start()
				l.setUp()
				x.fault(w)
				s := spec("1/7", "5s")
				s.Request.Members = 2
				id := l.submit(s)
				after(40 * time.Second)
				if x.heal != nil {
					if s := l.state(id); s == work.Succeeded {
						t.Error("it ran although the driver was broken")
					}
					x.heal(w)
				}
				after(5 * time.Minute)
				failures := 0
				l.Read(func(e *engine.Engine) { failures = int(e.Task(id).Epoch) - 1 })
				if s := l.state(id); s != work.Succeeded || failures < x.failing {
					t.Errorf("at the end it is %s after %d failed allocations, want it done after %d at least", s, failures, x.failing)
				}
				l.sound()
				w.nothingHeld()
				l.end() //nolint:errcheck // of no interest here
			})
		})
	}
}

func TestHostLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "2x1xH100-80GB")
		l := w.start()
		l.setUp()
		id := l.submit(spec("1", "1m"))
		after(10 * time.Second)
		var on string
		l.Read(func(e *engine.Engine) { on = e.Hosts()[e.Task(id).Lease().Parts[0].Host].Info.Name })
		w.driver.LoseHost(on, true)
		after(20 * time.Second)
		var epoch uint32
		var now string
		l.Read(func(e *engine.Engine) {
			epoch = e.Task(id).Epoch
			now = e.Hosts()[e.Task(id).Lease().Parts[0].Host].Info.Name
		})
		if s := l.state(id); s != work.StateRunning || epoch != 2 || now == on {
			t.Errorf("after the loss of %s it is %s at epoch %d on %s", on, s, epoch, now)
		}
		w.driver.LoseHost(on, false)
		after(2 * time.Minute)
		if s := l.state(id); s != work.Succeeded {
			t.Errorf("at the end it is %s", s)
		}
		if !w.runner.member(idOf(work.Owner{Task: id, Epoch: 1})).stopped {
			t.Error("the old member was not ended when its host came back")
		}
		l.sound()
		w.nothingHeld()
		l.end() //nolint:errcheck // of no interest here
	})
}

func TestSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "8xH100-80GB")
		w.cfg.SnapshotEvery = 40
		l := w.start()
		l.setUp()
		for range 20 {
			l.submit(spec("1/7", "1s"))
			after(5 * time.Second)
		}
		snapshots, records := kept(t, w.journal)
		if snapshots != 1 || records > 50 {
			t.Errorf("the journal holds %d snapshots and %d records, want one and at most 50", snapshots, records)
		}
		l.sound()
		if err := l.end(); err != nil {
			t.Fatal(err)
		}
		w.journal.Open()
		if snapshots, records = kept(t, w.journal); snapshots != 1 || records != 0 {
			t.Errorf("after the end the journal holds %d snapshots and %d records, want one and none", snapshots, records)
		}
		l = w.start()
		l.sound()
		l.end() //nolint:errcheck // of no interest here
	})
}

// TestSnapshotFails: a snapshot is there to save time, and the facts before it are stored: that
// it fails ends nothing. It is tried again, and not at each commit.
func TestSnapshotFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "8xH100-80GB")
		heard := &listener{}
		w.cfg.SnapshotEvery, w.cfg.Watch = 40, heard
		tries := 0
		w.journal.FailWith(func(op string) error {
			if op == "snapshot" {
				tries++
				return errPlanted
			}
			return nil
		})
		l := w.start()
		l.setUp()
		var last work.TaskID
		for range 20 {
			last = l.submit(spec("1/7", "1s"))
			after(5 * time.Second)
		}
		if s := l.state(last); s != work.Succeeded {
			t.Errorf("the last task is %s", s)
		}
		if facts := int(l.LastEvent()); tries < 2 || tries > 1+(facts-40)/5 {
			t.Errorf("%d snapshots were tried over %d facts, want one after 40 and then one each 5 at most", tries, facts)
		}
		if heard.unsaved != tries {
			t.Errorf("the watcher heard of %d of %d failures", heard.unsaved, tries)
		}
		w.journal.FailWith(nil)
		for range 2 {
			l.submit(spec("1/7", "1s"))
			after(5 * time.Second)
		}
		if snapshots, records := kept(t, w.journal); snapshots != 1 || records > 20 {
			t.Errorf("the journal holds %d snapshots and %d records, want one and at most 20", snapshots, records)
		}
		if err := l.end(); err != nil {
			t.Fatal(err)
		}
	})
}

func kept(t *testing.T, j journal.Journal) (snapshots, records int) {
	t.Helper()
	err := j.Load(t.Context(), func(uint64, []byte) error { snapshots++; return nil }, func(uint64, []byte) error { records++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	return snapshots, records
}

func TestFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "8xH100-80GB")
		l := w.start()
		l.setUp()
		from := l.LastEvent()
		_, slow, stopSlow := l.Subscribe(from)
		defer stopSlow()
		id := l.submit(spec("1/7", "1s"))
		after(5 * time.Second)
		backlog, _, stop := l.Subscribe(from)
		stop()
		if len(backlog) == 0 || backlog[0].Seq != from+1 || backlog[len(backlog)-1].Seq != l.LastEvent() {
			t.Fatalf("the backlog after %d is %+v", from, backlog)
		}
		for i, ev := range backlog {
			if ev.Seq != from+1+uint64(i) || ev.Task != id || ev.Tenant != "a" {
				t.Errorf("event %+v: want number %d about task %d of a", ev, from+1+uint64(i), id)
			}
		}
		for range feedBuffer { // who does not read is let go, and holds nobody up
			l.submit(spec("8", "1h"))
		}
		n := 0
		for range slow {
			n++
		}
		if n > feedBuffer {
			t.Errorf("the slow one got %d facts, want at most %d and then the end", n, feedBuffer)
		}
		_, next, _ := l.Subscribe(l.LastEvent())
		l.end() //nolint:errcheck // of no interest here
		for range next {
		}
	})
}

func TestIdempotency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "8xH100-80GB")
		l := w.start()
		l.setUp()
		s := spec("1/7", "1s")
		s.Key = "once"
		ids := make(chan work.TaskID, 10)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { ids <- l.submit(s) })
		}
		all.Wait()
		first := <-ids
		for range 9 {
			if id := <-ids; id != first {
				t.Errorf("one key gave tasks %d and %d", first, id)
			}
		}
		l.end() //nolint:errcheck // of no interest here
	})
}
