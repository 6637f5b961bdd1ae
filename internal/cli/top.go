package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/top"
)

// onceRows are the rows of each table that top --once prints.
const onceRows = 40

func (a *App) topCmd() *cobra.Command {
	var once bool
	c := &cobra.Command{
		Use: "top", Short: "Watch pools, GPUs, tasks, tenants and events live", Args: cobra.NoArgs,
		Long: `Shows the pool live: pools, GPUs with who holds them, tasks, tenants and what happens. ? lists the
keys; q quits. A task can be cancelled, parked, woken and held from the list. Where there is no
terminal, or with --once, one frame is printed: every table, with its first rows (-o json: all).`,
		RunE: a.call(func(ctx context.Context, api *client.Client, _ []string) error { return a.top(ctx, api, once) }),
	}
	c.Flags().BoolVar(&once, "once", false, "print one frame and end")
	return c
}

func (a *App) top(ctx context.Context, api *client.Client, once bool) error {
	self, err := api.Whoami(ctx)
	if err != nil {
		return err
	}
	_, plain := os.LookupEnv("NO_COLOR")
	o := top.Options{Source: top.FromServer(api), Words: topWords(), Server: api.Server(), Self: self,
		Colour: onTerminal(a.Out) && !plain, Out: a.Out, In: a.In}
	in, is := a.In.(*os.File)
	live := is && isTerminal(in) && onTerminal(a.Out) && os.Getenv("TERM") != "dumb"
	if once || !live || a.flags.output == "json" || a.flags.output == "yaml" {
		if !once && !live && a.flags.output != "json" && a.flags.output != "yaml" {
			fmt.Fprintln(a.Err, "this is not a terminal that can be drawn on: here is one frame, as with --once")
		}
		s, err := o.Source.Look(ctx, top.Want{GPUs: true})
		if err != nil {
			return err
		}
		if a.flags.output == "json" || a.flags.output == "yaml" {
			return a.print(s, nil)
		}
		return top.PrintOnce(a.Out, s, o, a.width(), onceRows)
	}
	return top.Run(ctx, o)
}

// width is that of the terminal; of a file or a pipe what fits most screens.
func (a *App) width() int {
	if f, ok := a.Out.(*os.File); ok {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			return w
		}
	}
	return 120
}

// topWords lets the live view say things as the commands do.
func topWords() top.Words {
	return top.Words{
		Event: func(ev apitype.Event) string {
			text, err := eventText(ev)
			if err != nil {
				return cmp.Or(strings.TrimSpace(err.Error()), ev.Kind)
			}
			return text
		},
		Explain: explained, Bar: draw, Ref: ref, Where: where, Start: startOf, Span: span, Count: gpuCount,
	}
}
