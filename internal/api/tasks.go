package api

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/work"
)

// explained is how many waiting tasks of a page get their reason worked out: each
// costs a look at the whole pool.
const explained = 100

// activeState in a query stands for every state that is not an end.
const activeState = "active"

func (s *server) taskRoutes() {
	const tag = "tasks"
	register(s, op{id: "submit-task", method: post, path: "/v1/tasks", says: "Submit a task", tag: tag, status: 201}, s.submitTask)
	register(s, op{id: "list-tasks", method: get, path: "/v1/tasks", says: "List tasks by number; leases of outside clients are among them", tag: tag}, s.listTasks)
	register(s, op{id: "get-task", method: get, path: "/v1/tasks/{id}", says: "Show a task, and wait for it", tag: tag}, s.getTask)
	register(s, op{id: "cancel-task", method: del, path: "/v1/tasks/{id}", says: "Ask a task to end: SIGTERM, grace, SIGKILL", tag: tag}, s.cancelTask)
	s.actionRoutes(tag)
	register(s, op{id: "explain-task", method: get, path: "/v1/tasks/{id}/explain", says: "Say why a task waits, where it sits, or how it ended", tag: tag}, s.explainTask)
	register(s, op{id: "task-logs", method: get, path: "/v1/tasks/{id}/logs", says: "Read the output of a member of a task", tag: tag, streams: "text/plain"}, s.taskLogs)
}

// KeyHeader makes a submission one that may be repeated.
type KeyHeader struct {
	Key string `header:"Idempotency-Key" maxLength:"256" doc:"The same key and body again give the same task; with another body it is a conflict"`
}

func (s *server) submitTask(ctx context.Context, in *struct {
	KeyHeader
	TraceHeader
	Body apitype.TaskSpec
}) (*answer[apitype.Task], error) {
	spec, err := in.Body.Work()
	if err != nil {
		return nil, err
	}
	spec.Trace = in.trace()
	out := &answer[apitype.Task]{}
	id, err := s.submit(ctx, spec, in.Key, func(v view, t *engine.Task) { out.Body = v.whole(t) })
	if err != nil {
		return nil, err
	}
	out.Location = fmt.Sprintf("/v1/tasks/%d", id)
	return out, nil
}

// submit fills in whose and where, hands a spec to the engine, and shows what became of it.
func (s *server) submit(ctx context.Context, spec work.Spec, key string, show func(view, *engine.Task)) (work.TaskID, error) {
	spec.Key = key
	if err := s.payer(who(ctx), &spec); err != nil {
		return 0, err
	}
	if err := s.allowed(&spec); err != nil {
		return 0, err
	}
	if spec.Pool == "" {
		spec.Pool = s.cfg.DefaultPool
	}
	if spec.Pool == "" {
		s.host.Read(func(e *engine.Engine) {
			if pools := e.Pools(); len(pools) > 0 {
				spec.Pool = pools[0].Name
			}
		})
	}
	use, c := s.usage(), who(ctx)
	var gone error
	id, err := s.host.DoThen(ctx, engine.Submit{Spec: spec}, func(e *engine.Engine, id work.TaskID) {
		var t *engine.Task
		if t, gone = find(e, c, id); gone == nil {
			show(view{e, use}, t)
		}
	})
	return id, cmp.Or(err, gone)
}

// payer fills in the tenant: a token's own, or the only one there is.
func (s *server) payer(c caller, spec *work.Spec) error {
	if !c.all() {
		if spec.Tenant == "" {
			spec.Tenant = c.Tenant
		}
		if spec.Tenant != c.Tenant {
			return work.Errorf(work.CodeForbidden, "you are %s and cannot submit for tenant %s: leave the tenant out", c, spec.Tenant)
		}
		return nil
	}
	if spec.Tenant != "" {
		return nil
	}
	var tenants []work.Tenant
	s.host.Read(func(e *engine.Engine) { tenants = e.Tenants() })
	if len(tenants) != 1 {
		return work.Errorf(work.CodeInvalid, "say which of %d tenants the task is for (--tenant): you are %s, and of none", len(tenants), c)
	}
	spec.Tenant = tenants[0].Name
	return nil
}

// find returns a task that the caller may see. Another tenant's is as unknown as
// one that never was.
func find(e *engine.Engine, c caller, id work.TaskID) (*engine.Task, error) {
	if t := e.Task(id); t != nil && c.owns(t.Spec.Tenant) {
		return t, nil
	}
	return nil, work.Errorf(work.CodeNotFound, "task %d is not known; ended tasks are forgotten after a while", id)
}

// look reads one task that the caller may see.
func (s *server) look(ctx context.Context, id work.TaskID, f func(view, *engine.Task)) error {
	use := s.usage()
	var err error
	s.host.Read(func(e *engine.Engine) {
		var t *engine.Task
		if t, err = find(e, who(ctx), id); err == nil {
			f(view{e, use}, t)
		}
	})
	return err
}

// showTask shows one task, with the reason why it waits.
func (s *server) showTask(ctx context.Context, id work.TaskID) (out apitype.Task, err error) {
	err = s.look(ctx, id, func(v view, t *engine.Task) { out = v.whole(t) })
	return out, err
}

// whole is a task with the reason why it waits, and until when.
func (v view) whole(t *engine.Task) apitype.Task {
	out := v.task(t)
	if t.State != work.Queued {
		return out
	}
	out.Reason = reason(v.Why(t))
	if !t.Held && t.Awaits == 0 { // else it is not in line
		expect(&out, v.Starts(t.Spec.Pool)[t.ID])
	}
	return out
}

// whyWaiting works out why a queued task waits. If it no longer does, the task is left
// as it was.
func (s *server) whyWaiting(t *apitype.Task) {
	s.host.Read(func(e *engine.Engine) {
		if x := e.Task(work.TaskID(t.ID)); x != nil && x.State == work.Queued {
			t.Reason = reason(e.Why(x))
		}
	})
}

// expect says when a task is expected to start.
func expect(t *apitype.Task, at engine.Start) {
	t.ExpectedStart, t.ExpectedStartLate = known(at.Likely), known(at.Late)
}

type taskQuery struct {
	PageQuery
	State  []string `query:"state,explode" doc:"Only in these states, one a parameter or with commas between; active stands for all that have not ended"`
	Tenant string   `query:"tenant" maxLength:"128"`
	Pool   string   `query:"pool" maxLength:"128"`
	Name   string   `query:"name" maxLength:"256"`
	Order  string   `query:"order" enum:"asc,desc" default:"asc" doc:"By number: oldest or newest first"`
}

func (s *server) listTasks(ctx context.Context, in *taskQuery) (*answer[apitype.Page[apitype.Task]], error) {
	wanted, err := states(in.State)
	if err != nil {
		return nil, err
	}
	use := s.usage()
	var items []apitype.Task
	s.host.Read(func(e *engine.Engine) {
		err = in.walk(e.Tasks(), func(t *engine.Task) bool {
			if who(ctx).owns(t.Spec.Tenant) && in.matches(t, wanted) {
				items = append(items, view{e, use}.task(t))
			}
			return len(items) <= in.Limit
		})
	})
	if err != nil {
		return nil, err
	}
	page := pageOf(items, in.Limit, func(t apitype.Task) string { return strconv.FormatUint(t.ID, 10) })
	s.explainPage(page.Body.Items)
	s.expectPage(page.Body.Items)
	return page, nil
}

// walk goes through the tasks behind the cursor, until f says false.
func (q *taskQuery) walk(tasks []*engine.Task, f func(*engine.Task) bool) error {
	first, err := q.first()
	if err != nil {
		return err
	}
	i, found := slices.BinarySearchFunc(tasks, work.TaskID(max(first, 1)-1), func(t *engine.Task, id work.TaskID) int {
		return cmp.Compare(t.ID, id)
	})
	if q.Order == "desc" {
		if q.After == "" {
			i = len(tasks)
		}
		for _, t := range slices.Backward(tasks[:i]) {
			if !f(t) {
				break
			}
		}
		return nil
	}
	if found {
		i++
	}
	for _, t := range tasks[i:] {
		if !f(t) {
			break
		}
	}
	return nil
}

func (q *taskQuery) matches(t *engine.Task, wanted map[work.State]bool) bool {
	return (len(wanted) == 0 || wanted[t.State]) && (q.Tenant == "" || q.Tenant == t.Spec.Tenant) &&
		(q.Pool == "" || q.Pool == t.Spec.Pool) && (q.Name == "" || q.Name == t.Spec.Name)
}

// states reads a filter; none is all.
func states(words []string) (map[work.State]bool, error) {
	out := map[work.State]bool{}
	for word := range strings.SplitSeq(strings.Join(words, ","), ",") {
		switch {
		case word == "":
		case word == activeState:
			for _, st := range work.States() {
				if !st.Terminal() {
					out[st] = true
				}
			}
		case slices.Contains(work.States(), work.State(word)):
			out[work.State(word)] = true
		default:
			return nil, work.Errorf(work.CodeInvalid, "state %q is not known: use active, %s", word, join(work.States()))
		}
	}
	return out, nil
}

func join(states []work.State) string {
	var words []string
	for _, s := range states {
		words = append(words, string(s))
	}
	return strings.Join(words, ", ")
}

// explainPage gives the waiting tasks of a page their reasons, one look at a time so
// that the writer gets its turn between them.
func (s *server) explainPage(tasks []apitype.Task) {
	n := 0
	for i := range tasks {
		t := &tasks[i]
		if t.State != string(work.Queued) {
			continue
		}
		if n++; n <= explained {
			s.whyWaiting(t)
		} else if t.Reason.Message == "" {
			t.Reason = apitype.Reason{Code: string(work.WaitTurn), Message: "waits in line; ask for the task itself to hear why"}
		}
	}
}

// expectPage says when the waiting tasks of a page are expected to start: worked out
// once for each pool, whatever the number of tasks.
func (s *server) expectPage(tasks []apitype.Task) {
	var pools []string
	for _, t := range tasks {
		if t.State == string(work.Queued) && !slices.Contains(pools, t.Pool) {
			pools = append(pools, t.Pool)
		}
	}
	for _, pool := range pools {
		s.host.Read(func(e *engine.Engine) {
			starts := e.Starts(pool)
			for i := range tasks {
				if t := &tasks[i]; t.Pool == pool && t.State == string(work.Queued) {
					expect(t, starts[work.TaskID(t.ID)])
				}
			}
		})
	}
}

func (s *server) getTask(ctx context.Context, in *struct {
	IDPath
	WaitQuery
	Until string `query:"until" enum:"running,ended" default:"ended" doc:"What to wait for: that it has begun to run, or has ended"`
}) (*answer[apitype.Task], error) {
	ended := in.Until != "running"
	err := s.wait(ctx, work.TaskID(in.ID), in.WaitQuery, func(t *engine.Task) bool {
		return t.State.Terminal() || !ended && begun(t)
	})
	if err != nil {
		return nil, err
	}
	return answerOf(s.showTask(ctx, work.TaskID(in.ID)))
}

// begun reports whether a task has got past waiting and starting.
func begun(t *engine.Task) bool { return t.State != work.Queued && t.State != work.Starting }

func (s *server) explainTask(ctx context.Context, in *IDPath) (*answer[apitype.Explanation], error) {
	use := s.usage()
	var out apitype.Explanation
	var err error
	s.host.Read(func(e *engine.Engine) {
		if _, err = find(e, who(ctx), work.TaskID(in.ID)); err != nil {
			return
		}
		var x engine.Explanation
		if x, err = e.Explain(work.TaskID(in.ID)); err == nil {
			out = view{e, use}.explanation(x)
		}
	})
	return answerOf(out, err)
}
