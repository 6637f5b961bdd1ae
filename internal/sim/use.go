package sim

import (
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/work"
)

// Uses is what tasks did with what they held, where the trace says what they do. A busy
// GPU is one whose task is at a request, or the share that its phase computes; loading,
// suspending and resuming are not busy. A task of which nothing is known is busy as long
// as it runs.
type Uses struct {
	Requests     int     `json:"requests,omitempty"`             // that came
	Begun        int     `json:"requests_begun,omitempty"`       // before their task or the run ended
	Within10s    float64 `json:"started_within_10s,omitempty"`   // of all requests, the share that began within 10 s of coming
	RequestMean  float64 `json:"request_wait_mean_s,omitempty"`  //
	RequestP50   float64 `json:"request_wait_p50_s,omitempty"`   // until it begins; one that never began counts with its wait until its task ended
	RequestP95   float64 `json:"request_wait_p95_s,omitempty"`   //
	RequestP99   float64 `json:"request_wait_p99_s,omitempty"`   //
	RequestSlow  float64 `json:"request_slowdown_p95,omitempty"` // from coming to the end, over what it takes or 10 s; of those that ended
	SlowdownP95  float64 `json:"slowdown_p95,omitempty"`         // of tasks, as slowdown_p99
	Moves        int     `json:"moves,omitempty"`                // parks and wakes
	MovesPerTask float64 `json:"moves_per_task,omitempty"`       //
	ParkedHours  float64 `json:"parked_gpu_hours,omitempty"`     // of GPUs that parked tasks did without
	IdleByUse    float64 `json:"idle_by_use,omitempty"`          // 1 - busy GPU time / GPU time held; what is parked holds nothing
	IdleWaiting  float64 `json:"idle_while_waiting,omitempty"`   // of the cluster's GPU time while a task that asks for whole GPUs is in line, or is woken and has none: the share that was free, or held and not busy
	WaitingHours float64 `json:"waiting_gpu_hours,omitempty"`    // that GPU time
}

// soon is when a request has started soon enough.
const soon = 10 * time.Second

// useRecord adds up what becomes Uses.
type useRecord struct {
	known       bool // a task of the trace says what it does
	requests    int
	begun       int
	within      int
	moves       int
	waits       []float64
	slow        []float64
	busyMilli   float64
	whole       int // tasks in line that ask for whole GPUs, and woken ones without
	parkedMilli int64

	busyTime, parkedTime float64 // thousandths of GPU seconds
	waitTime, wastedTime float64 // GPU seconds
}

func (u *useRecord) pass(dt float64, gpus int) {
	u.busyTime += u.busyMilli * dt
	u.parkedTime += float64(u.parkedMilli) * dt
	if u.whole > 0 {
		u.waitTime += float64(gpus) * dt
		u.wastedTime += (float64(gpus) - u.busyMilli/1000) * dt
	}
}

func (u *useRecord) began(wait time.Duration) {
	u.begun++
	u.left(wait)
}

// left counts the wait of a request.
func (u *useRecord) left(wait time.Duration) {
	if u.waits = append(u.waits, wait.Seconds()); wait <= soon {
		u.within++
	}
}

func (u *useRecord) done(took, takes time.Duration) { u.slow = append(u.slow, slowdown(took, takes)) }

// tooLate reports whether more than a share of all requests of a trace have begun too late.
func (r *recorder) tooLate(most float64) bool {
	return float64(len(r.uses.waits)-r.uses.within) > most*float64(r.sim.requests)
}

// setBusy says what share of what it asked for a task uses from now on.
func (r *recorder) setBusy(now work.Time, id work.TaskID, share float64) {
	r.pass(now)
	row := &r.rows[id-1]
	r.uses.busyMilli += (share - row.busy) * float64(row.asked)
	row.busy = share
}

// joined and left are of the line of those who have not started.
func (r *recorder) joined(row *taskRow) {
	if row.waiting {
		return
	}
	row.waiting = true
	r.inLine++
	if row.whole {
		r.uses.whole++
	}
}

func (r *recorder) left(row *taskRow) {
	if !row.waiting {
		return
	}
	row.waiting = false
	r.inLine--
	if row.whole {
		r.uses.whole--
	}
}

// calm is told that a task is not woken any more: it goes on, or has ended.
func (r *recorder) calm(row *taskRow) {
	if row.woken {
		row.woken = false
		r.uses.whole--
	}
}

// moved counts moves.
func (r *recorder) moved(f engine.Fact) {
	switch f := f.(type) {
	case engine.Suspending:
		r.uses.moves++
	case engine.Woken:
		if row := &r.rows[f.Task-1]; !row.woken {
			row.woken = true
			r.uses.whole++
		}
	case engine.Resuming:
		r.uses.moves++
		r.calm(&r.rows[f.Owner.Task-1])
	case engine.Resumed:
		r.calm(&r.rows[f.Owner.Task-1])
	}
}

// sleeps notes that a task is parked from now on, or is not.
func (r *recorder) sleeps(row *taskRow, is bool) {
	if is != row.parked {
		row.parked = is
		if is {
			r.uses.parkedMilli += int64(row.asked)
		} else {
			r.uses.parkedMilli -= int64(row.asked)
		}
	}
}

// usesOf fills in Uses, for a trace that says anything about it.
func (r *recorder) usesOf(o *Outcome) {
	u := &r.uses
	if !u.known {
		return
	}
	slices.Sort(u.waits)
	slices.Sort(u.slow)
	o.Requests, o.Begun, o.Moves = u.requests, u.begun, u.moves
	o.Within10s = float64(u.within) / float64(max(u.requests, 1))
	o.RequestP50, o.RequestP95, o.RequestP99 = quantile(u.waits, 0.50), quantile(u.waits, 0.95), quantile(u.waits, 0.99)
	o.RequestMean, o.SlowdownP95 = mean(u.waits), quantile(o.Slowdowns, 0.95)
	o.RequestSlow = quantile(u.slow, 0.95)
	o.MovesPerTask = float64(u.moves) / float64(max(o.Tasks, 1))
	o.ParkedHours = u.parkedTime / 1000 / 3600
	if r.heldTime > 0 {
		o.IdleByUse = 1 - u.busyTime/r.heldTime
	}
	if o.WaitingHours = u.waitTime / 3600; u.waitTime > 0 {
		o.IdleWaiting = u.wastedTime / u.waitTime
	}
}
