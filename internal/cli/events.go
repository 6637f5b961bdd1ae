package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/work"
)

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

// printEvent writes one event: a line for people, or a JSON document a line.
func (a *App) printEvent(ev apitype.Event) error {
	if a.flags.output == "json" || a.flags.output == "yaml" {
		return json.NewEncoder(a.Out).Encode(ev)
	}
	fact, err := eventText(ev)
	if err != nil {
		return err
	}
	about := ""
	if ev.Task != 0 {
		about = fmt.Sprintf("task %d of %s", ev.Task, ev.Tenant)
	}
	_, err = fmt.Fprintf(a.Out, "%s  %-12s %-20s %s\n", ev.At.Local().Format("15:04:05.000"), ev.Kind, about, short(strings.Map(printable, fact), 160))
	return err
}

// eventText puts the facts about the queue into words; others are shown as they are,
// and so are those of a server of another version.
func eventText(ev apitype.Event) (string, error) {
	raw, err := json.Marshal(ev.Fact)
	if err != nil {
		return "", err
	}
	var words string
	switch ev.Kind {
	case "task.held":
		words, err = in(raw, heldFact.words)
	case "task.checkpoint":
		words = "has saved its work"
	case "task.reserved":
		words, err = in(raw, func(f reservedFact) string { return f.words(ev.At) })
	case "pool.asked":
		words, err = in(raw, askedFact.words)
	case "task.use":
		words, err = in(raw, func(f useFact) string { return f.words(ev.At) })
	case "task.suspending":
		words, err = in(raw, func(f suspendingFact) string { return "is being suspended: " + f.Reason.Message })
	case "task.suspended":
		words = "is suspended; its GPUs are being freed"
	case "task.woken":
		words, err = in(raw, func(f heldFact) string { return "woken by " + f.By })
	case "task.resuming":
		words = "goes on where it is"
	case "task.resumed":
		words = "runs again"
	case "task.movefailed":
		words, err = in(raw, func(f moveFact) string { return f.Move + " failed: " + f.Why })
	case "pool.mode":
		words, err = in(raw, func(f modeFact) string { return fmt.Sprintf("pool %s is %s, set by %s", f.Pool, f.Mode, f.By) })
	}
	if words == "" || err != nil {
		return string(raw), nil //nolint:nilerr // shown as it is
	}
	return words, nil
}

// in reads a fact and puts it into words.
func in[F any](raw []byte, words func(F) string) (string, error) {
	var f F
	if err := json.Unmarshal(raw, &f); err != nil {
		return "", err
	}
	return words(f), nil
}

type heldFact struct {
	On bool   `json:"on"`
	By string `json:"by"`
}

func (f heldFact) words() string {
	if f.On {
		return "held by " + f.By
	}
	return "released by " + f.By
}

type useFact struct {
	Use struct {
		Kind  string `json:"kind"`
		Since int64  `json:"since"`
		MiB   int64  `json:"memory_mib"`
	} `json:"use"`
}

func (f useFact) words(now time.Time) string {
	since := " since " + clock(time.Unix(0, f.Use.Since), now)
	switch f.Use.Kind {
	case "idle":
		if f.Use.MiB > 0 {
			return "its GPUs idle" + since + ", with " + work.FormatMiB(f.Use.MiB) + " loaded"
		}
		return "its GPUs idle" + since
	case "light":
		return "uses little of its GPUs" + since
	case "hot":
		return "uses all of its GPUs" + since
	case "steady":
		return "uses its GPUs"
	}
	return "how it uses its GPUs is not known"
}

type suspendingFact struct {
	Reason struct {
		Message string `json:"message"`
	} `json:"reason"`
}

type moveFact struct {
	Move string `json:"move"`
	Why  string `json:"why"`
}

type modeFact struct {
	Pool string `json:"pool"`
	Mode string `json:"mode"`
	By   string `json:"by"`
}

type askedFact struct {
	Pool    string  `json:"pool"`
	Waiting int     `json:"waiting"`
	GPUs    float64 `json:"gpus"`
}

func (f askedFact) words() string {
	return fmt.Sprintf("pool %s asked for more: %d tasks wait for %s GPUs", f.Pool, f.Waiting, gpuCount(f.GPUs))
}

type reservedFact struct {
	At    int64 `json:"at"`
	Parts []struct {
		Slices []struct {
			GPU int `json:"gpu"`
		} `json:"slices"`
	} `json:"parts"`
	Victims []uint64 `json:"victims"`
}

func (f reservedFact) words(now time.Time) string {
	if len(f.Parts) == 0 {
		return "nothing is kept for it any more"
	}
	var gpus []int
	for _, p := range f.Parts {
		for _, s := range p.Slices {
			gpus = append(gpus, s.GPU)
		}
	}
	text := gpuNumbers(gpus) + " kept for it"
	if f.At > 0 && f.At != math.MaxInt64 {
		text += ", free about " + clock(time.Unix(0, f.At), now)
	}
	if len(f.Victims) > 0 {
		text += "; yielding: task " + names(f.Victims)
	}
	return text
}
