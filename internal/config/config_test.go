package config

import (
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

var update = flag.Bool("update", false, "rewrite config.example.yaml and docs/config.schema.json")

func golden(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s differs from the tags of config.Config: run go test ./internal/config -update and look at the difference", path)
	}
}

func TestExampleAgrees(t *testing.T) {
	golden(t, "../../config.example.yaml", Example())
	c, err := Load("../../config.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(c, Default()) {
		t.Errorf("the example gives %+v, an empty file %+v", c, Default())
	}
}

func TestSchemaAgrees(t *testing.T) {
	b, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(b) {
		t.Fatal("the schema is not JSON")
	}
	golden(t, "../../docs/config.schema.json", string(b)+"\n")
}

// The numbers of DESIGN.md's table, by hand: a default that drifts is seen here.
func TestDefaults(t *testing.T) {
	c := Default()
	for _, x := range []struct {
		name      string
		got, want any
	}{
		{"low mark", c.Elastic.Low, Percent(0.6)}, {"high mark", c.Elastic.High, Percent(0.9)}, {"idle mark", c.Elastic.Idle, Percent(0.7)},
		{"smallest slice", c.Allocation.Smallest, "1/7"}, {"largest slice", c.Allocation.Largest, "1/2"},
		{"allocation timeout", c.Allocation.Timeout, Duration(30 * time.Second)}, {"queue TTL", c.Queue.TTL, Duration(time.Hour)},
		{"ask for more", c.Queue.AskForMore, 10}, {"back-pressure", c.Queue.BackPressure, Percent(0.8)},
		{"queue capacity", c.Queue.Capacity, 1000}, {"shortest run", c.Queue.MinRuntime, Duration(10 * time.Minute)},
		{"preemptions", c.Queue.Preemptions, 60}, {"scale-out cooldown", c.Queue.ScaleOut.Cooldown, Duration(10 * time.Minute)}, {"no hook", c.Queue.ScaleOut.Any(), false},
		{"sharers", c.Sharing.Tasks, 4}, {"scan", c.Elastic.Scan, Duration(5 * time.Second)},
		{"alert utilisation", c.Alerts.Utilisation, Percent(0.5)}, {"alert for", c.Alerts.For, Duration(5 * time.Minute)}, {"alert waiting", c.Alerts.Waiting, 5},
		{"priority weight", c.Queue.PriorityWeight, 0.7}, {"agent CPU", c.Agent.CPU, Percent(0.05)}, {"agent memory", c.Agent.Memory, Size(100)},
		{"pool size", [2]int{work.PoolSizeLow, work.PoolSizeHigh}, [2]int{8, 16}},
	} {
		if !reflect.DeepEqual(x.got, x.want) {
			t.Errorf("%s: got %v, DESIGN.md says %v", x.name, x.got, x.want)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, x := range []struct{ name, text, want string }{
		{"unknown section", "quue:\n  ttl: 1h\n", "quue"},
		{"unknown field", "queue:\n  tll: 1h\n", "tll"},
		{"bad duration", "queue:\n  ttl: soon\n", "expected a duration"},
		{"negative duration", "queue:\n  ttl: -1h\n", "expected a duration"},
		{"bad percent", "elastic:\n  low_mark: 0.6\n", "expected a share such as 60%"},
		{"percent over 100", "elastic:\n  low_mark: 160%\n", "expected a share"},
		{"marks crossed", "elastic:\n  low_mark: 95%\n", "at most high_mark"},
		{"idle after", "elastic:\n  idle_after: soon\n", "expected a duration such as 30s"},
		{"idle after of a class", "elastic:\n  idle_after: {training: 1s}\n", "elastic.idle_after.training (seconds): expected 10 to"},
		{"idle after of what is no class", "elastic:\n  idle_after: {notebooks: 1h}\n", "notebooks"},
		{"on idle", "elastic:\n  on_idle: {inference: sleep}\n", "elastic.on_idle.inference: expected keep, share, park or stop"},
		{"warn", "elastic:\n  warn: 0s\n", "elastic.warn (seconds): expected 1 to"},
		{"per task", "elastic:\n  per_task: 0\n", "elastic.per_task: expected 1 to"},
		{"exempt", "elastic:\n  exempt: [\"=x\"]\n", "elastic.exempt[0]: expected a tenant, or a label"},
		{"a key without a certificate", "server: {tls: {key: k.pem}}\n", "expected cert and key, or neither"},
		{"client certificates without TLS", "server: {tls: {client_ca: ca.pem}}\n", "client certificates need TLS"},
		{"old TLS", "server: {tls: {cert: c, key: k, min: \"1.0\"}}\n", "expected 1.2 or 1.3"},
		{"issuer in the clear", "auth: {oidc: {issuer: \"http://login.example.org\"}}\n", "expected an address such as https://"},
		{"any audience", "auth: {oidc: {issuer: \"https://login.example.org\", audience: \"\"}}\n", "tokens that were made for others"},
		{"no right", "auth: {oidc: {issuer: \"https://login.example.org\", tenant_claim: \"\"}}\n", "no token would give a right"},
		{"tenant of a certificate", "auth: {certificates: {tenant_from: o}}\n", "expected cn, ou or san"},
		{"word of a certificate", "auth: {certificates: {admins: [root]}}\n", "expected words such as cn=NAME"},
		{"calls", "limits: {calls_per_second: -1}\n", "limits.calls_per_second: expected 0 to"},
		{"audit files", "audit: {files: 0}\n", "audit.files: expected 1 to"},
		{"a folder in part", "tasks: {dirs: [home]}\n", "expected the whole path of a folder"},
		{"a folder above", "tasks: {dirs: [/home/../etc]}\n", "expected the whole path of a folder"},
		{"bad size", "agent:\n  memory_below: lots\n", "is not understood"},
		{"not yaml", "queue: [\n", "config.yaml"},
		{"pool twice", "pools:\n  - name: a\n  - name: a\n", "named twice"},
		{"pool mode", "pools:\n  - name: a\n    mode: magic\n", "static, shadow or dynamic"},
		{"pool name", "pools:\n  - name: a b\n", "one word"},
		{"weight", "queue:\n  priority_weight: 2\n", "expected 0 to 1"},
		{"weight NaN", "queue:\n  priority_weight: .nan\n", "expected 0 to 1"},
		{"borrow from itself", "pools:\n  - name: a\n    borrow_from: [a]\n", "cannot borrow from itself"},
		{"borrow from nobody", "pools:\n  - name: a\n    borrow_from: [b]\n", "pool \"b\" is not among"},
		{"borrow twice", "pools:\n  - name: a\n    borrow_from: [b, b]\n  - name: b\n", "named twice"},
		{"pool capacity", "pools:\n  - name: a\n    capacity: -1\n", "pools[0].capacity: expected 0 to"},
		{"pool weight", "pools:\n  - name: a\n    priority_weight: 7\n", "pools[0].priority_weight: expected 0 to 1"},
		{"pool ask", "pools:\n  - name: a\n    ask_for_more_at: -1\n", "pools[0].ask_for_more_at"},
		{"pool reserve", "pools:\n  - name: a\n    reserve_gpus: -1\n", "pools[0].reserve_gpus"},
		{"pool back-pressure", "pools:\n  - name: a\n    back_pressure_at: 0.8\n", "expected a share such as 60%"},
		{"capacity", "queue:\n  capacity: -1\n", "expected 0 to"},
		{"preemptions", "queue:\n  preemptions_per_hour: -1\n", "expected 0 to"},
		{"cooldown", "queue:\n  scale_out:\n    cooldown: 1s\n", "expected 10 to"},
		{"webhook", "queue:\n  scale_out:\n    webhook: example.org\n", "expected an address such as https://"},
		{"collector", "tracing:\n  endpoint: 127.0.0.1:4318\n", "expected an address such as http://127.0.0.1:4318"},
		{"empty command", "queue:\n  scale_out:\n    command: [\"\"]\n", "first word is empty"},
		{"sharers", "sharing:\n  tasks_per_gpu: 0\n", "expected 1 to 64"},
		{"slice", "allocation:\n  smallest_slice: 3\n", "expected a fraction"},
		{"a list where a section belongs", "queue: [1]\n", "config.yaml"},
	} {
		t.Run(x.name, func(t *testing.T) {
			_, err := Parse("config.yaml", []byte(x.text))
			if err == nil || !strings.Contains(err.Error(), x.want) || !strings.Contains(err.Error(), "config.yaml") {
				t.Errorf("got error %v, want one with the file and %q", err, x.want)
			}
		})
	}
}

func TestUnknownFieldNamesItsLine(t *testing.T) {
	_, err := Parse("config.yaml", []byte("queue:\n  ttl: 1h\n  tll: 2h\n"))
	if err == nil || !strings.Contains(err.Error(), "[3:") {
		t.Errorf("got %v, want an error that names line 3", err)
	}
}

func TestWorkPools(t *testing.T) {
	c, err := Parse("x", []byte("queue:\n  ttl: 2h\npools:\n  - name: a\n    hosts: [\"a-*\"]\n    mode: static\n    ttl: 10m\n  - name: b\n"))
	if err != nil {
		t.Fatal(err)
	}
	ps := c.WorkPools()
	if len(ps) != 2 || ps[0].TTL != 10*time.Minute || ps[0].Mode != "static" || ps[1].TTL != 2*time.Hour || ps[1].Mode != "dynamic" {
		t.Errorf("got %+v", ps)
	}
}

// TestWorkPoolsQueue: what a pool leaves out is the queue's, and zero is a value.
func TestWorkPoolsQueue(t *testing.T) {
	c, err := Parse("x", []byte(`
queue: {capacity: 50, back_pressure_at: 60%, ask_for_more_at: 5, priority_weight: 0.5, min_runtime: 1m, preemptions_per_hour: 6, scale_out: {command: [more], cooldown: 2m}}
pools:
  - {name: a, capacity: 0, ask_for_more_at: 0, back_pressure_at: 0%, priority_weight: 0, borrow_from: [b], reserve_gpus: 1.5}
  - {name: b}
`))
	if err != nil {
		t.Fatal(err)
	}
	none, half := 0.0, 0.5
	idle := work.PoolElastic{Low: 0.6, High: 0.9, Spare: 0.7, IdleBelow: 0.05, Cooldown: 2 * time.Minute, Warn: 30 * time.Second, PerHour: 60, PerTask: 2, Smallest: 143, Largest: 500,
		OnIdle: map[work.Class]work.IdleAction{work.Training: work.IdleKeep, work.Inference: work.IdleKeep, work.Interactive: work.IdleKeep},
		After:  map[work.Class]time.Duration{work.Training: 30 * time.Minute, work.Inference: 30 * time.Minute, work.Interactive: 30 * time.Minute},
		Guard:  work.Guard{Window: 30 * time.Minute, Moves: 30, FailedMoves: 0.2, Carves: 10, Slowdown: 0.5}}
	want := []work.Pool{
		{Name: "a", Mode: work.Dynamic, TTL: time.Hour, Weight: &none, BorrowFrom: []string{"b"}, ReserveGPUs: 1.5, ScaleOutEvery: 2 * time.Minute, MinRuntime: time.Minute, PreemptPerHour: 6, Elastic: idle},
		{Name: "b", Mode: work.Dynamic, TTL: time.Hour, Weight: &half, Capacity: 50, BackPressure: 0.6, AskAt: 5, ScaleOutEvery: 2 * time.Minute, MinRuntime: time.Minute, PreemptPerHour: 6, Elastic: idle},
	}
	if got := c.WorkPools(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := Default().WorkPools(); len(got) != 1 || got[0].Capacity != 1000 || got[0].BackPressure != 0.8 || got[0].ScaleOutEvery != 0 {
		t.Errorf("an empty file gives %+v", got)
	}
}

// TestGuardOff: 0 is no bound, which the engine knows as a negative number.
func TestGuardOff(t *testing.T) {
	c, err := Parse("x", []byte("elastic: {guard: {moves_per_hour: 0, failed_moves: 0%, failed_carves: 0, slowdown: 0%}}"))
	if err != nil {
		t.Fatal(err)
	}
	want := work.NoGuard()
	want.Window = 30 * time.Minute
	if got := c.WorkPools()[0].Elastic.Guard; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestIdle(t *testing.T) {
	c, err := Parse("x", []byte("alerts:\n  for: 7m\n  waiting_above: 7\nelastic:\n  low_mark: 50%\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Idle(); !reflect.DeepEqual(got, []string(nil)) {
		t.Errorf("got %v, want none: all of them have an effect", got)
	}
}

func TestDurationText(t *testing.T) {
	for _, x := range []struct {
		d    time.Duration
		want string
	}{{0, "0s"}, {30 * time.Second, "30s"}, {time.Minute, "1m"}, {5 * time.Minute, "5m"}, {time.Hour, "1h"}, {90 * time.Minute, "1h30m"}, {time.Hour + time.Second, "1h0m1s"}, {10 * time.Hour, "10h"}} {
		if got := Duration(x.d).String(); got != x.want {
			t.Errorf("%v: got %q, want %q", x.d, got, x.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(Example()))
	f.Add([]byte("pools:\n  - name: a\n"))
	f.Add([]byte("queue: {ttl: 1h}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Parse("fuzz", b)
		if err == nil && len(c.WorkPools()) == 0 {
			t.Error("a valid file left no pool")
		}
	})
}

func TestElastic(t *testing.T) {
	c, err := Parse("x", []byte("elastic: {on_idle: {training: share, interactive: park}, idle_after: {inference: 3m}, warn: 1m, per_hour: 5, per_task: 1, exempt: [ann, team=oncall]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := work.PoolElastic{
		Low: 0.6, High: 0.9, Spare: 0.7, IdleBelow: 0.05, Cooldown: 2 * time.Minute, Warn: time.Minute, PerHour: 5, PerTask: 1, Exempt: []string{"ann", "team=oncall"}, Smallest: 143, Largest: 500,
		Guard:  work.Guard{Window: 30 * time.Minute, Moves: 30, FailedMoves: 0.2, Carves: 10, Slowdown: 0.5},
		OnIdle: map[work.Class]work.IdleAction{work.Training: work.IdleShare, work.Inference: work.IdleKeep, work.Interactive: work.IdlePark},
		After:  map[work.Class]time.Duration{work.Training: 30 * time.Minute, work.Inference: 3 * time.Minute, work.Interactive: 30 * time.Minute},
	}
	if got := c.WorkPools()[0].Elastic; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	c, err = Parse("x", []byte("elastic: {idle_after: 1h}\n"))
	if x := c.Elastic.IdleAfter; err != nil || x.Training != x.Interactive || x.Inference != Duration(time.Hour) {
		t.Errorf("one duration for all classes gives %+v, %v", x, err)
	}
}
