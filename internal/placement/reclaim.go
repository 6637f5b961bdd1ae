package placement

import (
	"cmp"
	"slices"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// Claim is what a task would give up.
type Claim struct {
	Tenant string
	Lost   int64       // work lost if it yields now, in GPU milliseconds
	Parts  []work.Part // of all its members, in order: a gang yields as a whole
}

func (k Claim) milli() int {
	n := 0
	for _, p := range k.Parts {
		n += p.Milli()
	}
	return n
}

// Reclaim asks who must yield so that a request fits.
type Reclaim struct {
	Query
	// Below is the most urgent priority that may yield, with all less urgent ones.
	Below work.Priority
	// Claim says what a holder would give up, or that it must not be asked to.
	Claim func(work.Owner) (Claim, bool)
	// Budget is how much of GPUs a tenant may lose, in thousandths; nil = any amount.
	Budget func(tenant string) int
}

// Yield is an answer: after these tasks have yielded, the parts are free.
type Yield struct {
	Tasks []work.Owner // one owner a task; member 0
	Lost  int64        // GPU milliseconds
	Parts []work.Part
}

// reclaimLooks is the number of hosts that are weighed against each other for one
// member once one was found where enough tasks may yield.
const reclaimLooks = 512

// Reclaim finds the tasks whose yielding loses the least work, of equal ones the
// fewest tasks, among up to reclaimLooks hosts: those where the fewest GPUs are short
// first. It returns false when no set of tasks that may yield makes room, or the
// tenants' budgets do not allow it. Members of a gang are settled one after another.
// The cluster is unchanged afterwards.
func (c *Cluster) Reclaim(r Reclaim) (Yield, bool) {
	p := c.pools[r.Pool]
	if p == nil || r.Request.HostOnly() || r.Below < 0 || r.Below >= work.Priorities {
		return Yield{}, false
	}
	c.prepare(p)
	t := c.Try()
	defer t.Undo()
	x := &reclaiming{c: c, p: p, r: r, t: t, used: map[string]int{}, claims: make(map[work.Owner]claimed, reclaimLooks)}
	one := r.Query
	one.Request.Members = 0
	for m := range r.Request.Count() {
		part, ok := c.findOne(p, one)
		if !ok {
			best, found := x.cheapest(one)
			if !found {
				return Yield{}, false
			}
			x.evict(best)
			if part, ok = c.findOne(p, one); !ok {
				return Yield{}, false
			}
		}
		t.Take(Holder{Owner: work.Owner{Member: m}, Tenant: r.Tenant}, part)
	}
	t.Undo()
	return x.settle()
}

// settle drops tasks that need not yield after all and names the parts that are
// free once the others have.
func (x *reclaiming) settle() (Yield, bool) {
	slices.SortStableFunc(x.out, func(a, b work.Owner) int { return cmp.Compare(x.claims[b].Lost, x.claims[a].Lost) })
	without := func(skip int) []work.Part {
		defer x.t.Undo()
		for i, o := range x.out {
			if i != skip {
				x.free(o)
			}
		}
		return x.c.Find(x.r.Query)
	}
	parts := without(-1)
	if parts == nil {
		return Yield{}, false // members on several models, which a gang's Find does not mix
	}
	for i := 0; i < len(x.out) && len(x.out) > 1; {
		if less := without(i); less != nil {
			parts = less
			x.out = slices.Delete(x.out, i, i+1)
			continue
		}
		i++
	}
	y := Yield{Parts: parts, Tasks: x.out}
	for _, o := range x.out {
		y.Lost += x.claims[o].Lost
	}
	return y, true
}

// reclaiming is a search for tasks that must yield.
type reclaiming struct {
	c      *Cluster
	p      *poolIndex
	r      Reclaim
	t      *Trial
	out    []work.Owner
	used   map[string]int // what tenants lose already, in thousandths
	claims map[work.Owner]claimed
}

type claimed struct {
	Claim
	ok bool
}

// task is the owner that stands for all members.
func task(o work.Owner) work.Owner { return work.Owner{Task: o.Task, Epoch: o.Epoch} }

// meet asks once for each task what it would give up. It returns the owner that
// stands for all members.
func (x *reclaiming) meet(w Holder) work.Owner {
	o := task(w.Owner)
	if _, known := x.claims[o]; !known {
		var k claimed
		if o.Epoch > 0 && w.Priority >= x.r.Below { // epoch 0: the request's own members, in the trial
			k.Claim, k.ok = x.r.Claim(o)
		}
		x.claims[o] = k
	}
	return o
}

func (x *reclaiming) evict(tasks []work.Owner) {
	for _, o := range tasks {
		x.used[x.claims[o].Tenant] += x.claims[o].milli()
		x.out = append(x.out, o)
		x.free(o)
	}
}

func (x *reclaiming) free(o work.Owner) {
	for i, part := range x.claims[o].Parts {
		x.t.Free(work.Owner{Task: o.Task, Epoch: o.Epoch, Member: i}, part)
	}
}

// bill is a set of tasks that would make room, and what it costs.
type bill struct {
	tasks []work.Owner
	lost  int64
}

func (b bill) less(o bill) bool {
	if b.lost != o.lost {
		return b.lost < o.lost
	}
	return len(b.tasks) < len(o.tasks)
}

// cheapest finds the tasks whose yielding makes room for one member.
func (x *reclaiming) cheapest(q Query) ([]work.Owner, bool) {
	var best bill
	found, looks := false, 0
	look := func(h *Host, sh *shelf) bool {
		looks++
		if b, ok := x.onHost(h, sh, q); ok && (!found || b.less(best)) {
			best, found = b, true
		}
		return !found || looks < reclaimLooks
	}
	for _, m := range x.p.bySize {
		sh := x.p.shelves[m]
		if q.Blocked[m] || !serves(sh.geo.Model, q.Request) {
			continue
		}
		if !x.hosts(sh, q.Request.GPUs, look) {
			break
		}
	}
	return best.tasks, found
}

// hosts visits the hosts where a member might fit if tasks yielded: for whole GPUs
// those that lack the fewest first. It returns false when visit has seen enough.
func (x *reclaiming) hosts(sh *shelf, gpus int, visit func(*Host, *shelf) bool) bool {
	y := &sh.yields[x.r.Below]
	if gpus == 0 {
		return x.each(&y.some, sh, visit)
	}
	for now := min(gpus, len(y.rows)-1); now >= 0; now-- { // more are free already only where CPU or memory is short
		for then := max(gpus, now); then < len(y.rows); then++ {
			if s := y.rows[then][now]; s != nil && !x.each(s, sh, visit) {
				return false
			}
		}
	}
	for now := gpus + 1; now < len(y.rows); now++ {
		for then := now; then < len(y.rows); then++ {
			if s := y.rows[then][now]; s != nil && !x.each(s, sh, visit) {
				return false
			}
		}
	}
	return true
}

func (x *reclaiming) each(s *set, sh *shelf, visit func(*Host, *shelf) bool) bool {
	for n := s.next(0); n >= 0; n = s.next(n + 1) {
		if !visit(x.c.Hosts[n], sh) {
			return false
		}
	}
	return true
}

// onHost finds the cheapest tasks of one host that make room for a member.
func (x *reclaiming) onHost(h *Host, sh *shelf, q Query) (bill, bool) {
	b := h.bayOf(sh)
	var best bill
	ok := false
	if q.Request.GPUs > 0 {
		best, ok = x.wholeGPUs(b, q.Request.GPUs)
	} else {
		for _, fit := range q.Request.FitPart(sh.geo.Model) {
			for _, n := range b.gpus {
				for _, gone := range x.ways(sh, x.c.GPUs[n], fit, q.Tenant) {
					if c, can := x.price(gone); can && (!ok || c.less(best)) {
						best, ok = c, true
					}
				}
			}
		}
	}
	if !ok {
		return best, false
	}
	return x.feed(h, best, amount{q.Request.CPUMilli, q.Request.MemMiB})
}

// price adds up what tasks lose, or says that some must not yield.
func (x *reclaiming) price(owners []work.Owner) (bill, bool) {
	var b bill
	var taken map[string]int
	if x.r.Budget != nil {
		taken = map[string]int{}
	}
	for _, o := range owners {
		if slices.Contains(b.tasks, o) {
			continue
		}
		k := x.claims[o]
		if !k.ok {
			return b, false
		}
		if taken != nil {
			if taken[k.Tenant] += k.milli(); x.used[k.Tenant]+taken[k.Tenant] > x.r.Budget(k.Tenant) {
				return b, false
			}
		}
		b.tasks = append(b.tasks, o)
		b.lost += k.Lost
	}
	return b, true
}

// ways is the sets of owners that would have to leave a GPU so that a part fits on it.
func (x *reclaiming) ways(sh *shelf, g *GPU, fit work.Fit, tenant string) [][]work.Owner {
	if !g.sound() {
		return nil
	}
	all := make([]work.Owner, 0, len(g.Held))
	for i := range g.Held {
		all = append(all, x.meet(g.Held[i].Holder))
	}
	out := [][]work.Owner{all}
	switch {
	case g.Mode == gpu.ModeMIG && fit.Profile >= 0:
		p := &sh.geo.Model.Profiles[fit.Profile]
		for _, start := range p.Starts {
			var gone []work.Owner
			same := 0
			for i := range g.Held {
				s := g.Held[i].Slice
				if x.c.sliceMask(s)&p.Mask(start) != 0 {
					gone = append(gone, all[i])
				} else if s.Profile == p.Name {
					same++
				}
			}
			if same < p.Max {
				out = append(out, gone)
			}
		}
	case g.Mode == gpu.ModeShared && fit.Profile < 0 && g.Tenant == tenant:
		if gone, ok := x.sharers(sh, g, fit); ok {
			out = append(out, gone)
		}
	}
	return out
}

// sharers takes the cheapest tasks off a shared GPU until a share fits.
func (x *reclaiming) sharers(sh *shelf, g *GPU, fit work.Fit) (gone []work.Owner, ok bool) {
	held := slices.Clone(g.Held)
	slices.SortStableFunc(held, func(a, b Held) int {
		return cmp.Compare(x.claims[task(a.Owner)].Lost, x.claims[task(b.Owner)].Lost)
	})
	milli, mem, n := g.Milli, g.MemMiB, len(held)
	fits := func() bool {
		return milli+fit.Milli <= 1000 && mem+fit.Share.MemMiB <= sh.geo.Model.MemoryMiB && n < x.c.Sharers
	}
	for _, w := range held {
		if fits() {
			break
		}
		if o := task(w.Owner); x.claims[o].ok {
			gone = append(gone, o)
			milli, mem, n = milli-w.Slice.Milli, mem-w.Slice.Share.MemMiB, n-1
		}
	}
	return gone, fits()
}
