// Package queue says who is next: it keeps the waiting tasks of a pool in lines of
// tasks that are alike, and walks them in order of their turns (turn.go).
//
// Tasks of one line ask for the same, for the same tenant, with the same priority:
// where its first has no place, none of it has. So a walk over everyone who may be
// placed costs a step for each line and for each task that is placed, however many
// wait; Push and Remove cost a binary search in one line. Nothing grows with the
// number of GPUs.
package queue

import (
	"cmp"
	"slices"

	"github.com/gpupool/gpupool/internal/work"
)

// Item is what the queue knows of a waiting task.
type Item struct {
	ID   work.TaskID
	Turn work.Time // see Rules.Turn
}

func (a Item) compare(b Item) int {
	return cmp.Or(cmp.Compare(a.Turn, b.Turn), cmp.Compare(a.ID, b.ID))
}

// Kind is what tasks of one line have in common.
type Kind struct {
	Tenant   string
	Priority work.Priority
	Latency  bool // inference and interactive work
	Request  Shape
	Array    work.TaskID // of tasks of an array with a limit: they block each other only; else 0
	Fixed    bool        // cannot be asked to leave, so that they are nobody's guests
	Host     int         // 1 + the only host that may have them; 0 = any
}

// Shape is a request that can be compared.
type Shape struct {
	GPUs, Milli, Members int
	GPUMemMiB            int64
	CPUMilli, MemMiB     int64
	Profile, Models      string
	Isolation            work.Isolation
}

// ShapeOf makes a request comparable.
func ShapeOf(r work.Request) Shape {
	s := Shape{GPUs: r.GPUs, Milli: r.Milli, Members: r.Count(), GPUMemMiB: r.GPUMemMiB, CPUMilli: r.CPUMilli, MemMiB: r.MemMiB,
		Profile: r.Profile, Isolation: r.Isolation}
	switch len(r.Models) {
	case 0:
	case 1:
		s.Models = r.Models[0]
	default:
		for _, m := range r.Models {
			s.Models += m + "\x00"
		}
	}
	return s
}

// Line is tasks that are alike, in order of their turns.
type Line struct {
	Kind
	items []Item
	start int // of those not served: a served head only moves it
}

// Len is the number of tasks in the line.
func (l *Line) Len() int { return len(l.items) - l.start }

// Items lists the line in order. It is valid until the queue changes.
func (l *Line) Items() []Item { return l.items[l.start:] }

// First is the line's first task; there must be one.
func (l *Line) First() Item { return l.items[l.start] }

// Queue is the waiting tasks of one pool. The zero value is empty.
type Queue struct {
	lines map[Kind]*Line
	spare []*Line // empty lines, to be used again
	n     int
	walk  Walk // scratch: walks are too frequent to make one for each
}

// Push adds a task and reports whether it was absent.
func (q *Queue) Push(k Kind, x Item) bool {
	l := q.lines[k]
	if l == nil {
		l = q.line(k)
	}
	i, found := slices.BinarySearchFunc(l.Items(), x, Item.compare)
	if !found {
		l.items = slices.Insert(l.items, l.start+i, x)
		q.n++
	}
	return !found
}

func (q *Queue) line(k Kind) *Line {
	var l *Line
	if last := len(q.spare) - 1; last >= 0 {
		l, q.spare = q.spare[last], q.spare[:last]
	} else {
		l = &Line{}
	}
	l.Kind = k
	if q.lines == nil {
		q.lines = map[Kind]*Line{}
	}
	q.lines[k] = l
	return l
}

// Remove takes a task out and reports whether it was there.
func (q *Queue) Remove(k Kind, x Item) bool {
	l := q.lines[k]
	if l == nil {
		return false
	}
	i, found := slices.BinarySearchFunc(l.Items(), x, Item.compare)
	if !found {
		return false
	}
	q.n--
	if i > 0 {
		l.items = slices.Delete(l.items, l.start+i, l.start+i+1)
		return true
	}
	if l.start++; l.start == len(l.items) {
		delete(q.lines, k)
		l.items, l.start = l.items[:0], 0
		q.spare = append(q.spare, l)
	} else if l.start > 1024 && l.start > len(l.items)/2 {
		l.items, l.start = slices.Delete(l.items, 0, l.start), 0
	}
	return true
}

// Len is the number of waiting tasks.
func (q *Queue) Len() int { return q.n }

// AllLines lists the lines in no particular order.
func (q *Queue) AllLines() []*Line {
	out := make([]*Line, 0, len(q.lines))
	for _, l := range q.lines { // order: as said
		out = append(out, l)
	}
	return out
}

// Line returns the line of a kind, or nil.
func (q *Queue) Line(k Kind) *Line { return q.lines[k] }

// Rank orders tasks of different lines: by class, then by turn, then by number.
type Rank struct {
	Class int // 0 goes before 1: tenants who have less than they are guaranteed
	Turn  work.Time
	ID    work.TaskID
}

// Before reports whether a goes before b.
func (a Rank) Before(b Rank) bool {
	if a.Class != b.Class {
		return a.Class < b.Class
	}
	if a.Turn != b.Turn {
		return a.Turn < b.Turn
	}
	return a.ID < b.ID
}

// Walk goes through a queue in order, line by line.
type Walk struct {
	rank func(*Line, Item) Rank
	heap []standing
}

// standing is a line and the place in it that the walk has come to.
type standing struct {
	line *Line
	at   int // items before it, from the line's start, are passed
	rank Rank
}

// Walk begins a walk. rank orders the heads of lines; it may change while tasks are
// placed, but only to later. Between steps the task of the last step may be removed
// from the queue, and no other; one walk at a time.
func (q *Queue) Walk(rank func(*Line, Item) Rank) *Walk {
	w := &q.walk
	w.rank, w.heap = rank, w.heap[:0]
	for _, l := range q.lines { // order: ranks are all different, the heap puts them in order
		w.heap = append(w.heap, standing{l, 0, rank(l, l.First())})
	}
	for i := len(w.heap)/2 - 1; i >= 0; i-- {
		w.down(i)
	}
	return w
}

// Next returns the first task of all that are left; false when there is none.
func (w *Walk) Next() (*Line, Item, bool) {
	for len(w.heap) > 0 {
		s := &w.heap[0]
		x := s.line.items[s.line.start+s.at]
		if now := w.rank(s.line, x); s.rank.Before(now) {
			s.rank = now
			w.down(0)
			continue
		}
		return s.line, x, true
	}
	return nil, Item{}, false
}

// Placed goes on after the task of Next was removed from the queue.
func (w *Walk) Placed() {
	if s := &w.heap[0]; s.at >= s.line.Len() {
		w.Drop()
	} else {
		s.rank = w.rank(s.line, s.line.items[s.line.start+s.at])
		w.down(0)
	}
}

// Pass goes on after the task of Next, which stays in the queue.
func (w *Walk) Pass() {
	w.heap[0].at++
	w.Placed()
}

// Drop leaves out what is left of the line of Next.
func (w *Walk) Drop() {
	last := len(w.heap) - 1
	w.heap[0] = w.heap[last]
	w.heap[last] = standing{}
	w.heap = w.heap[:last]
	w.down(0)
}

func (w *Walk) down(i int) {
	h := w.heap
	for {
		least := i
		for _, d := range [2]int{2*i + 1, 2*i + 2} {
			if d < len(h) && h[d].rank.Before(h[least].rank) {
				least = d
			}
		}
		if least == i {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}

// Ahead counts the tasks that rank before a task of a line. It costs a search in
// each line: for people who ask.
func (q *Queue) Ahead(l *Line, x Item, rank func(*Line, Item) Rank) int {
	n, mine := 0, rank(l, x)
	for _, o := range q.lines { // order: only a count comes out
		i, _ := slices.BinarySearchFunc(o.Items(), mine, func(y Item, mine Rank) int {
			if rank(o, y).Before(mine) {
				return -1
			}
			return 1
		})
		n += i
	}
	return n
}
