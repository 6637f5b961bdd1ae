package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
)

func TestDeadline(t *testing.T) {
	now := time.Date(2026, 12, 2, 20, 0, 0, 0, time.UTC)
	local := func(text string) string {
		at, err := time.ParseInLocation("2006-01-02 15:04", text, time.Local)
		if err != nil {
			t.Fatal(err)
		}
		return at.UTC().Format(time.RFC3339)
	}
	for text, want := range map[string]string{
		"": "", "8h": "2026-12-03T04:00:00Z", "1h30m": "2026-12-02T21:30:00Z", "2026-12-04 08:00": local("2026-12-04 08:00"), "2026-12-04T08:00": local("2026-12-04 08:00"),
		"2026-12-04T08:00:00+02:00": "2026-12-04T06:00:00Z",
	} {
		if got, err := deadline(text, now); got != want || err != nil {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{"soon": "is not understood", "-1h": "is over", "2020-01-01T00:00:00Z": "is over", "2026-12-03": "is not understood"} {
		if _, err := deadline(text, now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

func TestQueueFlags(t *testing.T) {
	read := func(args ...string) (apitype.TaskSpec, error) {
		var s specFlags
		c := &cobra.Command{Use: "submit"}
		s.register(c)
		if err := c.ParseFlags(append(args, "--", "x")); err != nil {
			return apitype.TaskSpec{}, err
		}
		return s.read(c, strings.NewReader("after: [1]\nmax_runtime: 1h\nhold: true\ncommand: [y]\n"), c.Flags().Args())
	}
	got, err := read("--after", "12,13", "--after", "14", "--after-any", "2", "--max-runtime", "4h", "--estimate", "2h", "--checkpoint-every", "15m", "--hold", "--array", "0-9:3%2")
	if err != nil || !slices.Equal(got.After, []uint64{12, 13, 14}) || !slices.Equal(got.AfterAny, []uint64{2}) || got.MaxRuntime != "4h" || got.Estimate != "2h" ||
		got.Checkpoint != "15m" || !got.Hold || got.Array != "0-9:3%2" {
		t.Errorf("got %+v, %v", got, err)
	}
	got, err = read("-f", "-", "--max-runtime", "2h")
	if err != nil || !slices.Equal(got.After, []uint64{1}) || got.MaxRuntime != "2h" || !got.Hold {
		t.Errorf("a file and a flag give %+v, %v", got, err)
	}
	for _, x := range []struct{ flag, value, want string }{
		{"--after", "x", "expected a task's number"}, {"--max-runtime", "long", "expected a duration"}, {"--array", "9-1", "FIRST-LAST"}, {"--deadline", "soon", "is not understood"}, {"--retry", "-1s", "is negative"},
	} {
		if _, err := read(x.flag, x.value); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s %s: got %v, want %q", x.flag, x.value, err, x.want)
		}
	}
}

type tripper func(*http.Request) (int, string)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := f(r)
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

func clientOf(t *testing.T, f tripper) *client.Client {
	t.Helper()
	c, err := client.New("http://x", "gpa_x", client.WithHTTPClient(&http.Client{Transport: f}))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const fullQueue = `{"status":429,"code":"queue_full","detail":"the queue is full; try again in 40s","retry_after_s":40}`

// TestRetry tries again not before it was told to, with one key, and gives up in time.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var keys []string
		var at []time.Time
		accepts := 3 // the n-th try
		api := clientOf(t, func(r *http.Request) (int, string) {
			keys, at = append(keys, r.Header.Get("Idempotency-Key")), append(at, time.Now())
			if len(keys) == accepts {
				return 201, `{"id":7,"state":"queued"}`
			}
			return 429, fullQueue
		})
		var errs bytes.Buffer
		a := &App{Err: &errs}
		x, err := a.submit(t.Context(), t.Context(), api, apitype.TaskSpec{}, &specFlags{retry: 10 * time.Minute})
		if err != nil || x.ID != 7 || len(keys) != 3 || keys[0] == "" || keys[1] != keys[0] || keys[2] != keys[0] {
			t.Errorf("got task %d, %v after keys %q", x.ID, err, keys)
		}
		for i := 1; i < len(at); i++ {
			if wait := at[i].Sub(at[i-1]); wait < 40*time.Second || wait > 60*time.Second {
				t.Errorf("try %d came after %s, told were 40s", i, wait)
			}
		}
		if !strings.Contains(errs.String(), "gpupool does so in") {
			t.Errorf("it said %q", errs.String())
		}

		keys, accepts = nil, 0
		start := time.Now()
		_, err = a.submit(t.Context(), t.Context(), api, apitype.TaskSpec{}, &specFlags{retry: time.Minute, key: "mine"})
		if err == nil || !strings.Contains(err.Error(), "gave up after 1m") || time.Since(start) != time.Minute || keys[0] != "mine" {
			t.Errorf("got %v after %s, keys %q", err, time.Since(start), keys)
		}

		keys = nil
		_, err = a.submit(t.Context(), t.Context(), api, apitype.TaskSpec{}, &specFlags{})
		if err == nil || !strings.HasSuffix(err.Error(), "try again in 40s, or let gpupool do it: --retry 10m") || len(keys) != 1 {
			t.Errorf("without --retry: got %v after %d tries", err, len(keys))
		}

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel) // Ctrl-C
		start = time.Now()
		_, err = a.submit(context.WithoutCancel(ctx), ctx, api, apitype.TaskSpec{}, &specFlags{retry: time.Hour})
		if !errors.Is(err, context.Canceled) || time.Since(start) != time.Second {
			t.Errorf("interrupted: got %v after %s", err, time.Since(start))
		}
	})
}

// TestNoRetry: what waiting does not help is not tried again.
func TestNoRetry(t *testing.T) {
	tries := 0
	api := clientOf(t, func(*http.Request) (int, string) {
		tries++
		return 422, `{"status":422,"code":"queue_full","detail":"would never fit"}`
	})
	_, err := (&App{Err: io.Discard}).submit(t.Context(), t.Context(), api, apitype.TaskSpec{}, &specFlags{retry: time.Hour})
	if err == nil || err.Error() != "would never fit" || tries != 1 {
		t.Errorf("got %v after %d tries", err, tries)
	}
}

func TestRef(t *testing.T) {
	api := clientOf(t, func(r *http.Request) (int, string) {
		switch r.URL.Path {
		case "/v1/tasks/12":
			return 200, `{"id":12,"array":12,"index":4,"size":4,"array_spec":"4-10:2%3"}`
		case "/v1/tasks/5":
			return 200, `{"id":5}`
		}
		return 404, `{"status":404,"code":"not_found","detail":"gone"}`
	})
	for text, want := range map[string]string{
		"17": "17", "12[4]": "12", "12[10]": "15", "12[5]": "array 12 has no index 5: it is 4-10:2%3", "12[12]": "no index", "12[0]": "no index", "5[0]": "task 5 is of no array", "6[0]": "gone",
		"12[": "12[3] for one of an array", "12[x]": "12[3] for", "12[-1]": "12[3] for", "[3]": "12[3] for", "x": "12[3] for", "0": "12[3] for",
	} {
		var got string
		r, err := parseRef(text)
		if err == nil {
			var id uint64
			id, err = r.find(t.Context(), api)
			got = fmt.Sprint(id)
		}
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	index := 3
	if got := ref(apitype.Task{ID: 15, Array: 12, Index: &index}); got != "12[3]" {
		t.Errorf("a task of an array is shown as %q", got)
	}
}

func TestExplained(t *testing.T) {
	now := time.Date(2026, 12, 2, 14, 0, 0, 0, time.Local)
	in := func(d time.Duration) *time.Time { at := now.Add(d); return &at }
	x := apitype.Explanation{Ahead: 3, Code: "waiting_for_gpus", Sooner: []string{"2 GPUs more"}, RunLeft: "3h20m",
		Reservation: &apitype.Reservation{GPUs: []int{1, 2}, At: in(20 * time.Minute), Yielding: 2}, Array: &apitype.Progress{Size: 100, Succeeded: 10, Failed: 1, Running: 8, Waiting: 81}}
	x.Task = apitype.Task{ID: 12, Array: 12, State: "queued", Submitted: now.Add(-4 * time.Minute), ExpectedStart: in(20 * time.Minute), ExpectedStartLate: in(125 * time.Minute),
		Forecast: &apitype.Forecast{P50: "40m", P90: "2h", Basis: "task", Samples: 34}, MaxRuntime: "4h", Deadline: in(18 * time.Hour), WaitsUntil: in(56 * time.Minute), Preempted: 2}
	want := []string{
		"3 task(s) before it in line; waiting for 4m00s",
		"expected to start about 14:20, by 16:05 at the latest, if tasks run as long as those like them did",
		"kept for it: GPUs 1, 2, expected to be free about 14:20; 2 task(s) were asked to yield",
		"sooner: 2 GPUs more",
		"expires at 14:56, in 56m00s, unless it has started by then",
		"expected to run for 40m, nine times in ten for at most 2h, judging by its tenant's tasks of this name and request (34)",
		"may run for 4h, of which 3h20m are left",
		"should have ended by Thu 3 Dec 08:00, in 18h00m",
		"was sent back to the queue 2 times",
		"array 12: 10 done, 1 failed, 8 running, 81 waiting, of 100",
	}
	if got := explained(x, now); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := startOf(x.Task, now); got != "~14:20" {
		t.Errorf("ps shows the start as %q", got)
	}
	x.Task.ExpectedStart = nil
	if got := startOf(x.Task, now); got != "?" {
		t.Errorf("ps shows a start that is not known as %q", got)
	}
}

func TestEventText(t *testing.T) {
	for _, x := range []struct {
		kind string
		fact any
		want string
	}{
		{"task.held", map[string]any{"task": 1, "on": true, "by": "tenant a"}, "held by tenant a"},
		{"task.held", map[string]any{"task": 1, "on": false, "by": "an admin"}, "released by an admin"},
		{"task.checkpoint", map[string]any{"task": 1}, "has saved its work"},
		{"task.reserved", map[string]any{"task": 1}, "nothing is kept for it any more"},
		{"task.reserved", map[string]any{"task": 1, "at": int64(1 << 62), "parts": []any{map[string]any{"slices": []any{map[string]any{"gpu": 3}}}}, "victims": []int{4, 5}}, "GPU 3 kept for it, free about"},
		{"pool.asked", map[string]any{"pool": "main", "waiting": 12, "gpus": 3.5}, "pool main asked for more: 12 tasks wait for 3.5 GPUs"},
		{"task.held", "of another version", `"of another version"`},
		{"task.state", map[string]any{"state": "queued"}, "is queued"},
		{"task.unheard", map[string]any{"state": "queued"}, `{"state":"queued"}`},
	} {
		if got, err := eventText(apitype.Event{Kind: x.kind, Fact: x.fact, At: time.Now()}); err != nil || !strings.HasPrefix(got, x.want) {
			t.Errorf("%s %v: got %q, %v, want %q", x.kind, x.fact, got, err, x.want)
		}
	}
}
