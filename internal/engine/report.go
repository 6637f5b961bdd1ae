package engine

import (
	"maps"
	"slices"

	"github.com/gpupool/gpupool/internal/books"
	"github.com/gpupool/gpupool/internal/work"
)

// PoolBooks are the books of a pool.
type PoolBooks struct {
	Pool    string
	Began   work.Time   // what was before is not known
	Whole   []books.Day // of all its tasks, the oldest first
	Tenants []TenantBooks
}

// TenantBooks are those of a tenant's tasks in a pool.
type TenantBooks struct {
	Tenant string
	Days   []books.Day
}

// Books shows what is in the books from one day to another, both included, as if time had
// passed to the last Step; by pool in their order and tenants by name. It changes nothing
// and costs a copy of the days that are kept.
func (e *Engine) Books(from, to int) []PoolBooks {
	first := max(from, books.DayOf(e.now)-books.Keep+1) // who did nothing lately may still have older ones
	within := func(a *books.Account) []books.Day {
		return slices.DeleteFunc(a.UpTo(e.now), func(d books.Day) bool { return d.Day < first || d.Day > to })
	}
	var out []PoolBooks
	for _, p := range e.lines {
		x := PoolBooks{Pool: p.Name, Began: p.books.began, Whole: within(&p.books.whole)}
		for _, name := range slices.Sorted(maps.Keys(p.books.tenants)) {
			if days := within(p.books.tenants[name]); len(days) > 0 {
				x.Tenants = append(x.Tenants, TenantBooks{name, days})
			}
		}
		out = append(out, x)
	}
	return out
}
