package storm

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/host"
	"github.com/gpupool/gpupool/internal/work"
)

// request is one submission and what its client was told.
type request struct {
	spec      work.Spec
	mark      string      // its command's last word: no other request has it
	first     work.TaskID // acknowledged; 0 = not, or not yet
	size      int
	unknown   bool // the server died over it: the client must ask again
	refused   bool
	forgotten bool
	cancelled map[work.TaskID]bool // acknowledged
}

// clients submit, and remember for ever what they were told.
type clients struct {
	requests []*request
	byTask   map[work.TaskID]*request
	tasks    []work.TaskID // acknowledged, in order
}

// submit sends a request, and notes what comes back.
func (w *world) submit(r *request) error {
	return w.apply(call{engine.Submit{Spec: r.spec}, func(x host.Reply) error { return w.submitted(r, x) }})
}

func (w *world) submitted(r *request, x host.Reply) error {
	var why *work.Error
	switch {
	case errors.As(x.Err, &why) && why.Code == work.CodeUnavailable:
		r.unknown = true
		return nil
	case x.Err != nil && r.first != 0 && !r.forgotten:
		return broke("doubled", "the key of request %s was answered with %v", r.mark, x.Err)
	case x.Err != nil:
		if r.first == 0 {
			r.refused = true
		}
		return nil
	case r.first == x.Task:
		return nil
	case r.first != 0 && !r.forgotten:
		return broke("doubled", "request %s with key %s was acknowledged as task %d, and again as task %d", r.mark, r.spec.Key, r.first, x.Task)
	}
	r.first, r.unknown, r.forgotten = x.Task, false, false
	r.cancelled = map[work.TaskID]bool{}
	for i := range r.size {
		id := x.Task + work.TaskID(i)
		w.clients.byTask[id] = r
		w.clients.tasks = append(w.clients.tasks, id)
	}
	return nil
}

func (w *world) newRequest() *request {
	r := &request{mark: fmt.Sprint("r", len(w.clients.requests)), size: 1}
	r.spec = w.spec(r.mark)
	if r.spec.Array != nil {
		r.size = r.spec.Array.Size()
	}
	w.clients.requests = append(w.clients.requests, r)
	return r
}

// retry sends a request again that has a key: because its fate is not known, or for no reason.
func (w *world) retry() error {
	var all, unsure []*request
	for _, r := range w.clients.requests {
		if r.spec.Key == "" || r.refused || r.forgotten {
			continue
		}
		all = append(all, r)
		if r.unknown {
			unsure = append(unsure, r)
		}
	}
	switch {
	case len(unsure) > 0 && w.chance(80):
		w.fault("client_retry_unsure")
		return w.submit(pick(w, unsure...))
	case len(all) > 0:
		w.fault("client_retry")
		return w.submit(pick(w, all...))
	}
	return nil
}

// task picks one of those that were acknowledged, mostly a late one.
func (w *world) task() (work.TaskID, bool) {
	known := w.clients.tasks
	if len(known) == 0 {
		return 0, false
	}
	if n := len(known); n > 8 && w.chance(80) {
		known = known[n-8:]
	}
	return pick(w, known...), true
}

func (w *world) cancel() error {
	id, ok := w.task()
	if !ok {
		return nil
	}
	return w.apply(call{engine.Cancel{Task: id, By: "ann"}, func(x host.Reply) error {
		if x.Err == nil {
			w.clients.byTask[id].cancelled[id] = true
		}
		return nil
	}})
}

// leaseCall lets an outside client renew or give back, at the epoch that it knows.
func (w *world) leaseCall() error {
	id, ok := w.task()
	if !ok {
		return nil
	}
	for _, x := range slices.Backward(w.clients.tasks) { // rather one that is a lease
		if w.clients.byTask[x].spec.External() && w.chance(70) {
			id = x
			break
		}
	}
	epoch := uint32(w.rng.IntN(3))
	return w.apply(call{ev: pick[engine.Event](w, engine.Renew{Task: id, Epoch: 1}, engine.Renew{Task: id, Epoch: epoch}, engine.Release{Task: id, Epoch: epoch})})
}

// ask does something with a task, as its user or an operator, mostly something that can be
// done with one as it stands.
func (w *world) ask() error {
	what := []int{holdIt, letGo, saveIt, sendBack, wakeIt, parkIt}
	if w.plan.temper.idle {
		what = []int{letGo, saveIt, wakeIt, wakeIt, parkIt, parkIt, parkIt}
	}
	if w.plan.temper.supple {
		what = append(what, resizeIt, resizeIt, resizeIt, resizeIt)
	}
	x := pick(w, what...)
	id, ok := w.task()
	if fit := w.fitFor(x); len(fit) > 0 && w.chance(85) {
		id, ok = pick(w, fit...), true
	}
	if !ok {
		return nil
	}
	ev := []engine.Event{holdIt: engine.Hold{Task: id, On: true, By: "ann"}, letGo: engine.Hold{Task: id, By: "ann"}, saveIt: engine.Checkpoint{Task: id},
		sendBack: engine.Preempt{Task: id, By: "ann"}, wakeIt: engine.Wake{Task: id, By: "ann"}, parkIt: engine.Park{Task: id, By: "ann"},
		resizeIt: engine.Resize{Task: id, Milli: pick(w, 0, 400, 500, 1000, 2000, 3000), By: "ann"}}[x]
	return w.apply(call{ev: ev})
}

// What can be asked for.
const (
	holdIt = iota
	letGo
	saveIt
	sendBack
	wakeIt
	parkIt
	resizeIt
)

// fitFor are the tasks with which something can be done that is asked for.
func (w *world) fitFor(what int) (out []work.TaskID) {
	for _, t := range w.srv.writer.Engine.Tasks() {
		fits := t.State == work.StateRunning
		switch what {
		case holdIt:
			fits = t.State == work.Queued && !t.Held
		case letGo:
			fits = t.Held
		case wakeIt:
			fits = t.State == work.Parked || fits && t.Lease() != nil && t.Lease().Parts[0].Phase == engine.PhaseSuspending
		}
		if fits {
			out = append(out, t.ID)
		}
	}
	return out
}

// settle changes pools, tenants or modes.
func (w *world) settle() error {
	if w.plan.temper.rolls && w.chance(60) {
		return w.apply(call{ev: pick[engine.Event](w,
			engine.StopRollout{Keep: w.chance(50), By: "ann"},
			engine.StartRollout{Pools: []string{"main", "rest"}, For: time.Minute, Mode: work.Shadow, By: "ann"},
			engine.StartRollout{Pools: []string{"main"}, Tenants: []string{"a", "c"}, For: 90 * time.Second, By: "ann"},
			engine.StartRollout{Pools: []string{"main"}, For: time.Minute, Waits: 1 + w.rng.Float64(), By: "ann"},
			engine.SetMode{Pool: "rest", Mode: work.Shadow, By: "ann"})})
	}
	if w.chance(20) { // an operator's word on a GPU, which only operators take back
		es := w.srv.writer.Engine
		if n := len(es.GPUs()); n > 0 {
			return w.apply(call{ev: engine.JudgeGPU{GPU: w.rng.IntN(n), Do: pick(w, gpu.VerdictNone, gpu.VerdictNone, gpu.VerdictCordon, gpu.VerdictDrain), Why: "looks odd", By: "ann"}})
		}
	}
	w.fault("config_change")
	pools := w.somePools()
	return w.apply(call{ev: pick[engine.Event](w, engine.SetPools{Pools: pools}, engine.SetPools{Pools: pools[:1]}, engine.SetTenant{Tenant: w.tenant("b")}, engine.SetTenant{Tenant: w.tenant("c")},
		engine.RemoveTenant{Name: "c"}, engine.SetMode{Pool: pick(w, "main", "rest"), Mode: pick(w, work.Dynamic, work.Dynamic, work.Static, work.Shadow), By: "ann"})})
}
