package bench

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
)

// TestElasticDrawn runs what can be drawn, twice: the numbers are the same, and what needs
// traces says that it did not run.
func TestElasticDrawn(t *testing.T) {
	var texts [2]string
	for i := range texts {
		r, err := Elastic(context.Background(), ElasticOptions{Models: 12, Users: 6, Only: []string{"market", "notebooks", "silos-itp", "training-philly"}})
		if err != nil {
			t.Fatal(err)
		}
		r.WallS = 0
		for k := range r.Scenarios {
			r.Scenarios[k].WallS = 0
		}
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(b)
		for _, s := range r.Scenarios[:2] {
			if s.GPUsPooled < 1 || s.GPUsPooled > s.GPUsStatic || *s.IdlePooled < 0 || *s.Within < 0.9 || len(s.Targets) == 0 {
				t.Errorf("%s: got %+v", s.Name, s)
			}
		}
		for _, s := range r.Scenarios[2:] {
			if s.Skipped == "" || len(s.Targets) > 0 {
				t.Errorf("%s without its trace: got %+v", s.Name, s)
			}
		}
	}
	if texts[0] != texts[1] {
		t.Error("the same seed gave other numbers")
	}
	for key := range strings.FieldsSeq("name gpus_static gpus_pooled gpus_shadow shadow_error saving idle_static idle_pooled unused_static unused_pooled wait_mean_ratio slowdown_p95 slowdown_p95_ratio beside work_hours moves_per_task started_within_10s started_within_10s_static bound targets met") {
		if !strings.Contains(texts[0], `"`+key+`":`) {
			t.Errorf("JSON lacks %s", key)
		}
	}
}
