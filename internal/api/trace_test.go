package api_test

import (
	"testing"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/work"
)

// TestTrace keeps what the client calls its trace, unless it is malformed; a task that is
// submitted again, as part of another trace, is the same task.
func TestTrace(t *testing.T) {
	const one, two = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	w := start(t, options{})
	submit := func(trace, key string) (uint64, string) {
		t.Helper()
		c, err := client.New(w.url, w.aliceToken, client.WithTrace(trace))
		ok(t, err)
		task, err := c.Submit(t.Context(), apitype.TaskSpec{Command: []string{"work"}, Hold: true}, key)
		ok(t, err)
		kept := ""
		w.host.Read(func(e *engine.Engine) { kept = e.Task(work.TaskID(task.ID)).Spec.Trace })
		return task.ID, kept
	}
	first, kept := submit(one, "k")
	if kept != one {
		t.Errorf("kept %q, want %q", kept, one)
	}
	if again, kept := submit(two, "k"); again != first || kept != one {
		t.Errorf("submitted again it is task %d with %q, want %d with %q", again, kept, first, one)
	}
	for _, bad := range []string{"", "x", one + "\tx", one + "0"} {
		if _, kept := submit(bad, ""); kept != "" {
			t.Errorf("%q: kept %q", bad, kept)
		}
	}
}
