package engine

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/gpupool/gpupool/internal/work"
)

// submit takes a copy of the spec if it accepts the task.
func (e *Engine) submit(s *work.Spec) error {
	if s.Key != "" {
		if id, ok := e.keys[idempotency(s)]; ok {
			return e.repeated(e.tasks[id], s)
		}
	}
	if err := s.Validate(); err != nil {
		return err
	}
	t := e.tenants[s.Tenant]
	if t == nil {
		return work.Errorf(work.CodeNotFound, "tenant %q is not known: an admin makes it with gpupool tenants create %s", s.Tenant, s.Tenant)
	}
	p := e.pools[s.Pool]
	if p == nil {
		return work.Errorf(work.CodeNotFound, "pool %q is not known: there are %s", s.Pool, cmp.Or(strings.Join(e.order, ", "), "none yet"))
	}
	r := p.grants(s, s.Request)
	if e.cluster.HasHosts(p.Name) && !e.cluster.Possible(p.Name, r, false) {
		return e.cluster.Impossible(p.Name, r)
	}
	if least := leastMilli(r); t.LimitGPUs > 0 && float64(least) > t.LimitGPUs*1000 {
		return work.Errorf(work.CodeLimit, "tenant %s may hold %g GPUs at once, and this task needs %g: ask for less, or ask an admin for a higher limit",
			t.Name, t.LimitGPUs, float64(least)/1000)
	}
	if err := e.checkAfter(s); err != nil {
		return err
	}
	n := 1
	if s.Array != nil {
		n = s.Array.Size()
	}
	if err := e.admit(p, t, s, n); err != nil {
		return err
	}
	kept := new(work.Spec)
	*kept = *s
	switch {
	case s.TTL == 0:
		kept.TTL = p.TTL
	case s.TTL < 0:
		kept.TTL = 0
	}
	first := e.lastID + 1
	e.out.Task = first
	f := Submitted{Task: first, Spec: kept, Said: e.forecast.Ask(e.job(kept))}
	for i := range n {
		if s.Array != nil {
			f.Task, f.Array, f.Index = first+work.TaskID(i), first, s.Array.Index(i)
		}
		e.emit(f)
	}
	return nil
}

// repeated answers a submission whose idempotency key was used before: with the
// task of then, if it was the same submission.
func (e *Engine) repeated(t *Task, s *work.Spec) error {
	was := *t.Spec
	was.TTL = s.TTL              // the pool's default is filled in
	was.Trace = s.Trace          // a second attempt may be part of other work
	a, errA := json.Marshal(was) // as the journal keeps it: an empty list is no list
	b, errB := json.Marshal(s)
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		return work.Errorf(work.CodeConflict, "idempotency key %q was used for task %d, which is another submission: use a new key", s.Key, t.ID)
	}
	e.out.Task = t.ID
	return nil
}

// leastMilli is what a request takes of GPUs at the least, in thousandths.
func leastMilli(r work.Request) int { return r.Count() * (1000*r.GPUs + r.Milli) }

// active returns an unfinished task.
func (e *Engine) active(id work.TaskID) (*Task, error) {
	t := e.tasks[id]
	if t == nil {
		return nil, work.Errorf(work.CodeNotFound, "task %d is not known; ended tasks are forgotten after a while", id)
	}
	if t.State.Terminal() {
		return nil, work.Errorf(work.CodeConflict, "task %d has ended already: %s", id, t.State)
	}
	return t, nil
}

func (e *Engine) cancel(c Cancel) error {
	t, err := e.active(c.Task)
	if err != nil {
		return err
	}
	why := work.Reasonf(work.Cancelled, "cancelled by %s", c.By)
	switch {
	case t.lease == nil:
		e.emit(Became{t.ID, work.StateCancel, why})
	case t.lease.Closing && t.lease.Then == work.StateCancel:
	default:
		e.close(t.lease, work.StateCancel, why)
	}
	return nil
}

// external returns the lease of an outside client, when the epoch is its newest.
func (e *Engine) external(id work.TaskID, epoch uint32) (*Task, error) {
	t, err := e.active(id)
	switch {
	case err != nil:
		return nil, err
	case !t.Spec.External():
		return nil, work.Errorf(work.CodeConflict, "task %d runs a command of its own: its lease ends with it", id)
	case t.lease == nil || t.lease.Closing:
		return nil, work.Errorf(work.CodeConflict, "lease %d holds nothing: it is %s", id, t.State)
	case epoch != t.Epoch:
		return nil, work.Errorf(work.CodeStale, "lease %d is at epoch %d, not %d: what you held was taken back", id, t.Epoch, epoch)
	}
	return t, nil
}

func (e *Engine) renew(r Renew) error {
	t, err := e.external(r.Task, r.Epoch)
	if err != nil {
		return err
	}
	if err := e.recalled(t.lease); err != nil {
		return err
	}
	e.emit(Renewed{t.ID, t.Epoch, e.now.Add(t.Spec.LeaseTTL)})
	return nil
}

func (e *Engine) release(r Release) error {
	t, err := e.external(r.Task, r.Epoch)
	if err != nil {
		return err
	}
	e.close(t.lease, work.Succeeded, work.Reasonf(work.LeaseReleased, "given back by its holder"))
	return nil
}

func (e *Engine) setTenant(t work.Tenant) error {
	switch {
	case t.Name == "" || strings.ContainsAny(t.Name, " \t\n/\x00"):
		return work.Errorf(work.CodeInvalid, "tenant name %q is not usable: expected one word without spaces or slashes", t.Name)
	case t.LimitGPUs < 0 || t.GuaranteeGPUs < 0 || t.MaxWaiting < 0 || t.MaxRunning < 0 || t.Weight < 0:
		return work.Errorf(work.CodeInvalid, "tenant %s: limits, guarantee and weight must not be negative", t.Name)
	case t.LimitGPUs > 0 && t.GuaranteeGPUs > t.LimitGPUs:
		return work.Errorf(work.CodeInvalid, "tenant %s cannot be guaranteed %g GPUs and be limited to %g", t.Name, t.GuaranteeGPUs, t.LimitGPUs)
	}
	if old := e.tenants[t.Name]; old != nil && fmt.Sprint(*old) == fmt.Sprint(t) {
		return nil
	}
	e.emit(TenantSet{t})
	return nil
}

func (e *Engine) removeTenant(name string) error {
	if e.tenants[name] == nil {
		return work.Errorf(work.CodeNotFound, "tenant %q is not known", name)
	}
	n := 0
	for _, t := range e.tasks { // order: only a count comes out
		if t.Spec.Tenant == name && !t.State.Terminal() {
			n++
		}
	}
	if n > 0 {
		return work.Errorf(work.CodeConflict, "tenant %s has %d unfinished tasks: cancel them first", name, n)
	}
	e.removeTokens(name)
	e.emit(TenantRemoved{name})
	return nil
}

// forget drops the oldest ended tasks, a tenth at a time, once too many are kept.
func (e *Engine) forget() {
	keep := e.cfg.KeepEnded
	if len(e.ended) <= keep+keep/10 {
		return
	}
	old := make([]work.TaskID, 0, len(e.ended)-keep)
	for _, id := range e.ended[:len(e.ended)-keep] {
		if e.tasks[id].holds == nil {
			old = append(old, id)
		}
	}
	if len(old) > 0 {
		e.emit(Forgotten{old})
	}
}

func lower(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}
