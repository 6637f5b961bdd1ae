package work

import "time"

// Guard bounds how much a pool may move before it falls back to static by itself. Zero
// means the default, a negative number that there is no bound.
type Guard struct {
	Window      time.Duration `json:"window,omitempty"`        // that is looked at; default 30 min
	Moves       float64       `json:"moves,omitempty"`         // of a task in an hour; default 30
	FailedMoves float64       `json:"failed_moves,omitempty"`  // share of all moves; default 0.2
	Carves      int           `json:"failed_carves,omitempty"` // in ten minutes; default 10
	Slowdown    float64       `json:"slowdown,omitempty"`      // time that woken tasks waited to go on, over the time that they then ran; default 0.5
}

// NoGuard has no bound: for experiments, whose numbers shall say what moving comes to.
func NoGuard() Guard { return Guard{Moves: -1, FailedMoves: -1, Carves: -1, Slowdown: -1} }
