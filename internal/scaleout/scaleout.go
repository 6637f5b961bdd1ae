// Package scaleout asks for more GPUs from outside, by running a command or calling
// a webhook: whoever answers to that may start machines. gpupool does not wait for
// them; they join the pool when a driver sees them.
//
// A call costs one process and one request, each ended after a bounded time, however
// many GPUs there are.
package scaleout

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// Within is how long a call may take unless told otherwise.
	Within = 30 * time.Second
	// drain is how long the output of an ended command is read: a child may hold it open.
	drain   = time.Second
	mostOut = 4 << 10 // bytes of output that an error shows
)

// Hook is whom to ask: a command, a webhook, or both.
type Hook struct {
	Command []string      // run with GPUPOOL_POOL, GPUPOOL_WAITING and GPUPOOL_GPUS set
	Webhook string        // gets a POST of {"pool", "waiting", "gpus"}
	Within  time.Duration // 0 = 30 s
}

// Ask asks for more GPUs for a pool and returns when that is done, has failed or has
// taken too long.
func (h Hook) Ask(ctx context.Context, pool string, waiting int, gpus float64) error {
	within := h.Within
	if within == 0 {
		within = Within
	}
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("it took longer than %s", within))
	defer cancel()
	var errs []error
	if len(h.Command) > 0 {
		errs = append(errs, h.run(ctx, pool, waiting, gpus))
	}
	if h.Webhook != "" {
		errs = append(errs, h.post(ctx, pool, waiting, gpus))
	}
	return errors.Join(errs...)
}

// run runs the command in a process group of its own, so that nothing of it is left
// when it took too long.
func (h Hook) run(ctx context.Context, pool string, waiting int, gpus float64) error {
	c := exec.CommandContext(ctx, h.Command[0], h.Command[1:]...)
	c.Env = append(os.Environ(), "GPUPOOL_POOL="+pool, "GPUPOOL_WAITING="+strconv.Itoa(waiting), "GPUPOOL_GPUS="+strconv.FormatFloat(gpus, 'f', -1, 64))
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = drain
	var out tail
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // it went well, and left something running
		return nil
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	if said := strings.TrimSpace(strings.ToValidUTF8(string(out), "?")); said != "" {
		return fmt.Errorf("command %s: %w; it said: %s", h.Command[0], err, said)
	}
	return fmt.Errorf("command %s: %w", h.Command[0], err)
}

// tail keeps the end of what is written.
type tail []byte

func (t *tail) Write(b []byte) (int, error) {
	*t = append(*t, b...)
	if over := len(*t) - mostOut; over > 0 {
		*t = append((*t)[:0], (*t)[over:]...)
	}
	return len(b), nil
}

// post calls the webhook. Its address may hold a secret, so that errors name only the
// host.
func (h Hook) post(ctx context.Context, pool string, waiting int, gpus float64) error {
	u, err := url.Parse(h.Webhook)
	if err != nil {
		return errors.New("webhook: its address is not one: expected something like https://example.org/scale-out")
	}
	body, err := json.Marshal(map[string]any{"pool": pool, "waiting": waiting, "gpus": gpus})
	if err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.Webhook, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("webhook %s: the request cannot be made", u.Host)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		if x, is := errors.AsType[*url.Error](err); is {
			err = x.Err // without the address
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("webhook %s: %w", u.Host, err)
	}
	defer resp.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(resp.Body, mostOut)) // of a good answer nothing is needed
	if resp.StatusCode >= 300 {
		return fmt.Errorf("webhook %s: answered %s, expected success; it said: %s", u.Host, resp.Status, strings.TrimSpace(strings.ToValidUTF8(string(said), "?")))
	}
	return nil
}
