package top

import (
	"context"

	tea "charm.land/bubbletea/v2"

	"github.com/gpupool/gpupool/internal/api/apitype"
)

// maxEvents of one message: more would make the screen jump.
const maxEvents = 256

// stream follows events beside the program.
type stream struct {
	ch   chan apitype.Event
	stop context.CancelFunc
}

// eventMsg is what a stream told.
type eventMsg struct {
	of     *stream
	events []apitype.Event
	ended  bool
}

// follow begins a stream.
func (m *model) follow(task, after uint64) *stream {
	ctx, cancel := context.WithCancel(m.ctx)
	s := &stream{ch: make(chan apitype.Event, maxEvents), stop: cancel}
	src := m.o.Source
	go func() {
		defer close(s.ch)
		defer cancel()
		for ev, err := range src.Events(ctx, task, after) {
			if err != nil {
				return // the next look says what is wrong
			}
			select {
			case s.ch <- ev:
			case <-ctx.Done():
				return
			}
		}
	}()
	return s
}

// next waits for what comes, and takes all that is there.
func (s *stream) next() tea.Msg {
	msg := eventMsg{of: s}
	ev, ok := <-s.ch
	for ok {
		msg.events = append(msg.events, ev)
		if len(msg.events) == maxEvents {
			return msg
		}
		select {
		case ev, ok = <-s.ch:
		default:
			return msg
		}
	}
	msg.ended = true
	return msg
}
