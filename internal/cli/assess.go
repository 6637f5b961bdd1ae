package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/assess"
)

// assessFlags say what assess reads.
type assessFlags struct {
	assess.Options
	assess.Access
	csv   string
	days  float64
	end   string
	below float64
	html  string
}

func (a *App) assessCmd() *cobra.Command {
	s := assessFlags{Options: assess.Defaults()}
	c := &cobra.Command{
		Use: "assess --prometheus URL | --csv FILE", Short: "Say how idle a site's GPUs are, and how many the same work needs", Args: cobra.NoArgs,
		Long: `Reads what the monitoring of a site kept of its GPUs: dcgm-exporter's metrics in a
Prometheus, or a CSV file. It says how much of the GPU time was unallocated, idle or used, who
held idle GPUs, and how many GPUs the same work would have needed by returning what nobody
has, parking what idles, MIG slices and sharing. It needs no gpupool server and changes nothing.

A CSV file has the columns time, gpu and utilisation (per cent; empty = not known), and where
known memory_used_mib, model, host, pod (or job) and namespace (or tenant); the rows of each
GPU are in order of time. docs/assess.md defines every figure and says what is not modelled.`,
		Example: `  gpupool assess --prometheus http://prometheus.example:9090
  gpupool assess --prometheus https://prometheus.example --days 14 --token-file token --price 2.50 --html assess.html
  gpupool assess --csv readings.csv -o json`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.check(c); err != nil {
				return err
			}
			r, err := s.read(c.Context(), a)
			if err != nil {
				return err
			}
			if s.html != "" {
				if err := a.writeReport(s.html, r.WriteReport); err != nil {
					return err
				}
			}
			return a.print(r, func(w io.Writer, _ bool) { assessment(w, r) })
		},
	}
	f := c.Flags()
	f.StringVar(&s.URL, "prometheus", "", "address of a Prometheus (or Thanos, Mimir, VictoriaMetrics) that scrapes dcgm-exporter")
	f.StringVar(&s.csv, "csv", "", "file of readings to take instead")
	f.Float64Var(&s.days, "days", 7, "so many days up to the end (of a CSV file: all of it, unless this is given)")
	f.StringVar(&s.end, "end", "", "end of the time to look at, such as 2026-11-30T00:00:00Z (default now)")
	f.DurationVar(&s.Step, "step", s.Step, "time that is one reading (of a CSV file: what lies between two rows, unless this is given)")
	f.StringVar(&s.TokenFile, "token-file", "", "file with a bearer token for the Prometheus")
	f.StringVar(&s.BasicFile, "basic-auth-file", "", "file with user:password for the Prometheus")
	f.StringVar(&s.CAFile, "ca-file", "", "file with certificates (PEM) to trust besides the system's")
	f.Float64Var(&s.below, "idle-below", 100*s.IdleBelow, "use in per cent that counts as none while below it, as elastic.idle_below")
	f.DurationVar(&s.IdleFor, "idle-for", 0, "and for so long at least (default: one step)")
	f.DurationVar(&s.IdleAfter, "idle-after", s.IdleAfter, "time for which a pod idles before the cautious columns park it, as elastic.idle_after")
	f.Float64Var(&s.Price, "price", 0, "what a GPU hour costs; 0 = say nothing of money")
	f.StringVar(&s.Currency, "currency", s.Currency, "of the price, as it is to be shown")
	f.StringVar(&s.html, "html", "", "write a page with plots to this file")
	for _, name := range []string{"prometheus", "days", "end", "step", "idle-below", "idle-for", "idle-after", "price", "currency"} {
		_ = c.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	return c
}

// maxDays is the most that is looked at.
const maxDays = 366

func (s *assessFlags) check(c *cobra.Command) error {
	switch {
	case s.URL == "" && s.csv == "":
		return usagef("nothing to read: give --prometheus URL, or --csv FILE: see %s --help", c.CommandPath())
	case s.URL != "" && s.csv != "":
		return usagef("give either --prometheus or --csv, not both")
	case s.csv != "" && (s.TokenFile != "" || s.BasicFile != "" || s.CAFile != ""):
		return usagef("--token-file, --basic-auth-file and --ca-file are for a Prometheus, not for --csv")
	case !(s.days > 0 && s.days <= maxDays):
		return usagef("%g days is out of range: expected more than 0 and at most %d", s.days, maxDays)
	}
	s.IdleBelow = s.below / 100
	if s.csv == "" || c.Flags().Changed("end") {
		s.To = time.Now().Truncate(max(s.Step, time.Second))
	}
	if s.end != "" {
		at, err := time.Parse(time.RFC3339, s.end)
		if err != nil {
			return usagef("--end: expected a time such as 2026-11-30T00:00:00Z, got %q", s.end)
		}
		s.To = at
	}
	if s.csv != "" && !c.Flags().Changed("step") {
		s.Step = 0
	} else if err := s.Options.Check(); err != nil {
		return usage(err)
	}
	if s.csv == "" || c.Flags().Changed("days") {
		if s.To.IsZero() {
			return usagef("--days of a CSV file are counted from its end: give --end too")
		}
		s.From = s.To.Add(-time.Duration(math.Round(s.days*86400)) * time.Second)
	}
	if s.html != "" { // better refused now than after reading
		return writable(s.html)
	}
	return nil
}

func (s *assessFlags) read(ctx context.Context, a *App) (*assess.Result, error) {
	if s.csv != "" {
		return assess.FromCSV(s.csv, s.Options)
	}
	bar := a.progress("reading " + lengthOfDays(s.days))
	r, err := assess.FromPrometheus(ctx, s.Access, s.Options, func(done, total int) {
		bar.ChangeMax(total)
		_ = bar.Set(done)
	})
	_ = bar.Exit()
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return r, err
}

func lengthOfDays(days float64) string { return fmt.Sprintf("%g days", days) }

// assessment is what was found, for people.
func assessment(w io.Writer, r *assess.Result) {
	fmt.Fprintln(w, r.Title())
	fmt.Fprintln(w)
	for _, s := range r.Sentences() {
		fmt.Fprintln(w, s)
	}
	for _, t := range r.Tables() {
		fmt.Fprintf(w, "\n%s\n", t.Title)
		tabs(w, t.Head, t.Rows)
	}
	fmt.Fprintln(w)
	for _, n := range r.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
}
