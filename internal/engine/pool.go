package engine

import (
	"github.com/gpupool/gpupool/internal/placement"
	"github.com/gpupool/gpupool/internal/queue"
	"github.com/gpupool/gpupool/internal/work"
)

// pool is a pool's settings, its line and what the last pass over it found.
type pool struct {
	work.Pool
	queue      queue.Queue
	waiting    int           // in line or held back
	hostOnly   int           // tasks in line that ask for no GPU
	full       bool          // capacity came free, or someone left the line: look at everyone
	added      []work.TaskID // newcomers since the last pass
	stirred    bool          // something came free, or its line is empty: others may borrow
	wasPressed bool          // at the last look
	blocked    placement.ModelSet
	kept       []*Reservation // in the order they were made
	accounts   map[string]*account
	weights    int64       // of active tenants, in thousandths
	training   int         // thousandths of GPUs that its tasks hold which are neither inference nor interactive
	debts      []*Debt     // what it has lent, by borrower
	lent       int         // thousandths of its GPUs that guests hold
	asked      work.Time   // when it last asked for more GPUs
	preempts   []work.Time // the last preemptions, within an hour
	drained    drain
	guests     int           // leases of other pools' tasks on its hosts
	failed     []*queue.Line // scratch: lines whose first has no place, in a pass
	number     int

	override work.PoolMode // set beside the settings; "" = none
	idle     []*Task       // that are judged idle, by number
	supple   []*Task       // running tasks that may be resized or moved, by number
	again    []work.Time   // restarts for resizes and moves, within an hour
	look     work.Time     // when it is next looked at whether some should be resized
	parked   int           // tasks of its own that are parked

	byTenant map[string]work.PoolMode // tenants whom it serves in a mode of their own
	guard    guardState
	shadow   shadowState
	books    poolBooks
}

// push puts a task into line.
func (p *pool) push(e *Engine, t *Task) {
	t.Turn = e.turn(p, t)
	p.enter(e, t)
}

// enter puts a task into its line, where its turn says.
func (p *pool) enter(e *Engine, t *Task) {
	if t.State == work.Parked { // it holds all but its GPUs, and those must be of its host
		t.kind = queue.Kind{Tenant: t.Spec.Tenant, Priority: t.Spec.Priority, Latency: t.Spec.Class.Latency(),
			Request: queue.Shape{GPUs: len(t.lease.Parts[0].Was), Members: 1}, Host: 1 + t.lease.Parts[0].Host}
		t.item = queue.Item{ID: t.ID, Turn: t.Turn}
		p.queue.Push(t.kind, t.item)
		t.inLine = true
		return
	}
	t.kind = queue.Kind{Tenant: t.Spec.Tenant, Priority: t.Spec.Priority, Latency: t.Spec.Class.Latency(),
		Fixed: t.Spec.External() || t.Spec.NoPreempt, Request: queue.ShapeOf(p.wants(t))}
	if a := e.arrays[t.Array]; a != nil && a.limit > 0 {
		t.kind.Array = t.Array
	}
	t.item = queue.Item{ID: t.ID, Turn: t.Turn}
	if p.queue.Push(t.kind, t.item) && t.Spec.Request.HostOnly() {
		p.hostOnly++
	}
	t.inLine = true
}

// remove takes a task out of line.
func (p *pool) remove(t *Task) {
	if !t.inLine {
		return
	}
	t.inLine = false
	if p.queue.Remove(t.kind, t.item) && t.kind.Host == 0 && t.Spec.Request.HostOnly() {
		p.hostOnly--
	}
	p.stirred = p.stirred || p.queue.Len() == 0
}
