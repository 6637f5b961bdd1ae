package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gpupool/gpupool/internal/auth"
	"github.com/gpupool/gpupool/internal/work"
)

// caller is who a request is from. The zero value may see and do nothing.
type caller struct {
	auth.Identity
	readOnly bool
	token    string // the hash of the token, for streams that ask again whether it counts
}

func (c caller) String() string {
	var who string
	switch c.Role {
	case asAdmin, asOperator:
		who = "an " + string(c.Role)
	case asTenant:
		who = "tenant " + c.Tenant
	case asViewer:
		who = "a viewer"
		if c.Tenant != "" {
			who += " of tenant " + c.Tenant
		}
	default:
		return "nobody"
	}
	if c.Name != "" {
		who += " (" + c.Name + ")"
	}
	return who
}

// key tells callers apart.
func (c caller) key() string { return string(c.Kind) + " " + c.ID + " " + c.Tenant }

// all reports whether the caller sees every tenant.
func (c caller) all() bool { return c.Tenant == "" && c.Role != "" && c.Role != asTenant }

// owns reports whether the caller may see what belongs to a tenant, and touch it as far as
// its role goes.
func (c caller) owns(tenant string) bool { return c.all() || c.Tenant != "" && c.Tenant == tenant }

type callerKey struct{}

// who is the caller of a request that passed authenticate.
func who(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// refusedCall is why a request is not from anyone known.
type refusedCall struct {
	code   work.Code
	detail string
}

func (r *refusedCall) Error() string { return r.detail }

func unknown(format string, args ...any) error {
	return &refusedCall{work.CodeUnauthed, fmt.Sprintf(format, args...)}
}

// authenticate lets requests under /v1 pass only from a caller that is known, and not more
// often than it may call.
func (s *server) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1" && !strings.HasPrefix(r.URL.Path, "/v1/") {
			next.ServeHTTP(w, r)
			return
		}
		c, err := s.callerOf(r)
		if err != nil {
			s.unknownCaller(w, r, err)
			return
		}
		if rec, ok := w.(*recorder); ok {
			rec.caller = c
		}
		done, err := s.limits.enter(c, s.now())
		if err != nil {
			writeRefusal(w, err)
			return
		}
		defer done()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)))
	})
}

// unknownCaller answers whoever is not known. One who tries too often is told to wait;
// those who are known are never held up by others at their address.
func (s *server) unknownCaller(w http.ResponseWriter, r *http.Request, err error) {
	refused, ours := err.(*refusedCall) //nolint:errorlint // made here, never wrapped
	if !ours {
		refused = &refusedCall{work.CodeUnavailable, err.Error()}
	}
	if busy := s.limits.failed(r.RemoteAddr, s.now()); busy != nil {
		writeRefusal(w, busy)
		return
	}
	if refused.code == work.CodeUnauthed {
		unauthorized(w, refused.detail)
		return
	}
	p := problem(refused.code, refused.detail)
	if p.Status == http.StatusServiceUnavailable {
		p.Retry = seconds(retryAfter)
	}
	writeRetry(w, p)
}

func unauthorized(w http.ResponseWriter, detail string) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="gpupool"`)
	writeProblem(w, problem(work.CodeUnauthed, detail))
}

// callerOf finds out who a request is from: by its token, else by the certificate that it
// came with.
func (s *server) callerOf(r *http.Request) (caller, error) {
	header := r.Header.Get("Authorization")
	if header == "" && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 && s.cfg.Certificate != nil {
		// A browser shows a certificate whoever's page asks it to.
		if err := s.crossOrigin.Check(r); err != nil {
			return caller{}, &refusedCall{work.CodeForbidden, "a page of another site asks with your certificate: " + err.Error()}
		}
		id, err := s.cfg.Certificate(r.TLS.VerifiedChains[0][0])
		if err != nil {
			return caller{}, unknown("%s", err)
		}
		return s.outside(id)
	}
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return caller{}, unknown("no token: send Authorization: Bearer TOKEN, with a token that an admin gave you")
	}
	if s.cfg.OIDC == nil || strings.Count(token, ".") != 2 {
		return s.ofToken(token)
	}
	id, err := s.cfg.OIDC.Verify(r.Context(), token)
	switch {
	case err == nil:
		return s.outside(id)
	case auth.IsUnavailable(err):
		return caller{}, err
	}
	return caller{}, unknown("%s", err)
}

// outside is the caller that someone else vouches for.
func (s *server) outside(id auth.Identity) (caller, error) {
	c := caller{Identity: id}
	if !s.valid(c) {
		return caller{}, &refusedCall{work.CodeForbidden, fmt.Sprintf("you are %s, and there is no such tenant here: an admin makes it with gpupool tenants create %s", c, id.Tenant)}
	}
	return c, nil
}

// valid reports whether a caller of a stream still counts.
func (s *server) valid(c caller) bool {
	if c.token != "" {
		again, err := s.ofHash(c.ID, c.Tenant, c.token)
		return err == nil && again.Role == c.Role
	}
	if !c.Expires.IsZero() && !s.now().Before(c.Expires) {
		return false
	}
	_, known := s.host.Known().Tenant(c.Tenant)
	return known || c.Tenant == ""
}

func (s *server) now() time.Time {
	if s.cfg.Now != nil {
		return s.cfg.Now()
	}
	return time.Now()
}
