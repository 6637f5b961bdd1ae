package top

import (
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/gpupool/gpupool/internal/api/apitype"
)

// key takes a key.
func (m *model) key(k tea.KeyPressMsg) tea.Cmd {
	name := k.String()
	switch {
	case name == "ctrl+c":
		return tea.Quit
	case m.typing:
		return m.typed(k)
	case m.ask != nil:
		return m.answered(name)
	case m.help: // any key closes it
		m.help = false
		return nil
	}
	switch name {
	case "q":
		if m.detail != nil {
			m.close()
			return nil
		}
		return tea.Quit
	case "?":
		m.help = true
		return nil
	case "c", "p", "w", "h":
		return m.act(name)
	case "r":
		return m.hurry()
	}
	if m.detail != nil {
		return m.detailKey(name)
	}
	if m.move(name) {
		return nil
	}
	return m.viewKey(name)
}

// move goes through the list.
func (m *model) move(name string) bool {
	c, page := &m.lists[m.tab], m.visible()
	to := map[string]int{"j": c.at + 1, "down": c.at + 1, "k": c.at - 1, "up": c.at - 1, "g": 0, "home": 0, "G": m.rows(), "end": m.rows(),
		"pgdown": c.at + page, "space": c.at + page, "ctrl+f": c.at + page, "pgup": c.at - page, "ctrl+b": c.at - page}
	at, is := to[name]
	if is {
		c.to(at, m.rows(), page)
	}
	return is
}

// viewKey changes what is shown.
func (m *model) viewKey(name string) tea.Cmd {
	switch name {
	case "1", "2", "3", "4", "5":
		return m.show(tab(name[0] - '1'))
	case "tab", "right", "l":
		return m.show((m.tab + 1) % tabs)
	case "shift+tab", "left":
		return m.show((m.tab + tabs - 1) % tabs)
	case "/":
		m.typing = true
		m.input.SetValue(m.filter.text)
		return m.input.Focus()
	case "enter":
		return m.enter()
	case "s":
		m.sort.by = (m.sort.by + 1) % len(orders())
	case "S":
		m.sort.backward = !m.sort.backward
	case "f":
		m.filter.state = (m.filter.state + 1) % len(states())
		if m.filter.wantsEnded() {
			m.refilter()
			return m.hurry()
		}
	case "t":
		m.filter.tenant = next(m.filter.tenant, append([]string{""}, tenantNames(m.snap)...))
	case "o":
		m.filter.pool = next(m.filter.pool, append([]string{""}, poolNames(m.snap)...))
	case "esc":
		m.filter = filter{}
	default:
		return nil
	}
	m.refilter()
	return nil
}

func tenantNames(s Snapshot) (out []string) {
	for _, t := range s.Tenants {
		out = append(out, t.Name)
	}
	return out
}

func poolNames(s Snapshot) (out []string) {
	for _, p := range s.Pools {
		out = append(out, p.Name)
	}
	return out
}

func (m *model) show(t tab) tea.Cmd {
	m.tab = t
	if t == gpusTab {
		return m.hurry() // they are fetched only for this view
	}
	return nil
}

// hurry looks now.
func (m *model) hurry() tea.Cmd {
	if m.looking {
		m.rushed = true
		return nil
	}
	return m.look()
}

// typed takes a key of the search.
func (m *model) typed(k tea.KeyPressMsg) tea.Cmd {
	switch k.String() {
	case "enter":
		m.typing = false
		m.input.Blur()
		return nil
	case "esc":
		m.typing = false
		m.input.Blur()
		m.input.SetValue("")
	}
	var cmd tea.Cmd
	if m.typing {
		m.input, cmd = m.input.Update(k)
	}
	m.filter.text = strings.ToLower(m.input.Value())
	m.refilter()
	return cmd
}

// enter opens what is under the cursor.
func (m *model) enter() tea.Cmd {
	at := m.lists[m.tab].at
	if at >= m.rows() {
		return nil
	}
	switch m.tab {
	case poolsTab:
		m.filter = filter{pool: m.snap.Pools[at].Name}
		m.tab = tasksTab
	case tenantsTab:
		m.filter = filter{tenant: m.snap.Tenants[at].Name}
		m.tab = tasksTab
	case tasksTab:
		return m.open(m.snap.Tasks[m.tasks[at]].ID)
	case eventsTab:
		if id := m.events[len(m.events)-1-at].Task; id != 0 {
			return m.open(id)
		}
	case gpusTab:
		m.openGPU(m.snap.GPUs[m.gpus[at]])
	}
	m.refilter()
	return nil
}

// act asks whether something shall be done with the task under the cursor.
func (m *model) act(name string) tea.Cmd {
	t, ok := m.selected()
	if !ok {
		return nil
	}
	what := map[string]Action{"c": Cancel, "p": Park, "w": Wake, "h": Hold}[name]
	if what == Hold && t.Held {
		what = Release
	}
	if why := pointless(what, t); why != "" {
		m.say(why)
		return nil
	}
	m.ask = &ask{what, t}
	return nil
}

// pointless says why an action would be refused, as far as that can be seen from here.
func pointless(what Action, t apitype.Task) string {
	switch {
	case t.Terminal():
		return "it has ended already: it is " + t.State
	case what == Park && t.State != "running":
		return "only a running task can be parked: this one is " + t.State
	case what == Hold && t.State != "queued":
		return "only a waiting task can be held: this one is " + t.State
	}
	return ""
}

func (m *model) answered(name string) tea.Cmd {
	a := *m.ask
	m.ask = nil
	if name != "y" && name != "Y" {
		m.say("nothing was done")
		return nil
	}
	return func() tea.Msg {
		t, err := m.o.Source.Act(m.ctx, a.what, a.task.ID)
		return actMsg{a.what, t, err}
	}
}
