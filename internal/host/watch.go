package host

import (
	"time"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/work"
)

// Watcher is told what a host does: every fact, unlike a subscriber, which may miss some.
// Both methods must return at once, as Commit is called by the one writer, and neither
// may change what it is given.
type Watcher interface {
	Commit(Commit)
	Published(*View)
}

// Commit is what one group of events led to, durable and answered for.
type Commit struct {
	At      work.Time
	Events  []Event // the facts, in order
	Refused []Refusal
	Asked   int           // events that came in
	Stepped time.Duration // deciding
	Stored  time.Duration // making it durable; 0 when there was nothing to store
	Unsaved error         // a snapshot that was due failed
}

// Refusal is an event that changed nothing, and why.
type Refusal struct {
	Event engine.Event
	Err   error
}

// tell tells the watcher of a commit.
func (h *Host) tell(at work.Time, batch []request, out Batch, events []Event) {
	if len(out.Facts) > 0 {
		h.changes.Add(1)
	}
	if h.cfg.Watch == nil {
		return
	}
	c := Commit{At: at, Events: events, Asked: len(batch), Stepped: out.Stepped, Stored: out.Stored, Unsaved: out.Unsaved}
	for i, r := range out.Replies {
		if r.Err != nil {
			c.Refused = append(c.Refused, Refusal{batch[i].ev, r.Err})
		}
	}
	h.cfg.Watch.Commit(c)
}
