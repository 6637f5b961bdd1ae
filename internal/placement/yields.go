package placement

import "github.com/gpupool/gpupool/internal/work"

// yields is an index of who could make room: for each priority, the hosts by how
// many GPUs of one model would be free if every task of that priority and of less
// urgent ones yielded.
type yields [work.Priorities]yieldRows

type yieldRows struct {
	rows [][]*set // [free then][free now] hosts
	some set      // hosts where a slice is held by such a task
}

// yieldCount is what a bay counts for one priority.
type yieldCount struct {
	whole int // GPUs that would be free
	some  int // GPUs where some slice would be freed
}

func (y *yieldRows) row(then, now int) *set {
	for len(y.rows) <= then {
		y.rows = append(y.rows, make([]*set, len(y.rows)+1))
	}
	if y.rows[then][now] == nil {
		y.rows[then][now] = &set{}
	}
	return y.rows[then][now]
}

func (y *yields) enter(h *Host, at spot) {
	for p := range y {
		y[p].row(at.yield[p].whole, at.free).add(h.Number)
		if at.yield[p].some > 0 {
			y[p].some.add(h.Number)
		}
	}
}

func (y *yields) leave(h *Host, at spot) {
	for p := range y {
		y[p].rows[at.yield[p].whole][at.free].remove(h.Number)
		y[p].some.remove(h.Number)
	}
}

// move does what has changed of leave and enter.
func (y *yields) move(h *Host, was, now spot) {
	for p := range y {
		a, b := was.yield[p], now.yield[p]
		if a.whole != b.whole || was.free != now.free {
			y[p].rows[a.whole][was.free].remove(h.Number)
			y[p].row(b.whole, now.free).add(h.Number)
		}
		switch {
		case a.some == 0 && b.some > 0:
			y[p].some.add(h.Number)
		case a.some > 0 && b.some == 0:
			y[p].some.remove(h.Number)
		}
	}
}

// counts adds what a usable GPU means for each priority, or takes it off.
func (b *bay) counts(g *GPU, sign int) {
	urgent, lax := work.Priority(work.Priorities), work.Priority(-1)
	for i := range g.Held {
		urgent, lax = min(urgent, g.Held[i].Priority), max(lax, g.Held[i].Priority)
	}
	for p := range b.yield {
		if urgent >= work.Priority(p) {
			b.yield[p].whole += sign
		}
		if lax >= work.Priority(p) {
			b.yield[p].some += sign
		}
	}
}

// checkYields verifies what the bays of a host count and where the host stands.
func (c *Cluster) checkYields(h *Host) string {
	use := h.Up && !h.Cordoned
	for i := range h.bays {
		b := &h.bays[i]
		var want bay
		for _, n := range b.gpus {
			if g := c.GPUs[n]; g.sound() {
				want.counts(g, 1)
			}
		}
		if use && want.yield != b.yield {
			return "the bay's count of GPUs that would be free is wrong"
		}
		for p := range c.pools[h.Pool].shelves[b.model].yields {
			y := &c.pools[h.Pool].shelves[b.model].yields[p]
			for then, rows := range y.rows {
				for now, r := range rows {
					if r != nil && r.has(h.Number) != (use && then == b.yield[p].whole && now == b.count()) {
						return "the host stands in a wrong row of those that could make room"
					}
				}
			}
			if y.some.has(h.Number) != (use && b.yield[p].some > 0) {
				return "the host is wrong among those where a slice could be freed"
			}
		}
	}
	return ""
}
