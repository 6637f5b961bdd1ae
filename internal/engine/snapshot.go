package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/placement"
	"github.com/gpupool/gpupool/internal/work"
)

// snapshotVersion changes when an older gpupool could not read a snapshot any more.
const snapshotVersion = 1

// snapshot is the whole state in a canonical order: equal states give equal bytes.
type snapshot struct {
	Version int         `json:"version"`
	Now     work.Time   `json:"now"`
	LastID  work.TaskID `json:"last_id"`
	Pools   []work.Pool `json:"pools"`
	// Demand is what was asked of each pool lately, in the order of Pools. Choices
	// depend on it, so that a restored engine would choose as this one does.
	Demand  []placement.Demand `json:"demand,omitempty"`
	Tenants []work.Tenant      `json:"tenants"`
	Models  []gpu.Model        `json:"models"`
	Hosts   []hostState        `json:"hosts"`
	GPUs    []GPUChanged       `json:"gpus"` // those that are not simply well
	Tasks   []*Task            `json:"tasks"`
	Ended   []work.TaskID      `json:"ended"`
	Leases  []*Lease           `json:"leases"`
}

type hostState struct {
	Info gpu.HostInfo `json:"info"`
	Pool string       `json:"pool"`
	Up   bool         `json:"up"`
}

// Snapshot writes the whole state. It costs a walk over everything.
func (e *Engine) Snapshot() ([]byte, error) {
	s := snapshot{Version: snapshotVersion, Now: e.now, LastID: e.lastID, Models: e.learned, Ended: e.ended,
		Tasks: e.sortedTasks(), Leases: e.sortedLeases(), Tenants: e.Tenants()}
	for _, name := range e.order {
		s.Pools = append(s.Pools, e.pools[name].Pool)
		s.Demand = append(s.Demand, e.cluster.Demand(name))
	}
	for _, h := range e.cluster.Hosts {
		s.Hosts = append(s.Hosts, hostState{h.Info, h.Pool, h.Up})
	}
	for _, g := range e.cluster.GPUs {
		if c := (GPUChanged{g.Number, g.Health, e.strikes[g.Number], g.Until, g.Why}); g.Health != gpu.HealthOK || c.Strikes > 0 {
			s.GPUs = append(s.GPUs, c)
		}
	}
	return json.Marshal(s)
}

// Restore makes an engine from a snapshot.
func Restore(cfg Config, b []byte) (e *Engine, err error) {
	var s snapshot
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("the snapshot is not readable: %w", err)
	}
	if s.Version != snapshotVersion {
		return nil, fmt.Errorf("the snapshot has version %d, this gpupool reads %d: use the version that wrote it, or a newer one", s.Version, snapshotVersion)
	}
	// The parts of a snapshot refer to each other by number; only damage or a fault
	// of ours could make them not fit, and then any index may be out of range.
	defer func() {
		if r := recover(); r != nil {
			e, err = nil, fmt.Errorf("the snapshot contradicts itself: %v", r)
		}
	}()
	e = New(cfg)
	e.now, e.lastID, e.ended = s.Now, s.LastID, s.Ended
	for _, m := range s.Models {
		if err := m.Validate(); err != nil { // the size of its tables follows from it
			return nil, fmt.Errorf("the snapshot is not usable: %w", err)
		}
		e.apply(ModelLearned{m})
	}
	for _, p := range s.Pools {
		e.applyPool(p)
	}
	for i, d := range s.Demand {
		e.cluster.SetDemand(s.Pools[i].Name, d)
	}
	for _, t := range s.Tenants {
		e.apply(TenantSet{t})
	}
	for i, h := range s.Hosts {
		e.cluster.AddHost(h.Info, h.Pool)
		e.cluster.SetUsable(i, h.Up, false)
	}
	for _, g := range s.GPUs {
		e.applyGPU(g)
	}
	for _, t := range s.Tasks {
		e.restoreTask(t)
	}
	for _, l := range s.Leases {
		e.restoreLease(l)
	}
	return e, nil
}

func (e *Engine) restoreTask(t *Task) {
	e.tasks[t.ID] = t
	t.pool = e.pools[t.Spec.Pool]
	if t.Spec.Key != "" {
		e.keys[idempotency(t.Spec)] = t.ID
		t.keyed = true
	}
	if t.State == work.Queued {
		t.pool.push(t)
		e.startTTL(t)
	}
}

func (e *Engine) restoreLease(l *Lease) {
	t := e.tasks[l.Task]
	l.of, l.older, t.holds = t, t.holds, l
	e.leases[leaseKey{l.Task, l.Epoch}] = l
	if !l.Settled {
		t.lease = l
	}
	for i, p := range l.Parts {
		if p.Phase == PhaseFreed {
			continue
		}
		e.cluster.Take(placement.Holder{Owner: l.owner(i), Tenant: t.Spec.Tenant, Priority: t.Spec.Priority}, p.Part)
		e.hold(t.Spec.Tenant, p, 1)
		if p.Phase == PhaseFreeing && p.Tries > 0 {
			e.timers.add(p.Retry, timerFree, l.owner(i))
		}
	}
	if e.cfg.AllocTimeout > 0 {
		e.timers.add(l.Since.Add(e.cfg.AllocTimeout), timerAlloc, l.owner(0))
	}
	if l.Expires != 0 {
		e.timers.add(l.Expires, timerLease, l.owner(0))
	}
}

func (e *Engine) sortedTasks() []*Task {
	out := make([]*Task, 0, len(e.tasks))
	for _, t := range e.tasks { // order: sorted below
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *Task) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

func (e *Engine) sortedLeases() []*Lease {
	out := make([]*Lease, 0, len(e.leases))
	for _, l := range e.leases { // order: sorted below
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b *Lease) int {
		return cmp.Or(cmp.Compare(a.Task, b.Task), cmp.Compare(a.Epoch, b.Epoch))
	})
	return out
}
