package queue

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpupool/gpupool/internal/work"
)

// waiting is a task of the naive model: a plain list, sorted on every look.
type waiting struct {
	kind Kind
	item Item
}

// model is the naive queue. late is how much later than their turns the tasks of a
// tenant rank, and lost says which kinds have lost the right to go first: both only
// grow while a queue is walked, as ranks do when tasks are placed.
type model struct {
	all  []waiting
	late map[string]work.Time
	lost map[Kind]bool
}

func (m *model) rankOf(k Kind, x Item) Rank {
	r := Rank{Turn: x.Turn + m.late[k.Tenant], ID: x.ID}
	if m.lost[k] {
		r.Class = 1
	}
	return r
}

func (m *model) rank(l *Line, x Item) Rank { return m.rankOf(l.Kind, x) }

// sorted is everyone by rank.
func (m *model) sorted() []waiting {
	s := slices.Clone(m.all)
	slices.SortFunc(s, func(a, b waiting) int {
		if m.rankOf(a.kind, a.item).Before(m.rankOf(b.kind, b.item)) {
			return -1
		}
		return 1
	})
	return s
}

func (m *model) find(id work.TaskID) int {
	return slices.IndexFunc(m.all, func(w waiting) bool { return w.item.ID == id })
}

// kinds are few, so that lines get long.
func kindOf(n int) Kind {
	return Kind{Tenant: string(rune('a' + n%3)), Priority: work.Priority(n / 3 % 2), Request: Shape{GPUs: 1 + n/6%2}}
}

func order(q *Queue, rank func(*Line, Item) Rank) (ids []work.TaskID) {
	for w := q.Walk(rank); ; w.Pass() {
		_, x, ok := w.Next()
		if !ok {
			return ids
		}
		ids = append(ids, x.ID)
	}
}

func TestAgainstNaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue
		m := &model{late: map[string]work.Time{}, lost: map[Kind]bool{}}
		gone := map[work.TaskID]waiting{}
		next := work.TaskID(1)
		t.Repeat(map[string]func(*rapid.T){
			"arrive": func(t *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(t, "n") {
					w := waiting{kindOf(rapid.IntRange(0, 11).Draw(t, "kind")), Item{next, work.Time(rapid.IntRange(-5, 5).Draw(t, "turn"))}}
					if !q.Push(w.kind, w.item) {
						t.Fatalf("task %d is new, Push says it was there", next)
					}
					m.all = append(m.all, w)
					next++
				}
			},
			"return": func(t *rapid.T) { // a task that was placed comes back, or is there already
				id := work.TaskID(rapid.IntRange(1, int(next)).Draw(t, "id"))
				w, absent := gone[id]
				if i := m.find(id); i >= 0 {
					w = m.all[i]
				} else if !absent {
					t.Skip("not yet accepted")
				}
				if got := q.Push(w.kind, w.item); got != absent {
					t.Fatalf("Push(%v) = %v, absent: %v", w, got, absent)
				}
				if absent {
					m.all = append(m.all, w)
					delete(gone, id)
				}
			},
			"leave": func(t *rapid.T) {
				id := work.TaskID(rapid.IntRange(1, int(next)).Draw(t, "id"))
				i := m.find(id)
				w := gone[id]
				if i >= 0 {
					w = m.all[i]
				}
				if got := q.Remove(w.kind, w.item); got != (i >= 0) {
					t.Fatalf("Remove(%v) = %v, in line: %v", w, got, i >= 0)
				}
				if i >= 0 {
					m.all = slices.Delete(m.all, i, i+1)
					gone[id] = w
				}
			},
			"shares": func(t *rapid.T) { // ranks change in any way between walks
				m.late = map[string]work.Time{"a": work.Time(rapid.IntRange(-5, 5).Draw(t, "a"))}
				m.lost = map[Kind]bool{kindOf(rapid.IntRange(0, 11).Draw(t, "lost")): true}
			},
			"serve": func(t *rapid.T) { m.serve(t, &q, gone) },
			"": func(t *rapid.T) {
				want := m.sorted()
				var ids []work.TaskID
				for i, w := range want {
					ids = append(ids, w.item.ID)
					if got := q.Ahead(q.Line(w.kind), w.item, m.rank); got != i {
						t.Fatalf("%d tasks ahead of %v, wanted %d", got, w, i)
					}
				}
				if got := order(&q, m.rank); !slices.Equal(got, ids) || q.Len() != len(ids) {
					t.Fatalf("line of %d %v, wanted %v", q.Len(), got, ids)
				}
				m.testLines(t, &q)
			},
		})
	})
}

// testLines: each kind that waits has one line, its tasks in order, and no other has one.
func (m *model) testLines(t *rapid.T, q *Queue) {
	want := map[Kind][]Item{}
	for _, w := range m.all {
		want[w.kind] = append(want[w.kind], w.item)
	}
	if n := len(q.AllLines()); n != len(want) {
		t.Fatalf("%d lines, wanted %d", n, len(want))
	}
	for k, items := range want { // order: each line is looked at alone
		slices.SortFunc(items, func(a, b Item) int { return cmp.Or(cmp.Compare(a.Turn, b.Turn), cmp.Compare(a.ID, b.ID)) })
		l := q.Line(k)
		if l == nil || l.Kind != k || !slices.Equal(l.Items(), items) || l.Len() != len(items) || l.First() != items[0] {
			t.Fatalf("line %v is %v, wanted %v", k, l, items)
		}
	}
}

// serve walks the queue: each task of a step is placed (it leaves, and its tenant and
// kind may rank later from then on), passed, or its line is dropped.
func (m *model) serve(t *rapid.T, q *Queue, gone map[work.TaskID]waiting) {
	done := map[work.TaskID]bool{}
	dropped := map[Kind]bool{}
	w := q.Walk(m.rank)
	for range rapid.IntRange(0, 30).Draw(t, "steps") {
		var want *waiting
		for _, x := range m.sorted() {
			if !done[x.item.ID] && !dropped[x.kind] {
				want = &x
				break
			}
		}
		l, x, ok := w.Next()
		if ok != (want != nil) || ok && (x != want.item || l.Kind != want.kind) {
			t.Fatalf("the walk comes to %v %v %v, wanted %v", l, x, ok, want)
		}
		if !ok {
			return
		}
		if l2, x2, ok := w.Next(); !ok || l2 != l || x2 != x {
			t.Fatal("asked twice, it says something else")
		}
		switch rapid.IntRange(0, 3).Draw(t, "what") {
		case 0, 1:
			if !q.Remove(l.Kind, x) {
				t.Fatalf("task %v of the walk is not in line", x)
			}
			gone[x.ID] = *want
			m.all = slices.Delete(m.all, m.find(x.ID), m.find(x.ID)+1)
			m.late[want.kind.Tenant] += work.Time(rapid.IntRange(0, 4).Draw(t, "later"))
			if rapid.IntRange(0, 5).Draw(t, "loses") == 0 {
				m.lost[want.kind] = true
			}
			w.Placed()
		case 2:
			done[x.ID] = true
			w.Pass()
		case 3:
			dropped[want.kind] = true
			w.Drop()
		}
	}
}

// TestLongLine serves heads until the start of the line is moved, and walks and
// inserts across that.
func TestLongLine(t *testing.T) {
	var q Queue
	const n = 5000
	k := Kind{Tenant: "a"}
	byTurn := func(_ *Line, x Item) Rank { return Rank{Turn: x.Turn, ID: x.ID} }
	for id := range work.TaskID(n) {
		q.Push(k, Item{ID: id})
	}
	w := q.Walk(byTurn)
	for served := range work.TaskID(n - 11) {
		_, x, ok := w.Next()
		if !ok || x.ID != served {
			t.Fatalf("task %d is served, wanted %d", x.ID, served)
		}
		q.Remove(k, x)
		w.Placed()
	}
	q.Push(k, Item{ID: 7}) // it was served, and comes back
	if got := order(&q, byTurn); q.Len() != 12 || got[0] != 7 || got[1] != n-11 || got[11] != n-1 {
		t.Errorf("line of %d: %v", q.Len(), got)
	}
	if spare := len(q.lines[k].items); spare > 2100 {
		t.Errorf("%d places are kept for a line of 12", spare)
	}
}

// TestShapeOf: requests that differ stand in different lines, and those that are the
// same in one.
func TestShapeOf(t *testing.T) {
	all := []work.Request{{}, {GPUs: 1}, {GPUs: 1, Members: 2}, {GPUs: 1, CPUMilli: 1}, {GPUs: 1, MemMiB: 1}, {GPUs: 1, GPUMemMiB: 1}, {Milli: 1}, {Profile: "a"},
		{GPUs: 1, Models: []string{"a"}}, {GPUs: 1, Models: []string{"a", "b"}}, {GPUs: 1, Models: []string{"ab"}}, {Milli: 1, Isolation: work.IsolationAny}}
	for i, a := range all {
		for j, b := range all {
			if same := ShapeOf(a) == ShapeOf(b); same != (i == j) {
				t.Errorf("%v and %v are of one shape: %v", a, b, same)
			}
		}
	}
	if one := (work.Request{GPUs: 1, Members: 1}); ShapeOf(one) != ShapeOf(work.Request{GPUs: 1}) {
		t.Error(fmt.Sprint(one, " is not of the shape of one GPU"))
	}
}
