package storm

import (
	"slices"

	"github.com/gpupool/gpupool/internal/gpu"
)

// shrinkTries bounds how often a history is played again to make it shorter.
const shrinkTries = 1500

// shrink returns the shortest history that it can find in which the same kind of thing goes
// wrong: steps are left out, many at a time, then fewer, then one by one (delta debugging).
// Each step has a seed of its own, so what is left does what it did.
func shrink(p plan, kind string, fails func(plan) string) plan {
	tries := 0
	still := func(steps []step) bool {
		tries++
		q := p
		q.steps = steps
		return fails(q) == kind
	}
	for size := (len(p.steps) + 1) / 2; size > 0 && tries < shrinkTries; {
		cut := false
		for at := 0; at < len(p.steps) && tries < shrinkTries; {
			end := min(at+size, len(p.steps))
			if rest := slices.Concat(p.steps[:at], p.steps[end:]); still(rest) {
				p.steps, cut = rest, true
				continue
			}
			at = end
		}
		switch {
		case !cut || size > len(p.steps):
			size = min(size/2, (len(p.steps)+1)/2)
		case size == 1: // once more, as what was left out may have been what another was needed for
		}
	}
	return p
}

// failing plays a history and returns the kind of what went wrong, or "".
func failing(geometries []*gpu.Geometry, bug *planted) func(plan) string {
	return func(p plan) string {
		w, err := newWorld(p, geometries, bug)
		if err != nil {
			return ""
		}
		return kindOf(w.play())
	}
}
