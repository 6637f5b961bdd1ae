package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/work"
)

func (a *App) explainCmd() *cobra.Command {
	return &cobra.Command{
		Use: "explain TASK", Short: "Say why a task waits, where it sits, or how it ended", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeTasks,
		RunE: a.onTask(func(ctx context.Context, api *client.Client, id uint64) error {
			x, err := api.Explain(ctx, id)
			if err != nil {
				return err
			}
			return a.print(x, func(w io.Writer, _ bool) {
				verb := "is"
				if x.Task.Terminal() {
					verb = "has"
					if x.Task.State == "cancelled" || x.Task.State == "expired" {
						verb = "was"
					}
				}
				fmt.Fprintf(w, "task %d of %s %s %s: %s\n", x.Task.ID, x.Task.Tenant, verb, a.colours().state(x.Task.State), strings.Map(printable, x.Message))
				for _, d := range explained(x, time.Now()) {
					fmt.Fprintf(w, "  %s\n", strings.Map(printable, d))
				}
				fmt.Fprintf(w, "  reason code: %s\n", x.Code)
			})
		}),
	}
}

// explained is everything there is to say of a task beside the reason, a sentence each.
func explained(x apitype.Explanation, now time.Time) (out []string) {
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	t := x.Task
	if t.State == "queued" {
		out = append(out, waits(x, now)...)
	}
	if f := t.Forecast; f != nil && f.Basis != "none" && !t.Terminal() {
		say("expected to run for %s, nine times in ten for at most %s, judging by %s", f.P50, f.P90, basis(*f))
	}
	if x.RunLeft != "" {
		say("may run for %s, of which %s are left", t.MaxRuntime, x.RunLeft)
	}
	if t.Deadline != nil && !t.Terminal() {
		say("should have ended by %s", until(*t.Deadline, now))
	}
	if e := enforcement(t.Enforcement); e != "" {
		say("what keeps it to what it holds: %s", e)
	}
	if t.Preempted > 0 {
		say("was sent back to the queue %s", times(t.Preempted))
	}
	out = append(out, explainElastic(t, now)...)
	if p := x.Array; p != nil {
		say("array %d: %d done, %d failed, %d running, %d waiting, of %d", t.Array, p.Succeeded, p.Failed, p.Running, p.Waiting, p.Size)
	}
	return append(out, x.Detail...)
}

// waits is what there is to say of a task that waits.
func waits(x apitype.Explanation, now time.Time) (out []string) {
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	t := x.Task
	kept := t.Held || x.Code == "waiting_for_tasks" // it has no place in line
	if kept {
		say("not in line yet; waiting for %s", span(now.Sub(t.Submitted)))
	} else {
		say("%d task(s) before it in line; waiting for %s", x.Ahead, span(now.Sub(t.Submitted)))
	}
	switch {
	case t.ExpectedStart == nil && !kept:
		say("when it will start is not known")
	case t.ExpectedStart == nil:
	case t.ExpectedStartLate == nil:
		say("expected to start about %s, if tasks run as long as those like them did", clock(*t.ExpectedStart, now))
	default:
		say("expected to start about %s, by %s at the latest, if tasks run as long as those like them did", clock(*t.ExpectedStart, now), clock(*t.ExpectedStartLate, now))
	}
	if r := x.Reservation; r != nil {
		what := fmt.Sprintf("kept for it: %s", gpuNumbers(r.GPUs))
		if r.At != nil {
			what += ", expected to be free about " + clock(*r.At, now)
		}
		if r.Yielding > 0 {
			what += fmt.Sprintf("; %d task(s) were asked to yield", r.Yielding)
		}
		out = append(out, what)
	}
	for _, s := range x.Sooner {
		say("sooner: %s", s)
	}
	if t.WaitsUntil != nil {
		say("expires at %s, unless it has started by then", until(*t.WaitsUntil, now))
	}
	return out
}

// enforcement says what a kind of it means.
func enforcement(kind string) string {
	means := map[work.Enforcement]string{
		work.EnforcedExclusive: "nobody else is on its GPUs", work.EnforcedHard: "MIG: the hardware parts compute, memory and faults",
		work.EnforcedMemory: "a share by MPS: memory is capped, a fault hits all that share the GPU",
		work.EnforcedSoft:   "a share by time slices: nothing but its word keeps it to it",
	}[work.Enforcement(kind)]
	if means == "" {
		return kind
	}
	return kind + " (" + means + ")"
}

func gpuNumbers(ns []int) string {
	var out []string
	for _, n := range ns {
		out = append(out, fmt.Sprint(n))
	}
	switch len(out) {
	case 0:
		return "CPU and memory"
	case 1:
		return "GPU " + out[0]
	}
	return "GPUs " + strings.Join(out, ", ")
}

// basis says in words what a forecast rests on.
func basis(f apitype.Forecast) string {
	what := map[string]string{
		"task_model": "its tenant's tasks of this name, request and GPU model", "task": "its tenant's tasks of this name and request",
		"tenant_request": "its tenant's tasks with this request", "tenant": "its tenant's tasks",
		"everyone_request": "everyone's tasks with this request", "everyone": "everyone's tasks",
		"estimate": "its estimate", "as_long_again": "nothing that ran this long",
	}[f.Basis]
	if what == "" { // of a newer server
		what = f.Basis
	}
	if f.Samples > 0 {
		what += fmt.Sprintf(" (%d)", f.Samples)
	}
	return what
}
