// Package assess says how idle a site's GPUs are and how many the same work would have
// needed, from what its monitoring kept: dcgm-exporter's metrics in a Prometheus, or a
// CSV file. It is what a site runs before it has gpupool, so it needs no server.
//
// What was not measured stays unknown: it is in no idle share. A GPU that nobody held,
// one that was held and idle, and one that nobody can say anything of are three things.
//
// Readings are taken in chunks and folded into spans and histograms, so the memory
// grows with the changes of each GPU and not with the samples: 16 bytes for each time
// that a GPU became idle, busy, or another's. How many GPUs were needed is a walk over
// these changes.
package assess

import (
	"fmt"
	"time"

	"github.com/gpupool/gpupool/internal/elastic"
	"github.com/gpupool/gpupool/internal/work"
)

// Options say what to look at, and what counts as idle.
type Options struct {
	From, To  time.Time
	Step      time.Duration // of a reading
	IdleBelow float64       // a use of the GPU below it is none, 0 to 1
	IdleFor   time.Duration // and for so long at least
	IdleAfter time.Duration // for which a pod idles before a cautious pool parks it
	Price     float64       // of a GPU hour; 0 = say nothing of money
	Currency  string
}

// Defaults are those of the elastic policy: what it calls no use, and how long a pool
// waits for an idle task that nobody needs to yield.
func Defaults() Options {
	return Options{Step: time.Minute, IdleBelow: elastic.MarksOf(work.PoolElastic{}).Idle, IdleAfter: 30 * time.Minute, Currency: "USD"}
}

// maxSteps bounds the time that is looked at: a year of minutes.
const maxSteps = 366 * 24 * 60

// Check says what is wrong with the options.
func (o *Options) Check() error {
	o.From, o.To = o.From.Truncate(time.Second), o.To.Truncate(time.Second)
	switch {
	case o.Step < time.Second || o.Step > 6*time.Hour || o.Step%time.Second != 0:
		return fmt.Errorf("a step of %s is out of range: expected whole seconds, from 1s to 6h", o.Step)
	case !(o.IdleBelow > 0 && o.IdleBelow < 1):
		return fmt.Errorf("idle below %g %% is out of range: expected more than 0 and less than 100", 100*o.IdleBelow)
	case o.IdleFor < 0 || o.IdleAfter < 0:
		return fmt.Errorf("an idle time cannot be negative, got %s and %s", o.IdleFor, o.IdleAfter)
	case !(o.Price >= 0 && o.Price < 1e9):
		return fmt.Errorf("a price of %g is out of range: expected what a GPU hour costs", o.Price)
	}
	return nil
}

// window are the steps of the options.
func (o *Options) window() (window, error) {
	n := int(o.To.Sub(o.From) / o.Step)
	if n < 1 || n > maxSteps {
		return window{}, fmt.Errorf("%s to %s is %d steps of %s: expected 1 to %d, so take another --step or --days",
			o.From.UTC().Format(time.RFC3339), o.To.UTC().Format(time.RFC3339), n, o.Step, maxSteps)
	}
	return window{o.From, o.Step, n}, nil
}

// window is the time that is looked at, in steps. Step i is what was measured after
// at(i), up to at(i+1).
type window struct {
	from time.Time
	step time.Duration
	n    int
}

func (w window) at(i int) time.Time { return w.from.Add(time.Duration(i) * w.step) }

// index is the step that a moment is in; out of range when it is outside.
func (w window) index(t time.Time) int {
	d := t.Sub(w.from)
	if d <= 0 {
		return -1
	}
	return int((d - 1) / w.step)
}

func (w window) hours(steps float64) float64 { return steps * w.step.Hours() }

func (w window) time(steps int) time.Duration { return time.Duration(steps) * w.step }

// steps is how many steps a duration takes, rounded up.
func (w window) steps(d time.Duration) int { return int((d + w.step - 1) / w.step) }
