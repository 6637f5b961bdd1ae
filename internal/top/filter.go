package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpupool/gpupool/internal/api/apitype"
)

// filter says which tasks, and GPUs, are shown.
type filter struct {
	text   string // lower case
	tenant string
	pool   string
	state  int // of states
}

// states are what can be asked for, beside each single one.
func states() []string {
	return []string{"active", "queued", "running", "parked", "ended", "all"}
}

func (f filter) stateName() string { return states()[f.state] }

// wantsEnded reports whether ended tasks are needed.
func (f filter) wantsEnded() bool { return f.stateName() == "ended" || f.stateName() == "all" }

func (f filter) passes(t apitype.Task) bool {
	switch s := f.stateName(); {
	case s == "all":
	case s == "active" && t.Terminal(), s == "ended" && !t.Terminal(), s != "active" && s != "ended" && t.State != s:
		return false
	}
	if f.tenant != "" && t.Tenant != f.tenant || f.pool != "" && t.Pool != f.pool {
		return false
	}
	return f.text == "" || has(f.text, fmt.Sprint(t.ID), t.Name, t.Tenant, t.Pool, t.State, t.Request, strings.Join(t.Command, " "))
}

func (f filter) passesGPU(g apitype.GPU) bool {
	if f.pool != "" && g.Pool != f.pool {
		return false
	}
	of := func(h apitype.Holding) bool { return f.tenant == "" || h.Tenant == f.tenant }
	if f.tenant != "" && !slices.ContainsFunc(g.Holders, of) {
		return false
	}
	if f.text == "" || has(f.text, fmt.Sprint(g.GPU), g.Host, g.Model, g.Pool, g.Health, g.Mode) {
		return true
	}
	return slices.ContainsFunc(g.Holders, func(h apitype.Holding) bool { return has(f.text, h.Tenant, h.Name, fmt.Sprint(h.Task)) })
}

func has(text string, in ...string) bool {
	return slices.ContainsFunc(in, func(s string) bool { return strings.Contains(strings.ToLower(s), text) })
}

// words says what is shown, if not all of it.
func (f filter) words() string {
	var out []string
	if f.state > 0 {
		out = append(out, "state "+f.stateName())
	}
	if f.tenant != "" {
		out = append(out, "tenant "+f.tenant)
	}
	if f.pool != "" {
		out = append(out, "pool "+f.pool)
	}
	if f.text != "" {
		out = append(out, fmt.Sprintf("%q", f.text))
	}
	return strings.Join(out, ", ")
}

// sorting is in which order tasks stand.
type sorting struct {
	by       int // of orders
	backward bool
}

type order struct {
	name    string
	compare func(a, b apitype.Task) int
}

func orders() []order {
	return []order{
		{"task", func(a, b apitype.Task) int { return 0 }},
		{"state", func(a, b apitype.Task) int { return cmp.Compare(a.State, b.State) }},
		{"tenant", func(a, b apitype.Task) int { return cmp.Compare(a.Tenant, b.Tenant) }},
		{"name", func(a, b apitype.Task) int { return cmp.Compare(a.Name, b.Name) }},
		{"start", func(a, b apitype.Task) int { return cmp.Compare(begins(a), begins(b)) }},
	}
}

// begins is when a task began or is expected to; what is not known comes last.
func begins(t apitype.Task) int64 {
	switch {
	case t.Started != nil:
		return t.Started.UnixNano()
	case t.ExpectedStart != nil:
		return t.ExpectedStart.UnixNano()
	}
	return 1<<63 - 1
}

func (s sorting) words() string {
	if s.backward {
		return orders()[s.by].name + ", backward"
	}
	return orders()[s.by].name
}

// refilter works out what is shown and in which order; the cursor stays on its task.
func (m *model) refilter() {
	was, had := uint64(0), false
	if c := m.lists[tasksTab]; c.at < len(m.tasks) && m.shownID != nil {
		was, had = m.shownID[c.at], true
	}
	m.tasks, m.gpus = m.tasks[:0], m.gpus[:0]
	for i, t := range m.snap.Tasks {
		if m.filter.passes(t) {
			m.tasks = append(m.tasks, i)
		}
	}
	compare := orders()[m.sort.by].compare
	slices.SortFunc(m.tasks, func(i, j int) int {
		a, b := m.snap.Tasks[i], m.snap.Tasks[j]
		c := cmp.Or(compare(a, b), cmp.Compare(a.ID, b.ID))
		if m.sort.backward {
			return -c
		}
		return c
	})
	m.shownID = m.shownID[:0]
	for _, i := range m.tasks {
		m.shownID = append(m.shownID, m.snap.Tasks[i].ID)
	}
	if at := slices.Index(m.shownID, was); had && at >= 0 {
		c := &m.lists[tasksTab]
		c.top += at - c.at // it stays on its line of the screen
		c.at = at
	}
	for i, g := range m.snap.GPUs {
		if m.filter.passesGPU(g) {
			m.gpus = append(m.gpus, i)
		}
	}
}

// next is the name after one in a list that begins with "" for all.
func next(name string, names []string) string {
	i := slices.Index(names, name)
	if i+1 < len(names) {
		return names[i+1]
	}
	return ""
}
