package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/bench"
)

func (a *App) benchElasticCmd() *cobra.Command {
	var b benchFlags
	var o bench.ElasticOptions
	c := &cobra.Command{
		Use: "elastic", Short: "How many GPUs it saves to lend those that idle, and what that costs", Args: cobra.NoArgs,
		Long: `Replays workloads whose GPUs are idle much of the time through the engine that serves, on fake
hardware in virtual time: a market of models, notebooks that lend to training, silos of a company,
and training as it is published to use its GPUs. Each is kept apart, and pooled on the fewest
GPUs that do.

--trace is a folder that holds serving, itp, philly, openb and utilisation. Without serving, the
market is drawn from formulas; silos and training are left out where their folders are missing.
The table says which targets were met, and of the others which cannot be, by what bound, or why
they were not; that changes nothing about the exit code.

Not measured: a journal on disk, the API, real processes and real GPUs.`,
		Example: `  gpupool bench elastic
  gpupool bench elastic --trace ../shared/traces --report elastic.html`,
		RunE: func(c *cobra.Command, _ []string) error {
			return runBench(a, &b, "elastic", func(progress func(done, total int)) (*bench.ElasticResult, error) {
				o.Progress = progress
				r, err := bench.Elastic(c.Context(), o)
				if unusable, ok := errors.AsType[*bench.OptionError](err); ok {
					err = usage(unusable)
				}
				return r, err
			}, (*bench.ElasticResult).Page)
		},
	}
	f := c.Flags()
	f.StringVar(&o.Trace, "trace", "", "folder of public traces; empty = only what can be drawn")
	f.StringSliceVar(&o.Only, "only", nil, "only these scenarios (default all)")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of what is drawn")
	b.register(c)
	_ = c.MarkFlagDirname("trace")
	_ = c.RegisterFlagCompletionFunc("only", completeList(bench.ElasticScenarios))
	return c
}
