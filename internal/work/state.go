package work

import "slices"

// State is where a task stands.
type State string

// The states of a task.
const (
	Queued       State = "queued"
	Starting     State = "starting"
	StateRunning State = "running"
	Yielding     State = "yielding" // being preempted, resized or moved
	Parked       State = "parked"   // suspended while idle
	Succeeded    State = "succeeded"
	Failed       State = "failed"
	StateCancel  State = "cancelled"
	Expired      State = "expired"
)

// States lists every state in the order of a task's life.
func States() []State {
	return []State{Queued, Starting, StateRunning, Yielding, Parked, Succeeded, Failed, StateCancel, Expired}
}

// arrows is the one table of legal changes. Starting may end at once: a program
// that cannot be started fails, and a user may cancel before it runs. Yielding
// may fail or be cancelled like a running task. Parked goes back to the queue when
// its host is lost, and its end may be heard of late.
var arrows = map[State][]State{
	Queued:       {Starting, StateCancel, Expired, Failed},
	Starting:     {StateRunning, Queued, Succeeded, Failed, StateCancel},
	StateRunning: {Succeeded, Failed, StateCancel, Yielding, Parked},
	Yielding:     {Queued, StateRunning, Succeeded, Failed, StateCancel},
	Parked:       {StateRunning, Queued, Succeeded, Failed, StateCancel},
}

// CanBecome reports whether a task may go from s to t.
func (s State) CanBecome(t State) bool {
	return slices.Contains(arrows[s], t)
}

// Terminal reports whether nothing follows s.
func (s State) Terminal() bool { return len(arrows[s]) == 0 }
