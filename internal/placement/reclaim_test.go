package placement

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// book is who holds what in a test, and what each task would lose.
type book struct {
	c      *Cluster
	claims map[work.Owner]Claim
	prio   map[work.Owner]work.Priority
	fixed  map[work.Owner]bool // must not be asked
}

func (b *book) claim(o work.Owner) (Claim, bool) {
	k, ok := b.claims[o]
	return k, ok && !b.fixed[o]
}

// drawBook fills a cluster at random.
func drawBook(t *rapid.T) *book {
	b := &book{drawCluster(t), map[work.Owner]Claim{}, map[work.Owner]work.Priority{}, map[work.Owner]bool{}}
	for n := range rapid.IntRange(0, 12).Draw(t, "tasks") {
		q := Query{Pool: "p", Tenant: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "tenant"), Request: drawRequest(t)}
		if rapid.IntRange(0, 3).Draw(t, "gang") == 0 {
			q.Request.Members = 2
		}
		parts := b.c.Find(q)
		if parts == nil {
			continue
		}
		o := work.Owner{Task: work.TaskID(n + 1), Epoch: 1}
		b.prio[o] = work.Priority(rapid.IntRange(0, 2).Draw(t, "priority"))
		b.fixed[o] = rapid.IntRange(0, 5).Draw(t, "fixed") == 0
		b.claims[o] = Claim{Tenant: q.Tenant, Lost: rapid.Int64Range(0, 9).Draw(t, "lost"), Parts: parts}
		for i, part := range parts {
			b.c.Take(Holder{work.Owner{Task: o.Task, Epoch: 1, Member: i}, q.Tenant, b.prio[o]}, part)
		}
	}
	return b
}

// fitsWithout says whether a query fits once some tasks are gone.
func (b *book) fitsWithout(q Query, gone []work.Owner) bool {
	t := b.c.Try()
	defer t.Undo()
	for _, o := range gone {
		for i, part := range b.claims[o].Parts {
			t.Free(work.Owner{Task: o.Task, Epoch: 1, Member: i}, part)
		}
	}
	return b.c.Find(q) != nil
}

// cheapest tries every set of tasks that may yield.
func (b *book) cheapest(r Reclaim) (lost int64, tasks int, ok bool) {
	var may []work.Owner
	for o := range b.claims {
		if _, can := b.claim(o); can && b.prio[o] >= r.Below {
			may = append(may, o)
		}
	}
	slices.SortFunc(may, func(x, y work.Owner) int { return cmp.Compare(x.Task, y.Task) })
	lost, tasks = math.MaxInt64, math.MaxInt
	for set := range 1 << len(may) {
		var gone []work.Owner
		sum, perTenant := int64(0), map[string]int{}
		for i, o := range may {
			if set>>i&1 == 1 {
				gone = append(gone, o)
				sum += b.claims[o].Lost
				perTenant[b.claims[o].Tenant] += b.claims[o].milli()
			}
		}
		if sum > lost || sum == lost && len(gone) >= tasks || r.Budget != nil && (perTenant["a"] > r.Budget("a") || perTenant["b"] > r.Budget("b")) {
			continue
		}
		if b.fitsWithout(r.Query, gone) {
			lost, tasks, ok = sum, len(gone), true
		}
	}
	return lost, tasks, ok
}

func drawReclaim(t *rapid.T, b *book) Reclaim {
	r := Reclaim{Query: Query{Pool: "p", Tenant: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "who"), Request: drawRequest(t)},
		Below: work.Priority(rapid.IntRange(0, 2).Draw(t, "below")), Claim: b.claim}
	if rapid.Bool().Draw(t, "budget") {
		n := rapid.SampledFrom([]int{0, 143, 300, 1000, 1500, 2000, 3000}).Draw(t, "budget of each")
		r.Budget = func(string) int { return n }
	}
	return r
}

// TestReclaim: one member is never refused where yielding would help, no task that
// must not yield does, no budget is passed, what is proposed makes room, and without
// CPU, budgets or gangs nothing cheaper exists.
func TestReclaim(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBook(t)
		r := drawReclaim(t, b)
		before := b.c.dump()
		y, ok := b.c.Reclaim(r)
		if after := b.c.dump(); after != before {
			t.Fatalf("Reclaim changed the cluster:\n%s\n%s", before, after)
		}
		b.c.test(t, "Reclaim")
		lost, tasks, can := b.cheapest(r)
		if r.Request.HostOnly() {
			can = false // not its business
		}
		if ok {
			b.honestYield(t, r, y)
		}
		simple := r.Budget == nil && r.Request.CPUMilli == 0 && r.Request.MemMiB == 0 && !b.gangs()
		if simple && ok != can {
			t.Fatalf("Reclaim(%+v) = %+v %v, by brute force %v\n%s", r.Query, y, ok, can, before)
		}
		if ok && !can {
			t.Fatalf("Reclaim(%+v) = %+v, which brute force does not find\n%s", r.Query, y, before)
		}
		if simple && ok && (y.Lost > lost || y.Lost == lost && len(y.Tasks) > tasks) {
			t.Fatalf("Reclaim(%+v) = %+v, but %d tasks can yield for %d\n%s", r.Query, y, tasks, lost, before)
		}
	})
}

func (b *book) gangs() bool {
	for _, k := range b.claims { // order: only a yes or no comes out
		if len(k.Parts) > 1 {
			return true
		}
	}
	return false
}

// honestYield checks what was proposed by itself.
func (b *book) honestYield(t *rapid.T, r Reclaim, y Yield) {
	t.Helper()
	sum, perTenant := int64(0), map[string]int{}
	for _, o := range y.Tasks {
		k, may := b.claim(o)
		if !may || b.prio[o] < r.Below {
			t.Fatalf("task %d must not yield", o.Task)
		}
		sum += k.Lost
		perTenant[k.Tenant] += k.milli()
	}
	if sum != y.Lost {
		t.Fatalf("%d is lost, not %d", sum, y.Lost)
	}
	for tenant, n := range perTenant { // order: only a yes or no comes out
		if r.Budget != nil && n > r.Budget(tenant) {
			t.Fatalf("tenant %s yields %d thousandths", tenant, n)
		}
	}
	if !b.fitsWithout(r.Query, y.Tasks) {
		t.Fatalf("after %v have yielded %+v still does not fit", y.Tasks, r.Query)
	}
}

// TestConsolidate: after the moves everyone has a place, and nothing but the tasks
// that may move has moved.
func TestConsolidate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBook(t)
		r := drawReclaim(t, b)
		if rapid.Bool().Draw(t, "more") {
			r.Request.Members = rapid.IntRange(2, 3).Draw(t, "members")
		}
		before := b.c.dump()
		p, ok := b.c.Consolidate(r)
		if after := b.c.dump(); after != before {
			t.Fatalf("Consolidate changed the cluster:\n%s\n%s", before, after)
		}
		b.c.test(t, "Consolidate")
		if !ok {
			return
		}
		for _, m := range p.Moves {
			o := task(m.Owner)
			if _, may := b.claim(o); !may || b.prio[o] < r.Below {
				t.Fatalf("task %d must not move", o.Task)
			}
			b.c.Free(m.Owner, m.From)
		}
		for _, m := range p.Moves {
			b.c.Take(Holder{m.Owner, b.claims[task(m.Owner)].Tenant, b.prio[task(m.Owner)]}, m.To)
		}
		for i, part := range p.Parts {
			b.c.Take(Holder{Owner: work.Owner{Task: 999, Epoch: 1, Member: i}, Tenant: r.Tenant}, part)
		}
		b.c.test(t, "the moves")
	})
}

// TestConsolidateMoves pins what is moved: two GPUs are cut, and the slices of the
// cheaper one fit beside those of the other.
func TestConsolidateMoves(t *testing.T) {
	c := NewCluster(testModels)
	for h := range 2 {
		c.AddHost(gpu.HostInfo{Name: fmt.Sprint("h", h), GPUs: []gpu.GPUInfo{{ID: fmt.Sprint(h), Model: "H100-80GB"}}}, "p")
		c.SetUsable(h, true, false)
	}
	b := &book{c, map[work.Owner]Claim{}, map[work.Owner]work.Priority{}, map[work.Owner]bool{}}
	hold := func(id, gpu, start int, profile string, lost int64) {
		part := work.Part{Host: gpu, Slices: []work.Slice{{GPU: gpu, Mode: "mig", Profile: profile, Start: start, Milli: 100}}}
		o := work.Owner{Task: work.TaskID(id), Epoch: 1}
		b.claims[o] = Claim{Tenant: "a", Lost: lost, Parts: []work.Part{part}}
		c.Take(Holder{o, "a", work.Low}, part)
	}
	hold(1, 0, 0, "1g.10gb", 10)
	hold(2, 1, 0, "3g.40gb", 5)
	want := Reclaim{Query: Query{Pool: "p", Tenant: "b", Request: work.Request{GPUs: 1}}, Below: work.High, Claim: b.claim}
	p, ok := c.Consolidate(want)
	if !ok || len(p.Moves) != 1 || p.Moves[0].Owner.Task != 2 || p.Price != 5 || p.Moves[0].To.Slices[0].GPU != 0 || p.Parts[0].Slices[0].GPU != 1 {
		t.Errorf("a whole GPU: got %+v %v, wanted task 2 to move to GPU 0", p, ok)
	}
	want.Budget = func(string) int { return 0 }
	if p, ok := c.Consolidate(want); ok {
		t.Errorf("nobody may move, but got %+v", p)
	}
	want.Budget = nil
	want.Request = work.Request{Profile: "7g.80gb"} // a whole placement
	if p, ok := c.Consolidate(want); !ok || len(p.Moves) != 1 || p.Moves[0].Owner.Task != 2 {
		t.Errorf("a whole placement: got %+v %v, wanted task 2 to move", p, ok)
	}
	want.Request = work.Request{GPUs: 2}
	if p, ok := c.Consolidate(want); ok {
		t.Errorf("no host has two GPUs, but got %+v", p)
	}
	hold(3, 0, 4, "3g.40gb", 1)
	want.Request = work.Request{GPUs: 1}
	if p, ok := c.Consolidate(want); ok { // task 2 has nowhere to go but the cheap task's place
		t.Errorf("not all fit on one GPU, but got %+v", p)
	}
}

// TestReclaimPicks pins what is chosen on a small cluster.
func TestReclaimPicks(t *testing.T) {
	c := NewCluster(testModels)
	b := &book{c, map[work.Owner]Claim{}, map[work.Owner]work.Priority{}, map[work.Owner]bool{}}
	for h := range 3 {
		info := gpu.HostInfo{Name: fmt.Sprint("h", h), CPUMilli: 64000, MemMiB: 1 << 20}
		for g := range 4 {
			info.GPUs = append(info.GPUs, gpu.GPUInfo{ID: fmt.Sprint(h, ".", g), Model: "H100-80GB"})
		}
		c.AddHost(info, "p")
		c.SetUsable(h, true, false)
	}
	hold := func(id, host, from, n int, lost int64, prio work.Priority) {
		part := work.Part{Host: host}
		for g := from; g < from+n; g++ {
			part.Slices = append(part.Slices, work.Slice{GPU: host*4 + g, Mode: gpu.ModeWhole, Milli: 1000})
		}
		o := work.Owner{Task: work.TaskID(id), Epoch: 1}
		b.claims[o], b.prio[o] = Claim{Tenant: "a", Lost: lost, Parts: []work.Part{part}}, prio
		c.Take(Holder{o, "a", prio}, part)
	}
	hold(1, 0, 0, 4, 100, work.Low)  // all of h0
	hold(2, 1, 0, 2, 30, work.Low)   // h1: two tasks of two GPUs
	hold(3, 1, 2, 2, 60, work.Low)   //
	hold(4, 2, 0, 1, 1, work.Low)    // h2: a cheap one,
	hold(5, 2, 1, 3, 1, work.Normal) // and a more urgent one
	for _, x := range []struct {
		gpus  int
		below work.Priority
		want  string
	}{
		{1, work.Low, "[4] 1"},      // the least work lost
		{2, work.Low, "[2] 30"},     // one task of the right size
		{4, work.Low, "[3 2] 90"},   // two tasks lose less than the one of 100
		{4, work.Normal, "[4 5] 2"}, // normal ones may yield too
		{4, work.High, "[4 5] 2"},
	} {
		y, ok := c.Reclaim(Reclaim{Query: Query{Pool: "p", Tenant: "b", Request: work.Request{GPUs: x.gpus}}, Below: x.below, Claim: b.claim})
		var ids []work.TaskID
		for _, o := range y.Tasks {
			ids = append(ids, o.Task)
		}
		if got := fmt.Sprint(ids, " ", y.Lost); !ok || got != x.want {
			t.Errorf("%d GPUs from %s and below: got %v %s, wanted %s", x.gpus, x.below, ok, got, x.want)
		}
	}
}
