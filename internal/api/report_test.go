package api_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/work"
)

// reportOf asks for a report as someone.
func reportOf(t *testing.T, c *client.Client, by string) apitype.Report {
	t.Helper()
	r, err := c.Report(t.Context(), client.ReportQuery{By: by})
	ok(t, err)
	return r
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// TestReport: rows add up to the total however they are cut, static has whole GPUs where a
// part is held, and a tenant gets what is its own and nothing of GPUs that it shares.
func TestReport(t *testing.T) {
	w := start(t, options{pools: []work.Pool{{Name: "main", Mode: work.Dynamic, Hosts: []string{"*1"}}, {Name: "rest", Mode: work.Dynamic}}})
	if r := reportOf(t, w.alice, "day"); len(r.Rows) != 0 || r.Total.StaticHours != 0 || r.Total.InUsePeak != nil {
		t.Errorf("before anything is held: %+v", r)
	}
	a := w.running(w.alice, apitype.TaskSpec{GPUs: "1/7"})
	w.running(w.bob, apitype.TaskSpec{GPUs: "2"})
	w.running(w.bob, apitype.TaskSpec{GPUs: "1", Pool: "rest"})
	w.poll("time passes in the books", func() bool { return reportOf(t, w.admin, "tenant").Total.StaticPeak == 4 })
	w.finish(a, 0, 0)
	w.poll("the end is in the books", func() bool { return reportOf(t, w.alice, "pool").Total.Succeeded == 1 })
	for _, by := range []string{"pool", "tenant", "day"} {
		r := reportOf(t, w.admin, by)
		static, held, placed := 0.0, 0.0, 0
		for _, x := range r.Rows {
			static, held, placed = static+x.StaticHours, held+x.HeldHours, placed+x.Placed
			if x.StaticUnknown > x.StaticHours || x.HeldHours > x.StaticHours || (x.InUsePeak == nil) != (by == "tenant") {
				t.Errorf("by %s: %+v", by, x)
			}
		}
		if !near(static, r.Total.StaticHours) || !near(held, r.Total.HeldHours) || placed != 3 || r.Total.Placed != 3 || r.By != by {
			t.Errorf("by %s: rows have %g and %g GPU hours and %d tasks, the total is %+v", by, static, held, placed, r.Total)
		}
		if r.Total.StaticPeak != 4 || r.Total.InUsePeak == nil || *r.Total.InUsePeak != 4 || r.Since.After(r.Until) {
			t.Errorf("by %s: %+v", by, r)
		}
	}
	mine := reportOf(t, w.alice, "tenant")
	if len(mine.Rows) != 1 || mine.Rows[0].Tenant != "alice" || mine.Total.StaticPeak != 1 || mine.Total.InUsePeak != nil || mine.Total.Placed != 1 ||
		!near(mine.Total.HeldHours/mine.Total.StaticHours, 0.143) {
		t.Errorf("alice sees %+v", mine)
	}
	if pools := reportOf(t, w.alice, "pool").Rows; len(pools) != 1 || pools[0].Pool != "main" || pools[0].InUsePeak != nil {
		t.Errorf("alice sees pools %+v", pools)
	}
	if days := reportOf(t, w.bob, "day").Rows; len(days) == 0 || days[0].InUseMean != nil || days[0].Day == "" {
		t.Errorf("bob sees days %+v", days)
	}
}

func TestReportDays(t *testing.T) {
	w := start(t, options{})
	for query, want := range map[string]string{
		"from=yesterday": "expected a day such as 2026-11-30", "to=2026-11-3": "expected a day such as", "from=1900-01-01": "expected a day such as",
		"from=2026-11-30&to=2026-11-01": "before it begins on 2026-11-30", "by=hour": "",
	} {
		a := w.call(w.adminToken, "GET", "/v1/report?"+query, "")
		if p := checkProblem(t, a); a.status < 400 || a.status >= 500 || !strings.Contains(p.Detail, want) {
			t.Errorf("%s: got %d %s, want %q", query, a.status, a.body, want)
		}
	}
	w.running(w.alice, apitype.TaskSpec{GPUs: "1"})
	today := time.Now().UTC()
	for _, q := range []client.ReportQuery{{From: "2001-01-01", To: "2001-02-01", By: "day"}, {From: "2199-01-01", By: "day"}} {
		r, err := w.admin.Report(t.Context(), q)
		ok(t, err)
		if len(r.Rows) != 0 || r.Total.StaticHours != 0 || r.Total.Hours != 0 {
			t.Errorf("%+v: there is nothing to report: %+v", q, r)
		}
	}
	r, err := w.admin.Report(t.Context(), client.ReportQuery{From: today.AddDate(0, 0, -3).Format(time.DateOnly), By: "day"})
	ok(t, err)
	if len(r.Rows) == 0 || len(r.Rows) > 2 || r.From != r.Rows[0].Day { // two around midnight
		t.Errorf("%+v", r)
	}
}
