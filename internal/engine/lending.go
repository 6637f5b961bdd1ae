package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

// Debt is what a pool has lent to another, and how it came back. Guests are taken back
// when a task of the lender waits for them: they have run for the lender's min-runtime,
// then they get their grace, and then the driver frees their slices. Nothing else delays
// it: no budget of preemptions counts for guests.
type Debt struct {
	Lender   string        `json:"lender"`
	Borrower string        `json:"borrower"`
	Milli    int           `json:"milli,omitempty"`  // of the lender's GPUs that tasks of the borrower hold now, in thousandths
	GPUMs    int64         `json:"gpu_ms,omitempty"` // GPU milliseconds up to At
	At       work.Time     `json:"at"`
	Loans    int           `json:"loans,omitempty"`  // parts that were lent
	Called   int           `json:"called,omitempty"` // of those, asked back
	Longest  time.Duration `json:"longest,omitempty"`
	Took     time.Duration `json:"took,omitempty"` // from asked back to free, all of them together
}

// settle brings a debt up to now.
func (d *Debt) settle(now work.Time) {
	d.GPUMs += int64(d.Milli) * now.Sub(d.At).Milliseconds() / 1000
	d.At = now
}

// owe counts what a pool lends to another, or has back.
func (e *Engine) owe(lender *pool, borrower string, milli int) {
	i, is := slices.BinarySearchFunc(lender.debts, borrower, func(d *Debt, name string) int { return cmp.Compare(d.Borrower, name) })
	if !is {
		lender.debts = slices.Insert(lender.debts, i, &Debt{Lender: lender.Name, Borrower: borrower, At: e.now})
	}
	d := lender.debts[i]
	d.settle(e.now)
	d.Milli += milli
}

// debt is what the pool of a host lent to the pool of a task, or nil.
func (e *Engine) debt(t *Task, host int) *Debt {
	p := e.pools[e.cluster.Hosts[host].Pool]
	if p == nil || p == t.pool {
		return nil
	}
	i, is := slices.BinarySearchFunc(p.debts, t.pool.Name, func(d *Debt, name string) int { return cmp.Compare(d.Borrower, name) })
	if !is {
		return nil
	}
	return p.debts[i]
}

// lend counts a part that is given to a guest.
func (e *Engine) lend(t *Task, p *Part) {
	if d := e.debt(t, p.Host); d != nil && p.Milli() > 0 {
		d.Loans++
	}
}

// callBack notes that a guest was asked for what it holds.
func (e *Engine) callBack(l *Lease) {
	if l.Reason.Code != work.Preempted {
		return
	}
	for _, p := range l.Parts {
		if d := e.debt(l.of, p.Host); d != nil && p.Milli() > 0 && p.Phase != PhaseFreed {
			d.Called++
			l.Called = e.now
		}
	}
}

// comeBack notes that a part of a guest that was asked for is free.
func (e *Engine) comeBack(l *Lease, p *Part) {
	if d := e.debt(l.of, p.Host); d != nil && l.Called != 0 && p.Milli() > 0 {
		took := e.now.Sub(l.Called)
		d.Took, d.Longest = d.Took+took, max(d.Longest, took)
	}
}

// Debts lists what pools have lent to each other, up to now, by lender and borrower.
func (e *Engine) Debts() []Debt {
	var out []Debt
	for _, p := range e.lines {
		for _, d := range p.debts {
			x := *d
			x.settle(e.now)
			out = append(out, x)
		}
	}
	slices.SortFunc(out, func(a, b Debt) int {
		return cmp.Or(cmp.Compare(a.Lender, b.Lender), cmp.Compare(a.Borrower, b.Borrower))
	})
	return out
}
