package placement

import (
	"cmp"
	"slices"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// Move is a member of a task that would change its place.
type Move struct {
	Owner work.Owner
	From  work.Part
	To    work.Part
}

// Proposal is moves after which a request fits while every task that moves has a
// place too.
type Proposal struct {
	Moves []Move
	Price int64       // what the tasks that move lose by it, GPU milliseconds
	Parts []work.Part // of the request, after the moves
}

// moveLooks is the number of hosts that are tried for one member, the cheapest first.
const moveLooks = 16

// Consolidate proposes moves that make room for a request: for a whole GPU, a whole
// placement, or, as a gang of more members than GPUs are free, for more free GPUs.
// Claim prices a move of a task and says which may move at all; Budget bounds the
// tasks of a tenant that do. The cluster is unchanged afterwards, and nothing is
// decided. It weighs hosts as Reclaim does and tries the moveLooks cheapest.
func (c *Cluster) Consolidate(r Reclaim) (Proposal, bool) {
	p := c.pools[r.Pool]
	if p == nil || r.Request.HostOnly() || r.Below < 0 || r.Below >= work.Priorities {
		return Proposal{}, false
	}
	c.prepare(p)
	t := c.Try()
	defer t.Undo()
	x := &reclaiming{c: c, p: p, r: r, t: t, used: map[string]int{}, claims: map[work.Owner]claimed{}}
	var out Proposal
	one := r.Query
	one.Request.Members = 0
	for m := range r.Request.Count() {
		self := Holder{Owner: work.Owner{Member: m}, Tenant: r.Tenant}
		part, ok := c.findOne(p, one)
		if ok {
			t.Take(self, part)
		} else if part, ok = x.makeRoom(one, self, &out); !ok {
			return Proposal{}, false
		}
		out.Parts = append(out.Parts, part)
	}
	return out, true
}

// makeRoom places one member where the tasks that stand in its way find another
// place, and adds their moves.
func (x *reclaiming) makeRoom(q Query, self Holder, out *Proposal) (work.Part, bool) {
	for _, b := range x.bills(q) {
		mark := x.t.Mark()
		for _, o := range b.tasks {
			x.free(o)
		}
		part, ok := x.c.findOne(x.p, q)
		if ok {
			x.t.Take(self, part)
			var moves []Move
			if moves, ok = x.resettle(b.tasks); ok {
				for _, o := range b.tasks {
					x.used[x.claims[o].Tenant]++
					x.claims[o] = claimed{} // once is enough
				}
				out.Moves = append(out.Moves, moves...)
				out.Price += b.lost
				return part, true
			}
		}
		x.t.UndoTo(mark)
	}
	return work.Part{}, false
}

// bills is the cheapest ways to make room for a member, each on another host.
func (x *reclaiming) bills(q Query) []bill {
	var out []bill
	looks := 0
	for _, m := range x.p.bySize {
		sh := x.p.shelves[m]
		if q.Blocked[m] || !serves(sh.geo.Model, q.Request) {
			continue
		}
		x.hosts(sh, q.Request.GPUs, func(h *Host, sh *shelf) bool {
			looks++
			if b, ok := x.onHost(h, sh, q); ok {
				out = append(out, b)
			}
			return looks < reclaimLooks
		})
	}
	slices.SortStableFunc(out, func(a, b bill) int {
		return cmp.Or(cmp.Compare(a.lost, b.lost), cmp.Compare(len(a.tasks), len(b.tasks)))
	})
	return out[:min(len(out), moveLooks)]
}

// resettle finds new places for tasks that were freed, the largest parts first.
func (x *reclaiming) resettle(tasks []work.Owner) ([]Move, bool) {
	type member struct {
		w    Holder
		from work.Part
	}
	var all []member
	for _, o := range tasks {
		for i, part := range x.claims[o].Parts {
			w := Holder{Owner: work.Owner{Task: o.Task, Epoch: o.Epoch, Member: i}, Tenant: x.claims[o].Tenant}
			all = append(all, member{w, part})
		}
	}
	slices.SortStableFunc(all, func(a, b member) int { return cmp.Compare(b.from.Milli(), a.from.Milli()) })
	var moves []Move
	for _, m := range all {
		to, ok := x.c.findOne(x.p, Query{Pool: x.r.Pool, Tenant: m.w.Tenant, Request: x.c.requestOf(m.from)})
		if !ok {
			return nil, false
		}
		x.t.Take(m.w, to)
		if !samePlace(m.from, to) {
			moves = append(moves, Move{m.w.Owner, m.from, to})
		}
	}
	return moves, true
}

// requestOf is the request that a part is the answer to.
func (c *Cluster) requestOf(p work.Part) work.Request {
	r := work.Request{CPUMilli: p.CPUMilli, MemMiB: p.MemMiB}
	if len(p.Slices) == 0 {
		return r
	}
	s := p.Slices[0]
	r.Models = []string{c.GPUs[s.GPU].Model}
	switch s.Mode {
	case gpu.ModeMIG:
		r.Profile = s.Profile
	case gpu.ModeShared:
		r.Milli, r.GPUMemMiB, r.Isolation = s.Milli, s.Share.MemMiB, work.IsolationShared
	case gpu.ModeFree, gpu.ModeWhole:
		r.GPUs = len(p.Slices)
	}
	return r
}

func samePlace(a, b work.Part) bool {
	if a.Host != b.Host || len(a.Slices) != len(b.Slices) {
		return false
	}
	for i := range a.Slices {
		if a.Slices[i].GPU != b.Slices[i].GPU || a.Slices[i].Start != b.Slices[i].Start {
			return false
		}
	}
	return true
}
