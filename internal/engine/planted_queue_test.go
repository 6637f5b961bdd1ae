package engine

import (
	"github.com/gpupool/gpupool/internal/work"
)

// before does something with the engine before a fact of one type is applied; it stands
// for a bug in what decides, as opposed to what is applied.
func before[F Fact](do func(*Engine, F)) plant {
	return func(e *Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			if x, ok := f.(F); ok {
				do(e, x)
			}
			return f
		}
	}
}

// after does something with the engine once a fact of one type is applied.
func after[F Fact](do func(*Engine, F)) plant {
	return func(e *Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			x, ok := f.(F)
			if !ok {
				return f
			}
			e.apply(f)
			do(e, x)
			return nil
		}
	}
}

// plantedInQueue has the bugs of the queue: reservations, counts, arrays, dependencies,
// quotas and restoring.
var plantedInQueue = []plantedBug{
	{"what is kept is kept for a task in line", "it is kept on after the task was placed", after(func(e *Engine, f Reserved) {
		if r := e.Reservation(e.tasks[f.Task]); r != nil {
			r.Task = 1
		}
	}), "which is not in its line", false},
	{"what is kept is kept once", "what others keep is kept too", after(func(e *Engine, f Reserved) {
		p := e.tasks[f.Task].pool
		if r := e.Reservation(e.tasks[f.Task]); r != nil {
			p.kept = append(p.kept, r)
		}
	}), "GPU", false},
	{"what is kept is withheld", "a GPU that is kept may be given out", after(func(e *Engine, f Reserved) {
		if r := e.Reservation(e.tasks[f.Task]); r != nil && r.Parts[0].CPUMilli == 0 {
			e.cluster.Unkeep(r.Parts[0])
		}
	}), "withheld: false", true},
	{"what is kept is withheld", "the CPU that is kept is given back twice", after(func(e *Engine, f Reserved) {
		if r := e.Reservation(e.tasks[f.Task]); r != nil && r.Parts[0].CPUMilli > 0 {
			e.cluster.Unkeep(work.Part{Host: r.Parts[0].Host, CPUMilli: r.Parts[0].CPUMilli})
		}
	}), "mCPU", false},
	{"a parked task has a right to its GPUs", "it keeps it when it wakes", after(func(e *Engine, f Placed) {
		if f.Runs != 0 {
			e.liens[f.Parts[0].Slices[0].GPU] = append(e.liens[f.Parts[0].Slices[0].GPU], e.tasks[f.Task])
		}
	}), "are parked that left it", false},
	{"a parked task has a right to its GPUs", "it is forgotten that it left them", after(func(e *Engine, f Freed) {
		if _, p := e.part(f.Owner); p != nil && p.Phase == PhaseParked {
			delete(e.liens, p.Was[0].GPU)
		}
	}), "not known to have a right to it", false},
	{"guests can be asked to leave", "one that cannot is given a GPU that a parked task left", func(e *Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			if s, ok := f.(Freed); ok {
				e.apply(f)
				if _, p := e.part(s.Owner); p != nil && p.Phase == PhaseParked {
					for _, t := range e.sortedTasks() {
						if t.inLine { // as find is told too late
							t.Spec.NoPreempt = false
						}
					}
				}
				return nil
			}
			if p, ok := f.(Placed); ok {
				e.apply(f)
				if t := e.tasks[p.Task]; p.Runs == 0 && e.onLent(t) {
					t.Spec.NoPreempt = true
				}
				return nil
			}
			return f
		}
	}, "cannot be asked to leave", true},
	{"idle tasks are known", "one that is suspended still idles", after(func(e *Engine, f Suspending) {
		t := e.tasks[f.Owner.Task]
		t.pool.idle = append(t.pool.idle, t)
	}), "idle tasks", false},
	{"counts are sums", "who is placed still waits", after(func(e *Engine, f Placed) { e.tasks[f.Task].pool.waiting++ }), "waiting", false},
	{"counts are sums", "a tenant's running tasks are not counted down", after(func(e *Engine, f Became) {
		if f.State.Terminal() && e.tasks[f.Task].Epoch > 0 {
			e.changeUse(e.tasks[f.Task].Spec.Tenant, func(u *use) { u.running++ })
		}
	}), "counted", true},
	{"counts are sums", "an account is charged twice", after(func(e *Engine, f Placed) {
		if t := e.tasks[f.Task]; len(t.lease.Parts[0].Slices) > 0 {
			e.charge(t, t.lease.Parts[0].Part, 1)
		}
	}), "its account says", false},
	{"counts are sums", "a tenant is charged and not its pool", after(func(e *Engine, f Freed) {
		for _, p := range e.lines {
			p.training = max(p.training, 143)
		}
	}), "thousandths of training", false},
	{"counts are sums", "guests are not counted off", after(func(e *Engine, f Freed) {
		if l, _ := e.part(f.Owner); l != nil && e.guest(l) {
			e.pools[e.cluster.Hosts[l.Parts[0].Host].Pool].guests++
		}
	}), "guests", false},
	{"counts are sums", "the weights stand when a tenant's weight changes", func(e *Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			t, ok := f.(TenantSet)
			if !ok {
				return f
			}
			e.tenants[t.Tenant.Name], e.unscaled = &t.Tenant, true
			e.wakeAll()
			return nil
		}
	}, "weights", false},
	{"no more of an array than its limit", "the running ones are not counted", after(func(e *Engine, f Placed) {
		if a := e.arrays[e.tasks[f.Task].Array]; a != nil {
			a.running--
		}
	}), "of array", false},
	{"what is held is not placed", "a task that is held stands in line", after(func(e *Engine, f Held) {
		if t := e.tasks[f.Task]; f.On {
			t.pool.push(e, t)
		}
	}), "in line", false},
	{"what comes after others waits for them", "they are counted off twice", before(func(e *Engine, f Became) {
		if f.State.Terminal() {
			for _, id := range e.after[f.Task] {
				if o := e.tasks[id]; o != nil && o.State == work.Queued {
					o.Awaits--
				}
			}
		}
	}), "counted", true},
	{"what comes after others waits for them", "those are not known", func(e *Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			s, ok := f.(Submitted)
			if !ok || len(s.Spec.After)+len(s.Spec.AfterAny) == 0 {
				return f
			}
			e.apply(f)
			if t := e.tasks[s.Task]; t.Awaits > 0 {
				t.Awaits = 0
				if !t.back() {
					e.join(t)
				}
			}
			return nil
		}
	}, "counted 0", true},
	{"a tenant has no more running than it may", "max running is not kept", func(*Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			if t, ok := f.(TenantSet); ok {
				t.Tenant.MaxRunning = 0
				return t
			}
			return f
		}
	}, "that hold something before one more is placed", true},
	{"a lender keeps its guarantee", "others' guarantees are not known", func(*Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			if t, ok := f.(TenantSet); ok && t.Tenant.Name == "b" {
				t.Tenant.GuaranteeGPUs = 0
				return t
			}
			return f
		}
	}, "and is guaranteed", true},
	{"no one yields before it ran for a while", "the least run time is not known", func(*Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			if p, ok := f.(PoolSet); ok {
				p.Pool.MinRuntime = 0
				return p
			}
			return f
		}
	}, "is left alone for", true},
	{"a restored engine decides alike", "a turn is not the one that is written", func(e *Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			s, ok := f.(Submitted)
			if !ok {
				return f
			}
			e.apply(f)
			if t := e.tasks[s.Task]; t.inLine {
				t.pool.remove(t)
				t.pool.push(e, t)
				t.pool.queue.Remove(t.kind, t.item)
				t.item.Turn = -t.item.Turn
				t.pool.queue.Push(t.kind, t.item)
			}
			return nil
		}
	}, "a restored engine decides otherwise", false},
	{"nobody is forgotten in line", "a lender's idle GPUs are not told of", func(e *Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			e.apply(f)
			for _, p := range e.lines {
				p.stirred = false
			}
			return nil
		}
	}, "waits and could be placed", false},
	{"nobody is forgotten in line", "an array's next task is not woken", func(e *Engine) func(Fact) Fact {
		return func(f Fact) Fact {
			b, ok := f.(Became)
			if !ok || !b.State.Terminal() {
				return f
			}
			full := make([]bool, len(e.lines))
			for i, p := range e.lines {
				full[i] = p.full
			}
			e.apply(f)
			for i, p := range e.lines {
				p.full = full[i]
			}
			return nil
		}
	}, "waits and could be placed", false},
}
