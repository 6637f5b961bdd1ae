package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/storm"
)

// maxStormSeeds is more than anyone has time for.
const maxStormSeeds = 10_000_000

func (a *App) stormCmd() *cobra.Command {
	var o storm.Options
	var asJSON bool
	c := &cobra.Command{
		Use: "storm", Short: "Play random histories in which everything fails that can, and check that nothing is lost", Args: cobra.NoArgs,
		Long: `Plays whole histories of a pool from a seed, on fake hardware in virtual time, through the very
engine, writer and dispatcher that serve. Servers crash at any point, journals tear, drivers and
runners are cut off, answers are late, repeated and out of order, clocks jump, hosts and GPUs come
and go. After each step all invariants are checked, and that replaying the journal gives the same
state; that nothing acknowledged was lost or done twice; and at the end, when all is healed, that
everything comes to an end and nothing is left over.

The same seeds give the same output. What fails is shrunk to the few steps that it takes; --keep
writes it down as a scenario script and a log. No server is needed. See docs/storm.md.

Not played: real drivers, processes, disks and networks, and several servers at once.`,
		Example: `  gpupool storm --seeds 10000
  gpupool storm --seeds 1 --seed 1570 --keep /tmp/storm
  gpupool storm --seeds 1000 --json`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := positive(map[string]int{"--seeds": o.Seeds, "--steps": o.Steps}); err != nil {
				return err
			}
			if o.Seeds > maxStormSeeds || o.Steps > maxStormSeeds {
				return usagef("expected at most %d seeds and steps, got %d and %d", maxStormSeeds, o.Seeds, o.Steps)
			}
			if asJSON {
				a.flags.output = "json"
			}
			bar := a.progress("storm")
			o.Progress = func(done, total int) {
				bar.ChangeMax(total)
				_ = bar.Set(done)
			}
			r, err := storm.Run(c.Context(), o)
			_ = bar.Exit()
			if err != nil {
				return err
			}
			if err := a.print(r, func(w io.Writer, wide bool) { stormText(w, r, wide) }); err != nil {
				return err
			}
			if r.Violations > 0 {
				return &codeError{code: exitFailure}
			}
			return nil
		},
	}
	f := c.Flags()
	f.IntVar(&o.Seeds, "seeds", 1000, "histories to play")
	f.Uint64Var(&o.Seed, "seed", 0, "seed of the first; the others follow")
	f.IntVar(&o.Steps, "steps", storm.DefaultSteps, "steps of each history")
	f.StringVar(&o.Keep, "keep", "", "folder for what failed: a scenario script and a log for each")
	f.BoolVar(&asJSON, "json", false, "short for -o json")
	_ = c.MarkFlagDirname("keep")
	return c
}

// stormText tells what came of a storm; wide, with the facts by kind too.
func stormText(w io.Writer, r *storm.Result, wide bool) {
	for _, f := range r.Failures {
		fmt.Fprintf(w, "seed %d: %s: %s\n", f.Seed, f.Kind, strings.ReplaceAll(f.What, "\n", "\n  "))
		fmt.Fprintf(w, "  found at step %d, shrunk to %d; again: %s\n", f.Step, f.Shrunk, f.Again)
		if f.Script != "" {
			fmt.Fprintf(w, "  script %s, log %s\n", f.Script, f.Log)
		}
	}
	if n := r.Violations - len(r.Failures); n > 0 {
		fmt.Fprintf(w, "and %d more\n", n)
	}
	tabs(w, []string{"", "NUMBER"}, [][]string{
		{"histories", fmt.Sprint(r.Seeds)}, {"steps", fmt.Sprint(r.Steps)}, {"facts stored", fmt.Sprint(r.Facts)},
		{"violations", fmt.Sprint(r.Violations)}, {"tasks acknowledged", fmt.Sprint(r.Acknowledged)}, {"lost", fmt.Sprint(r.Lost)}, {"doubled", fmt.Sprint(r.Doubled)},
	})
	fmt.Fprintln(w)
	tabs(w, []string{"FAULT", "TIMES"}, counts(r.Faults))
	if wide {
		fmt.Fprintln(w)
		tabs(w, []string{"FACT", "TIMES"}, counts(r.Happened))
	}
	fmt.Fprintf(w, "seeds %d to %d, digest %s, %.1f s\n", r.Seed, r.Seed+uint64(r.Seeds)-1, r.Digest, r.TookS)
}

// counts are the rows of what was counted, by name.
func counts[K cmp.Ordered](m map[K]int) (rows [][]string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		rows = append(rows, []string{strings.ReplaceAll(fmt.Sprint(k), "_", " "), fmt.Sprint(m[k])})
	}
	return rows
}
