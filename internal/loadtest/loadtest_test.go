package loadtest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
)

// pool acknowledges after a time, and counts.
type pool struct {
	mu        sync.Mutex
	takes     time.Duration
	refuse    int // every so many; 0 = none
	submitted int
	cancelled int
	at, most  int // at once
	specs     []apitype.TaskSpec
}

func (p *pool) Submit(_ context.Context, spec apitype.TaskSpec, _ string) (apitype.Task, error) {
	p.mu.Lock()
	p.submitted++
	p.at++
	p.most = max(p.most, p.at)
	p.specs = append(p.specs, spec)
	n := p.submitted
	p.mu.Unlock()
	time.Sleep(p.takes) // in a bubble of synctest
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at--
	if p.refuse > 0 && n%p.refuse == 0 {
		return apitype.Task{}, &client.Error{Status: 429, Code: "queue_full", Detail: "the queue is full"}
	}
	return apitype.Task{ID: uint64(n)}, nil
}

func (p *pool) Cancel(context.Context, uint64) (apitype.Task, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cancelled++
	return apitype.Task{}, nil
}

func TestScenarios(t *testing.T) {
	for _, x := range []struct {
		o       Options
		p       *pool
		queries [2]int // from, to
		most    int
		p50     float64
		valid   bool
	}{
		{Options{Scenario: SingleStream}, &pool{takes: 10 * time.Millisecond}, [2]int{6000, 6001}, 1, 10, true},
		{Options{Scenario: MultiStream}, &pool{takes: 10 * time.Millisecond}, [2]int{6000, 6001}, 8, 10, true},
		{Options{Scenario: Offline, Clients: 64}, &pool{takes: 64 * time.Millisecond}, [2]int{60_000, 60_100}, 64, 64, true},
		{Options{Scenario: Server, QPS: 200}, &pool{takes: 50 * time.Millisecond}, [2]int{11_500, 12_500}, 0, 50, true},
		{Options{Scenario: Server, QPS: 200}, &pool{takes: 200 * time.Millisecond}, [2]int{11_500, 12_500}, 0, 200, false},
		{Options{Scenario: SingleStream, Queries: 20, Duration: time.Second}, &pool{takes: 100 * time.Millisecond}, [2]int{20, 20}, 1, 100, false},
		{Options{Scenario: Offline, Clients: 4}, &pool{takes: 100 * time.Millisecond, refuse: 100}, [2]int{2400, 2410}, 4, 100, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, err := Run(t.Context(), x.p, x.o)
			if err != nil {
				t.Fatal(err)
			}
			if r.Queries < x.queries[0] || r.Queries > x.queries[1] || r.Verdict.Valid != x.valid || r.Latency.P50 != x.p50 {
				t.Errorf("%+v: %d queries, median %g ms, %+v", x.o, r.Queries, r.Latency.P50, r.Verdict)
			}
			if x.most > 0 && x.p.most != x.most || r.Acked+r.Refused != x.p.submitted || x.p.cancelled != r.Acked {
				t.Errorf("%+v: at most %d at once; %d submitted, %d acknowledged, %d refused, %d cancelled", x.o, x.p.most, x.p.submitted, r.Acked, r.Refused, x.p.cancelled)
			}
			if !x.p.specs[0].Hold || x.p.specs[0].GPUs != "1" {
				t.Errorf("sent %+v", x.p.specs[0])
			}
		})
	}
}

func TestShapes(t *testing.T) {
	site := Site{GPUs: 16, PerHost: 8, Hosts: 2}
	for _, x := range []struct {
		shape   string
		gpus    string
		members int
		scaled  bool
	}{{"llama2-70b-lora", "8", 0, false}, {"gpt3-175b", "8", 2, true}, {"resnet50-serving", "1", 0, false}} {
		for _, s := range Shapes {
			if s.Name != x.shape {
				continue
			}
			spec, scaled := s.spec(site)
			if spec.GPUs != x.gpus || spec.Members != x.members || scaled != x.scaled {
				t.Errorf("%s: %+v, scaled %v", x.shape, spec, scaled)
			}
		}
	}
	for _, s := range Shapes {
		if s.Source == "" || s.GPUs < 1 || (s.Minutes > 0) != (s.Class == "training") {
			t.Errorf("shape %+v", s)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		p := &pool{takes: time.Millisecond}
		r, err := Run(t.Context(), p, Options{Shapes: "training", Site: site, Duration: time.Second, Keep: true})
		if err != nil || r.Scaled != 6 || p.cancelled != 0 {
			t.Errorf("%+v, %v, %d cancelled", r, err, p.cancelled)
		}
	})
}

func TestRefusals(t *testing.T) {
	for _, x := range []struct {
		o    Options
		want string
	}{{Options{Scenario: "burst"}, "not known"}, {Options{Shapes: "odd"}, "use plain"}} {
		if _, err := Run(t.Context(), &pool{}, x.o); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%+v: %v", x.o, err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		if _, err := Run(t.Context(), &pool{refuse: 1, takes: time.Millisecond}, Options{Duration: time.Second}); err == nil || !strings.Contains(err.Error(), "the queue is full") {
			t.Errorf("a pool that refuses everything: %v", err)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, s := range Scenarios() {
		if _, err := Run(ctx, &pool{}, Options{Scenario: s}); err == nil {
			t.Errorf("%s went on", s)
		}
	}
}

func TestSoak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, x := range []struct {
			grows float64
			flat  bool
		}{{0, true}, {0.002, true}, {0.05, false}} {
			looks := 0.0
			p := &pool{takes: time.Millisecond}
			r, err := RunSoak(t.Context(), p, Options{Clients: 8}, 1000, func(context.Context) (int64, error) {
				looks++
				return int64(100 * (1 << 20) * (1 + x.grows*looks)), nil
			})
			if err != nil || r.Soak.Flat != x.flat || r.Acked != 1000 || p.cancelled != 1000 || len(r.Soak.Points) != soakLooks+1 {
				t.Errorf("grows by %g: %+v, %v", x.grows, r, err)
			}
		}
	})
}
