package engine

import (
	"fmt"
)

// checkGuards: what a guard takes for granted of its pool is so.
func (e *Engine) checkGuards() error {
	active, woken := map[*pool]int{}, map[*pool]int{}
	for _, t := range e.tasks { // order: sums
		if t.lease != nil {
			active[t.pool]++
		}
		if wasParked(t) {
			woken[t.pool]++
		}
	}
	for _, p := range e.lines {
		j := &p.guard.jitter
		if j.Active != active[p] || j.Woken != woken[p] {
			return fmt.Errorf("the guard of pool %s counts %d tasks, %d of them woken, there are %d and %d", p.Name, j.Active, j.Woken, active[p], woken[p])
		}
		if len(p.guard.notes) > mostNotes || j.At > e.now {
			return fmt.Errorf("the guard of pool %s keeps %d moves up to %d, and it is %d", p.Name, len(p.guard.notes), j.At, e.now)
		}
	}
	return nil
}
