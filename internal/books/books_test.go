package books

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

const day = work.Time(DayLength)

// TestKeep: an account stays as small as it says, however long something is held and
// however far the clock jumps.
func TestKeep(t *testing.T) {
	var a Account
	a.Change(Busy, Holding{Static: 1000, Held: 500}, 0)
	for d := range work.Time(3 * Keep) {
		a.Settle(d * day)
	}
	if len(a.Days) != Keep || a.Days[Keep-1].Day != 3*Keep-2 || a.Days[0].Held[Busy] != 500*dayMs {
		t.Errorf("%d days from %+v to %+v, want %d", len(a.Days), a.Days[0], a.Days[len(a.Days)-1], Keep)
	}
	a.Settle(math.MaxInt64)
	if len(a.Days) > Keep+1 {
		t.Errorf("%d days after a jump", len(a.Days))
	}
}

// TestTurn: what turns out to have been idle is idle from then on, over midnights, and
// what is no longer kept stays away. Sums do not change.
func TestTurn(t *testing.T) {
	var a Account
	h := Holding{Static: 2000, Held: 300}
	a.Change(Unknown, h, day/2)
	a.Turn(h, Unknown, Idle, day/2+day/4, 2*day+day/2)
	want := []Amounts{{dayMs / 4 * 2000, dayMs / 4 * 2000}, {0, dayMs * 2000}, {0, dayMs / 2 * 2000}}
	for i, d := range a.Days {
		if d.Static != want[i] || d.Held[Idle]*2000 != d.Static[Idle]*300 {
			t.Errorf("day %d: %+v, want %v", i, d, want[i])
		}
	}
	if a.Static != (Amounts{Idle: 2000}) || a.Held != (Amounts{Idle: 300}) {
		t.Errorf("now %v and %v", a.Static, a.Held)
	}
	a.Drop(1)
	a.Turn(h, Idle, Busy, 0, 2*day+day/2)
	if len(a.Days) != 1 || a.Days[0].Static[Busy] != dayMs/2*2000 {
		t.Errorf("%+v", a.Days)
	}
}

// TestParts: time is cut at whole milliseconds, and nothing is lost between two looks. A
// state that lasts for less is no peak, and a look leaves no trace.
func TestParts(t *testing.T) {
	var a Account
	a.Change(Busy, Holding{Static: 1000, Held: 1000}, 1)
	for now := work.Time(1); now < 10_000_000; now += 777 {
		a.Settle(now)
		if now == 1+777*1000 {
			a.Change(Busy, Holding{Static: 1000}, now)
			a.Change(Busy, Holding{Static: -1000}, now+10)
		}
	}
	a.Settle(work.Time(10 * time.Millisecond))
	if d := a.Days[0]; d.Held[Busy] != 10_000 || d.Static[Busy] != 10_000 || d.PeakStatic != 1 {
		t.Errorf("%+v, want 10 ms of one GPU", d)
	}
	before := slices.Clone(a.Days)
	if got := a.UpTo(3 * day); len(got) != 3 || !slices.Equal(before, a.Days) || a.At != work.Time(10*time.Millisecond) {
		t.Errorf("a look ahead gave %d days and left %+v", len(got), a.Days)
	}
}
