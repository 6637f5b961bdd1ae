package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/gpupool/gpupool/internal/api/apitype"
)

// SetMode sets the mode of a pool and returns the pool. Admins only.
func (c *Client) SetMode(ctx context.Context, pool, mode string) (p apitype.Pool, err error) {
	err = c.do(ctx, call{method: http.MethodPut, path: "/v1/pools/" + url.PathEscape(pool) + "/mode", body: apitype.PoolMode{Mode: mode}, again: true}, &p)
	return p, err
}

// Shadow says what a pool that is not dynamic would hold if it were.
func (c *Client) Shadow(ctx context.Context, pool string) (s apitype.Shadow, err error) {
	err = c.do(ctx, get("/v1/pools/"+url.PathEscape(pool)+"/shadow", nil), &s)
	return s, err
}

const rolloutPath = "/v1/rollout"

// StartRollout gives pools or tenants another mode, one after the other. Admins only.
func (c *Client) StartRollout(ctx context.Context, spec apitype.RolloutSpec) (r apitype.Rollout, err error) {
	err = c.do(ctx, call{method: http.MethodPost, path: rolloutPath, body: spec}, &r)
	return r, err
}

// Rollout is the one that goes on, else the last. Admins only.
func (c *Client) Rollout(ctx context.Context) (r apitype.Rollout, err error) {
	err = c.do(ctx, get(rolloutPath, nil), &r)
	return r, err
}

// StopRollout ends the rollout; what it changed is as it was before, unless it is kept.
// Admins only.
func (c *Client) StopRollout(ctx context.Context, keep bool) (r apitype.Rollout, err error) {
	k := call{method: http.MethodDelete, path: rolloutPath}
	if keep {
		k.query = url.Values{"keep": {"true"}}
	}
	err = c.do(ctx, k, &r)
	return r, err
}
