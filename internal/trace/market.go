package trace

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// MarketOptions say what market to draw. A zero takes the default.
type MarketOptions struct {
	Models  int           // default 200
	Length  time.Duration // default a day
	Duty    float64       // mean busy share of a service's GPU over all; default as measured, 0.07
	MaxDuty float64       // a model busier than this has replicas; default 0.25
	Tenants int           // default 8
	Seed    uint64
}

// serving is what a market is made of.
type serving struct {
	counts    []float64 // requests of each model, the most popular first; nil = by zipf
	zipf      float64   // exponent of popularity
	clients   []client  // the busiest first
	takes     dist      // seconds of a GPU that a request takes
	takesMean float64
	loads     dist // seconds until a model can serve
	memory    dist // MiB in use
	duty      float64
}

// Bounds of a market.
const (
	maxModels   = 100_000
	maxRequests = 5_000_000 // 80 MB
	maxLength   = 366 * 24 * time.Hour
)

// Market draws a market of models: services that are always on, each with one GPU to
// itself as long as nothing is shared, and the requests that come to them.
//
// What is measured comes from a folder such as ../shared/traces/serving; with dir ""
// it comes from formulas fitted to the same data (see fitted), and no file is read.
//
//   - Popularity: the requests for each base model of genai2026 (25 rows name none). For more models than
//     the 86 it has, ranks as r^-s with the s that its counts make most likely; for fewer,
//     its most popular ones.
//   - W, GPUs busy on average, is such that W = Duty·GPUs. Model i of share p_i keeps
//     w_i = W·p_i busy and is served by max(1, ⌈w_i/MaxDuty⌉) replicas, one GPU and
//     one task each; its requests go to them in turn.
//   - Requests: w_i·Length/E[takes] of them, each of which takes a measured inference
//     latency of genai2026, whichever model it is for.
//   - Arrivals: each model takes the windows of one client of ServeGen's m-small,
//     from the beginning of one of its days on, scaled to the model's requests; see
//     client.arrivals. Popular models take busy clients, as those are the steady ones;
//     hours of the day stay, so that models peak together.
//   - Load: a measured load of a base model of genai2026 (all samples: median 22.7 s, 95th
//     percentile 45.4 s; a quarter are 3 s, read from the host's memory).
//   - UsedMiB: the most that a container of genai2026 used in a day, which is what must
//     fit; the median of all samples is 38 % less.
//
// Assumed, not measured: that a model's popularity, times and arrivals do not depend on
// each other but as said, that a client's CV also holds at a smaller rate, and that a
// service has the duty of genai2026's containers, which each serve many models.
func Market(dir string, o MarketOptions) (*Trace, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	s, t := fitted(o.Seed), &Trace{Name: "market", Source: "gpupool's formulas, fitted to Alibaba's genai2026 and ServeGen", Licence: "Apache-2.0"}
	made := "a market of models drawn from formulas fitted to Alibaba's genai2026 and ServeGen"
	if dir != "" {
		var err error
		if s, err = readServing(dir); err != nil {
			return nil, err
		}
		t.Source, t.Licence = "Alibaba genai2026 (GenTD26) and ServeGen", "genai2026: research and study only, do not ship; ServeGen: Apache-2.0"
		made = "a market of models drawn from measured popularity, times, memory (genai2026) and arrivals (ServeGen)"
	}
	o.Duty = cmp.Or(o.Duty, s.duty)
	if o.Duty >= o.MaxDuty {
		return nil, fmt.Errorf("a market of mean duty %g whose services have at most %g is not possible: raise MaxDuty or lower Duty", o.Duty, o.MaxDuty)
	}
	shares, how := s.popularity(o.Models)
	busy := busyGPUs(shares, o.Duty, o.MaxDuty)
	if n := busy * o.Length.Seconds() / s.takesMean; n > maxRequests {
		return nil, fmt.Errorf("this market has %.0f requests: expected at most %d; draw fewer models, a shorter time or a smaller duty", n, maxRequests)
	}
	for i, share := range shares {
		t.Tasks = append(t.Tasks, s.model(i, busy*share, o)...)
	}
	t.Synthetic = fmt.Sprintf("%s: %d models as %d services of one GPU, mean duty %.3g, popularity %s (seed %d)", made, o.Models, len(t.Tasks), o.Duty, how, o.Seed)
	return t.settle("market")
}

// check fills in defaults and refuses what cannot be drawn.
func (o *MarketOptions) check() error {
	o.Models, o.Tenants = cmp.Or(o.Models, 200), cmp.Or(o.Tenants, 8)
	o.Length, o.MaxDuty = cmp.Or(o.Length, 24*time.Hour), cmp.Or(o.MaxDuty, 0.25)
	switch {
	case o.Models < 1 || o.Models > maxModels:
		return fmt.Errorf("models: expected 1 to %d, got %d", maxModels, o.Models)
	case o.Tenants < 1:
		return fmt.Errorf("tenants: expected 1 or more, got %d", o.Tenants)
	case o.Length < window || o.Length > maxLength:
		return fmt.Errorf("length: expected %s to %s, got %s", window, maxLength, o.Length)
	case !(o.Duty >= 0 && o.Duty < 1):
		return fmt.Errorf("duty: expected a share of 0 to 1, got %g", o.Duty)
	case !(o.MaxDuty > 0 && o.MaxDuty <= 1):
		return fmt.Errorf("max duty: expected a share of 0 to 1, got %g", o.MaxDuty)
	}
	return nil
}

// popularity returns the shares of n models, and where they are from.
func (s *serving) popularity(n int) (shares []float64, how string) {
	if s.counts == nil {
		return zipf(n, s.zipf), fmt.Sprintf("as a Zipf law of exponent %.2f", s.zipf)
	}
	if n <= len(s.counts) {
		return normal(append([]float64(nil), s.counts[:n]...)), fmt.Sprintf("of the first %d of %d models as counted", n, len(s.counts))
	}
	return zipf(n, s.zipf), fmt.Sprintf("as a Zipf law of exponent %.2f fitted to %d models", s.zipf, len(s.counts))
}

// replicas is how many GPUs serve a model that keeps w busy.
func replicas(w, maxDuty float64) int { return max(1, int(math.Ceil(w/maxDuty-1e-9))) }

// busyGPUs solves W = duty·GPUs(W). A model has at most w/maxDuty+1 GPUs, so W is
// under duty·(W/maxDuty+models); where GPUs(W) jumps the right side jumps up, so the
// left side passes it without a jump.
func busyGPUs(shares []float64, duty, maxDuty float64) float64 {
	low, high := 0.0, duty*float64(len(shares))/(1-duty/maxDuty)
	for range 60 {
		w, gpus := (low+high)/2, 0
		for _, p := range shares {
			gpus += replicas(w*p, maxDuty)
		}
		if w < duty*float64(gpus) {
			low = w
		} else {
			high = w
		}
	}
	return high
}

// model draws the replicas of the model of rank i, which keeps w GPUs busy. What is
// drawn for one model does not depend on the others.
func (s *serving) model(i int, w float64, o MarketOptions) []Task {
	rng := rand.New(rand.NewPCG(o.Seed, 0x3a4e7<<32|uint64(i)))
	x := Task{Tenant: fmt.Sprintf("tenant-%d", 1+rng.IntN(o.Tenants)), Priority: "normal", Class: Inference, GPUs: 1, Duration: o.Length,
		Load: seconds(s.loads(rng)), UsedMiB: int64(s.memory(rng))}
	wanted := w * o.Length.Seconds() / s.takesMean
	n := int(wanted)
	if rng.Float64() < wanted-float64(n) {
		n++
	}
	// The client at the same place among clients as the model among models, give or take one rank.
	k := min(int((float64(i)+rng.Float64())/float64(o.Models)*float64(len(s.clients))), len(s.clients)-1)
	c := s.clients[k].anyDay(rng, o.Length)
	out := make([]Task, replicas(w, o.MaxDuty))
	for r := range out {
		out[r] = x
		out[r].Name = fmt.Sprintf("model-%03d", i+1)
		if len(out) > 1 {
			out[r].Name += fmt.Sprintf("-%d", r+1)
		}
	}
	for j, at := range c.arrivals(rng, n, o.Length) {
		to := &out[j%len(out)]
		to.Requests = append(to.Requests, Request{At: at, Takes: max(time.Millisecond, seconds(s.takes(rng)))})
	}
	for r := range out {
		out[r].Utilisation = min(1, float64(takes(out[r].Requests))/float64(o.Length))
	}
	return out
}

// takes is the time of GPUs that requests take in all.
func takes(list []Request) time.Duration {
	sum := time.Duration(0)
	for _, r := range list {
		sum += r.Takes
	}
	return sum
}
