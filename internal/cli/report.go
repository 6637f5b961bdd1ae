package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
)

// reportFlags say what a report is about and what a GPU hour costs.
type reportFlags struct {
	client.ReportQuery
	days      int
	price     float64
	currency  string
	migration float64
	file      string
}

// savings is a report and what it is worth.
type savings struct {
	apitype.Report
	Saved *saved `json:"saved,omitempty"` // with a price
	days  []apitype.ReportRow
}

// saved is the money that was saved.
type saved struct {
	Price     float64  `json:"price_per_gpu_hour"`
	Currency  string   `json:"currency"`
	Money     float64  `json:"money"`           // for the GPU hours that static would have held and nobody did
	Empty     *float64 `json:"money_empty_gpu"` // for those of GPUs with nothing on them alone; nil = not known
	PerMonth  float64  `json:"money_per_month"` // at the rate of Money
	Migration float64  `json:"migration_cost,omitempty"`
	Months    *float64 `json:"months_until_paid_back,omitempty"` // nil = never at that rate, or no cost was given
}

var (
	reportOutputs = append(slices.Clone(outputs), "csv", "html")
	reportBy      = []string{"pool", "tenant", "day"}
)

// monthHours is a twelfth of a year of 365.25 days.
const monthHours = 365.25 * 24 / 12

func (a *App) reportCmd() *cobra.Command {
	var r reportFlags
	c := &cobra.Command{
		Use: "report", Short: "Show what pooling saved: GPU hours, GPUs, idle time and money", Args: cobra.NoArgs,
		Long: `Shows what was held of GPUs, beside what a static site would have held for the same tasks:
whole GPUs for as long as a task holds its place, idle or suspended. What nobody measured is
shown as unknown and is in no share of idle time.

Days are in UTC; the last 400 are kept. docs/report.md defines every figure and says what is
not counted.`,
		Example: `  gpupool report
  gpupool report --days 7 --by tenant
  gpupool report --from 2026-11-01 --to 2026-11-30 --price 2.50 --migration-cost 50000
  gpupool report --by day -o csv --file november.csv
  gpupool report --price 2.50 --file report.html`,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error { return r.check(a, c) },
		RunE: a.call(func(ctx context.Context, api *client.Client, _ []string) error {
			s, err := r.ask(ctx, api, a.flags.output == "html")
			if err != nil {
				return err
			}
			if r.file != "" {
				return a.writeReport(r.file, func(w io.Writer) error { return a.showSavings(w, s) })
			}
			return a.showSavings(a.Out, s)
		}),
	}
	f := c.Flags()
	f.IntVar(&r.days, "days", 30, "the last days, today among them")
	f.StringVar(&r.From, "from", "", "first day, such as 2026-11-01")
	f.StringVar(&r.To, "to", "", "last day, included (default today)")
	f.StringVar(&r.By, "by", "pool", "what has a row: pool, tenant or day")
	f.Float64Var(&r.price, "price", 0, "what a GPU hour costs; 0 = say nothing of money")
	f.StringVar(&r.currency, "currency", "USD", "of the price, as it is to be shown")
	f.Float64Var(&r.migration, "migration-cost", 0, "what moving to gpupool cost, to say when that is paid back")
	f.StringVar(&r.file, "file", "", "write to this file (one that ends in .html or .csv is written as such)")
	f.StringVarP(&a.flags.output, "output", "o", "table", "output: table, wide, json, yaml, csv or html")
	_ = c.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(reportBy, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(reportOutputs, cobra.ShellCompDirectiveNoFileComp))
	for _, name := range []string{"days", "from", "to", "price", "currency", "migration-cost"} {
		_ = c.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	return c
}

// check reads the flags.
func (r *reportFlags) check(a *App, c *cobra.Command) error {
	f := c.Flags()
	for _, kind := range []string{"html", "csv"} {
		if strings.HasSuffix(r.file, "."+kind) && !f.Changed("output") {
			a.flags.output = kind
		}
	}
	switch {
	case !slices.Contains(reportOutputs, a.flags.output):
		return usagef("output %q is not known: use %s", a.flags.output, strings.Join(reportOutputs, ", "))
	case !slices.Contains(reportBy, r.By):
		return usagef("a report by %q is not known: use %s", r.By, strings.Join(reportBy, ", "))
	case f.Changed("days") && (f.Changed("from") || f.Changed("to")):
		return usagef("give either --days or --from and --to, not both")
	case r.days < 1 || r.days > 400:
		return usagef("%d days is out of range: expected 1 to 400, which is what is kept", r.days)
	case !(r.price >= 0 && r.migration >= 0) || math.IsInf(r.price+r.migration, 0):
		return usagef("--price and --migration-cost must be amounts of money of 0 or more")
	case f.Changed("migration-cost") && r.price == 0:
		return usagef("a migration cost is compared with money saved: give --price, what a GPU hour costs")
	}
	if r.From == "" && r.To == "" {
		r.From = time.Now().UTC().AddDate(0, 0, 1-r.days).Format(time.DateOnly)
	}
	if r.file != "" {
		return writable(r.file)
	}
	return nil
}

// ask gets the report, and for plots the same by day.
func (r *reportFlags) ask(ctx context.Context, api *client.Client, plots bool) (*savings, error) {
	got, err := api.Report(ctx, r.ReportQuery)
	if err != nil {
		return nil, err
	}
	s := &savings{Report: got}
	if plots {
		q := r.ReportQuery
		q.By = "day"
		byDay, err := api.Report(ctx, q)
		if err != nil {
			return nil, err
		}
		s.days = byDay.Rows
	}
	if r.price > 0 {
		s.Saved = r.worth(got.Total)
	}
	return s, nil
}

// worth is what the GPU hours of a row are worth that were not held.
func (r *reportFlags) worth(x apitype.ReportRow) *saved {
	m := &saved{Price: r.price, Currency: r.currency, Money: (x.StaticHours - x.HeldHours) * r.price, Migration: r.migration}
	if x.InUseMean != nil {
		empty := (x.StaticHours - *x.InUseMean*x.Hours) * r.price
		m.Empty = &empty
	}
	if x.Hours > 0 {
		m.PerMonth = m.Money / x.Hours * monthHours
	}
	if r.migration > 0 && m.PerMonth > 0 {
		months := r.migration / m.PerMonth
		m.Months = &months
	}
	return m
}

// nothing reports whether there is nothing to show.
func (s *savings) nothing() bool { return s.Total.StaticHours == 0 && s.Total.HeldHours == 0 }

func (a *App) showSavings(w io.Writer, s *savings) error {
	switch a.flags.output {
	case "csv":
		return savingsCSV(w, s)
	case "html":
		return savingsPage(w, s)
	}
	to := *a
	to.Out = w
	return to.print(s, func(w io.Writer, wide bool) { savingsTable(w, s, wide) })
}

// savingsTable is a row for each, a total, and what follows from it in sentences.
func savingsTable(w io.Writer, s *savings, wide bool) {
	fmt.Fprintln(w, s.sentences()[0])
	if s.nothing() {
		return
	}
	var rows [][]string
	for _, x := range s.all() {
		rows = append(rows, s.cells(x, wide))
	}
	fmt.Fprintln(w)
	tabs(w, s.head(wide), rows)
	fmt.Fprintln(w)
	for _, line := range s.sentences()[1:] {
		fmt.Fprintln(w, line)
	}
}

// all are the rows and the total.
func (s *savings) all() []apitype.ReportRow { return append(slices.Clone(s.Rows), s.Total) }

// head names what cells shows.
func (s *savings) head(wide bool) []string {
	head := []string{strings.ToUpper(s.By), "STATIC GPU-H", "HELD GPU-H", "SAVING", "STATIC GPUS", "GPUS IN USE", "FEWER", "IDLE STATIC", "IDLE HELD", "UNKNOWN"}
	if s.Saved != nil {
		head = append(head, "SAVED "+s.Saved.Currency)
	}
	if wide {
		head = append(head, "PLACED", "MEAN WAIT", "WOKEN", "MEAN WAIT", "SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "MOVES", "FAILED MOVES", "PREEMPTED")
	}
	return head
}

func nameOf(x apitype.ReportRow) string { return cmp.Or(x.Pool, x.Tenant, x.Day, "TOTAL") }

// cells of a row; GPUs are the most at once and the mean.
func (s *savings) cells(x apitype.ReportRow, wide bool) []string {
	both := func(peak int, mean float64) string { return fmt.Sprintf("%d, %.1f", peak, mean) }
	inUse, fewer := "", ""
	if x.InUsePeak != nil && x.InUseMean != nil {
		inUse, fewer = both(*x.InUsePeak, *x.InUseMean), both(x.StaticPeak-*x.InUsePeak, x.StaticMean-*x.InUseMean)
	}
	out := []string{nameOf(x), gpuHours(x.StaticHours), gpuHours(x.HeldHours), percent(x.StaticHours-x.HeldHours, x.StaticHours),
		both(x.StaticPeak, x.StaticMean), inUse, fewer, idleShare(x.StaticIdle, x.StaticHours, x.StaticUnknown), idleShare(x.HeldIdle, x.HeldHours, x.HeldUnknown),
		percent(x.StaticUnknown, x.StaticHours)}
	if s.Saved != nil {
		out = append(out, fmt.Sprintf("%.2f", (x.StaticHours-x.HeldHours)*s.Saved.Price))
	}
	if wide {
		out = append(out, fmt.Sprint(x.Placed), meanWait(x.WaitedS, x.Placed), fmt.Sprint(x.Woken), meanWait(x.WokenS, x.Woken),
			fmt.Sprint(x.Succeeded), fmt.Sprint(x.Failed), fmt.Sprint(x.Cancelled), fmt.Sprint(x.Expired), fmt.Sprint(x.Moves), fmt.Sprint(x.MoveFailed), fmt.Sprint(x.Preempted))
	}
	return out
}

// gpuHours writes few hours with more digits.
func gpuHours(h float64) string {
	digits := 1
	switch {
	case h == 0:
		digits = 0
	case h < 1:
		digits = 4
	case h < 100:
		digits = 2
	}
	return strconv.FormatFloat(h, 'f', digits, 64)
}

func percent(x, of float64) string {
	if of == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f %%", 100*x/of)
}

// idleShare is of the time that was measured; without any it is not known, and not none.
func idleShare(idle, all, unknown float64) string {
	switch known := all - unknown; {
	case all == 0:
		return ""
	case known <= 0:
		return "unknown"
	default:
		return percent(idle, known)
	}
}

func meanWait(sum float64, n int) string {
	if n == 0 {
		return ""
	}
	return time.Duration(sum / float64(n) * float64(time.Second)).Round(time.Second).String()
}

// sentences say what the report is about, and what follows from its total. There is always one.
func (s *savings) sentences() []string {
	t := s.Total
	when := fmt.Sprintf("%s to %s UTC", s.Since.UTC().Format("2006-01-02 15:04"), s.Until.UTC().Format("2006-01-02 15:04"))
	if s.nothing() {
		return []string{"No GPU was held from " + when + ": there is nothing to compare yet. Figures begin with the first task that gets a GPU, and with the version of gpupool that keeps them."}
	}
	out := []string{fmt.Sprintf("From %s (%s): a static site would have held %s GPU hours for the same tasks, %s were held: %s saved.",
		when, span(s.Until.Sub(s.Since)), gpuHours(t.StaticHours), gpuHours(t.HeldHours), cmp.Or(percent(t.StaticHours-t.HeldHours, t.StaticHours), "nothing"))}
	out = append(out, "GPUs are the most at once, and the mean. Idle shares are of the time that was measured.")
	if t.InUsePeak != nil && t.InUseMean != nil {
		out = append(out, fmt.Sprintf("Static would have needed %d GPUs at once (mean %.1f); %d were in use (mean %.1f).", t.StaticPeak, t.StaticMean, *t.InUsePeak, *t.InUseMean))
	}
	if m := s.Saved; m != nil {
		line := fmt.Sprintf("At %.2f %s a GPU hour %.2f %s were saved", m.Price, m.Currency, m.Money, m.Currency)
		if m.Empty != nil {
			line += fmt.Sprintf(" (%.2f %s if only GPUs with nothing on them count)", *m.Empty, m.Currency)
		}
		out = append(out, line+fmt.Sprintf(", which is %.2f %s a month at that rate.", m.PerMonth, m.Currency))
		switch {
		case m.Months != nil:
			out = append(out, fmt.Sprintf("The migration cost of %.2f %s is paid back in %.1f months at that rate.", m.Migration, m.Currency, *m.Months))
		case m.Migration > 0:
			out = append(out, fmt.Sprintf("The migration cost of %.2f %s is not paid back at that rate: nothing was saved.", m.Migration, m.Currency))
		}
		if s.Until.Sub(s.Since) < shortest {
			out = append(out, "That is a short time to judge by: a month may be quite another.")
		}
	}
	return out
}

// shortest is the time that should be behind what is said of a month.
const shortest = 7 * 24 * time.Hour

// savingsCSV has a line for each row and the total; its header names the units.
func savingsCSV(w io.Writer, s *savings) error {
	var b bytes.Buffer
	c := csv.NewWriter(&b)
	head := []string{s.By, "clock_hours", "static_gpu_hours", "static_idle_gpu_hours", "static_unknown_gpu_hours", "held_gpu_hours", "held_idle_gpu_hours", "held_unknown_gpu_hours",
		"static_gpus_peak", "static_gpus_mean", "in_use_gpus_peak", "in_use_gpus_mean", "placed_tasks", "waited_seconds", "woken_tasks", "woken_waited_seconds",
		"succeeded_tasks", "failed_tasks", "cancelled_tasks", "expired_tasks", "moves", "failed_moves", "preemptions"}
	if s.Saved != nil {
		head = append(head, "saved_"+s.Saved.Currency)
	}
	_ = c.Write(head) // to memory: it cannot fail
	num := func(f float64) string { return strconv.FormatFloat(math.Round(f*1e6)/1e6, 'f', -1, 64) }
	for _, x := range s.all() {
		peak, mean := "", ""
		if x.InUsePeak != nil && x.InUseMean != nil {
			peak, mean = strconv.Itoa(*x.InUsePeak), num(*x.InUseMean)
		}
		line := []string{nameOf(x), num(x.Hours), num(x.StaticHours), num(x.StaticIdle), num(x.StaticUnknown), num(x.HeldHours), num(x.HeldIdle), num(x.HeldUnknown),
			strconv.Itoa(x.StaticPeak), num(x.StaticMean), peak, mean, strconv.Itoa(x.Placed), num(x.WaitedS), strconv.Itoa(x.Woken), num(x.WokenS),
			strconv.Itoa(x.Succeeded), strconv.Itoa(x.Failed), strconv.Itoa(x.Cancelled), strconv.Itoa(x.Expired), strconv.Itoa(x.Moves), strconv.Itoa(x.MoveFailed), strconv.Itoa(x.Preempted)}
		if s.Saved != nil {
			line = append(line, num((x.StaticHours-x.HeldHours)*s.Saved.Price))
		}
		_ = c.Write(line)
	}
	c.Flush()
	_, err := w.Write(b.Bytes())
	return err
}
