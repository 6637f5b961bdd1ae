package engine

import (
	"fmt"
	"time"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// Bounds of faults. A fault belongs to an end that follows within faultBefore; what
// drivers and runners say may cross, so it may also be dated faultAfter later. One dated
// further ahead than that is not believed until its time has come.
const (
	faultBefore = time.Minute
	faultAfter  = 5 * time.Second
)

// FaultSeen is a fault of a program as it is kept.
type FaultSeen struct {
	At    work.Time   `json:"at"`
	GPU   int         `json:"gpu"`
	Task  work.TaskID `json:"task,omitempty"` // 0 = not known
	Epoch uint32      `json:"epoch,omitempty"`
	Code  string      `json:"code"`
	What  string      `json:"what,omitempty"`
}

// String is the fault in words.
func (f FaultSeen) String() string {
	if f.What == "" {
		return f.Code
	}
	return f.Code + " (" + f.What + ")"
}

// GPUFaults is how many faults were reported of a GPU, and the last.
type GPUFaults struct {
	GPU   int       `json:"gpu"`
	Count int       `json:"count"`
	Last  FaultSeen `json:"last"`
}

// seeFaults counts the faults that a driver reports and that were not counted before.
func (e *Engine) seeFaults(ev Inventory) {
	for _, f := range ev.Faults {
		g := e.cluster.GPUByID(f.ID)
		if g == nil || e.cluster.Hosts[g.Host].Info.Driver != ev.Driver || f.At <= e.faults[g.Number].Last.At || f.At > e.now.Add(faultAfter) {
			continue
		}
		x := Faulted{GPU: g.Number, At: f.At, Code: f.Code, What: f.What, Owner: e.whoseFault(g.Number, f.Owner)}
		if t := e.tasks[x.Owner.Task]; t != nil && t.State == work.Failed && t.Epoch == x.Owner.Epoch && t.Exit != nil && !t.Exit.OK() && t.Fault.epoch() != t.Epoch {
			if note := faultNote(x.seen(), t.Ended); note != "" {
				x.Reason = &work.Reason{Code: t.Reason.Code, Msg: t.Reason.Msg + note}
			}
		}
		e.emit(x)
	}
}

// whoseFault is the owner that a driver named, if that is a task's, else whoever has the
// GPU to itself.
func (e *Engine) whoseFault(n int, o work.Owner) work.Owner {
	if t := e.tasks[o.Task]; t != nil && o.Epoch <= t.Epoch {
		return o
	}
	if all := e.leasesAt(n); len(all) == 1 {
		return work.Owner{Task: all[0].Task, Epoch: all[0].Epoch}
	}
	return work.Owner{}
}

func (f Faulted) seen() FaultSeen {
	return FaultSeen{At: f.At, GPU: f.GPU, Task: f.Owner.Task, Epoch: f.Owner.Epoch, Code: f.Code, What: f.What}
}

func (f *FaultSeen) epoch() uint32 {
	if f == nil {
		return 0
	}
	return f.Epoch
}

func (e *Engine) applyFaulted(f Faulted) {
	x := e.faults[f.GPU]
	e.faults[f.GPU] = GPUFaults{f.GPU, x.Count + 1, f.seen()}
	t := e.tasks[f.Owner.Task]
	if t == nil {
		return
	}
	seen := f.seen()
	t.Faults++
	t.Fault = &seen
	if f.Reason != nil {
		t.Reason = *f.Reason
	}
}

// afterFault says which fault was reported shortly before a task ended at a time.
func (e *Engine) afterFault(t *Task, end work.Time) string {
	if t.Fault == nil || t.Fault.Epoch != t.Epoch {
		return ""
	}
	return faultNote(*t.Fault, end)
}

func faultNote(f FaultSeen, end work.Time) string {
	before := end.Sub(f.At)
	if before > faultBefore || before < -faultAfter {
		return ""
	}
	when := before.Round(time.Second).String() + " before"
	if before < time.Second {
		when = "as it ended"
	}
	return "; " + f.String() + " was reported on its slice " + when
}

// faultWords says how many faults were reported of a task's program, and the last.
func (t *Task) faultWords() string {
	switch t.Faults {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("%s was reported of its program, on GPU %d at %s", t.Fault, t.Fault.GPU, t.Fault.At.Std().Format("15:04:05"))
	}
	return fmt.Sprintf("%d faults were reported of its program, the last %s on GPU %d at %s", t.Faults, t.Fault, t.Fault.GPU, t.Fault.At.Std().Format("15:04:05"))
}

// FaultsOf is what was reported of programs on a GPU; its count is 0 if nothing was.
func (e *Engine) FaultsOf(n int) GPUFaults { return e.faults[n] }

// GPUHealth is the health of a GPU and who says so.
type GPUHealth struct {
	Health   gpu.Health
	Why      string
	By       string    // the operator, or "driver NAME"; "" = gpupool itself, or nobody
	Mend     string    // the command that mends it once it is empty
	Since    work.Time // 0 = not known, or since it is known
	Operator *Said     // what operators want; nil = nothing
	Driver   *Said
}

// VerdictsOn is what operators and its driver want done with a GPU.
func (e *Engine) VerdictsOn(n int) (operator, driver gpu.Verdict) {
	x := e.ills[n]
	if x.operator != nil {
		operator = x.operator.Do
	}
	if x.driver != nil {
		driver = x.driver.Do
	}
	return operator, driver
}

// HealthOf is the health of a GPU.
func (e *Engine) HealthOf(n int) GPUHealth {
	g, x := e.cluster.GPUs[n], e.ills[n]
	h := GPUHealth{Health: g.Health, Why: g.Why, Since: x.since, Operator: x.operator, Driver: x.driver}
	v := x.verdict()
	switch v {
	case nil:
	case x.driver:
		h.By, h.Mend = "driver "+v.By, v.Mend
	default:
		h.By = v.By
		if x.driver != nil {
			h.Mend = x.driver.Mend
		}
	}
	return h
}

// capped notes how the shares of a part were made, as the driver may make later ones
// in another way.
func (e *Engine) capped(p *Part) {
	p.Sharing = ""
	for _, s := range p.Slices {
		if s.Mode == gpu.ModeShared {
			p.Sharing = e.cluster.Hosts[p.Host].Info.Sharing
		}
	}
}

// Enforcement says what keeps a part to its slices.
func (p *Part) Enforcement() work.Enforcement {
	var out work.Enforcement
	for _, s := range p.Slices {
		out = work.Weaker(out, enforced(s.Mode, p.Sharing))
	}
	return out
}

func enforced(m gpu.Mode, sharing string) work.Enforcement {
	switch {
	case m == gpu.ModeMIG:
		return work.EnforcedHard
	case m == gpu.ModeWhole:
		return work.EnforcedExclusive
	case sharing == gpu.SharingMPS:
		return work.EnforcedMemory
	}
	return work.EnforcedSoft
}

// Enforcement says what keeps a lease to its slices: the weakest of its parts.
func (l *Lease) Enforcement() work.Enforcement {
	var out work.Enforcement
	for _, p := range l.Parts {
		out = work.Weaker(out, p.Enforcement())
	}
	return out
}
