package engine

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gpupool/gpupool/internal/books"
	"github.com/gpupool/gpupool/internal/work"
)

// checkBooks: what the books take to be held now is what the leases say; a pool's days are
// the sum of its tenants'; no day holds more than a day can; and nothing is held that a
// static site would not have held too, unless a task was given more than it asked for.
func (e *Engine) checkBooks() error {
	want, err := e.heldByBooks()
	if err != nil {
		return err
	}
	for _, p := range e.lines {
		b, y := &p.books, want[p.Name]
		for _, name := range slices.Sorted(maps.Keys(b.tenants)) {
			if a, w := b.tenants[name], y.tenant(name); a.Static != w.Static || a.Held != w.Held {
				return fmt.Errorf("pool %s: by the books tenant %s holds %v and static would hold %v, by its leases it is %v and %v", p.Name, name, a.Held, a.Static, w.Held, w.Static)
			}
		}
		if a, w := &b.whole, &y.whole; a.Static != w.Static || a.Held != w.Held || a.InUse != int64(len(y.onGPU)) {
			return fmt.Errorf("pool %s: by the books %v on %d GPUs is held and static would hold %v, by the leases it is %v on %d and %v",
				p.Name, a.Held, a.InUse, a.Static, w.Held, len(y.onGPU), w.Static)
		}
		if err := b.checkDays(p.Name, e.now); err != nil {
			return err
		}
	}
	return nil
}

// heldByBooks walks all leases for what each pool's books should say is held now.
func (e *Engine) heldByBooks() (map[string]*poolBooks, error) {
	out := map[string]*poolBooks{}
	for _, p := range e.lines {
		b := newPoolBooks(0)
		out[p.Name] = &b
	}
	held := map[work.TaskID]books.Holding{}
	for _, l := range e.sortedLeases() {
		for _, p := range l.Parts {
			if p.Phase == PhaseFreed || !e.cluster.Hosts[p.Host].Up {
				continue
			}
			t := l.of
			h := held[t.ID]
			held[t.ID] = books.Holding{Static: h.Static + staticMilli(t), Held: h.Held + int64(p.Milli())}
			out[t.pool.Name].occupy(p.Part, 1)
		}
	}
	for _, t := range e.sortedTasks() {
		b, h := &t.book, held[t.ID]
		switch {
		case b.Holding != h:
			return nil, fmt.Errorf("task %d: by the books it holds %+v, by its leases %+v", t.ID, b.Holding, h)
		case h.None():
			continue
		case b.kind != bookedAs(t):
			return nil, fmt.Errorf("task %d: its GPU time is booked as kind %d, and is of kind %d", t.ID, b.kind, bookedAs(t))
		case b.since > e.now || b.since < t.Submitted && b.since != t.pool.books.began:
			return nil, fmt.Errorf("task %d: it stands in the books since %d, now is %d", t.ID, b.since, e.now)
		}
		y := out[t.pool.Name]
		y.whole.Change(b.kind, h, 0)
		y.tenant(t.Spec.Tenant).Change(b.kind, h, 0)
	}
	return out, nil
}

// checkDays checks a pool's days against its tenants', and each day by itself.
func (b *poolBooks) checkDays(pool string, now work.Time) error {
	first := books.DayOf(now) - books.Keep + 1 // who did nothing lately may still have older ones
	sums := map[int]books.Day{}
	for _, a := range b.tenants { // order: sums
		for _, d := range a.UpTo(now) {
			if x := sums[d.Day]; d.Day >= first {
				x.Add(d)
				sums[d.Day] = x
			}
		}
	}
	before := -1
	for _, d := range b.whole.UpTo(now) {
		if d.Day < first {
			continue
		}
		x := sums[d.Day]
		delete(sums, d.Day)
		if d.Static != x.Static || d.Held != x.Held || d.Counts != x.Counts {
			return fmt.Errorf("pool %s, day %d: the tenants add up to %+v, the pool's books say %+v", pool, d.Day, x, d)
		}
		if d.Day <= before {
			return fmt.Errorf("pool %s: day %d is kept after day %d", pool, d.Day, before)
		}
		before = d.Day
		if err := b.checkDay(d); err != nil {
			return fmt.Errorf("pool %s, day %d: %w", pool, d.Day, err)
		}
	}
	if len(sums) > 0 {
		return fmt.Errorf("pool %s: its tenants have days that it has not: %v", pool, slices.Sorted(maps.Keys(sums)))
	}
	return nil
}

// checkDay checks one day of a pool by itself.
func (b *poolBooks) checkDay(d books.Day) error {
	most := books.DayLength.Milliseconds()
	if d.Static.Sum() > 1000*d.PeakStatic*most || d.InUse > 1000*d.PeakInUse*most {
		return fmt.Errorf("%+v is more than the most at once for a whole day", d)
	}
	if d.Held.Sum() > d.InUse+d.InUse/100 { // seven sevenths are 1001 thousandths
		return fmt.Errorf("%v was held on GPUs that were in use for %d", d.Held, d.InUse)
	}
	for k := range d.Static {
		if d.Static[k] < 0 || d.Held[k] < 0 || d.Held[k] > d.Static[k] && !b.grown {
			return fmt.Errorf("of kind %d %d was held, and static would have held %d", k, d.Held[k], d.Static[k])
		}
	}
	return nil
}
