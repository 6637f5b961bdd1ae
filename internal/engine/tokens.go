package engine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpupool/gpupool/internal/work"
)

// Tokens are kept beside tenants so that every server of a journal knows the same. The
// engine keeps and removes them; whether one counts at a time is asked by the shell. Older
// ones are hashes in their tenant (work.Tenant.Tokens), and go on to work.

type (
	// SetToken makes a token, or changes it: after a rotation.
	SetToken struct{ Token work.Token }
	// RemoveToken makes a token worthless.
	RemoveToken struct{ ID string }
)

func (SetToken) event()    {}
func (RemoveToken) event() {}

type (
	// TokenSet states a token as it is from now on.
	TokenSet struct {
		Token work.Token `json:"token"`
	}
	// TokenRemoved states that a token is worthless.
	TokenRemoved struct {
		ID     string `json:"id"`
		Tenant string `json:"tenant,omitempty"`
	}
)

// Kind names the fact.
func (TokenSet) Kind() string { return "token.set" }

// Kind names the fact.
func (TokenRemoved) Kind() string { return "token.removed" }

// MaxTokens is how many tokens there may be: each is in every snapshot.
const MaxTokens = 100_000

func (e *Engine) setToken(t work.Token) error {
	if err := t.Validate(); err != nil {
		return err
	}
	old, known := e.tokens[t.ID]
	switch {
	case t.Tenant != "" && e.tenants[t.Tenant] == nil:
		return work.Errorf(work.CodeNotFound, "tenant %q is not known: make it first", t.Tenant)
	case known && (old.Role != t.Role || old.Tenant != t.Tenant || old.ReadOnly != t.ReadOnly):
		return work.Errorf(work.CodeConflict, "token %s is there already with other rights: revoke it and make another", t.ID)
	case !known && len(e.tokens) >= MaxTokens:
		return work.Errorf(work.CodeConflict, "there are %d tokens, which is the most: revoke some", MaxTokens)
	}
	e.emit(TokenSet{t})
	return nil
}

func (e *Engine) removeToken(id string) error {
	t, known := e.tokens[id]
	if !known {
		return work.Errorf(work.CodeNotFound, "token %q is not known", id)
	}
	e.emit(TokenRemoved{id, t.Tenant})
	return nil
}

// removeTokens makes those of a tenant worthless that leaves.
func (e *Engine) removeTokens(tenant string) {
	for _, t := range e.Tokens() {
		if t.Tenant == tenant {
			e.emit(TokenRemoved{t.ID, tenant})
		}
	}
}

// applyToken applies the facts about tokens.
func (e *Engine) applyToken(f Fact) {
	switch f := f.(type) {
	case TokenSet:
		e.tokens[f.Token.ID] = f.Token
	case TokenRemoved:
		delete(e.tokens, f.ID)
	}
}

// Token returns a token by its ID.
func (e *Engine) Token(id string) (work.Token, bool) {
	t, known := e.tokens[id]
	return t, known
}

// Tokens lists all tokens by age.
func (e *Engine) Tokens() []work.Token {
	return slices.SortedFunc(maps.Values(e.tokens), func(a, b work.Token) int {
		return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.ID, b.ID))
	})
}
