package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/bench"
)

func (a *App) benchQueueCmd() *cobra.Command {
	var b benchFlags
	var o bench.QueueOptions
	c := &cobra.Command{
		Use: "queue --trace PATH", Short: "How long tasks wait under gpupool's order and under five others", Args: cobra.NoArgs,
		Long: `Replays traces of real work through the engine that serves, on fake hardware in virtual time,
under six policies: first come first served, the same with backfill, fair share, least attained
service, shortest first by an oracle, and gpupool's own. All get the same tasks, cluster and
start-up costs, and none may drop work.

Clusters have hosts of 8 H100s, as many as bring what the trace asks for closest to each
--demand: GPUs asked for times how long they are asked for, over the time from the first
submission to the last, as a share of the cluster's GPUs.

PATH is a trace as gpupool simulate reads it, or a folder that holds folders of several: itp,
philly, openb (then itp+openb is replayed too). The table says which targets gpupool met and
which it missed; that changes nothing about the exit code.

Not measured: a journal on disk, the API, real processes and real GPUs.`,
		Example: `  gpupool bench queue --trace testdata/traces/itp --demand 0.85
  gpupool bench queue --trace ../shared/traces --report queue.html`,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.Trace == "" {
				return usagef("no trace: give --trace PATH, for example --trace testdata/traces/itp")
			}
			if len(o.Demands) == 0 {
				return usagef("--demand is empty: expected shares of the cluster's GPUs, such as 0.7,0.85")
			}
			return runBench(a, &b, "queue", func(progress func(done, total int)) (*bench.QueueResult, error) {
				o.Progress = progress
				r, err := bench.Queue(c.Context(), o)
				if unusable, ok := errors.AsType[*bench.OptionError](err); ok {
					err = usage(unusable)
				}
				return r, err
			}, (*bench.QueueResult).Page)
		},
	}
	f := c.Flags()
	f.StringVar(&o.Trace, "trace", "", "trace, or folder with folders of traces")
	f.Float64SliceVar(&o.Demands, "demand", bench.DefaultDemands(), "demand for GPUs, as shares of the cluster")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of what is drawn at random: shapes of itp+openb")
	b.register(c)
	_ = c.MarkFlagDirname("trace")
	return c
}
