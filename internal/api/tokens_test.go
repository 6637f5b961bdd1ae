package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/api"
	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/work"
)

// clock is the API's, moved by hand.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

// timed makes a world whose API asks the clock that is returned.
func timed(t *testing.T) (*world, *clock) {
	t.Helper()
	c := &clock{at: time.Now()}
	return start(t, options{change: func(cfg *api.Config) { cfg.Now = c.now }}), c
}

func (w *world) whoami(token string) answer { return w.call(token, "GET", "/v1/whoami", "") }

// TestTokenExpiry: a token that has expired is refused in words that say so, and only to
// whoever holds it.
func TestTokenExpiry(t *testing.T) {
	w, c := timed(t)
	short, err := w.admin.MakeToken(t.Context(), apitype.TokenSpec{Name: "ci", Role: "tenant", Tenant: "alice", ExpiresIn: "1h"})
	ok(t, err)
	usual, err := w.admin.MakeToken(t.Context(), apitype.TokenSpec{Role: "viewer"})
	ok(t, err)
	ever, err := w.admin.MakeToken(t.Context(), apitype.TokenSpec{Role: "operator", ExpiresIn: "never"})
	ok(t, err)
	if ever.Expires != nil || usual.Expires.Sub(c.at).Round(time.Hour) != 90*24*time.Hour || short.Expires.Sub(c.at).Round(time.Second) != time.Hour {
		t.Errorf("they expire at %v, %v, %v", ever.Expires, usual.Expires, short.Expires)
	}
	me, err := w.client(short.Token).Whoami(t.Context())
	ok(t, err)
	if me.Name != "ci" || me.ID != short.ID || me.Role != "tenant" || me.Tenant != "alice" || me.Expires == nil {
		t.Errorf("whoami says %+v", me)
	}
	c.at = c.at.Add(time.Hour)
	a := w.whoami(short.Token)
	if a.status != 401 || !strings.Contains(a.body, "expired at") || !strings.Contains(a.body, "ask an admin for another") {
		t.Errorf("an expired token: got %d %s", a.status, a.body)
	}
	guess := short.Token[:len(short.Token)-1] + "x"
	if a := w.whoami(guess); a.status != 401 || strings.Contains(a.body, "expired") {
		t.Errorf("a guess at an expired token: got %d %s", a.status, a.body)
	}
	c.at = c.at.Add(91 * 24 * time.Hour)
	for token, want := range map[string]int{usual.Token: 401, ever.Token: 200, w.adminToken: 200, w.aliceToken: 200} {
		if a := w.whoami(token); a.status != want {
			t.Errorf("%.12s… after 91 days: got %d %s, want %d", token, a.status, a.body, want)
		}
	}
	// What has been expired for long goes when room is made for another.
	_, err = w.admin.MakeToken(t.Context(), apitype.TokenSpec{Role: "tenant", Tenant: "alice"})
	ok(t, err)
	all, err := w.admin.Tokens(t.Context())
	ok(t, err)
	for _, x := range all {
		if x.ID == short.ID || x.ID == usual.ID && !x.Expired {
			t.Errorf("it is listed: %+v", x)
		}
	}
}

// TestTokenRotation: both count for the overlap, then the new one; and never longer than
// the token's own life.
func TestTokenRotation(t *testing.T) {
	w, c := timed(t)
	first, err := w.admin.MakeToken(t.Context(), apitype.TokenSpec{Role: "tenant", Tenant: "alice", ExpiresIn: "10h"})
	ok(t, err)
	c.at = c.at.Add(time.Hour)
	second, err := w.admin.RotateToken(t.Context(), first.ID, apitype.Rotation{Overlap: "30m"})
	ok(t, err)
	if second.ID != first.ID || second.Token == first.Token || second.Tenant != "alice" || second.OldUntil.Sub(c.at).Round(time.Second) != 30*time.Minute || second.Expires.Sub(c.at).Round(time.Second) != 10*time.Hour {
		t.Errorf("rotated into %+v", second.TokenInfo)
	}
	check := func(when string, want map[string]int) {
		t.Helper()
		for token, status := range want {
			if a := w.whoami(token); a.status != status {
				t.Errorf("%s: got %d %s, want %d", when, a.status, a.body, status)
			}
		}
	}
	check("in the overlap", map[string]int{first.Token: 200, second.Token: 200})
	c.at = c.at.Add(30 * time.Minute)
	check("after it", map[string]int{first.Token: 401, second.Token: 200})
	if a := w.whoami(first.Token); !strings.Contains(a.body, "was rotated") {
		t.Errorf("the old one is refused with %s", a.body)
	}
	third, err := w.admin.RotateToken(t.Context(), first.ID, apitype.Rotation{Overlap: "0s", ExpiresIn: "1m"})
	ok(t, err)
	check("without an overlap", map[string]int{first.Token: 401, second.Token: 401, third.Token: 200})
	c.at = c.at.Add(time.Minute)
	check("at its end", map[string]int{third.Token: 401})
	ok(t, w.admin.RevokeToken(t.Context(), first.ID))
	check("revoked", map[string]int{first.Token: 401, second.Token: 401, third.Token: 401})
	_, err = w.admin.RotateToken(t.Context(), first.ID, apitype.Rotation{})
	refused(t, err, work.CodeNotFound)
	_, err = w.admin.RotateToken(t.Context(), "admin", apitype.Rotation{})
	refused(t, err, work.CodeConflict) // this one is in no file
	refused(t, w.admin.RevokeToken(t.Context(), "admin"), work.CodeConflict)
}

// TestTokensRefused: what no token is made from.
func TestTokensRefused(t *testing.T) {
	w := start(t, options{})
	for _, x := range []struct {
		body   string
		status int
		says   string
	}{
		{`{"role":"tenant"}`, 422, "needs a tenant"},
		{`{"role":"tenant","tenant":"nobody"}`, 404, "is not known"},
		{`{"role":"admin","tenant":"alice"}`, 422, "acts for every tenant"},
		{`{"role":"root"}`, 422, "not usable"},
		{`{}`, 422, "not usable"},
		{`{"role":"viewer","expires_in":"soon"}`, 422, "not understood"},
		{`{"role":"viewer","expires_in":"0s"}`, 422, "out of range"},
		{`{"role":"viewer","expires_in":"99999999h"}`, 422, "not understood"},
	} {
		if a := w.call(w.adminToken, "POST", "/v1/tokens", x.body); a.status != x.status || !strings.Contains(a.body, x.says) {
			t.Errorf("%s: got %d %s, want %d with %q", x.body, a.status, a.body, x.status, x.says)
		}
	}
	for range 100 {
		_, err := w.admin.MakeToken(t.Context(), apitype.TokenSpec{Role: "viewer", Tenant: "bob"})
		ok(t, err)
	}
	_, err := w.admin.MakeToken(t.Context(), apitype.TokenSpec{Role: "viewer", Tenant: "bob"})
	if says := refused(t, err, work.CodeConflict); !strings.Contains(says, "revoke some") {
		t.Errorf("one too many: %s", says)
	}
	all, err := w.admin.Tokens(t.Context())
	ok(t, err)
	if len(all) != 100 {
		t.Errorf("there are %d tokens", len(all))
	}
	page := w.call(w.adminToken, "GET", "/v1/tokens?limit=60", "").body
	if strings.Contains(page, `"hash"`) || strings.Contains(page, "gpk_") || strings.Count(page, `"id"`) != 60 {
		t.Errorf("a page is %s", page)
	}
	ok(t, w.admin.RevokeTokens(t.Context(), "bob"))
	if all, err = w.admin.Tokens(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("all of bob's were revoked, and there are %d, %v", len(all), err)
	}
}

// TestTokensOverRestart: named tokens and those that are hashes of a tenant count over a
// restart, and facts tell of them without their hashes.
func TestTokensOverRestart(t *testing.T) {
	w := start(t, options{})
	before := w.host.LastEvent()
	x, err := w.admin.MakeToken(t.Context(), apitype.TokenSpec{Role: "tenant", Tenant: "alice"})
	ok(t, err)
	for ev, err := range w.admin.Events(t.Context(), client.EventQuery{After: before}) {
		ok(t, err)
		if fact, is := ev.Fact.(map[string]any); ev.Kind != "token.set" || !is || strings.Contains(toJSON(t, fact), api.HashToken(x.Token)) {
			t.Errorf("the fact is told as %+v", ev)
		}
		break
	}
	w.stop()
	w.run()
	for _, token := range []string{x.Token, w.aliceToken} {
		r := w.served(token)
		if r != 200 {
			t.Errorf("after a restart %.8s… gets %d", token, r)
		}
	}
	_, err = w.host.Do(t.Context(), engine.RemoveTenant{Name: "alice"})
	ok(t, err)
	for _, token := range []string{x.Token, w.aliceToken} {
		if r := w.served(token); r != 401 {
			t.Errorf("without its tenant %.8s… gets %d", token, r)
		}
	}
}
