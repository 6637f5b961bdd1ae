package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/sim"
	"github.com/gpupool/gpupool/internal/trace"
)

// simFlags are what simulate and plan share.
type simFlags struct {
	trace  string
	hosts  string
	load   float64
	until  time.Duration
	seed   uint64
	json   bool
	report string
	pods   string
}

func (s *simFlags) register(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&s.hosts, "hosts", "", "cluster, such as 200x8xH100-80GB or 8xH100-80GB,4x4xA100-40GB (default: the trace's own, else 200x8xH100-80GB)")
	f.Float64Var(&s.load, "scale-load", 1, "more or less work: 1.3 adds 30 %, 0.5 leaves half")
	f.DurationVar(&s.until, "until", 0, "stop after so much of the trace's time, such as 48h")
	f.Uint64Var(&s.seed, "seed", 1, "seed of what is drawn at random: shapes of itp+openb, --scale-load")
	f.BoolVar(&s.json, "json", false, "short for -o json")
	f.StringVar(&s.pods, "openb-pods", "", "openb pod list to use (default openb_pod_list_default.csv)")
}

// setup reads the trace and makes the cluster.
func (s *simFlags) setup(a *App, path string) (sim.Setup, string, error) {
	if s.json {
		a.flags.output = "json"
	}
	var none sim.Setup
	if s.load <= 0 || s.load > 1000 {
		return none, "", usagef("--scale-load %g is out of range: expected more than 0, 1 for the trace as it is", s.load)
	}
	if s.until < 0 {
		return none, "", usagef("--until %s is negative", s.until)
	}
	t, err := trace.Read(path, trace.Options{Seed: s.seed, OpenbPods: s.pods})
	if err != nil {
		return none, "", err
	}
	if s.load != 1 {
		t = t.Scale(s.load, s.seed)
	}
	setup := sim.Setup{Trace: t, Until: s.until, Seed: s.seed}
	cluster := s.hosts
	switch {
	case s.hosts != "":
		if setup.Hosts, err = sim.ParseHosts(s.hosts); err != nil {
			return none, "", usage(err)
		}
	case len(t.Hosts) > 0:
		setup.Hosts, cluster = sim.HostsOf(t), fmt.Sprintf("the trace's own %d hosts", len(t.Hosts))
	default:
		cluster = defaultCluster
		if setup.Hosts, err = sim.ParseHosts(cluster); err != nil {
			return none, "", err
		}
	}
	return setup, cluster, nil
}

const defaultCluster = "200x8xH100-80GB"

func (a *App) simulateCmd() *cobra.Command {
	var s simFlags
	c := &cobra.Command{
		Use: "simulate --trace PATH", Short: "Replay a trace static and pooled, and show both", Args: cobra.NoArgs,
		Long: `Replays a trace of real work in virtual time through the same engine that serves, once
static (whole GPUs, exclusive, rounded up) and once pooled (the smallest slice that fits).

A trace is a folder or file of Microsoft's itp or philly, of Alibaba's openb, DIR/itp+openb
(ITP's arrivals and durations with openb's shapes: synthetic), or a CSV with the columns
submit_s,duration_s,gpus,fraction,gpu_memory_mib,tenant,priority,name,utilisation.`,
		Example: `  gpupool simulate --trace testdata/traces/itp --hosts 60x8xH100-80GB
  gpupool simulate --trace testdata/traces/itp+openb --report out.html`,
		RunE: func(c *cobra.Command, _ []string) error {
			if s.trace == "" {
				return usagef("no trace: give --trace PATH, for example --trace testdata/traces/itp")
			}
			setup, cluster, err := s.setup(a, s.trace)
			if err != nil {
				return err
			}
			if s.report != "" { // better refused now than after the run
				if err := writable(s.report); err != nil {
					return err
				}
			}
			bar := a.progress("replaying " + setup.Trace.Name)
			setup.Progress = func(done, total int) {
				bar.ChangeMax(total)
				_ = bar.Set(done)
			}
			r, err := sim.Compare(c.Context(), setup, cluster)
			_ = bar.Exit()
			if err != nil {
				return err
			}
			if s.report != "" {
				if err := a.writeReport(s.report, r.WriteReport); err != nil {
					return err
				}
			}
			return a.print(r, func(w io.Writer, _ bool) { comparisonTable(w, r) })
		},
	}
	s.register(c)
	c.Flags().StringVar(&s.trace, "trace", "", "trace to replay")
	c.Flags().StringVar(&s.report, "report", "", "write a page with plots to this file (HTML)")
	return c
}

func writable(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644) //nolint:gosec // a report is for everyone to read
	if err != nil {
		return fmt.Errorf("the report cannot be written: %w", err)
	}
	return f.Close()
}

// writeReport replaces the file only when the page is whole.
func (a *App) writeReport(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".report-*")
	if err != nil {
		return fmt.Errorf("the report cannot be written: %w", err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // gone already when all went well
	err = write(f)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Chmod(f.Name(), 0o644) //nolint:gosec // a report is for everyone to read
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("the report cannot be written: %w", err)
	}
	fmt.Fprintf(a.Err, "report written to %s\n", path)
	return nil
}

// progress is a bar on a terminal and silent elsewhere.
func (a *App) progress(what string) *progressbar.ProgressBar {
	return progressbar.NewOptions(-1,
		progressbar.OptionSetDescription(what), progressbar.OptionSetWriter(a.Err), progressbar.OptionSetVisibility(onTerminal(a.Err)),
		progressbar.OptionShowCount(), progressbar.OptionSetWidth(30), progressbar.OptionThrottle(65*time.Millisecond), progressbar.OptionClearOnFinish())
}

func comparisonTable(w io.Writer, r *sim.Comparison) {
	fmt.Fprintf(w, "%s on %s\n", r.Trace, r.Cluster)
	if r.Synthetic != "" {
		fmt.Fprintf(w, "synthetic: %s\n", r.Synthetic)
	}
	var rows [][]string
	for _, x := range r.Rows() {
		rows = append(rows, []string{x.Name, x.Static, x.Pooled})
	}
	tabs(w, []string{"", "STATIC", "POOLED"}, rows)
	fmt.Fprintln(w, r.Saved)
	fmt.Fprintf(w, "%s of virtual time in %.1f s, %.0f decisions per second\n", sim.Seconds(r.VirtualS), r.WallS, r.DecisionsPerS)
	for _, n := range r.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
}

func (a *App) planCmd() *cobra.Command {
	var s simFlags
	c := &cobra.Command{
		Use: "plan TRACE", Short: "Find the fewest GPUs that a trace needs", Args: cobra.ExactArgs(1),
		Long: `Searches the smallest cluster of the given host shape that finishes the trace with mean and
99th-percentile waits no longer than static has on the whole cluster: once static, once
pooled. The saving compares the two, so a cluster that was too large to begin with does not
count as saved. The lower bound is what no scheduler can do with fewer, if every task gets
what it asks for.`,
		Example: `  gpupool plan testdata/traces/itp+openb --hosts 60x8xH100-80GB`,
		RunE: func(c *cobra.Command, args []string) error {
			setup, cluster, err := s.setup(a, args[0])
			if err != nil {
				return err
			}
			bar := a.progress("planning")
			p, err := sim.MakePlan(c.Context(), setup, cluster, func(what string) {
				bar.Describe(what)
				_ = bar.Add(1)
			})
			_ = bar.Exit()
			if err != nil {
				return err
			}
			return a.print(p, func(w io.Writer, _ bool) { planText(w, p) })
		},
	}
	s.register(c)
	return c
}

func planText(w io.Writer, p *sim.Plan) {
	fmt.Fprintf(w, "%s on hosts like those of %s\n", p.Trace, p.Cluster)
	if p.Synthetic != "" {
		fmt.Fprintf(w, "synthetic: %s\n", p.Synthetic)
	}
	fmt.Fprintf(w, "waits not to be exceeded: mean %s, 99th percentile %s (static on all %d GPUs)\n\n", sim.Seconds(p.WaitMean), sim.Seconds(p.WaitP99), p.GPUsWhole)
	tabs(w, []string{"", "GPUS", "IN USE, MEAN", "IDLE SHARE OF HELD"}, [][]string{
		{"static needs", fmt.Sprint(p.GPUsStatic), fmt.Sprintf("%.1f", p.Static.GPUsMean), fmt.Sprintf("%.1f %%", 100*p.Static.IdleFraction)},
		{"pooled needs", fmt.Sprint(p.GPUsPooled), fmt.Sprintf("%.1f", p.Pooled.GPUsMean), fmt.Sprintf("%.1f %%", 100*p.Pooled.IdleFraction)},
		{"no scheduler can do with fewer than", fmt.Sprint(p.LowerBound), "", ""},
	})
	fmt.Fprintf(w, "\nsaving: %.1f %% (%d runs of the trace in %.1f s)\n", 100*p.Saving, p.Runs, p.WallS)
	for _, n := range p.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
}
