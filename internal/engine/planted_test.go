package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// A plant is a deliberate bug: it sees each fact before it changes the state, and
// returns what is applied in its place, or nil for nothing. What the engine says
// stays the true fact.
type plant func(*Engine) func(Fact) Fact

type plantedBug struct {
	invariant, bug string
	plant          plant
	want           string
	blind          bool // where comparing whole states would report it first
}

// planted has at least one bug for each thing that must always hold, in the
// order of DESIGN.md, and the words by which the check reports it. Guaranteed
// quota and the rest of the queue are in plantedInQueue.
var planted = []plantedBug{
	{"slices never overlap", "every slice starts at the same unit", onPlaced(func(_ *Engine, f Placed) Placed {
		for _, p := range f.Parts {
			for i := range p.Slices {
				p.Slices[i].Start = 0
			}
		}
		return f
	}), "overlaps another slice", false},
	{"always a legal MIG layout", "large slices start anywhere", onPlaced(func(_ *Engine, f Placed) Placed {
		for _, p := range f.Parts {
			for i, s := range p.Slices {
				if s.Profile == "3g.40gb" {
					p.Slices[i].Start = 2
				}
			}
		}
		return f
	}), "3g.40gb may not start there", false},
	{"a lease's slices exist", "slices are freed when the process starts", func(e *Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			if s, ok := f.(Started); ok {
				_, p := e.part(s.Owner)
				e.cluster.Free(s.Owner, p.Part)
			}
			return f
		}
	}, "slices, 0 stand", false},
	{"a lease's slices belong to it alone", "a GPU that another task has is given away", onPlaced(func(e *Engine, f Placed) Placed {
		for _, g := range e.cluster.GPUs {
			for i, s := range f.Parts[0].Slices {
				if g.Mode == gpu.ModeWhole && s.Mode == gpu.ModeWhole && g.Host == f.Parts[0].Host {
					f.Parts[0].Slices[i].GPU = g.Number
					return f
				}
			}
		}
		return f
	}), "2 tasks on a whole GPU", false},
	{"nothing stands for nobody", "a lease is forgotten before its slices are freed", func(e *Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			if o, ok := f.(Freed); ok {
				_, p := e.part(o.Owner)
				p.Phase = PhaseFreed
				return nil
			}
			return f
		}
	}, "which has no lease", false},
	{"no GPU serves two tenants except by MIG", "a share is given beside another tenant's", onPlaced(func(e *Engine, f Placed) Placed {
		for _, g := range e.cluster.GPUs {
			s := f.Parts[0].Slices
			if len(s) == 1 && s[0].Mode == gpu.ModeShared && g.Mode == gpu.ModeShared && g.Tenant != e.tasks[f.Task].Spec.Tenant && g.Host == f.Parts[0].Host &&
				g.Milli+s[0].Milli <= 1000 && g.MemMiB+s[0].Share.MemMiB <= e.cluster.Geometry(g.Number).Model.MemoryMiB { // it fits
				s[0].GPU = g.Number
			}
		}
		return f
	}), "in mode shared serves tenants", false},
	{"at most 4 tasks share a GPU", "placement does not count sharers", func(e *Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			switch f.(type) {
			case Submitted, Freed:
				e.cluster.Sharers = 10 // while it looks for a place
			default:
				e.cluster.Sharers = e.cfg.Sharers
			}
			return f
		}
	}, "tasks share", false},
	{"a gang is whole", "the last member gets nothing", onPlaced(func(_ *Engine, f Placed) Placed {
		f.Parts = f.Parts[:max(len(f.Parts)-1, 1)]
		return f
	}), "parts for a gang of", false},
	{"a gang is whole or absent", "a member starts before the others are ready", func(e *Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			if c, ok := f.(Carved); ok {
				if _, p := e.part(c.Owner); p != nil {
					p.Phase = PhaseStarting
					return nil
				}
			}
			return f
		}
	}, "members were started", false},
	{"no acknowledged task is lost", "its acceptance is not kept", drop(func(f Fact) bool { _, ok := f.(Submitted); return ok }), "was accepted twice", false},
	{"no acknowledged task is lost", "a task that goes back does not get in line", func(e *Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			if b, ok := f.(Became); ok && b.State == work.Queued {
				e.apply(f)
				t := e.tasks[b.Task]
				e.pools[t.Spec.Pool].remove(t)
				return nil
			}
			return f
		}
	}, "in line: false", false},
	{"no acknowledged task is lost", "an end is not kept", drop(func(f Fact) bool { b, ok := f.(Became); return ok && b.State.Terminal() }), "may not go from", false},
	{"no task runs twice at the same epoch", "a start is not kept, and done again", drop(func(f Fact) bool { _, ok := f.(Started); return ok }), "was started twice", false},
	{"no task runs twice at the same epoch", "the epoch is not counted on after a return", func(e *Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			if b, ok := f.(Became); ok && b.State == work.Queued {
				e.tasks[b.Task].Epoch--
			}
			return f
		}
	}, "was used before", false},
	{"a tenant holds no more than it may", "the limit is not kept", func(*Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			if t, ok := f.(TenantSet); ok {
				t.Tenant.LimitGPUs = 0
				return t
			}
			return f
		}
	}, "its limit is", false},
	{"a tenant holds no more than it may", "what is freed is counted twice", func(e *Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			if o, ok := f.(Freed); ok {
				_, p := e.part(o.Owner)
				e.changeUse(e.tasks[o.Owner.Task].Spec.Tenant, func(u *use) { u.milli -= p.Milli() })
			}
			return f
		}
	}, "thousandths, the sum says", false},
	{"free + leased + broken = all", "a host joins a pool that is not there", func(*Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			if h, ok := f.(HostJoined); ok && h.Host.Name == "h1" {
				h.Pool = "nowhere"
				return h
			}
			return f
		}
	}, "GPUs are free by count and", false},
	{"replaying the journal gives the same state", "a deadline is not the one that is written", func(*Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			if r, ok := f.(Renewed); ok {
				r.Expires++
				return r
			}
			return f
		}
	}, "replaying the journal gives another state", false},
	{"replaying the journal gives the same state", "something is changed without a fact", func(e *Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			if c, ok := f.(Carved); ok {
				e.tasks[c.Owner.Task].Failures++
			}
			return f
		}
	}, "replaying the journal gives another state", false},
	{"replaying the journal gives the same state", "a deadline is not set", func(e *Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			if r, ok := f.(FreeRetry); ok {
				_, p := e.part(r.Owner)
				p.Tries, p.Retry, p.Why = r.Tries, r.Until, r.Why
				return nil
			}
			return f
		}
	}, "other deadlines are kept", false},
	{"nobody is forgotten in line", "a pool is not looked at when something is freed", func(e *Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			if _, ok := f.(Freed); !ok {
				return f
			}
			e.apply(f)
			for _, p := range e.pools {
				p.full = false
			}
			return nil
		}
	}, "waits and could be placed", false},
}

// onPlaced changes copies of placements before they are applied.
func onPlaced(change func(*Engine, Placed) Placed) plant {
	return func(e *Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			p, ok := f.(Placed)
			if !ok {
				return f
			}
			p.Parts = slices.Clone(p.Parts)
			for i := range p.Parts {
				p.Parts[i].Slices = slices.Clone(p.Parts[i].Slices)
			}
			return change(e, p)
		}
	}
}

func drop(which func(Fact) bool) plant {
	return func(*Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			if which(f) {
				return nil
			}
			return f
		}
	}
}

// crashing runs a history in which a planted bug may also break the engine itself.
func crashing(seed uint64, x plantedBug) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	w := newWorld(seed)
	w.deep, w.blind = seed%10 == 0, x.blind
	return w.play(x.plant)
}

// TestPlantedBugs shows for each invariant that the checks report its bug.
func TestPlantedBugs(t *testing.T) {
	const most = 300
	for _, x := range slices.Concat(planted, plantedInQueue, plantedInMoves, plantedInModes, plantedInBooks, plantedInHealth) {
		resizing := slices.ContainsFunc(plantedInMoves, func(y plantedBug) bool { return y.bug == x.bug })
		t.Run(strings.ReplaceAll(x.invariant+": "+x.bug, " ", "_"), func(t *testing.T) {
			t.Parallel()
			other := ""
			for seed := range uint64(most) {
				if resizing { // where that happens
					seed = 4*seed + 1
				}
				err := crashing(seed, x)
				if err == nil {
					continue
				}
				if strings.Contains(err.Error(), x.want) {
					t.Logf("reported by history %d of %d: %.200s", seed+1, most, err)
					return
				}
				other = err.Error()
			}
			t.Errorf("none of %d histories reports %q; the last other report: %.300s", most, x.want, other)
		})
	}
}

// facts plays a history and returns every fact of it, encoded.
func facts(seed uint64, p plant) ([]string, error) {
	w := newWorld(seed)
	w.keep = true
	err := w.play(p)
	return w.facts, err
}

// TestSameEventsSameFacts plays histories twice: the same events give the same
// facts, byte for byte.
func TestSameEventsSameFacts(t *testing.T) {
	n := uint64(100)
	if testing.Short() {
		n = 25
	}
	for seed := range n {
		if err := twice(seed, nil); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// TestPlantedChance: an engine that decides by something that is not in its
// events, here a count that outlives it, is found out.
func TestPlantedChance(t *testing.T) {
	const most = 100
	calls := 0
	chance := func(*Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			if s, ok := f.(Submitted); ok {
				calls++
				s.Spec.Priority = work.Priority(calls % work.Priorities)
				return s
			}
			return f
		}
	}
	for seed := range uint64(most) {
		if err := twice(seed, chance); err != nil && strings.Contains(err.Error(), "the same events gave") {
			t.Logf("reported by history %d of %d: %.300s", seed+1, most, err)
			return
		}
	}
	t.Errorf("none of %d histories that were played twice differed", most)
}

func twice(seed uint64, p plant) error {
	once, err := facts(seed, p)
	again, errAgain := facts(seed, p)
	for i := range min(len(once), len(again)) {
		if once[i] != again[i] {
			return fmt.Errorf("the same events gave other facts, first at %d:\n%s\n%s", i, once[i], again[i])
		}
	}
	if len(once) != len(again) {
		return fmt.Errorf("the same events gave %d facts, then %d", len(once), len(again))
	}
	if err == nil {
		err = errAgain
	}
	return err
}
