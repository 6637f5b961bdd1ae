package trace

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"time"
)

// NotebookOptions say what notebooks to draw. A zero takes the default.
type NotebookOptions struct {
	Users   int     // default 64
	Days    int     // working days, five a week from a Monday on; default 5
	Busy    float64 // mean share of a session in which a cell runs; default 0.125
	Tenants int     // default 8
	Seed    uint64
}

// Assumptions of Notebooks. None is measured: the one published trace of notebooks
// with their cells is not among the public ones we hold, and ../shared/facts says of
// notebooks only that they keep GPUs idle (peers.md 27: determined#3884,
// odh-manifests#265, dstack#2374).
const (
	comes       = 0.8         // chance that a user opens a notebook on a working day
	opens       = 10 * 3600.0 // s after midnight, mean
	opensSD     = 1.5 * 3600  // s
	session     = 4 * 3600.0  // s, median, lognormal
	sessionSD   = 0.5         //
	sessionLow  = 20 * 60.0   // s
	sessionHigh = 12 * 3600.0 // s
	cell        = 20.0        // s, median, lognormal: mean 41 s, one in a hundred over 5 min
	cellSD      = 1.2         //
	think       = 30.0        // s between cells of a burst, median, lognormal
	thinkSD     = 0.8         //
	goesOn      = 5.0 / 6     // chance that another cell follows: bursts of 6 in the mean
	pauseTail   = 1.5         // exponent of the pauses between bursts (Pareto)
	kernel      = 20.0        // s until a kernel can run a cell, median, lognormal
	kernelSD    = 0.4         //
	notebookMiB = 8 * 1024.0  // GPU memory in use, median, lognormal
	notebookSD  = 0.8         //
	notebookTop = 40 * 1024   // MiB, most
	pauseLow    = 1.0         // s, range in which the least pause is sought
	pauseHigh   = 4 * 3600.0  // s
)

// Notebooks draws sessions of people with a notebook on one GPU each: bursts of
// cells, with pauses from minutes to hours. Everything about them is an assumption, named
// beside its constant. That sessions are long and their GPUs idle for most of them is
// published (Carver et al., NotebookOS, arXiv 2503.20591); how idle is not, in the facts
// we hold: Busy is assumed.
//
//	a session  on each working day with chance 0.8, from about 10 h on, lognormal with
//	           median 4 h and σ 0.5, 20 min to 12 h
//	a burst    cells, geometric with mean 6, lognormal with median 20 s and σ 1.2; between
//	           them 30 s, σ 0.8
//	a pause    between bursts: Pareto of exponent 1.5 from p on; p is sought so that over
//	           all sessions the cells' share is Busy (about 10 min for 0.125: two in five
//	           pauses are then over 20 min, one in fourteen over an hour)
func Notebooks(o NotebookOptions) (*Trace, error) {
	o.Users, o.Days, o.Tenants, o.Busy = cmp.Or(o.Users, 64), cmp.Or(o.Days, 5), cmp.Or(o.Tenants, 8), cmp.Or(o.Busy, 0.125)
	switch {
	case o.Users < 1 || o.Users > maxModels || o.Days < 1 || o.Days > 366 || o.Users*o.Days > maxModels:
		return nil, fmt.Errorf("notebooks: expected 1 or more users and working days, at most 366 days and %d of both multiplied, got %d and %d", maxModels, o.Users, o.Days)
	case o.Tenants < 1:
		return nil, fmt.Errorf("tenants: expected 1 or more, got %d", o.Tenants)
	case !(o.Busy >= 0.02 && o.Busy <= 0.4):
		return nil, fmt.Errorf("busy: expected 0.02 to 0.4 (beyond it there is no pause between bursts), got %g", o.Busy)
	}
	t := &Trace{Name: "notebooks", Source: "gpupool's assumptions", Licence: "Apache-2.0"}
	t.Tasks = o.sessions()
	least := o.leastPause(t.Tasks)
	for i := range t.Tasks {
		t.Tasks[i].addCells(o.Seed, i, least)
	}
	t.Synthetic = fmt.Sprintf("notebooks of %d users on %d working days, made up: sessions of 4 h (median), bursts of cells, pauses of %s or more (Pareto, %g), cells in %.3g of the time (seed %d)",
		o.Users, o.Days, seconds(least).Round(time.Second), pauseTail, o.Busy, o.Seed)
	return t.settle("notebooks")
}

// sessions draws who has a notebook open when.
func (o NotebookOptions) sessions() []Task {
	rng := rand.New(rand.NewPCG(o.Seed, 0x40be))
	var out []Task
	for user := range o.Users {
		tenant, used := fmt.Sprintf("tenant-%d", 1+rng.IntN(o.Tenants)), int64(min(lognormal(rng, notebookMiB, notebookSD), notebookTop))
		for d := range o.Days {
			here, opened, long, load := rng.Float64() < comes, rng.NormFloat64()*opensSD+opens, lognormal(rng, session, sessionSD), lognormal(rng, kernel, kernelSD)
			if !here && len(out) > 0 { // the first comes in any case: a trace has a task
				continue
			}
			day := d/5*7 + d%5
			out = append(out, Task{Name: fmt.Sprintf("notebook-%d-%d", user+1, d+1), Tenant: tenant, Priority: "normal", Class: Interactive, GPUs: 1,
				Submit: time.Duration(day)*24*time.Hour + seconds(max(0, opened)), Duration: seconds(min(max(long, sessionLow), sessionHigh)), Load: seconds(load), UsedMiB: used})
		}
	}
	return out
}

// leastPause seeks the least pause with which cells run for the share Busy of all
// sessions. Each session draws the same numbers whatever the pause, so the longer it
// is the fewer cells there are, nearly without exception.
func (o NotebookOptions) leastPause(sessions []Task) float64 {
	low, high := pauseLow, pauseHigh
	for range 16 {
		least, busy, all := (low+high)/2, 0.0, 0.0
		for i, x := range sessions {
			x.addCells(o.Seed, i, least)
			busy += x.Utilisation * x.Duration.Seconds()
			all += x.Duration.Seconds()
		}
		if busy > o.Busy*all {
			low = least
		} else {
			high = least
		}
	}
	return high
}

// addCells draws a session's cells and its utilisation.
func (x *Task) addCells(seed uint64, i int, least float64) {
	rng := rand.New(rand.NewPCG(seed, 0xce11<<32|uint64(i)))
	x.Requests = nil
	end, busy := (x.Submit + x.Duration).Seconds(), 0.0
	// The first burst comes some minutes after the session begins, at a random place in a pause.
	for at := (x.Submit + x.Load).Seconds() + pareto(rng, least, pauseTail)*rng.Float64(); at < end; at += pareto(rng, least, pauseTail) {
		for more := true; more && at < end; more = rng.Float64() < goesOn {
			takes := min(lognormal(rng, cell, cellSD), end-at)
			if takes < 0.001 {
				break
			}
			x.Requests = append(x.Requests, Request{At: seconds(at), Takes: seconds(takes)})
			busy += takes
			at += takes + lognormal(rng, think, thinkSD)
		}
	}
	x.Utilisation = busy / x.Duration.Seconds()
}
