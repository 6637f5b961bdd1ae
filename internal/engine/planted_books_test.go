package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/books"
	"github.com/gpupool/gpupool/internal/work"
)

// bookedBy plants a bug that does something with the books of the task that a fact of
// type F is about, after the fact was applied.
func bookedBy[F Fact](spoil func(*Engine, *Task)) plant {
	return func(e *Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			if _, is := f.(F); !is {
				return f
			}
			t := e.tasks[TaskOf(f)]
			e.apply(f)
			spoil(e, t)
			return nil
		}
	}
}

// plantedInBooks has a bug for each thing that the books must say. They are reported
// before whole states are compared, or the histories are blind to that.
var plantedInBooks = []plantedBug{
	{"the books say what is held", "a parked task is not held by a static site any more", bookedBy[Suspended](func(e *Engine, t *Task) {
		e.both(t, func(a *books.Account) { a.Change(t.book.kind, books.Holding{Static: -1000}, e.now) })
		t.book.Static -= 1000
	}), "by the books it holds", true},
	{"the books say what is held", "a placement is booked for the tenant twice", bookedBy[Placed](func(e *Engine, t *Task) {
		t.pool.books.tenant(t.Spec.Tenant).Change(t.book.kind, books.Holding{Held: 1}, e.now)
	}), "by the books tenant", true},
	{"the books say what is held", "a freed GPU is taken to be in use", bookedBy[Freed](func(_ *Engine, t *Task) {
		t.pool.books.whole.InUse++
	}), "GPUs is held and static would hold", true},
	{"the books say what is known of it", "a judgement is not booked", func(e *Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			if j, ok := f.(Judged); ok {
				e.applyJudged(j)
				return nil
			}
			return f
		}
	}, "its GPU time is booked as kind", true},
	{"a pool's days are the sum of its tenants'", "a pool's time stands still", bookedBy[Placed](func(_ *Engine, t *Task) {
		t.pool.books.whole.At = t.pool.books.whole.At.Add(time.Hour)
	}), "the tenants add up to", true},
	{"a pool's days are the sum of its tenants'", "an end is counted for the tenant alone", bookedBy[Became](func(_ *Engine, t *Task) {
		if t.State == work.Succeeded {
			a := &t.pool.books.whole
			a.Days[len(a.Days)-1].Succeeded--
		}
	}), "the tenants add up to", true},
	{"no day holds more than a day can", "a peak is not kept", bookedBy[Freed](func(_ *Engine, t *Task) {
		if a := &t.pool.books.whole; len(a.Days) > 0 {
			a.Days[len(a.Days)-1].PeakStatic = 0
		}
	}), "is more than the most at once", true},
	{"no more is held than static would", "what static would have held is lost", bookedBy[Freed](func(e *Engine, t *Task) {
		e.both(t, func(a *books.Account) {
			if n := len(a.Days); n > 0 {
				a.Days[n-1].Static = books.Amounts{}
			}
		})
	}), "was held, and static would have held", true},
}

// plantedInSums are bugs that leave the books sound in themselves: only counting anew from
// the facts finds them.
var plantedInSums = []plantedBug{
	{"the books are what the facts say", "idle time is counted from its judgement on", func(e *Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			if j, ok := f.(Judged); ok {
				e.applyJudged(j)
				e.bookKind(e.tasks[j.Task], nil) // as if it were no judgement
				return nil
			}
			return f
		}
	}, "counted anew", true},
	{"the books are what the facts say", "a second is counted twice", bookedBy[Freed](func(e *Engine, t *Task) {
		e.both(t, func(a *books.Account) { a.At -= work.Time(time.Second) })
	}), "counted anew", true},
	{"the books are what the facts say", "time ends at midnight", bookedBy[Placed](func(e *Engine, t *Task) {
		e.both(t, func(a *books.Account) {
			if n := len(a.Days); n > 1 {
				a.Days[n-2].Static, a.Days[n-2].Held, a.Days[n-2].InUse = books.Amounts{}, books.Amounts{}, 0
			}
		})
	}), "counted anew", true},
}

// TestBooksFromFacts plays histories over a midnight: the books are what counting anew
// from the facts gives, and bugs that only this can find are found.
func TestBooksFromFacts(t *testing.T) {
	t.Parallel()
	n := uint64(200)
	if testing.Short() {
		n = 40
	}
	for seed := range n {
		if err := recounted(seed, nil); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	for _, x := range plantedInSums {
		found := false
		for seed := uint64(0); seed < 100 && !found; seed++ {
			err := recounted(seed, x.plant)
			found = err != nil && strings.Contains(err.Error(), x.want)
		}
		if !found {
			t.Errorf("none of 100 histories reports: %s", x.bug)
		}
	}
}
