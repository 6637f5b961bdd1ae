package api_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/api"
	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/auth"
	"github.com/gpupool/gpupool/internal/work"
)

func toJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	ok(t, err)
	return string(b)
}

// served asks the handler itself, as after a restart the server in front has the one before.
func (w *world) served(token string) int {
	rec := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(w.t.Context(), http.MethodGet, "/v1/whoami", http.NoBody)
	r.Header.Set("Authorization", "Bearer "+token)
	w.handler.ServeHTTP(rec, r)
	return rec.Code
}

func (w *world) audited(q client.AuditQuery) []apitype.AuditEntry {
	w.t.Helper()
	return all(w.t, w.admin.Audit(w.t.Context(), q))
}

// TestAudit: who, what, from where, with what result; every write and every refusal; and
// nothing secret.
func TestAudit(t *testing.T) {
	w := start(t, options{})
	const secret = "hunter2-is-not-to-be-seen"
	ci, err := w.admin.MakeToken(t.Context(), apitype.TokenSpec{Name: "ci", Role: "tenant", Tenant: "alice"})
	ok(t, err)
	last := len(w.audited(client.AuditQuery{}))
	ok(t, w.client(ci.Token).PutSecret(t.Context(), "alice", "KEY", secret))
	task := w.submit(w.client(ci.Token), apitype.TaskSpec{GPUs: "1/7", Env: []string{"PASSWORD=" + secret}, Secrets: []string{"KEY"}})
	for _, x := range []struct {
		token, method, path, body string
	}{
		{w.bobToken, "GET", "/v1/tasks/1?wait=0s&until=ended", ""}, // another's
		{ci.Token, "POST", "/v1/tokens", `{"role":"admin","name":"` + secret + `"}`},
		{"gpt_alice_" + secret, "DELETE", "/v1/tasks/1?array=" + secret, ""},
		{ci.Token, "POST", "/v1/tasks", `{"command":["x"],"gpus":"` + secret + `"}`},
		{ci.Token, "GET", "/v1/tasks", ""}, // a read that is answered is not in it
	} {
		w.call(x.token, x.method, x.path, x.body, "X-Request-Id", "req-1", "X-Forwarded-For", "192.0.2.7")
	}
	got := w.audited(client.AuditQuery{})[last:]
	want := []apitype.AuditEntry{
		{Operation: "put-secret", Method: "PUT", Path: "/v1/tenants/alice/secrets/KEY", By: ci.ID, Name: "ci", How: "token", Role: "tenant", Tenant: "alice", Status: 204},
		{Operation: "submit-task", Method: "POST", Path: "/v1/tasks", Object: "/v1/tasks/1", By: ci.ID, Name: "ci", How: "token", Role: "tenant", Tenant: "alice", Status: 201},
		{Operation: "get-task", Method: "GET", Path: "/v1/tasks/1", By: "gpt:" + api.HashToken(w.bobToken)[:8], How: "token", Role: "tenant", Tenant: "bob", Status: 404, Code: "not_found"},
		{Operation: "make-token", Method: "POST", Path: "/v1/tokens", By: ci.ID, Name: "ci", How: "token", Role: "tenant", Tenant: "alice", Status: 403, Code: "forbidden"},
		{Method: "DELETE", Path: "/v1/tasks/1", Status: 401, Code: "unauthorized"},
		{Operation: "submit-task", Method: "POST", Path: "/v1/tasks", By: ci.ID, Name: "ci", How: "token", Role: "tenant", Tenant: "alice", Status: 422, Code: "invalid"},
	}
	if len(got) != len(want) || task.ID != 1 {
		t.Fatalf("got %d entries, want %d: %+v", len(got), len(want), got)
	}
	for i, e := range got {
		if e.At.IsZero() || e.Request == "" || !strings.HasPrefix(e.From, "127.0.0.1:") || i > 1 && (e.Request != "req-1" || e.Forwarded != "192.0.2.7") {
			t.Errorf("entry %d is %+v", i, e)
		}
		x := want[i]
		x.At, x.Request, x.From, x.Forwarded, x.TookMS = e.At, e.Request, e.From, e.Forwarded, e.TookMS
		if e != x {
			t.Errorf("entry %d: got %+v, want %+v", i, e, x)
		}
	}
	if n := len(w.audited(client.AuditQuery{Tenant: "bob"})); n != 1 {
		t.Errorf("of bob there are %d entries", n)
	}
	if n := len(w.audited(client.AuditQuery{Since: "0s"})); n != 0 {
		t.Errorf("since now there are %d entries", n)
	}
	_, err = first(w.admin.Audit(t.Context(), client.AuditQuery{Since: "yesterday"}))
	refused(t, err, work.CodeInvalid)
	text := toJSON(t, w.audited(client.AuditQuery{}))
	for _, hidden := range []string{secret, w.adminToken, w.aliceToken, ci.Token, api.HashToken(ci.Token)} {
		if strings.Contains(text, hidden) {
			t.Errorf("%q is in the audit log: %s", hidden, text)
		}
	}
}

func first[T any](seq func(func(T, error) bool)) (x T, err error) {
	for x, err = range seq {
		break
	}
	return x, err
}

// TestRequestIdentity: a client's is kept where it can be one, and every answer has one.
func TestRequestIdentity(t *testing.T) {
	w := start(t, options{})
	if a := w.call(w.aliceToken, "GET", "/v1/whoami", "", "X-Request-Id", "abc-1.2"); a.header.Get("X-Request-Id") != "abc-1.2" {
		t.Errorf("got %q", a.header.Get("X-Request-Id"))
	}
	for _, bad := range []string{"", strings.Repeat("a", 65), "a b", `"}`} {
		if got := w.call("", "GET", "/v1/whoami", "", "X-Request-Id", bad).header.Get("X-Request-Id"); got == bad || got == "" {
			t.Errorf("%q gave %q", bad, got)
		}
	}
}

// TestRateLimit: over HTTP, one who asks too often is told when to come back, others are
// not held up, and calls without a known token are bounded by address without holding up
// who has one.
func TestRateLimit(t *testing.T) {
	w := start(t, options{change: func(c *api.Config) { c.Limits = api.Limits{Calls: 0.01, Burst: 3, Failed: 2} }})
	var last answer
	for range 4 {
		last = w.whoami(w.aliceToken)
	}
	if p := checkProblem(t, last); last.status != 429 || p.Code != "rate_limited" || last.header.Get("Retry-After") == "" || p.Retry < 1 {
		t.Errorf("the fourth call gets %d %v %s", last.status, last.header, last.body)
	}
	if a := w.whoami(w.bobToken); a.status != 200 {
		t.Errorf("bob, who did nothing, gets %d", a.status)
	}
	for i, want := range []int{401, 401, 429, 429} {
		if a := w.whoami("gpt_alice_guess"); a.status != want {
			t.Errorf("guess %d gets %d, want %d", i, a.status, want)
		}
	}
	for range 10 {
		if a := w.whoami(w.adminToken); a.status != 200 {
			t.Errorf("an admin at the same address gets %d", a.status)
		}
	}
}

// TestSecretsNowhere: the value of a secret is in no answer, fact or journal; the name of
// one that is not there is refused at once.
func TestSecretsNowhere(t *testing.T) {
	w := start(t, options{})
	const value = "the-value-itself"
	ok(t, w.alice.PutSecret(t.Context(), "alice", "KEY", value))
	x := w.running(w.alice, apitype.TaskSpec{GPUs: "1/7", Secrets: []string{"KEY", "OTHER=KEY"}})
	w.finish(x, 0, 0)
	_, err := w.admin.WaitTask(t.Context(), x.ID, patience)
	ok(t, err)
	_, err = w.alice.Submit(t.Context(), apitype.TaskSpec{Command: []string{"x"}, Secrets: []string{"NOPE"}}, "")
	if says := refused(t, err, work.CodeInvalid); !strings.Contains(says, "gpupool secrets set NOPE") {
		t.Errorf("one that is not there: %s", says)
	}
	_, err = w.bob.Submit(t.Context(), apitype.TaskSpec{Command: []string{"x"}, Secrets: []string{"KEY"}}, "") // alice's
	refused(t, err, work.CodeInvalid)
	names, err := w.alice.Secrets(t.Context(), "alice")
	ok(t, err)
	if len(names) != 1 || names[0] != "KEY" {
		t.Errorf("alice has %v", names)
	}
	if names, err = w.bob.Secrets(t.Context(), "alice"); err == nil {
		t.Errorf("bob sees that alice has %v", names)
	}
	for _, path := range []string{"/v1/tasks", "/v1/tasks/1", "/v1/tasks/1/explain", "/v1/tenants/alice", "/v1/tenants/alice/secrets", "/v1/audit"} {
		if a := w.call(w.adminToken, "GET", path, ""); a.status != 200 || strings.Contains(a.body, value) {
			t.Errorf("GET %s: %d %s", path, a.status, a.body)
		}
	}
	w.stop()
	named := false
	look := func(_ uint64, b []byte) error {
		if strings.Contains(string(b), value) {
			t.Errorf("the value is in the journal: %s", b)
		}
		named = named || strings.Contains(string(b), "OTHER=KEY")
		return nil
	}
	ok(t, w.journal.Load(t.Context(), look, look))
	if !named {
		t.Error("the task's secrets are not in the journal by their names")
	}
	w.run()
	ok(t, w.secrets.RemoveAll("alice"))
	if _, err := os.Stat(w.secrets.Dir + "/alice"); err == nil {
		t.Error("the folder is left")
	}
}

// TestDirs: a working directory outside the list is refused before anything is kept.
func TestDirs(t *testing.T) {
	w := start(t, options{change: func(c *api.Config) { c.Dirs = []string{"/home", "/data/shared"} }})
	for dir, good := range map[string]bool{"": true, "/home": true, "/home/ann/x": true, "/data/shared": true, "/data": false, "/data/sharedx": false, "/home/../etc": false, "home": false, "/": false, "/homes": false} {
		_, err := w.alice.Submit(t.Context(), apitype.TaskSpec{Command: []string{"x"}, Dir: dir}, "")
		if good {
			ok(t, err)
			continue
		}
		if says := refused(t, err, work.CodeForbidden); !strings.Contains(says, "/data/shared") {
			t.Errorf("%q: %s", dir, says)
		}
	}
}

// TestRefusedContainers: an image that may not run here is refused before anything is kept.
func TestRefusedContainers(t *testing.T) {
	w := start(t, options{change: func(c *api.Config) {
		c.Refuses = func(c work.Container) error {
			if c.Image == "evil" {
				return errors.New("image evil may not be run here")
			}
			return nil
		}
	}})
	_, err := w.alice.Submit(t.Context(), apitype.TaskSpec{Command: []string{"x"}, Image: "evil"}, "")
	if says := refused(t, err, work.CodeForbidden); !strings.Contains(says, "may not be run here") {
		t.Error(says)
	}
	_, err = w.alice.Submit(t.Context(), apitype.TaskSpec{Command: []string{"x"}, Image: "good"}, "")
	ok(t, err)
}

// TestFloodIsNotAudited: calls from nobody known are in the audit log no more often than
// they are answered, whatever they show, so that a flood neither fills the disk nor pushes
// out what was there.
func TestFloodIsNotAudited(t *testing.T) {
	away := verifier(func(string) (auth.Identity, error) { return auth.Identity{}, unavailable() })
	w := start(t, options{change: func(c *api.Config) { c.Limits, c.OIDC = api.Limits{Failed: 5}, away }})
	before := len(w.audited(client.AuditQuery{}))
	for i := range 100 {
		w.whoami([]string{"gpt_alice_guess", "a.b.c", ""}[i%3])
	}
	if n := len(w.audited(client.AuditQuery{})) - before; n == 0 || n > 6 {
		t.Errorf("of 100 calls from nobody known %d are in the audit log, want about 5", n)
	}
}

// TestRefusalsDoNotFlood: nor do refused calls of someone known; how many are left out is
// told, and what changes something is always there.
func TestRefusalsDoNotFlood(t *testing.T) {
	c := clock{at: time.Date(2026, 12, 3, 8, 0, 0, 0, time.UTC)}
	w := start(t, options{change: func(x *api.Config) { x.Now = c.now }})
	before := len(w.audited(client.AuditQuery{}))
	for range 500 {
		if a := w.call(w.aliceToken, "GET", "/v1/tasks/999", ""); a.status != 404 {
			t.Fatalf("got %d %s", a.status, a.body)
		}
	}
	if n := len(w.audited(client.AuditQuery{})) - before; n < 50 || n > 150 {
		t.Errorf("of 500 refused calls %d are in the audit log, want about 100", n)
	}
	_, err := w.alice.Submit(t.Context(), apitype.TaskSpec{Command: []string{"x"}}, "")
	ok(t, err)
	c.at = c.at.Add(time.Hour)
	w.call(w.aliceToken, "GET", "/v1/tasks/999", "")
	all := w.audited(client.AuditQuery{})
	if last := all[len(all)-1]; last.Omitted < 350 || all[len(all)-2].Operation != "submit-task" {
		t.Errorf("the last entries are %+v", all[len(all)-2:])
	}
}

type verifier func(token string) (auth.Identity, error)

func (v verifier) Verify(_ context.Context, token string) (auth.Identity, error) { return v(token) }

// unavailable is what is said while no issuer answers: nothing listens there.
func unavailable() error {
	o, err := auth.NewOIDC(auth.OIDCOptions{Issuer: "http://127.0.0.1:1", Audience: "x"})
	if err == nil {
		_, err = o.Verify(context.Background(), "a.b.c")
	}
	return err
}

// TestOtherSites: with a certificate, which a browser shows whoever's page asks, nothing is
// changed for a page of another site; with a token, which no other page has, it is.
func TestOtherSites(t *testing.T) {
	w := start(t, options{change: func(c *api.Config) {
		c.Certificate = auth.Certificates{TenantFrom: "cn"}.Identify
	}})
	cert := &x509.Certificate{Subject: pkix.Name{CommonName: "alice"}, NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, x := range []struct {
		method, site, token string
		want                int
	}{
		{"GET", "", "", 200}, {"POST", "", "", 201}, {"POST", "same-origin", "", 201}, {"POST", "cross-site", "", 403}, {"POST", "same-site", "", 403}, {"POST", "cross-site", w.aliceToken, 201},
	} {
		r := httptest.NewRequestWithContext(t.Context(), x.method, "/v1/tasks", strings.NewReader(`{"command":["x"],"gpus":"1/7"}`))
		r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert}}}
		r.Header.Set("Content-Type", "application/json")
		if x.site != "" {
			r.Header.Set("Sec-Fetch-Site", x.site)
		}
		if x.token != "" {
			r.Header.Set("Authorization", "Bearer "+x.token)
		}
		rec := httptest.NewRecorder()
		if w.handler.ServeHTTP(rec, r); rec.Code != x.want {
			t.Errorf("%s from %q: got %d %s, want %d", x.method, x.site, rec.Code, rec.Body, x.want)
		}
	}
}

// TestOutsiders: who comes in by an issuer acts in its role; a tenant that is not there, and
// an issuer that does not answer, are told from a token that does not count.
func TestOutsiders(t *testing.T) {
	w := start(t, options{change: func(c *api.Config) {
		c.OIDC = verifier(func(token string) (auth.Identity, error) {
			id := auth.Identity{Kind: auth.KindOIDC, ID: "ann", Role: work.RoleTenant}
			switch id.Tenant, _, _ = strings.Cut(token, "."); id.Tenant {
			case "away":
				return auth.Identity{}, unavailable()
			case "forged":
				return auth.Identity{}, errors.New("forged")
			}
			return id, nil
		})
	}})
	for token, want := range map[string]int{"alice.x.y": 200, "stranger.x.y": 403, "away.x.y": 503, "forged.x.y": 401} {
		a := w.whoami(token)
		if a.status != want || want == 200 && !strings.Contains(a.body, `"how":"oidc"`) || (want == 503) != (a.header.Get("Retry-After") != "") {
			t.Errorf("%s: got %d %v %s, want %d", token, a.status, a.header, a.body, want)
		}
	}
}
