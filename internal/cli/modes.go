package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/work"
)

func modes() (out []string) {
	for _, m := range work.Modes() {
		out = append(out, string(m))
	}
	return out
}

func (a *App) setModeCmd() *cobra.Command {
	return &cobra.Command{
		Use: "set-mode POOL MODE", Short: "Set the mode of a pool: " + strings.Join(modes(), ", "), Args: cobra.ExactArgs(2),
		Long: `Sets the mode of a pool for all its tenants, beside the settings file, until that names another.
What runs goes on as it is; what is parked stays so until it is woken.

static: whole GPUs, exclusive. shadow: as static, and it says what dynamic would have done
(gpupool events, gpupool pools shadow). dynamic: slices and shares, and what idles is taken back.
A pool that moved too much is static by itself until it is set again. Of a pool that is rolled
out, this ends the rollout, and what that changed is as it was.`,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return modes(), cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: a.call(func(ctx context.Context, api *client.Client, args []string) error {
			p, err := api.SetMode(ctx, args[0], args[1])
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "pool %s is %s\n", p.Name, p.Mode)
			return nil
		}),
	}
}

// aboutModes is what there is to say of a pool's mode beside the table.
func aboutModes(p apitype.Pool) (out []string) {
	if p.Fallback != "" {
		out = append(out, p.Fallback)
		for _, l := range p.ModeLog {
			out = append(out, "  "+l)
		}
	}
	for _, t := range slices.Sorted(maps.Keys(p.TenantModes)) {
		out = append(out, fmt.Sprintf("pool %s is %s for tenant %s", p.Name, p.TenantModes[t], t))
	}
	return out
}

func (a *App) shadowCmd() *cobra.Command {
	return &cobra.Command{
		Use: "shadow [POOL...]", Short: "Say what pools that are not dynamic would hold if they were",
		Long: `Says for pools that are static, or in shadow mode, what a dynamic pool would have held since it was
counted: how many GPUs it would have needed, so that 90 % of the tasks that are woken find one at
once, how many moves it would have made, and what would still have been idle. Only tasks that may
be parked are lent (settings elastic.on_idle, gpupool submit --on-idle). docs/modes.md says how it
is reckoned and how far it can be trusted.`,
		RunE: a.call(func(ctx context.Context, api *client.Client, args []string) error {
			names := args
			if len(names) == 0 {
				pools, err := api.Pools(ctx)
				if err != nil {
					return err
				}
				for _, p := range pools {
					if p.Mode != string(work.Dynamic) {
						names = append(names, p.Name)
					}
				}
				if len(names) == 0 {
					fmt.Fprintln(a.Err, "every pool is dynamic: only pools that are static or in shadow mode say what they would do")
				}
			}
			var all []apitype.Shadow
			for _, name := range names {
				s, err := api.Shadow(ctx, name)
				if err != nil {
					return err
				}
				all = append(all, s)
			}
			return a.print(listOf(all), func(w io.Writer, _ bool) { shadowTable(w, all, time.Now()) })
		}),
	}
}

func shadowTable(w io.Writer, all []apitype.Shadow, now time.Time) {
	percent := func(x float64) string { return fmt.Sprintf("%.0f %%", 100*x) }
	var rows [][]string
	for _, s := range all {
		rows = append(rows, []string{s.Pool, s.Mode, span(now.Sub(s.Since)), gpuCount(s.GPUs), fmt.Sprint(s.Needed), gpuCount(s.Mean), fmt.Sprint(s.Parks + s.Wakes), percent(s.Idle), percent(s.IdleIf)})
	}
	tabs(w, []string{"POOL", "MODE", "FOR", "GPUS", "DYNAMIC NEEDS", "ON AVERAGE", "MOVES", "IDLE", "IDLE THEN"}, rows)
	for _, s := range all {
		fmt.Fprintf(w, "%s: %s\n", strings.Map(printable, s.Pool), strings.Map(printable, s.Sentence))
	}
}

func (a *App) rolloutCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "rollout", Short: "Give pools or tenants another mode step by step, and go back if that is worse",
		Long: `Gives pools, or tenants of one pool, another mode, one after the other. Before each step how they are
served is measured for as long as the step takes. A step is worse if tasks wait for longer on
average, or more of them fail, than before by more than is allowed, or if the pool falls back to
static. Then everything that the rollout changed goes back to what it was.`,
	}
	c.AddCommand(a.rolloutStartCmd(), a.rolloutStatusCmd(), a.rolloutStopCmd())
	return c
}

func (a *App) rolloutStartCmd() *cobra.Command {
	var spec apitype.RolloutSpec
	var step time.Duration
	var pool string
	c := &cobra.Command{
		Use: "start", Short: "Begin a rollout", Args: cobra.NoArgs,
		Example: `  gpupool rollout start --pools a,b
  gpupool rollout start --pool a --tenants x,y --step 2h`,
		RunE: a.call(func(ctx context.Context, api *client.Client, _ []string) error {
			if pool != "" {
				spec.Pools = append(spec.Pools, pool)
			}
			if len(spec.Pools) == 0 {
				return usagef("a rollout needs pools: give --pools a,b, or --pool a with --tenants x,y")
			}
			spec.Step = step.String()
			r, err := api.StartRollout(ctx, spec)
			if err != nil {
				return err
			}
			return a.printRollout(r)
		}),
	}
	f := c.Flags()
	f.StringSliceVar(&spec.Pools, "pools", nil, "pools, in this order")
	f.StringVar(&pool, "pool", "", "the pool of the tenants")
	f.StringSliceVar(&spec.Tenants, "tenants", nil, "tenants of the pool, in this order (default: all at once)")
	f.StringVar(&spec.Mode, "to", "dynamic", "mode that they are given: dynamic or shadow")
	f.DurationVar(&step, "step", time.Hour, "how long the baseline and each trial take")
	f.Float64Var(&spec.WaitRatio, "max-wait-ratio", 1.2, "times the mean wait before, and 10 s more, that a trial may have")
	f.Float64Var(&spec.Failures, "max-more-failures", 0.05, "more of the tasks that end which may fail, as a share")
	_ = c.RegisterFlagCompletionFunc("to", cobra.FixedCompletions([]string{"dynamic", "shadow"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (a *App) rolloutStatusCmd() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the rollout that goes on, else the last", Args: cobra.NoArgs,
		RunE: a.call(func(ctx context.Context, api *client.Client, _ []string) error {
			r, err := api.Rollout(ctx)
			if err != nil {
				return err
			}
			return a.printRollout(r)
		}),
	}
}

func (a *App) rolloutStopCmd() *cobra.Command {
	var keep bool
	c := &cobra.Command{
		Use: "stop", Short: "End the rollout and take back what it changed", Args: cobra.NoArgs,
		RunE: a.call(func(ctx context.Context, api *client.Client, _ []string) error {
			r, err := api.StopRollout(ctx, keep)
			if err != nil {
				return err
			}
			return a.printRollout(r)
		}),
	}
	c.Flags().BoolVar(&keep, "keep", false, "keep what it changed")
	return c
}

func (a *App) printRollout(r apitype.Rollout) error {
	return a.print(r, func(w io.Writer, _ bool) {
		for i, line := range r.Words {
			if i > 0 {
				line = "  " + line
			}
			fmt.Fprintln(w, strings.Map(printable, line))
		}
	})
}

// modeText puts the facts about modes into words.
func modeText(ev apitype.Event, raw []byte) (string, error) {
	switch ev.Kind {
	case "pool.mode":
		return in(raw, modeFact.words)
	case "task.shadow":
		return in(raw, shadowFact.words)
	case "rollout.began":
		return in(raw, rolloutFact.began)
	case "rollout.step":
		return in(raw, func(f rolloutFact) string { return f.stepped(ev.At) })
	case "rollout.ended":
		return in(raw, rolloutFact.ended)
	}
	return "", nil
}

type modeFact struct {
	Pool   string   `json:"pool"`
	Tenant string   `json:"tenant"`
	Mode   string   `json:"mode"`
	By     string   `json:"by"`
	Reason string   `json:"reason"`
	Log    []string `json:"log"`
}

func (f modeFact) words() string {
	what := "pool " + f.Pool
	if f.Tenant != "" {
		what += " for tenant " + f.Tenant
	}
	if f.Mode == "" {
		f.Mode = "as its settings say"
	}
	what += " is " + f.Mode
	if f.By == "guard" {
		what += ": it fell back by itself"
	} else {
		what += ", set by " + f.By
	}
	if f.Reason != "" {
		what += ": " + f.Reason
	}
	if len(f.Log) > 0 {
		what += "; gpupool pools shows the last moves"
	}
	return what
}

type shadowFact struct {
	Move   string `json:"move"`
	Reason struct {
		Message string `json:"message"`
	} `json:"reason"`
}

func (f shadowFact) words() string { return "would " + f.Move + ": " + f.Reason.Message }

type rolloutFact struct {
	Rollout struct {
		By    string `json:"by"`
		Mode  string `json:"mode"`
		Steps []any  `json:"steps"`
	} `json:"rollout"`
	Step  int    `json:"step"`
	Until int64  `json:"until"`
	How   string `json:"how"`
	Why   string `json:"why"`
}

func (f rolloutFact) began() string {
	return fmt.Sprintf("rollout of %s in %d steps begun by %s: the baseline is measured", f.Rollout.Mode, len(f.Rollout.Steps), f.Rollout.By)
}

func (f rolloutFact) stepped(now time.Time) string {
	return fmt.Sprintf("step %d of the rollout is on trial until %s", f.Step+1, clock(time.Unix(0, f.Until), now))
}

func (f rolloutFact) ended() string {
	return fmt.Sprintf("the rollout has ended, %s: %s", strings.ReplaceAll(f.How, "_", " "), f.Why)
}
