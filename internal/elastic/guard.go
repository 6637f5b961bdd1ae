package elastic

import (
	"cmp"
	"fmt"
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

// Count is what happened to the tasks of a pool in a part of the guard's window.
type Count struct {
	Part   int64         `json:"part"` // its number, from the beginning of time
	Moves  int           `json:"moves,omitempty"`
	Failed int           `json:"failed,omitempty"` // of the moves
	Wakes  int           `json:"wakes,omitempty"`  // tasks that were woken and went on
	Waited time.Duration `json:"waited,omitempty"` // that those waited for it
	Ran    time.Duration `json:"ran,omitempty"`    // that tasks ran which had been woken
	Tasks  time.Duration `json:"tasks,omitempty"`  // that tasks held something or were parked
}

// Jitter counts how much a pool moves. It is bounded: parts of the window, and the last
// failed carves.
type Jitter struct {
	Since  work.Time   `json:"since"` // when counting began
	At     work.Time   `json:"at"`    // up to when time is counted
	Parts  []Count     `json:"parts,omitempty"`
	Carves []work.Time `json:"carves,omitempty"` // that failed

	Active int `json:"-"` // tasks that hold something or are parked
	Woken  int `json:"-"` // that run and had been parked
}

// Of the guard.
const (
	parts       = 12               // of a window: it moves on by one at a time
	carveWindow = 10 * time.Minute //
	mostCarves  = 100              // that are kept; the bound is under it
	leastMoves  = 20               // under which a rate says nothing
	leastFailed = 10               // moves under which a share of failures says nothing
	leastWakes  = 20               // under which a slowdown says nothing
)

// GuardOf fills in the defaults.
func GuardOf(g work.Guard) work.Guard {
	return work.Guard{Window: cmp.Or(g.Window, 30*time.Minute), Moves: cmp.Or(g.Moves, 30), FailedMoves: cmp.Or(g.FailedMoves, 0.2),
		Carves: cmp.Or(g.Carves, 10), Slowdown: cmp.Or(g.Slowdown, 0.5)}
}

// Reset begins anew.
func (j *Jitter) Reset(now work.Time) {
	*j = Jitter{Since: now, At: now, Active: j.Active, Woken: j.Woken}
}

// Pass counts the time up to now; before Active or Woken change, and before Add.
func (j *Jitter) Pass(now work.Time, window time.Duration) {
	part := window / parts
	from := max(j.At, now.Add(-window)) // what is older is out of the window
	for from < now {
		c := j.part(int64(from) / int64(part))
		to := min(now, work.Time((c.Part+1)*int64(part)))
		c.Tasks += time.Duration(j.Active) * to.Sub(from)
		c.Ran += time.Duration(j.Woken) * to.Sub(from)
		from = to
	}
	j.At = max(j.At, now)
}

// part is the one with a number, which is no older than the newest.
func (j *Jitter) part(number int64) *Count {
	if n := len(j.Parts); n > 0 && j.Parts[n-1].Part == number {
		return &j.Parts[n-1]
	}
	for len(j.Parts) > 0 && j.Parts[0].Part <= number-parts {
		j.Parts = j.Parts[1:]
	}
	j.Parts = append(j.Parts, Count{Part: number})
	return &j.Parts[len(j.Parts)-1]
}

// Add counts what happened now.
func (j *Jitter) Add(now work.Time, window time.Duration, x Count) {
	j.Pass(now, window)
	c := j.part(int64(now) / int64(window/parts))
	c.Moves += x.Moves
	c.Failed += x.Failed
	c.Wakes += x.Wakes
	c.Waited += x.Waited
}

// CarveFailed counts a carve that failed now.
func (j *Jitter) CarveFailed(now work.Time) {
	for len(j.Carves) > 0 && (j.Carves[0] < now.Add(-carveWindow) || len(j.Carves) >= mostCarves) {
		j.Carves = j.Carves[1:]
	}
	j.Carves = append(j.Carves, now)
}

// sum is the whole window.
func (j *Jitter) sum(now work.Time, window time.Duration) (out Count) {
	for _, c := range j.Parts {
		if c.Part > int64(now)/int64(window/parts)-parts {
			out.Moves += c.Moves
			out.Failed += c.Failed
			out.Wakes += c.Wakes
			out.Waited += c.Waited
			out.Ran += c.Ran
			out.Tasks += c.Tasks
		}
	}
	since := now.Sub(max(j.At, now.Add(-window)))
	out.Tasks += time.Duration(j.Active) * since
	out.Ran += time.Duration(j.Woken) * since
	return out
}

// Over says which bound is passed and by how much, or nothing. What a pool did before
// counting began is taken for nothing, so that a pool which has just been made dynamic,
// and parks at once all that idle, has the whole window for it.
func (j *Jitter) Over(g work.Guard, now work.Time) string {
	g = GuardOf(g)
	s := j.sum(now, g.Window)
	carves := 0
	for _, at := range j.Carves {
		if at >= now.Add(-carveWindow) {
			carves++
		}
	}
	tasks := float64(s.Tasks) / float64(max(min(now.Sub(j.Since), g.Window), time.Second))
	rate := float64(s.Moves) / max(tasks, 1) / g.Window.Hours()
	within := " in " + work.FormatDuration(g.Window)
	switch {
	case g.Carves > 0 && carves > g.Carves:
		return fmt.Sprintf("%d slices could not be made in %s, the bound is %d", carves, work.FormatDuration(carveWindow), g.Carves)
	case g.FailedMoves > 0 && s.Moves >= leastFailed && float64(s.Failed) > g.FailedMoves*float64(s.Moves):
		return fmt.Sprintf("%d of %d moves failed%s, the bound is %.3g %%", s.Failed, s.Moves, within, 100*g.FailedMoves)
	case g.Moves > 0 && s.Moves >= leastMoves && rate > g.Moves:
		return fmt.Sprintf("%.3g moves a task and hour, the bound is %.3g: %d moves of %.3g tasks%s", rate, g.Moves, s.Moves, tasks, within)
	case g.Slowdown > 0 && s.Wakes >= leastWakes && float64(s.Waited) > g.Slowdown*float64(s.Ran):
		return fmt.Sprintf("tasks that were woken waited %s to go on and then ran for %s%s: %.3g to one, the bound is %.3g",
			work.FormatDuration(s.Waited.Round(time.Second)), work.FormatDuration(s.Ran.Round(time.Second)), within, float64(s.Waited)/max(float64(s.Ran), 1), g.Slowdown)
	}
	return ""
}
