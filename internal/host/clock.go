package host

import (
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

// clock is the pool's time. It goes with the clock that nobody sets, and draws near to the
// wall clock by at most slew of what passes: after a jump of the wall clock, forth or back,
// no lease, TTL or timeout is off by more than that, and time never goes back.
type clock struct {
	at      work.Time
	elapsed time.Duration // since the clock began, by the clock that nobody sets
}

// slew is by what part of the time that passes the clock may be faster or slower. It takes
// ten times as long as a jump was far until the two agree.
const slew = 0.1

// newClock begins at the wall clock, or at the newest time that the state knows, where that
// is later: the wall clock may have been set back while no server ran.
func newClock(newest, wall work.Time) clock { return clock{at: max(newest, wall)} }

// now tells the time, given the wall clock and what has passed since the clock began.
func (c *clock) now(wall work.Time, elapsed time.Duration) work.Time {
	passed := max(elapsed-c.elapsed, 0)
	c.elapsed += passed
	part := time.Duration(slew * float64(passed))
	c.at = min(max(wall, c.at.Add(passed-part)), c.at.Add(passed+part))
	return c.at
}
