package cli

import (
	"bytes"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/work"
)

func TestElasticFlags(t *testing.T) {
	read := func(file string, args ...string) (apitype.TaskSpec, error) {
		var s specFlags
		c := &cobra.Command{Use: "submit"}
		s.register(c)
		if err := c.ParseFlags(append(args, "-f", "-", "--", "x")); err != nil {
			return apitype.TaskSpec{}, err
		}
		return s.read(c, strings.NewReader(file), c.Flags().Args())
	}
	const file = "gpus: 4\non_idle: keep\nmin: 1\nlabels: {team: a, site: b}\n"
	got, err := read(file, "--on-idle", "park", "--on-resize", "restart", "--resize-signal", "USR2", "--max", "8", "--no-share", "--no-preempt", "--label", "team=vision", "--label", "note=a=b")
	if err != nil || got.OnIdle != "park" || got.OnResize != "restart" || got.Signal != "USR2" || !got.NoShare || !got.NoPreempt || !maps.Equal(got.Labels, map[string]string{"team": "vision", "site": "b", "note": "a=b"}) {
		t.Errorf("got %+v, %v", got, err)
	}
	spec, err := got.Work()
	if err != nil || spec.Request.GPUs != 4 || spec.MinMilli != 1000 || spec.MaxMilli != 8000 || spec.OnIdle != work.IdlePark || spec.OnResize != work.ResizeRestart || spec.Elastic.Signal != "USR2" {
		t.Errorf("in core words it is %+v, %v", spec, err)
	}
	for _, x := range []struct {
		gpus              string
		whole, milli, max int
		model             string
	}{{"2..8", 2, 0, 8000, ""}, {"2..8:H100-80GB", 2, 0, 8000, "H100-80GB"}, {"0.2..0.5", 0, 200, 500, ""}, {"1/7..1/2", 0, 143, 500, ""}, {"8", 8, 0, 0, ""}} {
		got, err := read("", "--gpus", x.gpus, "--on-resize", "restart")
		if err != nil {
			t.Errorf("%s: %v", x.gpus, err)
			continue
		}
		s, err := got.Work()
		if err != nil || s.Request.GPUs != x.whole || s.Request.Milli != x.milli || s.MaxMilli != x.max || strings.Join(s.Request.Models, "") != x.model {
			t.Errorf("%s: got %+v, %v", x.gpus, s, err)
		}
	}
	for _, x := range []struct{ args, want string }{
		{"--gpus 2..8", "add --on-resize restart"},
		{"--gpus 2.. --name x", "with .. between"}, {"--gpus ..8", "with .. between"}, {"--gpus 1..2..3", "with .. between"},
		{"--gpus 2..8 --max 2", "given twice"}, {"--gpus 2..8GiB", `max "8GiB"`}, {"--min x", `min "x" is not understood`}, {"--max 0", `max "0" is not understood`},
		{"--max 2:H100-80GB", `max "2:H100-80GB"`}, {"--label team", "expected KEY=VALUE"}, {"--label =x", "expected KEY=VALUE"},
	} {
		if _, err := read("", strings.Fields(x.args)...); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: got %v, want %q", x.args, err, x.want)
		}
	}
}

func TestEventWords(t *testing.T) {
	now := time.Date(2026, 12, 3, 10, 30, 0, 0, time.Local)
	type m = map[string]any
	since := now.Add(-27 * time.Minute).UnixNano()
	soon := now.Add(30 * time.Second).UnixNano()
	share := m{"gpu": 3, "mode": "shared", "milli": 300, "share": m{"milli": 300, "memory_mib": 20 << 10}}
	owner := m{"task": 7, "epoch": 1, "member": 2}
	for _, x := range []struct {
		kind string
		fact any
		want string
	}{
		{"task.use", m{"use": m{"kind": "idle", "since": since, "memory_mib": 20 << 10}}, "its GPUs idle since 10:03, with 20GiB loaded"},
		{"task.use", m{"use": m{"kind": "light", "since": since, "compute": 0.304}}, "uses little of its GPUs since 10:03: 30 % at most"},
		{"task.use", m{"use": m{"kind": "hot", "since": since}}, "uses all of its GPUs since 10:03"},
		{"task.use", m{"use": m{"kind": "steady", "since": since}}, "uses its GPUs"},
		{"task.use", m{"use": m{"kind": "dreaming", "since": since}}, "dreaming since 10:03"},
		{"task.use", m{"use": m{}}, "how it uses its GPUs is not known"},
		{"task.suspending", m{"reason": m{"message": "parked by tenant ann"}}, "is being suspended: parked by tenant ann"},
		{"task.suspended", m{"memory_mib": 20 << 10}, "is suspended; its GPUs are being freed, and it held 20GiB of their memory"},
		{"task.woken", m{"by": "tenant ann"}, "woken by tenant ann"},
		{"task.resuming", m{}, "goes on where it is"},
		{"task.resumed", m{}, "runs again"},
		{"task.movefailed", m{"move": "park", "why": "no room"}, "park failed: no room; it runs on as it was"},
		{"task.movefailed", m{"move": "wake", "why": "no room"}, "wake failed: no room"},
		{"task.sized", m{"request": m{"gpus": 2}, "by": "an admin"}, "asks for 2 whole GPUs, as an admin says"},
		{"task.sized", m{}, "asks for what it was submitted with; its pool sees to its size"},
		{"task.planned", m{"plan": m{"move": "restart", "at": soon, "to": m{"gpus": 2}, "for": 12}}, "will be restarted with 2 GPUs at 10:30:30, as task 12 waits"},
		{"task.planned", m{"plan": m{"move": "restart", "at": soon, "reason": m{"message": "it can use more"}}}, "will be restarted at 10:30:30: it can use more"},
		{"task.planned", m{"plan": m{"move": "restart", "at": soon, "to": m{"gpus": 1}, "for": 12, "reason": m{"message": "task 12 waits"}}}, "will be restarted with 1 GPU at 10:30:30: task 12 waits"},
		{"task.planned", m{"plan": m{"move": "move", "at": soon}}, "will be restarted at another place at 10:30:30"},
		{"task.planned", m{"plan": m{"move": "fly", "at": soon}}, "will have done with it: fly at 10:30:30"},
		{"task.dropped", m{"why": "others wait by now"}, "what was announced is not done: others wait by now"},
		{"part.resizing", m{"owner": owner, "slices": []any{share}, "reason": m{"message": "why"}}, "member 2: is to have 30% and 20GiB of GPU 3 in place: why"},
		{"part.resizing", m{"slices": []any{m{"gpu": 3, "mode": "shared"}}}, "is to have a share of GPU 3 in place"},
		{"part.resized", m{"owner": m{"member": 0}}, "has its new size"},
		{"pair.parted", m{"pair": []string{"a", "b"}, "until": soon, "why": "slow"}, "a and b share no GPU until 10:30: slow"},
		{"pair.parted", m{"pair": []string{"a", "a"}, "until": soon}, "no two of a share a GPU until 10:30"},
		{"pool.mode", m{"pool": "x", "mode": "static", "by": "an admin"}, "pool x is static, set by an admin"},
		{"task.submitted", m{"spec": m{"name": "n", "pool": "p", "request": m{"gpus": 2}, "max_milli": 8000, "priority": "normal", "command": []string{"run", "it"}}}, "submitted as n: 2 whole GPUs in pool p, normal priority, up to 8: run it"},
		{"task.submitted", m{"array": 5, "index": 3, "spec": m{"pool": "p", "priority": "normal"}}, "submitted: no GPU in pool p, normal priority, number 3 of array 5, a lease"},
		{"task.placed", m{"runs": 1, "parts": []any{m{"slices": []any{m{"gpu": 3, "mode": "whole"}}}}}, "goes on, on GPU 3"},
		{"task.placed", m{"parts": []any{m{}}}, "gets CPU and memory only"},
		{"part.carved", m{"owner": owner}, "member 2: has its slices"},
		{"member.started", m{}, "runs"},
		{"member.exited", m{"exit": m{"code": 3}}, "exited with code 3"},
		{"lease.closing", m{"then": "queued", "reason": m{"message": "why"}}, "is being ended, then it is queued: why"},
		{"part.freeretry", m{"why": "busy", "until": soon}, "its slices could not be freed: busy; tried again at 10:30:30"},
		{"part.freed", m{}, "its slices are free"},
		{"lease.renewed", m{"expires": soon}, "renewed until 10:30:30"},
		{"task.forgotten", m{"tasks": []int{1, 2}}, "2 ended tasks are no longer kept"},
		{"gap", m{"message": "facts 1 to 2 are no longer kept"}, "facts 1 to 2 are no longer kept"},
		{"pool.set", m{"pool": m{"name": "p", "mode": "dynamic"}}, "pool p is set, mode dynamic"},
		{"tenant.set", m{"tenant": m{"name": "ann"}}, "tenant ann is set"},
		{"tenant.removed", m{"name": "ann"}, "tenant ann is removed"},
		{"token.set", m{"token": m{"id": "abc", "name": "ci", "role": "tenant", "tenant": "ann"}}, "token abc (ci) of tenant ann is set"},
		{"token.set", m{"token": m{"id": "abc", "role": "operator"}}, "token abc of an operator is set"},
		{"token.removed", m{"id": "abc"}, "token abc is revoked"},
		{"model.learned", m{"model": m{"key": "H100"}}, "a GPU model is known now: H100"},
		{"host.joined", m{"pool": "p", "host": m{"name": "h", "gpus": []any{m{}, m{}}}}, "host h with 2 GPUs joined pool p"},
		{"host.changed", m{"host": 3, "up": true}, "host 3 can be used"},
		{"host.changed", m{"host": 3, "reason": m{"message": "lost"}}, "host 3 cannot be used: lost"},
		{"host.moved", m{"host": 3, "pool": "p"}, "host 3 belongs to pool p"},
		{"gpu.changed", m{"gpu": 3, "health": "suspect", "until": soon, "why": "XID"}, "GPU 3 is suspect until 10:30:30: XID"},
		{"task.planned", "of another version", `"of another version"`},
	} {
		if got, err := eventText(apitype.Event{Kind: x.kind, Fact: x.fact, At: now}); err != nil || got != x.want {
			t.Errorf("%s %v: got %q, %v, want %q", x.kind, x.fact, got, err, x.want)
		}
	}
}

func TestElasticShown(t *testing.T) {
	now := time.Now()
	since := now.Add(-12 * time.Minute)
	var out bytes.Buffer
	plan := &apitype.Plan{Move: "restart", At: now.Add(time.Second), To: "2 whole GPUs", For: 12}
	x := apitype.Task{ID: 7, State: "running", Request: "4 whole GPUs", OnIdle: "park", OnResize: "restart", MinGPUs: 2, MaxGPUs: 8, NoShare: true, NoPreempt: true,
		Labels: map[string]string{"b": "2", "a": "1"}, Usage: &apitype.Judged{Kind: "idle", Since: since, MemoryMiB: 1 << 10}, Resized: "3 whole GPUs", Plan: plan,
		Members: []apitype.Member{{Slices: []apitype.Slice{{Milli: 1000}, {Milli: 1000}, {Milli: 1000}}}}}
	(&App{Out: &out}).taskDetail(&out, x)
	for _, want := range []string{"on idle    park", "on resize  restart, told by SIGTERM", "min GPUs   2", "max GPUs   8", "shares     its GPUs with nobody", "yields     to nobody", "labels     a=1, b=2",
		"use        its GPUs idle since", "1GiB loaded", "size       3 whole GPUs, given by its pool", "plan       will be restarted with 2 GPUs at ", ", as task 12 waits"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want %q in\n%s", want, out.String())
		}
	}
	got := strings.Join(explained(apitype.Explanation{Task: x}, now), "\n")
	for _, want := range []string{"its GPUs idle since", "it was submitted for 4 whole GPUs and now has the size 3 whole GPUs, given by its pool", "will be restarted with 2 GPUs at "} {
		if !strings.Contains(got, want) {
			t.Errorf("want %q in what explain says:\n%s", want, got)
		}
	}
	out.Reset()
	(&App{Out: &out, Err: &out}).taskTable(&out, []apitype.Task{x, {ID: 8, State: "running"}}, true, false)
	if rows := strings.Split(out.String(), "\n"); !strings.Contains(rows[0], "USE       SIZE") || !strings.Contains(rows[1], "idle 12m  3") || !strings.Contains(rows[2], "-         -") {
		t.Errorf("the list is\n%s", out.String())
	}
	for _, x := range []struct {
		use  *apitype.Judged
		want string
	}{
		{nil, ""}, {&apitype.Judged{Kind: "light", Compute: 0.301}, "light 30 %"}, {&apitype.Judged{Kind: "hot"}, "hot"}, {&apitype.Judged{Kind: "idle", Since: now.Add(-50 * time.Hour)}, "idle 2d"},
		{&apitype.Judged{Kind: "idle", Since: now.Add(-3 * time.Hour)}, "idle 3h"}, {&apitype.Judged{Kind: "idle", Since: now.Add(time.Second)}, "idle 0s"},
	} {
		if got := useWord(x.use, now); got != x.want {
			t.Errorf("%+v: got %q, want %q", x.use, got, x.want)
		}
	}
	if got := moment(now.Add(48*time.Hour), now); !strings.Contains(got, " ") {
		t.Errorf("another day is %q", got)
	}
}
