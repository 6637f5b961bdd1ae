package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpupool/gpupool/internal/placement"
	"github.com/gpupool/gpupool/internal/work"
)

// roomFor says what would make room for a task that waits for GPUs: moves after which
// everyone has a place, else less urgent tasks that would have to yield. It is a
// proposal for people; nothing follows from it. "" when neither would do.
func (e *Engine) roomFor(t *Task) string {
	p := e.pools[t.Spec.Pool]
	q := placement.Query{Pool: p.Name, Tenant: t.Spec.Tenant, Request: p.wants(t)}
	if m, ok := e.cluster.Consolidate(placement.Reclaim{Query: q, Below: work.High, Claim: e.claim}); ok && len(m.Moves) > 0 {
		var owners []work.Owner
		for _, x := range m.Moves {
			owners = append(owners, x.Owner)
		}
		return fmt.Sprintf("; it would fit if %s moved", taskList(tasksOf(owners), e.owns(t)))
	}
	below := t.Spec.Priority + 1
	if below >= work.Priorities {
		return ""
	}
	if y, ok := e.cluster.Reclaim(placement.Reclaim{Query: q, Below: below, Claim: e.claim}); ok && len(y.Tasks) > 0 {
		return fmt.Sprintf("; it would fit if the less urgent %s yielded, losing %.1f GPU hours of work", taskList(tasksOf(y.Tasks), e.owns(t)), float64(y.Lost)/3.6e6)
	}
	return ""
}

// claim is what a running task would give up: all that it did since it started or last
// saved its work. Outside clients are not asked.
func (e *Engine) claim(o work.Owner) (placement.Claim, bool) {
	l := e.leases[leaseKey{o.Task, o.Epoch}]
	if l == nil || l.Closing || l.Settled {
		return placement.Claim{}, false
	}
	t := e.tasks[l.Task]
	if t.Spec.External() || t.State != work.StateRunning {
		return placement.Claim{}, false
	}
	k := placement.Claim{Tenant: t.Spec.Tenant}
	milli := 0
	for _, p := range l.Parts {
		if p.Phase != PhaseRunning {
			return placement.Claim{}, false
		}
		k.Parts = append(k.Parts, p.Part)
		milli += p.Milli()
	}
	k.Lost = (e.now.Sub(t.Started) - e.saved(t, e.now)).Milliseconds() * int64(milli) / 1000
	return k, true
}

// taskList names tasks, each once: those that may be named by their numbers, the others by
// how many they are.
func taskList(ids []work.TaskID, named func(work.TaskID) bool) string {
	const most = 5
	slices.Sort(ids)
	ids = slices.Compact(ids)
	others := 0
	ids = slices.DeleteFunc(ids, func(id work.TaskID) bool {
		if named(id) {
			return false
		}
		others++
		return true
	})
	var names []string
	for _, id := range ids[:min(len(ids), most)] {
		names = append(names, fmt.Sprint(id))
	}
	var out []string
	switch {
	case len(ids) == 1:
		out = append(out, "task "+names[0])
	case len(ids) > most:
		out = append(out, fmt.Sprintf("tasks %s and %d more", strings.Join(names, ", "), len(ids)-most))
	case len(ids) > 1:
		out = append(out, "tasks "+strings.Join(names, ", "))
	}
	switch others {
	case 0:
	case 1:
		out = append(out, "a task of another tenant")
	default:
		out = append(out, fmt.Sprintf("%d tasks of other tenants", others))
	}
	return strings.Join(out, " and ")
}

func tasksOf(owners []work.Owner) []work.TaskID {
	out := make([]work.TaskID, len(owners))
	for i, o := range owners {
		out[i] = o.Task
	}
	return out
}
