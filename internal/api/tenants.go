package api

import (
	"context"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/work"
)

func (s *server) tenantRoutes() {
	const tag = "tenants"
	const one = "/v1/tenants/{name}"
	register(s, op{id: "list-tenants", method: get, path: "/v1/tenants", says: "List tenants by name; a tenant sees itself", tag: tag}, s.listTenants)
	register(s, op{id: "get-tenant", method: get, path: one, says: "Show a tenant", tag: tag}, s.getTenant)
	register(s, op{id: "put-tenant", method: put, path: one, says: "Make or change a tenant; its tokens stay", tag: tag}, s.putTenant)
	register(s, op{id: "delete-tenant", method: del, path: one, says: "Remove a tenant without unfinished tasks", tag: tag, status: 204}, s.deleteTenant)
	register(s, op{id: "create-token", method: post, path: one + "/tokens", says: "Make a token of a tenant that has no name and no end (see make-token); it is shown this once", tag: tag, status: 201}, s.createToken)
	register(s, op{id: "revoke-tokens", method: del, path: one + "/tokens", says: "Make all tokens of a tenant worthless", tag: tag, status: 204}, s.revokeTokens)
}

// NamePath names a tenant.
type NamePath struct {
	Name string `path:"name" maxLength:"128" doc:"Name of the tenant"`
}

// tenantViews shows the tenants that the caller may see and that are wanted, by name.
func (s *server) tenantViews(c caller, wanted func(name string) bool) []apitype.Tenant {
	out := []apitype.Tenant{}
	s.host.Read(func(e *engine.Engine) {
		named := map[string]int{}
		for _, t := range e.Tokens() {
			named[t.Tenant]++
		}
		index := map[string]int{}
		for _, t := range e.Tenants() {
			if !c.owns(t.Name) || !wanted(t.Name) {
				continue
			}
			index[t.Name] = len(out)
			x := apitype.Tenant{Name: t.Name, LimitGPUs: t.LimitGPUs, Guarantee: t.GuaranteeGPUs, MaxWaiting: t.MaxWaiting, MaxRunning: t.MaxRunning,
				Weight: t.Weight, Tokens: len(t.Tokens) + named[t.Name], HeldGPUs: float64(e.HeldMilli(t.Name)) / 1000}
			if x.Weight == 0 {
				x.Weight = 1
			}
			out = append(out, x)
		}
		for _, t := range e.Tasks() {
			i, ok := index[t.Spec.Tenant]
			switch {
			case !ok:
			case t.State == work.Queued:
				out[i].Waiting++
			case t.Lease() != nil:
				out[i].Running++
			}
		}
	})
	return out
}

func (s *server) listTenants(ctx context.Context, in *PageQuery) (*answer[apitype.Page[apitype.Tenant]], error) {
	items := s.tenantViews(who(ctx), func(name string) bool { return name > in.After })
	return pageOf(items, in.Limit, func(t apitype.Tenant) string { return t.Name }), nil
}

func (s *server) showTenant(c caller, name string) (*answer[apitype.Tenant], error) {
	items := s.tenantViews(c, func(n string) bool { return n == name })
	if len(items) == 0 {
		return nil, unknownTenant(name)
	}
	return answerOf(items[0], nil)
}

func unknownTenant(name string) error {
	return work.Errorf(work.CodeNotFound, "tenant %q is not known", name)
}

func (s *server) getTenant(ctx context.Context, in *NamePath) (*answer[apitype.Tenant], error) {
	return s.showTenant(who(ctx), in.Name)
}

// change reads a tenant, lets f change it and writes it back, one change at a time.
func (s *server) change(ctx context.Context, name string, f func(t *work.Tenant, known bool) error) error {
	s.tenants.Lock()
	defer s.tenants.Unlock()
	var t work.Tenant
	var known bool
	s.host.Read(func(e *engine.Engine) { t, known = e.Tenant(name) })
	t.Tokens = append([]string(nil), t.Tokens...)
	if err := f(&t, known); err != nil {
		return err
	}
	_, err := s.host.Do(ctx, engine.SetTenant{Tenant: t})
	return err
}

func (s *server) putTenant(ctx context.Context, in *struct {
	Name string `path:"name" maxLength:"128" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" patternDescription:"letters, digits and . _ -, beginning with a letter or digit"`
	Body apitype.TenantSpec
}) (*answer[apitype.Tenant], error) {
	err := s.change(ctx, in.Name, func(t *work.Tenant, known bool) error {
		if !known { // what a removal that was cut short left is not for the next of that name
			if err := s.cfg.Secrets.RemoveAll(in.Name); err != nil {
				return err
			}
		}
		b := in.Body
		t.Name, t.LimitGPUs, t.GuaranteeGPUs, t.MaxWaiting, t.MaxRunning, t.Weight = in.Name, b.LimitGPUs, b.Guarantee, b.MaxWaiting, b.MaxRunning, b.Weight
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s.showTenant(who(ctx), in.Name)
}

func (s *server) deleteTenant(ctx context.Context, in *NamePath) (*struct{}, error) {
	s.tenants.Lock()
	defer s.tenants.Unlock()
	if _, err := s.host.Do(ctx, engine.RemoveTenant{Name: in.Name}); err != nil {
		return nil, err
	}
	return nil, s.cfg.Secrets.RemoveAll(in.Name) // whoever gets the name next must not get them too
}

func (s *server) createToken(ctx context.Context, in *NamePath) (*answer[apitype.Token], error) {
	token := NewTenantToken(in.Name)
	err := s.change(ctx, in.Name, func(t *work.Tenant, known bool) error {
		switch {
		case !known:
			return unknownTenant(in.Name)
		case len(t.Tokens) >= maxTokens:
			return work.Errorf(work.CodeConflict, "tenant %s has %d tokens, which is the most it may have: revoke them and make new ones", in.Name, maxTokens)
		}
		t.Tokens = append(t.Tokens, HashToken(token))
		return nil
	})
	return answerOf(apitype.Token{Tenant: in.Name, Token: token}, err)
}

func (s *server) revokeTokens(ctx context.Context, in *NamePath) (*struct{}, error) {
	err := s.change(ctx, in.Name, func(t *work.Tenant, known bool) error {
		if !known {
			return unknownTenant(in.Name)
		}
		t.Tokens = nil
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.tenants.Lock()
	defer s.tenants.Unlock()
	var named []work.Token
	s.host.Read(func(e *engine.Engine) { named = e.Tokens() })
	for _, t := range named {
		if t.Tenant != in.Name {
			continue
		}
		if _, err := s.host.Do(ctx, engine.RemoveToken{ID: t.ID}); err != nil {
			return nil, err
		}
	}
	return nil, nil //nolint:nilnil // an answer without a body
}
