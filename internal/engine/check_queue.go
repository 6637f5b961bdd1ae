package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

// checkKept: what is kept is kept for a task in line, each GPU for one, and the cluster
// withholds just that.
func (e *Engine) checkKept() error {
	kept := map[int]work.TaskID{}
	cpu, mem := make([]int64, len(e.cluster.Hosts)), make([]int64, len(e.cluster.Hosts))
	for _, p := range e.lines {
		for _, r := range p.kept {
			t := e.tasks[r.Task]
			switch {
			case t == nil || !t.inLine || t.pool != p:
				return fmt.Errorf("pool %s keeps GPUs for task %d, which is not in its line", p.Name, r.Task)
			case e.Reservation(t) != r || !r.on:
				return fmt.Errorf("task %d has two reservations, or one that is not in force", t.ID)
			}
			for _, part := range r.Parts {
				cpu[part.Host] += part.CPUMilli
				mem[part.Host] += part.MemMiB
				for _, s := range part.Slices {
					if o := kept[s.GPU]; o != 0 {
						return fmt.Errorf("GPU %d is kept for tasks %d and %d", s.GPU, o, t.ID)
					}
					kept[s.GPU] = t.ID
				}
			}
		}
	}
	for _, g := range e.cluster.GPUs {
		if g.Kept != (kept[g.Number] != 0) {
			return fmt.Errorf("GPU %d is withheld: %v, kept for task %d", g.Number, g.Kept, kept[g.Number])
		}
	}
	for _, l := range e.leases { // order: a sum
		for _, p := range l.Parts {
			if p.Phase != PhaseFreed {
				cpu[p.Host] += p.CPUMilli
				mem[p.Host] += p.MemMiB
			}
		}
	}
	for i, h := range e.cluster.Hosts {
		if h.CPUMilli != h.Info.CPUMilli-cpu[i] || h.MemMiB != h.Info.MemMiB-mem[i] {
			return fmt.Errorf("host %s has %d mCPU and %d MiB left; of %d and %d are %d and %d held or kept",
				h.Info.Name, h.CPUMilli, h.MemMiB, h.Info.CPUMilli, h.Info.MemMiB, cpu[i], mem[i])
		}
	}
	return nil
}

// tally is what a pool, its tenants and arrays count, by walking tasks and leases.
type tally struct {
	pools    map[string]*pool
	accounts map[string]map[string]*account // by pool and tenant
	use      map[string]use
	running  map[work.TaskID]int
	known    map[work.TaskID][]work.TaskID
}

func (e *Engine) tally() *tally {
	y := &tally{map[string]*pool{}, map[string]map[string]*account{}, map[string]use{}, map[work.TaskID]int{}, map[work.TaskID][]work.TaskID{}}
	for _, p := range e.lines {
		y.pools[p.Name], y.accounts[p.Name] = &pool{}, map[string]*account{}
	}
	for _, t := range e.sortedTasks() {
		u := y.use[t.Spec.Tenant]
		if t.State == work.Queued || t.State == work.Parked && t.inLine {
			y.pools[t.pool.Name].waiting++
			y.account(t.pool.Name, t.Spec.Tenant).waiting++
			u.waiting++
		}
		if t.inLine && t.State == work.Queued && t.Spec.Request.HostOnly() {
			y.pools[t.pool.Name].hostOnly++
		}
		if t.lease != nil {
			u.running++
			y.running[t.Array]++
		}
		y.use[t.Spec.Tenant] = u
		y.known[t.Array] = append(y.known[t.Array], t.ID)
	}
	for _, l := range e.leases { // order: sums of whole numbers
		for _, p := range l.Parts {
			if h := e.cluster.Hosts[p.Host]; p.Phase != PhaseFreed && h.Up && y.pools[h.Pool] != nil {
				y.part(l.of, p, h.Pool)
			}
		}
	}
	return y
}

func (y *tally) part(t *Task, p *Part, pool string) {
	u := y.use[t.Spec.Tenant]
	u.milli += p.Milli()
	y.use[t.Spec.Tenant] = u
	a := y.account(pool, t.Spec.Tenant)
	a.held.milli += p.Milli()
	a.held.cpu += p.CPUMilli
	a.held.mem += p.MemMiB
	switch {
	case t.pool.Name != pool:
		y.pools[pool].guests++
		y.pools[pool].lent += p.Milli()
	case !t.Spec.Class.Latency():
		y.pools[pool].training += p.Milli()
	}
}

func (y *tally) account(pool, tenant string) *account {
	a := y.accounts[pool][tenant]
	if a == nil {
		a = &account{tenant: tenant}
		y.accounts[pool][tenant] = a
	}
	return a
}

// checkCounts: what pools, tenants and arrays are said to have is the sum of what tasks
// and leases have.
func (e *Engine) checkCounts() error {
	y := e.tally()
	for _, p := range e.lines {
		want := y.pools[p.Name]
		for name, a := range p.accounts { // order: each is looked at alone
			if o := y.account(p.Name, name); a.held != o.held || a.waiting != o.waiting || a.tenant != name {
				return fmt.Errorf("pool %s: tenant %s holds %+v and %d wait, its account says %+v and %d", p.Name, name, o.held, o.waiting, a.held, a.waiting)
			}
		}
		for name, o := range y.accounts[p.Name] { // order: a sum, and a yes or no
			if o.active() {
				want.weights += e.milliWeight(name)
				if p.accounts[name] == nil {
					return fmt.Errorf("pool %s has no account of tenant %s", p.Name, name)
				}
			}
		}
		if p.waiting != want.waiting || p.hostOnly != want.hostOnly || p.weights != want.weights || p.training != want.training || p.guests != want.guests || p.lent != want.lent {
			return fmt.Errorf("pool %s counts %d waiting (%d for a host), weights %d, %d thousandths of training, %d guests; there are %d (%d), %d, %d, %d", p.Name,
				p.waiting, p.hostOnly, p.weights, p.training, p.guests, want.waiting, want.hostOnly, want.weights, want.training, want.guests)
		}
	}
	for name, u := range y.use { // order: each is looked at alone
		if e.use[name] != u {
			return fmt.Errorf("tenant %s uses %+v, counted %+v", name, u, e.use[name])
		}
	}
	for name, u := range e.use { // order: each is looked at alone
		if y.use[name] != u {
			return fmt.Errorf("tenant %s uses nothing, counted %+v", name, u)
		}
	}
	return e.checkArrays(y)
}

// checkArrays: what is known of an array, and no more of it holds something than may.
func (e *Engine) checkArrays(y *tally) error {
	for id, a := range e.arrays { // order: each is looked at alone
		switch {
		case a.running != y.running[id]:
			return fmt.Errorf("%d tasks of array %d hold something, counted %d", y.running[id], id, a.running)
		case a.limit > 0 && a.running > a.limit:
			return fmt.Errorf("%d tasks of array %d hold something, its limit is %d", a.running, id, a.limit)
		case !slices.Equal(a.tasks, y.known[id]):
			return fmt.Errorf("array %d has tasks %v, it says %v", id, y.known[id], a.tasks)
		}
	}
	return nil
}

// checkAwaits: a task awaits as many as have not ended of those that it comes after.
func (e *Engine) checkAwaits(t *Task) error {
	n := 0
	for _, id := range e.awaited(t) {
		if o := e.tasks[id]; o != nil && !o.State.Terminal() {
			n++
		}
	}
	if n != t.Awaits {
		return fmt.Errorf("task %d comes after %d tasks that have not ended, counted %d", t.ID, n, t.Awaits)
	}
	return nil
}

// mayBePlaced: a task that is placed is not kept back, and neither its tenant nor its
// array has more that hold something than they may. It looks at the state before.
func (l *Ledger) mayBePlaced(f Placed) error {
	t := l.shadow.tasks[f.Task]
	if t == nil {
		return fmt.Errorf("placed task %d is not known", f.Task)
	}
	if t.back() {
		return fmt.Errorf("task %d is placed while it is held, or before what it comes after has ended", t.ID)
	}
	if x := l.shadow.tenants[t.Spec.Tenant]; x != nil && f.Runs == 0 && x.MaxRunning > 0 && l.shadow.use[x.Name].running >= x.MaxRunning {
		return fmt.Errorf("tenant %s has %d tasks that hold something before one more is placed, and may have %d", x.Name, l.shadow.use[x.Name].running, x.MaxRunning)
	}
	return nil
}

// mayYield: those who are made to yield for a task have run for as long as they are left
// alone, they are guests or their tenant keeps what it is guaranteed, and there are no more
// of them in an hour than there may be.
func (l *Ledger) mayYield(f Reserved) error {
	if len(f.Victims) == 0 || f.Moving {
		return nil
	}
	e := l.shadow
	p := e.tasks[f.Task].pool
	lately := 0
	for _, at := range p.preempts {
		if at.Add(time.Hour) > e.now {
			lately++
		}
	}
	if p.PreemptPerHour > 0 && e.ownVictims(f) > 0 && lately+e.ownVictims(f) > p.PreemptPerHour {
		return fmt.Errorf("%d tasks yield after %d within the hour, %d may", len(f.Victims), lately, p.PreemptPerHour)
	}
	lost := map[string]int{}
	for _, id := range f.Victims {
		t := e.tasks[id]
		switch {
		case t == nil || t.lease == nil || t.State != work.StateRunning:
			return fmt.Errorf("task %d yields, and does not run", id)
		case e.now < t.Started.Add(p.MinRuntime):
			return fmt.Errorf("task %d yields after %s, and is left alone for %s", id, e.now.Sub(t.Started), p.MinRuntime)
		case !e.guest(t.lease):
			lost[t.Spec.Tenant] += leaseMilli(t.lease)
		}
	}
	for name, milli := range lost { // order: only a yes or no comes out
		if x := e.tenants[name]; x != nil && e.use[name].milli-e.closingMilli(name)-milli < e.guarantee(x) {
			return fmt.Errorf("tenant %s is left with %d thousandths less %d that end already less %d, and is guaranteed %d", name, e.use[name].milli, e.closingMilli(name), milli, e.guarantee(x))
		}
	}
	return nil
}

func leaseMilli(l *Lease) int {
	n := 0
	for _, p := range l.Parts {
		if p.Phase != PhaseFreed {
			n += p.Milli()
		}
	}
	return n
}

// closingMilli is what a tenant holds by leases that are being taken apart, on hosts that count.
func (e *Engine) closingMilli(tenant string) int {
	n := 0
	for _, l := range e.leases { // order: a sum of whole numbers
		if !l.Closing || l.of.Spec.Tenant != tenant {
			continue
		}
		for _, p := range l.Parts {
			if p.Phase != PhaseFreed && e.cluster.Hosts[p.Host].Up {
				n += p.Milli()
			}
		}
	}
	return n
}
