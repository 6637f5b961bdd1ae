package trace

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// dist is a distribution that can be drawn from.
type dist func(*rand.Rand) float64

// lognormal draws with a median and the standard deviation of the logarithm.
func lognormal(rng *rand.Rand, median, sd float64) float64 {
	return median * math.Exp(sd*rng.NormFloat64())
}

// pareto draws what is above least with chance (least/x)^alpha.
func pareto(rng *rand.Rand, least, alpha float64) float64 {
	return least * math.Pow(1-rng.Float64(), -1/alpha)
}

// gamma draws with a shape and mean 1 (Marsaglia and Tsang, 2000). A shape under 1 is
// drawn as one more, times U^(1/shape).
func gamma(rng *rand.Rand, shape float64) float64 {
	more := 1.0
	a := shape
	if a < 1 {
		more = math.Pow(1-rng.Float64(), 1/a)
		a++
	}
	d := a - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := rng.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		if math.Log(1-rng.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v * more / shape
		}
	}
}

// oneOf draws one of the values that were measured.
func oneOf(values []float64) dist {
	return func(rng *rand.Rand) float64 { return values[rng.IntN(len(values))] }
}

// seconds turns seconds into a duration within bounds.
func seconds(s float64) time.Duration {
	return time.Duration(min(s, maxSeconds) * float64(time.Second))
}

// zipf returns the shares of n ranks, rank r's as r^-s.
func zipf(n int, s float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = math.Pow(float64(i+1), -s)
	}
	return normal(out)
}

// normal scales shares to a sum of 1.
func normal(shares []float64) []float64 {
	sum := 0.0
	for _, x := range shares {
		sum += x
	}
	for i := range shares {
		shares[i] /= sum
	}
	return shares
}

// fitZipf returns the exponent under which counts by rank, largest first, are most
// likely: the one whose expectation of ln(rank) is the measured one.
func fitZipf(counts []float64) float64 {
	shares := normal(slices.Clone(counts))
	expect := func(p []float64) (sum float64) {
		for i, x := range p {
			sum += x * math.Log(float64(i+1))
		}
		return sum
	}
	want, low, high := expect(shares), 0.0, 10.0
	for range 60 {
		if s := (low + high) / 2; expect(zipf(len(counts), s)) > want {
			low = s
		} else {
			high = s
		}
	}
	return (low + high) / 2
}
