package sim

import (
	"context"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/trace"
	"github.com/gpupool/gpupool/internal/work"
)

// crowded is a simulation whose tasks sit where the test says, without an engine's help:
// until their time none is placed beside another.
func crowded(t *testing.T, tasks ...pace) (*simulation, []*pace) {
	t.Helper()
	s, err := newSimulation(context.Background(), setup(t, "2xL40S", task(0, 1, 1, 0)), work.Static)
	if err != nil {
		t.Fatal(err)
	}
	var out []*pace
	for i := range tasks {
		p := &tasks[i]
		p.id, p.ways, p.goes, p.rate, p.at = work.TaskID(i+1), 1, true, 1, epoch
		s.rec.rows, s.row, s.lives = append(s.rec.rows, taskRow{asked: 1000}), append(s.row, 0), append(s.lives, nil)
		s.paces[p.id] = p
		for _, x := range p.seats {
			if x.shared {
				s.crowd[x.gpu] = append(s.crowd[x.gpu], p)
			}
		}
		out = append(out, p)
	}
	for _, p := range out {
		s.repace(epoch, p)
		s.expect(epoch, p)
	}
	return s, out
}

// ends pops what is due until all have ended, and returns when they did, in seconds.
func endings(s *simulation, n int) map[work.TaskID]float64 {
	out := map[work.TaskID]float64{}
	var evs events
	for s.due.any() && len(out) < n {
		x := s.due.pop()
		evs.clear()
		s.worked(x.at, x, &evs)
		if len(evs.exit) > 0 {
			out[x.owner.Task] = x.at.Sub(epoch).Seconds()
		}
	}
	return out
}

func TestPaceByHand(t *testing.T) {
	const gpu0, gpu1 = 0, 1
	on := func(gpus ...int) []seat {
		var out []seat
		for _, g := range gpus {
			out = append(out, seat{gpu: g, shared: true, most: 1})
		}
		return out
	}
	s100, s50 := 100*time.Second, 50*time.Second
	for _, c := range []struct {
		what  string
		tasks []pace
		want  []float64
	}{
		{"alone", []pace{{seats: on(gpu0), asked: 1, share: 1, left: s100}}, []float64{100}},
		{"room for both", []pace{{seats: on(gpu0), asked: 1, share: 0.4, left: s100}, {seats: on(gpu0), asked: 1, share: 0.6, left: s50}}, []float64{100, 50}},
		// At 1/1.4 until 70 s, when both have done 50 s; the other 50 s alone.
		{"too much for both", []pace{{seats: on(gpu0), asked: 1, share: 0.8, left: s100}, {seats: on(gpu0), asked: 1, share: 0.6, left: s50}}, []float64{120, 70}},
		// Three at 1/3 until 150 s; then two at 1/2: 50 s in 100 s.
		{"three", []pace{{seats: on(gpu0), asked: 1, share: 1, left: s100}, {seats: on(gpu0), asked: 1, share: 1, left: s50}, {seats: on(gpu0), asked: 1, share: 1, left: s100}}, []float64{250, 150, 250}},
		// What asks for half a GPU and computes all of it is half a GPU.
		{"halves", []pace{{seats: on(gpu0), asked: 0.5, share: 1, left: s100}, {seats: on(gpu0), asked: 0.5, share: 1, left: s50}}, []float64{100, 50}},
		// The gang goes as on its slower GPU: 1/2 until the other has ended, at 100 s.
		{"a gang", []pace{{seats: on(gpu0, gpu1), asked: 1, share: 1, left: s100}, {seats: on(gpu1), asked: 1, share: 1, left: s50}}, []float64{150, 100}},
		// A MIG instance of 2/7 of what computes 4/7; nobody else is slowed by it.
		{"an instance", []pace{{seats: []seat{{gpu: gpu0, most: 2. / 7}}, asked: 1, share: 4. / 7, left: s100}, {seats: []seat{{gpu: gpu0, most: 5. / 7}}, asked: 1, share: 5. / 7, left: s50}}, []float64{200, 50}},
	} {
		s, all := crowded(t, c.tasks...)
		got := endings(s, len(all))
		for i, want := range c.want {
			near(t, c.what, got[work.TaskID(i+1)], want)
		}
	}
}

// TestPaceStops: a task that was suspended for 30 s ends 30 s later, and meanwhile whoever is
// beside it is not slowed.
func TestPaceStops(t *testing.T) {
	on := []seat{{gpu: 0, shared: true, most: 1}}
	s, all := crowded(t, pace{seats: on, asked: 1, share: 1, left: 100 * time.Second}, pace{seats: on, asked: 1, share: 1, left: 100 * time.Second})
	at := func(sec int) work.Time { return epoch.Add(time.Duration(sec) * time.Second) }
	s.halts(at(20), 1, false) // both have done 10 s
	all[0].goes, all[0].at = true, at(50)
	s.repace(at(50), all[0]) // the other has done 40 s
	got := endings(s, 2)
	// Both at a half until the other has done its 60 s, at 170 s, when this one has 30 s left.
	near(t, "beside it", got[2], 170)
	near(t, "suspended", got[1], 200)
}

// TestRestartKeepsWork: a guest is told to leave for a notebook that is woken, saves its
// work, and goes on from there.
func TestRestartKeepsWork(t *testing.T) {
	book := task(0, 1000, 1, 0)
	book.Class, book.UsedMiB = trace.Interactive, 1
	book.Requests = []trace.Request{{At: 100 * time.Second, Takes: 200 * time.Second}}
	guest := task(1, 400, 1, 0)
	guest.Load, guest.UsedMiB = 10*time.Second, 2048 // 2 s to save, and to read
	run := func(grace time.Duration) *Outcome {
		guest.Grace = grace
		s := setup(t, "1xH100-80GB", book, guest)
		s.Elastic = work.PoolElastic{OnIdle: map[work.Class]work.IdleAction{work.Interactive: work.IdlePark},
			After: map[work.Class]time.Duration{work.Interactive: 20 * time.Second}, Cooldown: time.Second}
		return run(t, s, work.Dynamic)
	}
	o := run(time.Minute)
	if o.Preemptions != 1 || o.Finished != 2 {
		t.Fatalf("got %+v", o.Column)
	}
	// The notebook is parked after 5 s, as soon as it is known to idle, as its guest waits for
	// it: it takes 1.0001 s. It wakes at 100 s. The guest saves for 2 s and ends within another,
	// and begins again when the notebook's cell has ended and it was parked again. It has done
	// 94 s then, of which 84 are not loading. It loads again, and reads its work for 2 s.
	wake, price := 100., 1+1./9830
	guestBegan := 5 + price
	cell := wake + 3 + price // begins
	again := cell + 200 + 5 + price
	ends := again + 400 + 2 - (wake - guestBegan - 10)
	near(t, "first wait of a cell", o.RequestMean, cell-wake)
	near(t, "completion", o.JCTMean, (1000+ends-1)/2)
	if lost := run(time.Second); lost.JCTMean < o.JCTMean+39 {
		t.Errorf("a grace of 1 s is too short to save: completion %g s, with a minute %g s", lost.JCTMean, o.JCTMean)
	}
}

// TestIdleAndUnused: a phase of 30 % leaves its GPU busy, and 70 % of it unused.
func TestIdleAndUnused(t *testing.T) {
	x := task(0, 100, 1, 0)
	x.Phases = []trace.Phase{{For: 30 * time.Second, Compute: 0.3}, {For: 20 * time.Second}}
	o := run(t, setup(t, "2xH100-80GB", x), work.Static)
	near(t, "idle", o.Idle, 0.4)
	near(t, "idle of all", o.IdleAll, 0.7)
	near(t, "unused", o.Unused, 1-0.6*0.3)
	near(t, "nobody waits", o.IdleWaiting, 0)

	y := task(10, 50, 2, 0) // waits until both are free
	o = run(t, setup(t, "2xH100-80GB", x, y), work.Static)
	// From 10 s to 100 s: 50 s of 90 computed, on one GPU of two.
	near(t, "idle while one waits", o.IdleWaiting, 1-50./180)
	near(t, "unused while one waits", o.UnusedWaiting, 1-50.*0.3/180)
}

// TestResizeIsAnswered: the hardware has the new size, and says so after a second.
func TestResizeIsAnswered(t *testing.T) {
	s, _ := crowded(t, pace{left: time.Hour})
	cmd := func(milli int) engine.CarveCmd {
		return engine.CarveCmd{Owner: work.Owner{Task: 1, Epoch: 1}, Host: s.setup.Hosts[0].Name, GPUIDs: []string{s.setup.Hosts[0].GPUs[0].ID},
			Slices: []work.Slice{{Mode: gpu.ModeShared, Milli: milli, Share: &work.Share{Milli: milli, MemMiB: 1000}}}}
	}
	for _, c := range []engine.Command{cmd(500), engine.ResizeCmd{CarveCmd: cmd(250)}} {
		if err := s.carryOut(epoch, c); err != nil {
			t.Fatal(err)
		}
	}
	var evs events
	for s.due.any() {
		if x := s.due.pop(); x.what == resized {
			s.lived(x.at, x, &evs)
			near(t, "answer", x.at.Sub(epoch).Seconds(), resizing.Seconds())
		}
	}
	if len(evs.list) != 1 {
		t.Fatalf("got %v", evs.list)
	}
	if done, ok := evs.list[0].(engine.ResizeDone); !ok || done.Owner != (work.Owner{Task: 1, Epoch: 1}) {
		t.Errorf("got %v", evs.list)
	}
}

// TestSlowRunsEnd: one task in two waits too long, so the run says nothing.
func TestSlowRunsEnd(t *testing.T) {
	s := setup(t, "1xH100-80GB", task(0, 100, 1, 0), task(0, 100, 1, 0), task(0, 100, 1, 0))
	for limit, want := range map[float64]bool{0: false, 1.1: true, 10: false} {
		s.Slow = limit
		if o := run(t, s, work.Static); o.Stopped() != want {
			t.Errorf("slowdowns of up to %g: ended early: %v", limit, o.Stopped())
		}
	}
}

// TestResizedSits: a whole GPU becomes a share, and from then on whoever comes beside slows
// its task down.
func TestResizedSits(t *testing.T) {
	whole, shared := []seat{{gpu: 0, most: 1}}, []seat{{gpu: 0, shared: true, most: 1}}
	s, all := crowded(t, pace{seats: whole, asked: 1, share: 1, left: 100 * time.Second}, pace{seats: shared, asked: 1, share: 1, left: 30 * time.Second})
	now := epoch.Add(10 * time.Second)
	s.sits(all[0], shared)
	s.repace(now, all[0])
	got := endings(s, 2)
	near(t, "the other", got[2], 50)        // 10 s alone, 20 s of work at a half
	near(t, "the resized one", got[1], 120) // 10 s, 40 s at a half, 70 s
}
