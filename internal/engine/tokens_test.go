package engine

import (
	"fmt"
	"testing"

	"github.com/gpupool/gpupool/internal/work"
)

// tokenEvent sets or removes a token in a random history.
func (w *world) tokenEvent() Event {
	id := fmt.Sprint(w.tokens.IntN(3))
	if w.tokens.IntN(3) == 0 {
		return RemoveToken{id}
	}
	return SetToken{work.Token{ID: id, Role: work.RoleTenant, Tenant: []string{"b", "c"}[w.tokens.IntN(2)], Hash: fmt.Sprint(w.tokens.IntN(9)), Created: 1}}
}

// TestTokens: what is refused, what stays over a snapshot, and that a tenant takes its
// tokens with it.
func TestTokens(t *testing.T) {
	e := New(Config{})
	do := func(ev Event) error {
		out := e.Step(1, ev)
		return out.Err
	}
	token := func(change func(*work.Token)) SetToken {
		x := work.Token{ID: "i", Role: work.RoleTenant, Tenant: "a", Hash: "h", Created: 1}
		change(&x)
		return SetToken{x}
	}
	same := token(func(*work.Token) {})
	if err := do(same); err == nil {
		t.Error("a token of a tenant that is not known was made")
	}
	for _, name := range []string{"a", "b"} {
		if err := do(SetTenant{work.Tenant{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	for what, ev := range map[string]SetToken{
		"no id":              token(func(x *work.Token) { x.ID = "" }),
		"no hash":            token(func(x *work.Token) { x.Hash = "" }),
		"no role":            token(func(x *work.Token) { x.Role = "" }),
		"unknown role":       token(func(x *work.Token) { x.Role = "root" }),
		"tenant of nobody":   token(func(x *work.Token) { x.Tenant = "" }),
		"admin of a tenant":  token(func(x *work.Token) { x.Role = work.RoleAdmin }),
		"old without an end": token(func(x *work.Token) { x.Old = "o" }),
		"expires before it":  token(func(x *work.Token) { x.Expires = -1 }),
	} {
		if err := do(ev); err == nil {
			t.Errorf("%s: it was made", what)
		}
	}
	if err := do(same); err != nil {
		t.Fatal(err)
	}
	if err := do(token(func(x *work.Token) { x.Tenant = "b" })); err == nil {
		t.Error("a token was given to another tenant")
	}
	if err := do(token(func(x *work.Token) { x.Role = work.RoleViewer })); err == nil {
		t.Error("a token was given another role")
	}
	rotated := token(func(x *work.Token) { x.Hash, x.Old, x.OldEnds, x.Expires = "h2", "h", 5, 9 })
	if err := do(rotated); err != nil {
		t.Fatal(err)
	}
	for now, want := range map[work.Time]int{1: 2, 4: 2, 5: 1, 8: 1, 9: 0} {
		x, _ := e.Token("i")
		if got := len(x.Hashes(now)); got != want {
			t.Errorf("at %d %d secrets count, want %d", now, got, want)
		}
	}
	b, err := e.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if e, err = Restore(Config{}, b); err != nil {
		t.Fatal(err)
	}
	if x, _ := e.Token("i"); x != rotated.Token {
		t.Errorf("a snapshot keeps %+v of %+v", x, rotated.Token)
	}
	if err := do(RemoveTenant{"a"}); err != nil {
		t.Fatal(err)
	}
	if _, known := e.Token("i"); known {
		t.Error("a tenant has gone, and its token counts")
	}
	if err := do(RemoveToken{"i"}); err == nil {
		t.Error("a token that is gone was revoked")
	}
}
