package trace

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Assumptions of Restartable. No public trace says which tasks save their work, nor how much
// GPU memory a training task uses.
const (
	savesFrom   = time.Hour       // who runs for longer saves its work when it is told to stop
	savesIn     = 2 * time.Minute // its grace for that
	trainingMiB = 16 * 1024.0     // GPU memory in use on each GPU, median, lognormal
	trainingSD  = 0.7
	trainingTop = 72 * 1024 // MiB, most
)

// Restartable returns the same work in which training that runs for more than an hour saves
// its work when it is told to stop, within two minutes, and so can be started again in
// another size or place; and in which training uses GPU memory. Tasks of which the data says
// either stay.
func (t *Trace) Restartable(seed uint64) *Trace {
	out := *t
	out.Tasks = slices.Clone(t.Tasks)
	rng := rand.New(rand.NewPCG(seed, 0x5a7e))
	saves, training := 0, 0
	for i := range out.Tasks {
		x := &out.Tasks[i]
		if x.Class != "" && x.Class != Training {
			continue
		}
		training++
		used := int64(min(lognormal(rng, trainingMiB, trainingSD), trainingTop))
		if x.UsedMiB == 0 {
			x.UsedMiB = used
			if x.GPUMemoryMiB > 0 { // it asks for a part, and cannot use more
				x.UsedMiB = min(used, x.GPUMemoryMiB)
			}
		}
		if x.Duration > savesFrom && x.Grace == 0 {
			x.Grace = savesIn
			saves++
		}
	}
	out.Synthetic = joined(t.Synthetic, fmt.Sprintf("training of more than %s (%.0f %% of it) is taken to save its work within %s when told to, memory in use made up (seed %d)", savesFrom, 100*float64(saves)/float64(max(training, 1)), savesIn, seed))
	return &out
}

// Computing is the share of the GPU time that training holds in which it computes at least
// so much of its GPUs, if each task has what it asks for and nobody waits.
func (t *Trace) Computing(least float64) float64 {
	on, all := 0.0, 0.0
	for i := range t.Tasks {
		x := &t.Tasks[i]
		gpus := float64(x.GPUs) + float64(x.Milli)/1000
		all += gpus * x.Duration.Seconds()
		cycle, busy := time.Duration(0), time.Duration(0)
		for _, p := range x.Phases {
			if cycle += p.For; p.Compute >= least {
				busy += p.For
			}
		}
		if cycle > 0 {
			on += gpus * max(0, x.Duration-x.Load).Seconds() * float64(busy) / float64(cycle)
		}
	}
	return on / max(all, 1e-9)
}
