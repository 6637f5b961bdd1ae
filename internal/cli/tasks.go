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
	head := []string{"TASK", "TENANT", "NAME", "REQUEST", "STATE", "AGE", "START", "WHERE"}
	if wide {
		head = append(head, "POOL", "PRIORITY", "USE", "SIZE", "ENFORCED", "COMMAND", "WHY", "NUMBER")
	}
	var rows [][]string
	for _, t := range tasks {
		row := []string{ref(t), t.Tenant, t.Name, t.Request, t.State, ago(t.Submitted), startOf(t, time.Now()), where(t)}
		if wide {
			row = append(row, t.Pool, t.Priority, useWord(t.Usage, time.Now()), sizeNow(t), t.Enforcement, short(strings.Join(t.Command, " "), 40), t.Reason.Message, fmt.Sprint(t.ID))
		}
		rows = append(rows, row)
	}
	tabs(w, head, rows)
}

// startOf says in a word when a waiting task is expected to start.
func startOf(t apitype.Task, now time.Time) string {
	switch {
	case t.State != "queued":
		return ""
	case t.ExpectedStart == nil:
		return "?"
	}
	return "~" + clock(*t.ExpectedStart, now)
}

// clock writes a time of today as 15:04, and others with their day.
func clock(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04")
	}
	return t.Format("Mon 2 Jan 15:04")
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
	if t.Index != nil {
		line("array", fmt.Sprintf("%s of %d tasks (%s)", ref(t), t.Size, t.ArraySpec))
	}
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
	taskContainer(line, t)
	fmt.Fprintf(w, "%-10s %s\n", "state", a.colours().state(t.State))
	line("why", t.Reason.Message)
	a.taskOrder(line, t)
	taskElastic(line, t, time.Now())
	line("enforced", t.Enforcement)
	if t.Drained > 0 {
		line("drained", times(t.Drained))
	}
	if f := t.LastFault; f != nil {
		line("faults", fmt.Sprintf("%d, the last %s (%s) on GPU %d %s ago", t.Faults, f.Code, f.What, f.GPU, ago(f.At)))
	}
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

// taskOrder shows what says when a task runs, for how long, and after what.
func (a *App) taskOrder(line func(name, value string), t apitype.Task) {
	line("after", names(t.After))
	line("after any", names(t.AfterAny))
	line("max run", t.MaxRuntime)
	line("estimate", t.Estimate)
	if t.Checkpoint != "" {
		line("saves", "every "+t.Checkpoint)
	}
	now := time.Now()
	if t.Deadline != nil {
		line("deadline", until(*t.Deadline, now))
	}
	if t.ExpectedStart != nil {
		line("start", "about "+clock(*t.ExpectedStart, now))
	}
	if t.Preempted > 0 {
		line("preempted", times(t.Preempted))
	}
}

func names(ids []uint64) string {
	var out []string
	for _, id := range ids {
		out = append(out, fmt.Sprint(id))
	}
	return strings.Join(out, ", ")
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// until writes a time to come, or one that is over.
func until(t, now time.Time) string {
	if d := t.Sub(now); d > 0 {
		return fmt.Sprintf("%s, in %s", clock(t, now), span(d))
	}
	return fmt.Sprintf("%s, %s ago", clock(t, now), span(now.Sub(t)))
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
