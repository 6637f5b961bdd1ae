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
	q := placement.Query{Pool: p.Name, Tenant: t.Spec.Tenant, Request: p.effective(t.Spec.Request)}
	if m, ok := e.cluster.Consolidate(placement.Reclaim{Query: q, Below: work.High, Claim: e.claim}); ok && len(m.Moves) > 0 {
		var owners []work.Owner
		for _, x := range m.Moves {
			owners = append(owners, x.Owner)
		}
		return fmt.Sprintf("; it would fit if %s moved", taskList(owners))
	}
	below := t.Spec.Priority + 1
	if below >= work.Priorities {
		return ""
	}
	if y, ok := e.cluster.Reclaim(placement.Reclaim{Query: q, Below: below, Claim: e.claim}); ok && len(y.Tasks) > 0 {
		return fmt.Sprintf("; it would fit if the less urgent %s yielded, losing %.1f GPU hours of work", taskList(y.Tasks), float64(y.Lost)/3.6e6)
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

// taskList names tasks, each once.
func taskList(owners []work.Owner) string {
	const most = 5
	var ids []work.TaskID
	for _, o := range owners {
		ids = append(ids, o.Task)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) == 1 {
		return fmt.Sprintf("task %d", ids[0])
	}
	var names []string
	for _, id := range ids[:min(len(ids), most)] {
		names = append(names, fmt.Sprint(id))
	}
	out := "tasks " + strings.Join(names, ", ")
	if len(ids) > most {
		out += fmt.Sprintf(" and %d more", len(ids)-most)
	}
	return out
}
