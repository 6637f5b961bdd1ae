package storm

import (
	"math/rand/v2"
)

// act is what one step of a history does.
type act uint8

// The acts, and how often each is drawn.
const (
	submits act = iota
	retries
	cancels
	leases   // an outside client renews its lease or gives it back
	asks     // hold, wake, park, preempt, resize, …
	settings // pools, tenants, modes
	carries  // a command is carried out
	answers  // answers arrive
	exits    // a process ends by itself
	obeys    // a process that was told to ends
	observes // a look at the driver sets out
	measures
	ticks
	lulls // time passes and nothing arrives
	rests // everything arrives that is under way
	crashes
	diskFaults
	cuts // the driver, or the runner, is cut off, or is back
	hostFaults
	reboots
	gpuFaults
	clockJumps
	actCount = iota
)

var weights = [actCount]int{submits: 14, retries: 3, cancels: 2, leases: 2, asks: 6, settings: 2, carries: 28, answers: 34, exits: 5, obeys: 6,
	observes: 5, measures: 4, ticks: 4, lulls: 2, rests: 3, crashes: 2, diskFaults: 2, cuts: 2, hostFaults: 1, reboots: 1, gpuFaults: 2, clockJumps: 1}

// step is one act. What it chooses, it draws from a seed of its own, so that the others
// stay as they are when a history is cut short.
type step struct {
	act  act
	seed uint64
}

// temper is what a history is about, beside the usual.
type temper struct {
	idle    bool // tasks have whole GPUs and leave them idle: they are parked, lent and woken
	supple  bool // tasks may be resized and moved
	limited bool // tenants and pools have limits
	calm    bool // nothing fails: what is found then is a bug of plain work
	stormy  bool // much fails
	rolls   bool // modes are rolled out
}

// plan is a whole history before it is played.
type plan struct {
	seed   uint64
	temper temper
	steps  []step
}

// planOf draws the history of a seed.
func planOf(seed uint64, n int) plan {
	rng := rand.New(rand.NewPCG(seed, 3))
	one := func(in int) bool { return rng.IntN(in) == 0 }
	p := plan{seed: seed, temper: temper{idle: one(3), limited: one(2), calm: one(12), stormy: one(4), rolls: one(6)}}
	p.temper.supple = !p.temper.idle && one(3)
	w := weights
	for a := crashes; a < actCount; a++ {
		switch {
		case p.temper.calm:
			w[a] = 0
		case p.temper.stormy:
			w[a] *= 3
		}
	}
	if p.temper.idle || p.temper.supple {
		w[asks], w[measures], w[submits], w[exits] = 3*w[asks], 2*w[measures], w[submits]/2, 2
	}
	total := 0
	for _, x := range w {
		total += x
	}
	for range min(rng.IntN(10), n/10) { // so that there is something to go wrong
		p.steps = append(p.steps, step{submits, rng.Uint64()})
	}
	p.steps = append(p.steps, step{rests, rng.Uint64()})
	for len(p.steps) < n {
		r := rng.IntN(total)
		a := submits
		for ; r >= w[a]; a++ {
			r -= w[a]
		}
		p.steps = append(p.steps, step{a, rng.Uint64()})
	}
	return p
}
