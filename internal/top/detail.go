package top

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"charm.land/bubbles/v2/viewport"
	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/work"
)

// timelineKept are the newest events of a task that are shown.
const timelineKept = 200

// detail is everything about one task, or one GPU.
type detail struct {
	id uint64 // of the task; 0 = a GPU
	Detail
	known    bool
	err      error
	stream   *stream
	timeline []apitype.Event
	gpu      *apitype.GPU
	view     viewport.Model
}

// open shows a task.
func (m *model) open(id uint64) tea.Cmd {
	m.close()
	m.detail = &detail{id: id, stream: m.follow(id, 0), view: viewport.New()}
	return tea.Batch(m.fetchDetail(), m.detail.stream.next)
}

// openGPU shows a GPU with all that hold something of it.
func (m *model) openGPU(g apitype.GPU) {
	m.close()
	m.detail = &detail{gpu: &g, known: true, view: viewport.New()}
}

func (m *model) close() {
	if m.detail != nil && m.detail.stream != nil {
		m.detail.stream.stop()
	}
	m.detail = nil
}

func (m *model) fetchDetail() tea.Cmd {
	id := m.detail.id
	if id == 0 {
		return nil
	}
	return func() tea.Msg {
		d, err := m.o.Source.Detail(m.ctx, id)
		return detailMsg{id, d, err}
	}
}

func (d *detail) add(evs []apitype.Event) {
	d.timeline = append(d.timeline, evs...)
	d.timeline = d.timeline[max(len(d.timeline)-timelineKept, 0):]
}

// detailKey moves through the detail, or closes it.
func (m *model) detailKey(name string) tea.Cmd {
	v := &m.detail.view
	switch name {
	case "esc", "backspace", "left":
		m.close()
	case "j", "down":
		v.ScrollDown(1)
	case "k", "up":
		v.ScrollUp(1)
	case "pgdown", "space", "ctrl+f":
		v.PageDown()
	case "pgup", "ctrl+b":
		v.PageUp()
	case "g", "home":
		v.GotoTop()
	case "G", "end":
		v.GotoBottom()
	}
	return nil
}

// layout writes the detail for the size of the screen; where it was scrolled to stays.
func (d *detail) layout(m *model) {
	lines := d.taskLines(m)
	if d.gpu != nil {
		lines = gpuLines(*d.gpu, m)
	}
	for i, l := range lines {
		lines[i] = ansi.Wrap(l, max(m.width-1, 1), "")
	}
	d.view.SetWidth(m.width)
	d.view.SetHeight(max(m.height-frameLines, 1))
	d.view.SetContent(strings.Join(lines, "\n"))
}

func (d *detail) taskLines(m *model) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, clean(fmt.Sprintf(format, args...))) }
	head := func(s string) { out = append(out, "", m.s.head.Render(s)) }
	switch {
	case d.err != nil:
		say("%s", d.err)
		return out
	case !d.known:
		say("asking for task %d …", d.id)
		return out
	}
	x, now := d.Explanation, m.o.Now()
	t := x.Task
	say("task %s of %s (%s): %s", m.o.Words.Ref(t), t.Tenant, t.State, x.Message)
	for _, line := range m.o.Words.Explain(x, now) {
		say("  %s", line)
	}
	say("  %s", about(t))
	for _, p := range t.Members {
		for _, s := range p.Slices {
			say("  member %d is %s on %s: %s%s", p.Member, p.Phase, p.Host, s.Text, busy(s.Use))
		}
	}
	head("What happened")
	for _, ev := range d.timeline {
		say("%s  %s", at(ev.At), m.o.Words.Event(ev))
	}
	if len(d.timeline) == 0 {
		say("nothing that is still kept")
	}
	head("Log")
	switch refused, is := errors.AsType[*client.Error](d.LogErr); {
	case is && refused.Code == work.CodeNotFound, d.LogErr == nil && d.Log == "":
		say("it has said nothing yet")
	case d.LogErr != nil:
		say("%s", d.LogErr)
	}
	for line := range strings.Lines(d.Log) {
		say("%s", strings.ReplaceAll(strings.TrimRight(line, "\r\n"), "\t", "    "))
	}
	return out
}

// about is what a task was submitted with, in a line.
func about(t apitype.Task) string {
	out := []string{t.Request, t.Priority + " priority", "pool " + t.Pool}
	if t.Name != "" {
		out = append([]string{t.Name}, out...)
	}
	if len(t.Command) > 0 {
		out = append(out, strings.Join(t.Command, " "))
	}
	return strings.Join(out, ", ")
}

func busy(u *apitype.Use) string {
	if u == nil || u.Compute < 0 {
		return ""
	}
	return fmt.Sprintf(", %.0f%% busy", 100*u.Compute)
}

func gpuLines(g apitype.GPU, m *model) (out []string) {
	say := func(format string, args ...any) { out = append(out, clean(fmt.Sprintf(format, args...))) }
	bar, _ := m.o.Words.Bar(g)
	say("GPU %d: %s on %s, pool %s", g.GPU, g.Model, g.Host, g.Pool)
	say("  %s, %s %s", g.ID, g.Health, g.Why)
	if g.HealthBy != "" {
		say("  %s says so", g.HealthBy)
	}
	if g.Mend != "" {
		say("  to mend it once it is empty: %s", g.Mend)
	}
	if f := g.LastFault; f != nil {
		say("  %d faults of programs were reported, the last %s (%s) at %s", g.Faults, f.Code, f.What, at(f.At))
	}
	say("  %s %s, %d%% held", bar, g.Mode, g.Milli/10)
	for _, h := range g.Holders {
		who := "another tenant"
		if h.Task != 0 {
			who = fmt.Sprintf("task %d of %s (%s)", h.Task, h.Tenant, h.Name)
		}
		say("  %s is %s: %s%s", who, h.Phase, h.Slice.Text, busy(h.Slice.Use))
	}
	return out
}

// times of events, short.
func at(t time.Time) string { return t.Local().Format("15:04:05") }
