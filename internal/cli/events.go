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
	_, err = fmt.Fprintf(a.Out, "%s  %-15s %-20s %s\n", ev.At.Local().Format("15:04:05.000"), ev.Kind, about, short(strings.Map(printable, fact), 160))
	return err
}

// eventText puts a fact into words. One of a server of another version is shown as it is.
func eventText(ev apitype.Event) (string, error) {
	raw, err := json.Marshal(ev.Fact)
	if err != nil {
		return "", err
	}
	words := ""
	for _, about := range []func(apitype.Event, []byte) (string, error){queueText, moveText, modeText, lifeText} {
		if words == "" && err == nil {
			words, err = about(ev, raw)
		}
	}
	if words == "" || err != nil {
		return string(raw), nil //nolint:nilerr // shown as it is
	}
	return words, nil
}

// queueText puts the facts about the queue into words; of another kind it says nothing.
func queueText(ev apitype.Event, raw []byte) (string, error) {
	switch ev.Kind {
	case "task.held":
		return in(raw, heldFact.words)
	case "task.checkpoint":
		return "has saved its work", nil
	case "task.reserved":
		return in(raw, func(f reservedFact) string { return f.words(ev.At) })
	case "pool.asked":
		return in(raw, askedFact.words)
	}
	return "", nil
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
