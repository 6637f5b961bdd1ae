package top

import (
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
)

// column is one of a table. The last takes what is left of the width.
type column struct {
	title string
	right bool
	late  bool // left out where the width does not do
}

// table draws the rows that are on the screen, and makes no others.
type table struct {
	columns []column
	rows    int
	row     func(i int) []string
	paint   func(i, col int, cell string) string // nil: as it is
}

const gap = "  "

// draw writes the head and the rows from top on, lines in all. The row under the cursor
// is marked; a cursor below 0 marks none.
func (t table) draw(width, lines, top, cursor int, s styles) []string {
	var cells [][]string
	for i := top; i < min(top+lines-1, t.rows); i++ {
		row := t.row(i)
		for c := range row {
			row[c] = clean(row[c])
		}
		cells = append(cells, row)
	}
	widths := t.widths(cells, width)
	out := []string{s.head.Render(line(t.titles(), widths, t.columns, nil, width))}
	for i, row := range cells {
		paint := func(c int, x string) string {
			if t.paint == nil || top+i == cursor {
				return x
			}
			return t.paint(top+i, c, x)
		}
		text := line(row, widths, t.columns, paint, width)
		if top+i == cursor {
			text = s.cursor.Render(pad("> "+strings.TrimPrefix(text, "  "), width))
		}
		out = append(out, text)
	}
	for len(out) < lines {
		out = append(out, "")
	}
	return out
}

func (t table) titles() (out []string) {
	for _, c := range t.columns {
		out = append(out, c.title)
	}
	return out
}

// widths are those of the columns; 0 is a column that is left out. What is not late, but
// for the last column, is cut only when nothing else helps.
func (t table) widths(cells [][]string, width int) []int {
	n := len(t.columns)
	out := make([]int, n)
	for c, col := range t.columns {
		out[c] = ansi.StringWidth(col.title)
		for _, row := range cells {
			out[c] = max(out[c], ansi.StringWidth(row[c]))
		}
	}
	const least = 12 // of the last column
	total := func() (sum int) {
		for c, w := range out {
			if c == n-1 {
				w = min(w, least)
			}
			if w > 0 {
				sum += w + len(gap)
			}
		}
		return sum
	}
	for c := n - 2; c >= 0 && total() > width; c-- {
		if t.columns[c].late {
			out[c] = 0
		}
	}
	for total() > width { // then the widest is cut
		widest := 0
		for c := range n - 1 {
			if out[c] > out[widest] {
				widest = c
			}
		}
		if out[widest] <= 4 {
			break
		}
		out[widest]--
	}
	return out
}

// line writes one row, no wider than width; it begins with two spaces, where the cursor
// would be.
func line(row []string, widths []int, columns []column, paint func(int, string) string, width int) string {
	var b strings.Builder
	used := 0
	for c, cell := range row {
		last := c == len(row)-1
		w := widths[c]
		if last {
			w = max(width-used-len(gap), 0)
		}
		if w == 0 {
			continue
		}
		cell = ansi.Truncate(cell, w, "…")
		space := strings.Repeat(" ", w-ansi.StringWidth(cell))
		if paint != nil {
			cell = paint(c, cell)
		}
		b.WriteString(gap)
		switch {
		case columns[c].right:
			b.WriteString(space + cell)
		case last:
			b.WriteString(cell)
		default:
			b.WriteString(cell + space)
		}
		used += w + len(gap)
	}
	return b.String()
}

// pad fills a line up, or cuts it.
func pad(s string, width int) string {
	s = ansi.Truncate(s, width, "…")
	return s + strings.Repeat(" ", max(width-ansi.StringWidth(s), 0))
}

// clean keeps what a tenant wrote from moving the cursor of who reads it.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
}

// styles are the colours, none where there shall be none.
type styles struct {
	title, head, cursor, good, warn, bad, dim lipgloss.Style
}

// state paints a word for how a task, a GPU or a pool is.
func (s styles) state(word, cell string) string {
	switch word {
	case "running", "succeeded", "ok", "dynamic":
		return s.good.Render(cell)
	case "queued", "starting", "yielding", "parked", "suspect", "shadow":
		return s.warn.Render(cell)
	case "failed", "expired", "broken":
		return s.bad.Render(cell)
	}
	return cell
}

// barOf draws a share as a bar of so many cells.
func barOf(share float64, cells int) string {
	full := min(max(int(share*float64(cells)+0.5), 0), cells)
	return "[" + strings.Repeat("█", full) + strings.Repeat("·", cells-full) + "]"
}

// cursor is a place in a list, and what is on the screen of it.
type cursor struct{ at, top int }

// to moves to a row, and the screen with it.
func (c *cursor) to(row, rows, visible int) {
	c.at = min(max(row, 0), max(rows-1, 0))
	c.top = min(max(c.top, c.at-visible+1), c.at)
	c.top = max(min(c.top, rows-visible), 0)
}
