package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/work"
)

// Uses is what tasks did with what they held, where the trace says what they do.
//
// A GPU is idle while nothing computes on it: no task there is at a request, or in a phase
// that computes at least as much as the engine's mark (5 %). Loading, suspending and
// resuming compute nothing. It is unused to the part that is left of 1 by the mean of what
// computes: a phase of 30 % leaves a GPU busy, and 70 % of it unused. Monitoring shows the
// latter as utilisation; a scheduler can give away the former, and the latter only by
// letting tasks share. A task of which nothing is known computes as long as it runs.
type Uses struct {
	Requests     int     `json:"requests,omitempty"`                      // that came
	Begun        int     `json:"requests_begun,omitempty"`                // before their task or the run ended
	Within10s    float64 `json:"started_within_10s,omitempty"`            // of all requests, the share that began within 10 s of coming
	RequestMean  float64 `json:"request_wait_mean_s,omitempty"`           //
	RequestP50   float64 `json:"request_wait_p50_s,omitempty"`            // until it begins; one that never began counts with its wait until its task ended
	RequestP95   float64 `json:"request_wait_p95_s,omitempty"`            //
	RequestP99   float64 `json:"request_wait_p99_s,omitempty"`            //
	RequestSlow  float64 `json:"request_slowdown_p95,omitempty"`          // from coming to the end, over what it takes or 10 s; of those that ended
	SlowdownP95  float64 `json:"slowdown_p95,omitempty"`                  // of tasks, as slowdown_p99
	Moves        int     `json:"moves,omitempty"`                         // parks and wakes
	MovesPerTask float64 `json:"moves_per_task,omitempty"`                //
	ParkedHours  float64 `json:"parked_gpu_hours,omitempty"`              // of GPUs that parked tasks did without
	TaskSlow     float64 `json:"requests_of_task_slowdown_p95,omitempty"` // as request_slowdown_p95, but of each task the sum over its requests: how much longer all its work took

	Idle          float64 `json:"idle_of_held,omitempty"`         // of the time of GPUs with anything on them, that in which nothing computes; what is parked holds nothing
	IdleAll       float64 `json:"idle_of_all,omitempty"`          // of the time of all GPUs, held or free
	Unused        float64 `json:"unused_of_held,omitempty"`       // of the GPU time held, 1 - mean utilisation
	IdleWaiting   float64 `json:"idle_while_waiting,omitempty"`   // as idle_of_all, of the time while a task is in line, or is woken and has no GPU
	UnusedWaiting float64 `json:"unused_while_waiting,omitempty"` // 1 - mean utilisation of all GPUs in that time
	WorkHours     float64 `json:"work_gpu_hours,omitempty"`       // of tasks that work at a pace: done and kept, without loading
	WaitingHours  float64 `json:"waiting_gpu_hours,omitempty"`    // all GPUs times that time
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
	woken       int     // tasks that are, and have no GPU yet
	worked      float64 // GPU seconds of work that tasks with a pace have done, and kept
	parkedMilli int64

	busyTime, parkedTime           float64 // thousandths of GPU seconds
	litTime                        float64 // of GPUs on which something computes, in seconds
	waitTime, waitLit, waitWorking float64 // GPU seconds while someone waits: of all, of those lit, by utilisation
}

// pass lets time go by: gpus is how many there are, lit on how many something computes.
func (u *useRecord) pass(dt float64, gpus, lit int, waits bool) {
	u.busyTime += u.busyMilli * dt
	u.parkedTime += float64(u.parkedMilli) * dt
	u.litTime += float64(lit) * dt
	if waits || u.woken > 0 {
		u.waitTime += float64(gpus) * dt
		u.waitLit += float64(lit) * dt
		u.waitWorking += u.busyMilli / 1000 * dt
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
	lit := share >= idleMark
	if lit == row.lit || row.holds == 0 {
		return
	}
	row.lit = lit
	for _, p := range r.leases[row.holds-1].parts {
		for _, s := range p.Slices {
			if lit {
				if r.busyOn[s.GPU]++; r.busyOn[s.GPU] == 1 {
					r.busyGPUs++
				}
			} else if r.busyOn[s.GPU]--; r.busyOn[s.GPU] == 0 {
				r.busyGPUs--
			}
		}
	}
}

// resized notes that a part has other slices, of the same GPUs.
func (r *recorder) resized(f engine.Resizing) {
	at := r.rows[f.Owner.Task-1].holds
	for at != 0 && r.leases[at-1].epoch != f.Owner.Epoch {
		at = r.leases[at-1].older
	}
	if at == 0 {
		return
	}
	h := &r.leases[at-1]
	h.parts = slices.Clone(h.parts) // the fact's
	p := &h.parts[f.Owner.Member]
	r.heldMilli -= int64(p.Milli())
	p.Slices = f.Slices
	r.heldMilli += int64(p.Milli())
	r.out.Resizes++
	r.out.Decisions++
	r.uses.moves++
}

// joined and left are of the line of those who have not started.
func (r *recorder) joined(row *taskRow) {
	if row.waiting {
		return
	}
	row.waiting = true
	r.inLine++
}

func (r *recorder) left(row *taskRow) {
	if !row.waiting {
		return
	}
	row.waiting = false
	r.inLine--
}

// calm is told that a task is not woken any more: it goes on, or has ended.
func (r *recorder) calm(row *taskRow) {
	if row.woken {
		row.woken = false
		r.uses.woken--
	}
}

// moved counts moves.
func (r *recorder) moved(f engine.Fact) {
	switch f := f.(type) {
	case engine.Resizing: // what it gives up counts as given from here on
		r.resized(f)
	case engine.Resized:
		r.sim.reseats(r.last, f.Owner.Task)
	case engine.Suspending:
		r.uses.moves++
	case engine.Woken:
		if row := &r.rows[f.Task-1]; !row.woken {
			row.woken = true
			r.uses.woken++
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
	o.RequestMean = mean(u.waits)
	o.RequestSlow = quantile(u.slow, 0.95)
	var tasks []float64
	for _, l := range r.sim.lives {
		if l != nil && l.takes > 0 {
			tasks = append(tasks, slowdown(l.took, l.takes))
		}
	}
	slices.Sort(tasks)
	o.TaskSlow = quantile(tasks, 0.95)
	o.MovesPerTask = float64(u.moves) / float64(max(o.Tasks, 1))
	o.ParkedHours = u.parkedTime / 1000 / 3600
	for _, id := range slices.Sorted(maps.Keys(r.sim.paces)) {
		p := r.sim.paces[id]
		p.count(r.last)
		u.worked += p.wide * (p.kept + max(0, p.done-p.load)).Seconds()
	}
	o.WorkHours = u.worked / 3600
	if r.heldTime > 0 {
		o.Unused = 1 - u.busyTime/r.heldTime
		o.Idle = 1 - u.litTime/r.useTime
	}
	if all := float64(len(r.onGPU)) * o.Virtual.Seconds(); all > 0 {
		o.IdleAll = 1 - u.litTime/all
	}
	if o.WaitingHours = u.waitTime / 3600; u.waitTime > 0 {
		o.IdleWaiting = 1 - u.waitLit/u.waitTime
		o.UnusedWaiting = 1 - u.waitWorking/u.waitTime
	}
}
