package work

import "slices"

// Role says what a caller may do. Each may do what those below it may.
type Role string

// The roles.
const (
	RoleViewer   Role = "viewer"   // reads: everything, or what is of its tenant
	RoleTenant   Role = "tenant"   // also submits for its tenant, and acts on what is of it
	RoleOperator Role = "operator" // acts for every tenant, and on pools
	RoleAdmin    Role = "admin"    // also makes tenants and tokens
)

// Roles lists them, who may do least first.
func Roles() []Role { return []Role{RoleViewer, RoleTenant, RoleOperator, RoleAdmin} }

// AtLeast reports whether a caller of role r may do what needs the role least.
func (r Role) AtLeast(least Role) bool {
	i := slices.Index(Roles(), r)
	return i >= 0 && i >= slices.Index(Roles(), least)
}

// Token is a named right to call the API. Of the secret only its hash is kept, and for a
// while after a rotation that of the secret before.
type Token struct {
	ID       string `json:"id"`             // part of the secret, so that finding it takes one look-up
	Name     string `json:"name,omitempty"` // for people; need not be unique
	Role     Role   `json:"role"`
	Tenant   string `json:"tenant,omitempty"` // whose; "" = of no tenant: every tenant's
	ReadOnly bool   `json:"read_only,omitempty"`
	Hash     string `json:"hash"`               // SHA-256, hexadecimal
	Old      string `json:"old,omitempty"`      // hash of the secret before the last rotation
	OldEnds  Time   `json:"old_ends,omitempty"` // when that one is worthless
	Created  Time   `json:"created"`
	Rotated  Time   `json:"rotated,omitempty"`
	Expires  Time   `json:"expires,omitempty"` // 0 = never
}

// Validate checks what can be known without the tenants.
func (t Token) Validate() error {
	switch {
	case t.ID == "" || t.Hash == "":
		return Errorf(CodeInvalid, "a token needs an id and the hash of its secret")
	case !slices.Contains(Roles(), t.Role):
		return Errorf(CodeInvalid, "role %q is not known: use viewer, tenant, operator or admin", t.Role)
	case t.Role == RoleTenant && t.Tenant == "":
		return Errorf(CodeInvalid, "a token of role tenant needs a tenant: say whose it is")
	case t.Role.AtLeast(RoleOperator) && t.Tenant != "":
		return Errorf(CodeInvalid, "a token of role %s acts for every tenant: leave tenant %s out, or give role tenant or viewer", t.Role, t.Tenant)
	case t.Expires < 0 || t.OldEnds < 0 || (t.Old == "") != (t.OldEnds == 0):
		return Errorf(CodeInvalid, "the times of token %s contradict each other", t.ID)
	}
	return nil
}

// Expired reports whether the token is worthless at a time.
func (t Token) Expired(now Time) bool { return t.Expires != 0 && now >= t.Expires }

// Hashes are those of the secrets that count at a time.
func (t Token) Hashes(now Time) []string {
	switch {
	case t.Expired(now):
		return nil
	case t.Old != "" && now < t.OldEnds:
		return []string{t.Hash, t.Old}
	}
	return []string{t.Hash}
}
