package trace

import "cmp"

// Silos returns the same work as it is kept apart where it was recorded: each task is
// submitted to the pool of its own cluster (ITP) or virtual cluster (Philly), which the
// readers call its tenant. A task that names its pool keeps it.
func (t *Trace) Silos() *Trace {
	out := *t
	out.Tasks = make([]Task, len(t.Tasks))
	for i, x := range t.Tasks {
		x.Pool = cmp.Or(x.Pool, x.Tenant)
		out.Tasks[i] = x
	}
	return &out
}
