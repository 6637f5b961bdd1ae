package trace

import (
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// CDF is a distribution of the utilisation of GPUs: points of a share (0 to 1) and how
// much of the samples is at or below it.
type CDF struct {
	name   string
	points []cdfPoint
}

type cdfPoint struct{ at, below float64 }

// Bounds of what a published CDF may be off by: pai's first rows fall by some
// thousandths of a per cent, and it ends at 99.7 %.
const (
	cdfSlack = 0.5 // per cent
	cdfEnd   = 99  // per cent that the last row must reach
)

// ReadCDF reads a file of gpu_util_percent,cumulative_percent.
func ReadCDF(path string) (*CDF, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseCDF(path, f)
}

func parseCDF(path string, r io.Reader) (*CDF, error) {
	tab, err := newTable(path, r)
	if err != nil {
		return nil, err
	}
	if err := tab.need([]string{"gpu_util_percent", "cumulative_percent"}); err != nil {
		return nil, err
	}
	c := &CDF{name: strings.TrimSuffix(filepath.Base(path), ".csv")}
	at, below := 0.0, 0.0
	err = tab.each(func() error {
		x, okX, err := tab.number("gpu_util_percent", 100)
		if err != nil {
			return err
		}
		y, okY, err := tab.number("cumulative_percent", 100)
		switch {
		case err != nil:
			return err
		case !okX || !okY:
			return tab.bad("expected gpu_util_percent and cumulative_percent, got nothing")
		case x < at-cdfSlack || y < below-cdfSlack:
			return tab.bad("a cumulative distribution does not fall: after %g,%g came %g,%g", at, below, x, y)
		}
		at, below = max(at, x), max(below, y)
		c.points = append(c.points, cdfPoint{at / 100, below / 100})
		return nil
	})
	if err != nil {
		return nil, err
	}
	if below < cdfEnd {
		return nil, &Error{Path: path, Msg: fmt.Sprintf("the last row says that %g %% of the samples are counted: expected %d or more", below, cdfEnd)}
	}
	for i := range c.points {
		c.points[i].below /= below / 100
	}
	return c, nil
}

// Quantile returns the share that q of the samples are at or below, linear between
// the points.
func (c *CDF) Quantile(q float64) float64 {
	i, _ := slices.BinarySearchFunc(c.points, q, func(p cdfPoint, q float64) int {
		if p.below < q {
			return -1
		}
		return 1
	})
	if i == 0 || i == len(c.points) {
		return c.points[min(i, len(c.points)-1)].at
	}
	a, b := c.points[i-1], c.points[i]
	return a.at + (b.at-a.at)*(q-a.below)/(b.below-a.below)
}

// Assumptions of Utilise.
const (
	cycle     = 10 * time.Minute // median of a cycle of computing and waiting; lognormal
	cycleSD   = 0.7              // of its logarithm
	firstLoad = time.Minute      // median of what a training task loads before it computes; lognormal
	loadSD    = 0.5
	loadMost  = 10 // a load is at most one part in so many of a task's life
)

// Utilise is UtiliseBy with the distribution of a file.
func (t *Trace) Utilise(cdfFile string, seed uint64) (*Trace, error) {
	c, err := ReadCDF(cdfFile)
	if err != nil {
		return nil, err
	}
	return t.UtiliseBy(c, seed), nil
}

// UtiliseBy returns the same work in which each task has a mean utilisation drawn from
// a distribution, a load and phases with that mean. Services, notebooks, tasks with requests or
// phases, and utilisations that the data says, stay: a service without a request that
// day is idle, not training.
//
// The published distributions are of samples at instants. They are used as if each
// task's mean were one such sample. The mean over all tasks is right if utilisation does
// not depend on a task's GPU time; the tasks' means lie further apart than in truth,
// since within one task high and low samples even out.
//
// Phases begin after the load. With m the mean, U uniform in 0 to 1 and L the load, at
// most a tenth of the life D:
//
//	m' = min(1, m·D/(D−L))     after the load, so that m is the mean over all of D
//	h  = m' + (1−m')·U         share of the GPUs in use while it computes
//	    a cycle computes at h for m'/h of it and then waits
//
// so tasks lie evenly between steady (h = m') and on and off (h = 1). The cycles are
// lognormal with a median of ten minutes, fitted so that a whole number fills D−L. None
// of this is measured: no public trace has both a task and its use of GPUs over time.
func (t *Trace) UtiliseBy(c *CDF, seed uint64) *Trace {
	out := *t
	out.Tasks = slices.Clone(t.Tasks)
	rng := rand.New(rand.NewPCG(seed, 0x0711))
	for i := range out.Tasks {
		x := &out.Tasks[i]
		if training := x.Class == "" || x.Class == Training; training && len(x.Requests) == 0 && len(x.Phases) == 0 {
			x.phase(c, rng)
		}
	}
	out.Synthetic = joined(t.Synthetic, fmt.Sprintf("mean utilisations drawn from the samples of %s, loads and phases made up to fit (seed %d)", c.name, seed))
	return &out
}

// phase gives a task a utilisation, a load and phases.
func (x *Task) phase(c *CDF, rng *rand.Rand) {
	m := c.Quantile(rng.Float64())
	loads, length, steady := lognormal(rng, firstLoad.Seconds(), loadSD), lognormal(rng, cycle.Seconds(), cycleSD), rng.Float64()
	if x.Utilisation >= 0 {
		m = x.Utilisation
	}
	if x.Load == 0 {
		x.Load = min(seconds(loads), x.Duration/loadMost)
	}
	life := x.Duration - min(x.Load, x.Duration)
	if life <= 0 {
		x.Utilisation = 0
		return
	}
	after := min(1, m*float64(x.Duration)/float64(life))
	x.Utilisation = after * float64(life) / float64(x.Duration)
	// A whole number of cycles in the life, or the mean would be off by the rest of one.
	each := life / time.Duration(max(1, int(life.Seconds()/length+0.5)))
	high := after + (1-after)*steady
	if after == 0 {
		x.Phases = []Phase{{each, 0}}
		return
	}
	busy := max(1, time.Duration(float64(each)*after/high)) // a phase of no time would never end
	x.Phases = []Phase{{busy, high}}
	if busy < each {
		x.Phases = append(x.Phases, Phase{each - busy, 0})
	}
}
