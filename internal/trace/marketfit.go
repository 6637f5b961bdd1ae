package trace

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// Fits of genai2026. "By likelihood" is the mean and deviation of the logarithms.
const (
	fitZipfS      = 1.43  // exponent of popularity by rank, by likelihood: 26,798 requests for 86 base models
	fitTakes      = 30.5  // s, median of an inference; 6,254 samples, by likelihood
	fitTakesSD    = 0.75  // so the mean is 40 s; measured: 39 s
	fitLoad       = 22.7  // s, median of a base model's load; 7,531 samples
	fitLoadSD     = 0.42  // from the 95th percentile: ln(45.4/22.7)/1.645; the quarter that takes 3 s is left out
	fitMemory     = 38000 // MiB, median over 144 containers of the most each used
	fitMemorySD   = 0.13  // from the 95th percentile: ln(47,142/38,000)/1.645
	fitMemoryMost = 48478 // MiB, the most of all
	fitDuty       = 0.07  // mean of 157,417 samples of 143 containers
)

// Fits of ServeGen's m-small: 43 clients, 2,016 windows each.
const (
	fitClients = 43
	fitWindows = 2016 // 14 days
	fitHalf    = 0.5  // the place among clients, busiest first, at which one is on for half of the windows; by eye
	fitSlope   = 0.08 // how fast that falls with the place, by eye: 98 % at a fifth, 2 % at four fifths
	fitLeastOn = 0.003
	fitDaily   = 0.3 // a day's swing of the steady clients: 0.56 of the mean at 5 h, 1.3 at 21 h
	fitPeak    = 18  // h, middle of the busy half
	fitSpread  = 0.91
	fitKeeps   = 0.9  // correlation of a window with the next: assumed
	fitCV      = 1.69 // median of the CV of gaps, 40,095 windows, by likelihood
	fitCVSD    = 0.78
	minCV      = 0.05 // the least measured
)

// fitted returns a market's parts from formulas alone:
//
//	popularity   r^-1.43 by rank r
//	takes        lognormal, median 30.5 s, σ 0.75
//	loads        lognormal, median 22.7 s, σ 0.42
//	memory       lognormal, median 38,000 MiB, σ 0.13, at most 48,478 MiB
//	a client     at place u of 0 to 1, busiest first, is on for a(u) = 1/(1+e^((u−0.5)/0.08))
//	             of its windows, in runs of 100·a windows in the mean (152 measured at
//	             a = 0.98, 2 at a < 0.01); while on its rate is
//	             (1 + 0.3·cos(2π(h−18)/24))·e^(0.91·z), z a normal AR(1) of 0.9 a window;
//	             its CV is lognormal, median 1.69, σ 0.78, of 0.05 to 10, one for all windows
func fitted(seed uint64) *serving {
	lognormals := func(median, sd, most float64) dist {
		return func(rng *rand.Rand) float64 { return min(lognormal(rng, median, sd), most) }
	}
	s := &serving{
		zipf: fitZipfS, takes: lognormals(fitTakes, fitTakesSD, 3600), takesMean: fitTakes * math.Exp(fitTakesSD*fitTakesSD/2),
		loads: lognormals(fitLoad, fitLoadSD, 600), memory: lognormals(fitMemory, fitMemorySD, fitMemoryMost), duty: fitDuty,
	}
	rng := rand.New(rand.NewPCG(seed, 0xf17))
	for i := range fitClients {
		s.clients = append(s.clients, fittedClient(rng, (float64(i)+0.5)/fitClients))
	}
	return s
}

// fittedClient draws the windows of the client at place u. Rates of clients differ by
// their place alone: what a model takes from one is relative to its mean.
func fittedClient(rng *rand.Rand, u float64) client {
	share := max(fitLeastOn, 1/(1+math.Exp((u-fitHalf)/fitSlope)))
	run := max(2, 100*share)
	leave, enter := 1/run, min(1, share/(1-share)/run)
	c := client{make([]float64, fitWindows), make([]float64, fitWindows)}
	cv := min(max(lognormal(rng, fitCV, fitCVSD), minCV), maxCV)
	on, z := rng.Float64() < share, rng.NormFloat64()
	for i := range c.rate {
		hour := float64(i%144) / 6
		if on {
			c.rate[i] = (1 + fitDaily*math.Cos(2*math.Pi*(hour-fitPeak)/24)) * math.Exp(fitSpread*z)
		}
		c.cv[i] = cv
		z = fitKeeps*z + math.Sqrt(1-fitKeeps*fitKeeps)*rng.NormFloat64()
		if on {
			on = rng.Float64() >= leave
		} else {
			on = rng.Float64() < enter
		}
	}
	if c.mean() == 0 {
		c.rate[rng.IntN(fitWindows)] = 1 // a client has calls, or it would not be one
	}
	return c
}

// byRate sorts clients, the busiest first.
func byRate(list []client) {
	slices.SortStableFunc(list, func(a, b client) int { return cmp.Compare(b.mean(), a.mean()) })
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}
