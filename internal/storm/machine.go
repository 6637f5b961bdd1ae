package storm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/driver/fake"
	"github.com/gpupool/gpupool/internal/host"
	"github.com/gpupool/gpupool/internal/runner"
	"github.com/gpupool/gpupool/internal/work"
)

// machines run members that are nothing but a state: a runner whose processes begin and
// end when the storm says so. They outlive servers, and remember for ever what they ran.
type machines struct {
	driver  *fake.Driver
	members map[runner.ID]*member
	order   []*member // as they were started
	starts  int       // of processes
	doubled int       // of those, at an epoch that had run before
	fail    bool      // the next call that can fail does
	bug     *planted
}

// member is a process and what is known of it.
type member struct {
	id        runner.ID
	host      string
	holds     []work.Owner // whose slices it was ever on
	exit      *runner.Exit // nil: it runs
	refused   bool         // it was never started, and never will be
	suspended bool
	stopping  bool
	forgotten bool
}

func (m *member) owner() work.Owner { return host.OwnerOf(m.id) }

func (m *member) runs() bool { return m.exit == nil && !m.refused }

func newMachines(d *fake.Driver, bug *planted) *machines {
	return &machines{driver: d, members: map[runner.ID]*member{}, bug: bug}
}

func (r *machines) fails() error {
	if r.fail {
		r.fail = false
		return errors.New("told to fail")
	}
	return nil
}

func (r *machines) known(id runner.ID) *member {
	if m := r.members[id]; m != nil && !m.forgotten {
		return m
	}
	return nil
}

// Start implements runner.Runner.
func (r *machines) Start(_ context.Context, s runner.Spec) error {
	m := r.known(s.ID)
	switch {
	case m != nil && m.refused:
		return errors.New("it was refused before")
	case m != nil && !r.bug.startsAgain:
		return nil
	}
	if again := r.members[s.ID]; again != nil {
		r.doubled++
	}
	m = &member{id: s.ID, host: s.Host}
	r.members[s.ID] = m
	r.order = append(r.order, m)
	if err := r.fails(); err != nil {
		m.refused = true
		return err
	}
	r.starts++
	r.attach(m, m.owner())
	return nil
}

// attach lets a member use slices: nobody can free them then.
func (r *machines) attach(m *member, o work.Owner) {
	m.holds = append(m.holds, o)
	r.driver.Stick(o, 1)
}

func (r *machines) detach(m *member) {
	for _, o := range m.holds {
		r.driver.Stick(o, 0)
	}
}

// end lets a member end.
func (r *machines) end(m *member, x runner.Exit) {
	m.exit = &x
	m.suspended = false
	r.detach(m)
}

// Stop implements runner.Runner; the end comes later.
func (r *machines) Stop(_ context.Context, id runner.ID, _ time.Duration, _ string) error {
	if m := r.known(id); m != nil && m.runs() {
		m.stopping = true
	}
	return nil
}

// Wait implements runner.Runner for a member that has ended.
func (r *machines) Wait(_ context.Context, id runner.ID) (runner.Status, error) {
	m := r.known(id)
	switch {
	case m == nil:
		return runner.Status{ID: id, State: runner.Exited, Exit: &runner.Exit{Lost: "not known"}}, nil
	case m.refused:
		return runner.Status{ID: id, State: runner.Exited, Exit: &runner.Exit{Lost: "never started"}}, nil
	case m.exit == nil:
		return runner.Status{}, fmt.Errorf("%s runs: nobody waits in a storm", id)
	}
	return runner.Status{ID: id, State: runner.Exited, Exit: m.exit}, nil
}

// List implements runner.Runner.
func (r *machines) List(context.Context) (out []runner.Status, _ error) {
	for _, m := range r.order {
		if !m.forgotten && !m.refused {
			out = append(out, runner.Status{ID: m.id, State: runner.Running, Exit: m.exit})
		}
	}
	return out, nil
}

// Forget implements runner.Runner.
func (r *machines) Forget(_ context.Context, id runner.ID) error {
	m := r.known(id)
	switch {
	case m == nil:
	case m.runs():
		return fmt.Errorf("%s runs", id)
	default:
		m.forgotten = true
	}
	return nil
}

// Suspend implements runner.Suspender.
func (r *machines) Suspend(_ context.Context, id runner.ID) error {
	m := r.known(id)
	if m == nil || !m.runs() {
		return fmt.Errorf("%s does not run", id)
	}
	if m.suspended {
		return nil
	}
	if err := r.fails(); err != nil {
		return err
	}
	m.suspended = true
	r.detach(m)
	return nil
}

// Resume implements runner.Suspender.
func (r *machines) Resume(_ context.Context, id runner.ID, _ []string) error {
	m := r.known(id)
	if m == nil || !m.runs() {
		return fmt.Errorf("%s does not run", id)
	}
	if !m.suspended {
		return nil
	}
	if err := r.fails(); err != nil {
		return err
	}
	m.suspended = false
	return nil
}

// those returns the members for which f says yes, as they were started.
func (r *machines) those(f func(*member) bool) (out []*member) {
	for _, m := range r.order {
		if !m.forgotten && f(m) {
			out = append(out, m)
		}
	}
	return out
}

// sorted lists owners in their order.
func sorted(os []work.Owner) []work.Owner {
	slices.SortFunc(os, func(a, b work.Owner) int {
		return cmp.Or(cmp.Compare(a.Task, b.Task), cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Member, b.Member))
	})
	return os
}
