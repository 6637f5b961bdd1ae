package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/cli"
	"github.com/gpupool/gpupool/internal/journal/redis/redistest"
)

// member is one gpupool serve among several that share a journal and a data folder.
type member struct {
	t    *testing.T
	data string
	url  string
	args []string
	cmd  *exec.Cmd
	log  lockedBuffer
	http *http.Client // nil: the default
}

// lockedBuffer may be read while a process writes.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newMember(t *testing.T, data, journal string, more ...string) *member {
	addr := fmt.Sprintf("127.0.0.1:%d", redistest.FreePort(t))
	m := &member{t: t, data: data, url: "http://" + addr}
	m.args = append([]string{binary(t), "serve", "--data", data, "--fake", "2x8xH100-80GB", "--listen", addr, "--journal", journal}, more...)
	t.Cleanup(func() {
		m.end(syscall.SIGKILL)
		if t.Failed() {
			t.Logf("%s said:\n%s", m.url, m.log.String())
		}
	})
	return m
}

func (m *member) start() {
	m.t.Helper()
	m.cmd = exec.Command(m.args[0], m.args[1:]...)
	m.cmd.Stderr = &m.log
	if err := m.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
}

func (m *member) signal(sig syscall.Signal) {
	if m.cmd != nil {
		m.cmd.Process.Signal(sig) //nolint:errcheck // it may be gone
	}
}

func (m *member) end(sig syscall.Signal) {
	if m.cmd == nil {
		return
	}
	m.signal(sig)
	m.signal(syscall.SIGCONT)
	m.cmd.Wait() //nolint:errcheck // killed
	m.cmd = nil
}

// role asks a member what it is now; "" when it does not answer.
func (m *member) role(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+"/v1/whoami", http.NoBody)
	if err != nil {
		m.t.Fatal(err)
	}
	a, err := cmp.Or(m.http, http.DefaultClient).Do(r)
	if err != nil {
		return ""
	}
	a.Body.Close()
	return a.Header.Get(headerRole)
}

func (m *member) client(ctx context.Context) *client.Client {
	m.t.Helper()
	for ctx.Err() == nil {
		token, err := os.ReadFile(filepath.Join(m.data, cli.AdminTokenFile))
		if err != nil {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		c, err := client.New(m.url, strings.TrimSpace(string(token)), client.WithRetry(30*time.Second))
		if err != nil {
			m.t.Fatal(err)
		}
		return c
	}
	m.t.Fatal("no server made a token")
	return nil
}

// leaderOf waits until exactly one leads and all others that run follow.
func leaderOf(ctx context.Context, t *testing.T, members []*member) (leader *member) {
	t.Helper()
	for ctx.Err() == nil {
		leaders, others := 0, 0
		for _, m := range members {
			switch m.role(ctx) {
			case "leader":
				leaders++
				leader = m
			case "follower":
				others++
			}
		}
		if leaders == 1 && leaders+others == len(members) {
			return leader
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("the servers do not agree who leads")
	return nil
}

// Three servers share a journal: any of them takes writes and answers reads, a dead or
// paused leader is replaced, what runs goes on, and a leader that wakes up follows.
func TestCluster(t *testing.T) {
	r := redistest.Start(t)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	data, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	data = filepath.Join(data, "data")
	t.Cleanup(func() { killAll(data) })
	var all []*member
	for range 3 {
		m := newMember(t, data, r.URL())
		m.start()
		all = append(all, m)
	}
	first := leaderOf(ctx, t, all)
	release := filepath.Join(t.TempDir(), "release")
	long := apitype.TaskSpec{GPUs: "1/7", Command: []string{"/bin/sh", "-c", "until test -e " + release + "; do sleep 0.05; done"}}
	var ids []uint64
	for i, m := range all {
		task, err := m.client(ctx).Submit(ctx, long, fmt.Sprint("first-", i))
		if err != nil {
			t.Fatalf("a write through %s: %v", m.url, err)
		}
		if _, err := m.client(ctx).Task(ctx, task.ID); err != nil {
			t.Fatalf("what was written through %s cannot be read there: %v", m.url, err)
		}
		ids = append(ids, task.ID)
	}
	waitState(ctx, t, all[0].client(ctx), ids, "running")

	first.end(syscall.SIGKILL)
	rest := others(all, first)
	second := leaderOf(ctx, t, rest)
	task, err := others(rest, second)[0].client(ctx).Submit(ctx, long, "second")
	if err != nil {
		t.Fatal(err)
	}
	ids = append(ids, task.ID)
	first.start()
	leaderOf(ctx, t, all)

	second.signal(syscall.SIGSTOP)
	third := leaderOf(ctx, t, others(all, second))
	if task, err = third.client(ctx).Submit(ctx, long, "third"); err != nil {
		t.Fatal(err)
	}
	ids = append(ids, task.ID)
	second.signal(syscall.SIGCONT)
	if got := leaderOf(ctx, t, all); got != third {
		t.Fatalf("after the pause %s leads, want %s, which led meanwhile", got.url, third.url)
	}
	waitState(ctx, t, second.client(ctx), ids, "running") // none was harmed
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, m := range all { // all of them come to know the end
		waitState(ctx, t, m.client(ctx), ids, "succeeded")
	}
}

// A server that follows and hears nothing more of the journal does not go on letting in who may
// have been shut out meanwhile; metrics still say why. It answers again when it hears.
func TestFollowerIsCutOff(t *testing.T) {
	r := redistest.Start(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	data, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	data = filepath.Join(data, "data")
	t.Cleanup(func() { killAll(data) })
	config := filepath.Join(t.TempDir(), "gpupool.yaml")
	must(t, os.WriteFile(config, []byte("journal: {lease: 1s}\nmetrics: {open: loopback}\n"), 0o600))
	all := []*member{newMember(t, data, r.URL(), "--config", config), newMember(t, data, r.URL(), "--config", config)}
	for _, m := range all {
		m.start()
	}
	follower := others(all, leaderOf(ctx, t, all))[0]
	token, err := os.ReadFile(filepath.Join(data, cli.AdminTokenFile))
	must(t, err)
	c, err := client.New(follower.url, strings.TrimSpace(string(token)))
	must(t, err)
	_, err = c.Whoami(ctx)
	must(t, err)
	r.Signal(syscall.SIGSTOP)
	defer r.Signal(syscall.SIGCONT)
	for err == nil || !strings.Contains(err.Error(), "has not heard from the journal") {
		_, err = c.Whoami(ctx)
		if ctx.Err() != nil {
			t.Fatalf("a follower that is cut off answers: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if a, err := http.Get(follower.url + "/metrics"); err != nil || a.StatusCode != http.StatusOK {
		t.Errorf("metrics of a follower that is cut off: %v, %v", a, err)
	} else {
		a.Body.Close()
	}
	r.Signal(syscall.SIGCONT)
	for err != nil {
		_, err = c.Whoami(ctx)
		if ctx.Err() != nil {
			t.Fatalf("a follower that hears again: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestForeignLeader: a loopback address that a server elsewhere tells is not where its callers'
// tokens are sent to.
func TestForeignLeader(t *testing.T) {
	r := redistest.Start(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var all []*member
	for range 2 {
		m := newMember(t, filepath.Join(t.TempDir(), "data"), r.URL())
		t.Cleanup(func() { killAll(m.data) })
		m.start()
		all = append(all, m)
		leaderOf(ctx, t, all)
	}
	token, err := os.ReadFile(filepath.Join(all[1].data, cli.AdminTokenFile))
	must(t, err)
	c, err := client.New(all[1].url, strings.TrimSpace(string(token)))
	must(t, err)
	spec := apitype.TaskSpec{GPUs: "1/7", Command: []string{"true"}}
	for {
		_, err := c.Submit(ctx, spec, "")
		if err != nil && strings.Contains(err.Error(), "journal.advertise") {
			break
		}
		if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "no server leads") { // it has not looked yet
			t.Fatalf("a write passed on to another machine's loopback address: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestHeard: a follower is as old as the newest look whose facts it has all heard.
func TestHeard(t *testing.T) {
	start := time.Now()
	k := newHeard(start)
	for i, step := range []struct {
		stored, have uint64
		age          time.Duration
	}{
		{10, 10, 0}, // level
		{20, 15, time.Second},
		{30, 15, 2 * time.Second}, // still waits for 20
		{40, 25, 2 * time.Second}, // has what was stored two looks ago
		{50, 40, time.Second},
		{50, 45, 2 * time.Second},
		{50, 50, 0},
	} {
		now := start.Add(time.Duration(i+1) * time.Second)
		if k.look(now, step.stored, step.have); k.since(now) != step.age {
			t.Errorf("look %d: %s old, want %s", i, k.since(now), step.age)
		}
	}
}

func others(all []*member, but *member) (out []*member) {
	for _, m := range all {
		if m != but {
			out = append(out, m)
		}
	}
	return out
}

func waitState(ctx context.Context, t *testing.T, c *client.Client, ids []uint64, want string) {
	t.Helper()
	for _, id := range ids {
		for {
			task, err := c.Task(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			if task.State == want {
				break
			}
			if task.Terminal() || ctx.Err() != nil {
				t.Fatalf("task %d is %s, want %s: %+v", id, task.State, want, task)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// killAll ends what a data folder's servers left.
func killAll(data string) {
	for _, p := range processes(data) {
		var pid int
		if _, err := fmt.Sscan(p, &pid); err == nil {
			syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck // gone already, then
		}
	}
}
