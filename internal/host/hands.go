package host

import (
	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/runner"
	"github.com/gpupool/gpupool/internal/work"
)

// Hands carries out commands one at a time, as a Host does, for whoever has a clock and
// an order of his own: package storm.
type Hands struct{ d *dispatcher }

// NewHands makes hands for the drivers and the runner of a Config. Watch is called for each
// member whose end is to be reported, again for those that are watched already.
func NewHands(cfg Config, watch func(work.Owner)) *Hands {
	d := newDispatcher(&Host{cfg: cfg})
	d.watch = watch
	return &Hands{d}
}

// Do carries out a command and returns the event that answers it, or nil. The scale-out
// hook is not called.
func (h *Hands) Do(c engine.Command) engine.Event {
	if _, is := c.(engine.ScaleOutCmd); is {
		return nil
	}
	return h.d.run(c)
}

// LaneOf is the owner whose commands are carried out one after another, in the order in
// which they were given; false for one that waits for none.
func LaneOf(c engine.Command) (work.Owner, bool) {
	if _, is := c.(engine.ScaleOutCmd); is {
		return work.Owner{}, false
	}
	return owner(c), true
}

// OwnerOf is the owner whom a runner knows by an ID.
func OwnerOf(id runner.ID) work.Owner { return ownerOf(id) }

// Ended is what the engine is told when a member has ended.
func Ended(st runner.Status) engine.Event { return exited(ownerOf(st.ID), st, nil) }

// Inventory is what the engine is told of what a driver sees.
func Inventory(name string, inv driver.Inventory) engine.Inventory { return inventory(name, inv) }
