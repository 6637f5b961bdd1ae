package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"strings"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/work"
)

// A token says whose it is, so that finding its tenant takes one look-up, and holds
// 32 bytes of chance in hexadecimal. Against guessing no slow hash is needed then.
const (
	adminPrefix  = "gpa_"
	tenantPrefix = "gpt_"
)

// maxTokens of one tenant: each is compared on every call.
const maxTokens = 100

// NewAdminToken makes an admin token.
func NewAdminToken() string { return adminPrefix + chance() }

// NewTenantToken makes a token of a tenant.
func NewTenantToken(tenant string) string { return tenantPrefix + tenant + "_" + chance() }

func chance() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // it never fails: see its documentation
	return hex.EncodeToString(b)
}

// HashToken is what is kept of a token: SHA-256 in hexadecimal.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// tenantOf is the tenant that a token claims to be of.
func tenantOf(token string) (string, bool) {
	rest, ok := strings.CutPrefix(token, tenantPrefix)
	i := strings.LastIndexByte(rest, '_')
	if !ok || i <= 0 {
		return "", false
	}
	return rest[:i], true
}

// caller is who a token belongs to. The zero value may see nothing.
type caller struct {
	admin  bool
	tenant string
	hash   string // of the token
}

func (c caller) String() string {
	if c.admin {
		return "an admin"
	}
	return "tenant " + c.tenant
}

// owns reports whether the caller may see and touch what belongs to a tenant.
func (c caller) owns(tenant string) bool { return c.admin || c.tenant != "" && c.tenant == tenant }

type callerKey struct{}

// who is the caller of a request that passed authenticate.
func who(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// authenticate lets requests under /v1 pass only with a token that is known.
func (s *server) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1" && !strings.HasPrefix(r.URL.Path, "/v1/") {
			next.ServeHTTP(w, r)
			return
		}
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") || token == "" {
			unauthorized(w, "no token: send Authorization: Bearer TOKEN, with a token that an admin gave you")
			return
		}
		c, ok := s.callerOf(token)
		if !ok {
			unauthorized(w, "the token is not known: it may have been revoked; ask an admin for another")
			return
		}
		if rec, ok := w.(*recorder); ok {
			rec.caller = c
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)))
	})
}

func unauthorized(w http.ResponseWriter, detail string) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="gpupool"`)
	writeProblem(w, problem(work.CodeUnauthed, detail))
}

func (s *server) callerOf(token string) (caller, bool) {
	c := caller{hash: HashToken(token)}
	if strings.HasPrefix(token, adminPrefix) {
		c.admin = true
	} else {
		c.tenant, _ = tenantOf(token)
	}
	return c, s.valid(c)
}

// valid reports whether the caller's token is one of those that count now.
func (s *server) valid(c caller) bool {
	hashes := []string{s.cfg.AdminToken}
	if !c.admin {
		s.host.Read(func(e *engine.Engine) {
			t, _ := e.Tenant(c.tenant)
			hashes = append(hashes[:0], t.Tokens...)
		})
	}
	found := 0
	for _, h := range hashes {
		found |= subtle.ConstantTimeCompare([]byte(h), []byte(c.hash))
	}
	return found == 1
}
