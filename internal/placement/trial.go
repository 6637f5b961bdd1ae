package placement

import (
	"slices"

	"github.com/gpupool/gpupool/internal/work"
)

// Trial is a what-if: it takes and frees parts for real and knows how to undo
// everything. Between Try and Undo nothing else may change the cluster.
type Trial struct {
	c     *Cluster
	steps []step
}

// step is one change, with what undoing it needs.
type step struct {
	owner work.Owner
	part  work.Part
	freed []freed // nil when the part was taken
}

// freed is a slice that was freed and its position among those of its GPU.
type freed struct {
	held Held
	at   int
}

// Try begins a what-if.
func (c *Cluster) Try() *Trial { return &Trial{c: c} }

// Take gives a part to a holder.
func (t *Trial) Take(w Holder, p work.Part) {
	t.c.Take(w, p)
	t.steps = append(t.steps, step{owner: w.Owner, part: p})
}

// Free takes a part back from its owner.
func (t *Trial) Free(o work.Owner, p work.Part) {
	x := step{owner: o, part: p, freed: make([]freed, 0, len(p.Slices))}
	t.c.change(p, func(s *work.Slice) {
		g := t.c.GPUs[s.GPU]
		at := g.find(o, s)
		if at < 0 {
			return // it does not stand there: nothing to free, nothing to undo
		}
		x.freed = append(x.freed, freed{g.Held[at], at})
		t.c.drop(g, at)
	})
	t.c.spend(t.c.Hosts[p.Host], -p.CPUMilli, -p.MemMiB)
	t.steps = append(t.steps, x)
}

// Mark is a point to undo to.
func (t *Trial) Mark() int { return len(t.steps) }

// Undo takes back everything, so that the cluster is as it was before Try.
func (t *Trial) Undo() { t.UndoTo(0) }

// UndoTo takes back what was done since a mark.
func (t *Trial) UndoTo(mark int) {
	for _, x := range slices.Backward(t.steps[mark:]) {
		if x.freed == nil {
			t.c.Free(x.owner, x.part)
			continue
		}
		t.c.spend(t.c.Hosts[x.part.Host], x.part.CPUMilli, x.part.MemMiB)
		last := len(x.freed)
		t.c.change(x.part, func(*work.Slice) {
			if last--; last >= 0 {
				f := &x.freed[last]
				t.c.put(t.c.GPUs[f.held.Slice.GPU], f.at, f.held)
			}
		})
	}
	t.steps = t.steps[:mark]
}
