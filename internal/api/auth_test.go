package api_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpupool/gpupool/internal/api"
	"github.com/gpupool/gpupool/internal/api/apitype"
)

// made is what the rows of the matrix are about: each caller gets fresh ones.
type made struct {
	task  apitype.Task
	lease apitype.Lease
	spare string // a tenant that only the admin has a use for

	token, secret string
}

// matrix says for each operation how it is called on what belongs to alice, and what is
// answered to bob, alice, a viewer of alice, one of all, an operator and an admin. A token of
// alice that may only read is answered as her viewer is. Without a token it is always 401.
var matrix = map[string]struct {
	path func(m made) string
	body string

	bob, alice, reader, viewer, operator, admin int
}{
	"whoami":          {at("/v1/whoami"), "", 200, 200, 200, 200, 200, 200},
	"submit-task":     {at("/v1/tasks"), `{"tenant":"alice","command":["x"]}`, 403, 201, 403, 403, 201, 201},
	"list-tasks":      {at("/v1/tasks"), "", 200, 200, 200, 200, 200, 200},
	"get-task":        {task(""), "", 404, 200, 200, 200, 200, 200},
	"cancel-task":     {task(""), "", 404, 200, 403, 403, 200, 200},
	"explain-task":    {task("/explain"), "", 404, 200, 200, 200, 200, 200},
	"hold-task":       {task("/hold"), "", 404, 409, 403, 403, 409, 409}, // it runs
	"release-task":    {task("/release"), "", 404, 409, 403, 403, 409, 409},
	"checkpoint-task": {task("/checkpoint"), "", 404, 200, 403, 403, 200, 200},
	"park-task":       {task("/park"), "", 404, 409, 403, 403, 409, 409}, // a part of a GPU
	"wake-task":       {task("/wake"), "", 404, 200, 403, 403, 200, 200},
	"resize-task":     {task("/resize"), `{"gpus":"2"}`, 404, 409, 403, 403, 409, 409}, // a part of a GPU, which has no other size
	"preempt-task":    {task("/preempt"), "", 404, 200, 403, 403, 200, 200},
	"task-logs":       {task("/logs"), "", 404, 200, 200, 200, 200, 200},
	"create-lease":    {at("/v1/leases"), `{"tenant":"alice","gpus":"1/7"}`, 403, 201, 403, 403, 201, 201},
	"list-leases":     {at("/v1/leases"), "", 200, 200, 200, 200, 200, 200},
	"get-lease":       {lease(""), "", 404, 200, 200, 200, 200, 200},
	"renew-lease":     {lease("/renew"), `{"epoch":1}`, 404, 200, 403, 403, 200, 200},
	"release-lease":   {lease("?epoch=1"), "", 404, 200, 403, 403, 200, 200},
	"list-hosts":      {at("/v1/hosts"), "", 200, 200, 200, 200, 200, 200},
	"list-gpus":       {at("/v1/gpus"), "", 200, 200, 200, 200, 200, 200},
	"get-gpu":         {at("/v1/gpus/0"), "", 200, 200, 200, 200, 200, 200},
	"cordon-gpu":      {at("/v1/gpus/63/cordon"), `{"reason":"x"}`, 403, 403, 403, 403, 200, 200},
	"drain-gpu":       {at("/v1/gpus/63/drain"), "", 403, 403, 403, 403, 200, 200},
	"uncordon-gpu":    {at("/v1/gpus/63/uncordon"), "", 403, 403, 403, 403, 200, 200},
	"get-map":         {at("/v1/map"), "", 200, 200, 200, 200, 200, 200},
	"set-pool-mode":   {at("/v1/pools/main/mode"), `{"mode":"dynamic"}`, 403, 403, 403, 403, 200, 200},
	"pool-shadow":     {at("/v1/pools/main/shadow"), "", 409, 409, 409, 409, 409, 409}, // it is dynamic
	"start-rollout":   {at("/v1/rollout"), `{"pools":["main"]}`, 403, 403, 403, 403, 409, 409},
	"get-rollout":     {at("/v1/rollout"), "", 403, 403, 403, 404, 404, 404}, // there was none
	"stop-rollout":    {at("/v1/rollout"), "", 403, 403, 403, 403, 409, 409},
	"report":          {at("/v1/report"), "", 200, 200, 200, 200, 200, 200},
	"list-pools":      {at("/v1/pools"), "", 200, 200, 200, 200, 200, 200},
	"list-tenants":    {at("/v1/tenants"), "", 200, 200, 200, 200, 200, 200},
	"get-tenant":      {at("/v1/tenants/alice"), "", 404, 200, 200, 200, 200, 200},
	"put-tenant":      {at("/v1/tenants/alice"), `{"limit_gpus":100}`, 403, 403, 403, 403, 403, 200},
	"delete-tenant":   {spare(""), "", 403, 403, 403, 403, 403, 204},
	"create-token":    {spare("/tokens"), "", 403, 403, 403, 403, 403, 201},
	"revoke-tokens":   {spare("/tokens"), "", 403, 403, 403, 403, 403, 204},
	"events":          {func(m made) string { return fmt.Sprintf("/v1/events?task=%d", m.task.ID) }, "", 404, 200, 200, 200, 200, 200},

	"list-secrets":  {at("/v1/tenants/alice/secrets"), "", 404, 200, 200, 200, 200, 200},
	"put-secret":    {at("/v1/tenants/alice/secrets/KEY"), `{"value":"x"}`, 404, 204, 403, 403, 204, 204},
	"delete-secret": {func(m made) string { return "/v1/tenants/alice/secrets/" + m.secret }, "", 404, 204, 403, 403, 204, 204},
	"list-tokens":   {at("/v1/tokens"), "", 403, 403, 403, 403, 403, 200},
	"make-token":    {at("/v1/tokens"), `{"role":"tenant","tenant":"alice"}`, 403, 403, 403, 403, 403, 201},
	"rotate-token":  {token("/rotate"), `{}`, 403, 403, 403, 403, 403, 200},
	"revoke-token":  {token(""), "", 403, 403, 403, 403, 403, 204},
	"get-audit":     {at("/v1/audit"), "", 403, 403, 403, 403, 403, 200},
}

func at(path string) func(made) string { return func(made) string { return path } }
func task(rest string) func(made) string {
	return func(m made) string { return fmt.Sprintf("/v1/tasks/%d%s", m.task.ID, rest) }
}
func lease(rest string) func(made) string {
	return func(m made) string { return fmt.Sprintf("/v1/leases/%d%s", m.lease.ID, rest) }
}
func token(rest string) func(made) string {
	return func(m made) string { return "/v1/tokens/" + m.token + rest }
}
func spare(rest string) func(made) string {
	return func(m made) string { return "/v1/tenants/" + m.spare + rest }
}

// TestAuthMatrix calls every operation of the document as every kind of caller.
func TestAuthMatrix(t *testing.T) {
	w := start(t, options{shape: "8x8xH100-80GB"})
	ops := operations(t, w)
	for id := range matrix {
		if _, known := ops[id]; !known {
			t.Errorf("the matrix has a row for %s, which is no operation", id)
		}
	}
	n := 0
	fresh := func() made {
		n++
		m := made{task: w.running(w.alice, apitype.TaskSpec{GPUs: "1/7"}), lease: w.held(w.alice, apitype.LeaseSpec{GPUs: "1/7"}), spare: fmt.Sprintf("spare%d", n)}
		_, err := w.admin.PutTenant(t.Context(), m.spare, apitype.TenantSpec{})
		ok(t, err)
		made, err := w.admin.MakeToken(t.Context(), apitype.TokenSpec{Role: "tenant", Tenant: m.spare})
		ok(t, err)
		m.token, m.secret = made.ID, fmt.Sprintf("KEY%d", n)
		ok(t, w.alice.PutSecret(t.Context(), "alice", m.secret, "value"))
		return m
	}
	reader, viewer, operator := w.role("viewer", "alice", false), w.role("viewer", "", false), w.role("operator", "", false)
	only := w.role("tenant", "alice", true)
	for id, method := range ops {
		t.Run(id, func(t *testing.T) {
			row, known := matrix[id]
			if !known {
				t.Fatalf("operation %s has no row in the matrix of who may call it: add one", id)
			}
			m := fresh()
			for _, c := range []struct {
				who, token string
				want       int
			}{
				{"no token", "", 401},
				{"an unknown token", api.NewTenantToken("alice"), 401},
				{"a false admin", api.NewAdminToken(), 401},
				{"bob", w.bobToken, row.bob}, {"alice", w.aliceToken, row.alice}, {"a viewer of alice", reader, row.reader}, {"alice, who may only read", only, row.reader},
				{"a viewer", viewer, row.viewer}, {"an operator", operator, row.operator}, {"an admin", w.adminToken, row.admin},
			} {
				a := w.call(c.token, method, row.path(m), row.body)
				if a.status != c.want {
					t.Errorf("%s: got %d %s, want %d", c.who, a.status, a.body, c.want)
				}
				if a.status >= 400 {
					checkProblem(t, a)
				} else {
					m = fresh() // it may be used up
				}
				if (a.header.Get("WWW-Authenticate") != "") != (c.want == 401) {
					t.Errorf("%s: WWW-Authenticate is %q at %d", c.who, a.header.Get("WWW-Authenticate"), a.status)
				}
			}
		})
	}
}

// operations reads the document: operation id -> method.
func operations(t *testing.T, w *world) map[string]string {
	var doc struct {
		Paths map[string]map[string]struct {
			ID         string `json:"operationId"`
			Parameters []struct{ Name, In string }
		} `json:"paths"`
	}
	a := w.call("", "GET", "/openapi.json", "")
	ok(t, json.Unmarshal([]byte(a.body), &doc))
	ops := map[string]string{}
	for path, methods := range doc.Paths {
		for method, o := range methods {
			if !strings.HasPrefix(path, "/v1/") || o.ID == "" || ops[o.ID] != "" {
				t.Errorf("%s %s: want a path under /v1 and an operation id of its own, got %q", method, path, o.ID)
			}
			ops[o.ID] = strings.ToUpper(method)
			params := 0
			for _, p := range o.Parameters {
				if p.In == "path" && strings.Contains(path, "{"+p.Name+"}") {
					params++
				}
			}
			if params != strings.Count(path, "{") {
				t.Errorf("%s %s declares %v, not each parameter of its path", method, path, o.Parameters)
			}
		}
	}
	return ops
}

func checkProblem(t *testing.T, a answer) apitype.Problem {
	t.Helper()
	var p apitype.Problem
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || a.header.Get("Content-Type") != "application/problem+json" ||
		p.Status != a.status || p.Code == "" || p.Detail == "" || p.Title == "" {
		t.Errorf("%d %q %s is no problem as RFC 9457 wants it, with a code", a.status, a.header.Get("Content-Type"), a.body)
	}
	return p
}

func TestOpenPaths(t *testing.T) {
	w := start(t, options{})
	for path, want := range map[string]int{"/healthz": 200, "/openapi.json": 200, "/openapi.yaml": 200, "/docs": 404, "/schemas/Task.json": 404, "/": 404, "/v1": 401, "/v1/": 401, "/v1/nothing": 401} {
		a := w.call("", "GET", path, "")
		if a.status != want || a.header.Get("X-Content-Type-Options") != "nosniff" || a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("GET %s: got %d with %v, want %d and the headers of every answer", path, a.status, a.header, want)
		}
	}
	if a := w.call(w.adminToken, "GET", "/v1/nothing", ""); a.status != 404 {
		t.Errorf("an unknown path with a token: got %d, want 404", a.status)
	}
}

func TestAuthorizationHeader(t *testing.T) {
	w := start(t, options{})
	for header, want := range map[string]int{
		"Bearer " + w.aliceToken: 200, "bearer " + w.aliceToken: 200, "Basic " + w.aliceToken: 401, w.aliceToken: 401, "Bearer": 401, "Bearer  " + w.aliceToken: 401,
		"Bearer " + w.aliceToken[:len(w.aliceToken)-1]: 401, "Bearer gpt_" + strings.Repeat("a", 64): 401, "Bearer gpt__" + strings.Repeat("a", 64): 401,
		"Bearer " + strings.Replace(w.aliceToken, "alice", "bob", 1): 401, "Bearer " + api.HashToken(w.aliceToken): 401,
	} {
		if a := w.call("", "GET", "/v1/whoami", "", "Authorization", header); a.status != want {
			t.Errorf("%q: got %d, want %d", header, a.status, want)
		}
	}
}

// TestIsolation looks at everything as bob while alice works, and must find no trace
// of her.
func TestIsolation(t *testing.T) {
	w := start(t, options{})
	secret := apitype.TaskSpec{Name: "alice-name", GPUs: "1/7", Command: []string{"alice-command"}, Env: []string{"KEY=alice-env"}}
	running := w.running(w.alice, secret)
	l := w.held(w.alice, apitype.LeaseSpec{Name: "alice-lease", GPUs: "1"})
	for _, path := range []string{"/v1/tasks", "/v1/tasks?tenant=alice", "/v1/leases", "/v1/gpus", "/v1/map", "/v1/hosts", "/v1/pools", "/v1/tenants", "/v1/whoami"} {
		a := w.call(w.bobToken, "GET", path, "")
		for _, trace := range []string{"alice", "MIG-"} {
			if a.status != 200 || strings.Contains(a.body, trace) {
				t.Errorf("GET %s as bob: %d, and %q is in %s", path, a.status, trace, a.body)
			}
		}
	}
	w.poll("alice sees how busy her slices are", func() bool {
		n := 0
		for _, g := range all(t, w.alice.GPUs(t.Context(), gpuQuery())) {
			if len(g.Holders) > 0 && g.Holders[0].Slice.Use != nil {
				n++
			}
		}
		return n == 2
	})
	taken := 0
	for _, g := range all(t, w.bob.GPUs(t.Context(), gpuQuery())) {
		for _, h := range g.Holders {
			taken++
			if h.Task != 0 || h.Phase != "taken" || h.Slice.Device != "" || h.Slice.Use != nil || h.Slice.Text == "" {
				t.Errorf("bob sees %+v of another's slice", h)
			}
		}
	}
	if taken != 2 {
		t.Errorf("bob sees %d taken slices, want 2", taken)
	}
	for _, path := range []string{fmt.Sprintf("/v1/tasks/%d", running.ID), fmt.Sprintf("/v1/tasks/%d/explain", running.ID), "/v1/tasks"} {
		for _, token := range []string{w.aliceToken, w.adminToken} {
			if a := w.call(token, "GET", path, ""); strings.Contains(a.body, "alice-env") || !strings.Contains(a.body, "alice-command") {
				t.Errorf("GET %s shows the environment, or not the command: %s", path, a.body)
			}
		}
	}
	tenants, err := w.alice.Tenants(t.Context())
	ok(t, err)
	if len(tenants) != 1 || tenants[0].Name != "alice" || tenants[0].Running != 2 {
		t.Errorf("alice sees tenants %+v, want herself with two running", tenants)
	}
	if !slices.ContainsFunc(all(t, w.alice.GPUs(t.Context(), gpuQuery())), func(g apitype.GPU) bool {
		return len(g.Holders) == 1 && g.Holders[0].Task == l.ID && g.Holders[0].Name == "alice-lease" && g.Holders[0].Slice.Device == l.Devices[0]
	}) {
		t.Errorf("alice does not see her own lease on a GPU")
	}
}
