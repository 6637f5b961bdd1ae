package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/binarytest"
)

func TestMain(m *testing.M) { binarytest.Main(m) }

// pool is a real gpupool serve with its clients.
type pool struct {
	t     testing.TB
	data  string
	url   string
	token string // an admin's
	admin *client.Client
}

const settings = `
pools:
  - name: research
    hosts: ["fake-0001", "fake-0002"]
    lend_gpus: 4
  - name: serving
    hosts: ["*"]
    borrow_from: [research]
    ask_for_more_at: 0
elastic:
  scan_every: 1s
`

// serve starts a server over fake GPUs, which ends with the test and all its tasks.
func serve(t testing.TB, shape, settings string) *pool {
	t.Helper()
	p := &pool{t: t, data: t.TempDir()}
	args := []string{"serve", "--data", p.data, "--fake", shape, "--listen", "127.0.0.1:0"}
	if settings != "" {
		file := filepath.Join(p.data, "settings.yaml")
		ok(t, os.WriteFile(file, []byte(settings), 0o600))
		args = append(args, "--config", file)
	}
	cmd := exec.Command(binarytest.Path(t), args...)
	var log bytes.Buffer
	cmd.Stderr = &log
	ok(t, cmd.Start())
	t.Cleanup(func() {
		if p.admin != nil {
			p.cancelAll()
		}
		cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may be gone
		cmd.Wait()                          //nolint:errcheck // told to end
	})
	for end := time.Now().Add(30 * time.Second); p.url == ""; time.Sleep(10 * time.Millisecond) {
		var info struct{ URL string }
		b, err := os.ReadFile(filepath.Join(p.data, "server.json"))
		if err == nil && json.Unmarshal(b, &info) == nil {
			p.url = info.URL
		}
		if time.Now().After(end) {
			t.Fatalf("the server did not come up; it said:\n%s", log.String())
		}
	}
	b, err := os.ReadFile(filepath.Join(p.data, "admin.token"))
	ok(t, err)
	p.token = strings.TrimSpace(string(b))
	p.admin = p.client(p.token)
	poll(t, "its hosts are there", func() bool {
		pools, err := p.admin.Pools(t.Context())
		ok(t, err)
		return len(pools) > 0 && pools[0].FreeGPUs > 0
	})
	return p
}

func (p *pool) client(token string) *client.Client {
	c, err := client.New(p.url, token)
	ok(p.t, err)
	return c
}

// cancelAll ends what still runs: tasks outlive the server.
func (p *pool) cancelAll() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for left := true; left && ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		left = false
		for t, err := range p.admin.Tasks(ctx, client.TaskQuery{States: []string{"active"}}) {
			if err != nil {
				return
			}
			left = left || len(t.Command) > 0 && len(t.Members) > 0
			p.admin.Cancel(ctx, t.ID) //nolint:errcheck // it may have ended
		}
	}
}

// load says how busy tasks keep their fake GPUs.
func (p *pool) load(lines string) {
	ok(p.t, os.WriteFile(filepath.Join(p.data, "fake-load"), []byte(lines), 0o600))
}

func (p *pool) tenant(name string, spec apitype.TenantSpec) (token string) {
	p.t.Helper()
	_, err := p.admin.PutTenant(p.t.Context(), name, spec)
	ok(p.t, err)
	x, err := p.admin.CreateToken(p.t.Context(), name)
	ok(p.t, err)
	return x.Token
}

func (p *pool) submit(s apitype.TaskSpec) apitype.Task {
	p.t.Helper()
	if s.Command == nil {
		s.Command = []string{"sh", "-c", "echo epoch 1; echo loss 0.42; exec sleep 3600"}
	}
	s.Grace = "1s"
	task, err := p.admin.Submit(p.t.Context(), s, "")
	ok(p.t, err)
	return task
}

func (p *pool) reach(id uint64, state string) {
	p.t.Helper()
	var t apitype.Task
	defer func() {
		if p.t.Failed() {
			p.t.Logf("task %d is %s: %s", id, t.State, t.Reason.Message)
		}
	}()
	poll(p.t, fmt.Sprintf("task %d is %s", id, state), func() bool {
		var err error
		t, err = p.admin.Task(p.t.Context(), id)
		ok(p.t, err)
		return t.State == state
	})
}

// town fills a pool with something of everything that the page shows: it returns the
// tasks that tests look at.
func (p *pool) town() (running, waiting, failed uint64) {
	p.tenant("vision", apitype.TenantSpec{LimitGPUs: 12, Guarantee: 4, MaxWaiting: 50})
	p.tenant("speech", apitype.TenantSpec{Guarantee: 2})
	p.tenant("llm", apitype.TenantSpec{LimitGPUs: 40})
	running = p.submit(apitype.TaskSpec{Name: "finetune", Tenant: "llm", Pool: "research", GPUs: "2", Class: "training", Estimate: "2h", MaxRuntime: "4h"}).ID
	failed = p.submit(apitype.TaskSpec{Name: "crash", Tenant: "llm", Pool: "research", GPUs: "1/7", Command: []string{"sh", "-c", "echo CUDA error: out of luck >&2; exit 3"}}).ID
	lines := "* 0.7 0.5\n"
	lease := func(tenant, pool, name, gpus string, use float64) {
		l, err := p.admin.CreateLease(p.t.Context(), apitype.LeaseSpec{Name: name, Tenant: tenant, Pool: pool, GPUs: gpus, LeaseTTL: "2h"}, "")
		ok(p.t, err)
		lines += fmt.Sprintf("%d %.2f 0.3\n", l.ID, use)
	}
	for i := range 5 {
		lease("vision", "research", fmt.Sprintf("notebook-%d", i), "1/7", []float64{0, 0.12, 0.5, 0.93, 0.01}[i])
	}
	for i := range 4 {
		lease("speech", "serving", fmt.Sprintf("asr-%d", i), "3g.40gb", []float64{0.35, 0.8, 0.97, 0}[i])
	}
	for i := range 6 {
		lease("llm", "serving", fmt.Sprintf("serve-%d", i), "20GiB", 0.2+0.14*float64(i))
	}
	lease("vision", "serving", "batch", "2", 0.99)
	lease("speech", "research", "train", "1", 0.64)
	p.load(lines)
	p.reach(running, "running")
	p.reach(failed, "failed")
	waiting = p.submit(apitype.TaskSpec{Name: "pretrain", Tenant: "llm", Pool: "research", GPUs: "8", Members: 2, Estimate: "6h", Priority: "high"}).ID
	p.submit(apitype.TaskSpec{Name: "sweep", Tenant: "vision", Pool: "research", GPUs: "3", Estimate: "1h", MaxRuntime: "2h", Priority: "low"})
	p.submit(apitype.TaskSpec{Name: "eval", Tenant: "speech", Pool: "research", GPUs: "8", Estimate: "30m"})
	p.submit(apitype.TaskSpec{Name: "held-back", Tenant: "speech", Pool: "serving", GPUs: "1", Hold: true})
	time.Sleep(2500 * time.Millisecond) // two scans, so that use is known: a picture needs it, no assertion does
	return running, waiting, failed
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func poll(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(soon); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %s it is still not so that %s", soon, what)
		}
	}
}
