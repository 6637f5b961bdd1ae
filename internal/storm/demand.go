package storm

import (
	"fmt"
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

// spec is what a client asks for: anything that may be asked for, in any mix.
func (w *world) spec(mark string) work.Spec {
	s := work.Spec{Tenant: pick(w, "a", "b", "c"), Pool: pick(w, "main", "main", "rest"), Priority: work.Priority(w.rng.IntN(3)), Command: []string{"train", mark}}
	s.Request = pick(w,
		work.Request{GPUs: 1}, work.Request{GPUs: 2}, work.Request{GPUs: 4},
		work.Request{Milli: 300}, work.Request{Milli: 143}, work.Request{Milli: 600, Isolation: work.IsolationAny},
		work.Request{Milli: 250, Isolation: work.IsolationShared}, work.Request{GPUMemMiB: 8 << 10}, work.Request{Profile: "3g.40gb"},
		work.Request{Profile: "1g.10gb+me"}, work.Request{GPUs: 1, Members: 3}, work.Request{Milli: 143, Members: 5},
		work.Request{Milli: 100, Isolation: work.IsolationShared, Members: 2}, work.Request{CPUMilli: 4000}, work.Request{GPUs: 2, Models: []string{"T4"}})
	if s.Request.CPUMilli == 0 {
		s.Request.CPUMilli = pick[int64](w, 0, 1000, 6000)
	}
	if w.plan.temper.idle && w.chance(80) {
		s.Request = work.Request{GPUs: 1 + w.rng.IntN(2), CPUMilli: s.Request.CPUMilli}
	}
	if w.chance(12) {
		s.Command, s.LeaseTTL = nil, time.Minute
		s.Name = mark
	}
	if w.chance(75) {
		s.Key = "k" + mark
	}
	s.TTL = pick(w, 0, 0, 2*time.Minute, -1)
	w.habits(&s)
	if w.plan.temper.supple {
		w.bend(&s)
	}
	return s
}

// habits are what a submission says of its run and of what it comes after.
func (w *world) habits(s *work.Spec) {
	s.Class = pick(w, "", work.Training, work.Training, work.Inference, work.Interactive)
	s.Hold = w.chance(5)
	if !s.External() {
		s.Name = pick(w, "", "train-1", "train-2", "eval")
		s.MaxRuntime = pick(w, 0, 0, time.Minute, 10*time.Minute)
		if w.chance(10) {
			s.Array = &work.Array{Last: w.rng.IntN(4), Limit: w.rng.IntN(3)}
		}
	}
	s.OnIdle = pick(w, "", "", work.IdleKeep, work.IdlePark, work.IdleStop)
	if w.plan.temper.idle && w.chance(70) {
		s.OnIdle, s.MaxRuntime, s.TTL = work.IdlePark, 0, -1
	}
	s.NoPreempt = w.chance(10)
	s.Estimate = pick(w, 0, 0, 30*time.Second, 5*time.Minute)
	s.Checkpoint = pick(w, 0, 0, 20*time.Second)
	if w.chance(10) {
		s.Deadline = w.now.Add(time.Duration(w.rng.IntN(3600)-600) * time.Second)
	}
	if id, ok := w.task(); ok && w.chance(10) {
		s.After = append(s.After, id)
	}
	if id, ok := w.task(); ok && w.chance(10) {
		s.AfterAny = append(s.AfterAny, id)
	}
}

// bend lets a task be resized and moved.
func (w *world) bend(s *work.Spec) {
	if w.chance(90) {
		s.Request = pick(w, work.Request{GPUs: 1}, work.Request{GPUs: 1, Models: []string{"T4"}}, work.Request{GPUs: 2},
			work.Request{Milli: 500, Isolation: work.IsolationShared}, work.Request{Milli: 700, Isolation: work.IsolationShared})
		s.Tenant = pick(w, "a", "a", "b")
	}
	r := s.Request
	if s.LeaseTTL == 0 && w.chance(70) {
		s.OnResize = work.ResizeRestart
		s.Signal = pick(w, "", "USR1")
	}
	if r.GPUs > 0 && s.OnResize == work.ResizeRestart && w.chance(60) {
		s.MinMilli, s.MaxMilli = pick(w, 0, 1000), 1000*(r.GPUs+w.rng.IntN(3))
	}
	if r.Milli > 100 && r.Isolation == work.IsolationShared && w.chance(60) {
		s.MinMilli, s.MaxMilli = 100, pick(w, 0, 900)
	}
	s.OnIdle = pick(w, s.OnIdle, work.IdleShare)
	s.NoShare = w.chance(10) && r.Isolation != work.IsolationShared && s.OnIdle != work.IdleShare
	if w.chance(70) {
		s.MaxRuntime, s.TTL, s.Array = 0, -1, nil
	}
}

// tenant has limits only where the history has; a has none of the kind that keeps tasks back.
func (w *world) tenant(name string) work.Tenant {
	x := work.Tenant{Name: name, Weight: pick(w, 0, 0, 0.5, 3)}
	if w.chance(40) {
		x.GuaranteeGPUs = pick(w, 0.5, 1, 2, 4)
	}
	if !w.plan.temper.limited || name == "a" {
		return x
	}
	if w.chance(50) {
		x.LimitGPUs = float64(1 + w.rng.IntN(4))
	}
	if w.chance(30) {
		x.MaxRunning = 1 + w.rng.IntN(3)
	}
	if w.chance(30) {
		x.MaxWaiting = 2 + w.rng.IntN(5)
	}
	return x
}

// somePools are two pools with any rules, that may borrow from each other.
func (w *world) somePools() []work.Pool {
	t := w.plan.temper
	mode := pick(w, work.Dynamic, work.Dynamic, work.Dynamic, work.Static)
	if t.supple {
		mode = work.Dynamic
	}
	pools := []work.Pool{{Name: "main", Hosts: pick(w, []string{"h0", "h1"}, []string{"h0", "h1"}, []string{"h0", "h2"}, []string{"h*"}), Mode: mode, TTL: time.Hour},
		{Name: "rest", Mode: work.Dynamic}}
	for i := range pools {
		w.rules(&pools[i], pools[1-i].Name)
	}
	return pools
}

func (w *world) rules(p *work.Pool, other string) {
	t := w.plan.temper
	if w.chance(30) {
		x := pick(w, 0, 0.5, 1)
		p.Weight = &x
	}
	if t.limited && w.chance(30) {
		p.Capacity, p.BackPressure = 3+w.rng.IntN(10), pick(w, 0.5, 0.8, 1)
	}
	if w.chance(50) {
		p.AskAt, p.BorrowFrom, p.ScaleOutEvery = 1+w.rng.IntN(3), []string{"nowhere", other}, pick(w, 0, time.Minute)
	}
	if t.limited && w.chance(30) {
		p.ReserveGPUs = pick(w, 0.5, 1, 2)
	}
	if w.chance(30) {
		p.MinRuntime = pick(w, 30*time.Second, 2*time.Minute)
	}
	if w.chance(50) {
		p.PreemptPerHour = pick(w, 1, 1, 1, 3)
	}
	if w.chance(50) || t.idle {
		p.Elastic = work.PoolElastic{Cooldown: 10 * time.Second, OnIdle: map[work.Class]work.IdleAction{work.Training: work.IdlePark, work.Interactive: work.IdlePark},
			After: map[work.Class]time.Duration{work.Training: time.Minute}}
	}
	if t.supple {
		p.Elastic.Cooldown, p.Elastic.PerTask, p.Elastic.Warn = 10*time.Second, 5, pick(w, time.Second, 30*time.Second)
		p.TTL, p.ReserveGPUs, p.Elastic.OnIdle = 0, 0, nil
	}
	if w.chance(30) {
		p.Elastic.Guard = work.Guard{Window: 2 * time.Minute, Moves: pick(w, -1.0, 2), FailedMoves: pick(w, -1, 0.3), Carves: pick(w, -1, 3)}
	} else if w.chance(50) {
		p.Elastic.Guard = work.NoGuard()
	}
}

// markOf is the request that a task was made for: the word that no other has.
func markOf(s *work.Spec) string {
	if n := len(s.Command); n > 0 {
		return s.Command[n-1]
	}
	return fmt.Sprint(s.Name)
}
