package engine

import (
	"fmt"
	"strings"

	"github.com/gpupool/gpupool/internal/work"
)

// Words says where a rollout stands, a line for it and one for each step.
func (r *Rollout) Words(now work.Time) []string {
	var out []string
	head := fmt.Sprintf("rollout of %s by %s, %s a step, waits at most %g times those before", r.Mode, r.By, work.FormatDuration(r.For), r.Waits)
	switch {
	case r.Until == 0:
		head += fmt.Sprintf("; %s: %s", strings.ReplaceAll(string(r.How), "_", " "), r.Why)
	case r.At < 0:
		head += fmt.Sprintf("; measuring the baseline for another %s", inSeconds(r.Until.Sub(now)))
	default:
		head += fmt.Sprintf("; step %d of %d is on trial for another %s", r.At+1, len(r.Steps), inSeconds(r.Until.Sub(now)))
	}
	out = append(out, head)
	for i, s := range r.Steps {
		out = append(out, fmt.Sprintf("%s: %s; before: %s; on trial: %s", s, r.StepState(i), s.Baseline, s.Trial))
	}
	return out
}

// StepState is where the i-th step of a rollout stands.
func (r *Rollout) StepState(i int) string {
	switch {
	case i > r.At:
		return "waiting"
	case r.How == RolloutBack:
		return "rolled back"
	case i == r.At && r.Until != 0:
		return "on trial"
	case i == r.At && r.How == RolloutStopped:
		return "kept"
	}
	return "passed"
}

func (m Measure) String() string {
	if m == (Measure{}) {
		return "nothing"
	}
	return fmt.Sprintf("%d tasks waited %s on average, %d of %d failed", m.Waits, inSeconds(m.Mean()), m.Failed, m.Ended)
}
