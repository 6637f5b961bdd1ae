package apitype

import "time"

// TokenSpec asks for a token.
type TokenSpec struct {
	Name      string `json:"name,omitempty" maxLength:"128" doc:"For people: what it is for" example:"ci"`
	Role      string `json:"role" enum:"viewer,tenant,operator,admin" doc:"viewer: reads. tenant: also submits, and acts on what is of its tenant. operator: acts for every tenant, and on pools. admin: also makes tenants and tokens"`
	Tenant    string `json:"tenant,omitempty" maxLength:"128" doc:"Whose; needed for a tenant, and possible for a viewer, who then sees only what is that tenant's"`
	ReadOnly  bool   `json:"read_only,omitempty" doc:"It may read as its role does, and write nothing"`
	ExpiresIn string `json:"expires_in,omitempty" maxLength:"32" doc:"When it becomes worthless: a duration, or never; 2160h (90 days) if left out" example:"720h"`
}

// Rotation says how a token is replaced.
type Rotation struct {
	Overlap   string `json:"overlap,omitempty" maxLength:"32" doc:"How long the one before still counts; 24h if left out" example:"1h"`
	ExpiresIn string `json:"expires_in,omitempty" maxLength:"32" doc:"As for a new one; as long as it had at first if left out"`
}

// TokenInfo is a token without what it is shown as, of which only a hash is kept.
type TokenInfo struct {
	ID       string     `json:"id"`
	Name     string     `json:"name,omitempty"`
	Role     string     `json:"role" enum:"viewer,tenant,operator,admin"`
	Tenant   string     `json:"tenant,omitempty" doc:"Absent for one that is of no tenant"`
	ReadOnly bool       `json:"read_only,omitempty"`
	Created  time.Time  `json:"created"`
	Rotated  *time.Time `json:"rotated,omitempty"`
	OldUntil *time.Time `json:"old_until,omitempty" doc:"Until when the one before the last rotation counts"`
	Expires  *time.Time `json:"expires,omitempty" doc:"Absent for one that never does"`
	Expired  bool       `json:"expired,omitempty"`
	LastUsed *time.Time `json:"last_used,omitempty" doc:"As far as this server knows: absent when it was not used since the server started"`
}

// NewToken is a token as it is shown once.
type NewToken struct {
	TokenInfo
	Token string `json:"token"`
}

// SecretValue is the value of a secret, on its way in.
type SecretValue struct {
	Value string `json:"value" minLength:"1" maxLength:"65536"`
}

// AuditEntry is one call in the audit log.
type AuditEntry struct {
	At        time.Time `json:"at"`
	Request   string    `json:"request" doc:"Identity of the request, as in the answer's header X-Request-Id"`
	Operation string    `json:"operation,omitempty" doc:"Of the API; absent where the call was refused before it was known"`
	Method    string    `json:"method"`
	Path      string    `json:"path" doc:"Without its query"`
	Object    string    `json:"object,omitempty" doc:"What it made, by its path"`
	By        string    `json:"by,omitempty" doc:"Who: the ID of the token, the subject at the OIDC issuer, or the subject of the certificate; absent for nobody known"`
	Name      string    `json:"name,omitempty" doc:"Of the token or the person"`
	How       string    `json:"how,omitempty" doc:"token, oidc or certificate"`
	Role      string    `json:"role,omitempty"`
	Tenant    string    `json:"tenant,omitempty" doc:"Of whom it is from; absent for who sees every tenant"`
	From      string    `json:"from" doc:"Address of the connection"`
	Forwarded string    `json:"forwarded,omitempty" doc:"What X-Forwarded-For claims"`
	Omitted   int       `json:"omitted,omitempty" doc:"Refused calls of the same caller before this one that were too many to be written"`
	Status    int       `json:"status" doc:"Of the answer; 0 where none was given"`
	Code      string    `json:"code,omitempty" doc:"Why it was refused"`
	TookMS    float64   `json:"took_ms"`
}
