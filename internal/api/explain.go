package api

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/work"
)

// order adds what says when a task runs, for how long, and after what.
func (v view) order(out *apitype.Task, t *engine.Task) {
	s := t.Spec
	if t.Array != 0 {
		index := t.Index
		out.Array, out.Index, out.Size, out.ArraySpec = uint64(t.Array), &index, s.Array.Size(), s.Array.String()
	}
	out.Held, out.After, out.AfterAny = t.Held && t.State == work.Queued, numbers(s.After), numbers(s.AfterAny)
	out.MaxRuntime, out.Estimate, out.Checkpoint = span(s.MaxRuntime), span(s.Estimate), span(s.Checkpoint)
	out.Deadline = known(s.Deadline)
	if !s.External() {
		out.Forecast = said(t)
	}
	if t.State == work.Queued && s.TTL > 0 && !t.Held && t.Awaits == 0 {
		out.WaitsUntil = known(t.Queued.Add(s.TTL))
	}
	if t.State == work.StateRunning && s.MaxRuntime > 0 {
		out.RunsUntil = known(t.Started.Add(s.MaxRuntime - t.Ran))
	}
}

func numbers(ids []work.TaskID) (out []uint64) {
	for _, id := range ids {
		out = append(out, uint64(id))
	}
	return out
}

// span writes a duration; none is nothing.
func span(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	if d < time.Second {
		return work.FormatDuration(d.Round(time.Millisecond))
	}
	return work.FormatDuration(d.Round(time.Second))
}

// said is how long a task was said to run; nil where that is not known.
func said(t *engine.Task) *apitype.Forecast {
	f := t.Said
	if f.P90 <= 0 {
		return nil
	}
	return &apitype.Forecast{P50: span(f.P50), P90: span(f.P90), Basis: string(f.Basis), Samples: f.Samples}
}

// known is a time that the engine knows: neither none nor the end of time.
func known(t work.Time) *time.Time {
	if t == math.MaxInt64 {
		return nil
	}
	return optional(t)
}

// explanation adds to the engine's what the task holds, in sentences.
func (v view) explanation(x engine.Explanation) apitype.Explanation {
	out := apitype.Explanation{Task: v.task(x.Task), Code: string(x.Reason.Code), Message: x.Reason.Msg, Ahead: x.Ahead}
	out.Task.Reason = reason(x.Reason)
	if l := x.Task.Lease(); l != nil {
		for i, m := range out.Task.Members {
			what := "CPU and memory only"
			for k, s := range m.Slices {
				if k == 0 {
					what = s.Text
				} else {
					what += ", " + s.Text
				}
			}
			out.Detail = append(out.Detail, fmt.Sprintf("member %d holds %s on host %s since %s and is %s", i, what, m.Host, l.Since.Std().Format(time.RFC3339), m.Phase))
			if why := l.Parts[i].Why; why != "" {
				out.Detail = append(out.Detail, fmt.Sprintf("member %d: its slices could not be freed yet: %s", i, why))
			}
		}
	}
	v.waiting(&out, x)
	if x.Task.Array != 0 {
		out.Array = v.progress(x.Task)
	}
	if m := x.Task.Spec.MaxRuntime; m > 0 && !x.Task.State.Terminal() {
		left := m - x.Task.Ran
		if x.Task.State == work.StateRunning {
			left -= v.Now().Sub(x.Task.Started)
		}
		out.RunLeft = work.FormatDuration(max(left, 0).Round(time.Second))
	}
	if x.Pool != "" {
		out.Detail = append(out.Detail, x.Pool)
	}
	if x.Faults != "" {
		out.Detail = append(out.Detail, x.Faults)
	}
	if n := x.Task.Drained; n > 0 {
		out.Detail = append(out.Detail, fmt.Sprintf("%d attempt(s) ended because a GPU was drained or broke", n))
	}
	if x.Task.Failures > 0 {
		out.Detail = append(out.Detail, fmt.Sprintf("slices or start failed %d time(s) so far", x.Task.Failures))
	}
	return out
}

// waiting adds what there is to say of a task in line.
func (v view) waiting(out *apitype.Explanation, x engine.Explanation) {
	if x.Task.State != work.Queued {
		return
	}
	expect(&out.Task, x.Start)
	out.Sooner = slices.Clone(x.Sooner)
	if r := v.Reservation(x.Task); r != nil {
		out.Reservation = &apitype.Reservation{At: known(r.At), GPUs: []int{}, Yielding: len(r.Victims)}
		for _, p := range r.Parts {
			for _, s := range p.Slices {
				out.Reservation.GPUs = append(out.Reservation.GPUs, s.GPU)
			}
		}
	}
}

// progress counts the tasks of an array; those that are forgotten had ended, how is
// not known any more.
func (v view) progress(t *engine.Task) *apitype.Progress {
	out := &apitype.Progress{Size: t.Spec.Array.Size()}
	for i := range out.Size {
		x := v.Task(t.Array + work.TaskID(i))
		switch {
		case x == nil:
		case x.State == work.Succeeded:
			out.Succeeded++
		case x.State.Terminal():
			out.Failed++
		case x.Lease() != nil:
			out.Running++
		default:
			out.Waiting++
		}
	}
	return out
}
