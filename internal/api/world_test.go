package api_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/api"
	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/audit"
	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/driver/fake"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/host"
	"github.com/gpupool/gpupool/internal/journal/memory"
	"github.com/gpupool/gpupool/internal/runner"
	"github.com/gpupool/gpupool/internal/secrets"
	"github.com/gpupool/gpupool/internal/work"
)

// world is a whole server in this process: a real host over fake GPUs, a runner
// whose members do what the test says, and clients for three callers.
type world struct {
	t       testing.TB
	journal *memory.Journal
	audit   *audit.Log
	secrets secrets.Store
	drv     *fake.Driver
	runs    *members
	handler http.Handler
	host    *host.Host
	stop    func() // ends the host and waits for it
	change  func(*api.Config)

	url               string
	adminToken        string
	aliceToken        string
	bobToken          string
	admin, alice, bob *client.Client
}

type options struct {
	shape string      // of the cluster; default 2x8xH100-80GB
	pools []work.Pool // default one named main

	change func(*api.Config) // changes how the API is wired
}

// start makes a world behind an HTTP server.
func start(t testing.TB, o options) *world {
	w := build(t, o)
	srv := httptest.NewServer(w.handler)
	t.Cleanup(srv.Close)
	w.url = srv.URL
	w.admin = w.client(w.adminToken)
	for _, name := range []string{"alice", "bob"} {
		_, err := w.admin.PutTenant(t.Context(), name, apitype.TenantSpec{})
		ok(t, err)
	}
	w.aliceToken, w.bobToken = w.token("alice"), w.token("bob")
	w.alice, w.bob = w.client(w.aliceToken), w.client(w.bobToken)
	return w
}

// build makes a world without a network.
func build(t testing.TB, o options) *world {
	if o.shape == "" {
		o.shape = "2x8xH100-80GB"
	}
	if o.pools == nil {
		o.pools = []work.Pool{{Name: "main", Mode: work.Dynamic}}
	}
	hosts, err := fake.ParseHosts(o.shape)
	ok(t, err)
	w := &world{t: t, journal: memory.New(), secrets: secrets.Store{Dir: t.TempDir()}, runs: newMembers(), adminToken: newAdminToken(t)}
	w.audit, err = audit.Open(t.TempDir(), audit.Options{})
	ok(t, err)
	t.Cleanup(func() { ok(t, w.audit.Close()) })
	w.drv, err = fake.New(hosts, gpu.Builtin(), fake.Options{Times: fake.Times{SetMIG: -1, SetMIGSlow: -1, Create: -1, Destroy: -1, Whole: -1, Share: -1}})
	ok(t, err)
	w.change = o.change
	w.run()
	_, err = w.host.Do(context.Background(), engine.SetPools{Pools: o.pools})
	ok(t, err)
	w.poll("every host is up", func() bool {
		up := 0
		w.host.Read(func(e *engine.Engine) {
			for _, h := range e.Hosts() {
				if h.Up {
					up++
				}
			}
		})
		return up == len(hosts)
	})
	return w
}

func newAdminToken(t testing.TB) string {
	t.Helper()
	return api.NewAdminToken()
}

// run opens a host over the world's journal and serves it.
func (w *world) run() {
	var models []*gpu.Geometry
	for _, m := range gpu.Builtin() {
		models = append(models, gpu.NewGeometry(m))
	}
	log := slog.New(slog.DiscardHandler)
	h, err := host.Open(context.Background(), host.Config{Engine: engine.Config{Models: models}, Journal: w.journal, ObserveEvery: 20 * time.Millisecond,
		Drivers: map[string]driver.Driver{"fake": w.drv}, Runner: w.runs, Log: log})
	ok(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	w.host = h
	w.stop = sync.OnceFunc(func() {
		cancel()
		ok(w.t, <-ended)
	})
	w.t.Cleanup(w.stop)
	cfg := api.Config{Host: h, Logs: w.runs, AdminToken: api.HashToken(w.adminToken), Version: "test", Hardware: "fake GPUs", Log: log, Audit: w.audit, Secrets: w.secrets}
	if w.change != nil {
		w.change(&cfg)
	}
	w.handler, err = api.New(cfg)
	ok(w.t, err)
}

func (w *world) client(token string) *client.Client {
	c, err := client.New(w.url, token)
	ok(w.t, err)
	return c
}

func (w *world) token(tenant string) string {
	x, err := w.admin.CreateToken(w.t.Context(), tenant)
	ok(w.t, err)
	return x.Token
}

// role makes a named token of a role.
func (w *world) role(role, tenant string, readOnly bool) string {
	w.t.Helper()
	x, err := w.admin.MakeToken(w.t.Context(), apitype.TokenSpec{Name: "test", Role: role, Tenant: tenant, ReadOnly: readOnly})
	ok(w.t, err)
	return x.Token
}

// submit hands in a task of a tenant.
func (w *world) submit(c *client.Client, s apitype.TaskSpec) apitype.Task {
	w.t.Helper()
	if s.Command == nil {
		s.Command = []string{"work"}
	}
	task, err := c.Submit(w.t.Context(), s, "")
	ok(w.t, err)
	return task
}

// running submits a task and waits until it runs.
func (w *world) running(c *client.Client, s apitype.TaskSpec) apitype.Task {
	w.t.Helper()
	task := w.submit(c, s)
	w.poll("the task runs", func() bool {
		var err error
		task, err = c.Task(w.t.Context(), task.ID)
		ok(w.t, err)
		return task.State == "running"
	})
	return task
}

// held asks for a lease and waits until it is held.
func (w *world) held(c *client.Client, s apitype.LeaseSpec) apitype.Lease {
	w.t.Helper()
	l, err := c.CreateLease(w.t.Context(), s, "")
	ok(w.t, err)
	l, err = c.WaitLease(w.t.Context(), l.ID, time.Minute)
	ok(w.t, err)
	if l.State != "running" {
		w.t.Fatalf("lease is %+v, want it held", l)
	}
	return l
}

// finish ends a member of a running task.
func (w *world) finish(t apitype.Task, member, code int) {
	w.runs.end(runner.ID{Task: t.ID, Epoch: t.Epoch, Member: member}, runner.Exit{Code: code})
}

// print writes to the output of a member.
func (w *world) print(t apitype.Task, text string) {
	w.runs.print(runner.ID{Task: t.ID, Epoch: t.Epoch}, text)
}

func (w *world) poll(what string, done func() bool) {
	w.t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("after 20 s it is still not so that %s", what)
		}
	}
}

// answer is a raw HTTP answer.
type answer struct {
	status int
	header http.Header
	body   string
}

// call makes a raw request; header pairs follow the body.
func (w *world) call(token, method, path, body string, header ...string) answer {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, w.url+path, strings.NewReader(body))
	ok(w.t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	ok(w.t, err)
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, header: resp.Header}
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		return a // has no end
	}
	b, err := io.ReadAll(resp.Body)
	ok(w.t, err)
	a.body = string(b)
	return a
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// all collects an iterator.
func all[T any](t testing.TB, seq func(func(T, error) bool)) []T {
	t.Helper()
	var out []T
	for x, err := range seq {
		ok(t, err)
		out = append(out, x)
	}
	return out
}

// refused wants an error of a code and returns its sentence.
func refused(t testing.TB, err error, code work.Code) string {
	t.Helper()
	e, is := err.(*client.Error) //nolint:errorlint // methods of the client return it as it is
	if !is || e.Code != code || e.Detail == "" {
		t.Fatalf("got error %#v, want code %s", err, code)
	}
	return e.Detail
}

// members is a runner whose members write and end when told to.
type members struct {
	mu      sync.Mutex
	byID    map[runner.ID]*member
	banner  string        // what each that starts writes first
	changed chan struct{} // closed and replaced at every change
}

type member struct {
	out  []byte
	exit *runner.Exit
}

func newMembers() *members {
	return &members{byID: map[runner.ID]*member{}, changed: make(chan struct{})}
}

// change does something to a member and wakes those who wait.
func (r *members) change(id runner.ID, f func(*member)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.byID[id]
	if m == nil {
		m = &member{}
		r.byID[id] = m
	}
	f(m)
	close(r.changed)
	r.changed = make(chan struct{})
}

// see returns what a member is now, and what is closed when that may have changed.
func (r *members) see(id runner.ID) (out []byte, exit *runner.Exit, known bool, changed chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.byID[id]; m != nil {
		return m.out, m.exit, true, r.changed
	}
	return nil, nil, false, r.changed
}

func (r *members) print(id runner.ID, text string) {
	r.change(id, func(m *member) { m.out = append(m.out, text...) })
}

func (r *members) end(id runner.ID, exit runner.Exit) {
	r.change(id, func(m *member) {
		if m.exit == nil {
			m.exit = &exit
		}
	})
}

func (r *members) Start(_ context.Context, s runner.Spec) error {
	r.change(s.ID, func(m *member) {
		if m.out == nil {
			m.out = fmt.Appendf(nil, "%sstarted %s\n", r.banner, s.ID)
		}
	})
	return nil
}

func (r *members) Stop(_ context.Context, id runner.ID, _ time.Duration, _ string) error {
	if _, _, known, _ := r.see(id); known {
		r.end(id, runner.Exit{Code: 143, Signal: "SIGTERM"})
	}
	return nil
}

func (r *members) Wait(ctx context.Context, id runner.ID) (runner.Status, error) {
	for {
		_, exit, known, changed := r.see(id)
		if !known {
			exit = &runner.Exit{Lost: "not known"}
		}
		if exit != nil {
			return runner.Status{ID: id, State: runner.Exited, Exit: exit}, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return runner.Status{}, ctx.Err()
		}
	}
}

func (r *members) List(context.Context) ([]runner.Status, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []runner.Status
	for id := range r.byID {
		out = append(out, runner.Status{ID: id})
	}
	return out, nil
}

func (r *members) Forget(context.Context, runner.ID) error { return nil }

func (r *members) Logs(ctx context.Context, id runner.ID, o runner.LogOptions) (io.ReadCloser, error) {
	out, _, known, _ := r.see(id)
	if !known {
		return nil, fs.ErrNotExist
	}
	from := 0
	if lines := bytes.SplitAfter(out, []byte("\n")); o.Tail > 0 && len(lines)-1 > o.Tail {
		from = len(bytes.Join(lines[:len(lines)-1-o.Tail], nil))
	}
	return &logReader{ctx: ctx, r: r, id: id, at: from, follow: o.Follow}, nil
}

type logReader struct {
	ctx    context.Context
	r      *members
	id     runner.ID
	at     int
	follow bool
}

func (l *logReader) Read(b []byte) (int, error) {
	for {
		out, exit, _, changed := l.r.see(l.id)
		if n := copy(b, out[l.at:]); n > 0 {
			l.at += n
			return n, nil
		}
		if !l.follow || exit != nil {
			return 0, io.EOF
		}
		select {
		case <-changed:
		case <-l.ctx.Done():
			return 0, l.ctx.Err()
		}
	}
}

func (l *logReader) Close() error { return nil }
