package top

import (
	"context"
	"errors"
	"fmt"
	"time"

	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/gpupool/gpupool/internal/api/apitype"
)

const (
	lookEvery  = 5 * time.Second // when nothing has happened: use is no event
	lookAtMost = time.Second     // between two looks, however much happens
	restFactor = 10              // times what a look took until the next
	retryMost  = 30 * time.Second
	eventsKept = 1000
	noticeFor  = 15 * time.Second
)

// tab is one of the views.
type tab int

const (
	poolsTab tab = iota
	gpusTab
	tasksTab
	tenantsTab
	eventsTab
	tabs
)

func (t tab) String() string { return [tabs]string{"Pools", "GPUs", "Tasks", "Tenants", "Events"}[t] }

// Messages beside those of keys and of the window.
type (
	tickMsg struct{}
	snapMsg struct {
		Snapshot
		err error
	}
	detailMsg struct {
		id uint64
		Detail
		err error
	}
	actMsg struct {
		what Action
		task apitype.Task
		err  error
	}
)

// link is how it stands with the server.
type link struct {
	lost  error // nil: it answers
	tries int
	again time.Time // when it is asked again
}

func (l *link) fail(err error, now time.Time) {
	l.lost = err
	l.again = now.Add(min(time.Second<<min(l.tries, 10), retryMost))
	l.tries++
}

// ask is a question that must be answered before something is done.
type ask struct {
	what Action
	task apitype.Task
}

type model struct {
	ctx           context.Context //nolint:containedctx // of the whole program: bubbletea hands none to its commands
	o             Options
	s             styles
	width, height int

	tab     tab
	lists   [tabs]cursor
	snap    Snapshot
	looked  time.Time // when the snapshot was fetched; zero = not yet
	looking bool
	rushed  bool // something has happened, or is wanted, that the snapshot does not show
	link    link

	stream *stream // nil: not connected
	events []apitype.Event
	after  uint64 // the newest event's number

	filter  filter
	sort    sorting
	input   textinput.Model
	typing  bool
	tasks   []int    // of the snapshot, that pass the filter, in order
	shownID []uint64 // their numbers: by them the cursor finds its task in the next snapshot
	gpus    []int

	ask      *ask
	notice   string
	noticeAt time.Time
	detail   *detail
	help     bool
}

func newModel(ctx context.Context, o Options) *model {
	if o.Now == nil {
		o.Now = time.Now
	}
	m := &model{ctx: ctx, o: o, s: stylesFor(o), width: 80, height: 24, input: textinput.New(), tab: tasksTab}
	m.input.Prompt = "/"
	m.input.CharLimit = 128
	m.input.SetStyles(textinput.Styles{}) // a cursor that stands still, and no colours of its own
	return m
}

func stylesFor(o Options) styles {
	plain := lipgloss.NewStyle()
	if !o.Colour {
		return styles{plain, plain, plain, plain, plain, plain, plain}
	}
	return styles{title: plain.Bold(true), head: plain.Bold(true), cursor: plain.Reverse(true),
		good: plain.Foreground(lipgloss.Green), warn: plain.Foreground(lipgloss.Yellow), bad: plain.Foreground(lipgloss.Red), dim: plain.Faint(true)}
}

func tick() tea.Cmd { return tea.Tick(time.Second, func(time.Time) tea.Msg { return tickMsg{} }) }

// Init begins to look.
func (m *model) Init() tea.Cmd { return tea.Batch(m.look(), tick()) }

// Update takes what happened.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var cmd tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		cmd = m.key(msg)
	case tickMsg:
		cmd = tick()
	case snapMsg:
		cmd = m.seen(msg)
	case eventMsg:
		cmd = m.happened(msg)
	case detailMsg:
		if m.detail != nil && m.detail.id == msg.id {
			m.detail.Detail, m.detail.err, m.detail.known = msg.Detail, msg.err, true
		}
	case actMsg:
		m.rushed = true
		m.say(did(msg))
	}
	m.settle()
	return m, tea.Batch(cmd, m.lookIfDue())
}

// did says what became of an action.
func did(msg actMsg) string {
	if msg.err != nil {
		return msg.err.Error()
	}
	t := msg.task
	switch {
	case msg.what == Cancel && !t.Terminal():
		return fmt.Sprintf("task %d is being ended", t.ID)
	case msg.what == Park && t.State != "parked":
		return fmt.Sprintf("task %d is being parked", t.ID)
	case msg.what == Wake && t.State == "parked":
		return fmt.Sprintf("task %d is woken, and waits for GPUs", t.ID)
	case msg.what == Hold:
		return fmt.Sprintf("task %d is held: h lets it go on", t.ID)
	}
	return fmt.Sprintf("task %d is %s", t.ID, t.State)
}

func (m *model) say(s string) { m.notice, m.noticeAt = s, m.o.Now() }

// look fetches what the view needs.
func (m *model) look() tea.Cmd {
	m.looking, m.rushed = true, false
	want := Want{GPUs: m.tab == gpusTab, Ended: m.filter.wantsEnded()}
	return func() tea.Msg {
		s, err := m.o.Source.Look(m.ctx, want)
		return snapMsg{s, err}
	}
}

// lookIfDue does so if it is time.
func (m *model) lookIfDue() tea.Cmd {
	now := m.o.Now()
	if m.looking {
		return nil
	}
	if m.link.lost != nil {
		if now.Before(m.link.again) {
			return nil
		}
		return m.look()
	}
	rest := max(lookAtMost, restFactor*m.snap.took)
	if !m.rushed {
		rest = max(rest, lookEvery)
	}
	if now.Sub(m.looked) < rest {
		return nil
	}
	cmds := []tea.Cmd{m.look()}
	if m.detail != nil {
		cmds = append(cmds, m.fetchDetail())
	}
	return tea.Batch(cmds...)
}

// seen takes a snapshot, or hears that there is none.
func (m *model) seen(msg snapMsg) tea.Cmd {
	m.looking = false
	if msg.err != nil {
		if !errors.Is(msg.err, context.Canceled) {
			m.link.fail(msg.err, m.o.Now())
		}
		return nil
	}
	if m.link.lost != nil && !m.looked.IsZero() {
		m.say("connected again")
	}
	m.link = link{}
	old := m.snap.GPUs
	m.snap, m.looked = msg.Snapshot, m.o.Now()
	if m.snap.GPUs == nil {
		m.snap.GPUs = old // better than nothing until they are looked at again
	}
	m.refilter()
	if m.stream == nil {
		m.stream = m.follow(0, m.after)
		return m.stream.next
	}
	return nil
}

// happened takes events, of the pool or of the task whose detail is shown.
func (m *model) happened(msg eventMsg) tea.Cmd {
	if d := m.detail; d != nil && msg.of == d.stream {
		d.add(msg.events)
		if msg.ended {
			return nil // what it told stays; the rest is fetched
		}
		return msg.of.next
	}
	if msg.of != m.stream {
		return nil // of a detail that is closed
	}
	if n := len(msg.events); n > 0 {
		m.rushed = true
		m.events = append(m.events, msg.events...)
		m.events = m.events[max(len(m.events)-eventsKept, 0):]
		m.after = msg.events[n-1].Seq
		if c := &m.lists[eventsTab]; c.at > 0 { // the newest is on top: what is looked at stays
			c.at, c.top = c.at+n, c.top+n
		}
	}
	if msg.ended { // the next look tells whether the server is there
		m.stream, m.rushed = nil, true
		return nil
	}
	return m.stream.next
}

// settle keeps what is shown within what there is.
func (m *model) settle() {
	if m.notice != "" && m.o.Now().Sub(m.noticeAt) > noticeFor {
		m.notice = ""
	}
	c := &m.lists[m.tab]
	c.to(c.at, m.rows(), m.visible())
	if m.detail != nil {
		m.detail.layout(m)
	}
}

// rows is how many there are in the list of the view.
func (m *model) rows() int {
	switch m.tab {
	case poolsTab:
		return len(m.snap.Pools)
	case gpusTab:
		return len(m.gpus)
	case tasksTab:
		return len(m.tasks)
	case tenantsTab:
		return len(m.snap.Tenants)
	}
	return len(m.events)
}

// visible is how many rows fit on the screen: all lines but header, tabs, head and foot.
func (m *model) visible() int { return max(m.height-frameLines-1, 1) }

// selected is the task under the cursor, or of the detail.
func (m *model) selected() (apitype.Task, bool) {
	if m.detail != nil {
		return m.detail.Explanation.Task, m.detail.Explanation.Task.ID != 0
	}
	c := m.lists[tasksTab]
	if m.tab != tasksTab || c.at >= len(m.tasks) {
		return apitype.Task{}, false
	}
	return m.snap.Tasks[m.tasks[c.at]], true
}
