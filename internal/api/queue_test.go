package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/work"
)

// full is a pool of one GPU that takes four waiting tasks, three of normal priority,
// two of low.
var full = options{shape: "1xH100-80GB", pools: []work.Pool{{Name: "main", Mode: work.Dynamic, TTL: time.Hour, Capacity: 4, BackPressure: 0.75, AskAt: 2}}}

func TestQueueFull(t *testing.T) {
	w := start(t, full)
	w.running(w.alice, apitype.TaskSpec{})
	for i, x := range []struct{ priority, refused string }{
		{"normal", ""}, {"low", ""}, {"low", "takes no low priority"}, {"normal", ""}, {"normal", "only high priority beyond 3"}, {"high", ""}, {"high", "is full"},
	} {
		a := w.call(w.aliceToken, "POST", "/v1/tasks", fmt.Sprintf(`{"command":["x"],"priority":%q}`, x.priority))
		if x.refused == "" {
			if a.status != 201 {
				t.Errorf("submission %d, %s: got %d %s, want it accepted", i, x.priority, a.status, a.body)
			}
			continue
		}
		p := checkProblem(t, a)
		if a.status != 429 || p.Code != "queue_full" || p.Retry < 1 || a.header.Get("Retry-After") != fmt.Sprint(p.Retry) || !strings.Contains(p.Detail, x.refused) {
			t.Errorf("submission %d, %s: got %d, Retry-After %q, %s, want 429 and %q", i, x.priority, a.status, a.header.Get("Retry-After"), a.body, x.refused)
		}
	}
	_, err := w.alice.Submit(t.Context(), apitype.TaskSpec{Command: []string{"x"}}, "")
	if e, is := err.(*client.Error); !is || e.Status != 429 || e.RetryAfter < time.Second { //nolint:errorlint // methods of the client return it as it is
		t.Errorf("the client says %#v, want when to try again", err)
	}
	ps, err := w.alice.Pools(t.Context())
	ok(t, err)
	if p := ps[0]; p.Waiting != 4 || p.Capacity != 4 || p.NormalUpTo == nil || *p.NormalUpTo != 3 || p.LowUpTo == nil || *p.LowUpTo != 2 {
		t.Errorf("the pool is %+v", p)
	}
}

// TestNeverFits: waiting does not help who asks for more places than there are.
func TestNeverFits(t *testing.T) {
	w := start(t, full)
	a := w.call(w.aliceToken, "POST", "/v1/tasks", `{"command":["x"],"array":"0-9"}`)
	if p := checkProblem(t, a); a.status != 422 || p.Code != "queue_full" || p.Retry != 0 || a.header.Get("Retry-After") != "" || !strings.Contains(p.Detail, "submit fewer") {
		t.Errorf("got %d, Retry-After %q, %s, want 422 without a time", a.status, a.header.Get("Retry-After"), a.body)
	}
}

func TestTenantWaiting(t *testing.T) {
	w := start(t, options{shape: "1xH100-80GB"})
	x, err := w.admin.PutTenant(t.Context(), "alice", apitype.TenantSpec{Guarantee: 1, MaxWaiting: 1, MaxRunning: 3})
	ok(t, err)
	if x.Guarantee != 1 || x.MaxWaiting != 1 || x.MaxRunning != 3 {
		t.Errorf("the tenant is %+v", x)
	}
	w.running(w.alice, apitype.TaskSpec{})
	w.submit(w.alice, apitype.TaskSpec{})
	_, err = w.alice.Submit(t.Context(), apitype.TaskSpec{Command: []string{"x"}}, "")
	if says := refused(t, err, work.CodeLimit); !strings.Contains(says, "may have 1") {
		t.Errorf("it says %q", says)
	}
	if a := w.call(w.adminToken, "PUT", "/v1/tenants/alice", `{"max_waiting":-1}`); a.status != 422 {
		t.Errorf("a negative limit: got %d %s", a.status, a.body)
	}
}

func TestHold(t *testing.T) {
	w := start(t, full)
	x := w.submit(w.alice, apitype.TaskSpec{Hold: true, Name: "held"})
	if x.State != "queued" || !x.Held || x.Reason.Code != "held" || x.WaitsUntil != nil {
		t.Errorf("a held task is %+v", x)
	}
	_, err := w.bob.Release(t.Context(), x.ID)
	refused(t, err, work.CodeNotFound)
	x, err = w.alice.Release(t.Context(), x.ID)
	ok(t, err)
	if x.Held || x.State == "queued" {
		t.Errorf("released with the GPU free it is %+v", x)
	}
	y := w.submit(w.alice, apitype.TaskSpec{})
	if y.WaitsUntil == nil || y.WaitsUntil.Sub(y.Submitted) != time.Hour {
		t.Errorf("it waits until %v, want an hour after %v", y.WaitsUntil, y.Submitted)
	}
	_, err = w.bob.Hold(t.Context(), y.ID)
	refused(t, err, work.CodeNotFound)
	y, err = w.alice.Hold(t.Context(), y.ID)
	ok(t, err)
	if !y.Held || !strings.Contains(y.Reason.Message, "gpupool release") {
		t.Errorf("held it is %+v", y)
	}
	if _, err = w.alice.Hold(t.Context(), y.ID); err != nil {
		t.Errorf("holding it again: %v", err)
	}
}

func TestPreemptAndCheckpoint(t *testing.T) {
	w := start(t, full)
	x := w.running(w.alice, apitype.TaskSpec{MaxRuntime: "4h"})
	if x.MaxRuntime != "4h" || x.RunsUntil == nil || x.RunsUntil.Sub(*x.Started) != 4*time.Hour {
		t.Errorf("the running task is %+v", x)
	}
	for name, do := range map[string]func(*client.Client) error{
		"checkpoint": func(c *client.Client) error { _, err := c.Checkpoint(t.Context(), x.ID); return err },
		"preempt":    func(c *client.Client) error { _, err := c.Preempt(t.Context(), x.ID); return err },
		"hold":       func(c *client.Client) error { _, err := c.Hold(t.Context(), x.ID); return err },
		"cancel all": func(c *client.Client) error { _, err := c.CancelArray(t.Context(), x.ID); return err },
	} {
		if says := refused(t, do(w.bob), work.CodeNotFound); strings.Contains(says, "alice") {
			t.Errorf("%s by another tenant says %q", name, says)
		}
	}
	_, err := w.alice.Checkpoint(t.Context(), x.ID)
	ok(t, err)
	other := w.submit(w.bob, apitype.TaskSpec{Priority: "high"})
	_, err = w.alice.Checkpoint(t.Context(), other.ID)
	refused(t, err, work.CodeNotFound)
	_, err = w.bob.Checkpoint(t.Context(), other.ID)
	refused(t, err, work.CodeConflict) // it waits
	_, err = w.alice.Preempt(t.Context(), x.ID)
	ok(t, err)
	w.poll("the other one runs", func() bool {
		y, err := w.bob.Task(t.Context(), other.ID)
		ok(t, err)
		return y.State == "running"
	})
	e, err := w.alice.Explain(t.Context(), x.ID)
	ok(t, err)
	if e.Task.State != "queued" || e.Task.Preempted != 1 || e.RunLeft == "" || !strings.Contains(e.Message, "sent back to the queue by tenant alice") {
		t.Errorf("explained as %+v", e)
	}
}

func TestArray(t *testing.T) {
	w := start(t, options{shape: "2xH100-80GB", pools: []work.Pool{{Name: "main", Mode: work.Dynamic}}})
	spec := apitype.TaskSpec{Array: "0-8:2%1", Name: "sweep", Command: []string{"x"}}
	first, err := w.alice.Submit(t.Context(), spec, "k")
	ok(t, err)
	if first.Array != first.ID || first.Size != 5 || first.Index == nil || *first.Index != 0 || first.ArraySpec != "0-8:2%1" {
		t.Errorf("the first task is %+v", first)
	}
	again, err := w.alice.Submit(t.Context(), spec, "k")
	ok(t, err)
	if again.ID != first.ID {
		t.Errorf("the same key gave tasks %d and %d", first.ID, again.ID)
	}
	third, err := w.alice.Task(t.Context(), first.ID+2)
	ok(t, err)
	if *third.Index != 4 || third.Array != first.ID {
		t.Errorf("the third task is %+v", third)
	}
	w.poll("the first runs", func() bool {
		first, err = w.alice.Task(t.Context(), first.ID)
		ok(t, err)
		return first.State == "running"
	})
	w.finish(first, 0, 1)
	var e apitype.Explanation
	w.poll("the second runs", func() bool { // and not the first still, whose end takes a moment to be known
		e, err = w.alice.Explain(t.Context(), first.ID)
		ok(t, err)
		return e.Array.Failed == 1 && e.Array.Running == 1
	})
	if *e.Array != (apitype.Progress{Size: 5, Failed: 1, Running: 1, Waiting: 3}) {
		t.Errorf("the array's progress is %+v", *e.Array)
	}
	_, err = w.bob.CancelArray(t.Context(), first.ID)
	refused(t, err, work.CodeNotFound)
	got, err := w.alice.CancelArray(t.Context(), first.ID)
	ok(t, err)
	if got.ID != first.ID || got.State != "failed" {
		t.Errorf("cancelling the array shows %+v", got)
	}
	for id := first.ID + 1; id < first.ID+5; id++ {
		x, err := w.alice.WaitTask(t.Context(), id, time.Minute)
		ok(t, err)
		if x.State != "cancelled" || x.Started != nil && id > first.ID+1 {
			t.Errorf("task %d is %+v, want it cancelled and never started", id, x)
		}
	}
	_, err = w.alice.CancelArray(t.Context(), first.ID)
	refused(t, err, work.CodeConflict)
	lone := w.submit(w.alice, apitype.TaskSpec{})
	_, err = w.alice.CancelArray(t.Context(), lone.ID)
	refused(t, err, work.CodeInvalid)
}

// TestCancelBigArray ends more tasks than are asked for at once.
func TestCancelBigArray(t *testing.T) {
	w := start(t, options{shape: "1xH100-80GB"})
	first := w.submit(w.alice, apitype.TaskSpec{Array: "0-299"})
	_, err := w.alice.CancelArray(t.Context(), first.ID)
	ok(t, err)
	for id := first.ID; id < first.ID+300; id++ {
		x, err := w.alice.WaitTask(t.Context(), id, time.Minute)
		ok(t, err)
		if x.State != "cancelled" || x.Started != nil && id != first.ID {
			t.Fatalf("task %d is %s", id, x.State)
		}
	}
}

func TestAfter(t *testing.T) {
	w := start(t, options{})
	x := w.running(w.alice, apitype.TaskSpec{GPUs: "1/7"})
	y := w.submit(w.alice, apitype.TaskSpec{GPUs: "1/7", After: []uint64{x.ID}})
	z := w.submit(w.alice, apitype.TaskSpec{GPUs: "1/7", AfterAny: []uint64{x.ID, y.ID}})
	if y.Reason.Code != "waiting_for_tasks" || !slices.Equal(y.After, []uint64{x.ID}) || !slices.Equal(z.AfterAny, []uint64{x.ID, y.ID}) {
		t.Errorf("they wait as %+v and %+v", y, z)
	}
	_, err := w.bob.Submit(t.Context(), apitype.TaskSpec{Command: []string{"x"}, After: []uint64{x.ID}}, "")
	refused(t, err, work.CodeNotFound)
	w.finish(x, 0, 1)
	y, err = w.alice.WaitTask(t.Context(), y.ID, time.Minute)
	ok(t, err)
	if y.State != "cancelled" || y.Reason.Code != "dependency_failed" {
		t.Errorf("after a task that failed it is %+v", y)
	}
	w.poll("the one after any runs", func() bool {
		z, err = w.alice.Task(t.Context(), z.ID)
		ok(t, err)
		return z.State == "running"
	})
}

func TestOrderFields(t *testing.T) {
	w := start(t, options{shape: "1xH100-80GB"})
	w.running(w.alice, apitype.TaskSpec{})
	x := w.submit(w.alice, apitype.TaskSpec{Estimate: "2h", MaxRuntime: "4h", Checkpoint: "15m", Deadline: "2199-12-03T08:00:00+02:00"})
	if x.Estimate != "2h" || x.MaxRuntime != "4h" || x.Checkpoint != "15m" || x.Deadline == nil || x.Deadline.Format(time.RFC3339) != "2199-12-03T06:00:00Z" ||
		x.Forecast == nil || x.Forecast.Basis != "estimate" || x.Forecast.P90 == "" {
		t.Errorf("the task is %+v, forecast %+v", x, x.Forecast)
	}
	e, err := w.alice.Explain(t.Context(), x.ID)
	ok(t, err)
	if e.RunLeft != "4h" || e.Task.Deadline == nil {
		t.Errorf("explained as %+v", e)
	}
	for field, want := range map[string]string{
		`"max_runtime":"soon"`: "max_runtime", `"estimate":"-1s"`: "estimate", `"checkpoint_every":"x"`: "checkpoint_every", `"deadline":"8h"`: "RFC 3339",
		`"deadline":"9999-01-01T00:00:00Z"`: "RFC 3339", `"array":"9-1"`: "FIRST-LAST", `"array":"0-10000"`: "at most 10000", `"after":[99]`: "is not known", `"after":["x"]`: "after",
	} {
		a := w.call(w.aliceToken, "POST", "/v1/tasks", `{"command":["x"],`+field+`}`)
		if p := checkProblem(t, a); a.status != 422 && a.status != 404 || !strings.Contains(p.Detail, want) {
			t.Errorf("%s: got %d %s, want it refused with %q", field, a.status, a.body, want)
		}
	}
}
