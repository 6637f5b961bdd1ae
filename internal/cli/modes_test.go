package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/work"
)

// TestModeEvents puts facts about modes into words, as the engine states them.
func TestModeEvents(t *testing.T) {
	at := time.Date(2026, 12, 2, 20, 0, 0, 0, time.UTC)
	for want, f := range map[string]engine.Fact{
		"pool p is static: it fell back by itself: 9 of 10 moves failed; gpupool pools shows the last moves": engine.ModeSet{Pool: "p", Mode: work.Static, By: engine.ByGuard, Reason: "9 of 10 moves failed", Log: []string{"x"}},
		"pool p is shadow, set by ann":                                         engine.ModeSet{Pool: "p", Mode: work.Shadow, By: "ann"},
		"pool p for tenant a is as its settings say, set by rollout: it waits": engine.ModeSet{Pool: "p", Tenant: "a", By: "rollout", Reason: "it waits"},
		"would park: not used":                                                 engine.Shadowed{Task: 1, Move: work.MovePark, Reason: work.Reasonf(work.Idle, "not used")},
		"rollout of dynamic in 2 steps begun by ann: the baseline is measured": engine.RolloutBegan{Rollout: engine.Rollout{By: "ann", Mode: work.Dynamic, Steps: make([]engine.RolloutStep, 2)}},
		"step 2 of the rollout is on trial until ":                             engine.RolloutStepped{Step: 1, Until: work.TimeOf(at)},
		"the rollout has ended, rolled back: tasks waited":                     engine.RolloutEnded{How: engine.RolloutBack, Why: "tasks waited"},
	} {
		got, err := eventText(apitype.Event{At: at, Kind: f.Kind(), Fact: f})
		if err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %q, %v, want %q", f.Kind(), got, err, want)
		}
	}
}

func TestLendingTable(t *testing.T) {
	var b bytes.Buffer
	lendingTable(&b, []loan{
		{"q", apitype.Loan{Borrower: "p", GPUs: 1.5, GPUHours: 20.25, Loans: 7, Called: 2, MeanS: 12, LongestS: 75}},
		{"q", apitype.Loan{Borrower: "r", Loans: 1}},
	})
	for _, want := range []string{"q       p         1.5       20.25      7      2           12s      1m15s", "q       r         0         0          1      0           -        -"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}

func TestModeTables(t *testing.T) {
	got := aboutModes(apitype.Pool{Name: "p", Mode: "static", Fallback: "pool p fell back", ModeLog: []string{"a move"}, TenantModes: map[string]string{"b": "dynamic", "a": "shadow"}})
	want := "pool p fell back|  a move|pool p is shadow for tenant a|pool p is dynamic for tenant b"
	if strings.Join(got, "|") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	var b bytes.Buffer
	now := time.Now()
	shadowTable(&b, []apitype.Shadow{{Pool: "p", Mode: "shadow", Since: now.Add(-2 * time.Hour), GPUs: 249, Needed: 44, Mean: 20.93, Parks: 10, Wakes: 9, Idle: 0.93, IdleIf: 0.21, Sentence: "shadow holds 249 GPUs"}}, now)
	for _, want := range []string{"p     shadow  2h00m  249   44             20.93       19     93 %  21 %", "p: shadow holds 249 GPUs"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}
