package host

import (
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/work"
)

// Known is who may come in: tenants with the hashes of their tokens, and tokens that have a
// name. Nobody changes it. Each call is asked about, and must not wait for the writer; so it
// is beside the state, made anew with each fact about it, before that fact's event is
// answered: whoever is told that a token is revoked sees it refused.
type Known struct {
	tenants map[string][]string
	tokens  map[string]work.Token
}

// Tenant returns the hashes of a tenant's tokens, and whether there is such a tenant.
func (k *Known) Tenant(name string) (hashes []string, known bool) {
	hashes, known = k.tenants[name]
	return hashes, known
}

// Token returns a token by its ID.
func (k *Known) Token(id string) (work.Token, bool) {
	t, known := k.tokens[id]
	return t, known
}

// Known is who may come in now. It costs nothing.
func (h *Host) Known() *Known { return h.known.Load() }

// learn makes Known anew where facts are about it. h.mu is held.
func (h *Host) learn(facts []engine.Fact) {
	for _, f := range facts {
		switch f.(type) {
		case engine.TenantSet, engine.TenantRemoved, engine.TokenSet, engine.TokenRemoved:
			h.known.Store(knownBy(h.writer.Engine))
			return
		}
	}
}

func knownBy(e *engine.Engine) *Known {
	k := &Known{tenants: map[string][]string{}, tokens: map[string]work.Token{}}
	for _, t := range e.Tenants() {
		k.tenants[t.Name] = append([]string{}, t.Tokens...)
	}
	for _, t := range e.Tokens() {
		k.tokens[t.ID] = t
	}
	return k
}
