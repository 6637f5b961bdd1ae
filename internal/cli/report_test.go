package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpupool/gpupool/internal/api/apitype"
)

var update = flag.Bool("update", false, "rewrite the golden files of testdata")

// reportServer answers with ten days of two pools, the second of which nobody measured, or
// with nothing.
func reportServer(t *testing.T, empty bool) (url string, asked *[]string) {
	t.Helper()
	asked = new([]string)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r.URL.Path+"?"+r.URL.RawQuery)
		since := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
		x := apitype.Report{From: "2026-11-01", To: "2026-11-10", Since: since, Until: since.AddDate(0, 0, 10), By: r.URL.Query().Get("by"), Rows: []apitype.ReportRow{}}
		peak, mean, mainPeak, mainMean, restPeak, restMean := 7, 3.5, 4, 2.0, 3, 1.5
		if !empty {
			a := apitype.ReportRow{Pool: "main", Hours: 240, StaticHours: 1440, StaticIdle: 700, StaticUnknown: 40, HeldHours: 480, HeldIdle: 44, HeldUnknown: 40, StaticPeak: 10, StaticMean: 6,
				InUsePeak: &mainPeak, InUseMean: &mainMean, Placed: 10, WaitedS: 25, Woken: 4, WokenS: 6, Succeeded: 8, Failed: 1, Cancelled: 1, Moves: 5, MoveFailed: 1, Preempted: 2}
			b := apitype.ReportRow{Pool: "rest", Hours: 240, StaticHours: 360, StaticUnknown: 360, HeldHours: 360, HeldUnknown: 360, StaticPeak: 3, StaticMean: 1.5, InUsePeak: &restPeak, InUseMean: &restMean}
			x.Rows = append(x.Rows, a, b)
			x.Total = apitype.ReportRow{Hours: 240, StaticHours: 1800, StaticIdle: 700, StaticUnknown: 400, HeldHours: 840, HeldIdle: 44, HeldUnknown: 400, StaticPeak: 13, StaticMean: 7.5, InUsePeak: &peak, InUseMean: &mean, Placed: 10, WaitedS: 25}
			if x.By == "day" {
				a.Pool, a.Day = "", "2026-11-01"
				b.Pool, b.Day = "", "2026-11-02"
				x.Rows = []apitype.ReportRow{a, b}
			}
		}
		_ = json.NewEncoder(w).Encode(x)
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

func report(t *testing.T, url string, args ...string) (string, int) {
	t.Helper()
	var out, errs bytes.Buffer
	a := &App{Version: "v1", Out: &out, Err: &errs, In: strings.NewReader("")}
	code := a.Main(context.Background(), append([]string{"--server", url, "--token", "x", "report"}, args...))
	return out.String() + errs.String(), code
}

func TestReport(t *testing.T) {
	url, asked := reportServer(t, false)
	for name, args := range map[string][]string{
		"report.txt":       {"--from", "2026-11-01", "--to", "2026-11-10", "--price", "2.5", "--migration-cost", "50000"},
		"report-wide.txt":  {"-o", "wide"},
		"report.csv":       {"-o", "csv", "--price", "2", "--currency", "EUR"},
		"report-money.txt": {"-o", "json", "--price", "2.5", "--migration-cost", "50000"},
	} {
		got, code := report(t, url, args...)
		if code != 0 {
			t.Fatalf("%q: exit code %d, %s", args, code, got)
		}
		if name == "report-money.txt" {
			_, got, _ = strings.Cut(got, `"saved": `)
		}
		golden(t, name, got)
	}
	if !strings.Contains(strings.Join(*asked, " "), "/v1/report?by=pool&from=2026-11-01&to=2026-11-10") {
		t.Errorf("asked %q", *asked)
	}
}

// golden compares with a file of testdata; with -update it is written instead.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), go test ./internal/cli -update writes it anew:\n%s", name, diff)
	}
}

func TestReportPage(t *testing.T) {
	url, asked := reportServer(t, false)
	path := filepath.Join(t.TempDir(), "out.html")
	if got, code := report(t, url, "--file", path, "--price", "2.5"); code != 0 || !strings.Contains(got, "report written to") {
		t.Fatalf("exit code %d, %s", code, got)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	if strings.Count(page, "<svg role") != 3 || !strings.Contains(page, "2400.00 USD were saved") || !strings.Contains(page, "<td>unknown</td>") || strings.Contains(page, "http://") && strings.Contains(page, "<script") {
		t.Errorf("the page has %d plots:\n%.2000s", strings.Count(page, "<svg role"), page)
	}
	if len(*asked) != 2 || !strings.Contains((*asked)[1], "by=day") {
		t.Errorf("asked %q", *asked)
	}
}

// TestReportOfNothing: before there is anything to compare, words say so, in every shape.
func TestReportOfNothing(t *testing.T) {
	url, _ := reportServer(t, true)
	for _, o := range []string{"table", "wide", "html"} {
		if got, code := report(t, url, "-o", o); code != 0 || !strings.Contains(got, "there is nothing to compare yet") || strings.Contains(got, "TOTAL") || strings.Contains(got, "NaN") {
			t.Errorf("-o %s: exit code %d, %s", o, code, got)
		}
	}
	if got, code := report(t, url, "-o", "csv"); code != 0 || strings.Count(got, "\n") != 2 {
		t.Errorf("exit code %d, %s", code, got)
	}
	if got, code := report(t, url, "-o", "json", "--price", "1", "--migration-cost", "5"); code != 0 || strings.Contains(got, "months_until") {
		t.Errorf("exit code %d, %s", code, got)
	}
}

func TestReportFlags(t *testing.T) {
	url, asked := reportServer(t, false)
	for _, x := range []struct {
		args []string
		say  string
	}{
		{[]string{"-o", "xml"}, "use table, wide, json, yaml, csv, html"},
		{[]string{"--by", "hour"}, "use pool, tenant, day"},
		{[]string{"--days", "3", "--from", "2026-11-01"}, "not both"},
		{[]string{"--days", "0"}, "expected 1 to 400"},
		{[]string{"--price", "-1"}, "0 or more"},
		{[]string{"--price", "NaN"}, "0 or more"},
		{[]string{"--migration-cost", "5"}, "give --price"},
		{[]string{"--file", "/no/such/folder/x.html"}, "cannot be written"},
		{[]string{"extra"}, "see gpupool report --help"},
	} {
		if got, code := report(t, url, x.args...); code == 0 || !strings.Contains(got, x.say) {
			t.Errorf("%q: exit code %d and %s, want %q", x.args, code, got, x.say)
		}
	}
	if len(*asked) > 0 {
		t.Errorf("the server was asked %q", *asked)
	}
}
