package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/gpu"
)

// healths are what --health takes.
var healths = []string{string(gpu.HealthOK), string(gpu.HealthSuspect), string(gpu.HealthCordoned), string(gpu.HealthDraining), string(gpu.HealthDrained), string(gpu.HealthBroken)}

// whyAiling says why a GPU is not ok, who says so, and what mends it.
func whyAiling(g apitype.GPU) string {
	words := g.Why
	if g.HealthBy != "" {
		words = strings.TrimPrefix(words+", by "+g.HealthBy, ", ")
	}
	if g.Mend != "" {
		words += "; " + mending(g)
	}
	return words
}

// mending says what mends a GPU, once it is empty.
func mending(g apitype.GPU) string {
	what := "to mend it"
	if strings.Contains(g.Mend, "reset") {
		what = "reset needed"
	}
	if g.Health == string(gpu.HealthDraining) || g.Health == string(gpu.HealthCordoned) && len(g.Holders) > 0 {
		what += " once it is empty"
	}
	return what + ": " + g.Mend
}

func faultCount(g apitype.GPU) string {
	if g.LastFault == nil {
		return ""
	}
	return fmt.Sprintf("%d, %s %s ago", g.Faults, g.LastFault.Code, ago(g.LastFault.At))
}

// gpuAction does something to GPUs that are named.
type gpuAction struct {
	reason string
	do     func(ctx context.Context, api *client.Client, gpu, reason string) (apitype.GPU, error)
	wait   bool // until nothing is on them
}

// judge runs an action on every GPU that is named: one that refuses does not keep the
// others from it. With -o json or yaml the GPUs are shown as they are at the end.
func (a *App) judge(ctx context.Context, api *client.Client, names []string, x *gpuAction) error {
	failed := false
	var done []apitype.GPU
	for _, name := range names {
		g, err := x.do(ctx, api, name, x.reason)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			failed = true
			fmt.Fprintf(a.Err, "gpupool: %s\n", message(err))
			continue
		}
		done = append(done, g)
	}
	for i := range done {
		if x.wait {
			if err := a.untilDrained(ctx, api, &done[i]); err != nil {
				return err
			}
		}
	}
	err := a.print(listOf(done), func(w io.Writer, _ bool) {
		for _, g := range done {
			fmt.Fprintln(w, strings.Map(printable, judged(g)))
		}
	})
	if err == nil && failed {
		return &codeError{code: exitFailure}
	}
	return err
}

// judged says how a GPU is after a word on it.
func judged(g apitype.GPU) string {
	switch g.Health {
	case string(gpu.HealthOK):
		return fmt.Sprintf("GPU %d is in use again", g.GPU)
	case string(gpu.HealthDraining):
		return fmt.Sprintf("GPU %d is draining: %s", g.GPU, leftOn(g))
	}
	return strings.TrimSuffix(fmt.Sprintf("GPU %d is %s: %s", g.GPU, g.Health, whyAiling(g)), ": ")
}

// leftOn says what is still on a GPU.
func leftOn(g apitype.GPU) string {
	var all []string
	for _, h := range g.Holders {
		all = append(all, holder(h)+" "+h.Phase)
	}
	return fmt.Sprintf("%d left on it (%s)", len(all), strings.Join(all, ", "))
}

// drainLook is how often it is looked whether a GPU is drained.
const drainLook = time.Second

// untilDrained waits until nothing is left on a GPU, and says what is whenever that has
// changed. It gives up where the drain was called off.
func (a *App) untilDrained(ctx context.Context, api *client.Client, g *apitype.GPU) error {
	told := ""
	for g.Health == string(gpu.HealthDraining) {
		if now := leftOn(*g); now != told {
			told = now
			fmt.Fprintf(a.Err, "GPU %d: %s\n", g.GPU, strings.Map(printable, now))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(drainLook):
		}
		next, err := api.GPU(ctx, fmt.Sprint(g.GPU))
		if err != nil {
			return err
		}
		*g = next
	}
	if len(g.Holders) > 0 && g.Health != string(gpu.HealthBroken) {
		return fmt.Errorf("GPU %d is %s before it was drained: somebody has called that off", g.GPU, g.Health)
	}
	return nil
}

func (a *App) gpuActionCmd(use, short, long string, x *gpuAction) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeGPUs,
		RunE: a.call(func(ctx context.Context, api *client.Client, args []string) error { return a.judge(ctx, api, args, x) }),
	}
}

func (a *App) cordonCmd() *cobra.Command {
	x := &gpuAction{do: func(ctx context.Context, api *client.Client, gpu, reason string) (apitype.GPU, error) {
		return api.CordonGPU(ctx, gpu, reason)
	}}
	c := a.gpuActionCmd("cordon GPU...", "Give GPUs no new work; what runs on them goes on",
		"Gives GPUs, named by number or UUID, no new work until they are uncordoned. What runs on them goes on. Of GPUs that were being drained it calls that off.", x)
	c.Flags().StringVar(&x.reason, "reason", "", "why, for those who see it")
	return c
}

func (a *App) drainCmd() *cobra.Command {
	x := &gpuAction{do: func(ctx context.Context, api *client.Client, gpu, reason string) (apitype.GPU, error) {
		return api.DrainGPU(ctx, gpu, reason)
	}}
	c := a.gpuActionCmd("drain GPU...", "Move what runs on GPUs away, and give them no new work",
		`Drains GPUs, named by number or UUID. Their tasks are told to end, are ended after their grace, and go
back to their place in line, also those that are not to be preempted. Leases of outside clients are
held for one more TTL and cannot be renewed. A parked task stays so while its host has another GPU
that it could wake on. A drained GPU stays out of use until it is uncordoned.`, x)
	c.Flags().StringVar(&x.reason, "reason", "", "why, for those who see it and for their tasks")
	c.Flags().BoolVarP(&x.wait, "wait", "w", false, "return when nothing is left on them, and say meanwhile what is")
	return c
}

func (a *App) uncordonCmd() *cobra.Command {
	x := &gpuAction{do: func(ctx context.Context, api *client.Client, gpu, reason string) (apitype.GPU, error) {
		return api.UncordonGPU(ctx, gpu, reason)
	}}
	return a.gpuActionCmd("uncordon GPU...", "Take back what operators said of GPUs",
		"Takes back that GPUs, named by number or UUID, were cordoned or drained. What their driver says of them stands: that ends when they are mended.", x)
}

func (a *App) completeGPUs(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	api, err := a.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []string
	for g, err := range api.GPUs(c.Context(), client.GPUQuery{}) {
		if err != nil {
			break
		}
		out = append(out, fmt.Sprintf("%d\t%s on %s, %s", g.GPU, g.Model, g.Host, g.Health))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
