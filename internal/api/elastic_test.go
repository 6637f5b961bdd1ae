package api_test

import (
	"strings"
	"testing"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/work"
)

func TestElasticSubmitted(t *testing.T) {
	w := start(t, options{})
	x := w.submit(w.alice, apitype.TaskSpec{GPUs: "2..4", Min: "1", OnIdle: "park", OnResize: "restart", Signal: "USR1", NoShare: true, NoPreempt: true, Labels: map[string]string{"team": "vision"}, Hold: true})
	if x.MinGPUs != 1 || x.MaxGPUs != 4 || x.Request != "2 whole GPUs" || x.OnIdle != "park" || x.OnResize != "restart" || x.Signal != "USR1" || !x.NoShare || !x.NoPreempt || x.Labels["team"] != "vision" {
		t.Errorf("the task is %+v", x)
	}
	for body, want := range map[string]string{
		`"on_idle":"sleep"`:                   "on_idle",
		`"on_resize":"live"`:                  "on_resize",
		`"resize_signal":"KILL"`:              "resize_signal",
		`"gpus":"2..8"`:                       "add --on-resize restart",
		`"gpus":"8..2","on_resize":"restart"`: "cannot have 8 at the least and 2 at the most",
		`"gpus":"2","max":"1"`:                "at the most",
		`"on_idle":"share","no_share":true`:   "contradict each other",
		`"labels":{"a b":"c"}`:                "expected KEY=VALUE",
		`"gpus":"20GiB","min":"0.1"`:          "are for whole GPUs or a fraction",
		`"gpus":"0.5","max":"2"`:              "at most 0.999",
		`"gpus":"2..8","max":"8"`:             "given twice",
	} {
		a := w.call(w.aliceToken, "POST", "/v1/tasks", `{"command":["x"],`+body+`}`)
		if checkProblem(t, a); a.status != 422 || !strings.Contains(a.body, want) {
			t.Errorf("%s: got %d %s, want 422 with %q", body, a.status, a.body, want)
		}
	}
	l := w.held(w.alice, apitype.LeaseSpec{GPUs: "1", NoShare: true, Labels: map[string]string{"owner": "ann"}})
	y, err := w.alice.Task(t.Context(), l.ID)
	ok(t, err)
	if !y.NoShare || y.Labels["owner"] != "ann" {
		t.Errorf("the lease is %+v", y)
	}
}

// TestResize gives a task another size, as its tenant and as an admin, and nobody else.
func TestResize(t *testing.T) {
	w := start(t, options{shape: "4xH100-80GB"})
	x := w.running(w.alice, apitype.TaskSpec{GPUs: "1..3", OnResize: "restart"})
	_, err := w.bob.Resize(t.Context(), x.ID, "2")
	refused(t, err, work.CodeNotFound)
	_, err = w.alice.Resize(t.Context(), x.ID, "4")
	if says := refused(t, err, work.CodeConflict); !strings.Contains(says, "agreed to 1 to 3") {
		t.Errorf("a size that it did not agree to: %q", says)
	}
	for _, bad := range []string{"lots", "0", "2:H100-80GB", "-1", "1.5", " "} {
		_, err = w.alice.Resize(t.Context(), x.ID, bad)
		refused(t, err, work.CodeInvalid)
	}
	x, err = w.alice.Resize(t.Context(), x.ID, "2")
	ok(t, err)
	if x.Resized != "2 whole GPUs" || x.ResizedBy != "tenant alice" || x.Request != "1 whole GPU" {
		t.Errorf("resized it is %+v", x)
	}
	w.poll("it runs again with two GPUs", func() bool {
		x, err = w.admin.Task(t.Context(), x.ID)
		ok(t, err)
		return x.State == "running" && x.Epoch == 2 && len(x.Members[0].Slices) == 2
	})
	x, err = w.admin.Resize(t.Context(), x.ID, "auto")
	ok(t, err)
	if x.ResizedBy != "" {
		t.Errorf("left to its pool it is %+v", x)
	}
	w.finish(x, 0, 0)
	w.poll("it has ended", func() bool {
		x, err = w.alice.Task(t.Context(), x.ID)
		ok(t, err)
		return x.Terminal()
	})
	_, err = w.alice.Resize(t.Context(), x.ID, "1")
	refused(t, err, work.CodeConflict)
}
