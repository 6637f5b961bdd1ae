package trace

import (
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"time"
)

// window is how long a client's rate is taken to stay the same.
const window = 10 * time.Minute

// maxCV bounds how bursty arrivals in a window can be. ServeGen's m-small has 4 % of
// its windows above: those saw one long silence, and drawn at a small model's rate
// they would put all its requests of a day into one moment.
const maxCV = 10

// client is how calls of one client come: windows, one after the other.
type client struct {
	rate []float64 // of each window, in any unit
	cv   []float64 // coefficient of variation of the gaps in it
}

func (c *client) mean() float64 {
	sum := 0.0
	for _, r := range c.rate {
		sum += r
	}
	return sum / float64(len(c.rate))
}

// days is the number of days at which a pattern can begin.
func (c *client) days() int { return max(1, len(c.rate)/int(24*time.Hour/window)) }

// from returns the windows of a length from the beginning of a day on, going round at
// the end. It returns false when nothing comes in them.
func (c *client) from(day int, length time.Duration) (client, bool) {
	n := int((length + window - 1) / window)
	out := client{make([]float64, n), make([]float64, n)}
	first, some := day*int(24*time.Hour/window), false
	for i := range n {
		k := (first + i) % len(c.rate)
		out.rate[i], out.cv[i] = c.rate[k], c.cv[k]
		some = some || c.rate[k] > 0
	}
	if rest := length % window; rest > 0 {
		out.rate[n-1] *= float64(rest) / float64(window)
	}
	return out, some
}

// anyDay returns the windows from one of the days that have calls.
func (c *client) anyDay(rng *rand.Rand, length time.Duration) client {
	for _, d := range rng.Perm(c.days()) {
		if out, some := c.from(d, length); some {
			return out
		}
	}
	out, _ := c.from(0, length)
	for i := range out.rate {
		out.rate[i], out.cv[i] = 1, 1 // only a client without any call gets here
	}
	return out
}

// arrivals draws the times of n calls within a length.
//
// With Λ(t) the integral of the rate up to t, calls are a Gamma renewal process in
// the time Λ: gaps of shape 1/CV², CV that of the window in which a gap begins. So within
// a window of constant rate they are a Gamma renewal process with the client's CV, and a
// gap may reach over windows, as it must where a window holds less than one call. The
// process begins at a random place, goes round once and is scaled to Λ's end: exactly n
// calls come.
func (c *client) arrivals(rng *rand.Rand, n int, length time.Duration) []time.Duration {
	if n == 0 {
		return nil
	}
	until := make([]float64, len(c.rate)) // Λ at the end of each window
	sum := 0.0
	for i, r := range c.rate {
		sum += r
		until[i] = sum
	}
	at := func(x float64) int {
		return min(sort.Search(len(until), func(i int) bool { return until[i] > x }), len(until)-1)
	}
	wrap := func(x float64) float64 { return math.Mod(x, sum) }
	begin, pos := rng.Float64()*sum, 0.0
	places := make([]float64, n)
	for i := range places {
		cv := c.cv[at(wrap(begin+pos))]
		pos += gamma(rng, 1/(cv*cv)) * sum / float64(n)
		places[i] = pos
	}
	out := make([]time.Duration, n)
	for i, p := range places {
		share := 0.0
		if pos > 0 { // zero only if all gaps were too small for a float
			share = p / pos
		}
		x := wrap(begin + share*sum)
		k := at(x)
		in := 1 - (until[k]-x)/max(c.rate[k], 1e-300)
		size := min(window, length-time.Duration(k)*window)
		out[i] = min(time.Duration(k)*window+time.Duration(min(max(in, 0), 1)*float64(size)), length-1)
	}
	slices.Sort(out)
	return out
}
