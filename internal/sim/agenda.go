package sim

import (
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

// agenda is what is due when, in order of time and then of being added. It is a
// binary heap by hand: container/heap would box every entry, and this is the one
// loop whose speed a user waits for. It holds no pointer, so that the garbage
// collector has no part in it. What is due at once, nearly half of all, only stands
// in line.
type agenda struct {
	heap  []agendum
	line  []agendum // in order already
	done  int       // of line, the ones popped
	added uint64
}

// agendum is an event that is to come: what happens to which member.
type agendum struct {
	at    work.Time
	n     uint64
	owner work.Owner
	what  happening
}

type happening uint8

const (
	carved happening = iota
	started
	exited  // by itself, well
	stopped // as it was asked to
	freed

	// What follows is about how a task uses what it holds: see life. Where an owner is
	// written, its epoch is the count of the life's turns.
	loaded  // it can serve or compute
	arrives // a request
	served  // a request
	quiet   // it may have been idle for a while
	phase   // the next begins
	rouses  // it was suspended with work to do
	ends    // its time is over
	beat    // all idle tasks are measured
	worked  // a task with a pace may have ended
	suspended
	resumed
	resized

	ofUse = loaded // the first of them
)

func (a *agendum) before(b *agendum) bool { return a.at < b.at || a.at == b.at && a.n < b.n }

func (a *agenda) any() bool { return len(a.heap) > 0 || a.done < len(a.line) }

// first is the next of all; there must be one.
func (a *agenda) first() *agendum {
	if a.done < len(a.line) && (len(a.heap) == 0 || a.line[a.done].before(&a.heap[0])) {
		return &a.line[a.done]
	}
	return &a.heap[0]
}

func (a *agenda) next() work.Time { return a.first().at }

// add notes what is due a while after now, which never goes back, and returns its number.
func (a *agenda) add(now work.Time, after time.Duration, what happening, o work.Owner) uint64 {
	a.added++
	x := agendum{now.Add(after), a.added, o, what}
	if after == 0 {
		a.line = append(a.line, x)
		return x.n
	}
	a.heap = append(a.heap, x)
	i := len(a.heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !x.before(&a.heap[up]) {
			break
		}
		a.heap[i] = a.heap[up]
		i = up
	}
	a.heap[i] = x
	return x.n
}

func (a *agenda) pop() agendum {
	first := *a.first()
	if a.done < len(a.line) && a.line[a.done].n == first.n {
		if a.done++; a.done == len(a.line) {
			a.line, a.done = a.line[:0], 0
		}
		return first
	}
	last := len(a.heap) - 1
	x := &a.heap[last]
	i := 0
	for {
		down := 2*i + 1
		if down+1 < last && a.heap[down+1].before(&a.heap[down]) {
			down++
		}
		if down >= last || !a.heap[down].before(x) {
			break
		}
		a.heap[i] = a.heap[down]
		i = down
	}
	a.heap[i] = *x
	a.heap = a.heap[:last]
	return first
}
