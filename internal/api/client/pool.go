package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"

	"github.com/gpupool/gpupool/internal/api/apitype"
)

// Whoami says who the token belongs to, and what the server is.
func (c *Client) Whoami(ctx context.Context) (s apitype.Self, err error) {
	err = c.do(ctx, get("/v1/whoami", nil), &s)
	return s, err
}

// Hosts lists all hosts.
func (c *Client) Hosts(ctx context.Context) iter.Seq2[apitype.Host, error] {
	return list[apitype.Host](ctx, c, "/v1/hosts", nil)
}

// GPUQuery narrows a list of GPUs; the zero value is all of them.
type GPUQuery struct {
	Host   string
	Pool   string
	Health string // ok, suspect, cordoned, draining, drained or broken
}

// GPUs lists GPUs by number.
func (c *Client) GPUs(ctx context.Context, q GPUQuery) iter.Seq2[apitype.GPU, error] {
	return list[apitype.GPU](ctx, c, "/v1/gpus", values("host", q.Host, "pool", q.Pool, "health", q.Health))
}

// GPU returns a GPU by its number or UUID.
func (c *Client) GPU(ctx context.Context, gpu string) (g apitype.GPU, err error) {
	err = c.do(ctx, get(gpuPath(gpu), nil), &g)
	return g, err
}

func gpuPath(gpu string) string { return "/v1/gpus/" + url.PathEscape(gpu) }

// CordonGPU gives a GPU no new work. Admin only, as DrainGPU and UncordonGPU.
func (c *Client) CordonGPU(ctx context.Context, gpu, reason string) (apitype.GPU, error) {
	return c.judgeGPU(ctx, gpu, "cordon", reason)
}

// DrainGPU has what runs on a GPU moved away.
func (c *Client) DrainGPU(ctx context.Context, gpu, reason string) (apitype.GPU, error) {
	return c.judgeGPU(ctx, gpu, "drain", reason)
}

// UncordonGPU takes back what operators said of a GPU.
func (c *Client) UncordonGPU(ctx context.Context, gpu, reason string) (apitype.GPU, error) {
	return c.judgeGPU(ctx, gpu, "uncordon", reason)
}

func (c *Client) judgeGPU(ctx context.Context, gpu, verb, reason string) (g apitype.GPU, err error) {
	err = c.do(ctx, call{method: http.MethodPost, path: gpuPath(gpu) + "/" + verb, body: apitype.GPUReason{Reason: reason}, again: true}, &g)
	return g, err
}

// Map shows every GPU and what stands on it in one answer.
func (c *Client) Map(ctx context.Context) (m apitype.Map, err error) {
	err = c.do(ctx, get("/v1/map", nil), &m)
	return m, err
}

// Pools lists all pools in their order.
func (c *Client) Pools(ctx context.Context) ([]apitype.Pool, error) {
	return collect(list[apitype.Pool](ctx, c, "/v1/pools", nil))
}

// ReportQuery says what a report is about; the zero value is all that is kept, by pool.
type ReportQuery struct {
	From, To string // days in UTC, 2026-11-30, both included
	By       string // pool, tenant or day
}

// Report says what was held of GPUs, and what a static site would have held for the same tasks.
func (c *Client) Report(ctx context.Context, q ReportQuery) (r apitype.Report, err error) {
	err = c.do(ctx, get("/v1/report", values("from", q.From, "to", q.To, "by", q.By)), &r)
	return r, err
}

// Tenants lists the tenants that the token may see, by name.
func (c *Client) Tenants(ctx context.Context) ([]apitype.Tenant, error) {
	return collect(list[apitype.Tenant](ctx, c, "/v1/tenants", nil))
}

// Tenant returns a tenant.
func (c *Client) Tenant(ctx context.Context, name string) (t apitype.Tenant, err error) {
	err = c.do(ctx, get(tenantPath(name), nil), &t)
	return t, err
}

func tenantPath(name string) string { return "/v1/tenants/" + url.PathEscape(name) }

// PutTenant makes or changes a tenant; its tokens stay. Admin only.
func (c *Client) PutTenant(ctx context.Context, name string, spec apitype.TenantSpec) (t apitype.Tenant, err error) {
	err = c.do(ctx, call{method: http.MethodPut, path: tenantPath(name), body: spec, again: true}, &t)
	return t, err
}

// DeleteTenant removes a tenant without unfinished tasks. Admin only.
func (c *Client) DeleteTenant(ctx context.Context, name string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: tenantPath(name)}, nil)
}

// CreateToken makes another token of a tenant; it is shown this once. Admin only.
func (c *Client) CreateToken(ctx context.Context, tenant string) (t apitype.Token, err error) {
	err = c.do(ctx, call{method: http.MethodPost, path: tenantPath(tenant) + "/tokens"}, &t)
	return t, err
}

// RevokeTokens makes all tokens of a tenant worthless. Admin only.
func (c *Client) RevokeTokens(ctx context.Context, tenant string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: tenantPath(tenant) + "/tokens", again: true}, nil)
}
