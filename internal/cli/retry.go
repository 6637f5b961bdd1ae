package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/work"
)

// submit hands a task in. Where the server says when trying again may help, it is
// tried again as told, until s.retry is over or waiting ends. One key for all tries
// makes sure that the task is accepted once.
func (a *App) submit(ctx, waiting context.Context, api *client.Client, spec apitype.TaskSpec, s *specFlags) (apitype.Task, error) {
	return again(waiting, a, s.key, s.retry, func(key string) (apitype.Task, error) { return api.Submit(ctx, spec, key) })
}

// again tries to hand something in, until retry is over or waiting ends; key is made up where there is none.
func again[T any](waiting context.Context, a *App, key string, retry time.Duration, try func(key string) (T, error)) (T, error) {
	if key == "" {
		key = rand.Text()
	}
	end := time.Now().Add(retry)
	for {
		t, err := try(key)
		refused, is := errors.AsType[*client.Error](err)
		if err == nil || !is || refused.RetryAfter <= 0 {
			return t, err
		}
		// Later than told, and each at another moment: many may have been told the same.
		wait := refused.RetryAfter + mathrand.N(refused.RetryAfter/4+time.Second)
		left := time.Until(end)
		switch {
		case retry == 0:
			return t, offerRetry(refused)
		case left <= 0:
			return t, fmt.Errorf("%s; gave up after %s", refused.Detail, work.FormatDuration(retry))
		}
		wait = min(wait, left) // a last try when the time is over
		fmt.Fprintf(a.Err, "%s; gpupool does so in %s, and gives up in %s\n", refused.Detail, span(wait.Round(time.Second)), span(left))
		select {
		case <-time.After(wait):
		case <-waiting.Done():
			return t, waiting.Err()
		}
	}
}

// offerRetry says that waiting can be left to gpupool.
func offerRetry(e *client.Error) error {
	if e.Code != work.CodeBusy {
		return e
	}
	return fmt.Errorf("%s, or let gpupool do it: --retry 10m", e.Detail)
}
