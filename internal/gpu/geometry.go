package gpu

import (
	"math/bits"
	"slices"
)

// Geometry answers, by table, what can still be placed on a GPU of one model
// whose taken units are given as a Mask.
type Geometry struct {
	Model  Model
	starts [][]Mask // [profile][state] -> bit s set when start s is legal and free
	count  [][]int8 // [profile][state] -> how many of it fit at most
	room   []int16  // [state] -> Room
}

// NewGeometry computes the tables of a model. The model must be valid.
func NewGeometry(m Model) *Geometry {
	g := &Geometry{Model: m}
	if !m.HasMIG() {
		return g
	}
	n := 1 << m.Units
	for _, p := range m.Profiles {
		starts, count := make([]Mask, n), make([]int8, n)
		for state := range Mask(n) {
			for _, s := range p.Starts {
				if state&p.Mask(s) == 0 {
					starts[state] |= 1 << s
				}
			}
			count[state] = int8(p.most(state))
		}
		g.starts, g.count = append(g.starts, starts), append(g.count, count)
	}
	for state := range Mask(n) {
		g.room = append(g.room, int16(g.sumRoom(state)))
	}
	return g
}

// Starts returns the legal free starts of profile i in a state, as bits.
func (g *Geometry) Starts(i int, state Mask) Mask {
	return g.starts[i][state]
}

// Room counts the placements of plain profiles still possible in a state, each
// weighted by its units. It is a measure to compare states with, nothing more.
func (g *Geometry) Room(state Mask) int {
	if !g.Model.HasMIG() {
		return 0
	}
	return int(g.room[state])
}

func (g *Geometry) sumRoom(state Mask) int {
	n := 0
	for i, p := range g.Model.Profiles {
		if p.Attr == "" {
			n += p.Units * bits.OnesCount16(uint16(g.starts[i][state]))
		}
	}
	return n
}

// Count is how many placements of profile i fit together in a state at most.
func (g *Geometry) Count(i int, state Mask) int { return int(g.count[i][state]) }

// most counts how many placements of the profile fit in a state, lowest first:
// of intervals of one length that is the most.
func (p Profile) most(state Mask) int {
	n := 0
	for _, s := range slices.Sorted(slices.Values(p.Starts)) {
		if state&p.Mask(s) == 0 && n < p.Max {
			state |= p.Mask(s)
			n++
		}
	}
	return n
}

// Index returns the number of a profile by name, or -1.
func (g *Geometry) Index(profile string) int {
	for i, p := range g.Model.Profiles {
		if p.Name == profile {
			return i
		}
	}
	return -1
}

// Placed is a profile at a position, for Legal.
type Placed struct {
	Profile string
	Start   int
}

// Legal says whether the placements may stand on one GPU together: each start
// legal, no overlap, no more compute slices than the board has, no profile more
// often than its maximum. It returns "" or what is wrong.
func (g *Geometry) Legal(ps []Placed) string {
	var taken Mask
	compute := 0
	count := make([]int, len(g.Model.Profiles))
	for _, pl := range ps {
		i := g.Index(pl.Profile)
		if i < 0 {
			return "no profile " + pl.Profile + " on " + g.Model.Key
		}
		p := g.Model.Profiles[i]
		legal := false
		for _, s := range p.Starts {
			legal = legal || s == pl.Start
		}
		switch {
		case !legal:
			return p.Name + " may not start there"
		case taken&p.Mask(pl.Start) != 0:
			return p.Name + " overlaps another slice"
		}
		taken |= p.Mask(pl.Start)
		compute += p.Compute
		if count[i]++; count[i] > p.Max {
			return "too many of " + p.Name
		}
	}
	if compute > g.Model.Slices {
		return "more compute slices than the board has"
	}
	return ""
}
