package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/bench"
	"github.com/gpupool/gpupool/internal/gpu"
)

func (a *App) benchCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "bench", Short: "Measure gpupool against published rules and against itself",
		Long: `Repeats experiments, so that anyone can check what gpupool claims: how densely it packs, how
seldom it refuses a MIG slice, how long tasks wait, and how fast it decides and simulates. No
server is needed.

Numbers of packing, mig and queue are the same on every machine; times are this machine's.`,
		Example: `  gpupool bench packing --trace /data/openb
  gpupool bench mig --report mig.html`,
		Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.benchPackingCmd(), a.benchMIGCmd(), a.benchQueueCmd(), a.benchElasticCmd(), a.benchEngineCmd(), a.benchSimulateCmd())
	return c
}

// benchFlags are what all experiments share.
type benchFlags struct {
	json   bool
	report string
}

func (b *benchFlags) register(c *cobra.Command) {
	c.Flags().BoolVar(&b.json, "json", false, "short for -o json")
	c.Flags().StringVar(&b.report, "report", "", "write a page with a plot to this file (HTML)")
}

// runBench runs an experiment under a progress bar and shows its result; page makes a table of it, with more columns
// if wide.
func runBench[R any](a *App, b *benchFlags, what string, run func(progress func(done, total int)) (R, error), page func(r R, wide bool) bench.Page) error {
	if b.json {
		a.flags.output = "json"
	}
	if b.report != "" { // better refused now than after the run
		if err := writable(b.report); err != nil {
			return err
		}
	}
	bar := a.progress(what)
	r, err := run(func(done, total int) {
		bar.ChangeMax(total)
		_ = bar.Set(done)
	})
	_ = bar.Exit()
	if err != nil {
		return err
	}
	if b.report != "" {
		if err := a.writeReport(b.report, page(r, true).Write); err != nil {
			return err
		}
	}
	return a.print(r, func(w io.Writer, wide bool) { pageText(w, page(r, wide)) })
}

// pageText writes a page as text.
func pageText(w io.Writer, p bench.Page) {
	for _, s := range p.Sections {
		fmt.Fprintln(w, s.Title)
		tabs(w, upper(s.Head), s.Rows)
		fmt.Fprintln(w)
	}
	tabs(w, upper(p.Head), p.Rows)
	if p.Last != "" {
		fmt.Fprintln(w, p.Last)
	}
	for _, n := range p.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
}

func upper(words []string) []string {
	out := make([]string, len(words))
	for i, x := range words {
		out[i] = strings.ToUpper(x)
	}
	return out
}

func (a *App) benchPackingCmd() *cobra.Command {
	var b benchFlags
	var o bench.PackingOptions
	c := &cobra.Command{
		Use: "packing --trace DIR", Short: "How much of a cluster's GPUs is allocated, beside published figures", Args: cobra.NoArgs,
		Long: `Repeats the experiment of Weng et al., "Beware of Fragmentation" (USENIX ATC '23): a cluster is
offered tasks that ask for 1.3 times its GPUs; nothing ends, and what does not fit is left out.
Measured is the share of all GPUs that is allocated in the end, by gpupool's own placement, by
the published rules (--rules), and as published.

DIR holds a node list (openb_node_list_gpu_node.csv), pod lists (openb_pod_list_NAME.csv, or any
other CSV file with the columns cpu_milli,memory_mib,num_gpu,gpu_milli and perhaps gpu_spec) and,
if there are any, the published figures (published.csv). Alibaba's openb lists are in
https://github.com/hkust-adsl/kubernetes-scheduler-simulator.

Not measured: waiting, ends, preemption, limits, isolation, GPU memory, and speed.`,
		Example: `  gpupool bench packing --trace /data/openb
  gpupool bench packing --trace /data/openb --workload default --rules all --seeds 3 --report out.html`,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.Trace == "" {
				return usagef("no trace: give --trace DIR, a folder with a node list and pod lists")
			}
			if o.Seeds < 1 || o.Seeds > maxBenchSeeds {
				return usagef("--seeds %d is out of range: expected 1 to %d", o.Seeds, maxBenchSeeds)
			}
			return runBench(a, &b, "packing", func(progress func(done, total int)) (*bench.PackingResult, error) {
				o.Progress = progress
				r, err := bench.Packing(c.Context(), o)
				if unknown, ok := errors.AsType[*bench.UnknownNameError](err); ok {
					return nil, usage(unknown)
				}
				return r, err
			}, (*bench.PackingResult).Page)
		},
	}
	f := c.Flags()
	f.StringVar(&o.Trace, "trace", "", "folder with a node list and pod lists")
	f.IntVar(&o.Seeds, "seeds", 10, "runs of each workload; the published figures are means of 10")
	f.StringSliceVar(&o.Workloads, "workload", nil, "only these pod lists (default all)")
	f.StringSliceVar(&o.Rules, "rules", bench.DefaultPackingRules(), "published rules to run too: "+strings.Join(bench.PackingRules(), ",")+", or all, or none")
	b.register(c)
	_ = c.MarkFlagDirname("trace")
	_ = c.RegisterFlagCompletionFunc("rules", completeList(func() []string { return append(bench.PackingRules(), "all", "none") }))
	_ = c.RegisterFlagCompletionFunc("workload", completeList(func() []string {
		names, _ := bench.PackingWorkloads(o.Trace) // none to offer is no reason to fail
		return names
	}))
	return c
}

// maxBenchSeeds is more than anyone needs, and few enough to end.
const maxBenchSeeds = 1000

// completeList completes the last of several names with commas between them, by names that do not stand there yet.
func completeList(names func() []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		before := typed[:strings.LastIndex(typed, ",")+1]
		var out []cobra.Completion
		for _, n := range names() {
			if !strings.Contains(","+before, ","+n+",") && strings.HasPrefix(before+n, typed) {
				out = append(out, before+n)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

func (a *App) benchMIGCmd() *cobra.Command {
	var b benchFlags
	var o bench.MIGOptions
	c := &cobra.Command{
		Use: "mig", Short: "How many requests for MIG slices are refused, beside other rules", Args: cobra.NoArgs,
		Long: `Offers streams of requests for MIG slices to gpupool's placement and to the rules of other
projects, and counts those for which there is no place. Requests come at random, run for a
random time, and are lost if there is no place at once; all rules get the same streams.

Load is what is asked for (memory units times run time) as a share of all there is.

Not measured: waiting (a real pool queues), the time that cutting takes, hardware, and what the
other projects do beside choosing a place.`,
		Example: `  gpupool bench mig
  gpupool bench mig --gpus 256 --loads 0.7,0.85 --mix small-heavy --model A100-80GB --report mig.html`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := positive(map[string]int{"--gpus": o.GPUs, "--seeds": o.Seeds, "--requests": o.Requests}); err != nil {
				return err
			}
			return runBench(a, &b, "mig", func(progress func(done, total int)) (*bench.MIGResult, error) {
				o.Progress = progress
				r, err := bench.MIG(c.Context(), o)
				if err != nil && c.Context().Err() == nil {
					err = usage(err) // nothing else goes wrong in it
				}
				return r, err
			}, migPage)
		},
	}
	f := c.Flags()
	f.IntVar(&o.GPUs, "gpus", 64, "GPUs of the cluster, in hosts of 8")
	f.Float64SliceVar(&o.Loads, "loads", []float64{0.70, 0.85, 0.95, 1.05}, "what is asked for, as a share of all there is")
	f.IntVar(&o.Seeds, "seeds", 5, "streams for each load")
	f.IntVar(&o.Requests, "requests", 150_000, "requests of each stream that count")
	f.StringVar(&o.Mix, "mix", "balanced", "sizes asked for: "+strings.Join(migMixes(), ", "))
	f.StringVar(&o.Model, "model", "H100-80GB", "GPU model with seven slices")
	b.register(c)
	_ = c.RegisterFlagCompletionFunc("mix", cobra.FixedCompletions(migMixes(), cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("model", cobra.FixedCompletions(sevenSlices(), cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (a *App) benchEngineCmd() *cobra.Command {
	var b benchFlags
	var o bench.EngineOptions
	c := &cobra.Command{
		Use: "engine", Short: "How fast places are found, at several sizes of a cluster", Args: cobra.NoArgs,
		Long: `Measures on one core, on hosts of 8 H100s, how many tasks find a place in a second, what the
state takes of memory, how long it takes to say who must yield for a task of 8 GPUs when every
GPU is taken, and how long to say that a gang of 80 GPUs cannot fit then.

These are decisions in memory. Not measured: the journal, the API, drivers and runners, and the
start of a process. Do not compare them with another scheduler's time from submission to start.`,
		Example: `  gpupool bench engine
  gpupool bench engine --gpus 1000,100000 --json`,
		RunE: func(c *cobra.Command, _ []string) error {
			return runBench(a, &b, "engine", func(progress func(done, total int)) (*bench.EngineResult, error) {
				o.Progress = progress
				r, err := bench.Engine(c.Context(), o)
				if unusable, ok := errors.AsType[*bench.OptionError](err); ok {
					err = usage(unusable)
				}
				return r, err
			}, enginePage)
		},
	}
	c.Flags().IntSliceVar(&o.GPUs, "gpus", []int{1_000, 8_000, 10_000, 100_000}, "sizes of the cluster, multiples of 8")
	b.register(c)
	return c
}

// enginePage shows the speed at each size.
func enginePage(r *bench.EngineResult, _ bool) bench.Page {
	p := bench.Page{
		Title: "Speed of decisions",
		Intro: "Decisions in memory on one core, on hosts of 8 × H100.",
		Head:  []string{"GPUs", "decisions/s", "ends/s", "engine steps/s", "bytes/GPU", "reclaim 8 GPUs", "no to 80 GPUs"},
		WallS: r.WallS,
	}
	rates := bench.Series{Name: "decisions per second"}
	for _, s := range r.Sizes {
		p.Rows = append(p.Rows, []string{fmt.Sprint(s.GPUs), fmt.Sprintf("%.0f", s.DecisionsPerS), fmt.Sprintf("%.0f", s.EndsPerS),
			fmt.Sprintf("%.0f", s.StepsPerS), fmt.Sprintf("%.0f", s.BytesPerGPU), fmt.Sprintf("%.2f ms", s.ReclaimMS), fmt.Sprintf("%.4f ms", s.InfeasibleGangMS)})
		rates.Points = append(rates.Points, bench.Point{X: float64(s.GPUs), Y: s.DecisionsPerS})
	}
	for _, x := range r.Included {
		p.Notes = append(p.Notes, "included: "+x)
	}
	for _, x := range r.Excluded {
		p.Notes = append(p.Notes, "not included: "+x)
	}
	p.Notes = append(p.Notes, r.Notes...)
	p.Draw = bench.Lines("GPUs", "decisions per second on one core", []bench.Series{rates})
	return p
}

func (a *App) benchSimulateCmd() *cobra.Command {
	var b benchFlags
	var o bench.SimulateOptions
	c := &cobra.Command{
		Use: "simulate", Short: "How fast the simulator takes generated tasks through the engine", Args: cobra.NoArgs,
		Long: `Generates tasks for several clusters and takes them through the simulator, pooled: every
submission, placement, carve, start, end and free goes through the engine that serves, on fake
hardware in virtual time. Clusters are simulated side by side, one on each core.

Not measured: a journal on disk, the API, real processes and real GPUs.`,
		Example: `  gpupool bench simulate --tasks 1000000
  gpupool bench simulate --tasks 100000 --clusters 1 --hosts 50x8xH100-80GB --json`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := positive(map[string]int{"--tasks": o.Tasks, "--clusters": o.Clusters}); err != nil {
				return err
			}
			return runBench(a, &b, "simulate", func(progress func(done, total int)) (*bench.SimulateResult, error) {
				o.Progress = progress
				r, err := bench.Simulate(c.Context(), o)
				if unusable, ok := errors.AsType[*bench.OptionError](err); ok {
					err = usage(unusable)
				}
				return r, err
			}, simulatePage)
		},
	}
	f := c.Flags()
	f.IntVar(&o.Tasks, "tasks", 1_000_000, "tasks in all")
	f.IntVar(&o.Clusters, "clusters", 4, "clusters that share them evenly")
	f.StringVar(&o.Hosts, "hosts", "200x8xH100-80GB", "shape of each cluster")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of what is generated")
	b.register(c)
	return c
}

// simulatePage shows how fast it went and what came of the tasks.
func simulatePage(r *bench.SimulateResult, _ bool) bench.Page {
	return bench.Page{
		Title: fmt.Sprintf("%d generated tasks", r.Tasks),
		Intro: fmt.Sprintf("Simulated on %d clusters of %s, on %d cores.", r.Clusters, r.Hosts, r.Cores),
		Head:  []string{"", "value"},
		Rows: [][]string{
			{"tasks", fmt.Sprint(r.Tasks)},
			{"succeeded", fmt.Sprint(r.Succeeded)},
			{"clusters", fmt.Sprintf("%d of %d GPUs", r.Clusters, r.GPUs)},
			{"time", fmt.Sprintf("%.2f s on %d cores", r.WallS, r.Cores)},
			{"tasks per second", fmt.Sprintf("%.0f", r.TasksPerS)},
			{"tasks per second of one core", fmt.Sprintf("%.0f", r.TasksPerCoreS)},
			{"peak memory", fmt.Sprintf("%.0f MiB", r.PeakMiB)},
			{"virtual time", fmt.Sprintf("%.1f days", r.VirtualDays)},
			{"GPUs in use", fmt.Sprintf("%.1f %%", 100*r.Utilisation)},
			{"wait, mean", fmt.Sprintf("%.1f s", r.WaitMean)},
			{"wait, 99th percentile", fmt.Sprintf("%.1f s", r.WaitP99)},
		},
		Notes: r.Notes, WallS: r.WallS,
	}
}

// migMixes is what --mix knows.
func migMixes() []string { return []string{"balanced", "small-heavy", "large-heavy"} }

// sevenSlices is the models whose board has seven compute slices.
func sevenSlices() (out []string) {
	for _, m := range gpu.Builtin() {
		if m.Slices == 7 {
			out = append(out, m.Key)
		}
	}
	return out
}

// positive refuses flags of 0, which experiments take for the default, and less.
func positive(flags map[string]int) error {
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		if flags[name] < 1 {
			return usagef("%s %d is out of range: expected 1 or more", name, flags[name])
		}
	}
	return nil
}

// migPage shows the share of requests that each rule refused; wide, their deviation and share by size too.
func migPage(r *bench.MIGResult, wide bool) bench.Page {
	p := bench.Page{
		Title: fmt.Sprintf("Refused MIG slices on %d × %s", r.GPUs, r.Model),
		Intro: fmt.Sprintf("Percent of the requests for which a rule had no place, by load; %d streams of %d requests for each load. Fewer is better.", r.Seeds, r.Requests),
		Head:  append([]string{"load"}, r.Rules...),
		Last:  "percent of the requests refused; fewer is better",
		Notes: r.Notes, WallS: r.WallS,
	}
	if wide {
		p.Last += "; ± the standard deviation between seeds; in brackets by the memory that they asked for"
	}
	lines := make([]bench.Series, len(r.Rules))
	for _, l := range r.Loads {
		row := []string{fmt.Sprintf("%g", l.Load)}
		for i, rule := range r.Rules {
			cell := fmt.Sprintf("%.2f", 100*l.Refused[rule])
			if wide {
				cell += fmt.Sprintf(" ± %.2f (%.2f)", 100*l.RefusedSD[rule], 100*l.RefusedWeighted[rule])
			}
			row = append(row, cell)
			lines[i].Name = rule
			lines[i].Points = append(lines[i].Points, bench.Point{X: l.Load, Y: 100 * l.Refused[rule]})
		}
		p.Rows = append(p.Rows, row)
	}
	p.Draw = bench.Lines("load", "requests refused, percent", lines)
	return p
}
