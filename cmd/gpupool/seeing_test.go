package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
)

// seeing is a server that Prometheus watches, whose alerts go through Alertmanager to us.
// Times are compressed: a scrape and an evaluation take place each second, and what the
// rules say in minutes and hours (for, and windows) is a few seconds. Expressions, labels
// and bounds are as they are delivered; that the real times are right is for promtool
// (internal/metrics, TestPromtool).
type seeing struct {
	*testServer
	dir    string
	prom   string // address
	client *client.Client

	mu   sync.Mutex
	told map[string]bool // alerts by name: whether Alertmanager last said that one fires
	once map[string]bool // that it said so at all
}

// TestSeeing proves the way from the server to a person: every query of every dashboard has
// data, and every alert fires when it is provoked, reaches Alertmanager, and resolves.
func TestSeeing(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	for _, tool := range []string{"prometheus", "prometheus-alertmanager"} {
		if _, err := exec.LookPath(tool); err != nil && os.Getenv("CI") != "" {
			t.Fatalf("%s is missing: make prometheus installs it", tool)
		} else if err != nil {
			t.Skipf("%s is missing: make prometheus installs it", tool)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	dir := t.TempDir()
	s := &seeing{testServer: &testServer{t: t, data: filepath.Join(dir, "data"), shape: "2x4xH100-80GB", addr: freeAddr(t)}, dir: dir,
		told: map[string]bool{}, once: map[string]bool{}}
	t.Cleanup(func() {
		s.end(syscall.SIGKILL)
		for _, p := range processes(s.data) {
			var pid int
			if n, _ := fmt.Sscan(p, &pid); n == 1 {
				syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck // gone already, then
			}
		}
	})
	s.settings("alerts: {journal_above: 1us, carves_failed_above: 0, overdue_above: 1s}\nagent: {cpu_below: 0.01%, memory_below: 1MiB}\n")
	s.start()
	s.client = s.up(ctx)
	s.watch(ctx)

	s.fires("GpupoolUtilisationLow") // nothing runs yet
	load, rest := context.WithCancel(ctx)
	defer rest()
	loaded := s.load(load)
	s.lend(ctx)
	s.crowd(ctx)
	s.breakdown(ctx)
	s.fires("GpupoolJournalSlow", "GpupoolCostsCPU", "GpupoolCostsMemory")
	s.dashboards(ctx)
	rest()
	<-loaded

	s.end(syscall.SIGKILL)
	s.fires("GpupoolNoLeader")
	s.settings("alerts: {journal_above: 60s, utilisation_below: 0%}\nagent: {cpu_below: 100%, memory_below: 100GiB}\n") // calm again
	s.start()
	s.client = s.up(ctx)
	s.resolves("GpupoolNoLeader", "GpupoolJournalSlow", "GpupoolCostsCPU", "GpupoolCostsMemory", "GpupoolUtilisationLow")
	s.allFired()
}

// settings writes the file that the next server is started with: two pools, of which one
// borrows from the other.
func (s *seeing) settings(more string) {
	s.write("gpupool.yaml", `pools:
  - {name: a, hosts: [fake-0001], mode: dynamic}
  - {name: b, hosts: [fake-0002], mode: dynamic, borrow_from: [a], ask_for_more_at: 1}
queue: {min_runtime: 0s}
elastic: {scan_every: 500ms, cooldown: 1s, guard: {moves_per_hour: 0, slowdown: 0%, failed_moves: 0%, failed_carves: 0}}
`+more)
}

func (s *seeing) write(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

func (s *seeing) start() {
	s.t.Helper()
	s.cmd = exec.Command(binary(s.t), "serve", "--config", filepath.Join(s.dir, "gpupool.yaml"), "--data", s.data, "--fake", s.shape, "--listen", s.addr)
	s.cmd.Stderr = &s.log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
}

// freeAddr is an address that nobody listens on.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// watch starts Prometheus and Alertmanager, and someone whom that tells.
func (s *seeing) watch(ctx context.Context) {
	s.t.Helper()
	person := httptest.NewServer(http.HandlerFunc(s.hear))
	s.t.Cleanup(person.Close)
	am := freeAddr(s.t)
	s.prom = freeAddr(s.t)
	s.write("alertmanager.yml", `route: {receiver: us, group_by: ['...'], group_wait: 0s, group_interval: 1s, repeat_interval: 1h}
receivers:
  - name: us
    webhook_configs: [{url: "`+person.URL+`", send_resolved: true}]
`)
	rules, err := os.ReadFile("../../deploy/prometheus/gpupool.rules.yml")
	if err != nil {
		s.t.Fatal(err)
	}
	quick := regexp.MustCompile(`for: \d+m`).ReplaceAllString(string(rules), "for: 1s")
	quick = regexp.MustCompile(`\[\d+[mh]\]`).ReplaceAllString(quick, "[12s]")
	s.write("gpupool.rules.yml", quick)
	token, err := os.ReadFile(filepath.Join(s.data, metricsTokenFile))
	if err != nil {
		s.t.Fatal(err)
	}
	s.write("prometheus.yml", `global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [gpupool.rules.yml]
alerting: {alertmanagers: [{static_configs: [{targets: ["`+am+`"]}]}]}
scrape_configs:
  - job_name: gpupool
    static_configs: [{targets: ["`+s.addr+`"]}]
    authorization: {credentials: "`+strings.TrimSpace(string(token))+`"}
`)
	s.run(ctx, "prometheus-alertmanager", "--config.file", "alertmanager.yml", "--storage.path", "am", "--web.listen-address", am, "--cluster.listen-address=")
	s.run(ctx, "prometheus", "--config.file", "prometheus.yml", "--storage.tsdb.path", "tsdb", "--web.listen-address", s.prom)
	s.poll("all targets are up", func() bool { return s.ask("up == 1") == 1 && s.ask("up == 0") == 0 })
}

// run starts a program and ends it with the test.
func (s *seeing) run(ctx context.Context, name string, args ...string) {
	s.t.Helper()
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stderr = s.dir, &said
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // gone already, then
		cmd.Wait()         //nolint:errcheck // killed
		if s.t.Failed() {
			s.t.Logf("%s said:\n%s", name, said.String())
		}
	})
}

// hear takes what Alertmanager has to say.
func (s *seeing) hear(_ http.ResponseWriter, r *http.Request) {
	var said struct {
		Alerts []struct {
			Status              string
			Labels, Annotations map[string]string
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&said); err != nil {
		s.t.Errorf("Alertmanager said what is not understood: %v", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range said.Alerts {
		key := a.Labels["alertname"]
		if a.Annotations["summary"] == "" || a.Annotations["runbook_url"] == "" || strings.Contains(a.Annotations["summary"], "error") {
			s.t.Errorf("%s says %v", key, a.Annotations)
		}
		s.once[key] = s.once[key] || a.Status == "firing"
		delete(a.Labels, "severity")
		s.told[fmt.Sprint(a.Labels)] = a.Status == "firing"
	}
}

// firing reports whether any alert of that name fires, as far as we were told.
func (s *seeing) firing(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for labels, on := range s.told {
		if on && strings.Contains(labels, "alertname:"+name+" ") {
			return true
		}
	}
	return false
}

func (s *seeing) fires(names ...string) {
	s.t.Helper()
	for _, n := range names {
		s.poll(n+" fires and reaches us", func() bool { return s.firing(n) })
	}
}

func (s *seeing) resolves(names ...string) {
	s.t.Helper()
	for _, n := range names {
		s.poll(n+" resolves", func() bool { return !s.firing(n) })
	}
}

// allFired checks that no alert of the rules was left out.
func (s *seeing) allFired() {
	s.t.Helper()
	rules, err := os.ReadFile("../../deploy/prometheus/gpupool.rules.yml")
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(rules), -1) {
		if !s.once[m[1]] {
			s.t.Errorf("%s was never provoked here", m[1])
		}
	}
}

func (s *seeing) poll(what string, done func() bool) {
	s.t.Helper()
	for range 900 {
		if done() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.t.Fatalf("not within 90 s: %s; we were told %v; the server said:\n%s", what, s.told, s.log.String())
}

// ask is how many series a query returns that have a number.
func (s *seeing) ask(query string) int {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+s.prom+"/api/v1/query?query="+url.QueryEscape(query), http.NoBody)
	if err != nil {
		return 0
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0 // it is not up yet
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	var out struct {
		Error string
		Data  struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := json.Unmarshal(b, &out); err != nil || out.Error != "" {
		s.t.Logf("%s: %v %s", query, err, out.Error)
		return 0
	}
	n := 0
	for _, r := range out.Data.Result {
		if r.Value[1] != "NaN" {
			n++
		}
	}
	return n
}

func (s *seeing) submit(ctx context.Context, x apitype.TaskSpec) uint64 {
	s.t.Helper()
	if x.Command == nil {
		x.Command = []string{"sleep", "600"}
	}
	t, err := s.client.Submit(ctx, x, "")
	if err != nil {
		s.t.Fatal(err)
	}
	return t.ID
}

func (s *seeing) state(ctx context.Context, id uint64) string {
	t, err := s.client.Task(ctx, id)
	if err != nil {
		return err.Error()
	}
	return t.State
}

func (s *seeing) awaits(ctx context.Context, id uint64, state string) {
	s.t.Helper()
	s.poll(fmt.Sprintf("task %d is %s", id, state), func() bool { return s.state(ctx, id) == state })
}

func (s *seeing) cancel(ctx context.Context, ids ...uint64) {
	s.t.Helper()
	for _, id := range ids {
		if _, err := s.client.Cancel(ctx, id); err != nil {
			s.t.Fatal(err)
		}
	}
}

// load keeps the pools busy with small things until ctx ends: tasks of two tenants that come
// and go and fail, one that is parked and woken, and submissions that are refused.
func (s *seeing) load(ctx context.Context) (done chan struct{}) {
	s.t.Helper()
	for name, spec := range map[string]apitype.TenantSpec{"ann": {LimitGPUs: 8, Guarantee: 0.1}, "bob": {LimitGPUs: 8}, "eve": {Guarantee: 2}} {
		if _, err := s.client.PutTenant(ctx, name, spec); err != nil {
			s.t.Fatal(err)
		}
	}
	s.put("fake-load", "* 0.95 0.5\n")
	sleeper := s.submit(ctx, apitype.TaskSpec{Tenant: "ann", Pool: "a", GPUs: "1", Class: "interactive", OnIdle: "keep", NoPreempt: true})
	done = make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			code := fmt.Sprintf("exit %d", i%2)
			for _, tenant := range []string{"ann", "bob"} { // what is full or refused is load too
				s.client.Submit(ctx, apitype.TaskSpec{Tenant: tenant, Pool: "a", GPUs: "1g.10gb", Class: "inference", Priority: "high", Command: []string{"sh", "-c", code}}, "") //nolint:errcheck // see above
			}
			s.client.Submit(ctx, apitype.TaskSpec{Tenant: "bob", Pool: "a", GPUs: "64"}, "") //nolint:errcheck // it is to be refused
			if i%2 == 0 {
				s.client.Park(ctx, sleeper) //nolint:errcheck // it may not have woken yet
			} else {
				s.client.Wake(ctx, sleeper) //nolint:errcheck // it may not be parked yet
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
	return done
}

func (s *seeing) put(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.data, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// lend lets pool b borrow from a, and a take it back.
func (s *seeing) lend(ctx context.Context) {
	s.t.Helper()
	var all []uint64
	for range 6 { // four fit, two more wait, which is beyond ask_for_more_at
		all = append(all, s.submit(ctx, apitype.TaskSpec{Tenant: "bob", Pool: "b", GPUs: "1", Grace: "1s"}))
	}
	s.poll("a GPU of a is lent to b", func() bool { return s.ask(`gpupool_lent_gpus{lender="a", borrower="b"} > 0`) == 1 })
	for range 4 {
		all = append(all, s.submit(ctx, apitype.TaskSpec{Tenant: "ann", Pool: "a", GPUs: "1", Priority: "high"}))
	}
	s.poll("it was asked back", func() bool { return s.ask(`gpupool_loan_return_seconds_total > 0`) == 1 })
	s.resolves("GpupoolUtilisationLow")
	s.cancel(ctx, all...)
}

// crowd fills pool b with what nobody may take away, and lets many wait for it.
func (s *seeing) crowd(ctx context.Context) {
	s.t.Helper()
	var all []uint64
	for range 8 { // of both pools, as b borrows
		all = append(all, s.submit(ctx, apitype.TaskSpec{Tenant: "bob", Pool: "a", GPUs: "1", Priority: "high", NoPreempt: true}))
	}
	for range 4 {
		all = append(all, s.submit(ctx, apitype.TaskSpec{Tenant: "ann", Pool: "b", GPUs: "1", Priority: "high", NoPreempt: true}))
	}
	for range 7 {
		all = append(all, s.submit(ctx, apitype.TaskSpec{Tenant: "eve", Pool: "b", GPUs: "4", TTL: "40s", NoPreempt: true}))
	}
	s.fires("GpupoolTasksWaiting", "GpupoolQuotaStarved", "GpupoolWaitNearsTTL")
	for _, id := range all {
		s.client.Cancel(ctx, id) //nolint:errcheck // some have expired by now
	}
	s.resolves("GpupoolTasksWaiting", "GpupoolQuotaStarved", "GpupoolWaitNearsTTL")
}

// breakdown breaks things one after the other, and mends them.
func (s *seeing) breakdown(ctx context.Context) {
	s.t.Helper()
	id := s.submit(ctx, apitype.TaskSpec{Tenant: "bob", Pool: "b", GPUs: "1"})
	s.awaits(ctx, id, "running")
	s.put("fake-faults", "free\n")
	s.cancel(ctx, id)
	s.fires("GpupoolSlicesOverdue")
	s.put("fake-faults", "")
	s.resolves("GpupoolSlicesOverdue")

	s.put("fake-faults", "carve\n")
	id = s.submit(ctx, apitype.TaskSpec{Tenant: "bob", Pool: "b", GPUs: "1"})
	s.fires("GpupoolCarvesFail")
	s.put("fake-faults", "")
	s.resolves("GpupoolCarvesFail")
	s.cancel(ctx, id)

	gpu := ""
	for g, err := range s.client.GPUs(ctx, client.GPUQuery{Pool: "b"}) {
		if err != nil {
			s.t.Fatal(err)
		}
		gpu = g.ID
	}
	s.put("fake-faults", "lose "+gpu+"\n")
	s.fires("GpupoolGPUUnhealthy")
	s.put("fake-faults", "")
	s.resolves("GpupoolGPUUnhealthy")

	s.put("fake-faults", "drain "+gpu+" XID 48\nxid "+gpu+" 31\n")
	s.fires("GpupoolGPUSetAside")
	s.put("fake-faults", "")
	s.resolves("GpupoolGPUSetAside")

	for _, x := range []struct {
		mode string
		then func(...string)
	}{{"static", s.fires}, {"dynamic", s.resolves}} {
		if _, err := s.client.SetMode(ctx, "b", x.mode); err != nil {
			s.t.Fatal(err)
		}
		x.then("GpupoolFellBack")
	}
}

// dashboards asks every query of every panel and every variable.
func (s *seeing) dashboards(ctx context.Context) {
	s.t.Helper()
	files, err := filepath.Glob("../../deploy/grafana/*.json")
	if err != nil || len(files) < 4 {
		s.t.Fatalf("there are no dashboards: %v", err)
	}
	asked := 0
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, q := range queriesOf(s.t, b) {
			s.poll(filepath.Base(file)+" has data for "+q, func() bool { return ctx.Err() != nil || s.ask(q) > 0 })
			asked++
		}
	}
	if ctx.Err() != nil {
		s.t.Fatal(ctx.Err())
	}
	s.t.Logf("%d queries of %d dashboards have data", asked, len(files))
}

// queriesOf lists what a dashboard asks, with all values chosen for its variables.
func queriesOf(t *testing.T, dashboard []byte) (out []string) {
	t.Helper()
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct {
				Name  string
				Query any
			}
		}
	}
	if err := json.Unmarshal(dashboard, &d); err != nil {
		t.Fatal(err)
	}
	fill := func(q string) string {
		q = strings.NewReplacer("$__rate_interval", "20s", "$__range", "1m").Replace(q)
		return regexp.MustCompile(`\$\w+`).ReplaceAllString(q, ".*")
	}
	for _, v := range d.Templating.List {
		if q, is := v.Query.(string); is && strings.HasPrefix(q, "label_values(") {
			inner := strings.TrimSuffix(strings.TrimPrefix(q, "label_values("), ")")
			at := strings.LastIndex(inner, ",")
			out = append(out, fmt.Sprintf("count by (%s) (%s)", strings.TrimSpace(inner[at+1:]), fill(inner[:at])))
		}
	}
	for _, p := range d.Panels {
		for _, x := range p.Targets {
			out = append(out, fill(x.Expr))
		}
	}
	return out
}
