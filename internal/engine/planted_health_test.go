package engine

import (
	"strings"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// plantedInHealth has the bugs of the health of GPUs.
var plantedInHealth = []plantedBug{
	{"the heaviest word counts", "a cordon is not told to placement", after(func(e *Engine, f GPUChanged) {
		if f.Health == gpu.HealthCordoned {
			e.cluster.SetHealth(f.GPU, gpu.HealthOK, 0, "")
		}
	}), "what was said of it makes it cordoned", true},
	{"nobody is placed on a GPU out of use", "placement forgets cordons while it looks for a place", func(e *Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			for n, x := range e.ills { // order: each by itself
				health, why := x.health(len(e.cluster.GPUs[n].Held) == 0)
				if _, looks := f.(Submitted); looks && health == gpu.HealthCordoned {
					health, why = gpu.HealthOK, ""
				}
				e.cluster.SetHealth(n, health, x.until, why)
			}
			return f
		}
	}, ", which is cordoned", true},
	{"who has to leave does", "a task on a GPU that is being drained stays", drop(func(f Fact) bool {
		x, ok := f.(Closing)
		return ok && strings.Contains(x.Reason.Msg, "is being drained")
	}), ", which is being drained", true},
	{"who has to leave does", "an outside client is not told", drop(func(f Fact) bool {
		x, ok := f.(Recalled)
		return ok && !x.Off
	}), ", which is being drained", true},
	{"a lease is recalled while its GPU is drained", "it stays so", drop(func(f Fact) bool {
		x, ok := f.(Recalled)
		return ok && x.Off
	}), "is recalled, and none of its GPUs", true},
	{"nobody is on a GPU that is drained", "it is drained before it is empty", after(func(e *Engine, f GPUChanged) {
		if f.Health == gpu.HealthDraining {
			e.cluster.SetHealth(f.GPU, gpu.HealthDrained, 0, f.Why)
		}
	}), "what was said of it makes it draining", true},
	{"who is suspended can wake", "it is left where no GPU is", drop(func(f Fact) bool {
		x, ok := f.(Closing)
		return ok && strings.Contains(x.Reason.Msg, "too few are left")
	}), "is suspended where", true},
	{"no task goes on breaking GPUs", "GPUs that failed under it are not held against it", func(e *Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			x, ok := f.(Closing)
			if !ok || x.Reason.Code != work.GPUFailed || x.Then != work.Queued {
				return f
			}
			e.apply(f)
			e.tasks[x.Task].Struck += e.cfg.AllocRetries
			return nil
		}
	}, "GPUs failed under it in a row", true},
	{"nobody lifts what another said", "the driver's all-clear lifts an operator's cordon", func(*Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			if x, ok := f.(GPUChanged); ok && x.Driver == nil && x.Operator != nil && x.Operator.At != x.Since {
				x.Operator, x.Health, x.Why = nil, gpu.HealthOK, ""
				return x
			}
			return f
		}
	}, "operators said", true},
	{"nobody lifts what another said", "an operator's uncordon lifts the driver's word", func(*Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			if x, ok := f.(GPUChanged); ok && x.Operator == nil && x.Driver != nil && x.Driver.Do != gpu.VerdictBroken && x.Driver.At != x.Since {
				x.Driver, x.Health, x.Why = nil, gpu.HealthOK, ""
				return x
			}
			return f
		}
	}, "the driver said", true},
	{"a fault is counted once", "its time is not kept", after(func(e *Engine, f Faulted) {
		x := e.faults[f.GPU]
		x.Last.At = 0
		e.faults[f.GPU] = x
	}), "is counted after one at", true},
}
