package host

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

// Whatever is done to the wall clock, the pool's time goes on, by nearly as much as passes,
// and finds back to it.
func TestClock(t *testing.T) {
	const start = work.Time(1_000_000 * int64(time.Hour))
	for _, x := range []struct {
		what         string
		newest, wall work.Time // at the start
		jumps        map[time.Duration]time.Duration
		after        time.Duration
		want         time.Duration // of the pool's time from the wall clock, after that
	}{
		{what: "no jump", wall: start, after: time.Hour},
		{what: "an hour ahead", wall: start, jumps: map[time.Duration]time.Duration{time.Minute: time.Hour}, after: 11 * time.Hour},
		{what: "an hour ahead, a while later", wall: start, jumps: map[time.Duration]time.Duration{0: time.Hour}, after: 5 * time.Hour, want: -30 * time.Minute},
		{what: "an hour back", wall: start, jumps: map[time.Duration]time.Duration{time.Minute: -time.Hour}, after: 11 * time.Hour},
		{what: "a day ahead, and set right after a minute", wall: start, jumps: map[time.Duration]time.Duration{0: 24 * time.Hour, time.Minute: -24 * time.Hour}, after: 3 * time.Minute},
		{what: "the state is from a clock that was ahead", newest: start + work.Time(time.Hour), wall: start, after: 11 * time.Hour},
		{what: "the server was off for a day", newest: start - work.Time(24*time.Hour), wall: start, after: time.Second},
	} {
		t.Run(x.what, func(t *testing.T) {
			c, wall := newClock(x.newest, x.wall), x.wall
			was, from := c.at, c.at
			const step = time.Second
			for passed := time.Duration(0); passed < x.after; passed += step {
				wall += work.Time(x.jumps[passed] + step)
				now := c.now(wall, passed+step)
				if d := now.Sub(was); d < step*9/10 || d > step*11/10 {
					t.Fatalf("in a second the pool's time went on by %s", d)
				}
				was = now
			}
			if off := was.Sub(wall); (off - x.want).Abs() > time.Second {
				t.Errorf("the pool's time is off by %s, want %s", off, x.want)
			}
			if all := was.Sub(from); all < x.after*9/10 || all > x.after*11/10 {
				t.Errorf("%s passed, and %s of the pool's time", x.after, all)
			}
		})
	}
	c := newClock(0, start)
	if a, b := c.now(start, time.Second), c.now(start-5, time.Second/2); b != a {
		t.Errorf("the pool's time went from %d to %d when none passed", a, b)
	}
}

// A wall clock that jumps makes nothing fire early, and nothing stops firing when it is set
// right again.
func TestWallClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "1xH100-80GB")
		var off atomic.Int64
		w.wall = func() time.Time { return time.Now().Add(time.Duration(off.Load())) }
		l := w.start()
		l.setUp()
		l.submit(spec("1", "24h")) // all others wait
		waiting := func() work.TaskID {
			s := spec("1", "1s")
			s.TTL = 10 * time.Minute
			return l.submit(s)
		}
		expires := func(id work.TaskID) {
			t.Helper()
			after(8 * time.Minute)
			if s := l.state(id); s != work.Queued {
				t.Errorf("after 8 of 10 minutes it is %s", s)
			}
			after(4 * time.Minute)
			if s := l.state(id); s != work.Expired {
				t.Errorf("after 12 of 10 minutes it is %s", s)
			}
		}
		id := waiting()
		off.Store(int64(24 * time.Hour))
		expires(id)
		id = waiting()
		off.Store(0)
		expires(id)
		id = waiting()
		off.Store(-int64(24 * time.Hour))
		expires(id)
		if err := l.end(); err != nil {
			t.Error(err)
		}
		l = w.start() // the wall clock is a day behind what the journal knows
		expires(waiting())
		if err := l.end(); err != nil {
			t.Error(err)
		}
	})
}
