package engine

import (
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// plantedInMoves has the bugs of resizing and moving.
var plantedInMoves = []plantedBug{
	{"what is resized holds the larger", "what is to be smaller is free at once", after(func(e *Engine, f Resizing) {
		if l, p := e.mustPart(f.Owner); milli(p.To) < p.Milli() {
			e.rehold(l, f.Owner, p.To)
		}
	}), "the smaller is what it holds", false},
	{"what is resized holds the larger", "what is to be larger is taken when it is", after(func(e *Engine, f Resizing) {
		if l, p := e.mustPart(f.Owner); milli(p.To) > milli(p.Back) {
			e.rehold(l, f.Owner, p.Back)
		}
	}), "the smaller is what it holds", false},
	{"only what runs is resized", "a resize goes on while a lease is taken apart", func(e *Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			x, ok := f.(Closing)
			if !ok {
				return f
			}
			l := e.leaseAt(x.Task, x.Epoch)
			to, back := l.Parts[0].To, l.Parts[0].Back
			e.apply(f)
			l.Parts[0].To, l.Parts[0].Back = to, back
			return nil
		}
	}, "is resized and", false},
	{"only what runs is resized", "it is resized to another GPU", after(func(e *Engine, f Resizing) {
		_, p := e.mustPart(f.Owner)
		p.Back = []work.Slice{{GPU: p.Slices[0].GPU + 1, Mode: gpu.ModeWhole}}
	}), "to other GPUs", false},
	{"nobody is put beside one that wants no neighbours", "its wish is forgotten", after(func(e *Engine, f Placed) {
		if s, ok := e.tasks[f.Task].onlySlice(); ok && s.Mode == gpu.ModeShared {
			e.tasks[f.Task].Spec.NoShare = true
		}
	}), "wants no neighbours", true},
	{"only who agreed is restarted", "one is that did not", func(e *Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			if x, ok := f.(Closing); ok && x.Reason.Code == work.Preempted {
				x.Reason.Code = work.Resized
				return x
			}
			return f
		}
	}, "did not agree", true},
	{"who is announced runs", "a plan outlives its lease", func(e *Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			t := e.tasks[TaskOf(f)]
			if t == nil || t.Plan == nil || f.Kind() != (Closing{}).Kind() && f.Kind() != (Became{}).Kind() {
				return f
			}
			plan := t.Plan
			e.apply(f)
			t.Plan = plan
			return nil
		}
	}, "is announced to be moved", false},
	{"who may be moved is listed", "one that runs is not", after(func(e *Engine, f Became) {
		if t := e.tasks[f.Task]; f.State == work.StateRunning {
			e.enrolSupple(t, false)
		}
	}), "listed as one that may be moved", false},
	{"who owes whom is known", "a guest is counted twice", after(func(e *Engine, f Placed) {
		if t := e.tasks[f.Task]; e.guest(t.lease) {
			e.owe(e.pools[e.cluster.Hosts[f.Parts[0].Host].Pool], t.pool.Name, 1)
		}
	}), "is said to have lent", false},
}
