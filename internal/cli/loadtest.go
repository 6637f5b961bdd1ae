package cli

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/bench"
	"github.com/gpupool/gpupool/internal/loadtest"
)

// maxLoadClients is as many connections as one machine should open.
const maxLoadClients = 10_000

func (a *App) loadtestCmd() *cobra.Command {
	var b benchFlags
	var o loadtest.Options
	var scenario string
	var soak int
	c := &cobra.Command{
		Use: "loadtest", Short: "Submit tasks to a running pool as MLPerf's LoadGen does, and say how fast it acknowledges them", Args: cobra.NoArgs,
		Long: `Submits tasks to a running pool and measures until each is acknowledged, which is when it is
durable. Scenarios, percentiles and the verdict are those of MLPerf's LoadGen:

  single-stream  one after the other                      90th percentile
  multi-stream   eight at once, one eight after the other  99th percentile of the slowest of eight
  server         at random times, --qps a second on average  99th percentile within --bound
  offline        as fast as --clients can                  acknowledged per second

Tasks are held, so that nothing is placed or run, and cancelled once they are acknowledged. With
--run they are placed and run (the command true): give that to a pool of its own.
--keep leaves them in the queue, which needs room: queue.capacity in the server's settings.

Shapes are plain (one GPU) or those of published MLPerf results, cut down to the pool's size.
--soak submits and cancels so many tasks and shows the server's memory meanwhile.

Not measured: how long a task waits and runs. See docs/loadtest.md.`,
		Example: `  gpupool loadtest --scenario single-stream
  gpupool loadtest --scenario server --qps 500 --bound 50ms --duration 10m
  gpupool loadtest --clients 64 --shapes mixed -o json
  gpupool loadtest --soak 1000000`,
		RunE: func(c *cobra.Command, _ []string) error {
			o.Scenario = loadtest.Scenario(scenario)
			if err := checkLoad(o, soak); err != nil {
				return err
			}
			api, err := a.connect(client.WithRetry(0), client.WithHTTPClient(manyConnections(o.Clients)))
			if err != nil {
				return err
			}
			if o.Site, err = siteOf(c.Context(), api, o.Pool); err != nil {
				return err
			}
			failed := false
			err = runBench(a, &b, "loadtest", func(progress func(done, total int)) (*loadtest.Result, error) {
				o.Progress = progress
				r, err := runLoad(c.Context(), api, o, soak)
				failed = err == nil && (!r.Verdict.Valid || r.Soak != nil && !r.Soak.Flat)
				return r, err
			}, loadPage)
			if err == nil && failed {
				return &codeError{code: exitFailure}
			}
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&scenario, "scenario", string(loadtest.Offline), "how submissions come: single-stream, multi-stream, server or offline")
	f.IntVar(&o.Clients, "clients", 64, "clients at once, in offline and --soak")
	f.DurationVar(&o.Duration, "duration", time.Minute, "least time; MLPerf's rules ask for 10m")
	f.IntVar(&o.Queries, "queries", 100, "least number of queries; early stopping may ask for more")
	f.Float64Var(&o.QPS, "qps", 100, "submissions a second, in server")
	f.DurationVar(&o.Bound, "bound", 100*time.Millisecond, "bound of the 99th percentile, in server")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of arrivals and of which shape comes next")
	f.StringVar(&o.Shapes, "shapes", "plain", "plain, training, inference or mixed")
	f.StringVar(&o.Tenant, "tenant", "", "tenant to submit for; an admin must name one")
	f.StringVar(&o.Pool, "pool", "", "pool to submit to (default the first)")
	f.BoolVar(&o.Run, "run", false, "let the tasks be placed and run, instead of holding them")
	f.BoolVar(&o.Keep, "keep", false, "do not cancel what was acknowledged")
	f.IntVar(&soak, "soak", 0, "submit and cancel so many tasks, and show the server's memory")
	b.register(c)
	_ = c.RegisterFlagCompletionFunc("scenario", cobra.FixedCompletions([]cobra.Completion{"single-stream", "multi-stream", "server", "offline"}, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("shapes", cobra.FixedCompletions([]cobra.Completion{"plain", "training", "inference", "mixed"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func runLoad(ctx context.Context, api *client.Client, o loadtest.Options, soak int) (*loadtest.Result, error) {
	if soak > 0 {
		return loadtest.RunSoak(ctx, api, o, soak, api.Memory)
	}
	return loadtest.Run(ctx, api, o)
}

func checkLoad(o loadtest.Options, soak int) error {
	switch {
	case !slices.Contains(loadtest.Scenarios(), o.Scenario):
		return usagef("--scenario %s is not known: use single-stream, multi-stream, server or offline", o.Scenario)
	case !slices.Contains([]string{"plain", "training", "inference", "mixed"}, o.Shapes):
		return usagef("--shapes %s are not known: use plain, training, inference or mixed", o.Shapes)
	case o.Clients < 1 || o.Clients > maxLoadClients:
		return usagef("--clients %d is out of range: expected 1 to %d", o.Clients, maxLoadClients)
	case o.Duration <= 0 || o.Bound <= 0 || !(o.QPS > 0 && o.QPS <= 1e6):
		return usagef("expected a --duration and a --bound of more than nothing, and a --qps up to 1000000, got %s, %s and %g", o.Duration, o.Bound, o.QPS)
	case soak < 0:
		return usagef("--soak %d is out of range: expected 1 or more", soak)
	case soak > 0 && (o.Run || o.Keep):
		return usagef("--soak cancels what it submits: leave out --run and --keep")
	}
	return positive(map[string]int{"--queries": o.Queries})
}

// manyConnections keeps as many connections as there are clients: to open one anew for each
// submission would be measured too.
func manyConnections(clients int) *http.Client {
	return &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: max(clients, 64), IdleConnTimeout: 90 * time.Second,
		DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext, ResponseHeaderTimeout: time.Minute,
	}}
}

// siteOf is what a pool has, as far as the token shows it.
func siteOf(ctx context.Context, api *client.Client, pool string) (s loadtest.Site, err error) {
	for h, err := range api.Hosts(ctx) {
		if err != nil {
			return s, err
		}
		if pool != "" && h.Pool != pool {
			continue
		}
		s.GPUs += len(h.GPUs)
		switch n := len(h.GPUs); {
		case n > s.PerHost:
			s.PerHost, s.Hosts = n, 1
		case n == s.PerHost:
			s.Hosts++
		}
	}
	return s, nil
}

// loadPage shows a run.
func loadPage(r *loadtest.Result, _ bool) bench.Page {
	l := r.Latency
	verdict := "VALID"
	if !r.Verdict.Valid {
		verdict = "INVALID: " + strings.Join(r.Verdict.Why, "; ")
	}
	ms := func(x float64) string { return fmt.Sprintf("%.2f ms", x) }
	p := bench.Page{
		Title: fmt.Sprintf("Load test, %s", r.Scenario),
		Intro: "Time from sending a submission until it was acknowledged, which is when it is durable.",
		Head:  []string{"", "value"},
		Rows: [][]string{
			{"acknowledged per second", fmt.Sprintf("%.0f", r.PerS)},
			{"acknowledged", fmt.Sprint(r.Acked)}, {"refused", fmt.Sprint(r.Refused)}, {"not answered", fmt.Sprint(r.Failed)},
			{"queries", fmt.Sprint(r.Queries)}, {"time", fmt.Sprintf("%.1f s", r.LastedS)},
			{"mean", ms(l.Mean)}, {"p50", ms(l.P50)}, {"p90", ms(l.P90)}, {"p95", ms(l.P95)}, {"p97", ms(l.P97)}, {"p99", ms(l.P99)}, {"p99.9", ms(l.P999)}, {"max", ms(l.Max)},
		},
		Last: verdict, WallS: r.LastedS,
	}
	if r.EstimateMS > 0 {
		p.Rows = append(p.Rows, []string{"early stopping estimate", ms(r.EstimateMS)})
	}
	if r.QPS > 0 {
		p.Rows = append(p.Rows, []string{"over the bound of " + ms(r.BoundMS), fmt.Sprint(r.Late)})
	}
	if !r.Verdict.ByRule {
		p.Notes = append(p.Notes, "shorter than MLPerf's rules ask (10 min; offline 24,576 samples): for comparison with other runs of this command only")
	}
	if r.Scaled > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("%d shapes were cut to what the pool has", r.Scaled))
	}
	if r.FirstNo != "" {
		p.Notes = append(p.Notes, "the first that was not acknowledged: "+r.FirstNo)
	}
	p.Draw = bench.Lines("percentile", "milliseconds", []bench.Series{{Name: "latency", Points: []bench.Point{
		{X: 50, Y: l.P50}, {X: 90, Y: l.P90}, {X: 95, Y: l.P95}, {X: 97, Y: l.P97}, {X: 99, Y: l.P99}, {X: 99.9, Y: l.P999}}}})
	if r.Soak != nil {
		soakPage(&p, r.Soak)
	}
	return p
}

// soakPage adds the server's memory over time.
func soakPage(p *bench.Page, s *loadtest.Soak) {
	sec := bench.Section{Title: fmt.Sprintf("Memory of the server over %d tasks", s.Tasks), Head: []string{"tasks", "time", "resident"}}
	line := bench.Series{Name: "resident memory"}
	for _, x := range s.Points {
		sec.Rows = append(sec.Rows, []string{fmt.Sprint(x.Tasks), fmt.Sprintf("%.0f s", x.S), fmt.Sprintf("%.0f MiB", x.RSSMiB)})
		line.Points = append(line.Points, bench.Point{X: float64(x.Tasks), Y: x.RSSMiB})
	}
	sec.Draw = bench.Lines("tasks", "MiB", []bench.Series{line})
	p.Sections = append(p.Sections, sec)
	word := "flat"
	if !s.Flat {
		word = "not flat"
	}
	p.Last += fmt.Sprintf("; memory is %s: the last quarter holds %+.1f %% of the second", word, 100*s.Growth)
}
