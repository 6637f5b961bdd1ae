package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
)

func (a *App) psCmd() *cobra.Command {
	var all bool
	var q client.TaskQuery
	var states []string
	var last int
	c := &cobra.Command{
		Use: "ps", Short: "List tasks: those that have not ended, or all", Args: cobra.NoArgs,
		RunE: a.call(func(ctx context.Context, api *client.Client, _ []string) error {
			q.States = states
			if len(states) == 0 && !all {
				q.States = []string{"active"}
			}
			q.Newest = last > 0
			var tasks []apitype.Task
			for t, err := range api.Tasks(ctx, q) {
				if err != nil {
					return err
				}
				if tasks = append(tasks, t); last > 0 && len(tasks) == last {
					break
				}
			}
			if q.Newest {
				slices.Reverse(tasks)
			}
			return a.print(listOf(tasks), func(w io.Writer, wide bool) { a.taskTable(w, tasks, wide, all) })
		}),
	}
	f := c.Flags()
	f.BoolVarP(&all, "all", "a", false, "ended tasks too")
	f.StringSliceVar(&states, "state", nil, "only tasks in these states")
	f.StringVar(&q.Tenant, "tenant", "", "only this tenant's")
	f.StringVar(&q.Pool, "pool", "", "only in this pool")
	f.StringVar(&q.Name, "name", "", "only with this name")
	f.IntVarP(&last, "last", "n", 0, "only the newest N")
	return c
}

// listOf makes an empty list [] and not null in JSON.
func listOf[T any](xs []T) []T {
	if xs == nil {
		return []T{}
	}
	return xs
}

func (a *App) taskTable(w io.Writer, tasks []apitype.Task, wide, all bool) {
	if len(tasks) == 0 {
		hint := "no tasks"
		if !all {
			hint = "no unfinished tasks; gpupool ps -a shows ended ones"
		}
		fmt.Fprintln(a.Err, hint)
		return
	}
	head := []string{"TASK", "TENANT", "NAME", "REQUEST", "STATE", "AGE", "WHERE"}
	if wide {
		head = append(head, "POOL", "PRIORITY", "COMMAND", "WHY")
	}
	var rows [][]string
	for _, t := range tasks {
		row := []string{fmt.Sprint(t.ID), t.Tenant, t.Name, t.Request, t.State, ago(t.Submitted), where(t)}
		if wide {
			row = append(row, t.Pool, t.Priority, short(strings.Join(t.Command, " "), 40), t.Reason.Message)
		}
		rows = append(rows, row)
	}
	tabs(w, head, rows)
}

// where says in few words what a task holds, or why it holds nothing.
func where(t apitype.Task) string {
	var out []string
	for _, m := range t.Members {
		var on []string
		for _, s := range m.Slices {
			on = append(on, slots(s))
		}
		at := m.Host
		if len(on) > 0 {
			at += ":" + strings.Join(on, "+")
		}
		out = append(out, at)
	}
	switch {
	case len(out) > 3:
		return fmt.Sprintf("%s and %d more", strings.Join(out[:2], " "), len(out)-2)
	case len(out) > 0:
		return strings.Join(out, " ")
	case t.Exit != nil && t.Exit.Code != 0:
		return fmt.Sprintf("exit %d", t.Exit.Code)
	case t.State == "queued":
		return short(t.Reason.Message, 60)
	}
	return ""
}

// slots writes a slice as GPU/profile@start.
func slots(s apitype.Slice) string {
	switch s.Mode {
	case "mig":
		return fmt.Sprintf("%d/%s@%d", s.GPU, s.Profile, s.Start)
	case "shared":
		return fmt.Sprintf("%d/%d%%", s.GPU, s.Milli/10)
	}
	return fmt.Sprint(s.GPU)
}

func short(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

func (a *App) getCmd() *cobra.Command {
	return &cobra.Command{
		Use: "get TASK", Short: "Show everything about a task", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeTasks,
		RunE: a.onTask(func(ctx context.Context, api *client.Client, id uint64) error {
			t, err := api.Task(ctx, id)
			if err != nil {
				return err
			}
			return a.print(t, func(w io.Writer, _ bool) { a.taskDetail(w, t) })
		}),
	}
}

func (a *App) taskDetail(w io.Writer, t apitype.Task) {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%-10s %s\n", name, strings.Map(printable, value))
		}
	}
	line("task", fmt.Sprint(t.ID))
	line("name", t.Name)
	line("tenant", t.Tenant)
	line("pool", t.Pool)
	line("priority", t.Priority)
	line("class", t.Class)
	line("request", t.Request)
	if t.CPUs > 0 {
		line("cpus", gpuCount(t.CPUs))
	}
	line("command", strings.Join(t.Command, " "))
	fmt.Fprintf(w, "%-10s %s\n", "state", a.colours().state(t.State))
	line("why", t.Reason.Message)
	line("submitted", stamp(&t.Submitted))
	line("started", stamp(t.Started))
	line("ended", stamp(t.Ended))
	if t.Exit != nil {
		line("exit code", fmt.Sprint(t.Exit.Code))
	}
	for _, m := range t.Members {
		line(fmt.Sprintf("member %d", m.Member), fmt.Sprintf("%s on %s", m.Phase, m.Host))
		for _, s := range m.Slices {
			line("", fmt.Sprintf("%s  %s%s", s.Text, s.Device, use(s.Use)))
		}
	}
}

func use(u *apitype.Use) string {
	if u == nil || u.Compute < 0 {
		return ""
	}
	return fmt.Sprintf("  %.0f%% busy, %d MiB in use", 100*u.Compute, u.MemoryMiB)
}

func stamp(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s (%s ago)", t.Local().Format("2006-01-02 15:04:05"), ago(*t))
}

func (a *App) logsCmd() *cobra.Command {
	var q client.LogQuery
	c := &cobra.Command{
		Use: "logs TASK", Short: "Show the output of a task", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeTasks,
		RunE: a.onTask(func(ctx context.Context, api *client.Client, id uint64) error {
			r, err := api.Logs(ctx, id, q)
			if err != nil {
				return err
			}
			defer r.Close()
			_, err = io.Copy(a.Out, r)
			return err
		}),
	}
	f := c.Flags()
	f.BoolVarP(&q.Follow, "follow", "f", false, "go on until the task ends")
	f.IntVarP(&q.Tail, "tail", "n", 0, "only the last lines (default: all)")
	f.IntVarP(&q.Member, "member", "m", 0, "member of a gang")
	return c
}

func (a *App) cancelCmd() *cobra.Command {
	var wait bool
	c := &cobra.Command{
		Use: "cancel TASK...", Short: "End tasks: SIGTERM, grace, SIGKILL", Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeTasks,
		RunE: func(c *cobra.Command, args []string) error {
			var ids []uint64
			for _, s := range args {
				id, err := taskID(s)
				if err != nil {
					return err
				}
				ids = append(ids, id)
			}
			api, err := a.connect()
			if err != nil {
				return err
			}
			failed := 0
			for _, id := range ids { // one that has ended must not keep the others running
				t, err := api.Cancel(c.Context(), id)
				for err == nil && wait && !t.Terminal() {
					t, err = api.WaitTask(c.Context(), id, 30*time.Second)
				}
				if err != nil {
					failed++
					fmt.Fprintf(a.Err, "gpupool: %s\n", message(err))
					continue
				}
				fmt.Fprintf(a.Out, "task %d %s\n", id, map[bool]string{true: t.State, false: "is being ended"}[t.Terminal()])
			}
			if failed > 0 {
				return &codeError{code: exitFailure}
			}
			return nil
		},
	}
	c.Flags().BoolVarP(&wait, "wait", "w", false, "return when they have ended")
	return c
}

func (a *App) explainCmd() *cobra.Command {
	return &cobra.Command{
		Use: "explain TASK", Short: "Say why a task waits, where it sits, or how it ended", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeTasks,
		RunE: a.onTask(func(ctx context.Context, api *client.Client, id uint64) error {
			x, err := api.Explain(ctx, id)
			if err != nil {
				return err
			}
			return a.print(x, func(w io.Writer, _ bool) {
				verb := "is"
				if x.Task.Terminal() {
					verb = "has"
					if x.Task.State == "cancelled" || x.Task.State == "expired" {
						verb = "was"
					}
				}
				fmt.Fprintf(w, "task %d of %s %s %s: %s\n", x.Task.ID, x.Task.Tenant, verb, a.colours().state(x.Task.State), x.Message)
				if x.Task.State == "queued" {
					fmt.Fprintf(w, "  %d task(s) before it in line; waiting for %s\n", x.Ahead, ago(x.Task.Submitted))
				}
				for _, d := range x.Detail {
					fmt.Fprintf(w, "  %s\n", strings.Map(printable, d))
				}
				fmt.Fprintf(w, "  reason code: %s\n", x.Code)
			})
		}),
	}
}

func (a *App) eventsCmd() *cobra.Command {
	var q client.EventQuery
	c := &cobra.Command{
		Use: "events", Short: "Follow what happens", Args: cobra.NoArgs,
		RunE: a.call(func(ctx context.Context, api *client.Client, _ []string) error {
			for ev, err := range api.Events(ctx, q) {
				if err != nil {
					return err
				}
				if err := a.printEvent(ev); err != nil {
					return err
				}
			}
			return nil
		}),
	}
	c.Flags().Uint64Var(&q.Task, "task", 0, "only about this task")
	c.Flags().Uint64Var(&q.After, "after", 0, "from this number on, as far as they are kept (default: from now)")
	return c
}

// completeTasks offers the numbers of unfinished tasks.
func (a *App) completeTasks(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	api, err := a.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []string
	for t, err := range api.Tasks(c.Context(), client.TaskQuery{States: []string{"active"}}) {
		if err != nil {
			break
		}
		out = append(out, fmt.Sprintf("%d\t%s %s %s", t.ID, t.State, t.Tenant, t.Name))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
