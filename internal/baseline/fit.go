package baseline

import (
	"math"
	"math/rand/v2"
)

// The rules that look at CPU and GPU as sizes, without asking which GPUs are whole.
const (
	// Random draws a host, each of those that the task fits on equally likely. A share gets a GPU drawn in the same
	// way among those of the host that have room. It is the floor that Weng et al. (ATC '23) compare with.
	Random Rule = "random"

	// BestFit takes the host that would have least left, as Protean does (Hadary et al., OSDI '20) and as a heuristic
	// for vector bin packing (Panigrahy et al., 2011). Its score is
	//
	//	100 · (1 − ½·(free CPU − CPU)/128 cores − ½·(free GPU − GPU)/8 GPUs)
	//
	// rounded down; memory is not weighed. A share gets the fullest GPU with room.
	BestFit Rule = "best-fit"

	// DotProduct weighs what is free by what is asked for, as Tetris does (Grandl et al., SIGCOMM '14). Its score is
	//
	//	100 · (1 − ½·(free CPU·CPU/(128 cores)² + free GPU·GPU/(8 GPUs)²))
	//
	// rounded down. Note the sign: Tetris prefers the largest product, the published simulator, and so this rule, the
	// smallest. A share gets the fullest GPU with room.
	DotProduct Rule = "dot-product"
)

// The largest host of the published experiment, by which sizes are normalised. A larger one gets scores below 0 and
// above 100, which order it among the others all the same.
const (
	maxCPU = 128_000 // thousandths of a core
	maxGPU = 8 * milliGPU
)

// tightest gives a share the fullest GPU with room, of equals the first.
type tightest struct{}

func (tightest) gpu(h *host, t *Task) int {
	at := -1
	for g, f := range h.free {
		if f >= t.Milli && (at < 0 || f < h.free[at]) {
			at = g
		}
	}
	return at
}

type random struct{ rng *rand.Rand }

func (random) score(*host, *Task) int { return 0 } // all tie, and the cluster draws

func (r random) gpu(h *host, t *Task) int {
	at, n := -1, 0
	for g, f := range h.free {
		if f < t.Milli {
			continue
		}
		n++
		if r.rng.IntN(n) == 0 {
			at = g
		}
	}
	return at
}

type bestFit struct{ tightest }

// Here and below, products are converted before they are added, so that no platform fuses the two and rounds another
// way than the others.
func (bestFit) score(h *host, t *Task) int {
	cpu := float64(h.cpu-t.CPUMilli) / maxCPU
	gpu := float64(h.left-t.milli()) / maxGPU
	return int((1 - (float64(cpu*0.5) + float64(gpu*0.5))) * 100)
}

type dotProduct struct{ tightest }

func (dotProduct) score(h *host, t *Task) int {
	cpu := float64(h.cpu) / maxCPU * (float64(t.CPUMilli) / maxCPU)
	gpu := float64(h.left) / maxGPU * (float64(t.milli()) / maxGPU)
	return int(max((1-(float64(cpu)+float64(gpu))/2)*100, math.MinInt32)) // two huge sizes may leave int's range
}
