// Package queue says who is next: three priorities, and inside each the first
// come is the first served.
//
// Push and Remove cost a binary search in one priority's line; a task that goes
// back after it was placed keeps its old place. Nothing grows with the number of
// GPUs. Fair share, age, back-pressure and backfill belong here too.
package queue

import (
	"slices"

	"github.com/gpupool/gpupool/internal/work"
)

// Queue is the line of waiting tasks of one pool. The zero value is empty.
type Queue struct {
	lines [work.Priorities]line
}

// line holds task ids in order. A served head only moves the start, so serving
// in order costs nothing per waiting task.
type line struct {
	ids   []work.TaskID
	start int
}

// Push adds a task. Ids grow with the time of acceptance, so the order by id is
// the order of arrival, also for a task that comes back. It reports whether the
// task was absent.
func (q *Queue) Push(id work.TaskID, p work.Priority) bool {
	l := &q.lines[p]
	i, found := slices.BinarySearch(l.ids[l.start:], id)
	if !found {
		l.ids = slices.Insert(l.ids, l.start+i, id)
	}
	return !found
}

// Remove takes a task out and reports whether it was there.
func (q *Queue) Remove(id work.TaskID, p work.Priority) bool {
	l := &q.lines[p]
	i, found := slices.BinarySearch(l.ids[l.start:], id)
	switch {
	case !found:
	case i == 0:
		l.start++
		if l.start > 1024 && l.start > len(l.ids)/2 {
			l.ids = slices.Delete(l.ids, 0, l.start)
			l.start = 0
		}
	default:
		l.ids = slices.Delete(l.ids, l.start+i, l.start+i+1)
	}
	return found
}

// Len is the number of waiting tasks.
func (q *Queue) Len() int {
	n := 0
	for _, l := range q.lines {
		n += len(l.ids) - l.start
	}
	return n
}

// Each calls f for every waiting task in order of service until f says false.
// f may remove the task it was called with, but no other.
func (q *Queue) Each(f func(work.TaskID) bool) {
	for p := range q.lines {
		l := &q.lines[p]
		for i := 0; l.start+i < len(l.ids); {
			id := l.ids[l.start+i]
			if !f(id) {
				return
			}
			if l.start+i < len(l.ids) && l.ids[l.start+i] == id {
				i++
			}
		}
	}
}

// Ahead is the number of tasks that stand before the given one.
func (q *Queue) Ahead(id work.TaskID, p work.Priority) int {
	n := 0
	for i := range p {
		n += len(q.lines[i].ids) - q.lines[i].start
	}
	i, _ := slices.BinarySearch(q.lines[p].ids[q.lines[p].start:], id)
	return n + i
}
