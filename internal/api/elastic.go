package api

import (
	"context"
	"fmt"
	"maps"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/work"
)

// resizeTask gives a task another size, as its tenant or an admin asks.
func (s *server) resizeTask(ctx context.Context, in *struct {
	IDPath
	Body apitype.Resize
}) (*answer[apitype.Task], error) {
	milli, err := in.Body.Milli()
	if err != nil {
		return nil, err
	}
	id := work.TaskID(in.ID)
	return s.act(ctx, id, func(*engine.Task) engine.Event { return engine.Resize{Task: id, Milli: milli, By: who(ctx).String()} })
}

// elastic adds what may be done with a task while it runs, and what is.
func (v view) elastic(out *apitype.Task, t *engine.Task) {
	x := t.Spec.Elastic
	out.OnIdle, out.OnResize, out.Signal = string(x.OnIdle), string(x.OnResize), x.Signal
	out.NoShare, out.NoPreempt, out.Labels = x.NoShare, x.NoPreempt, maps.Clone(x.Labels)
	out.MinGPUs, out.MaxGPUs = cores(int64(x.MinMilli)), cores(int64(x.MaxMilli))
	if t.State.Terminal() {
		return
	}
	if t.Size != nil {
		out.Resized = t.Size.String()
	}
	out.ResizedBy = t.SizedBy
	if t.State == work.StateRunning && t.Use.Kind != "" {
		out.Usage = &apitype.Judged{Kind: string(t.Use.Kind), Since: t.Use.Since.Std(), Compute: t.Use.Compute, MemoryMiB: t.Use.MemMiB}
	}
	if t.Plan != nil {
		out.Plan = v.plan(t)
	}
}

// plan shows a move that was announced; of one who waits for it only what its tenant may
// know.
func (v view) plan(t *engine.Task) *apitype.Plan {
	p := t.Plan
	out := &apitype.Plan{Move: string(p.Move), At: p.At.Std(), Reason: reason(p.Reason)}
	switch {
	case p.Move == work.MoveAway: // its size stays
	case p.To != nil:
		out.To = p.To.String()
	case t.Spec.Request.GPUs > 0 && t.Spec.MaxMilli > 1000*t.Spec.Request.GPUs: // as many as there are then
		out.To = fmt.Sprintf("%d to %d whole GPUs", t.Spec.Request.GPUs, t.Spec.MaxMilli/1000)
	default:
		out.To = t.Spec.Request.String()
	}
	if w := v.Task(p.For); w != nil && w.Spec.Tenant == t.Spec.Tenant {
		out.For = uint64(w.ID)
	}
	return out
}
