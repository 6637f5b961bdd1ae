package sim

import (
	"context"
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

// Comparison is a trace replayed static and pooled on the same cluster.
type Comparison struct {
	Trace         string   `json:"trace"`
	Synthetic     string   `json:"synthetic,omitempty"` // what of the trace was made up
	Seed          uint64   `json:"seed"`
	Cluster       string   `json:"cluster"`
	VirtualS      float64  `json:"virtual_s"`       // the longer of the two runs
	WallS         float64  `json:"wall_s"`          // both runs together
	DecisionsPerS float64  `json:"decisions_per_s"` // of both columns, by wall time
	Static        Column   `json:"static"`
	Pooled        Column   `json:"pooled"`
	Saved         Saved    `json:"saved"` // by the books of the pooled run
	Notes         []string `json:"notes,omitempty"`

	static, pooled *Outcome
}

// Compare replays the trace in both modes.
func Compare(ctx context.Context, s Setup, cluster string) (*Comparison, error) {
	began := time.Now()
	whole := s.Progress
	half := func(from int) {
		if whole != nil {
			s.Progress = func(done, total int) { whole(from*total+done, 2*total) }
		}
	}
	half(0)
	static, err := Run(ctx, s, work.Static)
	if err != nil {
		return nil, err
	}
	half(1)
	pooled, err := Run(ctx, s, work.Dynamic)
	if err != nil {
		return nil, err
	}
	c := &Comparison{
		Trace: s.Trace.Name, Synthetic: s.Trace.Synthetic, Seed: s.Seed, Cluster: cluster,
		VirtualS: max(static.Virtual, pooled.Virtual).Seconds(), WallS: time.Since(began).Seconds(),
		Static: static.Column, Pooled: pooled.Column, Saved: pooled.Saved, Notes: notes(s), static: static, pooled: pooled,
	}
	c.DecisionsPerS = float64(static.Decisions+pooled.Decisions) / c.WallS
	return c, nil
}

// notes says what a reader must know to take the numbers for what they are.
func notes(s Setup) []string {
	var out []string
	have := map[string]bool{}
	for _, h := range s.Hosts {
		for _, g := range h.GPUs {
			have[g.Model] = true
		}
	}
	for _, t := range s.Trace.Tasks {
		if len(t.Models) > 0 && !have[t.Models[0]] {
			out = append(out, "GPU models that the trace asks for and the cluster lacks are not asked for")
			break
		}
	}
	for _, x := range s.Trace.Skipped {
		out = append(out, x.String())
	}
	return out
}
