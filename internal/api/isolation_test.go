package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/gpupool/gpupool/internal/api"
	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
)

// strangers are callers of bob: whatever their role, nothing of alice is for them.
func (w *world) strangers() map[string]string {
	return map[string]string{"bob": w.bobToken, "a named token of bob": w.role("tenant", "bob", false), "a viewer of bob": w.role("viewer", "bob", false)}
}

// TestIsolationReads: everything that can be read is read as bob while alice has a task
// that writes, a lease, an array, a secret, a history and money spent; nothing of it shows.
func TestIsolationReads(t *testing.T) {
	w := start(t, options{change: func(c *api.Config) {
		c.Metrics = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = rw.Write([]byte(`held{tenant="alice"} 1`))
		})
		c.MetricsToken = api.HashToken("gpm_x")
	}})
	x := w.running(w.alice, apitype.TaskSpec{Name: "alice-name", GPUs: "1/7", Command: []string{"alice-command"}, Env: []string{"K=alice-env"}, Labels: map[string]string{"of": "alice-label"}})
	w.print(x, "alice-output\n")
	l := w.held(w.alice, apitype.LeaseSpec{Name: "alice-lease", GPUs: "1"})
	waits := w.submit(w.alice, apitype.TaskSpec{Name: "alice-waits", GPUs: "8", Members: 2, Array: "0-3"})
	ok(t, w.alice.PutSecret(t.Context(), "alice", "ALICE_KEY", "alice-value"))
	paths := []string{"/v1/whoami", "/v1/tasks", "/v1/tasks?tenant=alice", "/v1/tasks?name=alice-name", "/v1/tasks?state=active&order=desc", "/v1/leases", "/v1/leases?state=running", "/v1/hosts", "/v1/gpus", "/v1/map",
		"/v1/pools", "/v1/tenants", "/v1/tenants?after=a", "/v1/tenants/alice", "/v1/tenants/alice/secrets", "/v1/report", "/v1/report?by=tenant", "/v1/report?by=day", "/v1/audit", "/v1/audit?tenant=alice", "/v1/tokens", "/v1/rollout", "/metrics"}
	for _, id := range []uint64{x.ID, l.ID, waits.ID, waits.ID + 3} {
		for _, rest := range []string{"", "?wait=10ms", "/explain", "/logs", "/logs?follow=true", "/logs?tail=1"} {
			paths = append(paths, fmt.Sprintf("/v1/tasks/%d%s", id, rest))
		}
		paths = append(paths, fmt.Sprintf("/v1/leases/%d", id), fmt.Sprintf("/v1/leases/%d?wait=10ms", id), fmt.Sprintf("/v1/events?task=%d", id))
	}
	for who, token := range w.strangers() {
		for _, path := range paths {
			a := w.call(token, "GET", path, "", "X-Forwarded-For", "192.0.2.1") // not of this machine, for /metrics
			body := strings.ReplaceAll(a.body, fmt.Sprintf("%q", "/v1/tenants/alice"), "")
			if asked := strings.Contains(path, "tenants/alice"); asked && a.status == 404 {
				body = strings.ReplaceAll(body, `\"alice\"`, "") // only what was asked for comes back
			}
			if strings.Contains(body, "alice") || strings.Contains(body, "ALICE") {
				t.Errorf("%s: GET %s: %d, and alice is in %s", who, path, a.status, a.body)
			}
			if strings.Contains(path, fmt.Sprintf("/%d", x.ID)) && a.status != 404 {
				t.Errorf("%s: GET %s: %d, want 404 as of one that never was", who, path, a.status)
			}
		}
	}
	if a := w.call(w.role("viewer", "", false), "GET", "/v1/tasks", ""); !strings.Contains(a.body, "alice-name") {
		t.Errorf("the check is blind: a viewer of all does not see the task either: %s", a.body)
	}
}

// TestIsolationEvents: of what happens to alice, a stream of bob tells nothing, whatever it
// asks for.
func TestIsolationEvents(t *testing.T) {
	w := start(t, options{})
	before := w.host.LastEvent()
	x := w.running(w.alice, apitype.TaskSpec{Name: "alice-name", GPUs: "1/7"})
	w.finish(x, 0, 0)
	_, err := w.alice.WaitTask(t.Context(), x.ID, patience)
	ok(t, err)
	for who, token := range w.strangers() { // their tokens are facts too, of bob
		y := w.submit(w.bob, apitype.TaskSpec{GPUs: "1/7"})
		for ev, err := range w.client(token).Events(t.Context(), client.EventQuery{After: before}) {
			ok(t, err)
			if text := toJSON(t, ev); ev.Tenant != "bob" || ev.Task == x.ID || strings.Contains(text, "alice") {
				t.Errorf("%s is told %s", who, text)
			}
			if ev.Task == y.ID { // what came before it is behind us
				break
			}
		}
	}
}

// TestIsolationWrites: everything that changes something is tried as bob on what is
// alice's, and as her viewer; afterwards all is as it was.
func TestIsolationWrites(t *testing.T) {
	w := start(t, options{})
	x := w.running(w.alice, apitype.TaskSpec{GPUs: "1/7"})
	l := w.held(w.alice, apitype.LeaseSpec{GPUs: "1"})
	waits := w.submit(w.alice, apitype.TaskSpec{GPUs: "8", Members: 2, Hold: true})
	ok(t, w.alice.PutSecret(t.Context(), "alice", "KEY", "value"))
	look := func() string {
		out := strings.Join(secretsOf(t, w), " ")
		for _, x := range all(t, w.alice.Tasks(t.Context(), client.TaskQuery{})) {
			out += fmt.Sprintf("\n%d %s epoch %d, %s, held %v, preempted %d", x.ID, x.State, x.Epoch, x.Request, x.Held, x.Preempted)
		}
		return out
	}
	type try struct{ method, path, body string }
	tries := []try{
		{"POST", "/v1/tasks", `{"tenant":"alice","command":["x"]}`}, {"POST", "/v1/leases", `{"tenant":"alice"}`},
		{"PUT", "/v1/tenants/alice", `{"limit_gpus":0.1}`}, {"DELETE", "/v1/tenants/alice", ""}, {"POST", "/v1/tenants/alice/tokens", ""}, {"DELETE", "/v1/tenants/alice/tokens", ""},
		{"PUT", "/v1/tenants/alice/secrets/KEY", `{"value":"planted"}`}, {"DELETE", "/v1/tenants/alice/secrets/KEY", ""},
		{"POST", "/v1/tokens", `{"role":"tenant","tenant":"alice"}`}, {"PUT", "/v1/pools/main/mode", `{"mode":"static"}`},
		{"DELETE", fmt.Sprintf("/v1/leases/%d?epoch=%d", l.ID, l.Epoch), ""}, {"POST", fmt.Sprintf("/v1/leases/%d/renew", l.ID), fmt.Sprintf(`{"epoch":%d}`, l.Epoch)},
	}
	for _, id := range []uint64{x.ID, l.ID, waits.ID} {
		tries = append(tries, try{"DELETE", fmt.Sprintf("/v1/tasks/%d", id), ""}, try{"DELETE", fmt.Sprintf("/v1/tasks/%d?array=true", id), ""}, try{"POST", fmt.Sprintf("/v1/tasks/%d/resize", id), `{"gpus":"1"}`})
		for _, do := range []string{"hold", "release", "checkpoint", "park", "wake", "preempt"} {
			tries = append(tries, try{"POST", fmt.Sprintf("/v1/tasks/%d/%s", id, do), ""})
		}
	}
	callers := w.strangers()
	callers["a viewer of alice"] = w.role("viewer", "alice", false)
	callers["alice, who may only read"] = w.role("tenant", "alice", true)
	callers["a viewer of all"] = w.role("viewer", "", false)
	before, newest := look(), w.host.LastEvent()
	for who, token := range callers {
		for _, x := range tries {
			if a := w.call(token, x.method, x.path, x.body); a.status != 403 && a.status != 404 {
				t.Errorf("%s: %s %s: got %d %s, want it refused", who, x.method, x.path, a.status, a.body)
			}
		}
	}
	if after := look(); after != before {
		t.Errorf("something of alice's has changed:\n%s\n%s", before, after)
	}
	for ev, err := range w.admin.Events(t.Context(), client.EventQuery{After: newest - 1}) {
		ok(t, err)
		if ev.Seq > newest && ev.Kind != "task.use" { // task.use is measured, by itself
			t.Errorf("a refused call left a fact: %+v", ev)
		}
		if ev.Seq >= w.host.LastEvent() {
			break
		}
	}
	// One of another tenant may depend on nothing of alice's either.
	if a := w.call(w.bobToken, "POST", "/v1/tasks", fmt.Sprintf(`{"command":["x"],"after":[%d]}`, x.ID)); a.status < 400 || strings.Contains(a.body, "alice") {
		t.Errorf("bob's task comes after alice's: %d %s", a.status, a.body)
	}
}

func secretsOf(t *testing.T, w *world) []string {
	t.Helper()
	names, err := w.alice.Secrets(t.Context(), "alice")
	ok(t, err)
	v, err := w.secrets.Env("alice", []string{"KEY"})
	ok(t, err)
	return append(names, v...)
}
