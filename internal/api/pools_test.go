package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/work"
)

func decode(t testing.TB, a answer, out any) {
	t.Helper()
	if a.status != 200 {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	ok(t, json.Unmarshal([]byte(a.body), out))
}

// pages walks a list in pages of one size and returns the items as JSON.
func pages(t *testing.T, w *world, path string, limit int) (out []string) {
	for after := ""; ; {
		var page apitype.Page[json.RawMessage]
		decode(t, w.call(w.adminToken, "GET", fmt.Sprintf("%slimit=%d&after=%s", path, limit, after), ""), &page)
		for _, x := range page.Items {
			out = append(out, string(x))
		}
		if after = page.Next; after == "" {
			return out
		}
	}
}

// TestListPages wants the same items whatever the size of a page.
func TestListPages(t *testing.T) {
	w := start(t, options{shape: "3x4xH100-80GB", pools: []work.Pool{{Name: "one", Mode: work.Static, Hosts: []string{"*1"}}, {Name: "two", Mode: work.Dynamic}, {Name: "three", Mode: work.Dynamic, Hosts: []string{"x"}}}})
	for path, want := range map[string]int{"/v1/hosts?": 3, "/v1/gpus?": 12, "/v1/gpus?pool=one&": 4, "/v1/gpus?health=broken&": 0, "/v1/pools?": 3, "/v1/tenants?": 2} {
		whole := pages(t, w, path, 1000)
		if len(whole) != want {
			t.Errorf("%s has %d items, want %d", path, len(whole), want)
		}
		for limit := 1; limit <= want+1; limit++ {
			if diff := cmp.Diff(whole, pages(t, w, path, limit)); diff != "" {
				t.Errorf("%s in pages of %d (-whole +paged):\n%s", path, limit, diff)
			}
		}
	}
}

func TestInventory(t *testing.T) {
	w := start(t, options{shape: "4xH100-80GB,4xL40S"})
	x := w.running(w.alice, apitype.TaskSpec{Name: "x", GPUs: "3g.40gb", CPUs: 2, Memory: "1GiB"})
	whole := w.running(w.alice, apitype.TaskSpec{GPUs: "1:H100-80GB"})
	shared := w.running(w.bob, apitype.TaskSpec{GPUs: "0.25:L40S"})
	hosts := all(t, w.admin.Hosts(t.Context()))
	if len(hosts) != 2 || !hosts[0].Up || hosts[0].Driver != "fake" || hosts[0].FreeGPUs != 2 || len(hosts[0].GPUs) != 4 ||
		hosts[0].CPUs-hosts[0].FreeCPUs != 2 || hosts[0].MemoryMiB-hosts[0].FreeMemoryMiB != 1024 {
		t.Errorf("hosts are %+v", hosts)
	}
	of := map[uint64]apitype.GPU{}
	for _, g := range all(t, w.admin.GPUs(t.Context(), client.GPUQuery{})) {
		for _, h := range g.Holders {
			of[h.Task] = g
		}
	}
	if g := of[x.ID]; g.Mode != "mig" || g.Units != 8 || len(g.Taken) != 4 || g.Milli != 429 || g.Health != "ok" || g.Holders[0].Name != "x" || g.Holders[0].Phase != "running" {
		t.Errorf("the cut GPU is %+v", g)
	}
	if g := of[whole.ID]; g.Mode != "whole" || len(g.Taken) != 8 || g.Milli != 1000 || g.MemoryMiB < 79<<10 {
		t.Errorf("the whole GPU is %+v", g)
	}
	if g := of[shared.ID]; g.Mode != "shared" || g.Units != 0 || len(g.Taken) != 0 || g.Milli != 250 || g.Holders[0].Slice.MemoryMiB == 0 {
		t.Errorf("the shared GPU is %+v", g)
	}
	w.drv.LoseGPU(of[x.ID].ID, "fell off the bus")
	var broken []apitype.GPU
	w.poll("the lost GPU is broken", func() bool {
		broken = all(t, w.admin.GPUs(t.Context(), client.GPUQuery{Health: "broken", Host: hosts[0].Name}))
		return len(broken) == 1
	})
	if !strings.Contains(broken[0].Why, "fell off the bus") {
		t.Errorf("it is broken because %q", broken[0].Why)
	}
	ps, err := w.admin.Pools(t.Context())
	ok(t, err)
	if p := ps[0]; len(ps) != 1 || p.Name != "main" || p.Mode != "dynamic" || p.Hosts != 2 || p.GPUs != 8 || p.Unusable != 1 || p.Warning != "" || p.Running < 2 {
		t.Errorf("pools are %+v", ps)
	}
	me, err := w.alice.Whoami(t.Context())
	ok(t, err)
	boss, err := w.admin.Whoami(t.Context())
	ok(t, err)
	if me != (apitype.Self{Role: "tenant", Tenant: "alice", How: "token", Version: "test", Hardware: "fake GPUs"}) || boss.Role != "admin" || boss.Tenant != "" {
		t.Errorf("whoami says %+v and %+v", me, boss)
	}
}

func TestTenantLife(t *testing.T) {
	w := start(t, options{})
	made, err := w.admin.PutTenant(t.Context(), "carol", apitype.TenantSpec{LimitGPUs: 2.5})
	ok(t, err)
	if made != (apitype.Tenant{Name: "carol", LimitGPUs: 2.5, Weight: 1}) {
		t.Errorf("made %+v", made)
	}
	one, two := w.token("carol"), w.token("carol")
	carol := w.client(two)
	if one == two || w.call(one, "GET", "/v1/whoami", "").status != 200 {
		t.Errorf("both tokens of carol should count")
	}
	changed, err := w.admin.PutTenant(t.Context(), "carol", apitype.TenantSpec{Weight: 2})
	ok(t, err)
	if changed != (apitype.Tenant{Name: "carol", Weight: 2, Tokens: 2}) {
		t.Errorf("changed to %+v, want the tokens kept and the limit gone", changed)
	}
	x := w.running(carol, apitype.TaskSpec{GPUs: "2"})
	got, err := w.admin.Tenant(t.Context(), "carol")
	ok(t, err)
	if got.HeldGPUs != 2 || got.Running != 1 || got.Waiting != 0 {
		t.Errorf("while a task runs: %+v", got)
	}
	refused(t, w.admin.DeleteTenant(t.Context(), "carol"), work.CodeConflict)
	ok(t, w.admin.RevokeTokens(t.Context(), "carol"))
	_, err = carol.Task(t.Context(), x.ID)
	refused(t, err, work.CodeUnauthed)
	w.finish(x, 0, 0)
	_, err = w.admin.WaitTask(t.Context(), x.ID, patience)
	ok(t, err)
	ok(t, w.admin.DeleteTenant(t.Context(), "carol"))
	refused(t, w.admin.DeleteTenant(t.Context(), "carol"), work.CodeNotFound)
	refused(t, w.admin.RevokeTokens(t.Context(), "carol"), work.CodeNotFound)
	_, err = w.admin.CreateToken(t.Context(), "carol")
	refused(t, err, work.CodeNotFound)
	_, err = w.admin.Tenant(t.Context(), "carol")
	refused(t, err, work.CodeNotFound)
	for _, bad := range []string{"a b", "-a", "a/b", "ä", "a\nb", strings.Repeat("a", 129)} {
		_, err := w.admin.PutTenant(t.Context(), bad, apitype.TenantSpec{})
		refused(t, err, work.CodeInvalid)
	}
	under, err := w.admin.PutTenant(t.Context(), "team_a_1", apitype.TenantSpec{}) // underscores are in tokens too
	ok(t, err)
	if self, err := w.client(w.token(under.Name)).Whoami(t.Context()); err != nil || self.Tenant != "team_a_1" {
		t.Errorf("the token of team_a_1 is of %+v, %v", self, err)
	}
}

// TestTenantChangesAtOnce lets tokens be made while limits are set: none may be lost.
func TestTenantChangesAtOnce(t *testing.T) {
	w := start(t, options{})
	tokens := make([]string, 20)
	var writers sync.WaitGroup
	for i := range tokens {
		writers.Go(func() {
			x, err := w.admin.CreateToken(t.Context(), "alice")
			if err != nil {
				t.Error(err)
			}
			tokens[i] = x.Token
		})
		writers.Go(func() {
			if _, err := w.admin.PutTenant(t.Context(), "alice", apitype.TenantSpec{LimitGPUs: float64(i)}); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	for i, token := range tokens {
		if a := w.call(token, "GET", "/v1/whoami", ""); a.status != 200 {
			t.Errorf("token %d was lost: %d %s", i, a.status, a.body)
		}
	}
	for range 100 - 21 {
		w.token("alice")
	}
	_, err := w.admin.CreateToken(t.Context(), "alice")
	refused(t, err, work.CodeConflict)
}

func TestProblems(t *testing.T) {
	w := start(t, options{})
	for name, x := range map[string]struct {
		method, path, body, contentType string
		status                          int
		code, says                      string
	}{
		"unknown field":        {"POST", "/v1/tasks", `{"command":["x"],"gpu":"1"}`, "", 422, "invalid", "body.gpu unexpected property"},
		"wrong type":           {"POST", "/v1/tasks", `{"command":"x"}`, "", 422, "invalid", "body.command"},
		"no command":           {"POST", "/v1/tasks", `{}`, "", 422, "invalid", "command"},
		"null command":         {"POST", "/v1/tasks", `{"command":null}`, "", 422, "invalid", "needs a command"},
		"not JSON":             {"POST", "/v1/tasks", `{"command":`, "", 400, "invalid", ""},
		"no body":              {"POST", "/v1/tasks", ``, "", 400, "invalid", ""},
		"another type":         {"POST", "/v1/tasks", `command: [x]`, "application/yaml", 415, "invalid", ""},
		"too large":            {"POST", "/v1/tasks", `{"command":["` + strings.Repeat("x", 1<<20) + `"]}`, "", 413, "invalid", ""},
		"bad GPUs":             {"POST", "/v1/tasks", `{"command":["x"],"gpus":"many"}`, "", 422, "invalid", `"many"`},
		"bad environment":      {"POST", "/v1/tasks", `{"command":["x"],"env":["KEY"]}`, "", 422, "invalid", "KEY=VALUE"},
		"unknown query":        {"GET", "/v1/tasks?stat=queued", "", "", 422, "invalid", "query.stat"},
		"a number that is not": {"GET", "/v1/tasks/x", "", "", 422, "invalid", "path.id"},
		"task 0":               {"GET", "/v1/tasks/0", "", "", 422, "invalid", "path.id"},
		"unknown task":         {"GET", "/v1/tasks/99", "", "", 404, "not_found", "task 99 is not known"},
		"unknown path":         {"GET", "/v1/task", "", "", 404, "not_found", "/v1/task"},
		"wrong method":         {"PATCH", "/v1/tasks", "", "", 405, "invalid", "GET, HEAD, POST"},
		"epoch 0":              {"POST", "/v1/leases/1/renew", `{"epoch":0}`, "", 422, "invalid", "body.epoch"},
	} {
		t.Run(name, func(t *testing.T) {
			var header []string
			if x.contentType != "" {
				header = []string{"Content-Type", x.contentType}
			}
			a := w.call(w.aliceToken, x.method, x.path, x.body, header...)
			p := checkProblem(t, a)
			if p.Status != x.status || p.Code != x.code || !strings.Contains(p.Detail, x.says) || len(a.body) > 4096 {
				t.Errorf("got %d %.1000s, want %d %s with %q", a.status, a.body, x.status, x.code, x.says)
			}
		})
	}
	a := w.call(w.aliceToken, "POST", "/v1/tasks", `{"command":["x"],"env":"secret-value","grace":"secret-too"}`)
	if strings.Contains(a.body, "secret-value") {
		t.Errorf("a value that may be a secret comes back: %s", a.body)
	}
}
