package host

import (
	"testing"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/work"
)

// TestKnown: once an event about who may come in is answered, it is seen at once; and what a
// look at the answer finds wrong is the fault of who looks, not of the writer.
func TestKnown(t *testing.T) {
	w := newWorld(t, "1xH100-80GB")
	h := w.start()
	must := func(ev engine.Event) {
		t.Helper()
		if _, err := h.Do(t.Context(), ev); err != nil {
			t.Fatal(err)
		}
	}
	must(engine.SetTenant{Tenant: work.Tenant{Name: "known", Tokens: []string{"a"}}})
	must(engine.SetToken{Token: work.Token{ID: "1", Role: work.RoleTenant, Tenant: "known", Hash: "h"}})
	hashes, known := h.Known().Tenant("known")
	if tok, there := h.Known().Token("1"); !known || len(hashes) != 1 || !there || tok.Hash != "h" {
		t.Errorf("got %v %v, %+v %v", hashes, known, tok, there)
	}
	must(engine.RemoveToken{ID: "1"})
	if _, there := h.Known().Token("1"); there {
		t.Error("a token that was revoked is still known")
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("whoever looks does not hear of its own fault")
			}
		}()
		h.DoThen(t.Context(), engine.RemoveTenant{Name: "known"}, func(*engine.Engine, work.TaskID) { panic("mine") }) //nolint:errcheck // it panics
	}()
	if _, known := h.Known().Tenant("known"); known {
		t.Error("a tenant that was removed is still known")
	}
	must(engine.SetTenant{Tenant: work.Tenant{Name: "again"}})
	if err := h.end(); err != nil {
		t.Fatal(err)
	}
	again := w.start()
	if _, known := again.Known().Tenant("again"); !known {
		t.Error("after a restart a tenant is not known")
	}
	if err := again.end(); err != nil {
		t.Fatal(err)
	}
}
