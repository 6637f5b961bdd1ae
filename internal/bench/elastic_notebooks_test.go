package bench

import (
	"testing"
)

// TestNotebooksAreServedFirst: guests leave for whoever has a right to the GPUs, and training
// does in the gaps what it does on GPUs of its own.
func TestNotebooksAreServedFirst(t *testing.T) {
	o := ElasticOptions{Users: 6, Seed: 1}
	w, err := o.newShared(besideTimes)
	if err != nil {
		t.Fatal(err)
	}
	static, pooled, err := w.fewest(t.Context(), notebookIdle)
	if err != nil {
		t.Fatal(err)
	}
	if static.GPUs != w.apart+w.left || pooled.GPUs >= static.GPUs || pooled.Preemptions == 0 {
		t.Errorf("apart %d GPUs, pooled %d, told to leave %d times", static.GPUs, pooled.GPUs, pooled.Preemptions)
	}
	if pooled.RequestSlow > mostSlow || pooled.Within10s < 1-mostLate || pooled.WorkHours < static.WorkHours || pooled.IdleAll > notebookIdle {
		t.Errorf("got %+v", pooled.Column)
	}
	// Nobody works more than there is.
	if all := float64(pooled.GPUs) * w.end.Hours(); pooled.WorkHours+taken(w.books) > all {
		t.Errorf("%g GPU hours of work on %g", pooled.WorkHours+taken(w.books), all)
	}
}

// TestBounded: a target that a bound forbids is said to be forbidden, and only then.
func TestBounded(t *testing.T) {
	for _, c := range []struct {
		got, bound     float64
		met, forbidden bool
	}{{1.05, 1, true, false}, {1.2, 1, false, false}, {2, 1.5, false, true}} {
		s := ElasticScenario{Name: "market", GPUsStatic: 4, Bound: 1, Saving: new(0.9), Within: new(0.95), WithinStatic: new(1.), SlowdownP95: &c.got, SlowdownStatic: &c.bound}
		s.aim()
		if x := s.Targets[2]; x.Met != c.met || x.Forbidden != c.forbidden {
			t.Errorf("slowdown %g, bound %g: got %+v", c.got, c.bound, x)
		}
	}
}
