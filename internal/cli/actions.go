package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
)

// action does something to one task; say puts what became of it into words.
type action struct {
	do  func(ctx context.Context, api *client.Client, id uint64) (apitype.Task, error)
	say func(t apitype.Task) string
}

// each runs an action on every task that is named: one that refuses must not keep the
// others as they were.
func (a *App) each(c *cobra.Command, args []string, x action) error {
	refs, err := parseRefs(args)
	if err != nil {
		return err
	}
	api, err := a.connect()
	if err != nil {
		return err
	}
	failed := 0
	for _, r := range refs {
		id, err := r.find(c.Context(), api)
		var t apitype.Task
		if err == nil {
			t, err = x.do(c.Context(), api, id)
		}
		switch {
		case c.Context().Err() != nil:
			return c.Context().Err()
		case err != nil:
			failed++
			fmt.Fprintf(a.Err, "gpupool: %s\n", message(err))
		default:
			fmt.Fprintln(a.Out, x.say(t))
		}
	}
	if failed > 0 {
		return &codeError{code: exitFailure}
	}
	return nil
}

// actionCmd is a command that does one thing to the tasks that are named.
func (a *App) actionCmd(use, short, long string, x action) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeTasks,
		RunE: func(c *cobra.Command, args []string) error { return a.each(c, args, x) },
	}
}

// actionCmds are the commands about tasks that wait or run.
func (a *App) actionCmds() []*cobra.Command {
	return []*cobra.Command{
		a.actionCmd("hold TASK...", "Keep waiting tasks back until they are released",
			"Keeps waiting tasks back. A held task counts as waiting, but its TTL does not run; released, it waits at the end of the line.",
			action{func(ctx context.Context, api *client.Client, id uint64) (apitype.Task, error) {
				return api.Hold(ctx, id)
			},
				func(t apitype.Task) string {
					return fmt.Sprintf("task %d is held: gpupool release %d lets it go on", t.ID, t.ID)
				}}),
		a.actionCmd("release TASK...", "Let tasks go on that are held", "",
			action{func(ctx context.Context, api *client.Client, id uint64) (apitype.Task, error) {
				return api.Release(ctx, id)
			},
				func(t apitype.Task) string { return fmt.Sprintf("task %d is released and %s", t.ID, t.State) }}),
		a.actionCmd("checkpoint TASK...", "Say that running tasks have saved their work",
			"Says that running tasks have saved their work, so that who must yield is chosen by what it would really lose. Call it from the task itself: gpupool checkpoint $GPUPOOL_TASK.",
			action{func(ctx context.Context, api *client.Client, id uint64) (apitype.Task, error) {
				return api.Checkpoint(ctx, id)
			},
				func(t apitype.Task) string { return fmt.Sprintf("task %d has saved its work", t.ID) }}),
		a.actionCmd("park TASK...", "Suspend running tasks and lend their GPUs",
			"Suspends running tasks where they are and lends their GPUs to others. A parked task keeps its CPU and memory; gpupool wake lets it go on.",
			action{func(ctx context.Context, api *client.Client, id uint64) (apitype.Task, error) {
				return api.Park(ctx, id)
			},
				func(t apitype.Task) string {
					return fmt.Sprintf("task %d is being parked: gpupool wake %d lets it go on", t.ID, t.ID)
				}}),
		a.actionCmd("wake TASK...", "Let parked tasks go on",
			"Lets parked tasks go on. They need GPUs of their host again: who idles there or is a guest on their GPUs gives way. Of a running task it says that someone uses it.",
			action{func(ctx context.Context, api *client.Client, id uint64) (apitype.Task, error) {
				return api.Wake(ctx, id)
			},
				func(t apitype.Task) string { return fmt.Sprintf("task %d is woken; it is %s", t.ID, t.State) }}),
		a.resizeCmd(),
		a.actionCmd("preempt TASK...", "Send running tasks back to the queue",
			"Ends running tasks (SIGTERM, grace, SIGKILL) and puts them back into line, where they start anew when there is room.",
			action{func(ctx context.Context, api *client.Client, id uint64) (apitype.Task, error) {
				return api.Preempt(ctx, id)
			},
				func(t apitype.Task) string { return fmt.Sprintf("task %d is being sent back to the queue", t.ID) }}),
	}
}

func (a *App) cancelCmd() *cobra.Command {
	var wait, array bool
	x := action{do: func(ctx context.Context, api *client.Client, id uint64) (t apitype.Task, err error) {
		if array {
			t, err = api.CancelArray(ctx, id)
		} else {
			t, err = api.Cancel(ctx, id)
		}
		if err == nil && wait && array {
			return waitArray(ctx, api, t)
		}
		for err == nil && wait && !t.Terminal() {
			t, err = api.WaitTask(ctx, id, 30*time.Second)
		}
		return t, err
	}, say: func(t apitype.Task) string {
		what := "is being ended"
		if t.Terminal() {
			what = t.State
		}
		switch {
		case array && wait:
			return fmt.Sprintf("array %d has ended", t.Array)
		case array:
			return fmt.Sprintf("array %d is being ended", t.Array)
		case t.Size > 1 && t.ID == t.Array:
			return fmt.Sprintf("task %d %s; the other %d of its array go on: --array ends them all", t.ID, what, t.Size-1)
		}
		return fmt.Sprintf("task %d %s", t.ID, what)
	}}
	c := a.actionCmd("cancel TASK...", "End tasks: SIGTERM, grace, SIGKILL", "", x)
	c.Flags().BoolVarP(&wait, "wait", "w", false, "return when they have ended")
	c.Flags().BoolVar(&array, "array", false, "end all unfinished tasks of each one's array")
	return c
}

// waitArray returns a task when all of its array have ended.
func waitArray(ctx context.Context, api *client.Client, t apitype.Task) (apitype.Task, error) {
	for id := t.Array; id < t.Array+uint64(t.Size); id++ {
		x, err := api.Task(ctx, id)
		if missing(err) {
			continue // ended so long ago that it is forgotten
		}
		for err == nil && !x.Terminal() {
			x, err = api.WaitTask(ctx, id, 30*time.Second)
		}
		if err != nil {
			return t, err
		}
	}
	return t, nil
}
