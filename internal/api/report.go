package api

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/books"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/work"
)

func (s *server) reportRoutes() {
	register(s, op{id: "report", method: get, path: "/v1/report", tag: "pool", says: "Report what was held, and what a static site would have held for the same tasks",
		more: "By pool, tenant or day (UTC). A tenant gets the figures of its own tasks alone. The last 400 days are kept."}, s.report)
}

// ReportQuery says what a report is about.
type ReportQuery struct {
	From string `query:"from" maxLength:"10" example:"2026-11-01" doc:"First day (UTC); as far back as there are figures if left out"`
	To   string `query:"to" maxLength:"10" example:"2026-11-30" doc:"Last day, included; today if left out"`
	By   string `query:"by" enum:"pool,tenant,day" default:"pool" doc:"What has a row"`
}

// days reads the first and last day asked for; 0 and a day that never comes where they are left out.
func (q ReportQuery) days() (from, to int, err error) {
	const never = 1 << 30
	from, to = 0, never
	for _, x := range []struct {
		name, text string
		to         *int
	}{{"from", q.From, &from}, {"to", q.To, &to}} {
		if x.text == "" {
			continue
		}
		t, err := time.Parse(time.DateOnly, x.text)
		if err != nil || t.Year() < 1970 || t.Year() > 2200 { // what the core's clock can hold
			return 0, 0, work.Errorf(work.CodeInvalid, "%s %q is not understood: expected a day such as 2026-11-30", x.name, x.text)
		}
		*x.to = books.DayOf(work.TimeOf(t))
	}
	if from > to {
		return 0, 0, work.Errorf(work.CodeInvalid, "the report would end on %s, before it begins on %s: expected from to be the earlier day", q.To, q.From)
	}
	return from, to, nil
}

func (s *server) report(ctx context.Context, in *ReportQuery) (*answer[apitype.Report], error) {
	from, to, err := in.days()
	if err != nil {
		return nil, err
	}
	var now work.Time
	var all []engine.PoolBooks
	s.host.Read(func(e *engine.Engine) {
		now, all = e.Now(), e.Books(from, to)
	})
	today := books.DayOf(now)
	r := reporting{from: max(from, today-books.Keep+1), to: min(to, today), now: now, partial: !who(ctx).all()}
	for _, p := range all {
		if p, seen := visible(p, who(ctx)); seen {
			r.pools = append(r.pools, p)
		}
	}
	return answerOf(r.report(in.By), nil)
}

// visible is what a caller may see of a pool's books. What a tenant may not see is left
// out: it gets its own days in place of the pool's, and those say nothing of GPUs in use.
func visible(p engine.PoolBooks, c caller) (engine.PoolBooks, bool) {
	if c.all() {
		return p, true
	}
	p.Whole, p.Tenants = nil, slices.DeleteFunc(p.Tenants, func(t engine.TenantBooks) bool { return !c.owns(t.Tenant) })
	if len(p.Tenants) == 0 {
		return p, false
	}
	p.Whole = p.Tenants[0].Days
	return p, true
}

// reporting makes a report of books.
type reporting struct {
	from, to int // days
	now      work.Time
	pools    []engine.PoolBooks
	partial  bool // they are a tenant's part of them
}

func dayStart(day int) work.Time { return work.Time(day) * work.Time(books.DayLength) }

// span is the time from one day to another that is in the books of pools.
func (r reporting) span(from, to int, pools ...engine.PoolBooks) (since, until work.Time) {
	if len(pools) == 0 {
		return r.now, r.now
	}
	since = pools[0].Began
	for _, p := range pools {
		since = min(since, p.Began)
	}
	until = min(dayStart(to+1), r.now)
	return min(max(since, dayStart(from)), until), until
}

func (r reporting) report(by string) apitype.Report {
	since, until := r.span(r.from, r.to, r.pools...)
	r.from = min(max(r.from, books.DayOf(since)), r.to)
	out := apitype.Report{By: by, Since: since.Std(), Until: until.Std(), From: date(r.from), To: date(r.to), Rows: []apitype.ReportRow{}}
	var all [][]books.Day
	for _, p := range r.pools {
		all = append(all, p.Whole)
	}
	out.Total = row(books.Sum(all...), until.Sub(since), true)
	switch by {
	case "pool":
		for _, p := range r.pools {
			from, to := r.span(r.from, r.to, p)
			x := row(books.Sum(p.Whole), to.Sub(from), true)
			x.Pool = p.Pool
			out.Rows = append(out.Rows, x)
		}
	case "tenant":
		out.Rows = r.byTenant(out.Rows)
	case "day":
		if until > since {
			out.Rows = r.byDay(out.Rows, books.DayOf(since), books.DayOf(until-1))
		}
	}
	if r.partial {
		out.Total = withoutUse(out.Total)
		for i := range out.Rows {
			out.Rows[i] = withoutUse(out.Rows[i])
		}
	}
	return out
}

// withoutUse leaves out GPUs with anything on them, which are known of whole pools only.
func withoutUse(x apitype.ReportRow) apitype.ReportRow {
	x.InUsePeak, x.InUseMean = nil, nil
	return x
}

func (r reporting) byTenant(rows []apitype.ReportRow) []apitype.ReportRow {
	of, in := map[string][][]books.Day{}, map[string][]engine.PoolBooks{}
	for _, p := range r.pools {
		for _, t := range p.Tenants {
			of[t.Tenant] = append(of[t.Tenant], t.Days)
			in[t.Tenant] = append(in[t.Tenant], p)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		from, to := r.span(r.from, r.to, in[name]...)
		x := row(books.Sum(of[name]...), to.Sub(from), false)
		x.Tenant = name
		rows = append(rows, x)
	}
	return rows
}

// byDay also has rows for days on which nothing was held.
func (r reporting) byDay(rows []apitype.ReportRow, first, last int) []apitype.ReportRow {
	for day := first; day <= last; day++ {
		var of [][]books.Day
		for _, p := range r.pools {
			if i, has := slices.BinarySearchFunc(p.Whole, day, func(d books.Day, n int) int { return d.Day - n }); has {
				of = append(of, p.Whole[i:i+1])
			}
		}
		from, to := r.span(day, day, r.pools...)
		x := row(books.Sum(of...), to.Sub(from), true)
		x.Day = date(day)
		rows = append(rows, x)
	}
	return rows
}

func date(day int) string { return dayStart(day).Std().Format(time.DateOnly) }

// row turns sums into figures for people; took is how long they were added up.
func row(d books.Day, took time.Duration, pools bool) apitype.ReportRow {
	hours := func(amount int64) float64 { return float64(amount) / float64(time.Hour/time.Microsecond) }
	mean := func(amount int64) float64 {
		if took <= 0 {
			return 0
		}
		return hours(amount) / took.Hours()
	}
	x := apitype.ReportRow{
		Hours:       took.Hours(),
		StaticHours: hours(d.Static.Sum()), StaticIdle: hours(d.Static[books.Idle]), StaticUnknown: hours(d.Static[books.Unknown]),
		HeldHours: hours(d.Held.Sum()), HeldIdle: hours(d.Held[books.Idle]), HeldUnknown: hours(d.Held[books.Unknown]),
		StaticPeak: int(d.PeakStatic), StaticMean: mean(d.Static.Sum()),
		Placed: d.Placed, WaitedS: float64(d.WaitedMs) / 1000, Woken: d.Woken, WokenS: float64(d.WokenMs) / 1000,
		Succeeded: d.Succeeded, Failed: d.Failed, Cancelled: d.Cancelled, Expired: d.Expired, Moves: d.Moves, MoveFailed: d.MoveFailed, Preempted: d.Preempted,
	}
	if pools {
		peak, inUse := int(d.PeakInUse), mean(d.InUse)
		x.InUsePeak, x.InUseMean = &peak, &inUse
	}
	return x
}
