package top

import (
	"fmt"
	"io"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// frameLines are those around the list: header, views, message and keys.
const frameLines = 4

// The least that a frame fits in.
const (
	leastWidth  = 40
	leastHeight = 8
)

// View draws the screen.
func (m *model) View() tea.View {
	v := tea.NewView(m.frame())
	v.AltScreen = true
	return v
}

// frame is the screen as text.
func (m *model) frame() string {
	if m.width < leastWidth || m.height < leastHeight {
		return ansi.Truncate(fmt.Sprintf("%dx%d is too small: make the terminal %dx%d", m.width, m.height, leastWidth, leastHeight), m.width, "")
	}
	lines := []string{m.header(), m.tabLine()}
	room := m.height - frameLines
	switch {
	case m.help:
		lines = append(lines, fit(helpLines(), room)...)
	case m.detail != nil:
		lines = append(lines, fit(strings.Split(m.detail.view.View(), "\n"), room)...)
	case m.looked.IsZero():
		lines = append(lines, fit([]string{"", "  asking " + m.o.Server + " …"}, room)...)
	default:
		c := m.lists[m.tab]
		lines = append(lines, m.table().draw(m.width, room, c.top, c.at, m.s)...)
	}
	lines = append(lines, m.message(), m.s.dim.Render(ansi.Truncate(m.keyLine(), m.width, "…")))
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], m.width, "…")
	}
	return strings.Join(lines, "\n")
}

// fit makes so many lines of some.
func fit(lines []string, n int) []string {
	for len(lines) < n {
		lines = append(lines, "")
	}
	return lines[:n]
}

// header is the whole pool in a line.
func (m *model) header() string {
	who := "admin"
	if m.o.Self.Role == "tenant" {
		who = m.o.Self.Tenant
	}
	right := m.o.Now().Local().Format("15:04:05")
	if m.link.lost != nil {
		right = "NOT CONNECTED " + right
	}
	left := fmt.Sprintf("gpupool %s (%s)", strings.TrimPrefix(m.o.Server, "http://"), who)
	if all := "  " + sums(m.snap, m.o.Words); !m.looked.IsZero() {
		if ansi.StringWidth(left+all)+len(right) >= m.width { // how the pool is matters more than where
			left = "gpupool"
		}
		left += all
	}
	return m.s.title.Render(pad(clean(left), max(m.width-len(right)-1, 0)) + " " + right)
}

// sums adds the pools up.
func sums(s Snapshot, w Words) string {
	var held float64
	var gpus, free, running, waiting, parked int
	for _, p := range s.Pools {
		held += p.HeldGPUs
		gpus, free = gpus+p.GPUs, free+p.FreeGPUs
		running, waiting, parked = running+p.Running, waiting+p.Waiting, parked+p.Parked
	}
	out := fmt.Sprintf("%s of %d GPUs held, %d free; %d running, %d waiting", w.Count(held), gpus, free, running, waiting)
	if parked > 0 {
		out += fmt.Sprintf(", %d parked", parked)
	}
	return out
}

func (m *model) tabLine() string {
	var b strings.Builder
	for t := range tabs {
		name := fmt.Sprintf(" %d %s ", int(t)+1, t)
		if t == m.tab {
			name = m.s.cursor.Render("[" + name[1:len(name)-1] + "]")
		}
		b.WriteString(name)
	}
	if f := m.filter.words(); f != "" {
		b.WriteString("  only " + clean(f))
	}
	return b.String()
}

// message is the line for questions, what was done, and what is wrong.
func (m *model) message() string {
	now := m.o.Now()
	switch {
	case m.typing:
		return m.input.View()
	case m.ask != nil:
		t, name := m.ask.task, ""
		if t.Name != "" {
			name = " (" + t.Name + ")"
		}
		return m.s.warn.Render(clean(fmt.Sprintf("%s task %s of %s%s? y/n", m.ask.what, m.o.Words.Ref(t), t.Tenant, name)))
	case m.link.lost != nil:
		text := fmt.Sprintf("trying again in %s: %s", m.o.Words.Span(max(m.link.again.Sub(now), 0)+time.Second-1), m.link.lost)
		if m.looking {
			text = "trying again now: " + m.link.lost.Error()
		}
		if !m.looked.IsZero() {
			text = "as of " + m.o.Words.Span(now.Sub(m.looked)) + " ago; " + text
		}
		return m.s.bad.Render(clean(text))
	case m.notice != "":
		return clean(m.notice)
	}
	return m.s.warn.Render(clean(m.remark()))
}

// remark is what there is to say of the row under the cursor.
func (m *model) remark() string {
	c := m.lists[m.tab]
	switch {
	case m.detail != nil || m.help:
	case m.tab == poolsTab && c.at < len(m.snap.Pools):
		p := m.snap.Pools[c.at]
		return strings.TrimSpace(p.Fallback + " " + p.Warning)
	case m.tab == tasksTab && len(m.tasks) == 0:
		return "no tasks here: f shows those in other states, esc takes every filter away"
	case m.tab == tasksTab:
		t := m.snap.Tasks[m.tasks[c.at]]
		return t.Reason.Message
	case m.tab == gpusTab && m.snap.GPUs == nil:
		return "asking for the GPUs …"
	}
	return ""
}

func (m *model) keyLine() string {
	switch {
	case m.help:
		return "any key closes this"
	case m.detail != nil && m.detail.id != 0:
		return "j/k scroll  G log  c cancel  p park  w wake  h hold  esc back  ? help"
	case m.detail != nil:
		return "j/k scroll  esc back  ? help"
	case m.tab == tasksTab:
		return fmt.Sprintf("enter detail  / search  f state  t tenant  o pool  s sort: %s  ? help  q quit", m.sort.words())
	case m.tab == gpusTab:
		return "j/k move  enter detail  / search  t tenant  o pool  1-5 views  ? help  q quit"
	}
	if m.tab == eventsTab {
		return "j/k move  enter its task  1-5 or tab views  ? help  q quit"
	}
	return "j/k move  enter its tasks  1-5 or tab views  ? help  q quit"
}

func helpLines() []string {
	return []string{
		"",
		"  1 2 3 4 5, tab   pools, GPUs, tasks, tenants, events",
		"  j k, arrows      down, up; space and pgup a page; g G the first, the last",
		"  enter            a task: why, what happened, its log; a GPU: who holds it;",
		"                   a pool or a tenant: its tasks",
		"  /                search; enter keeps it, esc takes it away",
		"  f t o            only tasks in a state, of a tenant, in a pool",
		"  s S              sort by another column; the other way round",
		"  esc              take every filter away, or go back",
		"  c p w h          cancel, park, wake, hold or release a task; asks first",
		"  r                look again now",
		"  q                quit, or close what is open",
		"",
		"  A letter in a GPU's bar is a slice, a dot is free, █ is a whole GPU.",
		"  What is shown is at most 5 s old; what happens shows within a second or so.",
	}
}

// table is that of the view.
func (m *model) table() table {
	switch m.tab {
	case poolsTab:
		return poolTable(m.snap.Pools, m.o.Words, m.s)
	case gpusTab:
		return gpuTable(m.snap.GPUs, m.gpus, m.o.Words, m.s)
	case tasksTab:
		return taskTable(m.snap.Tasks, m.tasks, m.o, m.s)
	case tenantsTab:
		return tenantTable(m.snap.Tenants, m.o.Words)
	}
	return m.eventTable()
}

func (m *model) eventTable() table {
	return table{columns: []column{{title: "TIME"}, {title: "KIND", late: true}, {title: "TASK"}, {title: "TENANT"}, {title: "WHAT"}}, rows: len(m.events),
		row: func(i int) []string {
			ev := m.events[len(m.events)-1-i]
			task := ""
			if ev.Task != 0 {
				task = fmt.Sprint(ev.Task)
			}
			return []string{at(ev.At), ev.Kind, task, ev.Tenant, m.o.Words.Event(ev)}
		}}
}

// PrintOnce writes one frame for a width: every view below the other, each with so many
// rows at most.
func PrintOnce(w io.Writer, s Snapshot, o Options, width, rows int) error {
	if o.Now == nil {
		o.Now = time.Now
	}
	st := stylesFor(o)
	all := func(n int) (out []int) {
		for i := range n {
			out = append(out, i)
		}
		return out
	}
	lines := []string{st.title.Render(clean(sums(s, o.Words)))}
	for _, x := range []struct {
		name string
		table
	}{
		{"pools", poolTable(s.Pools, o.Words, st)}, {"GPUs", gpuTable(s.GPUs, all(len(s.GPUs)), o.Words, st)},
		{"unfinished tasks", taskTable(s.Tasks, all(len(s.Tasks)), o, st)}, {"tenants", tenantTable(s.Tenants, o.Words)},
	} {
		if x.rows == 0 {
			lines = append(lines, "", "no "+x.name)
			continue
		}
		lines = append(append(lines, ""), x.draw(width, min(x.rows, rows)+1, 0, -1, st)...)
		if x.rows > rows {
			lines = append(lines, fmt.Sprintf("  and %d more", x.rows-rows))
		}
	}
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}
