package engine

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/queue"
	"github.com/gpupool/gpupool/internal/work"
)

// shareHalfLife is how fast what a tenant had is forgotten.
const shareHalfLife = 6 * time.Hour

// account is what a tenant has and had of a pool.
type account struct {
	tenant  string
	held    amounts
	share   float64   // of the pool, by the resource of which it holds the largest part
	had     float64   // mean of share, the older the less it counts, up to at
	at      work.Time //
	waiting int       // tasks in line, those held back among them
}

// amounts are of GPUs in thousandths, CPU in thousandths of a core, memory in MiB.
type amounts struct {
	milli    int
	cpu, mem int64
}

func (a amounts) none() bool { return a == amounts{} }

// until is had at a later time, if nothing changes.
func (a *account) until(now work.Time) float64 {
	if now <= a.at {
		return a.had
	}
	left := math.Exp2(-float64(now-a.at) / float64(shareHalfLife))
	return a.had*left + a.share*(1-left)
}

// settle brings had up to now, before share changes.
func (a *account) settle(now work.Time) { a.had, a.at = a.until(now), max(a.at, now) }

// active reports whether a tenant wants anything of the pool.
func (a *account) active() bool { return a.waiting > 0 || !a.held.none() }

// account returns a tenant's, which is made on first use.
func (p *pool) account(tenant string) *account {
	a := p.accounts[tenant]
	if a == nil {
		a = &account{tenant: tenant}
		p.accounts[tenant] = a
	}
	return a
}

// milliWeight is a tenant's weight in whole thousandths, so that sums do not depend
// on their order.
func (e *Engine) milliWeight(tenant string) int64 {
	if t := e.tenants[tenant]; t != nil && t.Weight > 0 {
		return max(int64(t.Weight*1000), 1)
	}
	return 1000
}

// change does something with an account and keeps the sum of the weights of active
// tenants.
func (e *Engine) change(p *pool, tenant string, do func(*account)) {
	a := p.account(tenant)
	was := a.active()
	do(a)
	switch {
	case was == a.active():
	case was:
		p.weights -= e.milliWeight(tenant)
	default:
		p.weights += e.milliWeight(tenant)
	}
}

// reweigh adds the weights of active tenants up anew.
func (e *Engine) reweigh() {
	for _, p := range e.lines {
		p.weights = 0
		for _, a := range p.accounts { // order: a sum of whole numbers
			if a.active() {
				p.weights += e.milliWeight(a.tenant)
			}
		}
	}
}

// charge counts a part for its tenant in the pool of its host, or no longer.
func (e *Engine) charge(t *Task, part work.Part, sign int) {
	p := e.pools[e.cluster.Hosts[part.Host].Pool]
	if p == nil {
		return
	}
	e.change(p, t.Spec.Tenant, func(a *account) {
		a.settle(e.now)
		a.held.milli += sign * part.Milli()
		a.held.cpu += int64(sign) * part.CPUMilli
		a.held.mem += int64(sign) * part.MemMiB
		milli, cpu, mem := e.cluster.Capacity(p.Name)
		a.share = a.held.partOf(milli, cpu, mem)
	})
	switch {
	case t.pool != p:
		p.guests += sign
		p.lent += sign * part.Milli()
		e.owe(p, t.pool.Name, sign*part.Milli())
	case !t.Spec.Class.Latency():
		p.training += sign * part.Milli()
	}
}

// partOf is the part of a pool that amounts are, by the resource of which they are most.
func (a amounts) partOf(milli int, cpu, mem int64) float64 {
	part := func(x, of int64) float64 {
		if of <= 0 {
			return 0
		}
		return float64(x) / float64(of)
	}
	return max(part(int64(a.milli), int64(milli)), part(a.cpu, cpu), part(a.mem, mem))
}

// headStart is what fair share gives the tasks of a tenant.
func (e *Engine) headStart(p *pool, tenant string) work.Time {
	a := p.accounts[tenant]
	if a == nil || p.weights == 0 {
		return 0
	}
	entitled := float64(e.milliWeight(tenant)) / float64(p.weights)
	return e.cfg.Rules.HeadStart(a.until(e.now), entitled, p.weight())
}

// weight of priority against fair share.
func (p *pool) weight() float64 { return weightOf(p.Pool) }

func weightOf(p work.Pool) float64 {
	if p.Weight != nil {
		return *p.Weight
	}
	return queue.DefaultWeight
}

// rank orders the lines of a pool at this moment.
func (e *Engine) rank(p *pool) func(*queue.Line, queue.Item) queue.Rank {
	return func(l *queue.Line, x queue.Item) queue.Rank {
		r := queue.Rank{Class: 1, Turn: x.Turn - e.headStart(p, l.Tenant), ID: x.ID}
		if e.guaranteed(e.tasks[x.ID]) {
			r.Class = 0
		}
		return r
	}
}

// guaranteed reports whether a tenant that gets this task too still has no more than
// it is guaranteed. Guarantees beyond what there is are cut alike.
func (e *Engine) guaranteed(t *Task) bool {
	x := e.tenants[t.Spec.Tenant]
	if x == nil || x.GuaranteeGPUs == 0 {
		return false
	}
	milli := e.cluster.LeastMilli(t.pool.Name, t.pool.wants(t))
	return milli > 0 && e.use[x.Name].milli+milli <= e.guarantee(x)
}

// guarantee of a tenant in thousandths, as far as there are GPUs for it.
func (e *Engine) guarantee(x *work.Tenant) int {
	if e.unscaled {
		sum, all := 0, 0
		for _, o := range e.tenants { // order: a sum of whole numbers
			sum += int(o.GuaranteeGPUs * 1000)
		}
		for _, p := range e.lines {
			milli, _, _ := e.cluster.Capacity(p.Name)
			all += milli
		}
		e.scale, e.unscaled = 1, false
		if sum > all {
			e.scale = float64(all) / float64(sum)
		}
	}
	return int(x.GuaranteeGPUs * 1000 * e.scale)
}

// accountState is an account as a snapshot keeps it: the rest follows from the leases.
type accountState struct {
	Pool   string    `json:"pool"`
	Tenant string    `json:"tenant"`
	Share  float64   `json:"share"`
	Had    float64   `json:"had"`
	At     work.Time `json:"at"`
}

func (e *Engine) accountStates() []accountState {
	var out []accountState
	for _, p := range e.lines {
		first := len(out)
		for _, a := range p.accounts { // order: sorted below
			out = append(out, accountState{p.Name, a.tenant, a.share, a.had, a.at})
		}
		slices.SortFunc(out[first:], func(a, b accountState) int { return cmp.Compare(a.Tenant, b.Tenant) })
	}
	return out
}

// use is what a tenant uses in all pools.
type use struct {
	milli   int // of GPUs held, in thousandths
	waiting int // tasks in line
	running int // tasks that hold something
}
