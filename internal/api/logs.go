package api

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/runner"
	"github.com/gpupool/gpupool/internal/work"
)

type logQuery struct {
	IDPath
	Member int  `query:"member" minimum:"0" doc:"Member of a gang"`
	Follow bool `query:"follow" doc:"Wait for the task to start, and go on until it has ended, also where it was moved to"`
	Tail   int  `query:"tail" minimum:"0" doc:"Only the last lines; 0 = all"`
}

// output is the log of one member, across the epochs of its task.
type output struct {
	s *server
	c caller
	logQuery
	epoch uint32 // of the newest log that was opened; 0 = none
}

// standing is what matters of a task to who reads its output.
type standing struct {
	epoch uint32
	ended bool // the task, for good
	over  bool // the member, at this epoch, while others still run
}

func (s *server) taskLogs(ctx context.Context, in *logQuery) (*huma.StreamResponse, error) {
	o := &output{s: s, c: who(ctx), logQuery: *in}
	st, err := o.stands()
	if err != nil {
		return nil, err
	}
	live, end := context.WithCancel(ctx)
	r, err := o.open(live, st)
	switch {
	case err != nil:
	case r == nil && st.ended:
		err = work.Errorf(work.CodeNotFound, "task %d never wrote anything: it ended before it ran", in.ID)
	case r == nil && !in.Follow:
		err = work.Errorf(work.CodeNotFound, "task %d has written nothing yet, as it has not started: follow it to wait", in.ID)
	}
	if err != nil {
		end()
		return nil, err
	}
	if r != nil {
		context.AfterFunc(live, func() { r.Close() }) // also when the client has left before the first byte
	}
	return streamTo("text/plain; charset=utf-8", func(w stream) error {
		defer end()
		if o.Follow {
			go o.watch(live, end)
		}
		err := o.copyTo(live, w, r)
		if live.Err() != nil && ctx.Err() == nil {
			err = nil // whoever reads may not any more
		}
		return err
	}), nil
}

// stands looks at the task.
func (o *output) stands() (st standing, err error) {
	id := work.TaskID(o.ID)
	o.s.host.Read(func(e *engine.Engine) {
		var t *engine.Task
		if t, err = find(e, o.c, id); err != nil {
			return
		}
		switch n := t.Spec.Request.Count(); {
		case o.s.cfg.Logs == nil:
			err = work.Errorf(work.CodeNotFound, "this server keeps no output of tasks")
		case t.Spec.External():
			err = work.Errorf(work.CodeNotFound, "task %d is a lease: what uses it runs elsewhere, and so is its output", id)
		case o.Member >= n:
			err = work.Errorf(work.CodeNotFound, "task %d has no member %d: it has %d, numbered from 0", id, o.Member, n)
		}
		st = standing{epoch: t.Epoch, ended: t.State.Terminal()}
		if l := t.Lease(); err == nil && l != nil && !l.Closing {
			st.over = l.Parts[o.Member].Phase == engine.PhaseEnded
		}
	})
	return st, err
}

// open opens the newest log that was not read yet, or returns nil while there is
// none. A task that was moved has several: older ones count only when it has ended
// or is not followed, as the newest may never have come to be.
func (o *output) open(ctx context.Context, st standing) (io.ReadCloser, error) {
	for epoch := st.epoch; epoch > o.epoch; epoch-- {
		id := runner.ID{Task: o.ID, Epoch: epoch, Member: o.Member}
		r, err := o.s.cfg.Logs.Logs(ctx, id, runner.LogOptions{Follow: o.Follow, Tail: o.Tail})
		switch {
		case err == nil:
			o.epoch, o.Tail = epoch, 0
			return r, nil
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		case o.Follow && !st.ended:
			return nil, nil
		}
	}
	return nil, nil
}

// watch calls end when whoever reads may not any more: a token may be revoked, or end, while
// its holder follows the output of a task that runs for days.
func (o *output) watch(ctx context.Context, end func()) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			if !o.s.valid(o.c) {
				end()
				return
			}
		}
	}
}

// copyTo writes the log, and when following those of later epochs, until the end.
func (o *output) copyTo(ctx context.Context, w io.Writer, r io.ReadCloser) error {
	for {
		if r != nil {
			_, err := io.Copy(w, r)
			r.Close()
			if err != nil || !o.Follow {
				return err
			}
		}
		r = nil
		err := o.s.await(ctx, work.TaskID(o.ID), func() (bool, error) {
			st, err := o.stands()
			if err != nil {
				return false, err
			}
			if r, err = o.open(ctx, st); r != nil || err != nil {
				return r != nil, err
			}
			return st.ended || st.over && st.epoch == o.epoch, nil
		})
		if err != nil || r == nil {
			return err
		}
	}
}
