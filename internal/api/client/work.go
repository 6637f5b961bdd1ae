package client

import (
	"context"
	"crypto/rand"
	"io"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/gpupool/gpupool/internal/api/apitype"
)

// waitStep is the longest single request of a wait.
const waitStep = 30 * time.Second

// TaskQuery narrows a list of tasks; the zero value is all of them.
type TaskQuery struct {
	States []string // "active" stands for all that have not ended
	Tenant string
	Pool   string
	Name   string
	Newest bool // newest first
}

// Submit hands a task in. The key makes it safe to submit again: the same key and
// task give the same task. An empty key is replaced by one of chance, so that at
// least the retries of this call give one task.
func (c *Client) Submit(ctx context.Context, spec apitype.TaskSpec, key string) (t apitype.Task, err error) {
	err = c.do(ctx, submission("/v1/tasks", spec, key), &t)
	return t, err
}

func submission(path string, spec any, key string) call {
	if key == "" {
		key = rand.Text()
	}
	return call{method: http.MethodPost, path: path, body: spec, header: http.Header{"Idempotency-Key": {key}}, again: true}
}

// Tasks lists tasks by number.
func (c *Client) Tasks(ctx context.Context, q TaskQuery) iter.Seq2[apitype.Task, error] {
	v := values("tenant", q.Tenant, "pool", q.Pool, "name", q.Name)
	for _, s := range q.States {
		v.Add("state", s)
	}
	if q.Newest {
		v.Set("order", "desc")
	}
	return list[apitype.Task](ctx, c, "/v1/tasks", v)
}

// Task returns a task.
func (c *Client) Task(ctx context.Context, id uint64) (t apitype.Task, err error) {
	err = c.do(ctx, get(taskPath(id), nil), &t)
	return t, err
}

func taskPath(id uint64) string { return "/v1/tasks/" + number(id) }

// WaitTask returns the task when it has ended, or as it is after d.
func (c *Client) WaitTask(ctx context.Context, id uint64, d time.Duration) (apitype.Task, error) {
	return waitFor(ctx, c, taskPath(id), d, apitype.Task.Terminal)
}

// waitFor asks again until done holds or d is over. The server may answer early.
func waitFor[T any](ctx context.Context, c *Client, path string, d time.Duration, done func(T) bool) (x T, err error) {
	end := time.Now().Add(d)
	for {
		step := min(max(time.Until(end), 0), waitStep)
		var next T // a fresh one: decoding leaves absent fields as they were
		if err := c.do(ctx, get(path, values("wait", step.Round(time.Millisecond).String())), &next); err != nil {
			return x, err
		}
		if x = next; done(x) || !time.Now().Before(end) {
			return x, nil
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil { // a server that is stopping does not wait
			return x, err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Cancel asks a task to end and returns it as it is then.
func (c *Client) Cancel(ctx context.Context, id uint64) (t apitype.Task, err error) {
	err = c.do(ctx, call{method: http.MethodDelete, path: taskPath(id)}, &t)
	return t, err
}

// CancelArray asks all unfinished tasks of a task's array to end, and returns the
// task as it is then.
func (c *Client) CancelArray(ctx context.Context, id uint64) (t apitype.Task, err error) {
	err = c.do(ctx, call{method: http.MethodDelete, path: taskPath(id), query: values("array", "true")}, &t)
	return t, err
}

// Hold keeps a waiting task back until it is released.
func (c *Client) Hold(ctx context.Context, id uint64) (apitype.Task, error) {
	return c.act(ctx, id, "hold", true)
}

// Release lets a task go on that is held.
func (c *Client) Release(ctx context.Context, id uint64) (apitype.Task, error) {
	return c.act(ctx, id, "release", true)
}

// Checkpoint says that a running task has saved its work.
func (c *Client) Checkpoint(ctx context.Context, id uint64) (apitype.Task, error) {
	return c.act(ctx, id, "checkpoint", true)
}

// Park suspends a running task and lends its GPUs.
func (c *Client) Park(ctx context.Context, id uint64) (apitype.Task, error) {
	return c.act(ctx, id, "park", false) // it may be woken by then
}

// Wake lets a parked task go on.
func (c *Client) Wake(ctx context.Context, id uint64) (apitype.Task, error) {
	return c.act(ctx, id, "wake", true)
}

// Preempt sends a running task back to the queue.
func (c *Client) Preempt(ctx context.Context, id uint64) (apitype.Task, error) {
	return c.act(ctx, id, "preempt", false) // it may run again by then
}

// Resize gives a task another size: GPUs of each member, or a fraction of one; auto leaves it
// to its pool again.
func (c *Client) Resize(ctx context.Context, id uint64, gpus string) (t apitype.Task, err error) {
	err = c.do(ctx, call{method: http.MethodPost, path: taskPath(id) + "/resize", body: apitype.Resize{GPUs: gpus}}, &t)
	return t, err
}

func (c *Client) act(ctx context.Context, id uint64, what string, again bool) (t apitype.Task, err error) {
	err = c.do(ctx, call{method: http.MethodPost, path: taskPath(id) + "/" + what, again: again}, &t)
	return t, err
}

// Explain says why a task waits, where it sits, or how it ended.
func (c *Client) Explain(ctx context.Context, id uint64) (x apitype.Explanation, err error) {
	err = c.do(ctx, get(taskPath(id)+"/explain", nil), &x)
	return x, err
}

// LogQuery says which part of a task's output to read.
type LogQuery struct {
	Member int
	Follow bool // go on until the task has ended
	Tail   int  // only the last lines; 0 = all
}

// Logs reads the output of a member. The caller closes it. A connection that is cut
// shows as an error of Read other than io.EOF.
func (c *Client) Logs(ctx context.Context, id uint64, q LogQuery) (io.ReadCloser, error) {
	v := values()
	if q.Member > 0 {
		v.Set("member", strconv.Itoa(q.Member))
	}
	if q.Follow {
		v.Set("follow", "true")
	}
	if q.Tail > 0 {
		v.Set("tail", strconv.Itoa(q.Tail))
	}
	k := get(taskPath(id)+"/logs", v)
	k.accept = "text/plain"
	resp, err := c.open(ctx, k)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// CreateLease asks for slices; see Submit for the key.
func (c *Client) CreateLease(ctx context.Context, spec apitype.LeaseSpec, key string) (l apitype.Lease, err error) {
	err = c.do(ctx, submission("/v1/leases", spec, key), &l)
	return l, err
}

// Leases lists leases of outside clients that have not ended, by number.
func (c *Client) Leases(ctx context.Context) iter.Seq2[apitype.Lease, error] {
	return list[apitype.Lease](ctx, c, "/v1/leases", nil)
}

// Lease returns a lease.
func (c *Client) Lease(ctx context.Context, id uint64) (l apitype.Lease, err error) {
	err = c.do(ctx, get(leasePath(id), nil), &l)
	return l, err
}

func leasePath(id uint64) string { return "/v1/leases/" + number(id) }

// WaitLease returns the lease when it is held or has ended, or as it is after d.
func (c *Client) WaitLease(ctx context.Context, id uint64, d time.Duration) (apitype.Lease, error) {
	return waitFor(ctx, c, leasePath(id), d, func(l apitype.Lease) bool { return l.State != "queued" && l.State != "starting" })
}

// RenewLease keeps a lease for another TTL.
func (c *Client) RenewLease(ctx context.Context, id uint64, epoch uint32) (l apitype.Lease, err error) {
	err = c.do(ctx, call{method: http.MethodPost, path: leasePath(id) + "/renew", body: apitype.Renewal{Epoch: epoch}, again: true}, &l)
	return l, err
}

// ReleaseLease gives a lease back; with epoch 0 it must not be held yet.
func (c *Client) ReleaseLease(ctx context.Context, id uint64, epoch uint32) error {
	k := call{method: http.MethodDelete, path: leasePath(id)}
	if epoch > 0 {
		k.query = values("epoch", number(uint64(epoch)))
	}
	return c.do(ctx, k, nil)
}
