package api

import (
	"context"
	"strings"
	"time"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/work"
)

const (
	defaultExpiry  = 90 * 24 * time.Hour
	defaultOverlap = 24 * time.Hour
	maxExpiry      = 10 * 365 * 24 * time.Hour
	never          = "never"
	keepExpired    = 30 * 24 * time.Hour // so that its owner is told why it is refused
)

func (s *server) tokenRoutes() {
	const tag, one = "tokens", "/v1/tokens/{id}"
	register(s, op{id: "list-tokens", method: get, path: "/v1/tokens", says: "List tokens by age", tag: tag}, s.listTokens)
	register(s, op{id: "make-token", method: post, path: "/v1/tokens", says: "Make a token; it is shown this once", tag: tag, status: 201}, s.makeToken)
	register(s, op{id: "rotate-token", method: post, path: one + "/rotate", says: "Replace what a token is shown as; the one before counts for a while", tag: tag,
		more: "The ID admin is the admin token in the server's data folder."}, s.rotateToken)
	register(s, op{id: "revoke-token", method: del, path: one, says: "Make a token worthless", tag: tag, status: 204}, s.revokeToken)
}

// TokenPath names a token.
type TokenPath struct {
	ID string `path:"id" maxLength:"64" doc:"ID of the token"`
}

func (s *server) tokenOf(t work.Token) apitype.TokenInfo {
	out := apitype.TokenInfo{ID: t.ID, Name: t.Name, Role: string(t.Role), Tenant: t.Tenant, ReadOnly: t.ReadOnly, Created: t.Created.Std(),
		Rotated: optional(t.Rotated), OldUntil: optional(t.OldEnds), Expires: optional(t.Expires), Expired: t.Expired(work.TimeOf(s.now()))}
	if at, ok := s.used.Load(t.ID); ok {
		if at, ok := at.(work.Time); ok {
			out.LastUsed = optional(at)
		}
	}
	return out
}

func (s *server) listTokens(_ context.Context, in *PageQuery) (*answer[apitype.Page[apitype.TokenInfo]], error) {
	var all []work.Token
	s.host.Read(func(e *engine.Engine) { all = e.Tokens() })
	var items []apitype.TokenInfo
	after := in.After
	for _, t := range all {
		if after == "" && len(items) <= in.Limit {
			items = append(items, s.tokenOf(t))
		}
		if t.ID == after {
			after = ""
		}
	}
	return pageOf(items, in.Limit, func(t apitype.TokenInfo) string { return t.ID }), nil
}

func (s *server) makeToken(ctx context.Context, in *struct {
	Body apitype.TokenSpec
}) (*answer[apitype.NewToken], error) {
	now := s.now()
	expires, err := lifetime("expires_in", in.Body.ExpiresIn, defaultExpiry, now)
	if err != nil {
		return nil, err
	}
	s.tenants.Lock()
	defer s.tenants.Unlock()
	t := work.Token{ID: chance(5), Name: in.Body.Name, Role: work.Role(in.Body.Role), Tenant: in.Body.Tenant, ReadOnly: in.Body.ReadOnly, Created: work.TimeOf(now), Expires: expires}
	if err := s.roomForToken(ctx, t.Tenant, work.TimeOf(now)); err != nil {
		return nil, err
	}
	secret := newSecret(t.ID)
	t.Hash = HashToken(secret)
	if _, err := s.host.Do(ctx, engine.SetToken{Token: t}); err != nil {
		return nil, err
	}
	out, err := answerOf(apitype.NewToken{TokenInfo: s.tokenOf(t), Token: secret}, nil)
	out.Location = "/v1/tokens/" + t.ID
	return out, err
}

// roomForToken drops those of a tenant that expired long ago, and refuses one too many.
func (s *server) roomForToken(ctx context.Context, tenant string, now work.Time) error {
	var old []string
	left := 0
	s.host.Read(func(e *engine.Engine) {
		for _, t := range e.Tokens() {
			switch {
			case t.Tenant != tenant:
			case t.Expired(now.Add(-keepExpired)):
				old = append(old, t.ID)
			default:
				left++
			}
		}
	})
	for _, id := range old {
		if _, err := s.host.Do(ctx, engine.RemoveToken{ID: id}); err != nil {
			return err
		}
	}
	if left >= maxTokens {
		return work.Errorf(work.CodeConflict, "there are %d tokens of tenant %q, which is the most: revoke some (gpupool tokens list)", left, tenant)
	}
	return nil
}

func (s *server) rotateToken(ctx context.Context, in *struct {
	TokenPath
	Body apitype.Rotation
}) (*answer[apitype.NewToken], error) {
	now := s.now()
	overlap, err := period("overlap", in.Body.Overlap, defaultOverlap)
	if err != nil {
		return nil, err
	}
	if in.ID == adminID {
		return s.rotateAdmin(now, overlap)
	}
	s.tenants.Lock()
	defer s.tenants.Unlock()
	var t work.Token
	var known bool
	s.host.Read(func(e *engine.Engine) { t, known = e.Token(in.ID) })
	if !known {
		return nil, unknownToken(in.ID)
	}
	at := work.TimeOf(now)
	span := defaultExpiry // as long as it was given at first
	if t.Expires != 0 {
		span = t.Expires.Sub(max(t.Created, t.Rotated))
	}
	if t.Expires != 0 || in.Body.ExpiresIn != "" {
		if t.Expires, err = lifetime("expires_in", in.Body.ExpiresIn, span, now); err != nil {
			return nil, err
		}
	}
	secret := newSecret(t.ID)
	t.Old, t.OldEnds, t.Rotated = t.Hash, at.Add(overlap), at
	if overlap == 0 {
		t.Old, t.OldEnds = "", 0
	}
	t.Hash = HashToken(secret)
	if _, err := s.host.Do(ctx, engine.SetToken{Token: t}); err != nil {
		return nil, err
	}
	return answerOf(apitype.NewToken{TokenInfo: s.tokenOf(t), Token: secret}, nil)
}

// rotateAdmin rotates the admin token that is in a file of this server.
func (s *server) rotateAdmin(now time.Time, overlap time.Duration) (*answer[apitype.NewToken], error) {
	if s.cfg.Admin == nil {
		return nil, work.Errorf(work.CodeConflict, "the admin token of this server is not in a file that it may write")
	}
	secret, err := s.cfg.Admin.Rotate(now.Add(overlap))
	if err != nil {
		return nil, err
	}
	until := now.Add(overlap)
	return answerOf(apitype.NewToken{TokenInfo: apitype.TokenInfo{ID: adminID, Role: string(asAdmin), Created: now, Rotated: &now, OldUntil: &until}, Token: secret}, nil)
}

func (s *server) revokeToken(ctx context.Context, in *TokenPath) (*struct{}, error) {
	if in.ID == adminID {
		return nil, work.Errorf(work.CodeConflict, "the admin token cannot be revoked, only rotated: gpupool tokens rotate admin --overlap 0s")
	}
	s.tenants.Lock()
	defer s.tenants.Unlock()
	_, err := s.host.Do(ctx, engine.RemoveToken{ID: in.ID})
	s.used.Delete(in.ID)
	return nil, err
}

func unknownToken(id string) error {
	return work.Errorf(work.CodeNotFound, "token %q is not known: gpupool tokens list", id)
}

// lifetime is when what is made now ends; 0 = never.
func lifetime(name, text string, usual time.Duration, now time.Time) (work.Time, error) {
	if strings.EqualFold(text, never) {
		return 0, nil
	}
	d, err := period(name, text, usual)
	if err != nil {
		return 0, err
	}
	if d < time.Second || d > maxExpiry {
		return 0, work.Errorf(work.CodeInvalid, "%s %s is out of range: expected 1s to 87600h (ten years), or never", name, text)
	}
	return work.TimeOf(now.Add(d)), nil
}

func period(name, text string, usual time.Duration) (time.Duration, error) {
	if text == "" {
		return usual, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > maxExpiry {
		return 0, work.Errorf(work.CodeInvalid, "%s %q is not understood: expected a duration such as 2160h or 10m", name, text)
	}
	return d, nil
}
