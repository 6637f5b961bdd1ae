package top

import (
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/work"
)

const (
	endedShown = 200     // of the ended tasks, the newest
	logLines   = 200     // of the end of a log
	logBytes   = 1 << 20 // of those lines, as a line may be of any length
)

// server is a Source: the API.
type server struct{ api *client.Client }

// FromServer shows what a server says.
func FromServer(api *client.Client) Source { return server{api} }

// Look is the one of Source.
func (s server) Look(ctx context.Context, w Want) (out Snapshot, err error) {
	begun := time.Now()
	if out.Pools, err = s.api.Pools(ctx); err != nil {
		return out, err
	}
	if out.Tenants, err = s.api.Tenants(ctx); err != nil {
		return out, err
	}
	if out.Tasks, err = upTo(s.api.Tasks(ctx, client.TaskQuery{States: []string{"active"}}), 0); err != nil {
		return out, err
	}
	if w.Ended {
		ended, err := upTo(s.api.Tasks(ctx, client.TaskQuery{States: terminal(), Newest: true}), endedShown)
		if err != nil {
			return out, err
		}
		out.Tasks = append(out.Tasks, ended...)
	}
	if w.GPUs {
		out.GPUs, err = upTo(s.api.GPUs(ctx, client.GPUQuery{}), 0)
	}
	out.took = time.Since(begun)
	return out, err
}

func terminal() (out []string) {
	for _, s := range work.States() {
		if s.Terminal() {
			out = append(out, string(s))
		}
	}
	return out
}

// upTo walks a list to its end, or to its n-th item unless n is 0. It is never nil.
func upTo[T any](seq iter.Seq2[T, error], n int) ([]T, error) {
	out := []T{}
	for x, err := range seq {
		if err != nil {
			return nil, err
		}
		if out = append(out, x); n > 0 && len(out) == n {
			break
		}
	}
	return out, nil
}

// Detail is the one of Source.
func (s server) Detail(ctx context.Context, id uint64) (d Detail, err error) {
	if d.Explanation, err = s.api.Explain(ctx, id); err != nil {
		return d, err
	}
	if len(d.Explanation.Task.Command) == 0 {
		d.LogErr = fmt.Errorf("a lease has no log: gpupool does not run what uses it")
		return d, nil
	}
	r, err := s.api.Logs(ctx, id, client.LogQuery{Tail: logLines})
	if err != nil {
		d.LogErr = err
		return d, nil
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, logBytes))
	d.Log, d.LogErr = string(b), err
	return d, nil
}

// Events is the one of Source. At first it tells what is kept of the past too: whoever opens
// top wants to know what led to what is seen.
func (s server) Events(ctx context.Context, task, after uint64) iter.Seq2[apitype.Event, error] {
	return s.api.Events(ctx, client.EventQuery{Task: task, After: after, All: after == 0})
}

// Act is the one of Source.
func (s server) Act(ctx context.Context, what Action, id uint64) (apitype.Task, error) {
	switch what {
	case Cancel:
		return s.api.Cancel(ctx, id)
	case Park:
		return s.api.Park(ctx, id)
	case Wake:
		return s.api.Wake(ctx, id)
	case Hold:
		return s.api.Hold(ctx, id)
	case Release:
		return s.api.Release(ctx, id)
	}
	return apitype.Task{}, fmt.Errorf("action %q is not known: expected one of %s", what, slices.Sorted(slices.Values([]Action{Cancel, Park, Wake, Hold, Release})))
}
