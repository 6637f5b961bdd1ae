// Package auth says who someone is that others vouch for: an OIDC issuer, or whoever
// signs client certificates. It also holds the server's own certificate, and loads it
// again when its files change. gpupool's own tokens are the API's business.
//
// A check of an OIDC token costs one signature, and a call to the issuer when its keys
// have changed; nothing here grows with the cluster.
package auth

import (
	"errors"
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

// Kind says how someone has shown who it is.
type Kind string

// The kinds.
const (
	KindToken       Kind = "token"
	KindOIDC        Kind = "oidc"
	KindCertificate Kind = "certificate"
)

// Identity is who someone is.
type Identity struct {
	Kind    Kind
	ID      string // of the token, the subject at the issuer, or the subject of the certificate
	Name    string // for people; may be empty
	Role    work.Role
	Tenant  string    // "" = every tenant
	Expires time.Time // zero = never
}

// Groups says which groups of another system have which role. Who is of a tenant and in
// neither of the first two has that tenant, even as one of the viewers: the lesser right.
type Groups struct {
	Admins, Operators, Viewers []string
}

// role finds the role of who is in groups, and may be of a tenant.
func (g Groups) role(in []string, tenant string) (work.Role, string, error) {
	one := func(of []string) bool {
		return slices.ContainsFunc(of, func(x string) bool { return slices.Contains(in, x) })
	}
	switch {
	case one(g.Admins):
		return work.RoleAdmin, "", nil
	case one(g.Operators):
		return work.RoleOperator, "", nil
	case tenant != "":
		return work.RoleTenant, tenant, nil
	case one(g.Viewers):
		return work.RoleViewer, "", nil
	}
	return "", "", errors.New("it names no tenant, and no group that has a role here")
}

// unavailable says that nothing could be found out now.
type unavailable struct{ error }

func (u *unavailable) Unwrap() error { return u.error }

// IsUnavailable reports whether an error says nothing of who asks, but that it cannot be
// found out now.
func IsUnavailable(err error) bool {
	_, is := errors.AsType[*unavailable](err)
	return is
}
