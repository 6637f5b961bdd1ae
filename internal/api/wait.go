package api

import (
	"context"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/host"
	"github.com/gpupool/gpupool/internal/work"
)

// errStopping says that the host has ended.
var errStopping = work.Errorf(work.CodeUnavailable, "the server is stopping: try again when it is back")

// await calls ready now and whenever something has happened to a task, until ready
// says true or fails. It fails when ctx ends or the host does.
func (s *server) await(ctx context.Context, id work.TaskID, ready func() (bool, error)) error {
	for {
		_, next, stop := s.host.Subscribe(s.host.LastEvent())
		again, err := s.awaitOn(ctx, next, id, ready)
		stop()
		if !again {
			return err
		}
	}
}

// awaitOn waits on one subscription; again says that it ended too early, because
// more happened at once than it holds.
func (s *server) awaitOn(ctx context.Context, next <-chan host.Event, id work.TaskID, ready func() (bool, error)) (again bool, err error) {
	// What happened before this subscription is in the state that ready looks at.
	if done, err := ready(); done || err != nil {
		return false, err
	}
	for heard := 0; ; heard++ {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case ev, ok := <-next:
			if !ok {
				if heard == 0 { // one that was let go had a full buffer
					return false, errStopping
				}
				return true, nil
			}
			if ev.Task != id {
				continue
			}
			if done, err := ready(); done || err != nil {
				return false, err
			}
		}
	}
}

// wait returns when done holds for a task that the caller may see, or the time of q
// is over, or the host is stopping: the answer is then what there is.
func (s *server) wait(ctx context.Context, id work.TaskID, q WaitQuery, done func(*engine.Task) bool) error {
	d, err := q.duration()
	if err != nil || d == 0 {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var refused error // the end of the wait is none
	_ = s.await(limited, id, func() (ok bool, _ error) {
		refused = s.look(ctx, id, func(_ view, t *engine.Task) { ok = done(t) })
		return ok, refused
	})
	return refused
}
