package api

import (
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/elastic"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/work"
)

// TestPlanShown: of a move that was announced its tenant sees what it is and when, and of
// who waits for it only tasks of its own.
func TestPlanShown(t *testing.T) {
	now := work.TimeOf(time.Date(2026, 12, 3, 10, 0, 0, 0, time.UTC))
	e := engine.New(engine.Config{})
	step := func(ev engine.Event) work.TaskID {
		t.Helper()
		out := e.Step(now, ev)
		if out.Err != nil {
			t.Fatal(out.Err)
		}
		return out.Task
	}
	step(engine.SetPools{Pools: []work.Pool{{Name: "main", Mode: work.Dynamic}}})
	var waits [2]work.TaskID
	for i, name := range []string{"alice", "bob"} {
		step(engine.SetTenant{Tenant: work.Tenant{Name: name}})
		waits[i] = step(engine.Submit{Spec: work.Spec{Tenant: name, Pool: "main", Request: work.Request{GPUs: 1}, Command: []string{"x"}}})
	}
	spec := work.Spec{Tenant: "alice", Pool: "main", Request: work.Request{GPUs: 2}, Elastic: work.Elastic{OnResize: work.ResizeRestart, MinMilli: 1000, MaxMilli: 8000}}
	for _, x := range []struct {
		plan engine.Plan
		to   string
		own  bool
	}{
		{engine.Plan{Move: work.MoveRestart, To: &work.Request{GPUs: 1}, For: waits[0]}, "1 whole GPU", true},
		{engine.Plan{Move: work.MoveRestart, To: &work.Request{GPUs: 1}, For: waits[1]}, "1 whole GPU", false},
		{engine.Plan{Move: work.MoveRestart}, "2 to 8 whole GPUs", false},
		{engine.Plan{Move: work.MoveAway, To: &work.Request{GPUs: 1}, For: waits[1]}, "", false},
	} {
		x.plan.At, x.plan.Reason = now, work.Reasonf(work.Resized, "why")
		got := view{Engine: e}.task(&engine.Task{ID: 9, Spec: &spec, State: work.StateRunning, Plan: &x.plan,
			Use: elastic.Use{Kind: elastic.Light, Since: now, Compute: 0.3, MemMiB: 5}})
		p := got.Plan
		if p == nil || p.Move != string(x.plan.Move) || !p.At.Equal(now.Std()) || p.To != x.to || (p.For != 0) != x.own || p.Reason.Message != "why" {
			t.Errorf("%+v is shown as %+v", x.plan, p)
		}
		if u := got.Usage; u == nil || u.Kind != "light" || u.Compute != 0.3 || u.MemoryMiB != 5 || !u.Since.Equal(now.Std()) {
			t.Errorf("its use is shown as %+v", u)
		}
		fact, _ := shown(engine.Planned{Task: 9, Plan: x.plan}, tenantCaller("alice")).(engine.Planned)
		told, _ := shown(engine.Planned{Task: 9, Plan: x.plan}, adminCaller()).(engine.Planned)
		if fact.Plan.For != 0 || told.Plan.For != x.plan.For {
			t.Errorf("the event says to a tenant that task %d waits, to an admin task %d", fact.Plan.For, told.Plan.For)
		}
	}
	if got := (view{Engine: e}).task(&engine.Task{Spec: &spec, State: work.Succeeded, Size: &work.Request{GPUs: 1}, Use: elastic.Use{Kind: elastic.Hot}}); got.Usage != nil || got.Resized != "" {
		t.Errorf("one that has ended is shown as %+v", got)
	}
}
