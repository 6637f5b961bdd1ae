package host

import (
	"sync"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/work"
)

// Event is a fact as subscribers see it, with what it is about.
type Event struct {
	Seq    uint64 // of the fact in the journal
	At     work.Time
	Fact   engine.Fact
	Task   work.TaskID // 0 when it is about no task
	Tenant string      // "" when it is about no tenant
}

const (
	feedKept   = 8192 // facts kept for those who come back
	feedBuffer = 1024 // facts a subscriber may be behind before it is let go
)

// feed hands durable facts to any number of subscribers without ever waiting
// for one.
type feed struct {
	mu     sync.Mutex
	kept   []Event // oldest first
	last   uint64
	subs   map[chan Event]bool
	closed bool
}

func newFeed(last uint64) *feed { return &feed{last: last, subs: map[chan Event]bool{}} }

func (f *feed) publish(evs []Event) {
	if len(evs) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept = append(f.kept, evs...)
	if len(f.kept) > 2*feedKept {
		f.kept = append([]Event(nil), f.kept[len(f.kept)-feedKept:]...)
	}
	f.last = evs[len(evs)-1].Seq
	for ch := range f.subs {
		for _, ev := range evs {
			select {
			case ch <- ev:
				continue
			default:
			}
			delete(f.subs, ch) // too slow: it sees the end and comes back
			close(ch)
			break
		}
	}
}

func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for ch := range f.subs {
		delete(f.subs, ch)
		close(ch)
	}
}

// Subscribe returns what is kept of the facts after the given sequence number,
// and a channel of those that follow. The channel is closed when the subscriber
// falls too far behind or the host ends; stop must be called when done. From
// after the newest fact there is no backlog; with 0 all that is kept comes.
func (h *Host) Subscribe(after uint64) (backlog []Event, next <-chan Event, stop func()) {
	f := h.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, ev := range f.kept {
		if ev.Seq > after {
			backlog = append(backlog, f.kept[i:]...)
			break
		}
	}
	ch := make(chan Event, feedBuffer)
	if f.closed {
		close(ch)
		return backlog, ch, func() {}
	}
	f.subs[ch] = true
	return backlog, ch, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.subs[ch] {
			delete(f.subs, ch)
			close(ch)
		}
	}
}

// LastEvent is the sequence number of the newest published fact.
func (h *Host) LastEvent() uint64 {
	h.feed.mu.Lock()
	defer h.feed.mu.Unlock()
	return h.feed.last
}

// describe says what each fact of a batch is about; the caller holds the lock.
func (h *Host) describe(b Batch, at work.Time) []Event {
	evs := make([]Event, len(b.Facts))
	for i, f := range b.Facts {
		evs[i] = Event{Seq: b.First + uint64(i), At: at, Fact: f, Task: engine.TaskOf(f)}
		if t := h.writer.Engine.Task(evs[i].Task); t != nil {
			evs[i].Tenant = t.Spec.Tenant
		}
	}
	return evs
}
