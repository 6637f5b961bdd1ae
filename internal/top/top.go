// Package top is the live view of a pool in a terminal: pools, GPUs, tasks, tenants and
// events, and what may be done with a task. It is a client of the API and knows no more
// than its token may see.
//
// What it shows is fetched again after something has happened, but never more often than
// ten times what a fetch takes, and GPUs only while they are looked at: so a large pool
// is asked less often. Drawing costs what is on the screen, whatever the size of the pool.
package top

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/gpupool/gpupool/internal/api/apitype"
)

// Want says which of the long lists are to be fetched.
type Want struct {
	GPUs  bool
	Ended bool // the newest of the ended tasks too
}

// Snapshot is what a pool looks like.
type Snapshot struct {
	Pools   []apitype.Pool   `json:"pools"`
	GPUs    []apitype.GPU    `json:"gpus"` // nil when they were not asked for
	Tasks   []apitype.Task   `json:"tasks"`
	Tenants []apitype.Tenant `json:"tenants"`

	took time.Duration
}

// Detail is what there is to know of one task.
type Detail struct {
	Explanation apitype.Explanation
	Log         string // its last lines
	LogErr      error  // why there is no log
}

// Source is where everything comes from.
type Source interface {
	// Look fetches what is wanted.
	Look(ctx context.Context, w Want) (Snapshot, error)
	// Detail fetches what there is to know of a task.
	Detail(ctx context.Context, id uint64) (Detail, error)
	// Events follows what happens after a number, 0 for all that is kept; of one task, if it
	// is not 0.
	Events(ctx context.Context, task, after uint64) iter.Seq2[apitype.Event, error]
	// Act does one thing to a task and returns the task as it is then.
	Act(ctx context.Context, what Action, id uint64) (apitype.Task, error)
}

// Action is something that may be done to a task.
type Action string

// The actions, as the command line names them.
const (
	Cancel  Action = "cancel"
	Park    Action = "park"
	Wake    Action = "wake"
	Hold    Action = "hold"
	Release Action = "release"
)

// Words are how the command line says things, so that both say the same.
type Words struct {
	Event   func(apitype.Event) string
	Explain func(apitype.Explanation, time.Time) []string
	Bar     func(apitype.GPU) (bar, holders string)
	Ref     func(apitype.Task) string // 17, or 12[3] in an array
	Where   func(apitype.Task) string
	Start   func(apitype.Task, time.Time) string
	Span    func(time.Duration) string
	Count   func(float64) string // of GPUs
}

// Options are what a view is made of.
type Options struct {
	Source Source
	Words  Words
	Server string       // its address, to be shown
	Self   apitype.Self // whom the token belongs to
	Colour bool
	Out    io.Writer
	In     io.Reader
	Now    func() time.Time // nil: time.Now
}

// Run shows the pool until the user quits or ctx ends.
func Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends what is still being fetched
	p := tea.NewProgram(newModel(ctx, o), tea.WithContext(ctx), tea.WithInput(o.In), tea.WithOutput(o.Out))
	_, err := p.Run()
	if errors.Is(err, tea.ErrInterrupted) || errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return nil // it was told to end, and nothing is lost by it
	}
	return err
}
