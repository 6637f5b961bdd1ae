// Package books adds up, day by day, what GPUs were held, what a static site would have
// held for the same tasks, and how much of both was idle: the arithmetic of the savings
// report (docs/report.md).
//
// An account knows what is held now and up to when its days hold everything. Each change
// first lets time pass, so it costs the same however much is held, and nothing has to be
// done at midnight: an interval is cut there when it is next touched. An account keeps Keep
// days at most, and only those on which anything was held or happened, of about 200 bytes
// each: 80 KiB for a pool, or a tenant of one, that works every day. It does not grow with
// the number of GPUs or tasks.
//
// Time is counted in whole milliseconds of the clock, and GPUs in thousandths, so that sums
// are whole numbers and exact: no order of adding gives another result. Their product is
// GPU microseconds; an int64 holds 400 days of a quarter of a million GPUs.
package books

import (
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

// Kind is what is known of GPU time.
type Kind uint8

// The kinds of GPU time.
const (
	Unknown Kind = iota // nobody measured it
	Idle                // judged idle, or its task was suspended
	Busy                // measured, and not idle
)

// Amounts are of each Kind: thousandths of GPUs now, or GPU microseconds over a time.
type Amounts [3]int64

// Sum is of all kinds.
func (a Amounts) Sum() int64 { return a[Unknown] + a[Idle] + a[Busy] }

// Holding is what a task holds, in thousandths of GPUs.
type Holding struct {
	Static int64 // whole GPUs, as a static site would grant them
	Held   int64 // of slices
}

// None reports whether nothing is held either way.
func (h Holding) None() bool { return h == Holding{} }

// Day is what happened on one day, in UTC; or on several, once they are added up.
type Day struct {
	Day    int     `json:"day"`    // since 1970
	Static Amounts `json:"static"` // GPU microseconds that a static site would have held
	Held   Amounts `json:"held"`   // that were held

	PeakStatic int64 `json:"peak_static,omitempty"` // GPUs that a static site would have held at once

	// GPUs with anything on them; of a pool as a whole only, as tenants may share one.
	InUse     int64 `json:"in_use,omitempty"`      // GPU microseconds
	PeakInUse int64 `json:"peak_in_use,omitempty"` // at once

	Counts
}

// Counts are of what happened to tasks.
type Counts struct {
	Placed     int   `json:"placed,omitempty"`    // from the queue, again after each return to it
	WaitedMs   int64 `json:"waited_ms,omitempty"` // in line, of those
	Woken      int   `json:"woken,omitempty"`     // parked tasks that got GPUs again
	WokenMs    int64 `json:"woken_ms,omitempty"`  // that those waited for them
	Succeeded  int   `json:"succeeded,omitempty"`
	Failed     int   `json:"failed,omitempty"`
	Cancelled  int   `json:"cancelled,omitempty"`
	Expired    int   `json:"expired,omitempty"`
	Moves      int   `json:"moves,omitempty"` // of running tasks: parked, resized, restarted
	MoveFailed int   `json:"moves_failed,omitempty"`
	Preempted  int   `json:"preempted,omitempty"`
}

func (c *Counts) add(o Counts) {
	c.Placed += o.Placed
	c.WaitedMs += o.WaitedMs
	c.Woken += o.Woken
	c.WokenMs += o.WokenMs
	c.Succeeded += o.Succeeded
	c.Failed += o.Failed
	c.Cancelled += o.Cancelled
	c.Expired += o.Expired
	c.Moves += o.Moves
	c.MoveFailed += o.MoveFailed
	c.Preempted += o.Preempted
}

// Add adds another day of the same account: amounts and counts are summed, and of peaks
// the higher one stays.
func (d *Day) Add(o Day) {
	for k := range d.Static {
		d.Static[k] += o.Static[k]
		d.Held[k] += o.Held[k]
	}
	d.InUse += o.InUse
	d.PeakStatic, d.PeakInUse = max(d.PeakStatic, o.PeakStatic), max(d.PeakInUse, o.PeakInUse)
	d.add(o.Counts)
}

// Sum adds up the days of several accounts: the most at once of each is of another moment,
// and each would have needed its own.
func Sum(each ...[]Day) (out Day) {
	for _, days := range each {
		var one Day
		for _, d := range days {
			one.Add(d)
		}
		static, inUse := out.PeakStatic+one.PeakStatic, out.PeakInUse+one.PeakInUse
		out.Add(one)
		out.PeakStatic, out.PeakInUse = static, inUse
	}
	return out
}

// Keep is how many days an account keeps.
const Keep = 400

// DayLength is of every day in UTC as the core's clock counts.
const DayLength = 24 * time.Hour

const dayMs = int64(DayLength / time.Millisecond)

func ms(t work.Time) int64 { return int64(t) / int64(time.Millisecond) }

// DayOf is the day that a time is on.
func DayOf(t work.Time) int { return int(ms(t) / dayMs) }

// Account is what one tenant of a pool, or a pool as a whole, holds and held. What is held
// now follows from the leases and is not stored.
type Account struct {
	Static, Held Amounts // now, thousandths of GPUs
	InUse        int64   // now, GPUs with anything on them; of a pool as a whole only
	At           work.Time
	Days         []Day // up to At, the oldest first
}

// Nothing reports whether an account says nothing.
func (a *Account) Nothing() bool {
	return len(a.Days) == 0 && a.Static == Amounts{} && a.Held == Amounts{} && a.InUse == 0
}

// Settle lets time pass with everything as it is.
func (a *Account) Settle(now work.Time) {
	from, to := ms(a.At), ms(now)
	if to <= from {
		return
	}
	a.At = now
	if a.Static == (Amounts{}) && a.Held == (Amounts{}) && a.InUse == 0 {
		return
	}
	for from = max(from, to-Keep*dayMs); from < to; {
		end := min((from/dayMs+1)*dayMs, to)
		d := a.on(int(from / dayMs))
		for k := range d.Static {
			d.Static[k] += a.Static[k] * (end - from)
			d.Held[k] += a.Held[k] * (end - from)
		}
		d.InUse += 1000 * a.InUse * (end - from)
		d.PeakStatic, d.PeakInUse = max(d.PeakStatic, a.Static.Sum()/1000), max(d.PeakInUse, a.InUse)
		from = end
	}
}

// on returns the day of that number, which is the last or comes after it.
func (a *Account) on(day int) *Day {
	if n := len(a.Days); n == 0 || a.Days[n-1].Day < day {
		a.Days = append(a.Days, Day{Day: day})
		a.Drop(day - Keep)
	}
	return &a.Days[len(a.Days)-1]
}

// Drop forgets the days up to and including one.
func (a *Account) Drop(upTo int) {
	if len(a.Days) == 0 || a.Days[0].Day > upTo {
		return
	}
	i := slices.IndexFunc(a.Days, func(d Day) bool { return d.Day > upTo })
	if i < 0 {
		i = len(a.Days)
	}
	a.Days = slices.Clone(a.Days[i:])
}

// Today returns the counts of the day of now.
func (a *Account) Today(now work.Time) *Counts {
	a.Settle(now)
	return &a.on(DayOf(now)).Counts
}

// Change takes note that h more is held, or less where it is negative.
func (a *Account) Change(k Kind, h Holding, now work.Time) {
	a.Settle(now)
	a.Static[k] += h.Static
	a.Held[k] += h.Held
}

// Turn takes note that what is known of a holding is another kind, and was since then: a
// judgement comes later than what it is about. It costs what the days in between are.
func (a *Account) Turn(h Holding, was, is Kind, since, now work.Time) {
	a.Change(was, Holding{-h.Static, -h.Held}, now)
	a.Change(is, h, now)
	to := ms(now)
	for from := max(ms(since), to-Keep*dayMs); from < to; {
		end := min((from/dayMs+1)*dayMs, to)
		if i, kept := slices.BinarySearchFunc(a.Days, int(from/dayMs), func(d Day, day int) int { return d.Day - day }); kept {
			d := &a.Days[i]
			d.Static[was] -= h.Static * (end - from)
			d.Static[is] += h.Static * (end - from)
			d.Held[was] -= h.Held * (end - from)
			d.Held[is] += h.Held * (end - from)
		}
		from = end
	}
}

// UpTo returns the days as they are once time has passed to now. The account stays as it is.
func (a *Account) UpTo(now work.Time) []Day {
	x := *a
	x.Days = slices.Clone(a.Days)
	x.Settle(now)
	return x.Days
}
