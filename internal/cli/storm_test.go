package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gpupool/gpupool/internal/storm"
)

func TestStorm(t *testing.T) {
	code, out, errs := runApp(t.Context(), "storm", "--seeds", "3", "--seed", "5", "--json")
	var r storm.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || errs != "" {
		t.Fatalf("exit code %d, %v, %s", code, err, errs)
	}
	if r.Seeds != 3 || r.Seed != 5 || r.Steps != 3*storm.DefaultSteps || r.Violations != 0 || r.Acknowledged == 0 || r.Faults["crash"] == 0 {
		t.Errorf("got %+v", r)
	}
	code, out, _ = runApp(t.Context(), "storm", "--seeds", "3", "--seed", "5")
	for _, want := range []string{"histories", "violations", "lost", "doubled", "append reply lost", "digest " + r.Digest} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, and nothing of %q in\n%s", code, want, out)
		}
	}
}

func TestStormRefuses(t *testing.T) {
	for _, args := range []string{"--seeds 0", "--steps -1", "--seeds 100000000", "--seed -1", "more"} {
		if code, _, errs := runApp(t.Context(), append([]string{"storm"}, strings.Fields(args)...)...); code != exitUsage {
			t.Errorf("storm %s: exit code %d, %s", args, code, errs)
		}
	}
}

func TestStormText(t *testing.T) {
	var b strings.Builder
	stormText(&b, &storm.Result{Seeds: 10, Seed: 1, Violations: 2, Lost: 1, Digest: "00ff", Failures: []storm.Failure{
		{Seed: 3, Kind: "lost", What: "task 1 was acknowledged, and is not known", Step: 80, Shrunk: 4, Script: "a.txt", Log: "a.log", Again: "gpupool storm --seeds 1 --seed 3 --steps 150"}}}, false)
	for _, want := range []string{"seed 3: lost: task 1", "shrunk to 4; again: gpupool storm", "script a.txt, log a.log", "and 1 more", "seeds 1 to 10"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("nothing of %q in\n%s", want, b.String())
		}
	}
}
