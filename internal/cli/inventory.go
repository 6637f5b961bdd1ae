package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
)

func (a *App) gpusCmd() *cobra.Command {
	var q client.GPUQuery
	c := &cobra.Command{
		Use: "gpus", Short: "Show every GPU with its slots drawn as a bar, or take GPUs out of use", Args: cobra.NoArgs,
		Long: `Shows every GPU. The bar has a cell for each memory unit of the board (eight on a
seven-slice board); a letter is a slice and stands in the list of holders beside it, a dot is
free. A whole GPU is one block, shares fill the bar in proportion. docs/health.md says what
becomes of a GPU that ails.`,
		RunE: a.call(func(ctx context.Context, api *client.Client, _ []string) error {
			var gpus []apitype.GPU
			for g, err := range api.GPUs(ctx, q) {
				if err != nil {
					return err
				}
				gpus = append(gpus, g)
			}
			return a.print(listOf(gpus), func(w io.Writer, wide bool) { gpuTable(w, gpus, wide) })
		}),
	}
	c.Flags().StringVar(&q.Host, "host", "", "only of this host")
	c.Flags().StringVar(&q.Pool, "pool", "", "only of this pool")
	c.Flags().StringVar(&q.Health, "health", "", "only with this health: "+strings.Join(healths, ", "))
	_ = c.RegisterFlagCompletionFunc("health", cobra.FixedCompletions(healths, cobra.ShellCompDirectiveNoFileComp))
	c.AddCommand(a.cordonCmd(), a.drainCmd(), a.uncordonCmd())
	return c
}

func gpuTable(w io.Writer, gpus []apitype.GPU, wide bool) {
	head := []string{"GPU", "HOST", "MODEL", "HEALTH", "SLOTS", "HELD", "HOLDERS"}
	if wide {
		head = append(head, "MODE", "POOL", "FAULTS", "SINCE", "UUID")
	}
	var rows [][]string
	for _, g := range gpus {
		bar, holders := draw(g)
		if g.Health != "ok" {
			holders = strings.TrimSpace(whyAiling(g) + " " + holders)
		}
		row := []string{fmt.Sprint(g.GPU), g.Host, g.Model, g.Health, bar, fmt.Sprintf("%3d%%", g.Milli/10), holders}
		if wide {
			since := ""
			if g.HealthSince != nil {
				since = ago(*g.HealthSince) + " ago"
			}
			row = append(row, g.Mode, g.Pool, faultCount(g), since, g.ID)
		}
		rows = append(rows, row)
	}
	tabs(w, head, rows)
}

const shareCells = 8 // of a bar for a GPU that is not cut by MIG

// draw makes the bar of a GPU and names who holds what.
func draw(g apitype.GPU) (bar, holders string) {
	cells := g.Units
	if cells == 0 || g.Mode == "shared" {
		cells = shareCells
	}
	row := []rune(strings.Repeat("·", cells))
	var names []string
	filled := 0
	for i, h := range g.Holders {
		letter := rune('a' + i%26)
		switch h.Slice.Mode {
		case "mig":
			for u := h.Slice.Start; u < min(h.Slice.Start+h.Slice.Units, cells); u++ {
				row[u] = letter
			}
		case "shared":
			n := max((h.Slice.Milli*cells+500)/1000, 1)
			for ; n > 0 && filled < cells; n-- {
				row[filled] = letter
				filled++
			}
		default:
			row = []rune(strings.Repeat("█", cells))
			letter = '█'
		}
		names = append(names, fmt.Sprintf("%c=%s", letter, holder(h)))
	}
	return "[" + string(row) + "]", strings.Join(names, " ")
}

func holder(h apitype.Holding) string {
	who := "another tenant"
	if h.Task != 0 {
		who = fmt.Sprintf("%s/%d", h.Tenant, h.Task)
	}
	what := ""
	switch h.Slice.Mode {
	case "mig":
		what = " " + h.Slice.Profile
	case "shared":
		what = fmt.Sprintf(" %d%%", h.Slice.Milli/10)
	}
	if u := h.Slice.Use; u != nil && u.Compute >= 0 {
		what += fmt.Sprintf(" (%.0f%% busy)", 100*u.Compute)
	}
	return who + what
}

func (a *App) hostsCmd() *cobra.Command {
	return &cobra.Command{
		Use: "hosts", Short: "List hosts", Args: cobra.NoArgs,
		RunE: a.call(func(ctx context.Context, api *client.Client, _ []string) error {
			var hosts []apitype.Host
			for h, err := range api.Hosts(ctx) {
				if err != nil {
					return err
				}
				hosts = append(hosts, h)
			}
			return a.print(listOf(hosts), func(w io.Writer, _ bool) {
				var rows [][]string
				for _, h := range hosts {
					state := "up"
					if !h.Up {
						state = "away"
					}
					rows = append(rows, []string{h.Name, state, h.Pool, fmt.Sprintf("%d of %d", h.FreeGPUs, len(h.GPUs)),
						fmt.Sprintf("%s of %s", gpuCount(h.FreeCPUs), gpuCount(h.CPUs)), fmt.Sprintf("%d of %d GiB", h.FreeMemoryMiB>>10, h.MemoryMiB>>10), h.Driver})
				}
				tabs(w, []string{"HOST", "STATE", "POOL", "FREE GPUS", "FREE CPUS", "FREE MEMORY", "DRIVER"}, rows)
			})
		}),
	}
}

func (a *App) poolsCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "pools", Short: "List pools", Args: cobra.NoArgs,
		RunE: a.call(func(ctx context.Context, api *client.Client, _ []string) error {
			pools, err := api.Pools(ctx)
			if err != nil {
				return err
			}
			return a.print(listOf(pools), func(w io.Writer, _ bool) {
				var rows [][]string
				for _, p := range pools {
					rows = append(rows, []string{p.Name, p.Mode, fmt.Sprint(p.Hosts), fmt.Sprint(p.GPUs), fmt.Sprint(p.FreeGPUs),
						gpuCount(p.HeldGPUs), fmt.Sprint(p.Unusable), fmt.Sprint(p.Running), fmt.Sprint(p.Parked), ofMost(p.Waiting, p.Capacity), refuses(p), p.TTL})
				}
				tabs(w, []string{"POOL", "MODE", "HOSTS", "GPUS", "FREE", "HELD", "UNUSABLE", "RUNNING", "PARKED", "WAITING", "REFUSES AT", "TTL"}, rows)
				for _, p := range pools {
					if p.Warning != "" {
						fmt.Fprintf(a.Err, "pool %s: %s\n", p.Name, p.Warning)
					}
					for _, line := range aboutModes(p) {
						fmt.Fprintln(a.Err, strings.Map(printable, line))
					}
				}
			})
		}),
	}
	c.AddCommand(a.setModeCmd(), a.shadowCmd(), a.lendingCmd())
	return c
}

// refuses says from how many waiting tasks on a pool takes no more of a priority.
func refuses(p apitype.Pool) string {
	var out []string
	if p.LowUpTo != nil {
		out = append(out, fmt.Sprintf("low %d", *p.LowUpTo))
	}
	if p.NormalUpTo != nil {
		out = append(out, fmt.Sprintf("normal %d", *p.NormalUpTo))
	}
	if p.Capacity > 0 {
		out = append(out, fmt.Sprintf("high %d", p.Capacity))
	}
	return strings.Join(out, ", ")
}
