package queue

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpupool/gpupool/internal/work"
)

// waiting is a task of the naive model: a plain list, sorted on every look.
type waiting struct {
	id work.TaskID
	p  work.Priority
}

type naive []waiting

func (n naive) sorted() []work.TaskID {
	s := slices.Clone(n)
	slices.SortFunc(s, func(a, b waiting) int { return cmp.Or(cmp.Compare(a.p, b.p), cmp.Compare(a.id, b.id)) })
	var ids []work.TaskID
	for _, w := range s {
		ids = append(ids, w.id)
	}
	return ids
}

func order(q *Queue) (ids []work.TaskID) {
	q.Each(func(id work.TaskID) bool {
		ids = append(ids, id)
		return true
	})
	return ids
}

// priority of a task never changes, so it follows from the number.
func priority(id work.TaskID) work.Priority { return work.Priority(id % work.Priorities) }

func TestAgainstNaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue
		var model naive
		next := work.TaskID(1)
		t.Repeat(map[string]func(*rapid.T){
			"arrive": func(t *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(t, "n") {
					if !q.Push(next, priority(next)) {
						t.Fatalf("task %d is new, Push says it was there", next)
					}
					model = append(model, waiting{next, priority(next)})
					next++
				}
			},
			"return": func(t *rapid.T) { // a task that was placed comes back to its old place, or is there already
				id := work.TaskID(rapid.IntRange(1, int(next)).Draw(t, "id"))
				if id == next {
					t.Skip("not yet accepted")
				}
				absent := !slices.Contains(model, waiting{id, priority(id)})
				if got := q.Push(id, priority(id)); got != absent {
					t.Fatalf("Push(%d) = %v, absent: %v", id, got, absent)
				}
				if absent {
					model = append(model, waiting{id, priority(id)})
				}
			},
			"leave": func(t *rapid.T) {
				id := work.TaskID(rapid.IntRange(1, int(next)).Draw(t, "id"))
				i := slices.Index(model, waiting{id, priority(id)})
				if got := q.Remove(id, priority(id)); got != (i >= 0) {
					t.Fatalf("Remove(%d) = %v, in line: %v", id, got, i >= 0)
				}
				if i >= 0 {
					model = slices.Delete(model, i, i+1)
				}
			},
			"serve": func(t *rapid.T) { // each of those served may leave while the line is walked
				want := model.sorted()
				stop := rapid.IntRange(0, 30).Draw(t, "stop")
				keep := rapid.SliceOfN(rapid.Bool(), 1, 5).Draw(t, "keep")
				var got []work.TaskID
				q.Each(func(id work.TaskID) bool {
					got = append(got, id)
					if !keep[len(got)%len(keep)] {
						q.Remove(id, priority(id))
						model = slices.DeleteFunc(model, func(w waiting) bool { return w.id == id })
					}
					return len(got) <= stop
				})
				if want = want[:min(len(want), stop+1)]; !slices.Equal(got, want) {
					t.Fatalf("served %v, wanted %v", got, want)
				}
			},
			"": func(t *rapid.T) {
				want := model.sorted()
				if got := order(&q); !slices.Equal(got, want) || q.Len() != len(want) {
					t.Fatalf("line of %d %v, wanted %v", q.Len(), got, want)
				}
				for i, id := range want {
					if got := q.Ahead(id, priority(id)); got != i {
						t.Fatalf("%d tasks ahead of %d, wanted %d", got, id, i)
					}
				}
			},
		})
	})
}

// TestLongLine serves heads until the start of the line is moved, and walks and
// inserts across that.
func TestLongLine(t *testing.T) {
	var q Queue
	const n = 5000
	for id := range work.TaskID(n) {
		q.Push(id, work.Normal)
	}
	served := work.TaskID(0)
	q.Each(func(id work.TaskID) bool {
		if id != served {
			t.Fatalf("task %d is served, wanted %d", id, served)
		}
		q.Remove(id, work.Normal)
		served++
		return served < n-10
	})
	q.Push(7, work.Normal) // it was served, and comes back
	if got := order(&q); q.Len() != 11 || got[0] != 7 || got[1] != n-10 || got[10] != n-1 {
		t.Errorf("line of %d: %v", q.Len(), got)
	}
	if spare := len(q.lines[work.Normal].ids); spare > 2100 {
		t.Errorf("%d places are kept for a line of 11", spare)
	}
}
