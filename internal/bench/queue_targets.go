package bench

import (
	"fmt"
	"slices"
	"strings"
)

// starvedAfter times fifo's 99th percentile is when a task counts as starved.
const starvedAfter = 10

// queueGoal is a target with how it is told and shown.
type queueGoal struct {
	name        string
	least, most *float64
	head        string // of its column
	value       func(r *QueueRun) *float64
	text        func(x float64) string
}

func queueGoals() []queueGoal {
	n := func(x float64) *float64 { return &x }
	percent := func(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }
	return []queueGoal{
		{"mean_below_fifo", n(0.5), nil, "mean below fifo", func(r *QueueRun) *float64 { return r.MeanBelowFIFO }, percent},
		{"p99_over_fifo", nil, n(1.10), "p99 over fifo", func(r *QueueRun) *float64 { return r.P99OverFIFO },
			func(x float64) string { return fmt.Sprintf("%.2f", x) }},
		{"starved", nil, n(0), "starved", func(r *QueueRun) *float64 { return n(float64(r.of(policyOurs).Starved)) },
			func(x float64) string { return fmt.Sprintf("%.0f", x) }},
		{"way_to_oracle", n(0.5), nil, "way to oracle", func(r *QueueRun) *float64 { return r.WayToOracle }, percent},
		{"p90_coverage", n(0.85), n(0.95), "within p90", func(r *QueueRun) *float64 { return r.of(policyOurs).Coverage }, percent},
	}
}

func queueTargets() (out []QueueTarget) {
	for _, g := range queueGoals() {
		out = append(out, QueueTarget{g.name, g.least, g.most})
	}
	return out
}

// short is by how much a value misses the target; 0 = it does not.
func (g *queueGoal) short(x float64) float64 {
	switch {
	case g.least != nil && x < *g.least:
		return *g.least - x
	case g.most != nil && x > *g.most:
		return x - *g.most
	}
	return 0
}

// wanted says what the target is.
func (g *queueGoal) wanted() string {
	switch {
	case g.least == nil && *g.most == 0:
		return "none"
	case g.least == nil:
		return "at most " + g.text(*g.most)
	case g.most == nil:
		return "at least " + g.text(*g.least)
	}
	return g.text(*g.least) + " to " + g.text(*g.most)
}

// derive fills in what follows from the policies' numbers.
func (r *QueueRun) derive() {
	fifo, oracle, ours := r.of(policyFIFO), r.of(policyOracle), r.of(policyOurs)
	limit := starvedAfter * fifo.WaitP99
	for i := range r.Policies {
		p := &r.Policies[i]
		first, _ := slices.BinarySearchFunc(p.waits, limit, func(wait, limit float64) int {
			if wait <= limit {
				return -1
			}
			return 1
		})
		p.Starved = len(p.waits) - first
	}
	r.MeanBelowFIFO = ratio(fifo.WaitMean-ours.WaitMean, fifo.WaitMean)
	r.MeanBelowBackfill = ratio(r.of(policyBackfill).WaitMean-ours.WaitMean, r.of(policyBackfill).WaitMean)
	r.WayToOracle = ratio(fifo.WaitMean-ours.WaitMean, fifo.WaitMean-oracle.WaitMean)
	r.P99OverFIFO = ratio(ours.WaitP99, fifo.WaitP99)
	r.Met = map[string]bool{}
	for _, g := range queueGoals() {
		if x := g.value(r); x != nil {
			r.Met[g.name] = g.short(*x) == 0
		}
	}
}

// ratio is nil where it would say nothing.
func ratio(of, to float64) *float64 {
	if to <= 0 {
		return nil
	}
	x := of / to
	return &x
}

// misses says in words which targets a run misses, and by how much.
func (r *QueueRun) misses() (out []string) {
	for _, g := range queueGoals() {
		if x := g.value(r); x != nil {
			if short := g.short(*x); short > 0 {
				out = append(out, fmt.Sprintf("missed: %s at %g: %s %s, wanted %s: off by %s", r.Trace, r.Demand, g.head, g.text(*x), g.wanted(),
					strings.Replace(g.text(short), "%", "points", 1)))
			}
		}
	}
	return out
}
