package storm

import (
	"bytes"
	"regexp"
	"slices"
	"testing"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/work"
)

// bugs are deliberate: in what stands around the engine, as the engine's own have theirs in
// engine/planted_test.go. Kinds are by which the storm may report them.
var bugs = []struct {
	name  string
	bug   planted
	kinds []string
}{
	{"replies and commands leave before the append", planted{eager: true}, []string{"lost", "doubled", "untrue", "leaked", "undecided", "invariant"}},
	{"a failed append is tried again without a look at what is stored", planted{retries: true}, []string{"doubled", "replay"}},
	{"what a torn append left is taken for whole", planted{trustsTail: true}, []string{"replay", "recovery"}},
	{"a fact is not replayed", planted{read: forgetful(engine.FreeRetry{}.Kind())}, []string{"replay"}},
	{"idempotency keys are forgotten in a restart", planted{read: keyless, blind: true}, []string{"doubled"}},
	{"the epoch of an exit is not looked at", planted{answer: anyEpoch}, []string{"untrue"}},
	{"slices are not freed again after a restart", planted{order: unlessYoung[engine.FreeCmd]}, []string{"stuck", "leaked"}},
	{"a runner starts what it started before", planted{startsAgain: true}, []string{"doubled"}},
	{"answers to carving are lost", planted{answer: noCarve}, []string{"stuck", "leaked"}},
	{"members of a host that comes back are not watched", planted{order: blindToReturn}, []string{"stuck", "leaked"}},
	{"a suspended task is not told again to go on", planted{order: unlessYoung[engine.ResumeCmd]}, []string{"stuck"}},
}

// forgetful leaves out facts of a kind.
func forgetful(kind string) func([]byte) []byte {
	mark := []byte(`"k":"` + kind + `"`)
	return func(b []byte) []byte {
		if bytes.Contains(b, mark) {
			return nil
		}
		return b
	}
}

var keyWords = regexp.MustCompile(`"key":"[^"]*",?`)

func keyless(b []byte) []byte {
	return bytes.ReplaceAll(keyWords.ReplaceAll(b, nil), []byte(",}"), []byte("}"))
}

// anyEpoch takes the end of any member of a task for the end of the newest.
func anyEpoch(w *world, ev engine.Event) engine.Event {
	if x, is := ev.(engine.ProcessExited); is {
		if t := w.srv.writer.Engine.Task(x.Owner.Task); t != nil {
			x.Owner.Epoch = t.Epoch
		}
		return x
	}
	return ev
}

func noCarve(w *world, ev engine.Event) engine.Event {
	if _, is := ev.(engine.CarveDone); is && w.rng.IntN(10) == 0 {
		return nil
	}
	return ev
}

// unlessYoung drops commands that are given again after a restart.
func unlessYoung[C engine.Command](w *world, c engine.Command) engine.Command {
	if _, is := c.(C); is && w.resuming {
		return nil
	}
	return c
}

// blindToReturn drops what is asked of a runner again when a host comes back.
func blindToReturn(w *world, c engine.Command) engine.Command {
	if !w.returning {
		return c
	}
	switch c.(type) {
	case engine.StopCmd, engine.WatchCmd:
		return nil
	}
	return c
}

// TestPlantedBugs shows that the storm finds each bug within so many histories, and what it
// shrinks it to.
func TestPlantedBugs(t *testing.T) {
	if underRace {
		t.Skip("played by make test without the race detector")
	}
	const most = 600
	geometries := models()
	for _, x := range bugs {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(most) {
				out, err := playOne(planOf(seed, DefaultSteps), geometries, &x.bug)
				if err != nil {
					t.Fatal(err)
				}
				kind := kindOf(out.err)
				if kind == "" {
					continue
				}
				if !slices.Contains(x.kinds, kind) {
					t.Logf("seed %d reports something else: %.200v", seed, out.err)
					continue
				}
				p := planOf(seed, DefaultSteps)
				p.steps = p.steps[:min(out.steps, len(p.steps))]
				p = shrink(p, kind, failing(geometries, &x.bug))
				w, err := newWorld(p, geometries, &x.bug)
				if err != nil {
					t.Fatal(err)
				}
				again := w.play()
				if kindOf(again) != kind || len(p.steps) > 40 {
					t.Errorf("seed %d was shrunk to %d steps, and then reports %v; want %s in at most 40", seed, len(p.steps), again, kind)
				}
				t.Logf("found by history %d at step %d, shrunk to %d steps: %.160v", seed+1, out.steps, len(p.steps), again)
				return
			}
			t.Errorf("none of %d histories reports it", most)
		})
	}
}

// TestSameSeedSameStorm: nothing but its options decides what a storm does, and the number of
// workers does not either.
func TestSameSeedSameStorm(t *testing.T) {
	one, err := Run(t.Context(), Options{Seeds: 20, Seed: 7, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	two, err := Run(t.Context(), Options{Seeds: 20, Seed: 7, Workers: 3})
	if err != nil {
		t.Fatal(err)
	}
	if one.Digest != two.Digest || one.Steps != two.Steps || one.Acknowledged != two.Acknowledged || one.Acknowledged == 0 {
		t.Errorf("the same seeds gave %+v, then %+v", *one, *two)
	}
	other, err := Run(t.Context(), Options{Seeds: 20, Seed: 8, Workers: 3})
	if err != nil {
		t.Fatal(err)
	}
	if other.Digest == one.Digest {
		t.Error("other seeds gave the same facts")
	}
}

// TestScript: what failed is told in the words of testdata/scenarios, all but what has none.
func TestScript(t *testing.T) {
	s := newScript(engine.Config{KeepEnded: 20, AllocRetries: 3})
	o := work.Owner{Task: 1, Epoch: 2, Member: 1}
	for _, ev := range []engine.Event{
		engine.Submit{Spec: work.Spec{Tenant: "a", Pool: "main", Request: work.Request{Milli: 250, Isolation: work.IsolationShared}, After: []work.TaskID{1, 2}}},
		engine.ProcessExited{Owner: o, Exit: work.Exit{Code: 3}}, engine.SuspendDone{Owner: o}, engine.Tick{},
	} {
		s.event(begins.Add(1e9), ev)
	}
	want := `config keep-ended=20 alloc-retries=3
----

tick 1s
----

submit a gpus=0.25 isolation=shared pool=main priority=high after=(1,2)
----

exited 1 epoch=2 member=1 code=3
----

suspended 1 epoch=2 member=1
----

tick 0s
----

`
	if got := s.text.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
