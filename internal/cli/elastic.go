package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/work"
)

// registerElastic adds the flags that say what may be done with a task while it runs.
func (s *specFlags) registerElastic(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&s.spec.OnIdle, "on-idle", "", "when its GPUs are not used: keep, share (others of its tenant come to them), park (suspend it and lend them) or stop (default: the pool's rule for its class)")
	f.StringVar(&s.spec.OnResize, "on-resize", "", "restart: it saves its work when told, ends within its grace and may be started again at another size or place (default: only its share of a GPU changes, in place)")
	f.StringVar(&s.spec.Signal, "resize-signal", "", "the signal that tells it so: "+strings.Join(work.Signals(), ", ")+" (default TERM)")
	f.StringVar(&s.spec.Min, "min", "", "GPUs that each member can run with at the least, such as 2 or 0.5 (default: what it asks for)")
	f.StringVar(&s.spec.Max, "max", "", "GPUs that each member can make use of at the most (default: what it asks for)")
	f.BoolVar(&s.spec.NoShare, "no-share", false, "it is never put beside others on a GPU, nor made smaller for them")
	f.BoolVar(&s.spec.NoPreempt, "no-preempt", false, "it never has to yield; so it is never placed on GPUs that may be asked back")
	registerLabels(c, &s.labels)
	for name, values := range map[string][]string{"on-idle": {"keep", "share", "park", "stop"}, "on-resize": {"restart"}, "resize-signal": work.Signals()} { // order: of no matter
		_ = c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
}

func registerLabels(c *cobra.Command, to *[]string) {
	c.Flags().StringArrayVar(to, "label", nil, "KEY=VALUE, for exemptions and for people; may be repeated")
}

// readElastic puts those flags over what the task file says. Labels join those of the file.
func (s *specFlags) readElastic(c *cobra.Command, spec *apitype.TaskSpec) (err error) {
	for flag, take := range map[string]func(){ // order: each sets a field of its own
		"on-idle": func() { spec.OnIdle = s.spec.OnIdle }, "on-resize": func() { spec.OnResize = s.spec.OnResize },
		"resize-signal": func() { spec.Signal = s.spec.Signal }, "min": func() { spec.Min = s.spec.Min }, "max": func() { spec.Max = s.spec.Max },
		"no-share": func() { spec.NoShare = s.spec.NoShare }, "no-preempt": func() { spec.NoPreempt = s.spec.NoPreempt },
	} {
		if c.Flags().Changed(flag) {
			take()
		}
	}
	spec.Labels, err = withLabels(spec.Labels, s.labels)
	return err
}

// withLabels adds labels as they are written to those there are.
func withLabels(to map[string]string, texts []string) (map[string]string, error) {
	for _, kv := range texts {
		k, v, is := strings.Cut(kv, "=")
		if !is || k == "" {
			return nil, usagef("label %q is not understood: expected KEY=VALUE, such as team=vision", kv)
		}
		if to == nil {
			to = map[string]string{}
		}
		to[k] = v
	}
	return to, nil
}

// resizeCmd gives one task another size.
func (a *App) resizeCmd() *cobra.Command {
	c := a.actionCmd("resize TASK GPUS", "Give a task another size",
		`Gives each member of a task another number of GPUs, or another fraction of one: within what it was submitted
to run with (--gpus 2..8, --min, --max). A share of a GPU changes in place, where there is room; anything else is
a restart, which a task agrees to by --on-resize restart. The size stays until "gpupool resize TASK auto" leaves
it to the pool again.`, action{})
	c.Example = "  gpupool resize 12 4\n  gpupool resize 12 auto"
	c.Args = cobra.ExactArgs(2)
	c.ValidArgsFunction = func(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		switch len(args) {
		case 0:
			return a.completeTasks(c, args, word)
		case 1:
			return []string{"1", "2", "4", "8", "0.5", apitype.SizeAuto}, cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		size := args[1]
		milli, err := apitype.Resize{GPUs: size}.Milli()
		if err != nil {
			return usage(err)
		}
		return a.each(c, args[:1], action{
			do: func(ctx context.Context, api *client.Client, id uint64) (apitype.Task, error) {
				return api.Resize(ctx, id, size)
			},
			say: func(t apitype.Task) string {
				if milli == 0 {
					return fmt.Sprintf("task %d has the size that its pool gives it", t.ID)
				}
				return fmt.Sprintf("task %d is resized to %s: gpupool resize %d auto leaves it to its pool again", t.ID, cmp.Or(t.Resized, t.Request), t.ID)
			},
		})
	}
	return c
}

// taskElastic shows what may be done with a task while it runs, and what is.
func taskElastic(line func(name, value string), t apitype.Task, now time.Time) {
	line("on idle", t.OnIdle)
	if t.OnResize != "" {
		line("on resize", fmt.Sprintf("%s, told by SIG%s", t.OnResize, cmp.Or(t.Signal, "TERM")))
	}
	if t.MinGPUs > 0 {
		line("min GPUs", gpuCount(t.MinGPUs))
	}
	if t.MaxGPUs > 0 {
		line("max GPUs", gpuCount(t.MaxGPUs))
	}
	if t.NoShare {
		line("shares", "its GPUs with nobody")
	}
	if t.NoPreempt {
		line("yields", "to nobody")
	}
	var labels []string
	for _, k := range slices.Sorted(maps.Keys(t.Labels)) {
		labels = append(labels, k+"="+t.Labels[k])
	}
	line("labels", strings.Join(labels, ", "))
	line("size", sizeText(t))
	if t.Usage != nil {
		line("use", usageText(*t.Usage, now))
	}
	if t.Plan != nil {
		line("plan", plannedText(*t.Plan, now))
	}
}

// sizeText says what a task was resized to, and by whom.
func sizeText(t apitype.Task) string {
	switch {
	case t.Resized == "":
		return ""
	case t.ResizedBy == "":
		return t.Resized + ", given by its pool"
	}
	return fmt.Sprintf("%s, given by %s", t.Resized, t.ResizedBy)
}

// explainElastic is what explain says of a task's use, its size and what is planned.
func explainElastic(t apitype.Task, now time.Time) (out []string) {
	if t.Usage != nil {
		out = append(out, usageText(*t.Usage, now))
	}
	if t.Resized != "" {
		out = append(out, fmt.Sprintf("it was submitted for %s and now has the size %s", t.Request, sizeText(t)))
	}
	if t.Plan != nil {
		out = append(out, plannedText(*t.Plan, now))
	}
	return out
}

// sizeNow is what each member holds of GPUs, of a task that may have several sizes.
func sizeNow(t apitype.Task) string {
	if len(t.Members) == 0 || t.Resized == "" && t.MinGPUs == 0 && t.MaxGPUs == 0 {
		return ""
	}
	milli := 0
	for _, s := range t.Members[0].Slices {
		milli += s.Milli
	}
	if milli == 0 { // it is parked
		return ""
	}
	return gpuCount(float64(milli) / 1000)
}

// useWord says in a word or two how a task uses its GPUs, for a column.
func useWord(u *apitype.Judged, now time.Time) string {
	switch {
	case u == nil:
		return ""
	case u.Kind == "idle":
		return "idle " + forHowLong(now.Sub(u.Since))
	case u.Kind == "light":
		return fmt.Sprintf("light %.0f %%", 100*u.Compute)
	}
	return u.Kind
}

// forHowLong is a duration in one unit.
func forHowLong(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(max(d, 0).Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

// usageText says how a task uses its GPUs.
func usageText(u apitype.Judged, now time.Time) string {
	since := " since " + clock(u.Since, now)
	switch u.Kind {
	case "idle":
		if u.MemoryMiB > 0 {
			return "its GPUs idle" + since + ", with " + work.FormatMiB(u.MemoryMiB) + " loaded"
		}
		return "its GPUs idle" + since
	case "light":
		return fmt.Sprintf("uses little of its GPUs%s: %.0f %% at most", since, 100*u.Compute)
	case "hot":
		return "uses all of its GPUs" + since
	case "steady":
		return "uses its GPUs"
	}
	return u.Kind + since // of a newer server
}

// plannedText says what was announced for a task.
func plannedText(p apitype.Plan, now time.Time) string {
	words := "will have done with it: " + p.Move // of a newer server
	switch p.Move {
	case string(work.MoveRestart):
		words = "will be restarted"
		if p.To != "" {
			words += " with " + strings.ReplaceAll(p.To, "whole GPU", "GPU")
		}
	case string(work.MoveAway):
		words = "will be restarted at another place"
	}
	words += " at " + moment(p.At, now)
	if who := fmt.Sprintf("task %d", p.For); p.For != 0 && !strings.Contains(p.Reason.Message+" ", who+" ") {
		words += ", as " + who + " waits"
	}
	if p.Reason.Message != "" {
		words += ": " + p.Reason.Message
	}
	return words
}

// moment is clock with seconds, for what comes soon.
func moment(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04:05")
	}
	return t.Format("Mon 2 Jan 15:04:05")
}
