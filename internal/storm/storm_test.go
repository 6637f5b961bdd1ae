package storm

import (
	"flag"
	"slices"
	"testing"
)

var (
	seeds = flag.Int("seeds", 300, "histories to play")
	from  = flag.Uint64("from", 0, "seed of the first")
	keep  = flag.String("keep", "", "folder for what failed")
)

// TestStorm plays histories in which everything fails that can, and nothing may come of it.
func TestStorm(t *testing.T) {
	n := *seeds
	if underRace || testing.Short() {
		n = min(n, 25)
	}
	r, err := Run(t.Context(), Options{Seeds: n, Seed: *from, Keep: *keep})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Failures {
		t.Errorf("%s: step %d, shrunk to %d: %s: %.600s", f.Again, f.Step, f.Shrunk, f.Kind, f.What)
	}
	t.Logf("%d violations in %d histories of %d steps: %d facts, %d tasks acknowledged, %v", r.Violations, r.Seeds, r.Steps, r.Facts, r.Acknowledged, r.Faults)
	if n >= 250 {
		everythingHappened(t, r)
	}
}

// everythingHappened: a kind of fault that is never played tests nothing.
func everythingHappened(t *testing.T, r *Result) {
	t.Helper()
	for _, f := range AllFaults() {
		if r.Faults[f] == 0 {
			t.Errorf("%s never happened in %d histories", f, r.Seeds)
		}
	}
	for f := range r.Faults {
		if !slices.Contains(AllFaults(), f) {
			t.Errorf("fault %s is not in the list", f)
		}
	}
	for _, kind := range []string{"task.submitted", "task.suspended", "task.resumed", "part.resized", "task.movefailed", "part.freeretry"} {
		if r.Happened[kind] == 0 {
			t.Errorf("fact %s never happened in %d histories", kind, r.Seeds)
		}
	}
}
