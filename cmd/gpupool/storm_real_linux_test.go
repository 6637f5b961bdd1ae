package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/cli"
	"github.com/gpupool/gpupool/internal/config"
	"github.com/gpupool/gpupool/internal/host"
	"github.com/gpupool/gpupool/internal/journal/portable"
)

// TestRealStorm lets three real servers share a Redis with two replicas and three
// sentinels, each machine in a network namespace of its own, while clients keep submitting;
// then machines are killed, paused, cut off, and run out of disk. At the end every
// acknowledgement is checked: nothing may be lost, run twice, or written by a server
// that led no more. GPUPOOL_STORM_FAULTS says how many faults (make storm-real: 100).
func TestRealStorm(t *testing.T) {
	faults := 6
	if testing.Short() {
		faults = 3
	}
	if s := os.Getenv("GPUPOOL_STORM_FAULTS"); s != "" {
		var err error
		if faults, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("GPUPOOL_STORM_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d (GPUPOOL_STORM_SEED)", seed)
	s := newStorm(t, seed)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(faults+6)*time.Minute)
	defer cancel()
	s.start(ctx)
	flow, stop := context.WithCancel(ctx)
	var clients sync.WaitGroup
	for c := range 3 {
		clients.Go(func() { s.submit(flow, c) })
	}
	order := s.order(faults)
	for n, f := range order {
		s.settle(ctx)
		took := s.strike(ctx, f)
		t.Logf("%3d of %d: %-42s an acknowledgement after %s", n+1, len(order), f.name, took.Round(time.Millisecond))
		s.checkTokens()
	}
	s.settle(ctx)
	stop()
	clients.Wait()
	s.judge(ctx)
}

// storm is one run.
type storm struct {
	t       *testing.T
	net     *network
	rng     *rand.Rand
	dir     string // of all that the run writes
	out     string // each task appends to a file of its own here
	redis   []*stormRedis
	servers []*member
	nodes   map[*member]string
	http    *http.Client
	journal string

	mu      sync.Mutex
	acked   map[string]uint64 // task by key
	asked   int
	began   time.Time       // of the fault that is waited for
	first   chan struct{}   // closed at the first acknowledgement of what was asked for after it
	took    []time.Duration // of faults that hit whoever leads, or the store
	retries int
	deposed int // records that a server wrote that led no more
	records int // that were looked at
}

// stormRedis is one Redis on a machine of its own, over a small disk.
type stormRedis struct {
	node, addr, dir string
	cmd             *exec.Cmd
}

// fault is something that goes wrong for a while.
type fault struct {
	name   string
	counts bool          // it takes away whoever leads, or the store
	lasts  time.Duration // at least, after the first acknowledgement
	hurt   func() (heal func())
}

const redisDisk = "size=96m"

func newStorm(t *testing.T, seed uint64) *storm {
	s := &storm{t: t, net: newNetwork(t), rng: rand.New(rand.NewPCG(seed, 1)), acked: map[string]uint64{}, nodes: map[*member]string{}}
	s.dir, s.out = t.TempDir(), filepath.Join(t.TempDir(), "out")
	if err := os.Mkdir(s.out, 0o700); err != nil {
		t.Fatal(err)
	}
	data, err := filepath.EvalSymlinks(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	data = filepath.Join(data, "data")
	t.Cleanup(func() { killAll(data) })
	s.net.add("c", 100)
	s.http = &http.Client{Transport: &http.Transport{DialContext: s.net.dial("c"), ResponseHeaderTimeout: 20 * time.Second, MaxIdleConnsPerHost: 16}}
	for i := range 3 {
		r := &stormRedis{node: fmt.Sprint("r", i), dir: filepath.Join(s.dir, fmt.Sprint("redis", i))}
		r.addr = s.net.add(r.node, 11+i)
		if err := os.Mkdir(r.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount("tmpfs", r.dir, "tmpfs", 0, redisDisk); err != nil {
			t.Fatalf("a small disk cannot be made: %v", err)
		}
		t.Cleanup(func() {
			r.end(syscall.SIGKILL)
			if err := syscall.Unmount(r.dir, syscall.MNT_DETACH); err != nil {
				t.Errorf("a small disk cannot be taken away: %v", err)
			}
		})
		s.redis = append(s.redis, r)
	}
	var sentinels []string
	for i := range 3 {
		node := fmt.Sprint("s", i)
		addr := s.net.add(node, 21+i)
		sentinels = append(sentinels, addr+":26379")
		m := &member{t: t, data: data, url: "http://" + addr + ":8470", http: s.http}
		s.nodes[m] = node
		s.servers = append(s.servers, m)
	}
	s.journal = "redis+sentinel://" + strings.Join(sentinels, ",") + "/primary"
	conf := filepath.Join(s.dir, "gpupool.yaml")
	text := fmt.Sprintf("server: {keep_ended: 1000000}\nallocation: {retries: 1000}\nqueue: {capacity: 0, ask_for_more_at: 0, ttl: 0s}\njournal: {url: %q, min_replicas: 1}\n", s.journal)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, m := range s.servers {
		listen := strings.TrimPrefix(m.url, "http://")
		m.args = []string{"nsenter", "--net=/run/netns/" + s.net.prefix + s.nodes[m], binary(t), "serve", "--config", conf, "--data", data, "--fake", "2x8xH100-80GB", "--listen", listen, "--insecure"}
		t.Cleanup(func() {
			m.end(syscall.SIGKILL)
			if t.Failed() {
				t.Logf("%s said:\n%s", m.url, m.log.String())
			}
		})
	}
	return s
}

func (r *stormRedis) end(sig syscall.Signal) {
	if r.cmd == nil {
		return
	}
	r.cmd.Process.Signal(syscall.SIGCONT) //nolint:errcheck // it may be gone
	r.cmd.Process.Signal(sig)             //nolint:errcheck // it may be gone
	r.cmd.Wait()                          //nolint:errcheck // killed
	r.cmd = nil
}

// up starts a Redis over what its disk holds.
func (s *storm) up(r *stormRedis) {
	s.t.Helper()
	conf := filepath.Join(r.dir, "redis.conf")
	if _, err := os.Stat(conf); err != nil {
		text := fmt.Sprintf("port 6379\nbind 0.0.0.0\nprotected-mode no\ndir %s\nsave \"\"\nappendonly yes\nappendfsync always\nauto-aof-rewrite-min-size 8mb\nrepl-diskless-sync-delay 0\nrepl-ping-replica-period 1\nlogfile %s/log\n", r.dir, r.dir)
		if r != s.redis[0] {
			text += "replicaof " + s.redis[0].addr + " 6379\n"
		}
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	r.cmd = s.net.command(r.node, "redis-server", conf)
	if err := r.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
}

// cli asks a Redis or a sentinel something, from the clients' machine.
func (s *storm) cli(addr, port string, args ...string) string {
	out, _ := s.net.command("c", "timeout", append([]string{"2", "redis-cli", "-h", addr, "-p", port, "--raw"}, args...)...).Output()
	return string(out)
}

func (s *storm) start(ctx context.Context) {
	for _, r := range s.redis {
		s.up(r)
	}
	for _, m := range s.servers {
		node := s.nodes[m]
		conf := filepath.Join(s.dir, "sentinel-"+node+".conf")
		text := fmt.Sprintf("port 26379\nbind 0.0.0.0\nprotected-mode no\ndir %s\nlogfile %s.log\nsentinel monitor primary %s 6379 2\nsentinel down-after-milliseconds primary 1000\nsentinel failover-timeout primary 4000\nsentinel parallel-syncs primary 2\n",
			s.dir, conf, s.redis[0].addr)
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			s.t.Fatal(err)
		}
		cmd := s.net.command(node, "redis-sentinel", conf)
		if err := cmd.Start(); err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() {
			cmd.Process.Kill() //nolint:errcheck // gone already, then
			cmd.Wait()         //nolint:errcheck // killed
		})
		m.start()
	}
	s.settle(ctx)
}

// primary is the Redis that sentinel says is the primary, when all is well: its replicas
// are in step, and the sentinels know each other.
func (s *storm) primary() *stormRedis {
	said := map[string]int{}
	for _, m := range s.servers {
		addr, _, _ := strings.Cut(strings.TrimPrefix(m.url, "http://"), ":")
		if about := s.cli(addr, "26379", "sentinel", "master", "primary"); !strings.Contains(about, "num-other-sentinels\n2\n") || !strings.Contains(about, "num-slaves\n2\n") || !strings.Contains(about, "flags\nmaster\n") {
			return nil
		}
		at, _, _ := strings.Cut(s.cli(addr, "26379", "sentinel", "get-master-addr-by-name", "primary"), "\n")
		said[at]++
	}
	for _, r := range s.redis {
		if said[r.addr] == 3 && strings.Count(s.cli(r.addr, "6379", "info", "replication"), "state=online") == 2 {
			return r
		}
	}
	return nil
}

// leader is who leads, when the others follow.
func (s *storm) leader(ctx context.Context) (leader *member) {
	followers := 0
	for _, m := range s.servers {
		switch m.role(ctx) {
		case "leader":
			if leader != nil {
				return nil
			}
			leader = m
		case "follower":
			followers++
		}
	}
	if followers != len(s.servers)-1 {
		return nil
	}
	return leader
}

// settle waits until all is well.
func (s *storm) settle(ctx context.Context) {
	s.t.Helper()
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		if s.primary() != nil && s.leader(ctx) != nil {
			return
		}
	}
	for _, r := range s.redis {
		log, _ := os.ReadFile(filepath.Join(r.dir, "log"))
		s.t.Logf("%s said:\n%s", r.addr, log[max(0, len(log)-3000):])
	}
	for _, m := range s.servers {
		addr, _, _ := strings.Cut(strings.TrimPrefix(m.url, "http://"), ":")
		log, _ := os.ReadFile(filepath.Join(s.dir, "sentinel-"+s.nodes[m]+".conf.log"))
		s.t.Logf("%s is a %q; its sentinel says:\n%s\n%s", m.url, m.role(ctx), s.cli(addr, "26379", "sentinel", "master", "primary"), log[max(0, len(log)-2000):])
	}
	s.t.Fatal("the servers and the store did not come together again")
}

// faults are all that can go wrong.
func (s *storm) faults() []fault {
	pick := func() *member { return s.servers[s.rng.IntN(len(s.servers))] }
	lead := func() *member { return s.leader(context.Background()) }
	kill := func(m *member) func() {
		m.end(syscall.SIGKILL)
		return m.start
	}
	pause := func(m *member) func() {
		m.signal(syscall.SIGSTOP)
		return func() { m.signal(syscall.SIGCONT) }
	}
	off := func(node string) func() {
		s.net.cut(node, true)
		return func() { s.net.cut(node, false) }
	}
	return []fault{
		{"the leader is killed", true, 0, func() func() { return kill(lead()) }},
		{"the leader is paused", true, 4 * time.Second, func() func() { return pause(lead()) }},
		{"the leader is cut off from all", true, 2 * time.Second, func() func() { return off(s.nodes[lead()]) }},
		{"the leader is cut off from the store alone", true, 2 * time.Second, func() func() {
			node, addrs := s.nodes[lead()], []string{s.redis[0].addr, s.redis[1].addr, s.redis[2].addr}
			s.net.block(node, true, addrs...)
			return func() { s.net.block(node, false, addrs...) }
		}},
		{"any server is killed", false, 0, func() func() { return kill(pick()) }},
		{"any server is paused", false, time.Second, func() func() { return pause(pick()) }},
		{"the primary of the store is killed", true, time.Second, func() func() {
			r := s.primary()
			r.end(syscall.SIGKILL)
			return func() { s.up(r) }
		}},
		{"the primary of the store is paused", true, 2 * time.Second, func() func() {
			r := s.primary()
			r.cmd.Process.Signal(syscall.SIGSTOP)                   //nolint:errcheck // it runs
			return func() { r.cmd.Process.Signal(syscall.SIGCONT) } //nolint:errcheck // it runs
		}},
		{"the primary of the store is cut off", true, 2 * time.Second, func() func() { return off(s.primary().node) }},
		{"a replica of the store is killed", false, time.Second, func() func() {
			r := s.redis[s.rng.IntN(3)]
			for r == s.primary() {
				r = s.redis[s.rng.IntN(3)]
			}
			r.end(syscall.SIGKILL)
			return func() { s.up(r) }
		}},
		{"the store fails over", true, 0, func() func() {
			addr, _, _ := strings.Cut(strings.TrimPrefix(s.servers[0].url, "http://"), ":")
			s.cli(addr, "26379", "sentinel", "failover", "primary")
			return func() {}
		}},
		{"the disk of the primary is full", true, time.Second, func() func() {
			r := s.primary()
			fill := filepath.Join(r.dir, "fill")
			exec.Command("dd", "if=/dev/zero", "of="+fill, "bs=64k").Run() //nolint:errcheck // it ends when the disk is full, as an error
			return func() {
				os.Remove(fill) //nolint:errcheck // then the store does not come back, which is seen
				r.end(syscall.SIGKILL)
				s.up(r)
			}
		}},
	}
}

// order is what happens: each fault as often as any other, in any order.
func (s *storm) order(n int) (out []fault) {
	for len(out) < n {
		all := s.faults()
		s.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		out = append(out, all...)
	}
	return out[:n]
}

// strike lets a fault happen and heal, and says how long nothing was acknowledged.
func (s *storm) strike(ctx context.Context, f fault) time.Duration {
	s.t.Helper()
	heal := f.hurt()
	began, first := time.Now(), make(chan struct{})
	s.mu.Lock()
	s.began, s.first = began, first
	s.mu.Unlock()
	select {
	case <-first:
	case <-time.After(time.Minute):
		s.t.Errorf("%s: nothing was acknowledged for a minute", f.name)
	case <-ctx.Done():
		s.t.Fatal("the storm took too long")
	}
	took := time.Since(began)
	if f.counts {
		s.took = append(s.took, took)
	}
	time.Sleep(f.lasts + time.Duration(s.rng.IntN(1000))*time.Millisecond) // the fault lasts: this is the input of this test
	heal()
	return took
}

// submit is one client: it asks any server, again and again with the same key, until it
// is told a task.
func (s *storm) submit(ctx context.Context, c int) {
	rng := rand.New(rand.NewPCG(uint64(c), 2))
	for n := 0; ctx.Err() == nil; n++ {
		key := fmt.Sprintf("%d-%d", c, n)
		file, owner := filepath.Join(s.out, key), "$GPUPOOL_TASK.$GPUPOOL_EPOCH.$GPUPOOL_MEMBER"
		spec := apitype.TaskSpec{GPUs: "1/7", Name: key, Command: []string{"/bin/sh", "-c", fmt.Sprintf("echo begin %s >> %s; sleep 0.%d; echo end %s >> %s", owner, file, rng.IntN(10), owner, file)}}
		s.mu.Lock()
		s.asked++
		s.mu.Unlock()
		for ctx.Err() == nil {
			m := s.servers[rng.IntN(len(s.servers))]
			asked := time.Now()
			if id, err := s.ask(ctx, m, spec, key); err == nil {
				s.note(key, id, asked)
				break
			}
			s.mu.Lock()
			s.retries++
			s.mu.Unlock()
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(time.Duration(200+rng.IntN(300)) * time.Millisecond) // how often they ask is the input of this test
	}
}

func (s *storm) ask(ctx context.Context, m *member, spec apitype.TaskSpec, key string) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	token, err := os.ReadFile(filepath.Join(m.data, cli.AdminTokenFile))
	if err != nil {
		return 0, err
	}
	c, err := client.New(m.url, strings.TrimSpace(string(token)), client.WithRetry(0), client.WithHTTPClient(s.http))
	if err != nil {
		return 0, err
	}
	t, err := c.Submit(ctx, spec, key)
	return t.ID, err
}

// note keeps an acknowledgement.
func (s *storm) note(key string, id uint64, asked time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was, again := s.acked[key]; again && was != id {
		s.t.Errorf("%s was acknowledged as task %d and as task %d", key, was, id)
	}
	s.acked[key] = id
	if s.first != nil && asked.After(s.began) {
		close(s.first)
		s.first = nil
	}
}

// checkTokens looks for a record that was written in a term older than the one before it.
func (s *storm) checkTokens() {
	s.t.Helper()
	const script = `local last, from, bad, n = 0, '-', 0, 0
while true do
  local page = redis.call('XRANGE', KEYS[1], from, '+', 'COUNT', 1000)
  if #page == 0 then break end
  for _, e in ipairs(page) do
    local t = tonumber(e[2][6])
    if t < last then bad = bad + 1 end
    last, n, from = t, n + 1, '(' .. e[1]
  end
end
return bad .. ' ' .. n`
	for range 50 {
		if r := s.primary(); r != nil {
			var bad, n int
			if _, err := fmt.Sscan(s.cli(r.addr, "6379", "eval", script, "1", "gpupool:{gpupool}:facts"), &bad, &n); err == nil {
				s.deposed, s.records = max(s.deposed, bad), max(s.records, n)
				if bad > 0 {
					s.t.Errorf("%d of %d records were written by a server that led no more", bad, n)
				}
				return
			}
		}
		time.Sleep(200 * time.Millisecond)
	}
	s.t.Error("the records could not be looked at")
}

// judge replays every acknowledgement.
func (s *storm) judge(ctx context.Context) {
	s.t.Helper()
	live := s.drain(ctx)
	lost, doubled, notRun := 0, 0, 0
	names := map[string]uint64{}
	for id, t := range live {
		if was, again := names[t.Name]; again {
			doubled++
			s.t.Errorf("%s was accepted twice, as tasks %d and %d", t.Name, was, id)
		}
		names[t.Name] = id
	}
	for key, id := range s.acked {
		t, known := live[id]
		switch {
		case !known || t.Name != key:
			lost++
			s.t.Errorf("%s was acknowledged as task %d, which is lost", key, id)
			continue
		case t.State != "succeeded":
			s.t.Errorf("task %d is %s, want succeeded: %+v", id, t.State, t)
		}
		runs, ends := s.runs(key)
		if ends == 0 {
			notRun++
			s.t.Errorf("task %d succeeded and never ran to its end", id)
		}
		if runs > 1 || ends > 1 {
			doubled++
			s.t.Errorf("task %d ran %d times, to its end %d times", id, runs, ends)
		}
	}
	s.checkTokens()
	s.replay(ctx, len(live))
	slices.Sort(s.took)
	p := func(q float64) time.Duration {
		if len(s.took) == 0 {
			return 0
		}
		return s.took[min(len(s.took)-1, int(q*float64(len(s.took))))].Round(time.Millisecond)
	}
	s.t.Logf("asked %d, acknowledged %d after %d repeated calls: lost %d, doubled %d, never run %d; %d of %d records written by a server that led no more; failover p50 %s, p95 %s, max %s over %d faults",
		s.asked, len(s.acked), s.retries, lost, doubled, notRun, s.deposed, s.records, p(0.5), p(0.95), p(1), len(s.took))
	if len(s.took) >= 20 && p(0.95) > 5*time.Second {
		s.t.Errorf("failover p95 is %s, want less than 5 s", p(0.95))
	}
}

// runs counts how often a task began, as any one epoch's member, and how often it ended.
func (s *storm) runs(key string) (runs, ends int) {
	b, err := os.ReadFile(filepath.Join(s.out, key))
	if err != nil {
		return 0, 0
	}
	began := map[string]int{}
	for line := range strings.Lines(string(b)) {
		what, owner, _ := strings.Cut(strings.TrimSpace(line), " ")
		if what == "end" {
			ends++
			continue
		}
		began[owner]++
		runs = max(runs, began[owner])
	}
	return runs, ends
}

// drain waits until nothing runs any more, and returns all tasks.
func (s *storm) drain(ctx context.Context) map[uint64]apitype.Task {
	s.t.Helper()
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
		m := s.leader(ctx)
		if m == nil {
			continue
		}
		token, err := os.ReadFile(filepath.Join(m.data, cli.AdminTokenFile))
		if err != nil {
			s.t.Fatal(err)
		}
		c, err := client.New(m.url, strings.TrimSpace(string(token)), client.WithHTTPClient(s.http))
		if err != nil {
			s.t.Fatal(err)
		}
		live, busy := map[uint64]apitype.Task{}, false
		for t, err := range c.Tasks(ctx, client.TaskQuery{}) {
			if err != nil {
				busy = true
				break
			}
			live[t.ID] = t
			busy = busy || !t.Terminal()
		}
		if !busy {
			return live
		}
	}
	s.t.Fatal("not all tasks ended")
	return nil
}

// replay copies the journal and makes the state of it again.
func (s *storm) replay(ctx context.Context, tasks int) {
	s.t.Helper()
	file := filepath.Join(s.dir, "journal.copy")
	if out, err := s.net.command("c", binary(s.t), "journal", "export", file, s.journal).CombinedOutput(); err != nil {
		s.t.Fatalf("the journal cannot be copied: %v\n%s", err, out)
	}
	f, err := portable.Open(file)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	c := config.Default()
	c.Server.Keep = 1_000_000
	w, err := host.Recover(ctx, engineConfig(cli.ServeOptions{Config: c}), f, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := w.Engine.Check(); err != nil {
		s.t.Error(err)
	}
	if n := len(w.Engine.Tasks()); n != tasks {
		s.t.Errorf("the journal gives %d tasks, %d were live", n, tasks)
	}
}
