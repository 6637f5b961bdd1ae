package engine

import (
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// words are the arguments of a directive that are no settings.
func words(d *datadriven.TestData) (out []string) {
	for _, a := range d.CmdArgs {
		if len(a.Vals) == 0 {
			out = append(out, a.Key)
		}
	}
	return out
}

// verdict changes what the driver wants done with GPUs: ID VERDICT [WORD…].
func (s *story) verdict(w []string) {
	for _, h := range s.hosts {
		for _, g := range h.GPUs {
			if ok, err := path.Match(w[0], g.ID); !ok || err != nil {
				continue
			}
			delete(s.wants, g.ID)
			if v := (Verdict{ID: g.ID, Do: gpu.Verdict(w[1]), Why: strings.Join(w[2:], " ")}); w[1] != "none" {
				if v.Do == gpu.VerdictDrain {
					v.Mend = "nvidia-smi --gpu-reset -i " + g.ID
				}
				s.wants[g.ID] = v
			}
		}
	}
}

// fault is a fault on a GPU: ID [task=] [ago=].
func (s *story) fault(t *testing.T, d *datadriven.TestData) Fault {
	var ago time.Duration
	duration(t, d, "ago", &ago)
	f := Fault{ID: d.CmdArgs[0].Key, At: s.now - work.Time(ago), Code: "XID 31", What: "GPU memory page fault"}
	task := 0
	if d.MaybeScanArgs(t, "task", &task); task > 0 {
		f.Owner = work.Owner{Task: work.TaskID(task), Epoch: s.e.Task(work.TaskID(task)).Epoch}
	}
	return f
}

func (s *story) healthFact(f Fact) string {
	switch f := f.(type) {
	case HostShares:
		return fmt.Sprintf("host %s shares by %q", s.host(f.Host), f.Sharing)
	case Recalled:
		return fmt.Sprintf("lease %d.%d recalled %v: %s", f.Task, f.Epoch, !f.Off, f.Reason.Msg)
	case Faulted:
		line := fmt.Sprintf("GPU %d: %s", f.GPU, f.seen())
		if f.Owner.Task > 0 {
			line += fmt.Sprintf(" of task %d", f.Owner.Task)
		}
		if f.Reason != nil {
			line += fmt.Sprintf(", which [%s]: %s", f.Reason.Code, f.Reason.Msg)
		}
		return line
	}
	return fmt.Sprintf("%+v", f)
}

func (s *story) health() string {
	var b strings.Builder
	for _, g := range s.e.GPUs() {
		h, faults := s.e.HealthOf(g.Number), s.e.FaultsOf(g.Number)
		if h.Health == gpu.HealthOK && faults.Count == 0 {
			continue
		}
		fmt.Fprintf(&b, "%d %s", g.Number, h.Health)
		if h.Health != gpu.HealthOK {
			fmt.Fprintf(&b, " for %s", s.now.Sub(h.Since))
		}
		if h.By != "" {
			fmt.Fprintf(&b, " by %s: %s", h.By, h.Why)
		}
		if h.Mend != "" {
			fmt.Fprintf(&b, "; mend: %s", h.Mend)
		}
		if faults.Count > 0 {
			fmt.Fprintf(&b, "; %d faults, the last %s", faults.Count, faults.Last)
		}
		b.WriteString("\n")
	}
	if b.Len() == 0 {
		return "all well\n"
	}
	return b.String()
}
