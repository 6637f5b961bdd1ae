package engine

import (
	"github.com/gpupool/gpupool/internal/forecast"
	"github.com/gpupool/gpupool/internal/queue"
	"github.com/gpupool/gpupool/internal/work"
)

// job is what a forecast of a task rests on.
func (e *Engine) job(s *work.Spec) forecast.Job {
	j := forecast.Job{Tenant: s.Tenant, Name: s.Name, Request: s.Request, Estimate: s.Estimate, Max: s.MaxRuntime}
	if len(s.Request.Models) == 1 {
		j.Model = s.Request.Models[0]
	}
	return j
}

// waitingFor is how long a waiting task will run: less what it has saved.
func (e *Engine) waitingFor(t *Task) forecast.Forecast {
	if t.Saved == 0 {
		return t.Said
	}
	return e.forecast.Remaining(e.job(t.Spec), t.Saved)
}

// left is how long a running task will still run.
func (e *Engine) left(t *Task) forecast.Forecast {
	ran := t.Saved + t.Carried
	if t.State == work.StateRunning {
		ran += e.now.Sub(t.Started)
	}
	return e.forecast.Remaining(e.job(t.Spec), ran)
}

// turn is the task's turn, as its pool orders it.
func (e *Engine) turn(p *pool, t *Task) work.Time {
	said := e.waitingFor(t)
	j := queue.Job{Since: t.Since, Priority: t.Spec.Priority, Latency: t.Spec.Class.Latency(),
		Length: said.Typical, Attained: e.attained(t)}
	if e.cfg.Rules.Order == queue.ByLength && t.Spec.Estimate > 0 {
		j.Length = t.Spec.Estimate
	}
	if t.Spec.Deadline != 0 {
		j.Latest = t.Spec.Deadline - work.Time(said.P90)
	}
	return e.cfg.Rules.Turn(j, p.weight())
}
