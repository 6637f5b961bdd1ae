package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/cli"
	"github.com/gpupool/gpupool/internal/config"
	"github.com/gpupool/gpupool/internal/driver/nvidia"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/host"
	"github.com/gpupool/gpupool/internal/journal/bolt"
	"github.com/gpupool/gpupool/internal/work"
)

// crash is one run of the crash test.
type crash struct {
	t      *testing.T
	server *testServer
	out    string // each task appends to a file of its own here
	way    crashWay

	mu    sync.Mutex
	acked map[uint64]job // by task number
}

// job is what was submitted.
type job struct {
	n         int
	members   int
	code      int  // it exits with
	cancelled bool // the cancel was acknowledged
}

// crashWay is what a crash test runs on, and for how long.
type crashWay struct {
	flags        []string // of serve, beside its data and address: which driver, which runner
	env          []string // of serve
	kills, tasks int
	pause        time.Duration              // between two kills, at most
	image        string                     // of the tasks; "" = they run as processes
	left         func(data string) []string // what must not be left at the end, beside processes
}

// TestCrash kills the server with SIGKILL at random moments while tasks flow. At the
// end every acknowledged task ended exactly once, none ran twice, no process is
// left, and replaying the journal gives the live state.
func TestCrash(t *testing.T) {
	w := crashWay{flags: []string{"--fake", "2x8xH100-80GB"}, kills: 50, tasks: 200, pause: 380 * time.Millisecond}
	if testing.Short() {
		w.kills, w.tasks = 8, 40
	}
	crashes(t, w)
}

// TestCrashOverMock does the same over GPUs of a mock NVML.
func TestCrashOverMock(t *testing.T) {
	w := overMock(t)
	data := crashes(t, w)
	nothingCarved(t, w, data)
}

// overMock is a way over GPUs of a mock NVML that refuses what hardware refuses while a process
// is there, and sometimes at once; the process that speaks to it dies now and then.
func overMock(t *testing.T) crashWay {
	t.Helper()
	_, env := mockGPUs(t, "gpu 8 H100-80GB", "scan-proc yes", "fail nvmlGpuInstanceDestroy IN_USE 5", "fail nvmlComputeInstanceDestroy UNKNOWN 3", "abort nvmlDeviceGetComputeRunningProcesses 500")
	w := crashWay{env: env, kills: 20, tasks: 80, pause: 380 * time.Millisecond}
	if testing.Short() {
		w.kills, w.tasks = 8, 40
	}
	return w
}

// nothingCarved checks that no instance and no part is left.
func nothingCarved(t *testing.T, w crashWay, data string) {
	t.Helper()
	now, err := nvidia.Probe(t.Context(), nvidia.Options{Helper: []string{binary(t), nvmlCommand, ""}, Env: w.env, Log: slog.New(slog.DiscardHandler)})
	if err != nil || len(now.GPUs) != 8 || slices.ContainsFunc(now.GPUs, func(g nvidia.ProbedGPU) bool { return g.Instances > 0 }) {
		t.Errorf("at the end the GPUs are %+v, %v", now.GPUs, err)
	}
	parts, err := os.ReadDir(filepath.Join(data, "nvidia", "parts"))
	if err != nil || len(parts) > 0 {
		t.Errorf("parts are left: %v, %v", parts, err)
	}
}

// crashes is the crash test in one of its ways. It returns the data folder.
func crashes(t *testing.T, way crashWay) string {
	t.Helper()
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip("needs Linux: elsewhere a member's processes cannot be told from others")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	data, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := &crash{t: t, out: t.TempDir(), way: way, acked: map[uint64]job{}, server: &testServer{t: t, data: filepath.Join(data, "data"), flags: way.flags, env: way.env}}
	began := time.Now()
	c.server.start()
	api := c.server.up(ctx)
	flow := make(chan error, 1)
	go func() { flow <- c.submit(ctx, api, way.tasks) }()

	rng := rand.New(rand.NewPCG(1, 50))
	for range way.kills {
		time.Sleep(20*time.Millisecond + time.Duration(rng.Int64N(int64(way.pause)))) // the moment is the input of this test, not its result
		c.server.end(syscall.SIGKILL)
		time.Sleep(time.Duration(rng.IntN(120)) * time.Millisecond) // and members end while nobody watches
		c.server.start()
	}
	api = c.server.up(ctx)
	if err := <-flow; err != nil {
		t.Fatalf("submitting: %v; the server said:\n%s", err, c.server.log.String())
	}
	live := c.drain(ctx, api)
	t.Logf("%d kills, %d tasks acknowledged, all ended after %s", way.kills, len(c.acked), time.Since(began).Round(time.Second))
	c.checkTasks(live)
	for _, p := range processes(c.server.data) {
		if !strings.Contains(p, "serve") {
			t.Errorf("process %s is left", p)
		}
	}
	if way.left != nil {
		for _, x := range way.left(c.server.data) {
			t.Errorf("%s is left", x)
		}
	}
	c.server.end(syscall.SIGKILL) // no last snapshot: every fact is still in the journal
	c.checkJournal(ctx, live)
	return c.server.data
}

// submit hands in tasks of all shapes, some of which fail and some of which are
// cancelled.
func (c *crash) submit(ctx context.Context, api *client.Client, tasks int) error {
	rng := rand.New(rand.NewPCG(2, 200))
	shapes := []apitype.TaskSpec{{GPUs: "1/7"}, {GPUs: "1"}, {GPUs: "3g.40gb"}, {GPUs: "20GiB"}, {GPUs: "0.3", Isolation: "shared"}, {GPUs: "2", Members: 2}, {GPUs: "1/7", Members: 3}}
	for n := range tasks {
		spec := shapes[rng.IntN(len(shapes))]
		j := job{n: n, members: max(spec.Members, 1)}
		if rng.IntN(8) == 0 {
			j.code = 3
		}
		file := filepath.Join(c.out, fmt.Sprint(n))
		if spec.Image = c.way.image; spec.Image != "" {
			spec.Volumes = []apitype.Volume{{Source: c.out, Target: "/out"}}
			file = "/out/" + fmt.Sprint(n)
		}
		owner := "$GPUPOOL_TASK.$GPUPOOL_EPOCH.$GPUPOOL_MEMBER"
		last := rng.IntN(40) * rng.IntN(2) // half of them end at once: before the server could note that they began
		spec.Command = []string{"/bin/sh", "-c", fmt.Sprintf("echo %s >> %s; sleep 0.%02d; exit %d", owner, file, last, j.code)}
		t, err := api.Submit(ctx, spec, fmt.Sprint("job-", n))
		if err != nil {
			return err
		}
		if rng.IntN(15) == 0 {
			_, err := api.Cancel(ctx, t.ID) // may have ended, or the answer may be lost
			j.cancelled = err == nil
		}
		c.mu.Lock()
		if before, twice := c.acked[t.ID]; twice {
			c.t.Errorf("jobs %d and %d were both acknowledged as task %d", before.n, n, t.ID)
		}
		c.acked[t.ID] = j
		c.mu.Unlock()
	}
	return nil
}

// drain waits until all has ended and nothing is held, and returns the tasks.
func (c *crash) drain(ctx context.Context, api *client.Client) map[uint64]apitype.Task {
	c.t.Helper()
	for ctx.Err() == nil {
		live := map[uint64]apitype.Task{}
		busy := false
		for t, err := range api.Tasks(ctx, client.TaskQuery{}) {
			if err != nil {
				c.t.Fatal(err)
			}
			live[t.ID] = t
			busy = busy || !t.Terminal()
		}
		for g, err := range api.GPUs(ctx, client.GPUQuery{}) {
			if err != nil {
				c.t.Fatal(err)
			}
			busy = busy || len(g.Holders) > 0
		}
		if !busy {
			return live
		}
		time.Sleep(50 * time.Millisecond)
	}
	c.t.Fatalf("not all tasks ended; the server said:\n%s", c.server.log.String())
	return nil
}

// checkTasks: every acknowledged task is there and ended as it should, and no
// member ran twice.
func (c *crash) checkTasks(live map[uint64]apitype.Task) {
	c.t.Helper()
	if len(live) != len(c.acked) {
		c.t.Errorf("there are %d tasks, %d were acknowledged", len(live), len(c.acked))
	}
	for id, j := range c.acked {
		t, known := live[id]
		want := "succeeded"
		if j.code != 0 {
			want = "failed"
		}
		switch {
		case !known:
			c.t.Errorf("job %d was acknowledged as task %d, which is not known", j.n, id)
		case t.State == "cancelled": // also when the answer to the cancel was lost
		case t.State != want:
			c.t.Errorf("task %d is %s, want %s: %+v", id, t.State, want, t)
		case j.code != 0 && (t.Exit == nil || t.Exit.Code != j.code):
			c.t.Errorf("task %d ended with %+v, want code %d", id, t.Exit, j.code)
		}
		ran := map[string]int{}
		b, err := os.ReadFile(filepath.Join(c.out, fmt.Sprint(j.n)))
		if err != nil && !os.IsNotExist(err) {
			c.t.Fatal(err)
		}
		for owner := range strings.FieldsSeq(string(b)) {
			if ran[owner]++; ran[owner] > 1 {
				c.t.Errorf("job %d: %s ran %d times", j.n, owner, ran[owner])
			}
		}
		if t.State == "succeeded" && len(ran) < j.members {
			c.t.Errorf("task %d succeeded, and of %d members only %d ran", id, j.members, len(ran))
		}
	}
}

// checkJournal: each task was accepted once and ended once, and the journal gives
// the state that was live.
func (c *crash) checkJournal(ctx context.Context, live map[uint64]apitype.Task) {
	c.t.Helper()
	j, err := bolt.Open(filepath.Join(c.server.data, "journal.db"), bolt.Options{ReadOnly: true})
	if err != nil {
		c.t.Fatal(err)
	}
	defer j.Close()
	accepted, ended, started := map[work.TaskID]int{}, map[work.TaskID]int{}, map[work.Owner]int{}
	facts := 0
	err = j.Load(ctx, func(uint64, []byte) error { return fmt.Errorf("a snapshot hides facts from this test") }, func(_ uint64, rec []byte) error {
		_, f, err := engine.Decode(rec)
		facts++
		switch f := f.(type) {
		case engine.Submitted:
			accepted[f.Task]++
		case engine.Started:
			started[f.Owner]++
		case engine.Became:
			if f.State.Terminal() {
				ended[f.Task]++
			}
		}
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, id := range slices.Sorted(maps.Keys(accepted)) {
		if accepted[id] != 1 || ended[id] != 1 {
			c.t.Errorf("task %d was accepted %d times and ended %d times", id, accepted[id], ended[id])
		}
	}
	for o, n := range started {
		if n != 1 {
			c.t.Errorf("member %s was started %d times", o, n)
		}
	}
	w, err := host.Recover(ctx, engineConfig(cli.ServeOptions{Config: config.Default()}), j, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := w.Engine.Check(); err != nil {
		c.t.Error(err)
	}
	if n := len(w.Engine.Tasks()); n != len(live) {
		c.t.Errorf("replay gives %d tasks, %d were live", n, len(live))
	}
	epochs := uint32(0)
	for _, t := range w.Engine.Tasks() {
		x := live[uint64(t.ID)]
		epochs += t.Epoch
		if x.State != string(t.State) || x.Epoch != t.Epoch || x.Reason.Message != t.Reason.Msg || !x.Submitted.Equal(t.Submitted.Std()) || x.Ended == nil || !x.Ended.Equal(t.Ended.Std()) {
			c.t.Errorf("replay gives %+v, live was %+v", *t, x)
		}
	}
	if n := len(w.Engine.Leases()); n > 0 {
		c.t.Errorf("replay gives %d leases that hold something", n)
	}
	c.t.Logf("%d facts, %d placements for %d tasks", facts, epochs, len(live))
}
