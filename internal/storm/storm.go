// Package storm plays whole histories of a pool from a seed, with every fault that the fake
// driver, a runner and a journal can make: crashes at any point, partitions, delayed,
// repeated and reordered answers, torn writes, clocks that jump, hosts and GPUs that come and
// go. After each step it checks every invariant, that replaying the journal gives the same
// state, that the same events give the same facts, and that nothing which was acknowledged
// is lost or done twice; at the end, with all faults healed, that everything comes to an end
// and nothing is left over. What fails is shrunk to the few steps that it takes.
//
// It drives the very Writer, engine and dispatcher of a host, with a dispatcher's goroutines
// played one at a time in an order that is drawn: the same seed gives the same history. A
// history of 150 steps costs about 30 ms, most of it for comparing whole states.
package storm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpupool/gpupool/internal/gpu"
)

// DefaultSteps is how many steps a history has unless told otherwise.
const DefaultSteps = 150

// keptFailures is how many histories are shrunk and described.
const keptFailures = 5

// Options say what is played. Zero values mean the defaults.
type Options struct {
	Seeds   int    // histories; default 1000
	Seed    uint64 // of the first; the others follow
	Steps   int    // of each history; default DefaultSteps
	Workers int    // histories at a time; default as many as there are cores
	Keep    string // folder for what failed: a scenario script and a log for each; "" = nowhere

	// Progress is told how many histories were played, of how many. May be nil.
	Progress func(done, total int)
}

// Result is what came of it. The same options give the same result, but for the time.
type Result struct {
	Seeds        int            `json:"seeds"`
	Seed         uint64         `json:"seed"`
	Steps        int            `json:"steps"`        // in all
	Facts        int            `json:"facts"`        // that were stored
	Acknowledged int            `json:"acknowledged"` // tasks
	Violations   int            `json:"violations"`   // histories in which something did not hold
	Lost         int            `json:"lost"`         // of those: an acknowledged task or cancellation
	Doubled      int            `json:"doubled"`      // of those: something done twice
	Faults       map[Fault]int  `json:"faults"`
	Happened     map[string]int `json:"happened"` // facts by kind
	Digest       string         `json:"digest"`   // of all facts of all histories, in order
	Failures     []Failure      `json:"failures,omitempty"`
	TookS        float64        `json:"took_s"`
}

// Failure is a history in which something did not hold.
type Failure struct {
	Seed   uint64 `json:"seed"`
	Kind   string `json:"kind"`
	What   string `json:"what"`
	Step   int    `json:"step"`   // at which it was found, of the whole history
	Shrunk int    `json:"shrunk"` // steps that it takes; 0 = it was not shrunk
	Script string `json:"script,omitempty"`
	Log    string `json:"log,omitempty"`
	Again  string `json:"again"` // command that plays it again
}

// outcome is what is kept of one history.
type outcome struct {
	steps, facts, acked int
	faults              map[Fault]int
	kinds               map[string]int
	digest              uint64
	err                 error
}

// Run plays the histories, as many at a time as there are workers.
func Run(ctx context.Context, o Options) (*Result, error) {
	o.Seeds, o.Steps, o.Workers = cmp.Or(o.Seeds, 1000), cmp.Or(o.Steps, DefaultSteps), cmp.Or(o.Workers, runtime.GOMAXPROCS(0))
	return run(ctx, o, &planted{})
}

func run(ctx context.Context, o Options, bug *planted) (*Result, error) {
	start := time.Now()
	geometries := models()
	outs := make([]outcome, o.Seeds)
	var mu sync.Mutex
	next, done := 0, 0
	var workers errgroup.Group
	for range min(o.Workers, o.Seeds) {
		workers.Go(func() error {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= o.Seeds {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				out, err := playOne(planOf(o.Seed+uint64(i), o.Steps), geometries, bug)
				if err != nil {
					return err
				}
				mu.Lock()
				outs[i] = out
				done++
				if o.Progress != nil {
					o.Progress(done, o.Seeds)
				}
				mu.Unlock()
			}
		})
	}
	if err := workers.Wait(); err != nil {
		return nil, err
	}
	r := o.sum(outs)
	for i := range r.Failures {
		if err := o.describe(&r.Failures[i], geometries, bug); err != nil {
			return nil, err
		}
	}
	r.TookS = time.Since(start).Seconds()
	return r, nil
}

func playOne(p plan, geometries []*gpu.Geometry, bug *planted) (outcome, error) {
	w, err := newWorld(p, geometries, bug)
	if err != nil {
		return outcome{}, err
	}
	err = w.play()
	return outcome{w.steps, w.facts, len(w.clients.tasks), w.faults, w.kinds, w.digest, err}, nil
}

// sum adds the outcomes up, in the order of their seeds.
func (o Options) sum(outs []outcome) *Result {
	r := &Result{Seeds: o.Seeds, Seed: o.Seed, Faults: map[Fault]int{}, Happened: map[string]int{}}
	digest := uint64(0)
	for i, x := range outs {
		r.Steps, r.Facts, r.Acknowledged = r.Steps+x.steps, r.Facts+x.facts, r.Acknowledged+x.acked
		for k, n := range x.faults { // order: sums
			r.Faults[k] += n
		}
		for k, n := range x.kinds { // order: sums
			r.Happened[k] += n
		}
		digest = digest*1_000_003 + x.digest
		if x.err == nil {
			continue
		}
		r.Violations++
		v, is := errors.AsType[*violation](x.err)
		if !is {
			v = &violation{"broken", x.err.Error()}
		}
		switch v.kind {
		case "lost":
			r.Lost++
		case "doubled":
			r.Doubled++
		}
		if seed := o.Seed + uint64(i); len(r.Failures) < keptFailures {
			r.Failures = append(r.Failures, Failure{Seed: seed, Kind: v.kind, What: v.what, Step: x.steps,
				Again: fmt.Sprintf("gpupool storm --seeds 1 --seed %d --steps %d", seed, o.Steps)})
		}
	}
	r.Digest = fmt.Sprintf("%016x", digest)
	return r
}

// describe shrinks a history that failed and writes down what is left of it.
func (o Options) describe(f *Failure, geometries []*gpu.Geometry, bug *planted) error {
	p := planOf(f.Seed, o.Steps)
	p.steps = p.steps[:min(f.Step, len(p.steps))]
	fails := failing(geometries, bug)
	if fails(p) != f.Kind {
		return nil // it takes more than its steps: that is told as it is
	}
	p = shrink(p, f.Kind, fails)
	f.Shrunk = len(p.steps)
	w, err := newWorld(p, geometries, bug)
	if err != nil {
		return err
	}
	var log strings.Builder
	w.script, w.log = newScript(w.cfg), &log
	if err := w.play(); err != nil {
		if v, is := errors.AsType[*violation](err); is {
			f.What = v.what
		}
	}
	if o.Keep == "" {
		return nil
	}
	if err := os.MkdirAll(o.Keep, 0o755); err != nil { //nolint:gosec // for anyone to read
		return fmt.Errorf("--keep: %w", err)
	}
	f.Script = filepath.Join(o.Keep, fmt.Sprintf("storm-%d.txt", f.Seed))
	f.Log = filepath.Join(o.Keep, fmt.Sprintf("storm-%d.log", f.Seed))
	head := fmt.Sprintf("# Found by %s: %s\n# %s\n# Shrunk to %d steps; %d of its events have no words here. Fill in what comes out with\n# go test ./internal/engine -run Scenarios -rewrite.\n",
		f.Again, f.Kind, strings.ReplaceAll(firstLine(f.What), "\n", " "), f.Shrunk, w.script.unsaid)
	if err := os.WriteFile(f.Script, []byte(head+w.script.text.String()), 0o644); err != nil { //nolint:gosec // for anyone to read
		return fmt.Errorf("--keep: %w", err)
	}
	if err := os.WriteFile(f.Log, []byte(log.String()), 0o644); err != nil { //nolint:gosec // for anyone to read
		return fmt.Errorf("--keep: %w", err)
	}
	return nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
