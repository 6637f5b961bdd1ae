package sim

import (
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/work"
)

// events are those of one instant. The engine keeps no pointer to an event, so the
// same memory serves the next instant: boxing each would be a quarter of a run's
// garbage.
type events struct {
	list   []engine.Event
	submit []engine.Submit
	carve  []engine.CarveDone
	start  []engine.StartDone
	exit   []engine.ProcessExited
	free   []engine.FreeDone
}

func (e *events) clear() {
	e.list, e.submit, e.carve, e.start, e.exit, e.free = e.list[:0], e.submit[:0], e.carve[:0], e.start[:0], e.exit[:0], e.free[:0]
}

// again makes the next element of a slice usable and returns it. What was pointed to
// before stays where it is, also when the slice has to grow.
func again[E any](s *[]E) *E {
	var none E
	*s = append(*s, none)
	return &(*s)[len(*s)-1]
}

func (e *events) submission() *work.Spec {
	ev := again(&e.submit)
	e.list = append(e.list, ev)
	return &ev.Spec
}

func (e *events) happened(x agendum) {
	switch x.what {
	case carved:
		ev := again(&e.carve)
		ev.Owner = x.owner
		e.list = append(e.list, ev)
	case started:
		ev := again(&e.start)
		ev.Owner = x.owner
		e.list = append(e.list, ev)
	case exited, stopped:
		ev := again(&e.exit)
		ev.Owner = x.owner
		if x.what == stopped {
			ev.Exit = work.Exit{Code: 143, Signal: "SIGTERM"}
		}
		e.list = append(e.list, ev)
	case freed:
		ev := again(&e.free)
		ev.Owner = x.owner
		e.list = append(e.list, ev)
	}
}
