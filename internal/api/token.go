package api

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"strings"
	"time"

	"github.com/gpupool/gpupool/internal/auth"
	"github.com/gpupool/gpupool/internal/work"
)

// A token says which it is, so that finding it takes one look-up, and holds 32 bytes of
// chance in hexadecimal. Against guessing no slow hash is needed then.
const (
	adminPrefix  = "gpa_" // the one in the admin token file
	tenantPrefix = "gpt_" // gpt_TENANT_CHANCE: without a name or an end of its own
	namedPrefix  = "gpk_" // gpk_ID_CHANCE: see work.Token
)

// maxTokens of one tenant, and of those that are of no tenant.
const maxTokens = 100

// adminID is the ID of the admin token that is in a file.
const adminID = "admin"

// NewAdminToken makes an admin token.
func NewAdminToken() string { return adminPrefix + chance(32) }

// NewTenantToken makes a token of a tenant.
func NewTenantToken(tenant string) string { return tenantPrefix + tenant + "_" + chance(32) }

// newSecret makes the text of a named token.
func newSecret(id string) string { return namedPrefix + id + "_" + chance(32) }

// chance is n bytes of it, in hexadecimal.
func chance(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails: see its documentation
	return hex.EncodeToString(b)
}

// HashToken is what is kept of a token: SHA-256 in hexadecimal.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// claimed is what a token says of itself behind a prefix: a tenant, or an ID.
func claimed(token, prefix string) string {
	rest, ok := strings.CutPrefix(token, prefix)
	if i := strings.LastIndexByte(rest, '_'); ok && i > 0 {
		return rest[:i]
	}
	return ""
}

// AdminFile is the admin token that is in a file.
type AdminFile interface {
	// Hashes are those that count at a time.
	Hashes(now time.Time) []string
	// Rotate puts a new token into the file and returns it. The one before counts until
	// the time given.
	Rotate(oldEnds time.Time) (string, error)
}

// adminHashes are those of the admin token that is in a file.
func (s *server) adminHashes() []string {
	if s.cfg.Admin != nil {
		return s.cfg.Admin.Hashes(s.now())
	}
	return []string{s.cfg.AdminToken}
}

// ofToken finds whose a token is.
func (s *server) ofToken(token string) (caller, error) {
	switch {
	case strings.HasPrefix(token, adminPrefix):
		return s.ofHash(adminID, "", HashToken(token))
	case strings.HasPrefix(token, namedPrefix):
		return s.ofHash(claimed(token, namedPrefix), "", HashToken(token))
	}
	return s.ofHash("", claimed(token, tenantPrefix), HashToken(token))
}

// errUnknownToken is what is said of every token that is not one, so that nothing is told
// of which there are.
var errUnknownToken = unknown("the token is not known: it may have been revoked; ask an admin for another")

// ofHash finds the caller of a token by its ID, or without one by its tenant, and its hash.
func (s *server) ofHash(id, of, hash string) (caller, error) {
	c := caller{Identity: auth.Identity{Kind: auth.KindToken, ID: id, Tenant: of}, token: hash}
	switch id {
	case adminID:
		if among(s.adminHashes(), hash) {
			c.Role = asAdmin
			return c, nil
		}
		return caller{}, errUnknownToken
	case "":
		if hashes, _ := s.host.Known().Tenant(of); among(hashes, hash) {
			c.Role = asTenant
			return c, nil
		}
		return caller{}, errUnknownToken
	}
	t, _ := s.host.Known().Token(id)
	now := work.TimeOf(s.now())
	switch {
	case among(t.Hashes(now), hash):
	case t.Expired(now) && among([]string{t.Hash}, hash):
		return caller{}, unknown("the token %s expired at %s: ask an admin for another (gpupool tokens rotate)", t.ID, t.Expires.Std().Format(time.RFC3339))
	case t.Old != "" && among([]string{t.Old}, hash):
		return caller{}, unknown("the token %s was rotated, and this is the one before: use the new one", t.ID)
	default:
		return caller{}, errUnknownToken
	}
	s.used.Store(id, now)
	c.Role, c.readOnly, c.Tenant, c.Name, c.Expires = t.Role, t.ReadOnly, t.Tenant, t.Name, t.Expires.Std()
	return c, nil
}

// among compares in a time that does not depend on what is equal.
func among(known []string, hash string) bool {
	found := 0
	for _, h := range known {
		found |= subtle.ConstantTimeCompare([]byte(h), []byte(hash))
	}
	return found == 1
}
