package auth_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/gpupool/gpupool/internal/auth"
	"github.com/gpupool/gpupool/internal/work"
)

// issuer is an OIDC issuer on this machine: discovery, keys, and tokens that are really
// signed.
type issuer struct {
	t   *testing.T
	srv *httptest.Server

	mu    sync.Mutex
	keys  []signKey // that are published
	down  bool
	asked int // for keys
}

type signKey struct {
	id  string
	key *rsa.PrivateKey
}

func newKey(t *testing.T, id string) signKey {
	t.Helper()
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return signKey{id, k}
}

func newIssuer(t *testing.T) *issuer {
	i := &issuer{t: t, keys: []signKey{newKey(t, "one")}}
	i.srv = httptest.NewServer(i)
	t.Cleanup(i.srv.Close)
	return i
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.down {
		http.Error(w, "down", http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q,"authorization_endpoint":"x","token_endpoint":"x","id_token_signing_alg_values_supported":["RS256","none","HS256"]}`, i.srv.URL, i.srv.URL+"/keys")
	case "/keys":
		i.asked++
		var set jose.JSONWebKeySet
		for _, k := range i.keys {
			set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.key.Public(), KeyID: k.id, Algorithm: "RS256", Use: "sig"})
		}
		if err := json.NewEncoder(w).Encode(set); err != nil {
			i.t.Error(err)
		}
	default:
		http.NotFound(w, r)
	}
}

// set changes the issuer.
func (i *issuer) set(f func(*issuer)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f(i)
}

// sign makes a token of claims.
func (i *issuer) sign(k signKey, claims map[string]any) string {
	i.t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: k.key, KeyID: k.id}}, nil)
	if err != nil {
		i.t.Fatal(err)
	}
	text, err := jwt.Signed(s).Claims(claims).Serialize()
	if err != nil {
		i.t.Fatal(err)
	}
	return text
}

// now is when these tests play; the checker is told, so nothing waits.
var now = time.Date(2026, 12, 3, 12, 0, 0, 0, time.UTC)

// claims are good ones, with changes; nil takes a claim out.
func (i *issuer) claims(changes map[string]any) map[string]any {
	c := map[string]any{"iss": i.srv.URL, "aud": "gpupool", "sub": "ann-17", "email": "ann@example.org", "exp": now.Add(time.Hour).Unix(), "iat": now.Unix(), "gpupool_tenant": "alice"}
	for k, v := range changes {
		if c[k] = v; v == nil {
			delete(c, k)
		}
	}
	return c
}

func checker(t *testing.T, i *issuer, clock func() time.Time) *auth.OIDC {
	t.Helper()
	o, err := auth.NewOIDC(auth.OIDCOptions{Issuer: i.srv.URL, Audience: "gpupool", TenantClaim: "gpupool_tenant", GroupsClaim: "groups", NameClaim: "email",
		Groups: auth.Groups{Admins: []string{"root"}, Operators: []string{"ops"}, Viewers: []string{"all"}}, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func at(t time.Time) func() time.Time { return func() time.Time { return t } }

// TestOIDCRefuses: every token that is wrong in one thing is refused, and in words.
func TestOIDCRefuses(t *testing.T) {
	i := newIssuer(t)
	clock := now
	o := checker(t, i, func() time.Time { return clock })
	key, stranger := i.keys[0], newKey(t, "one")
	good := i.sign(key, i.claims(nil))
	if _, err := o.Verify(t.Context(), good); err != nil {
		t.Fatalf("a good token is refused: %s", err)
	}
	parts := strings.Split(good, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + parts[1] + "."
	shared, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: key.key.PublicKey.N.Bytes()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	confused, err := jwt.Signed(shared).Claims(i.claims(nil)).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	other := base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(decoded(t, parts[1]), "alice", "bobby", 1)))
	for what, x := range map[string]struct{ token, says string }{
		"another issuer":              {i.sign(key, i.claims(map[string]any{"iss": "https://evil.example.org"})), "different provider"},
		"another audience":            {i.sign(key, i.claims(map[string]any{"aud": "other"})), "expected audience"},
		"no audience":                 {i.sign(key, i.claims(map[string]any{"aud": nil})), "expected audience"},
		"expired":                     {i.sign(key, i.claims(map[string]any{"exp": now.Add(-time.Second).Unix()})), "expired"},
		"no end":                      {i.sign(key, i.claims(map[string]any{"exp": nil})), "expired"},
		"not yet valid":               {i.sign(key, i.claims(map[string]any{"nbf": now.Add(time.Hour).Unix()})), "before the nbf"},
		"no algorithm":                {none, "malformed"},
		"the public key as a secret":  {confused, "malformed"},
		"a stranger's key":            {i.sign(stranger, i.claims(nil)), "verify"},
		"other claims, old signature": {parts[0] + "." + other + "." + parts[2], "verify"},
		"no signature":                {parts[0] + "." + parts[1] + ".", "verify"},
		"no tenant and no group":      {i.sign(key, i.claims(map[string]any{"gpupool_tenant": nil})), "gives no right here"},
		"a tenant that is no text":    {i.sign(key, i.claims(map[string]any{"gpupool_tenant": []string{"alice"}})), "gives no right here"},
		"not a token":                 {"a.b.c", "malformed"},
		"nobody":                      {i.sign(key, i.claims(map[string]any{"sub": nil})), "names nobody"},
	} {
		clock = clock.Add(10 * time.Second) // so that the issuer may be asked for its keys again
		id, err := o.Verify(t.Context(), x.token)
		if err == nil || !strings.Contains(err.Error(), x.says) || auth.IsUnavailable(err) || id != (auth.Identity{}) {
			t.Errorf("%s: got %+v, %v, want a refusal that says %q", what, id, err, x.says)
		}
	}
}

func decoded(t *testing.T, part string) string {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestOIDCRoles: what claims mean.
func TestOIDCRoles(t *testing.T) {
	i := newIssuer(t)
	o := checker(t, i, at(now))
	for _, x := range []struct {
		groups any
		tenant string
		want   work.Role
		of     string
	}{
		{nil, "alice", work.RoleTenant, "alice"},
		{[]string{"all"}, "alice", work.RoleTenant, "alice"}, // the lesser right
		{[]string{"all"}, "", work.RoleViewer, ""},
		{"all ops", "alice", work.RoleOperator, ""},
		{[]any{"root", 7, "ops"}, "alice", work.RoleAdmin, ""},
	} {
		id, err := o.Verify(t.Context(), i.sign(i.keys[0], i.claims(map[string]any{"groups": x.groups, "gpupool_tenant": x.tenant})))
		want := auth.Identity{Kind: auth.KindOIDC, ID: "ann-17", Name: "ann@example.org", Role: x.want, Tenant: x.of, Expires: now.Add(time.Hour)}
		if id.Expires = id.Expires.UTC(); err != nil || id != want {
			t.Errorf("%v of %q: got %+v, %v, want %+v", x.groups, x.tenant, id, err, want)
		}
	}
}

// TestOIDCKeys: keys that are new are found, keys that are withdrawn stop counting within
// the hour, and while the issuer is away those it named last go on to count.
func TestOIDCKeys(t *testing.T) {
	i := newIssuer(t)
	clock := now
	o := checker(t, i, func() time.Time { return clock })
	old, next := i.keys[0], newKey(t, "two")
	far := map[string]any{"exp": now.Add(24 * time.Hour).Unix()}
	check := func(what string, k signKey, good bool) {
		t.Helper()
		if _, err := o.Verify(t.Context(), i.sign(k, i.claims(far))); (err == nil) != good {
			t.Errorf("%s: got %v, want it accepted: %v", what, err, good)
		}
	}
	i.set(func(i *issuer) { i.down = true })
	if _, err := o.Verify(t.Context(), i.sign(old, i.claims(far))); !auth.IsUnavailable(err) || !strings.Contains(err.Error(), "cannot be asked") {
		t.Errorf("an issuer that was never there: got %v, want that it cannot be asked", err)
	}
	i.set(func(i *issuer) { i.down = false })
	if _, err := o.Verify(t.Context(), i.sign(old, i.claims(far))); !auth.IsUnavailable(err) {
		t.Errorf("it is asked again at once: %v", err)
	}
	clock = clock.Add(10 * time.Second)
	check("a key", old, true)
	i.set(func(i *issuer) { i.down = true })
	check("a key while the issuer is away", old, true)
	if _, err := o.Verify(t.Context(), i.sign(next, i.claims(far))); !auth.IsUnavailable(err) {
		t.Errorf("a key that is not known while the issuer is away: got %v, want that it cannot be asked", err)
	}
	clock = clock.Add(2 * time.Hour)
	check("a key while the issuer has been away for long", old, true)
	i.set(func(i *issuer) { i.down, i.keys = false, append(i.keys, next) })
	clock = clock.Add(10 * time.Second)
	check("a key that is new", next, true)
	check("the one before", old, true)
	i.set(func(i *issuer) { i.keys = []signKey{next} })
	clock = clock.Add(2 * time.Hour)
	check("a key that was withdrawn", old, false)
	check("the one that is left", next, true)
	i.set(func(i *issuer) { i.asked = 0 })
	for range 5 {
		check("a key that is known", next, true)
	}
	if i.asked > 0 {
		t.Errorf("the issuer was asked %d times for keys that are known", i.asked)
	}
}

// TestOIDCFlood: tokens with keys that nobody has do not make gpupool flood the issuer, and
// hold up nobody whose token is good.
func TestOIDCFlood(t *testing.T) {
	i := newIssuer(t)
	clock := now
	o := checker(t, i, func() time.Time { return clock })
	good, forged := i.sign(i.keys[0], i.claims(nil)), i.sign(newKey(t, "forged"), i.claims(nil))
	for range 100 {
		if _, err := o.Verify(t.Context(), forged); err == nil {
			t.Fatal("a forged token is accepted")
		}
		clock = clock.Add(50 * time.Millisecond)
		if _, err := o.Verify(t.Context(), good); err != nil {
			t.Fatalf("a good token is held up: %s", err)
		}
	}
	if i.asked > 2 {
		t.Errorf("in 5 s the issuer was asked for its keys %d times", i.asked)
	}
	left, leave := context.WithCancel(t.Context())
	leave()
	o = checker(t, i, at(now))
	_, _ = o.Verify(left, good) // whoever asks first, and leaves
	if _, err := o.Verify(t.Context(), good); err != nil {
		t.Errorf("the next is held up: %s", err)
	}
}
