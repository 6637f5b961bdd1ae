package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/work"
)

func TestModes(t *testing.T) {
	w := start(t, options{shape: "2x4xH100-80GB", pools: []work.Pool{{Name: "one", Mode: work.Static, Hosts: []string{"*1"}}, {Name: "two", Mode: work.Dynamic}}})
	s, err := w.alice.Shadow(t.Context(), "one")
	ok(t, err)
	if s.Pool != "one" || s.Mode != "static" || s.Tells || !strings.Contains(s.Sentence, "dynamic would have needed about 0") {
		t.Errorf("got %+v", s)
	}
	r, err := w.admin.StartRollout(t.Context(), apitype.RolloutSpec{Pools: []string{"one"}, Tenants: []string{"alice", "bob"}, Step: "2m", WaitRatio: 1.5})
	ok(t, err)
	if r.State != "baseline" || r.Mode != "dynamic" || r.Step != "2m" || r.Until == nil || len(r.Steps) != 2 || r.Steps[1].Tenant != "bob" || r.Steps[1].State != "waiting" || len(r.Words) != 3 {
		t.Errorf("got %+v", r)
	}
	if again, err := w.admin.Rollout(t.Context()); err != nil || again.State != "baseline" || again.By != r.By {
		t.Errorf("got %+v, %v", again, err)
	}
	r, err = w.admin.StopRollout(t.Context(), false)
	ok(t, err)
	if r.State != "rolled_back" || r.Why != "stopped by an admin" || r.Ended == nil || r.Until != nil {
		t.Errorf("got %+v", r)
	}
	p, err := w.admin.SetMode(t.Context(), "two", "shadow")
	ok(t, err)
	if p.Mode != "shadow" || p.ModeBy != "an admin" || p.ModeSince == nil || p.Fallbacks != 0 {
		t.Errorf("got %+v", p)
	}
	pools, err := w.alice.Pools(t.Context())
	ok(t, err)
	if pools[1].Mode != "shadow" || pools[1].ModeBy != "" {
		t.Errorf("a tenant sees %+v, want no name of who set the mode", pools[1])
	}
	for _, x := range []struct{ method, path, body, says string }{
		{"POST", "/v1/rollout", `{"pools":["one"],"step":"soon"}`, "expected a duration such as 1h"},
		{"POST", "/v1/rollout", `{"pools":[]}`, "not usable"},
		{"POST", "/v1/rollout", `{"pools":["x"]}`, "is not known"},
		{"POST", "/v1/rollout", `{"pools":["one"],"mode":"static"}`, "not usable"},
		{"PUT", "/v1/pools/one/mode", `{"mode":"odd"}`, "not usable"},
		{"GET", "/v1/pools/x/shadow", "", "is not known"},
	} {
		if a := w.call(w.adminToken, x.method, x.path, x.body); a.status < 400 || a.status == http.StatusInternalServerError || !strings.Contains(a.body, x.says) {
			t.Errorf("%s %s %s: got %d %s, want %q", x.method, x.path, x.body, a.status, a.body, x.says)
		}
	}
}
