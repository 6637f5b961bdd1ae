package queue

import (
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

// Past says who may go past a task that does not fit now.
type Past int

// The ways to go past a waiting task.
const (
	Reserve Past = iota // whoever does not delay it: GPUs are kept for it, see package engine
	Never               // nobody who could use the same GPU models
	Anyone              // whoever fits
)

// Order says what tasks are ordered by.
type Order int

// The orders.
const (
	ByScore    Order = iota // Rules.Turn
	ByArrival               // first come, first served
	ByShare                 // the tenant who has had the least, by its weight
	ByLength                // the shortest first, as predicted or told
	ByAttained              // who has had the least GPU time so far
)

// Rules say who is next. The zero value is what gpupool does; the others are there
// to compare with.
type Rules struct {
	Order Order
	Past  Past
}

// The score that orders tasks, higher first, is
//
//	score = w·priority + (1−w)·(share − length)/2 + waited/Horizon
//
// priority is 1 (high), 0 (normal) or −1 (low), half a step more for inference and
// interactive work. share, from −1 to 1, is how much less than its part of the pool the
// tenant had lately; length, from 0 to 1, is the predicted run time as a part of Long. As
// waiting counts alike for all, the order of two tasks of a tenant never changes, and
// each keeps one number: its turn, when it would have had to be submitted to stand
// where it does with a score of nothing else. Everything but waiting is bounded: so age
// wins in the end, and with w = 0.7 priority before everything but age.
const (
	// Horizon is how long a task waits for one point of score.
	Horizon = 4 * 24 * time.Hour
	// DefaultWeight is w, the weight of priority.
	DefaultWeight = 0.7
	// Long is a predicted run time that is not told from longer ones.
	Long = 6 * time.Hour
)

// Job is what a task's turn depends on.
type Job struct {
	Since    work.Time // when it began to wait for the first time
	Priority work.Priority
	Latency  bool          // inference or interactive
	Length   time.Duration // as predicted: its median
	Attained time.Duration // GPU time so far
	Latest   work.Time     // when it must start to meet its deadline; 0 = none
}

// Turn is a task's turn, lower first, apart from its tenant's share. A deadline raises
// it, as it nears, to where a new task of high priority stands.
func (r Rules) Turn(j Job, weight float64) work.Time {
	switch r.Order {
	case ByArrival, ByShare:
		return j.Since
	case ByLength:
		return work.Time(j.Length)
	case ByAttained:
		return j.Since + work.Time(Level(j.Attained))*work.Time(1<<55)
	case ByScore:
	}
	urgency := float64(work.Normal - j.Priority)
	if j.Latency {
		urgency += 0.5
	}
	length := float64(min(j.Length, Long)) / float64(Long)
	turn := j.Since - points(weight*urgency-(1-weight)/2*length)
	if j.Latest != 0 { // no earlier than that of a new task of high priority: age wins
		turn = min(turn, max(j.Latest, j.Since)-points(weight))
	}
	return turn
}

// points is so much of the score, in time.
func points(score float64) work.Time { return work.Time(score * float64(Horizon)) }

// Level discretises attained service as Tiresias does (Gu et al., NSDI '19): who has had
// less than an hour of a GPU goes before the others.
func Level(attained time.Duration) int {
	if attained < time.Hour {
		return 0
	}
	return 1
}

// HeadStart is what a tenant's share puts its tasks forward by: one who has had nothing
// lately of a pool goes before one who has had what it is entitled to, and that one
// before one who has had twice as much, or more. Both are parts of the pool.
func (r Rules) HeadStart(had, entitled, weight float64) work.Time {
	switch r.Order {
	case ByShare:
		if entitled <= 0 {
			return 0
		}
		return -work.Time(min(had/entitled, 1000) * float64(10*Horizon))
	case ByScore:
		if entitled <= 0 {
			return 0
		}
		return points((1 - weight) / 2 * max(1-had/entitled, -1))
	case ByArrival, ByLength, ByAttained:
	}
	return 0
}
