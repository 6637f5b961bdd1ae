package api

import (
	"context"
	"strconv"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// healthRoutes are an operator's words on a GPU.
func (s *server) healthRoutes(tag string) {
	for _, x := range []struct {
		name, says string
		do         gpu.Verdict
	}{
		{"cordon", "Give a GPU no new work; what runs on it goes on", gpu.VerdictCordon},
		{"drain", "Move what runs on a GPU away: tasks end within their grace and go back to their place in line, leases cannot be renewed", gpu.VerdictDrain},
		{"uncordon", "Take back what operators said of a GPU; what its driver says stands", gpu.VerdictNone},
	} {
		register(s, op{id: x.name + "-gpu", method: post, path: "/v1/gpus/{gpu}/" + x.name, says: x.says, tag: tag},
			func(ctx context.Context, in *struct {
				GPUPath
				Body *apitype.GPUReason
			}) (*answer[apitype.GPU], error) {
				ev := engine.JudgeGPU{Do: x.do, By: who(ctx).String()}
				if in.Body != nil {
					ev.Why = in.Body.Reason
				}
				return s.judgeGPU(ctx, in.GPU, ev)
			})
	}
}

// GPUPath names a GPU.
type GPUPath struct {
	GPU string `path:"gpu" maxLength:"128" doc:"Its number in this installation, or its UUID" example:"3"`
}

func (s *server) judgeGPU(ctx context.Context, name string, ev engine.JudgeGPU) (*answer[apitype.GPU], error) {
	var err error
	s.host.Read(func(e *engine.Engine) { ev.GPU, err = gpuNumber(e, name) })
	if err != nil {
		return nil, err
	}
	if _, err := s.host.Do(ctx, ev); err != nil {
		return nil, err
	}
	return s.getGPU(ctx, &GPUPath{strconv.Itoa(ev.GPU)})
}

func (s *server) getGPU(ctx context.Context, in *GPUPath) (*answer[apitype.GPU], error) {
	use := s.usage()
	var out apitype.GPU
	var err error
	s.host.Read(func(e *engine.Engine) {
		var n int
		if n, err = gpuNumber(e, in.GPU); err == nil {
			out = view{e, use}.gpu(n, who(ctx))
		}
	})
	return answerOf(out, err)
}

// gpuNumber finds a GPU by its number or UUID.
func gpuNumber(e *engine.Engine, name string) (int, error) {
	if n, err := strconv.Atoi(name); err == nil && n >= 0 && n < len(e.GPUs()) {
		return n, nil
	}
	if g := e.Cluster().GPUByID(name); g != nil {
		return g.Number, nil
	}
	return 0, work.Errorf(work.CodeNotFound, "there is no GPU %q: name one by its number or its UUID, as gpupool gpus -o wide lists them", name)
}

// health adds who says what of a GPU, and the faults that were reported of it.
func (v view) health(out *apitype.GPU, n int, c caller) {
	h := v.HealthOf(n)
	out.HealthBy, out.Mend = h.By, h.Mend
	if !c.all() && h.Operator != nil && h.By == h.Operator.By {
		out.HealthBy = someOperator
	}
	if h.Health != gpu.HealthOK {
		out.HealthSince = optional(h.Since)
	}
	out.Operator, out.Driver = verdict(h.Operator), verdict(h.Driver)
	if out.Operator != nil && !c.all() {
		out.Operator.By = someOperator
	}
	if f := v.FaultsOf(n); f.Count > 0 {
		out.Faults, out.LastFault = f.Count, v.fault(&f.Last, c.owns)
	}
}

// someOperator stands for operators by name, who are nothing to tenants.
const someOperator = "an operator"

func verdict(s *engine.Said) *apitype.Verdict {
	if s == nil {
		return nil
	}
	return &apitype.Verdict{Do: string(s.Do), Why: s.Why, By: s.By, At: s.At.Std()}
}

// fault shows a fault: not whose it was, if that is nothing to the caller.
func (v view) fault(f *engine.FaultSeen, owns func(tenant string) bool) *apitype.GPUFault {
	if f == nil {
		return nil
	}
	out := &apitype.GPUFault{At: f.At.Std(), GPU: f.GPU, Code: f.Code, What: f.What}
	if t := v.Task(f.Task); t != nil && owns(t.Spec.Tenant) {
		out.Task = uint64(f.Task)
	}
	return out
}
