package api_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/work"
)

func TestTaskLife(t *testing.T) {
	w := start(t, options{})
	spec := apitype.TaskSpec{Name: "life", GPUs: "2/7", Priority: "high", Class: "training", CPUs: 1.5, Memory: "2GiB", Command: []string{"train", "--fast"}}
	x := w.running(w.alice, spec)
	if x.Name != "life" || x.Tenant != "alice" || x.Pool != "main" || x.Priority != "high" || x.Class != "training" || x.CPUs != 1.5 || x.MemoryMiB != 2048 ||
		!slices.Equal(x.Command, spec.Command) || x.Started == nil || x.Ended != nil || x.Epoch != 1 || x.Submitted.IsZero() {
		t.Errorf("the running task is %+v", x)
	}
	if len(x.Members) != 1 || len(x.Members[0].Slices) != 1 || x.Members[0].Phase != "running" {
		t.Fatalf("it holds %+v, want one slice", x.Members)
	}
	s := x.Members[0].Slices[0]
	if s.Mode != "mig" || s.Profile != "2g.20gb" || s.Units != 2 || s.MemoryMiB < 19<<10 || s.Device == "" || s.GPUID == "" || !strings.HasPrefix(s.Text, "2g.20gb at ") {
		t.Errorf("its slice is %+v", s)
	}
	w.poll("the use of the slice is known", func() bool {
		x, err := w.alice.Task(t.Context(), x.ID)
		ok(t, err)
		u := x.Members[0].Slices[0].Use
		return u != nil && u.Compute >= 0
	})
	e, err := w.alice.Explain(t.Context(), x.ID)
	ok(t, err)
	if e.Code != "running" || len(e.Detail) != 1 || !strings.Contains(e.Detail[0], s.Text) {
		t.Errorf("explained as %+v", e)
	}
	w.finish(x, 0, 3)
	x, err = w.alice.WaitTask(t.Context(), x.ID, time.Minute)
	ok(t, err)
	if !x.Terminal() || x.State != "failed" || x.Exit == nil || x.Exit.Code != 3 || x.Reason.Code != "exit_code" || x.Ended == nil || x.Members != nil {
		t.Errorf("the ended task is %+v", x)
	}
	_, err = w.alice.Cancel(t.Context(), x.ID)
	if says := refused(t, err, work.CodeConflict); !strings.Contains(says, "ended already") {
		t.Errorf("cancelling it says %q", says)
	}
}

func TestCancel(t *testing.T) {
	w := start(t, options{shape: "1xH100-80GB"})
	running := w.running(w.alice, apitype.TaskSpec{})
	queued := w.submit(w.alice, apitype.TaskSpec{})
	if queued.State != "queued" || queued.Reason.Code != "waiting_for_gpus" || !strings.Contains(queued.Reason.Message, "0 of 1 GPUs free") {
		t.Errorf("a task that waits is answered as %+v, want the reason with its arithmetic", queued)
	}
	x, err := w.alice.Explain(t.Context(), queued.ID)
	ok(t, err)
	if x.Code != queued.Reason.Code || x.Ahead != 0 {
		t.Errorf("explained as %+v", x)
	}
	got, err := w.alice.Cancel(t.Context(), queued.ID)
	ok(t, err)
	if got.State != "cancelled" || !strings.Contains(got.Reason.Message, "tenant alice") {
		t.Errorf("a queued task that is cancelled becomes %+v", got)
	}
	_, err = w.admin.Cancel(t.Context(), running.ID)
	ok(t, err)
	got, err = w.alice.WaitTask(t.Context(), running.ID, time.Minute)
	ok(t, err)
	if got.State != "cancelled" || !strings.Contains(got.Reason.Message, "an admin") {
		t.Errorf("a running task that an admin cancelled becomes %+v", got)
	}
}

func TestWait(t *testing.T) {
	w := start(t, options{})
	x := w.running(w.alice, apitype.TaskSpec{GPUs: "1/7"})
	path := fmt.Sprintf("/v1/tasks/%d", x.ID)
	if a := w.call(w.aliceToken, "GET", path+"?wait=1h&until=running", ""); !strings.Contains(a.body, `"running"`) {
		t.Errorf("waiting for what has happened already: %d %s", a.status, a.body)
	}
	if a := w.call(w.aliceToken, "GET", path+"?wait=30ms", ""); a.status != 200 || !strings.Contains(a.body, `"running"`) {
		t.Errorf("a wait that is over: got %d %s, want the task as it is", a.status, a.body)
	}
	for _, bad := range []string{"5", "-1s", "soon"} {
		if a := w.call(w.aliceToken, "GET", path+"?wait="+bad, ""); a.status != 422 {
			t.Errorf("wait=%s: got %d %s", bad, a.status, a.body)
		}
	}
	// Many wait while thousands of facts about others rush past their buffers.
	var waiters sync.WaitGroup
	for range 8 {
		waiters.Go(func() {
			got, err := w.alice.WaitTask(t.Context(), x.ID, time.Minute)
			if err != nil || got.State != "succeeded" {
				t.Errorf("a waiter got %s, %v", got.State, err)
			}
		})
	}
	for range 50 {
		y := w.running(w.bob, apitype.TaskSpec{GPUs: "1/7"})
		w.finish(y, 0, 0)
	}
	w.finish(x, 0, 0)
	waiters.Wait()
}

func TestWaitEndsWithTheHost(t *testing.T) {
	w := start(t, options{})
	x := w.running(w.alice, apitype.TaskSpec{})
	got := make(chan answer, 1)
	go func() { got <- w.call(w.aliceToken, "GET", fmt.Sprintf("/v1/tasks/%d?wait=1m", x.ID), "") }()
	time.Sleep(20 * time.Millisecond) // usually the wait has begun then; either way it must end
	w.stop()
	if a := <-got; a.status != 200 || !strings.Contains(a.body, `"running"`) {
		t.Errorf("a wait when the host stops: got %d %s, want the task as it is", a.status, a.body)
	}
	a := w.call(w.aliceToken, "POST", "/v1/tasks", `{"command":["x"]}`)
	if p := checkProblem(t, a); p.Status != 503 || p.Code != "unavailable" || a.header.Get("Retry-After") == "" {
		t.Errorf("a submission after the end: got %d %s, want 503 with Retry-After", a.status, a.body)
	}
}

func TestIdempotencyKey(t *testing.T) {
	w := start(t, options{})
	spec := apitype.TaskSpec{GPUs: "1/7", Command: []string{"x"}}
	first, err := w.alice.Submit(t.Context(), spec, "k")
	ok(t, err)
	again, err := w.alice.Submit(t.Context(), spec, "k")
	ok(t, err)
	if again.ID != first.ID {
		t.Errorf("the same key gave tasks %d and %d", first.ID, again.ID)
	}
	other := spec
	other.Command = []string{"y"}
	_, err = w.alice.Submit(t.Context(), other, "k")
	refused(t, err, work.CodeConflict)
	_, err = w.alice.CreateLease(t.Context(), apitype.LeaseSpec{GPUs: "1/7"}, "k")
	refused(t, err, work.CodeConflict)
	bobs, err := w.bob.Submit(t.Context(), spec, "k")
	ok(t, err)
	if bobs.ID == first.ID {
		t.Errorf("bob got alice's task by using her key")
	}
	unkeyed := w.submit(w.alice, spec)
	if unkeyed.ID == first.ID {
		t.Errorf("a submission without a key gave an old task")
	}
}

func TestWhoPays(t *testing.T) {
	w := start(t, options{})
	spec := apitype.TaskSpec{Command: []string{"x"}, GPUs: "1/7"}
	_, err := w.admin.Submit(t.Context(), spec, "")
	refused(t, err, work.CodeInvalid)
	spec.Tenant = "nobody"
	_, err = w.admin.Submit(t.Context(), spec, "")
	refused(t, err, work.CodeNotFound)
	_, err = w.alice.Submit(t.Context(), spec, "")
	refused(t, err, work.CodeForbidden)
	ok(t, w.admin.DeleteTenant(t.Context(), "bob"))
	spec.Tenant = ""
	x, err := w.admin.Submit(t.Context(), spec, "") // only alice is left
	ok(t, err)
	if x.Tenant != "alice" {
		t.Errorf("an admin's task for the only tenant is for %q", x.Tenant)
	}
	spec.Pool = "elsewhere"
	_, err = w.alice.Submit(t.Context(), spec, "")
	refused(t, err, work.CodeNotFound)
	_, err = w.alice.Submit(t.Context(), apitype.TaskSpec{Command: []string{"x"}, GPUs: "64"}, "")
	refused(t, err, work.CodeImpossible)
	_, err = w.admin.PutTenant(t.Context(), "alice", apitype.TenantSpec{LimitGPUs: 2})
	ok(t, err)
	_, err = w.alice.Submit(t.Context(), apitype.TaskSpec{Command: []string{"x"}, GPUs: "4"}, "")
	refused(t, err, work.CodeLimit)
}

// TestTaskPages draws queries and compares every page with a filter over everything.
func TestTaskPages(t *testing.T) {
	w := start(t, options{shape: "4xH100-80GB", pools: []work.Pool{{Name: "main", Mode: work.Dynamic}, {Name: "empty", Mode: work.Dynamic, Hosts: []string{"none"}}}})
	names := []string{"a", "b"}
	for i := range 24 {
		c := []*client.Client{w.alice, w.bob}[i%2]
		x := w.submit(c, apitype.TaskSpec{Name: names[i/2%2], Pool: []string{"main", "empty"}[i/4%2], GPUs: "1"})
		if i%5 == 0 {
			_, err := c.Cancel(t.Context(), x.ID)
			ok(t, err)
		}
	}
	w.poll("four run", func() bool {
		return len(all(t, w.admin.Tasks(t.Context(), client.TaskQuery{States: []string{"running"}}))) == 4
	})
	everything := all(t, w.admin.Tasks(t.Context(), client.TaskQuery{}))
	if len(everything) != 24 || !slices.IsSortedFunc(everything, func(a, b apitype.Task) int { return cmp.Compare(a.ID, b.ID) }) {
		t.Fatalf("all tasks are %d, or not by number", len(everything))
	}
	for _, x := range everything {
		if x.Reason.Code == "" && x.State == "queued" || x.Reason.Message == "" {
			t.Errorf("task %d is %s without a reason", x.ID, x.State)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		states := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"queued", "running", "cancelled", "active"}), 0, 2, rapid.ID).Draw(rt, "states")
		tenant := rapid.SampledFrom([]string{"", "alice", "bob", "nobody"}).Draw(rt, "tenant")
		pool := rapid.SampledFrom([]string{"", "main", "empty"}).Draw(rt, "pool")
		name := rapid.SampledFrom([]string{"", "a", "b"}).Draw(rt, "name")
		order := rapid.SampledFrom([]string{"", "asc", "desc"}).Draw(rt, "order")
		limit := rapid.IntRange(1, 30).Draw(rt, "limit")
		var want, got []uint64
		for _, x := range everything {
			if (len(states) == 0 || slices.Contains(states, x.State) || slices.Contains(states, "active") && !x.Terminal()) &&
				(tenant == "" || tenant == x.Tenant) && (pool == "" || pool == x.Pool) && (name == "" || name == x.Name) {
				want = append(want, x.ID)
			}
		}
		if order == "desc" {
			slices.Reverse(want)
		}
		path := fmt.Sprintf("/v1/tasks?limit=%d&tenant=%s&pool=%s&name=%s&order=%s", limit, tenant, pool, name, order)
		if rapid.Bool().Draw(rt, "commas") {
			path += "&state=" + strings.Join(states, ",")
		} else {
			for _, s := range states {
				path += "&state=" + s
			}
		}
		for after := ""; ; {
			var page apitype.Page[apitype.Task]
			decode(t, w.call(w.adminToken, "GET", path+"&after="+after, ""), &page)
			if len(page.Items) > limit {
				rt.Fatalf("a page of %d holds %d", limit, len(page.Items))
			}
			for _, x := range page.Items {
				got = append(got, x.ID)
			}
			if after = page.Next; after == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			rt.Fatalf("%s: got %v, want %v", path, got, want)
		}
	})
	for _, bad := range []string{"state=lost", "after=x", "after=-1", "limit=0", "limit=1001", "order=up", "colour=red"} {
		if a := w.call(w.adminToken, "GET", "/v1/tasks?"+bad, ""); a.status != 422 {
			t.Errorf("?%s: got %d %s, want 422", bad, a.status, a.body)
		}
	}
	if got := all(t, w.alice.Tasks(t.Context(), client.TaskQuery{Newest: true})); len(got) != 12 || got[0].ID < got[11].ID {
		t.Errorf("alice sees %d tasks, newest first, want her 12", len(got))
	}
}

func TestLeaseLife(t *testing.T) {
	w := start(t, options{shape: "1xH100-80GB"})
	l := w.held(w.alice, apitype.LeaseSpec{Name: "l", LeaseTTL: "5m"})
	if len(l.Devices) != 1 || l.Epoch != 1 || l.Expires == nil || time.Until(*l.Expires) < 4*time.Minute || l.Tenant != "alice" || len(l.Members) != 1 {
		t.Fatalf("the held lease is %+v", l)
	}
	renewed, err := w.alice.RenewLease(t.Context(), l.ID, 1)
	ok(t, err)
	if !renewed.Expires.After(*l.Expires) {
		t.Errorf("renewing moved the end from %s to %s", l.Expires, renewed.Expires)
	}
	_, err = w.alice.RenewLease(t.Context(), l.ID, 2)
	refused(t, err, work.CodeStale)
	refused(t, w.alice.ReleaseLease(t.Context(), l.ID, 7), work.CodeStale)
	refused(t, w.alice.ReleaseLease(t.Context(), l.ID, 0), work.CodeInvalid)

	waiting, err := w.alice.CreateLease(t.Context(), apitype.LeaseSpec{}, "")
	ok(t, err)
	if waiting.State != "queued" || waiting.Reason.Code != "waiting_for_gpus" || len(waiting.Devices) != 0 {
		t.Errorf("a lease that waits is %+v", waiting)
	}
	if got, err := w.alice.WaitLease(t.Context(), waiting.ID, 20*time.Millisecond); err != nil || got.State != "queued" {
		t.Errorf("waiting for it in vain: %+v, %v", got, err)
	}
	if got := all(t, w.alice.Leases(t.Context())); len(got) != 2 {
		t.Errorf("%d leases, want 2", len(got))
	}
	ok(t, w.alice.ReleaseLease(t.Context(), waiting.ID, 0))
	ok(t, w.alice.ReleaseLease(t.Context(), l.ID, 1))
	refused(t, w.alice.ReleaseLease(t.Context(), l.ID, 1), work.CodeConflict)
	for id, want := range map[uint64]string{waiting.ID: "cancelled", l.ID: "succeeded"} {
		got, err := w.alice.WaitLease(t.Context(), id, time.Minute)
		ok(t, err)
		if got.State != want || got.Expires != nil || len(got.Devices) != 0 {
			t.Errorf("lease %d ended as %+v, want %s", id, got, want)
		}
	}
	if got := all(t, w.alice.Leases(t.Context())); len(got) != 0 {
		t.Errorf("%d leases after the end, want 0", len(got))
	}
	var page apitype.Page[apitype.Lease]
	decode(t, w.call(w.aliceToken, "GET", "/v1/leases?state=cancelled,succeeded&limit=1", ""), &page)
	if len(page.Items) != 1 || page.Next == "" {
		t.Errorf("a page of one ended lease is %+v", page)
	}
	task := w.running(w.alice, apitype.TaskSpec{})
	_, err = w.alice.Lease(t.Context(), task.ID)
	refused(t, err, work.CodeNotFound) // it is no lease of an outside client
}

// TestGangExplained looks at everything at once while gangs wait: explaining one
// tries placements on the state, which nobody else may see.
func TestGangExplained(t *testing.T) {
	w := start(t, options{shape: "2x8xH100-80GB"})
	w.running(w.alice, apitype.TaskSpec{GPUs: "1"})
	gang := w.submit(w.alice, apitype.TaskSpec{GPUs: "1/7", Members: 2 * 8 * 7}) // all but the last seven have room
	var readers sync.WaitGroup
	for i := range 6 {
		readers.Go(func() {
			for range 20 {
				if i%2 == 0 {
					if x, err := w.alice.Explain(t.Context(), gang.ID); err != nil || x.Code != "waiting_for_gpus" {
						t.Errorf("explained as %+v, %v", x, err)
					}
					continue
				}
				held := 0
				for g, err := range w.admin.GPUs(t.Context(), client.GPUQuery{}) {
					if held += len(g.Holders); err != nil {
						t.Error(err)
					}
				}
				if held != 1 {
					t.Errorf("%d slices are held, want 1: a placement that was only tried is seen", held)
				}
			}
		})
	}
	readers.Wait()
}
