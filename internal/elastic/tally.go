package elastic

import (
	"math"
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

// Tally is what a pool that moves nothing would have held as a dynamic one: what its tasks
// ask for, less what those had lent that idled for longer than it costs to park and wake
// them. It is bounded: a histogram, and sums.
type Tally struct {
	Since work.Time `json:"since"` // when it began; a week ago at most
	At    work.Time `json:"at"`    // up to when time is counted
	Held  float64   `json:"held"`  // GPU seconds that tasks held, as it is
	Need  float64   `json:"need"`  // that they would have held
	Busy  float64   `json:"busy"`  // in which they were not idle
	Parks int       `json:"parks"`
	Wakes []int     `json:"wakes,omitempty"` // by what all would have held then with the woken task, see bin
	Most  float64   `json:"most"`            // GPUs that would have been held at once

	Before *Tally `json:"before,omitempty"` // the week before it began

	HeldNow int `json:"-"` // thousandths of GPUs
	NeedNow int `json:"-"`
	BusyNow int `json:"-"`
}

// Reset begins anew.
func (t *Tally) Reset(now work.Time) { *t = Tally{Since: now, At: now} }

// Pass counts the time up to now with everything as it is.
func (t *Tally) Pass(now work.Time) {
	if now <= t.At {
		return
	}
	if t.At.Sub(t.Since) > tallied {
		was := *t
		was.Before = nil
		*t = Tally{Since: t.At, At: t.At, Before: &was, HeldNow: t.HeldNow, NeedNow: t.NeedNow, BusyNow: t.BusyNow}
	}
	s := now.Sub(t.At).Seconds() / 1000
	t.Held += s * float64(t.HeldNow)
	t.Need += s * float64(t.NeedNow)
	t.Busy += s * float64(t.BusyNow)
	t.Most = max(t.Most, float64(t.NeedNow)/1000)
	t.At = now
}

// tallied is how long a tally is kept before another begins; it is asked for together with
// the one before.
const tallied = 7 * 24 * time.Hour

// Woken counts a task that would have been parked until now, and is among NeedNow.
func (t *Tally) Woken() {
	b := bin((t.NeedNow + 999) / 1000)
	for len(t.Wakes) <= b {
		t.Wakes = append(t.Wakes, 0)
	}
	t.Wakes[b]++
}

// fine is up to how many GPUs each number has a bin of its own; from there on a doubling
// has so many, so that a number is known to a thirty-second.
const fine = 64

func bin(gpus int) int {
	b := 0
	for gpus >= 2*fine {
		gpus >>= 1
		b += fine
	}
	return b + gpus
}

// upTo is the largest number in a bin.
func upTo(b int) int {
	up := 0
	for b >= 2*fine {
		b -= fine
		up++
	}
	return (b+1)<<up - 1
}

// Found is the share of wakes that have a GPU at once which finds one.
const Found = 0.9

// Estimate is what a tally says.
type Estimate struct {
	For    time.Duration // that it was kept
	Static float64       // GPUs that were held, on average
	Mean   float64       // that would have been held, on average
	Most   float64       // at once
	GPUs   int           // with which a share Found of wakes has one at once; all that would have been held at once, if nobody would have been woken
	Parks  int           // moves, with as many wakes or one more
	Wakes  int
	Idle   float64 // of the GPU time held
	IdleIf float64 // of what would have been held
}

// Estimate is what the tally says up to now, which it counts as if nothing changed. host is
// the GPUs of a host: a parked task must go on where it was suspended.
func (t *Tally) Estimate(now work.Time, host int) Estimate {
	x := *t
	x.Wakes = slices.Clone(t.Wakes)
	x.Pass(now)
	x.join()
	e := Estimate{For: now.Sub(x.Since), Most: x.Most, Parks: x.Parks}
	if s := e.For.Seconds(); s > 0 {
		e.Static, e.Mean = x.Held/s, x.Need/s
	}
	e.Idle, e.IdleIf = 1-x.Busy/max(x.Held, 1e-9), 1-x.Busy/max(x.Need, 1e-9)
	if x.Held == 0 {
		e.Idle, e.IdleIf = 0, 0
	}
	for _, n := range x.Wakes {
		e.Wakes += n
	}
	if e.GPUs = int(math.Ceil(x.Most - 1e-9)); e.Wakes > 0 {
		e.GPUs = x.enough(max(host, 1), e.Wakes)
	}
	return e
}

// join adds the week before.
func (t *Tally) join() {
	b := t.Before
	if b == nil {
		return
	}
	t.Since = b.Since
	t.Held, t.Need, t.Busy = t.Held+b.Held, t.Need+b.Need, t.Busy+b.Busy
	t.Parks, t.Most = t.Parks+b.Parks, max(t.Most, b.Most)
	for i, n := range b.Wakes {
		if i >= len(t.Wakes) {
			t.Wakes = append(t.Wakes, 0)
		}
		t.Wakes[i] += n
	}
}

// enough is the fewest GPUs with which wakes find one.
func (t *Tally) enough(host, wakes int) int {
	low, high := 1, 1
	for t.inVain(high, host) > (1-Found)*float64(wakes) {
		low, high = high+1, 2*high
	}
	for low < high {
		if mid := (low + high) / 2; t.inVain(mid, host) > (1-Found)*float64(wakes) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return high
}

// inVain is how many wakes find none on so many GPUs, in hosts of one size and a smaller
// last one. A task wakes on the host where it was suspended, so of the others that want
// GPUs each is taken to be on any host with the chance of that host's share: what is free
// elsewhere is of no use.
func (t *Tally) inVain(gpus, host int) (sum float64) {
	for b, n := range t.Wakes {
		if n == 0 {
			continue
		}
		others := upTo(b) - 1
		full := 0.0
		for at := 0; at < gpus; {
			size := min(host, gpus-at)
			same := 1 // hosts alike
			if size == host {
				same = (gpus - at) / host
			}
			share := float64(size) / float64(gpus)
			full += float64(same) * share * atLeast(size, others, share)
			at += same * size
		}
		sum += float64(n) * full
	}
	return sum
}

// atLeast is the chance of k or more of n, each with chance p.
func atLeast(k, n int, p float64) float64 {
	if p >= 1 {
		if n >= k {
			return 1
		}
		return 0
	}
	less, one := 0.0, math.Exp(float64(n)*math.Log1p(-p))
	for i := range min(k, n+1) {
		less += one
		one *= float64(n-i) / float64(i+1) * p / (1 - p)
	}
	return max(0, 1-less)
}
