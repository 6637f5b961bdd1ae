package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gpupool/gpupool/internal/elastic"
	"github.com/gpupool/gpupool/internal/forecast"
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
	Faults  []GPUFaults        `json:"faults,omitempty"`
	Tasks   []*Task            `json:"tasks"`
	Ended   []work.TaskID      `json:"ended"`
	Leases  []*Lease           `json:"leases"`

	Accounts []accountState `json:"accounts,omitempty"`
	Lines    []poolState    `json:"lines,omitempty"` // in the order of Pools
	Forecast forecast.State `json:"forecast"`
	Parted   []Parted       `json:"parted,omitempty"` // by pair
	Rollout  *Rollout       `json:"rollout,omitempty"`
	Tokens   []work.Token   `json:"tokens,omitempty"` // by age
	Books    *booksState    `json:"books,omitempty"`
}

// poolState is what a pool keeps beside its settings and its tasks.
type poolState struct {
	Kept     []*Reservation `json:"kept,omitempty"`
	Asked    work.Time      `json:"asked,omitempty"`
	Preempts []work.Time    `json:"preempts,omitempty"`
	Mode     work.PoolMode  `json:"mode,omitempty"`  // set beside the settings
	Again    []work.Time    `json:"again,omitempty"` // restarts for resizes and moves
	Debts    []*Debt        `json:"debts,omitempty"`

	Tenants map[string]work.PoolMode `json:"tenants,omitempty"` // whom it serves in a mode of their own
	Guard   *guardRecord             `json:"guard,omitempty"`
	Shadow  *elastic.Tally           `json:"shadow,omitempty"`
}

type hostState struct {
	Info gpu.HostInfo `json:"info"`
	Pool string       `json:"pool"`
	Up   bool         `json:"up"`
}

// Snapshot writes the whole state. It costs a walk over everything.
func (e *Engine) Snapshot() ([]byte, error) {
	s := snapshot{Version: snapshotVersion, Now: e.now, LastID: e.lastID, Models: e.learned, Ended: e.ended,
		Tasks: e.sortedTasks(), Leases: e.sortedLeases(), Tenants: e.Tenants(),
		Accounts: e.accountStates(), Forecast: e.forecast.State(), Parted: e.partedPairs(), Rollout: e.rollout, Tokens: e.Tokens(), Books: e.booksState()}
	for _, name := range e.order {
		s.Pools = append(s.Pools, e.pools[name].Pool)
		s.Demand = append(s.Demand, e.cluster.Demand(name))
		p := e.pools[name]
		s.Lines = append(s.Lines, poolState{p.kept, p.asked, p.preempts, p.override, p.again, p.debts, p.byTenant, p.guardRecord(), &p.shadow.tally})
	}
	for _, h := range e.cluster.Hosts {
		s.Hosts = append(s.Hosts, hostState{h.Info, h.Pool, h.Up})
	}
	for _, g := range e.cluster.GPUs {
		if c := e.stated(g.Number); g.Health != gpu.HealthOK || c.Strikes > 0 {
			s.GPUs = append(s.GPUs, c)
		}
		if f, known := e.faults[g.Number]; known {
			s.Faults = append(s.Faults, f)
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
	if e.forecast, err = forecast.Restore(cfg.Forecast, s.Forecast); err != nil {
		return nil, fmt.Errorf("the snapshot is not usable: %w", err)
	}
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
	for i, l := range s.Lines {
		e.lines[i].override, e.lines[i].byTenant = l.Mode, l.Tenants
	}
	for i, d := range s.Demand {
		e.cluster.SetDemand(s.Pools[i].Name, d)
	}
	for _, t := range s.Tenants {
		e.apply(TenantSet{t})
	}
	for _, t := range s.Tokens {
		e.apply(TokenSet{t})
	}
	for i, h := range s.Hosts {
		e.cluster.AddHost(h.Info, h.Pool)
		e.cluster.SetUsable(i, h.Up, false)
	}
	for _, g := range s.GPUs {
		e.applyGPU(g)
	}
	for _, f := range s.Faults {
		e.faults[f.GPU] = f
	}
	for _, t := range s.Tasks {
		e.restoreTask(t)
	}
	for _, t := range s.Tasks {
		e.restorePlace(t)
	}
	for _, l := range s.Leases {
		e.restoreLease(l)
	}
	e.restoreRest(s)
	return e, nil
}

// restoreRest restores what refers to tasks and leases.
func (e *Engine) restoreRest(s snapshot) {
	for _, t := range s.Tasks {
		if t.Use.Kind == elastic.Idle {
			e.applyJudged(Judged{t.ID, t.Use})
		}
	}
	for _, a := range s.Accounts {
		x := e.pools[a.Pool].account(a.Tenant)
		x.share, x.had, x.at = a.Share, a.Had, a.At
	}
	for i, l := range s.Lines {
		e.restorePool(e.lines[i], l)
		e.lines[i].debts = l.Debts
	}
	for _, f := range s.Parted {
		e.apply(f)
	}
	for _, t := range s.Tasks {
		e.restoreShade(t)
	}
	e.rollout = s.Rollout
	e.watchPhase()
	e.restoreBooks(s.Books)
}

func (e *Engine) restoreTask(t *Task) {
	e.tasks[t.ID] = t
	t.pool = e.pools[t.Spec.Pool]
	if t.Spec.Key != "" && (t.Array == 0 || t.Array == t.ID) {
		e.keys[idempotency(t.Spec)] = t.ID
		t.keyed = true
	}
	e.enrolArray(t)
}

// restorePlace puts a waiting task where it was, once all tasks are known.
func (e *Engine) restorePlace(t *Task) {
	if t.State != work.Queued {
		return
	}
	e.await(t)
	e.countWaiting(t, 1)
	if !t.back() {
		if t.Turn == 0 { // written by an older gpupool
			t.Turn = e.turn(t.pool, t)
		}
		t.pool.enter(e, t)
		e.startTTL(t)
	}
}

func (e *Engine) restorePool(p *pool, s poolState) {
	p.asked, p.preempts, p.again = s.Asked, s.Preempts, s.Again
	p.restoreGuard(s.Guard)
	if s.Shadow != nil {
		p.shadow.tally = *s.Shadow
	}
	for _, r := range s.Kept {
		e.keepParts(r)
		e.timers.add(r.Made.Add(reviewEvery), timerReview, work.Owner{Task: r.Task})
	}
	p.kept = s.Kept
}

func (e *Engine) restoreLease(l *Lease) {
	t := e.tasks[l.Task]
	l.of, l.older, t.holds = t, t.holds, l
	e.leases[leaseKey{l.Task, l.Epoch}] = l
	if !l.Settled {
		t.lease = l
		e.countRunning(t, 1)
		if wasParked(t) {
			t.pool.guard.jitter.Woken++
		}
		e.enrolSupple(t, t.State == work.StateRunning)
		if t.Plan != nil {
			e.timers.add(t.Plan.At, timerPlan, work.Owner{Task: t.ID, Epoch: t.Epoch})
		}
		if m := t.Spec.MaxRuntime; m > 0 && t.State == work.StateRunning {
			e.timers.add(t.Started.Add(m-t.Ran), timerRun, work.Owner{Task: t.ID, Epoch: t.Epoch})
		}
	}
	for i, p := range l.Parts {
		if p.Phase == PhaseFreed {
			continue
		}
		e.cluster.Take(placement.Holder{Owner: l.owner(i), Tenant: t.Spec.Tenant, Priority: t.Spec.Priority}, p.Part)
		e.count(t, p, 1)
		if p.Phase == PhaseParked {
			e.restoreParked(t, p)
		}
		if (p.Phase == PhaseFreeing || p.Phase == PhaseVacating) && p.Tries > 0 {
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

// restoreParked gives a parked task back what it has a right to.
func (e *Engine) restoreParked(t *Task, p *Part) {
	for _, s := range p.Was {
		e.liens[s.GPU] = append(e.liens[s.GPU], t)
	}
	t.pool.parked++
	if t.Awake {
		e.countWaiting(t, 1)
		t.pool.enter(e, t)
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
