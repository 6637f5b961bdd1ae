package nvidia

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestProbe looks at simulated boards: one healthy, one in MIG mode that wants a reset.
func TestProbe(t *testing.T) {
	s := newSim("H100-80GB", 2)
	s.gpus[1].MIG, s.gpus[1].MIGPending, s.gpus[1].look.GIs, s.gpus[1].Recovery = true, true, []instance{{ID: 1}, {ID: 2}}, 4
	p, err := probe(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	g := s.gpus
	want := []ProbedGPU{
		{Index: 0, Minor: 0, Name: g[0].Name, UUID: g[0].UUID, MemoryMiB: 81559, HasMIG: true, Recovery: "none"},
		{Index: 1, Minor: 1, Name: g[1].Name, UUID: g[1].UUID, MemoryMiB: 81559, HasMIG: true, MIG: true, MIGPending: true, Instances: 2, Recovery: "drain_and_reset"},
	}
	if d := cmp.Diff(want, p.GPUs); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if len(s.calls) > 0 {
		t.Errorf("a look changed something: %v", s.calls)
	}
	broken := errors.New("no answer")
	s.breaks = func(r request) (bool, error) { return r.Op == opLook, broken }
	if _, err := probe(t.Context(), s); !errors.Is(err, broken) {
		t.Errorf("a GPU that does not answer is passed over: %v", err)
	}
}
