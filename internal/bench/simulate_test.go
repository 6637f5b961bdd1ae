package bench

import (
	"context"
	"errors"
	"testing"
)

// TestSimulate: every task is taken through, and the same seed gives the same numbers
// however many cores there are.
func TestSimulate(t *testing.T) {
	run := func(seed uint64) SimulateResult {
		r, err := Simulate(t.Context(), SimulateOptions{Tasks: 3001, Seed: seed, Hosts: "4x8xH100-80GB", Clusters: 3})
		if err != nil {
			t.Fatal(err)
		}
		if r.Tasks != 3001 || r.Succeeded != 3001 || r.Failed != 0 || r.Utilisation < 0.3 || r.Utilisation > 0.9 || r.PeakMiB <= 0 {
			t.Errorf("got %+v", *r)
		}
		same := *r
		same.WallS, same.TasksPerS, same.TasksPerCoreS, same.DecisionsPerS, same.PeakMiB, same.Cores, same.Notes = 0, 0, 0, 0, 0, 0, nil
		return same
	}
	a, b, other := run(7), run(7), run(8)
	if a.WaitMean != b.WaitMean || a.WaitP99 != b.WaitP99 || a.Utilisation != b.Utilisation || a.VirtualDays != b.VirtualDays {
		t.Errorf("the same seed gave %+v and %+v", a, b)
	}
	if a.VirtualDays == other.VirtualDays {
		t.Error("another seed gave the same tasks")
	}
}

func TestSimulateOptions(t *testing.T) {
	for _, o := range []SimulateOptions{{Tasks: -1}, {Tasks: maxSimulated + 1}, {Tasks: 2, Clusters: 3}, {Clusters: -1}, {Hosts: "nonsense"}} {
		_, err := Simulate(t.Context(), o)
		if unusable := (*OptionError)(nil); !errors.As(err, &unusable) {
			t.Errorf("%+v: got %v", o, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Simulate(ctx, SimulateOptions{Tasks: 100}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
}
