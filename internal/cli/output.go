package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/goccy/go-yaml"
	"golang.org/x/term"
)

var outputs = []string{"table", "wide", "json", "yaml"}

func (a *App) checkOutput() error {
	if !slices.Contains(outputs, a.flags.output) {
		return usagef("output %q is not known: use table, wide, json or yaml", a.flags.output)
	}
	return nil
}

// print shows v as JSON or YAML, or lets table write it for people; wide asks for
// more columns.
func (a *App) print(v any, table func(w io.Writer, wide bool)) error {
	switch a.flags.output {
	case "json":
		enc := json.NewEncoder(a.Out)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(v)
	case "yaml":
		b, err := yaml.MarshalWithOptions(v, yaml.UseJSONMarshaler(), yaml.IndentSequence(true))
		if err != nil {
			return err
		}
		_, err = a.Out.Write(b)
		return err
	}
	table(a.Out, a.flags.output == "wide")
	return nil
}

// tabs writes rows in columns. Cells must hold no tab.
func tabs(w io.Writer, head []string, rows [][]string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(head, "\t"))
	for _, r := range rows {
		for i, c := range r {
			if c == "" {
				c = "-"
			}
			r[i] = strings.Map(printable, c)
		}
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	t.Flush()
}

// printable keeps what a tenant wrote from moving the cursor of who reads it.
func printable(r rune) rune {
	if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
		return ' '
	}
	return r
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// colours paints words, on a terminal and unless NO_COLOR is set.
type colours bool

func (a *App) colours() colours {
	_, off := os.LookupEnv("NO_COLOR")
	return colours(onTerminal(a.Out) && !off)
}

func (c colours) paint(code, s string) string {
	if !c || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (c colours) state(s string) string {
	switch s {
	case "running", "succeeded", "ok":
		return c.paint("32", s)
	case "queued", "starting", "yielding", "parked", "suspect", "cordoned", "draining", "drained":
		return c.paint("33", s)
	case "failed", "expired", "broken":
		return c.paint("31", s)
	}
	return s
}

// ago says how long ago t was, in people's units.
func ago(t time.Time) string { return span(time.Since(t)) }

// span writes a duration with its two leading units.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

func gpuCount(f float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", f), "0"), ".")
}
