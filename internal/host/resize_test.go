package host

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// shareOf asks for one share of the first GPU.
func (w *world) shareOf(o work.Owner, milli int) engine.CarveCmd {
	w.t.Helper()
	inv, err := w.driver.Observe(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	h := inv.Hosts[0]
	return engine.CarveCmd{Owner: o, Tenant: "a", Driver: "fake", Host: h.Name, GPUIDs: []string{h.GPUs[0].ID},
		Slices: []work.Slice{{Mode: gpu.ModeShared, Share: &work.Share{Milli: milli, MemMiB: 1000}, Milli: milli}}}
}

// TestResizeCmd: the slices of an owner that stands get their new sizes, the answer says
// whether they did, and asking again after a lost answer is answered the same.
func TestResizeCmd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "1xH100-80GB")
		d := &dispatcher{host: &Host{cfg: w.cfg}, ctx: t.Context()}
		one, two := work.Owner{Task: 1, Epoch: 1}, work.Owner{Task: 2, Epoch: 1}
		made, is := d.run(w.shareOf(one, 500)).(engine.CarveDone)
		if !is {
			t.Fatal("the share was not made")
		}
		for range 2 {
			ev := d.run(engine.ResizeCmd{CarveCmd: w.shareOf(one, 200)})
			if done, is := ev.(engine.ResizeDone); !is || done.Owner != one || len(done.Devices) != 1 || done.Devices[0] != made.Devices[0] {
				t.Errorf("made smaller: got %#v, want it done on the device it has", ev)
			}
		}
		if ev := d.run(w.shareOf(two, 800)); ev == nil {
			t.Error("no answer")
		} else if _, is := ev.(engine.CarveDone); !is {
			t.Errorf("what was given up cannot be had: %#v", ev)
		}
		ev := d.run(engine.ResizeCmd{CarveCmd: w.shareOf(one, 300)})
		if failed, is := ev.(engine.ResizeFailed); !is || failed.Owner != one || !strings.Contains(failed.Err, "more than is left") {
			t.Errorf("made larger than what is left: got %#v, want it failed", ev)
		}
		unknown := engine.ResizeCmd{CarveCmd: w.shareOf(one, 300)}
		unknown.Driver = "none"
		if failed, is := d.run(unknown).(engine.ResizeFailed); !is || failed.Err != "driver none is not loaded" {
			t.Errorf("without its driver: got %#v", failed)
		}
	})
}

// TestResizeInOrder: a resize stands in the lane of its owner, so that it neither
// overtakes the carve before it nor is overtaken by the free behind it.
func TestResizeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "1xH100-80GB")
		h := &Host{cfg: w.cfg, inbox: make(chan request, 10)}
		d := newDispatcher(h)
		d.ctx = t.Context()
		w.driver.Slow(time.Second)
		o := work.Owner{Task: 1, Epoch: 1}
		carve := w.shareOf(o, 500)
		d.do(carve)
		d.do(engine.ResizeCmd{CarveCmd: w.shareOf(o, 200)})
		d.do(engine.FreeCmd{Owner: o, Driver: "fake", Host: carve.Host})
		d.wait()
		close(h.inbox)
		got := ""
		for r := range h.inbox {
			switch ev := r.ev.(type) {
			case engine.CarveDone:
				got += "carved "
			case engine.ResizeDone:
				got += "resized "
			case engine.FreeDone:
				got += "freed "
			default:
				t.Errorf("answered with %#v", ev)
			}
		}
		if got != "carved resized freed " {
			t.Errorf("answers in the order %q", got)
		}
		w.nothingHeld()
	})
}

// TestResizeStops: a host that stops gives no answer, so that the next one asks again.
func TestResizeStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "1xH100-80GB")
		l := w.start()
		l.setUp()
		c := engine.ResizeCmd{CarveCmd: w.shareOf(work.Owner{Task: 1, Epoch: 1}, 200)}
		w.driver.Slow(-1) // it hangs from now on
		l.dispatch.do(c)
		synctest.Wait()
		if err := l.end(); err != nil {
			t.Error(err)
		}
	})
}

// TestStopSignal: the signal that a stop names reaches the runner.
func TestStopSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "1xH100-80GB")
		l := w.start()
		l.setUp()
		id := l.submit(spec("1", "1h"))
		after(10 * time.Second)
		o := work.Owner{Task: id, Epoch: 1}
		l.dispatch.do(engine.StopCmd{Owner: o, Grace: time.Minute, Signal: "USR1"})
		synctest.Wait()
		if m := w.runner.member(idOf(o)); !m.stopped || m.signal != "USR1" {
			t.Errorf("it was stopped: %v, by %q; want USR1", m.stopped, m.signal)
		}
		l.end() //nolint:errcheck // of no interest here
	})
}
