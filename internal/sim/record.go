package sim

import (
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/work"
)

// Column is what one policy did with the trace. Times are in seconds.
type Column struct {
	Tasks        int     `json:"tasks"`          // submitted
	Finished     int     `json:"finished"`       // ended by themselves, well
	Expired      int     `json:"expired"`        // waited past a TTL (off in experiments)
	Rejected     int     `json:"rejected"`       // no cluster of this shape could ever run them
	Failed       int     `json:"failed"`         // ended otherwise
	Waiting      int     `json:"waiting"`        // still in line when the run stopped
	Running      int     `json:"running"`        // still holding GPUs when the run stopped
	GPUs         int     `json:"gpus"`           // of the cluster
	GPUsPeak     int     `json:"gpus_peak"`      // most GPUs with anything on them at once
	GPUsMean     float64 `json:"gpus_mean"`      // the same, mean over virtual time
	HoursHeld    float64 `json:"gpu_hours_held"` // of slices by their compute, from placed to freed
	HoursUsed    float64 `json:"gpu_hours_used"` // what tasks asked for, while they ran
	IdleFraction float64 `json:"idle_fraction"`  // 1 - used/held
	WaitMean     float64 `json:"wait_mean_s"`    // all time in line, also after a preemption, of those placed
	WaitP50      float64 `json:"wait_p50_s"`
	WaitP95      float64 `json:"wait_p95_s"`
	WaitP99      float64 `json:"wait_p99_s"`
	StartupMean  float64 `json:"startup_mean_s"` // from placement to running: carving
	JCTMean      float64 `json:"jct_mean_s"`     // from submission to the end, of those finished
	SlowdownMean float64 `json:"slowdown_mean"`  // the same over what the task runs, or 10 s where that is more
	SlowdownP99  float64 `json:"slowdown_p99"`
	Preemptions  int     `json:"preemptions"`
	Resizes      int     `json:"resizes"`
	Decisions    int     `json:"decisions"` // placements, refusals, expiries, preemptions and resizes

	Uses
}

// Point is a value from a time on.
type Point struct {
	At    time.Duration
	Value float64
}

// Outcome is a column and what its plots are drawn from.
type Outcome struct {
	Column
	Virtual   time.Duration  // from the first submission possible to the last word
	InUse     []Point        // GPUs with anything on them
	InLine    []Point        // tasks waiting
	Waits     []float64      // seconds, sorted
	Slowdowns []float64      // sorted
	Said      int            // finished tasks whose length was predicted, from others' or as told, when they came
	Within    int            // of Said, those that ended within the 90th percentile that was said
	Shadow    *engine.Shadow // what a static run says a dynamic one would need; nil = nothing
	Saved     Saved          // by its books
	stopped   bool           // ended early as hopeless
}

// holding is what the recorder keeps of a lease.
type holding struct {
	parts []work.Part
	epoch uint32
	left  int   // parts not yet freed
	older int32 // of the same task; as in taskRow
}

type taskRow struct {
	submitted       work.Time // by the trace
	queued          work.Time // when it last began to wait
	placed, running work.Time // 0 = not yet
	waited          time.Duration
	asked           int32   // thousandths of GPUs
	busy            float64 // share of what it asked for that computes
	lit             bool    // it counts as computing
	waiting         bool    // in line, for the first time or again from the beginning
	parked, woken   bool
	holds           int32 // 1 + its newest holding in recorder.leases, 0 = none
}

// recorder turns the facts of a run into numbers.
type recorder struct {
	sim       *simulation
	rows      []taskRow // by task number - 1
	leases    []holding
	spare     []int32 // of leases, 1 + those that are over
	onGPU     []int32 // slices on each GPU
	busyOn    []int32 // of those, the ones that compute
	busyGPUs  int     // with one that does
	memMiB    int64   // of the cluster's first GPU model
	last      work.Time
	inUse     int
	heldMilli int64
	inLine    int
	slow      int // tasks that ended later than Setup.Slow allows
	out       Outcome

	useTime, heldTime, usedTime         float64 // GPU seconds; milli GPU seconds twice
	waitSum, startupSum, starts, jctSum float64

	uses useRecord
}

func newRecorder(s *simulation) *recorder {
	r := &recorder{sim: s, last: epoch}
	r.rows = make([]taskRow, 0, s.total())
	r.out.Waits = make([]float64, 0, s.total())
	r.onGPU = make([]int32, GPUCount(s.setup.Hosts))
	r.busyOn = make([]int32, len(r.onGPU))
	r.out.GPUs = len(r.onGPU)
	if gpus := s.writer.Engine.GPUs(); len(gpus) > 0 {
		if _, m := s.writer.Engine.Cluster().Model(gpus[0].Model); m != nil {
			r.memMiB = m.Model.MemoryMiB
		}
	}
	return r
}

func (r *recorder) done() int {
	return r.out.Finished + r.out.Failed + r.out.Expired + r.out.Rejected
}

func (r *recorder) reject(error) {
	r.out.Tasks++
	r.out.Rejected++
	r.out.Decisions++
}

// take counts the facts of one instant.
func (r *recorder) take(now work.Time, facts []engine.Fact) {
	r.pass(now)
	use, line := r.inUse, r.inLine
	for _, f := range facts {
		switch f := f.(type) {
		case engine.Submitted:
			r.rows = append(r.rows, taskRow{submitted: r.sim.submitted(f.Task), queued: r.sim.submitted(f.Task), asked: int32(asked(f.Spec.Request, r.memMiB))})
			r.out.Tasks++
			r.joined(&r.rows[len(r.rows)-1])
		case engine.Placed:
			r.placed(now, f)
		case engine.Freed:
			r.freed(f.Owner)
		case engine.Became:
			r.became(now, f)
		default:
			r.moved(f)
		}
	}
	at := now.Sub(epoch)
	if r.inUse != use || len(r.out.InUse) == 0 {
		r.out.InUse = append(r.out.InUse, Point{at, float64(r.inUse)})
	}
	if r.inLine != line || len(r.out.InLine) == 0 {
		r.out.InLine = append(r.out.InLine, Point{at, float64(r.inLine)})
	}
	r.out.GPUsPeak = max(r.out.GPUsPeak, r.inUse)
}

// pass lets time go by with everything as it is.
func (r *recorder) pass(now work.Time) {
	dt := now.Sub(r.last).Seconds()
	r.useTime += float64(r.inUse) * dt
	r.heldTime += float64(r.heldMilli) * dt
	r.uses.pass(dt, len(r.onGPU), r.busyGPUs, r.inLine > 0)
	r.last = now
}

func (r *recorder) placed(now work.Time, f engine.Placed) {
	row := &r.rows[f.Task-1]
	if f.Runs != 0 { // it goes on where it was suspended
		r.uses.moves++
		r.calm(row)
	} else {
		r.left(row)
		r.out.Decisions++
		row.placed = now
		row.waited += now.Sub(row.queued)
		r.waitSum += now.Sub(row.queued).Seconds()
	}
	row.holds = r.keep(holding{f.Parts, f.Epoch, len(f.Parts), row.holds})
	for _, p := range f.Parts {
		r.heldMilli += int64(p.Milli())
		for _, s := range p.Slices {
			if r.onGPU[s.GPU]++; r.onGPU[s.GPU] == 1 {
				r.inUse++
			}
		}
	}
}

// keep puts a holding where there is room, and returns 1 + its place.
func (r *recorder) keep(h holding) int32 {
	if last := len(r.spare) - 1; last >= 0 {
		i := r.spare[last]
		r.spare = r.spare[:last]
		r.leases[i-1] = h
		return i
	}
	r.leases = append(r.leases, h)
	return int32(len(r.leases))
}

func (r *recorder) freed(o work.Owner) {
	at := &r.rows[o.Task-1].holds
	for *at != 0 && r.leases[*at-1].epoch != o.Epoch {
		at = &r.leases[*at-1].older
	}
	if *at == 0 { // a suspended task ends: its GPUs were freed before
		return
	}
	h := &r.leases[*at-1]
	p := &h.parts[o.Member]
	r.heldMilli -= int64(p.Milli())
	for _, s := range p.Slices {
		if r.onGPU[s.GPU]--; r.onGPU[s.GPU] == 0 {
			r.inUse--
		}
	}
	if h.left--; h.left == 0 {
		r.spare = append(r.spare, *at)
		*at = h.older
		*h = holding{}
	}
}

func (r *recorder) became(now work.Time, f engine.Became) {
	row := &r.rows[f.Task-1]
	if row.running != 0 && f.State != work.StateRunning {
		r.ran(row, now)
		r.sim.computes(now, f.Task, 0)
	}
	back := row.parked
	r.sleeps(row, f.State == work.Parked)
	if f.State != work.Parked {
		r.calm(row)
	}
	switch f.State {
	case work.StateRunning:
		row.running = now
		if u := r.sim.steady(f.Task); u > 0 {
			r.sim.computes(now, f.Task, u)
		}
		if back {
			break
		}
		r.startupSum += now.Sub(row.placed).Seconds()
		r.starts++
	case work.Queued:
		row.queued = now
		r.joined(row)
	case work.Yielding:
		r.out.Decisions++
		if f.Reason.Code == work.Resized || f.Reason.Code == work.Moved {
			r.out.Resizes++
			r.uses.moves++
			break
		}
		r.out.Preemptions++
	case work.Succeeded:
		r.finished(now, row, f.Task)
	case work.Expired:
		r.left(row)
		r.out.Expired++
		r.out.Decisions++
	case work.StateCancel:
		r.left(row)
		if r.sim.over(f.Task) { // it was parked, or in line again, when its time was over
			r.finished(now, row, f.Task)
			break
		}
		r.out.Failed++
	case work.Failed:
		r.out.Failed++
	case work.Starting, work.Parked:
	}
}

func (r *recorder) finished(now work.Time, row *taskRow, id work.TaskID) {
	r.out.Finished++
	jct := now.Sub(row.submitted)
	r.jctSum += jct.Seconds()
	x := slowdown(jct, r.sim.duration(id))
	if r.out.Slowdowns = append(r.out.Slowdowns, x); x > r.sim.setup.Slow {
		r.slow++
	}
}

// ran counts what a task used of what it asked for.
func (r *recorder) ran(row *taskRow, now work.Time) {
	r.usedTime += float64(row.asked) * now.Sub(row.running).Seconds()
	row.running = 0
}

// finish ends a run that was cut off.
func (r *recorder) finish(now work.Time) {
	if now <= r.last {
		return
	}
	r.pass(now)
}

// Stopped reports whether a run was ended early, so that its numbers are not whole.
func (o *Outcome) Stopped() bool { return o.stopped }

func (r *recorder) outcome() *Outcome {
	o := &r.out
	for i := range r.rows {
		if r.rows[i].running != 0 {
			r.ran(&r.rows[i], r.last)
		}
	}
	o.Virtual = r.last.Sub(epoch)
	o.Saved = savedOf(r.sim.writer.Engine, o.Virtual)
	r.usesOf(o)
	o.Within, o.Said = r.sim.writer.Engine.Coverage()
	o.Waiting = r.inLine
	o.Running = o.Tasks - o.Waiting - r.done()
	if s := o.Virtual.Seconds(); s > 0 {
		o.GPUsMean = r.useTime / s
	}
	o.HoursHeld = r.heldTime / 1000 / 3600
	o.HoursUsed = r.usedTime / 1000 / 3600
	if o.HoursHeld > 0 {
		o.IdleFraction = 1 - o.HoursUsed/o.HoursHeld
	}
	for i := range r.rows {
		if row := &r.rows[i]; row.placed != 0 {
			o.Waits = append(o.Waits, row.waited.Seconds())
		}
	}
	slices.Sort(o.Waits)
	slices.Sort(o.Slowdowns)
	o.WaitMean, o.StartupMean = mean(o.Waits), r.startupSum/max(r.starts, 1)
	o.SlowdownMean, o.SlowdownP95, o.SlowdownP99 = mean(o.Slowdowns), quantile(o.Slowdowns, 0.95), quantile(o.Slowdowns, 0.99)
	o.WaitP50, o.WaitP95, o.WaitP99 = quantile(o.Waits, 0.50), quantile(o.Waits, 0.95), quantile(o.Waits, 0.99)
	if o.Finished > 0 {
		o.JCTMean = r.jctSum / float64(o.Finished)
	}
	return o
}

// slowdown is how much longer a task took than it runs: bounded, as is usual, so that
// tasks of a second do not outweigh all others (Feitelson et al., JSSPP '97).
func slowdown(took, runs time.Duration) float64 {
	const least = 10 * time.Second
	return max(float64(took)/float64(max(runs, least)), 1)
}

func mean(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += x
	}
	return sum / float64(max(len(xs), 1))
}

// quantile is the nearest-rank quantile of sorted values: the smallest that at
// least a share q of them do not exceed.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	i := int(q * float64(len(sorted)))
	if float64(i) < q*float64(len(sorted)) {
		i++
	}
	return sorted[min(max(i-1, 0), len(sorted)-1)]
}
