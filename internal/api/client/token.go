package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"

	"github.com/gpupool/gpupool/internal/api/apitype"
)

// Tokens lists all tokens by age. Admin only.
func (c *Client) Tokens(ctx context.Context) ([]apitype.TokenInfo, error) {
	return collect(list[apitype.TokenInfo](ctx, c, "/v1/tokens", nil))
}

func tokenPath(id string) string { return "/v1/tokens/" + url.PathEscape(id) }

// MakeToken makes a token; it is shown this once. Admin only.
func (c *Client) MakeToken(ctx context.Context, spec apitype.TokenSpec) (t apitype.NewToken, err error) {
	err = c.do(ctx, call{method: http.MethodPost, path: "/v1/tokens", body: spec}, &t)
	return t, err
}

// RotateToken replaces what a token is shown as. Admin only.
func (c *Client) RotateToken(ctx context.Context, id string, r apitype.Rotation) (t apitype.NewToken, err error) {
	err = c.do(ctx, call{method: http.MethodPost, path: tokenPath(id) + "/rotate", body: r}, &t)
	return t, err
}

// RevokeToken makes a token worthless. Admin only.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: tokenPath(id)}, nil)
}

func secretPath(tenant, name string) string {
	return tenantPath(tenant) + "/secrets/" + url.PathEscape(name)
}

// Secrets names the secrets of a tenant.
func (c *Client) Secrets(ctx context.Context, tenant string) ([]string, error) {
	var page apitype.Page[string]
	err := c.do(ctx, get(tenantPath(tenant)+"/secrets", nil), &page)
	return page.Items, err
}

// PutSecret keeps a value that tasks of the tenant can name.
func (c *Client) PutSecret(ctx context.Context, tenant, name, value string) error {
	return c.do(ctx, call{method: http.MethodPut, path: secretPath(tenant, name), body: apitype.SecretValue{Value: value}, again: true}, nil)
}

// DeleteSecret forgets a secret.
func (c *Client) DeleteSecret(ctx context.Context, tenant, name string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: secretPath(tenant, name)}, nil)
}

// AuditQuery narrows an export; the zero value is all of it.
type AuditQuery struct {
	Since, Until string // a time in RFC 3339, or how long ago
	Tenant, By   string
}

// Audit exports the audit log, the oldest entry first. It ends with the first error. Admin only.
func (c *Client) Audit(ctx context.Context, q AuditQuery) iter.Seq2[apitype.AuditEntry, error] {
	return func(yield func(apitype.AuditEntry, error) bool) {
		resp, err := c.open(ctx, get("/v1/audit", values("since", q.Since, "until", q.Until, "tenant", q.Tenant, "by", q.By)))
		if err != nil {
			yield(apitype.AuditEntry{}, err)
			return
		}
		defer resp.Body.Close()
		r := bufio.NewReader(resp.Body)
		for {
			line, err := r.ReadBytes('\n')
			if errors.Is(err, io.EOF) && len(line) == 0 {
				return
			}
			var e apitype.AuditEntry
			if err == nil {
				err = json.Unmarshal(line, &e)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}
