package api

import (
	"context"
	"errors"
	"sync"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/work"
)

// actionRoutes are what else can be asked of a task, each by its tenant or an admin.
func (s *server) actionRoutes(tag string) {
	const one = "/v1/tasks/{id}"
	register(s, op{id: "resize-task", method: post, path: one + "/resize", tag: tag, says: "Give a task another size, in place where that can be, else by the restart that it agreed to"}, s.resizeTask)
	for _, a := range []struct {
		name, says string
		event      func(id work.TaskID, by string) engine.Event
	}{
		{"hold", "Keep a waiting task back until it is released", func(id work.TaskID, by string) engine.Event { return engine.Hold{Task: id, On: true, By: by} }},
		{"release", "Let a task go on that is held", func(id work.TaskID, by string) engine.Event { return engine.Hold{Task: id, By: by} }},
		{"checkpoint", "Say that a running task has saved its work: stopped now, it would lose nothing",
			func(id work.TaskID, _ string) engine.Event { return engine.Checkpoint{Task: id} }},
		{"park", "Suspend a running task and lend its GPUs, until it is woken", func(id work.TaskID, by string) engine.Event { return engine.Park{Task: id, By: by} }},
		{"wake", "Let a parked task go on, as soon as its host has GPUs for it; of one that runs: say that it is in use",
			func(id work.TaskID, by string) engine.Event { return engine.Wake{Task: id, By: by} }},
		{"preempt", "Send a running task back to the queue", func(id work.TaskID, by string) engine.Event { return engine.Preempt{Task: id, By: by} }},
	} {
		register(s, op{id: a.name + "-task", method: post, path: one + "/" + a.name, says: a.says, tag: tag},
			func(ctx context.Context, in *IDPath) (*answer[apitype.Task], error) {
				return s.act(ctx, work.TaskID(in.ID), func(*engine.Task) engine.Event { return a.event(work.TaskID(in.ID), who(ctx).String()) })
			})
	}
}

// act does something to a task that the caller may see, and shows it as it is then.
func (s *server) act(ctx context.Context, id work.TaskID, event func(*engine.Task) engine.Event) (*answer[apitype.Task], error) {
	var ev engine.Event
	if err := s.look(ctx, id, func(_ view, t *engine.Task) { ev = event(t) }); err != nil {
		return nil, err
	}
	if _, err := s.host.Do(ctx, ev); err != nil {
		return nil, err
	}
	return answerOf(s.showTask(ctx, id))
}

func (s *server) cancelTask(ctx context.Context, in *struct {
	IDPath
	Array bool `query:"array" doc:"All unfinished tasks of its array"`
}) (*answer[apitype.Task], error) {
	id, by := work.TaskID(in.ID), who(ctx).String()
	if !in.Array {
		return s.act(ctx, id, func(*engine.Task) engine.Event { return engine.Cancel{Task: id, By: by} })
	}
	if err := s.cancelArray(ctx, id, by); err != nil {
		return nil, err
	}
	return answerOf(s.showTask(ctx, id))
}

// cancelArray ends the unfinished tasks of an array: first those that wait, so that
// none of them starts where another was ended.
func (s *server) cancelArray(ctx context.Context, id work.TaskID, by string) error {
	var waiting, others []work.TaskID
	var refused error
	err := s.look(ctx, id, func(v view, t *engine.Task) {
		if t.Array == 0 {
			refused = work.Errorf(work.CodeInvalid, "task %d is of no array: cancel it by itself", id)
			return
		}
		for i := range t.Spec.Array.Size() {
			switch x := v.Task(t.Array + work.TaskID(i)); {
			case x == nil || x.State.Terminal():
			case x.State == work.Queued:
				waiting = append(waiting, x.ID)
			default:
				others = append(others, x.ID)
			}
		}
		if len(waiting)+len(others) == 0 {
			refused = work.Errorf(work.CodeConflict, "all tasks of array %d have ended already", t.Array)
		}
	})
	for _, ids := range [][]work.TaskID{waiting, others} {
		if err == nil && refused == nil {
			err = s.cancelAll(ctx, ids, by)
		}
	}
	if err == nil {
		err = refused
	}
	return err
}

// cancelers is how many tasks are cancelled at once, so that they share commits.
const cancelers = 64

// cancelAll cancels tasks; one that has ended meanwhile, as it should, is no fault.
func (s *server) cancelAll(ctx context.Context, ids []work.TaskID, by string) error {
	next := make(chan work.TaskID, len(ids))
	for _, id := range ids {
		next <- id
	}
	close(next)
	errs := make(chan error, cancelers) // the last of each
	var all sync.WaitGroup
	for range min(cancelers, len(ids)) {
		all.Go(func() {
			for id := range next {
				_, err := s.host.Do(ctx, engine.Cancel{Task: id, By: by})
				if e, ours := errors.AsType[*work.Error](err); err != nil && !(ours && (e.Code == work.CodeConflict || e.Code == work.CodeNotFound)) {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(errs)
	return <-errs
}
