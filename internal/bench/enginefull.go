package bench

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/placement"
	"github.com/gpupool/gpupool/internal/work"
)

// full is a cluster without a free GPU.
type full struct {
	c      *placement.Cluster
	claims map[work.Owner]placement.Claim
}

// fullCluster fills hosts with tasks of 1, 2, 4 and 8 GPUs of normal and low
// priority, each with a different amount of work to lose.
func fullCluster(gpus int) *full {
	f := &full{emptyCluster(gpus), map[work.Owner]placement.Claim{}}
	rng := rand.New(rand.NewPCG(2, 2))
	id := work.TaskID(0)
	for h := range gpus / 8 {
		size := 1 << (h % 4)
		for range 8 / size {
			r := work.Request{GPUs: size, CPUMilli: int64(8000 * size), MemMiB: int64(size) << 16}
			parts := f.c.Find(placement.Query{Pool: enginePool, Tenant: "t", Request: r})
			if parts == nil {
				continue
			}
			id++
			o := work.Owner{Task: id, Epoch: 1}
			f.claims[o] = placement.Claim{Tenant: fmt.Sprint("t", id%8), Lost: rng.Int64N(1e6) * int64(size), Parts: parts}
			f.c.Take(placement.Holder{Owner: o, Tenant: "t", Priority: work.Normal + work.Priority(id%2)}, parts[0])
		}
	}
	return f
}

const engineRepeats = 21

// reclaim times the search for those who must yield for one task of 8 GPUs.
func (f *full) reclaim() (ms float64, tasks int) {
	var times []float64
	for range engineRepeats {
		began := time.Now()
		y, ok := f.c.Reclaim(placement.Reclaim{
			Query: placement.Query{Pool: enginePool, Tenant: "u", Request: work.Request{GPUs: 8, CPUMilli: 64_000, MemMiB: 1 << 19}},
			Below: work.Normal,
			Claim: func(o work.Owner) (placement.Claim, bool) { k, ok := f.claims[o]; return k, ok },
		})
		times = append(times, 1000*time.Since(began).Seconds())
		if tasks = len(y.Tasks); !ok {
			tasks = -1
		}
	}
	return median(times), tasks
}

// infeasible times the answer that a gang of 80 GPUs cannot fit.
func (f *full) infeasible() float64 {
	r := work.Request{GPUs: 8, Members: 10, CPUMilli: 64_000, MemMiB: 1 << 19}
	var times []float64
	for range engineRepeats {
		began := time.Now()
		if f.c.Find(placement.Query{Pool: enginePool, Tenant: "u", Request: r}) != nil {
			return -1
		}
		if f.c.Why(enginePool, "u", r).Msg == "" {
			return -1
		}
		times = append(times, 1000*time.Since(began).Seconds())
	}
	return median(times)
}

// stepper drives an engine whose drivers and runners answer at once and well.
type stepper struct {
	e       *engine.Engine
	now     work.Time
	steps   int
	running []work.Owner
	due     []engine.Command
}

func (s *stepper) step(ev engine.Event) error {
	out := s.e.Step(s.now, ev)
	s.steps++
	s.due = append(s.due, out.Commands...)
	return out.Err
}

// settle answers commands until there are none.
func (s *stepper) settle() error {
	for len(s.due) > 0 {
		var ev engine.Event
		switch c := s.due[0].(type) {
		case engine.CarveCmd:
			ev = engine.CarveDone{Owner: c.Owner, Devices: c.GPUIDs}
		case engine.StartCmd:
			s.running = append(s.running, c.Owner)
			ev = engine.StartDone{Owner: c.Owner}
		case engine.FreeCmd:
			ev = engine.FreeDone{Owner: c.Owner}
		}
		if s.due = s.due[1:]; ev == nil {
			continue
		}
		if err := s.step(ev); err != nil {
			return err
		}
	}
	return nil
}

// stepRate times whole lives of tasks on a cluster that is half full.
func stepRate(gpus int) (steps, tasks float64, err error) {
	s := &stepper{e: engine.New(engine.Config{Models: geometries("H100-80GB"), KeepEnded: 1000}), now: 1}
	inv := engine.Inventory{Driver: "bench"}
	for h := range gpus / 8 {
		inv.Hosts = append(inv.Hosts, engineHost(h))
	}
	for _, ev := range []engine.Event{engine.SetPools{Pools: []work.Pool{{Name: enginePool, Mode: work.Dynamic}}}, engine.SetTenant{Tenant: work.Tenant{Name: "t"}}, inv} {
		if err := s.step(ev); err != nil {
			return 0, 0, err
		}
	}
	next := 0
	submit := func() error {
		next++
		s.now++
		err := s.step(engine.Submit{Spec: work.Spec{Tenant: "t", Pool: enginePool, Priority: work.Normal, Request: engineAsk(next), Command: []string{"train"}}})
		if err != nil {
			return err
		}
		return s.settle()
	}
	for range gpus / 4 { // of 1.7 GPUs in the mean
		if err := submit(); err != nil {
			return 0, 0, err
		}
	}
	s.steps = 0
	lives := 0
	began := time.Now()
	for ; time.Since(began) < time.Second/2; lives++ {
		o := s.running[0]
		s.running = s.running[1:]
		if err := s.step(engine.ProcessExited{Owner: o}); err != nil {
			return 0, 0, err
		}
		if err := s.settle(); err != nil {
			return 0, 0, err
		}
		if err := submit(); err != nil {
			return 0, 0, err
		}
	}
	took := time.Since(began).Seconds()
	return float64(s.steps) / took, float64(lives) / took, nil
}
