package doctor

import (
	"fmt"
	"io"
	"strings"
)

// Write writes the report for people: what is wrong with the commands that mend it, what is
// fine in a line each, and what was not looked at in one line, unless verbose. paint gives a
// level its colour.
func (r Report) Write(w io.Writer, verbose bool, paint func(Level, string) string) {
	wide := 0
	for _, x := range r.Results {
		wide = max(wide, len(x.Check))
	}
	indent := strings.Repeat(" ", 2+4+2+wide+2)
	group := ""
	var skipped []string
	for _, x := range r.Results {
		if x.Level == Skip && !verbose {
			skipped = append(skipped, x.Check)
			continue
		}
		if x.Group != group {
			group = x.Group
			fmt.Fprintf(w, "%s\n", group)
		}
		fmt.Fprintf(w, "  %s  %-*s  %s\n", paint(x.Level, fmt.Sprintf("%-4s", x.Level)), wide, x.Check, printable(x.Text))
		if verbose {
			for _, d := range x.Detail {
				fmt.Fprintf(w, "%s%s\n", indent, printable(d))
			}
		}
		for _, f := range x.Fix {
			fmt.Fprintf(w, "%s$ %s\n", indent, printable(f))
		}
	}
	if len(skipped) > 0 {
		fmt.Fprintf(w, "not applicable here (--verbose says why): %s\n", strings.Join(skipped, ", "))
	}
	fmt.Fprintf(w, "%s\n", r.Summary())
}

// Summary is the last line: the counts, and what gpupool would do here.
func (r Report) Summary() string {
	var counts []string
	for _, c := range []struct {
		n     int
		level Level
	}{{r.Failed, Fail}, {r.Warned, Warn}} {
		if c.n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", c.n, c.level))
		}
	}
	if len(counts) == 0 {
		counts = append(counts, "all ok")
	}
	return strings.Join(counts, ", ") + ": " + r.Verdict
}

// printable keeps what other programs wrote from moving the cursor.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
}
