package engine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpupool/gpupool/internal/books"
	"github.com/gpupool/gpupool/internal/elastic"
	"github.com/gpupool/gpupool/internal/work"
)

// The books say what a pool's tasks held of GPUs, day by day and tenant by tenant, and what
// a static site would have held for them: the whole GPUs of each member, for as long as its
// part is not freed, parked or not. A task is in the books of the pool that it was
// submitted to, wherever it was placed. Nothing is counted while its host is away, on
// either side: those GPUs serve nobody.
//
// A fact costs a few additions, and one for each slice that it places or frees.

// poolBooks are the books of a pool.
type poolBooks struct {
	began   work.Time // what was before is not known
	whole   books.Account
	tenants map[string]*books.Account
	onGPU   map[int]int // GPU -> slices on it that tasks of this pool hold
	grown   bool        // some task held more than static would have granted it
}

// booked is how a task stands in the books now.
type booked struct {
	books.Holding
	kind             books.Kind
	since            work.Time // it stands there so
	moves, preempted int       // of it that were counted
}

func newPoolBooks(began work.Time) poolBooks {
	return poolBooks{began: began, tenants: map[string]*books.Account{}, onGPU: map[int]int{}}
}

func (b *poolBooks) tenant(name string) *books.Account {
	a := b.tenants[name]
	if a == nil {
		a = &books.Account{}
		b.tenants[name] = a
	}
	return a
}

// settle lets time pass for a pool and a tenant of it. Whoever is idle for long is looked
// at when a new day begins, so that no tenant's days outlive the pool's.
func (b *poolBooks) settle(tenant string, now work.Time) *books.Account {
	last := len(b.whole.Days) - 1
	was := last >= 0 && b.whole.Days[last].Day == books.DayOf(now)
	b.whole.Settle(now)
	if !was {
		b.whole.Drop(books.DayOf(now) - books.Keep)
		for name, a := range b.tenants { // order: each by itself
			if a.Drop(books.DayOf(now) - books.Keep); a.Nothing() {
				delete(b.tenants, name)
			}
		}
	}
	a := b.tenant(tenant)
	a.Settle(now)
	return a
}

// both does something with the accounts that a task is in.
func (e *Engine) both(t *Task, do func(*books.Account)) {
	a := t.pool.books.settle(t.Spec.Tenant, e.now)
	do(&t.pool.books.whole)
	do(a)
}

// staticMilli is what a static site would grant each member of a task.
func staticMilli(t *Task) int64 {
	if t.Spec.Request.IsPart() {
		return 1000
	}
	return 1000 * int64(t.Spec.Request.GPUs)
}

// book takes note that a task holds a part, or no longer.
func (e *Engine) book(t *Task, part work.Part, sign int) {
	h := books.Holding{Static: int64(sign) * staticMilli(t), Held: int64(sign * part.Milli())}
	if h.None() {
		return
	}
	b := &t.book
	if b.None() {
		b.kind = bookedAs(t)
	}
	e.both(t, func(a *books.Account) { a.Change(b.kind, h, e.now) })
	t.pool.books.occupy(part, sign)
	t.pool.books.grown = t.pool.books.grown || sign > 0 && h.Held > h.Static
	b.Static += h.Static
	b.Held += h.Held
	if b.since = e.now; b.None() {
		b.since = 0
	}
}

// occupy counts GPUs with anything on them.
func (b *poolBooks) occupy(part work.Part, sign int) {
	for _, s := range part.Slices {
		n := b.onGPU[s.GPU] + sign
		if b.onGPU[s.GPU] = n; n == 0 {
			delete(b.onGPU, s.GPU)
		}
	}
	b.whole.InUse = int64(len(b.onGPU))
}

// bookedAs is what is known of the GPU time of a task at this moment. One that is suspended
// would idle at a static site until somebody wants it again; from then on nobody can say.
func bookedAs(t *Task) books.Kind {
	switch {
	case t.lease == nil:
		return books.Unknown
	case t.lease.Parts[0].Phase.halted():
		if t.Awake {
			return books.Unknown
		}
		return books.Idle
	case t.Use.Kind == elastic.Unknown:
		return books.Unknown
	case t.Use.Kind == elastic.Idle:
		return books.Idle
	}
	return books.Busy
}

// bookFact takes note of what a fact said, once it is applied.
func (e *Engine) bookFact(f Fact) {
	id := TaskOf(f)
	if id == 0 {
		return
	}
	t := e.tasks[id]
	if t == nil {
		return
	}
	e.bookKind(t, f)
	e.bookCounts(t, f)
}

// bookKind takes note of another kind. A task was idle before it was judged so: that time
// is counted as idle too, from when it began to hold what it holds. What was measured
// before the first judgement of another kind stays unknown.
func (e *Engine) bookKind(t *Task, f Fact) {
	b := &t.book
	kind := bookedAs(t)
	if b.None() || kind == b.kind {
		return
	}
	since := e.now
	if j, judged := f.(Judged); judged && kind == books.Idle {
		since = min(max(j.Use.Since, b.since), e.now)
	}
	e.both(t, func(a *books.Account) { a.Turn(b.Holding, b.kind, kind, since, e.now) })
	b.kind, b.since = kind, since
}

// bookCounts counts what happened to a task.
func (e *Engine) bookCounts(t *Task, f Fact) {
	var add func(*books.Counts)
	switch f := f.(type) {
	case Placed:
		waited := max(e.now.Sub(t.Queued).Milliseconds(), 0)
		if add = func(c *books.Counts) { c.Placed++; c.WaitedMs += waited }; f.Runs != 0 {
			add = func(c *books.Counts) { c.Woken++; c.WokenMs += waited }
		}
	case MoveFailed:
		add = func(c *books.Counts) { c.MoveFailed++ }
	case Became:
		add = countEnd(f.State)
	}
	if add != nil {
		e.both(t, func(a *books.Account) { add(a.Today(e.now)) })
	}
	if b := &t.book; b.moves != t.Moves || b.preempted != t.Preempted {
		moves, preempted := t.Moves-b.moves, t.Preempted-b.preempted
		b.moves, b.preempted = t.Moves, t.Preempted
		e.both(t, func(a *books.Account) {
			c := a.Today(e.now)
			c.Moves += moves
			c.Preempted += preempted
		})
	}
}

// countEnd counts the end of a task; nil when it has not ended.
func countEnd(s work.State) func(*books.Counts) {
	switch s {
	case work.Succeeded:
		return func(c *books.Counts) { c.Succeeded++ }
	case work.Failed:
		return func(c *books.Counts) { c.Failed++ }
	case work.StateCancel:
		return func(c *books.Counts) { c.Cancelled++ }
	case work.Expired:
		return func(c *books.Counts) { c.Expired++ }
	}
	return nil
}

// booksState is what a snapshot keeps of the books: what is held now follows from leases.
type booksState struct {
	Pools []poolBooksState `json:"pools"`          // in the order of the pools
	Open  []openState      `json:"open,omitempty"` // of tasks that hold something, by number
}

type poolBooksState struct {
	Began   work.Time     `json:"began"`
	At      work.Time     `json:"at,omitempty"`
	Grown   bool          `json:"grown,omitempty"`
	Days    []books.Day   `json:"days,omitempty"`
	Tenants []tenantState `json:"tenants,omitempty"` // by name
}

type tenantState struct {
	Tenant string      `json:"tenant"`
	At     work.Time   `json:"at"`
	Days   []books.Day `json:"days,omitempty"`
}

type openState struct {
	Task  work.TaskID `json:"task"`
	Since work.Time   `json:"since"`
}

func (e *Engine) booksState() *booksState {
	s := &booksState{}
	for _, p := range e.lines {
		x := poolBooksState{Began: p.books.began, At: p.books.whole.At, Grown: p.books.grown, Days: p.books.whole.Days}
		for _, name := range slices.Sorted(maps.Keys(p.books.tenants)) {
			if a := p.books.tenants[name]; !a.Nothing() {
				x.Tenants = append(x.Tenants, tenantState{name, a.At, a.Days})
			}
		}
		s.Pools = append(s.Pools, x)
	}
	for _, t := range e.tasks { // order: sorted below
		if !t.book.None() {
			s.Open = append(s.Open, openState{t.ID, t.book.since})
		}
	}
	slices.SortFunc(s.Open, func(a, b openState) int { return cmp.Compare(a.Task, b.Task) })
	return s
}

// restoreBooks comes last: tasks and leases stand, and have been booked as if they began
// now. A snapshot without books was written by an older gpupool: they begin now.
func (e *Engine) restoreBooks(s *booksState) {
	for _, t := range e.tasks { // order: each by itself
		t.book.moves, t.book.preempted = t.Moves, t.Preempted
		e.bookKind(t, nil)
	}
	if s == nil {
		return
	}
	for i, x := range s.Pools {
		b := &e.lines[i].books
		b.began, b.grown, b.whole.At, b.whole.Days = x.Began, x.Grown, x.At, x.Days
		for _, a := range b.tenants { // order: each by itself
			a.Days = nil
		}
		for _, y := range x.Tenants {
			a := b.tenant(y.Tenant)
			a.At, a.Days = y.At, y.Days
		}
	}
	for _, x := range s.Open {
		e.tasks[x.Task].book.since = x.Since
	}
}
