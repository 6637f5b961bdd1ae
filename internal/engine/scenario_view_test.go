package engine

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// The lines that a scenario shows.

func (s *story) fact(f Fact) string {
	switch f := f.(type) {
	case PoolSet:
		return fmt.Sprintf("pool %s %s %s", f.Pool.Name, f.Pool.Mode, strings.Join(f.Pool.Hosts, ","))
	case TenantSet:
		line := fmt.Sprintf("tenant %s limit %g", f.Tenant.Name, f.Tenant.LimitGPUs)
		if x := f.Tenant; x.GuaranteeGPUs > 0 || x.MaxWaiting > 0 || x.MaxRunning > 0 {
			line += fmt.Sprintf(", guaranteed %g, at most %d waiting and %d running", x.GuaranteeGPUs, x.MaxWaiting, x.MaxRunning)
		}
		return line
	case TenantRemoved:
		return "tenant gone " + f.Name
	case HostJoined:
		return fmt.Sprintf("host %s joins %s with %d GPUs", f.Host.Name, f.Pool, len(f.Host.GPUs))
	case HostChanged:
		return fmt.Sprintf("host %s up %v: %s", s.host(f.Host), f.Up, f.Reason.Msg)
	case HostMoved:
		return fmt.Sprintf("host %s moves to %s", s.host(f.Host), f.Pool)
	case Faulted, HostShares, Recalled:
		return s.healthFact(f)
	case GPUChanged:
		line := fmt.Sprintf("GPU %d %s", f.GPU, f.Health)
		if f.Until > 0 {
			line += fmt.Sprintf(" for %s after %d failures", f.Until.Sub(s.now), f.Strikes)
		}
		if f.Why != "" {
			line += ": " + f.Why
		}
		return line
	case Submitted:
		line := fmt.Sprintf("task %d accepted: %s %s, %s", f.Task, f.Spec.Tenant, f.Spec.Priority, f.Spec.Request)
		if f.Spec.TTL > 0 {
			line += fmt.Sprintf(", waits %s at most", f.Spec.TTL)
		}
		if f.Array > 0 {
			line += fmt.Sprintf(", index %d of array %d", f.Index, f.Array)
		}
		if f.Said.P90 > 0 {
			line += fmt.Sprintf(", runs for %s, hardly over %s (%s)", f.Said.P50.Round(time.Second), f.Said.P90.Round(time.Second), f.Said.Basis)
		}
		return line
	case Held:
		return fmt.Sprintf("task %d held %v by %s", f.Task, f.On, f.By)
	case Checkpointed:
		return fmt.Sprintf("task %d has saved its work", f.Task)
	case Reserved:
		return s.reserved(f)
	case AskedForMore:
		return fmt.Sprintf("pool %s asks for more: %d wait for %g GPUs", f.Pool, f.Waiting, f.GPUs)
	case Placed:
		var parts []string
		for _, p := range f.Parts {
			parts = append(parts, s.part(p))
		}
		if f.Runs != 0 {
			return fmt.Sprintf("task %d holds again, epoch %d, its process of epoch %d: %s", f.Task, f.Epoch, f.Runs, strings.Join(parts, "; "))
		}
		return fmt.Sprintf("task %d holds, epoch %d: %s", f.Task, f.Epoch, strings.Join(parts, "; "))
	case Judged:
		return fmt.Sprintf("task %d uses its GPUs: %s since %s, p95 %.2f", f.Task, cmp.Or(string(f.Use.Kind), "unknown"), f.Use.Since.Std().Format("15:04:05"), f.Use.Compute)
	case Suspending:
		return fmt.Sprintf("suspending %s [%s]: %s", f.Owner, f.Reason.Code, f.Reason.Msg)
	case Suspended:
		return fmt.Sprintf("suspended %s, %d MiB to main memory", f.Owner, f.MemMiB)
	case Woken:
		return fmt.Sprintf("task %d is woken by %s", f.Task, f.By)
	case Resuming:
		return fmt.Sprintf("resuming %s", f.Owner)
	case Resumed:
		return fmt.Sprintf("resumed %s", f.Owner)
	case MoveFailed:
		return fmt.Sprintf("task %d: %s failed: %s", f.Task, f.Move, f.Why)
	case Sized:
		if f.Request == nil {
			return fmt.Sprintf("task %d asks for what it was submitted with", f.Task)
		}
		return fmt.Sprintf("task %d asks for %s from now on", f.Task, f.Request)
	case Planned:
		line := fmt.Sprintf("planned for task %d in %s: %s", f.Task, f.Plan.At.Sub(s.now), f.Plan.Move)
		if f.Plan.To != nil {
			line += " to " + f.Plan.To.String()
		}
		return line + fmt.Sprintf(", which takes %s [%s]: %s", f.Plan.Price.Total().Round(time.Second), f.Plan.Reason.Code, f.Plan.Reason.Msg)
	case Dropped:
		return fmt.Sprintf("the plan for task %d is dropped: %s", f.Task, f.Why)
	case Resizing:
		return fmt.Sprintf("resizing %s to %s [%s]: %s", f.Owner, sliceList(f.Slices), f.Reason.Code, f.Reason.Msg)
	case Resized:
		return fmt.Sprintf("resized %s", f.Owner)
	case Parted:
		return fmt.Sprintf("%s and %s do not share a GPU for %s: %s", f.Pair[0], f.Pair[1], f.Until.Sub(s.now), f.Why)
	case ModeSet:
		return modeLine(f)
	case RolloutBegan, RolloutStepped, RolloutEnded:
		return s.rolloutLine(f)
	case Shadowed:
		return fmt.Sprintf("task %d in the shadow: %s [%s]: %s", f.Task, f.Move, f.Reason.Code, f.Reason.Msg)
	case Carved:
		return fmt.Sprintf("carved %s", f.Owner)
	case Started:
		return fmt.Sprintf("started %s", f.Owner)
	case Exited:
		return fmt.Sprintf("exited %s: %s", f.Owner, f.Exit.Reason().Msg)
	case Became:
		return fmt.Sprintf("task %d is %s [%s]: %s", f.Task, f.State, f.Reason.Code, f.Reason.Msg)
	case Closing:
		return fmt.Sprintf("lease %d.%d closes, then %s [%s]: %s", f.Task, f.Epoch, f.Then, f.Reason.Code, f.Reason.Msg)
	case FreeRetry:
		return fmt.Sprintf("freeing %s failed %d times, again in %s: %s", f.Owner, f.Tries, f.Until.Sub(s.now), f.Why)
	case Freed:
		return fmt.Sprintf("freed %s", f.Owner)
	case Renewed:
		return fmt.Sprintf("lease %d.%d holds for %s", f.Task, f.Epoch, f.Expires.Sub(s.now))
	case Forgotten:
		return fmt.Sprintf("forgotten %v", f.Tasks)
	}
	return fmt.Sprintf("%s %+v", f.Kind(), f)
}

func (s *story) reserved(f Reserved) string {
	if len(f.Parts) == 0 {
		return fmt.Sprintf("nothing is kept for task %d any more", f.Task)
	}
	var parts []string
	for _, p := range f.Parts {
		parts = append(parts, s.part(p))
	}
	line := fmt.Sprintf("kept for task %d: %s; ", f.Task, strings.Join(parts, "; "))
	if f.At == 0 {
		line += "nobody knows until when"
	} else {
		line += fmt.Sprintf("free in %s", f.At.Sub(s.now).Round(time.Second))
	}
	if len(f.Victims) > 0 {
		line += fmt.Sprintf(", as %v yield", f.Victims)
	}
	return line
}

func (s *story) host(n int) string { return s.e.Hosts()[n].Info.Name }

func (s *story) part(p work.Part) string {
	var slices []string
	for _, x := range p.Slices {
		slices = append(slices, x.String())
	}
	line := s.host(p.Host)
	if len(slices) > 0 {
		line += " " + strings.Join(slices, " + ")
	}
	if p.CPUMilli > 0 {
		line += fmt.Sprintf(" %g CPUs", float64(p.CPUMilli)/1000)
	}
	return line
}

func sliceList(all []work.Slice) string {
	var out []string
	for _, x := range all {
		out = append(out, x.String())
	}
	return strings.Join(out, " + ")
}

func commandLine(c Command) string {
	switch c := c.(type) {
	case CarveCmd:
		return fmt.Sprintf("carve %s on %s %v", c.Owner, c.Host, c.GPUIDs)
	case FreeCmd:
		return fmt.Sprintf("free %s on %s", c.Owner, c.Host)
	case StartCmd:
		return fmt.Sprintf("start %s on %s %v", c.Owner, c.Host, c.Devices)
	case WatchCmd:
		return fmt.Sprintf("watch %s", c.Owner)
	case ResizeCmd:
		return fmt.Sprintf("resize %s on %s %v to %s", c.Owner, c.Host, c.GPUIDs, sliceList(c.Slices))
	case StopCmd:
		if c.Signal != "" {
			return fmt.Sprintf("stop %s by SIG%s within %s", c.Owner, c.Signal, c.Grace)
		}
		return fmt.Sprintf("stop %s within %s", c.Owner, c.Grace)
	case ForgetCmd:
		return fmt.Sprintf("forget %s", c.Owner)
	case SuspendCmd:
		return fmt.Sprintf("suspend %s", c.Owner)
	case ResumeCmd:
		return fmt.Sprintf("resume %s on %v", c.Owner, c.Devices)
	case ScaleOutCmd:
		return fmt.Sprintf("scale out %s: %d wait for %g GPUs", c.Pool, c.Waiting, c.GPUs)
	}
	return fmt.Sprintf("%+v", c)
}

// view answers the directives that only look.
func (s *story) view(t *testing.T, d *datadriven.TestData) string {
	var b strings.Builder
	switch d.Cmd {
	case "explain": // TASK
		x, err := s.e.Explain(work.TaskID(number(t, d, 0)))
		if err != nil {
			return fmt.Sprintln("!", err)
		}
		fmt.Fprintf(&b, "%s, %d ahead [%s]: %s\n", x.Task.State, x.Ahead, x.Reason.Code, x.Reason.Msg)
		if x.Pool != "" {
			fmt.Fprintln(&b, x.Pool)
		}
		if x.Faults != "" {
			fmt.Fprintln(&b, x.Faults)
		}
	case "health": // of every GPU that is not well, or of which faults were reported
		return s.health()
	case "enforced": // TASK
		return fmt.Sprintln(s.e.Task(work.TaskID(number(t, d, 0))).Lease().Enforcement())
	case "debts":
		for _, d := range s.e.Debts() {
			fmt.Fprintf(&b, "%s lends %s %d thousandths now, %.0f GPU seconds so far; %d loans, %d asked back, at the longest within %s\n",
				d.Lender, d.Borrower, d.Milli, float64(d.GPUMs)/1000, d.Loans, d.Called, d.Longest)
		}
	case "tasks":
		for _, x := range s.e.Tasks() {
			fmt.Fprintf(&b, "%d %s %s %s, epoch %d, %d failed allocations", x.ID, x.Spec.Tenant, x.Spec.Request, x.State, x.Epoch, x.Failures)
			if x.Exit != nil {
				fmt.Fprintf(&b, ", %s", x.Exit.Reason().Msg)
			}
			b.WriteString("\n")
		}
	case "lease": // TASK: every lease of it that holds something
		for _, l := range s.e.Leases() {
			if l.Task != work.TaskID(number(t, d, 0)) {
				continue
			}
			fmt.Fprintf(&b, "%d.%d closing %v settled %v", l.Task, l.Epoch, l.Closing, l.Settled)
			if l.Expires > 0 {
				fmt.Fprintf(&b, ", expires in %s", l.Expires.Sub(s.now))
			}
			for _, p := range l.Parts {
				fmt.Fprintf(&b, "; %s: %s", p.Phase, s.part(p.Part))
			}
			b.WriteString("\n")
		}
	case "line": // [POOL]: who is next
		pool := "p"
		if len(d.CmdArgs) > 0 {
			pool = d.CmdArgs[0].Key
		}
		p := s.e.pools[pool]
		for w := p.queue.Walk(s.e.rank(p)); ; w.Pass() {
			_, x, ok := w.Next()
			if !ok {
				break
			}
			t := s.e.Task(x.ID)
			fmt.Fprintf(&b, "%d %s %s, %s\n", x.ID, t.Spec.Tenant, t.Spec.Priority, t.Spec.Request)
		}
	case "rollout": // where it stands
		if r := s.e.Rollout(); r != nil {
			return strings.Join(r.Words(s.now), "\n") + "\n"
		}
	case "shadow": // POOL: what it would hold as a dynamic one
		return s.shadow(d.CmdArgs[0].Key)
	case "pool": // POOL: its modes
		return s.modes(d.CmdArgs[0].Key)
	case "kept":
		for _, p := range s.e.lines {
			for _, r := range p.kept {
				fmt.Fprintln(&b, s.reserved(Reserved{r.Task, r.At, r.Parts, r.Victims, r.Moving}))
			}
		}
	case "tenants":
		for _, x := range s.e.Tenants() {
			fmt.Fprintf(&b, "%s holds %g GPUs, limit %g\n", x.Name, float64(s.e.HeldMilli(x.Name))/1000, x.LimitGPUs)
		}
	case "gpus":
		for _, g := range s.e.GPUs() {
			fmt.Fprintf(&b, "%d on %s %s", g.Number, s.host(g.Host), g.Mode)
			if g.Health != gpu.HealthOK {
				fmt.Fprintf(&b, " %s", g.Health)
			}
			for _, h := range g.Held {
				fmt.Fprintf(&b, ", %s %s: %s", h.Owner, s.e.Task(h.Owner.Task).Spec.Tenant, strings.TrimSuffix(h.Slice.String(), fmt.Sprintf(" of GPU %d", g.Number)))
			}
			b.WriteString("\n")
		}
	}
	if b.Len() == 0 {
		return "none\n"
	}
	return b.String()
}
