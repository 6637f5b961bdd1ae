package engine

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/elastic"
	"github.com/gpupool/gpupool/internal/forecast"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// sampleFacts has one fact of each kind, with every field filled.
func sampleFacts() []Fact {
	o := work.Owner{Task: 1, Epoch: 2, Member: 0}
	part := work.Part{Host: 0, CPUMilli: 5, MemMiB: 6, Slices: []work.Slice{
		{GPU: 0, Mode: gpu.ModeMIG, Profile: "1g.10gb", Start: 3, Milli: 143},
		{GPU: 1, Mode: gpu.ModeShared, Share: &work.Share{Milli: 300, MemMiB: 10}, Milli: 300}}}
	spec := work.Spec{Name: "n", Tenant: "a", Pool: "p", Priority: work.Low, Class: work.Training, Command: []string{"x", "y"}, Dir: "/", Env: []string{"A=1"}, Secrets: []string{"B=b"},
		Request: work.Request{Milli: 300, GPUMemMiB: 7, Isolation: work.IsolationAny, Models: []string{"T4"}, Members: 2, CPUMilli: 5, MemMiB: 6},
		Grace:   time.Second, TTL: time.Minute, LeaseTTL: time.Hour, Key: "k",
		MaxRuntime: time.Hour, Estimate: time.Minute, Checkpoint: time.Second, Deadline: 7, After: []work.TaskID{1}, AfterAny: []work.TaskID{2}, Hold: true,
		Array: &work.Array{First: 1, Last: 9, Step: 2, Limit: 3}}
	weight := 0.5
	pool := work.Pool{Name: "p", Hosts: []string{"h*"}, Mode: work.Dynamic, TTL: time.Hour, Weight: &weight, Capacity: 100, BackPressure: 0.8, AskAt: 10,
		BorrowFrom: []string{"q"}, ScaleOutEvery: time.Minute, ReserveGPUs: 1.5, MinRuntime: time.Minute, PreemptPerHour: 3}
	why := work.Reasonf(work.CarveFailed, "because")
	return []Fact{
		PoolSet{pool},
		TenantSet{work.Tenant{Name: "a", LimitGPUs: 1.5, GuaranteeGPUs: 0.5, MaxWaiting: 4, MaxRunning: 5, Weight: 2, Tokens: []string{"t"}}},
		TenantRemoved{"a"},
		TokenSet{work.Token{ID: "i", Name: "n", Role: work.RoleViewer, Tenant: "a", ReadOnly: true, Hash: "h", Old: "o", OldEnds: 1, Created: 2, Rotated: 3, Expires: 4}},
		TokenRemoved{"i", "a"},
		ModelLearned{gpu.Builtin()[0]},
		HostJoined{gpu.HostInfo{Name: "h", Driver: "d", CPUMilli: 1, MemMiB: 2, Labels: map[string]string{"k": "v"}, GPUs: []gpu.GPUInfo{{ID: "g", Model: "T4"}}}, "p"},
		HostChanged{1, true, why},
		HostMoved{1, "q"},
		GPUChanged{GPU: 1, Health: gpu.HealthSuspect, Strikes: 3, Until: 9, Why: "why"},
		GPUChanged{GPU: 1, Health: gpu.HealthDraining, Why: "why", Doubt: "no", Until: 9, Since: 4, Operator: &Said{Do: gpu.VerdictDrain, Why: "why", By: "ann", At: 4},
			Driver: &Said{Do: gpu.VerdictCordon, Why: "XID 63", By: "nvidia", Mend: "nvidia-smi", At: 3}},
		HostShares{1, gpu.SharingMPS},
		Faulted{GPU: 1, At: 5, Code: "XID 31", What: "page fault", Owner: work.Owner{Task: 2, Epoch: 1}, Reason: &work.Reason{Code: work.ExitCode, Msg: "why"}},
		Recalled{Task: 2, Epoch: 1, Off: true, Reason: work.Reason{Code: work.Running, Msg: "why"}},
		Submitted{1, &spec, forecast.Forecast{P50: 1, P90: 2, Typical: 3, Basis: forecast.OwnTask, Samples: 4}, 5, 6},
		Held{1, true, "ann"},
		Checkpointed{1},
		Reserved{1, 8, []work.Part{part}, []work.TaskID{2}, true},
		AskedForMore{"p", 11, 4.5},
		Placed{1, 2, []work.Part{part}, 0},
		Carved{o, []string{"MIG-1"}},
		Started{o},
		Exited{o, work.Exit{Code: 137, Signal: "SIGKILL", OOM: true, Lost: "how"}},
		Became{1, work.Yielding, why},
		Closing{1, 2, work.Queued, why},
		FreeRetry{o, 3, 4, "busy"},
		Freed{o},
		Renewed{1, 2, 3},
		Forgotten{[]work.TaskID{1, 2}},
		Judged{1, elastic.Use{Kind: elastic.Idle, Since: 7, Compute: 0.5, MemMiB: 8}},
		Suspending{o, why},
		Suspended{o, 9},
		Woken{1, "ann"},
		Resuming{o},
		Resumed{o},
		MoveFailed{1, work.MovePark, "how"},
		Sized{3, &work.Request{GPUs: 2}, "ann"}, Planned{3, Plan{Move: work.MoveRestart, At: 9, To: &work.Request{GPUs: 2}, For: 4, Price: elastic.ParkPrice(1000), Reason: work.Reasonf(work.Resized, "why")}},
		Dropped{3, "why"}, Resizing{work.Owner{Task: 3, Epoch: 2}, []work.Slice{{GPU: 1, Mode: gpu.ModeShared, Share: &work.Share{Milli: 500, MemMiB: 100}, Milli: 500}}, work.Reasonf(work.Resized, "why")},
		Resized{work.Owner{Task: 3, Epoch: 2}}, Parted{[2]string{"a/x", "a/y"}, 9, "why"},
		ModeSet{"p", "a", work.Static, "ann", "why", []string{"log"}}, Shadowed{1, work.MovePark, why},
		RolloutBegan{Rollout{By: "ann", Begun: 1, Mode: work.Dynamic, For: time.Hour, Waits: 1.5, Fails: 0.5, Until: 9, At: -1, Ended: 3, How: RolloutBack, Why: "why",
			Steps: []RolloutStep{{"p", "a", work.Static, Measure{1, 2, 3, 4}, Measure{5, 6, 7, 8}}}}},
		RolloutStepped{0, 9, Measure{1, 2, 3, 4}, Measure{5, 6, 7, 8}}, RolloutEnded{RolloutBack, "why", Measure{1, 2, 3, 4}},
	}
}

// TestFactsSurvive: each kind of fact is read as it was written.
func TestFactsSurvive(t *testing.T) {
	kinds := map[string]bool{}
	for _, f := range sampleFacts() {
		kinds[f.Kind()] = true
		b, err := Encode(42, f)
		if err != nil {
			t.Fatal(err)
		}
		at, got, err := Decode(b)
		if err != nil || at != 42 || !reflect.DeepEqual(got, f) {
			t.Errorf("%s: got %+v, %v", b, got, err)
		}
	}
	if len(kinds) != len(decoders) {
		t.Errorf("%d kinds of facts are sampled, there are %d", len(kinds), len(decoders))
	}
}

func TestDecodeRefuses(t *testing.T) {
	for in, words := range map[string]string{
		``:                             "fact is not readable",
		`{"at":1}`:                     `fact of kind "" is not known to this version of gpupool: use the version that wrote the journal, or a newer one`,
		`{"at":1,"k":"task.x","f":{}}`: `fact of kind "task.x" is not known`,
		`{"at":1,"k":"task.placed"}`:   "fact task.placed is not readable",
		`{"at":1,"k":"task.placed","f":{"new":1}}`:                                                     `unknown field "new"`,
		`{"at":1,"k":"model.learned","f":{"model":{"key":"x","units":40,"slices":7,"profiles":[{}]}}}`: "expected 0 to 16 memory units",
	} {
		if _, f, err := Decode([]byte(in)); err == nil || !bytes.Contains([]byte(err.Error()), []byte(words)) {
			t.Errorf("%s: got %+v, %v, wanted %q", in, f, err, words)
		}
	}
}

// FuzzDecode: bytes of any kind give a fact or an error; a fact is written again
// as itself; and replaying it where it does not belong is an error, never a panic.
func FuzzDecode(f *testing.F) {
	for _, x := range sampleFacts() {
		b, err := Encode(1, x)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	base := midway(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		at, x, err := Decode(b)
		if err != nil {
			return
		}
		once, err := Encode(at, x)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		at2, y, err := Decode(once)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if again, err := Encode(at2, y); err != nil || !bytes.Equal(once, again) {
			t.Fatalf("%s became %s, %v", once, again, err)
		}
		e, err := Restore(testConfig(), base)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Replay(at, x); err == nil {
			_, _ = e.Snapshot()
		}
	})
}

// FuzzRestore: bytes of any kind give an engine or an error, and what an engine
// then writes of itself it can read again.
func FuzzRestore(f *testing.F) {
	f.Add(midway(f))
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"version":1,"tasks":[null],"leases":[{"task":1,"parts":[null]}]}`))
	f.Add([]byte(`{"version":1,"models":[{"key":"x","units":60,"slices":1,"profiles":[{"name":"a"}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Restore(testConfig(), b)
		if err != nil {
			return
		}
		once, err := e.Snapshot()
		if err != nil {
			t.Fatalf("a restored engine cannot be written: %v", err)
		}
		again, err := Restore(testConfig(), once)
		if err != nil {
			t.Fatalf("%s cannot be read again: %v", once, err)
		}
		if twice, err := again.Snapshot(); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%s became %s, %v", once, twice, err)
		}
	})
}

// midway is the snapshot of a history in full swing.
func midway(f *testing.F) []byte {
	w := newWorld(3)
	if err := w.setUp(); err != nil {
		f.Fatal(err)
	}
	for range 40 {
		if err := w.step(w.randomEvent()); err != nil {
			f.Fatal(err)
		}
	}
	b, err := w.e.Snapshot()
	if err != nil {
		f.Fatal(err)
	}
	return b
}
