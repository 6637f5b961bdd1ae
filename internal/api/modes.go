package api

import (
	"context"
	"fmt"
	"time"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/work"
)

func (s *server) modeRoutes() {
	const tag, rollout = "pool", "/v1/rollout"
	register(s, op{id: "set-pool-mode", method: put, path: "/v1/pools/{name}/mode", says: "Set the mode of a pool, beside the settings file, until that names another", tag: tag}, s.setMode)
	register(s, op{id: "pool-shadow", method: get, path: "/v1/pools/{name}/shadow", says: "Say what a pool that is not dynamic would hold if it were", tag: tag}, s.shadow)
	register(s, op{id: "start-rollout", method: post, path: rollout, says: "Give pools, or tenants of one, another mode, one after the other, and go back if they are served worse", tag: tag}, s.startRollout)
	register(s, op{id: "get-rollout", method: get, path: rollout, says: "Show the rollout that goes on, else the last", tag: tag}, s.getRollout)
	register(s, op{id: "stop-rollout", method: del, path: rollout, says: "Stop the rollout and take back what it changed, or keep it", tag: tag}, s.stopRollout)
}

func (s *server) setMode(ctx context.Context, in *struct {
	Name string `path:"name" maxLength:"128"`
	Body apitype.PoolMode
}) (*answer[apitype.Pool], error) {
	if _, err := s.host.Do(ctx, engine.SetMode{Pool: in.Name, Mode: work.PoolMode(in.Body.Mode), By: who(ctx).String()}); err != nil {
		return nil, err
	}
	var out apitype.Pool
	s.host.Read(func(e *engine.Engine) {
		for _, p := range pools(e, who(ctx)) {
			if p.Name == in.Name {
				out = p
			}
		}
	})
	return answerOf(out, nil)
}

// modes adds what is to be said of a pool's mode: to a tenant, not what became of others.
func modes(out *apitype.Pool, p engine.PoolView, c caller) {
	out.Fallbacks, out.Fallback = p.Fallbacks, p.Unsettled
	if x := p.Change; x != nil {
		at := x.At.Std()
		out.ModeSince = &at
		if c.all() {
			out.ModeBy, out.ModeWhy, out.ModeLog = x.By, x.Reason, x.Log
		}
	}
	for t, m := range p.Tenants { // order: a map again
		if !c.owns(t) {
			continue
		}
		if out.TenantModes == nil {
			out.TenantModes = map[string]string{}
		}
		out.TenantModes[t] = string(m)
	}
}

func (s *server) shadow(_ context.Context, in *struct {
	Name string `path:"name" maxLength:"128"`
}) (*answer[apitype.Shadow], error) {
	var out apitype.Shadow
	var err error
	s.host.Read(func(e *engine.Engine) {
		x, refused := e.Shadow(in.Name)
		if err = refused; err == nil {
			out = shadowOf(x, e.Now())
		}
	})
	return answerOf(out, err)
}

func shadowOf(x engine.Shadow, now work.Time) apitype.Shadow {
	out := apitype.Shadow{Pool: x.Pool, Mode: string(x.Mode), Since: now.Add(-x.For).Std(), GPUs: x.Static, Needed: x.GPUs, Mean: x.Mean, Most: x.Most,
		Parks: x.Parks, Wakes: x.Wakes, Idle: x.Idle, IdleIf: x.IdleIf, Tells: x.Mode == work.Shadow}
	out.Sentence = fmt.Sprintf("%s holds %.1f GPUs; dynamic would have needed about %d", x.Mode, x.Static, x.GPUs)
	if x.Wakes > 0 {
		out.Sentence += fmt.Sprintf(", so that %.0f %% of %d wakes find a GPU at once", 100*x.Found, x.Wakes)
	}
	out.Sentence += fmt.Sprintf(", %.1f of them held on average; it would have made %d moves; idle %.0f %%, and %.0f %% then", x.Mean, x.Parks+x.Wakes, 100*x.Idle, 100*x.IdleIf)
	return out
}

func (s *server) startRollout(ctx context.Context, in *struct {
	Body apitype.RolloutSpec
}) (*answer[apitype.Rollout], error) {
	x := in.Body
	ev := engine.StartRollout{Pools: x.Pools, Tenants: x.Tenants, Mode: work.PoolMode(x.Mode), Waits: x.WaitRatio, Fails: x.Failures, By: who(ctx).String()}
	if x.Step != "" {
		d, err := time.ParseDuration(x.Step)
		if err != nil || d <= 0 {
			return nil, work.Errorf(work.CodeInvalid, "step %q is not understood: expected a duration such as 1h", x.Step)
		}
		ev.For = d
	}
	if _, err := s.host.Do(ctx, ev); err != nil {
		return nil, err
	}
	return s.getRollout(ctx, nil)
}

func (s *server) stopRollout(ctx context.Context, in *struct {
	Keep bool `query:"keep" doc:"Keep what it changed"`
}) (*answer[apitype.Rollout], error) {
	if _, err := s.host.Do(ctx, engine.StopRollout{Keep: in.Keep, By: who(ctx).String()}); err != nil {
		return nil, err
	}
	return s.getRollout(ctx, nil)
}

func (s *server) getRollout(context.Context, *struct{}) (*answer[apitype.Rollout], error) {
	var out apitype.Rollout
	err := error(work.Errorf(work.CodeNotFound, "there was no rollout yet: gpupool rollout start begins one"))
	s.host.Read(func(e *engine.Engine) {
		if r := e.Rollout(); r != nil {
			out, err = rolloutOf(r, e.Now()), nil
		}
	})
	return answerOf(out, err)
}

func rolloutOf(r *engine.Rollout, now work.Time) apitype.Rollout {
	out := apitype.Rollout{By: r.By, Begun: r.Begun.Std(), Mode: string(r.Mode), State: string(r.How), Why: r.Why, Until: optional(r.Until), Ended: optional(r.Ended),
		Step: work.FormatDuration(r.For), WaitRatio: r.Waits, Failures: r.Fails, Words: r.Words(now)}
	if r.Until != 0 {
		if out.State = "trial"; r.At < 0 {
			out.State = "baseline"
		}
	}
	for i, x := range r.Steps {
		out.Steps = append(out.Steps, apitype.RolloutStep{Pool: x.Pool, Tenant: x.Tenant, State: r.StepState(i), Baseline: measured(x.Baseline), Trial: measured(x.Trial)})
	}
	return out
}

func measured(m engine.Measure) apitype.Measured {
	return apitype.Measured{Waits: m.Waits, WaitMeanS: m.Mean().Seconds(), Ended: m.Ended, Failed: m.Failed}
}
