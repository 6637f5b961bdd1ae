package engine

import (
	"slices"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/placement"
	"github.com/gpupool/gpupool/internal/work"
)

// Resizing in place: the driver is told the new sizes of slices that stand. What becomes
// larger is taken at once and given back if that fails; what becomes smaller is free only
// when the driver has said so.

// resize gives the only part of a task other slices of the same GPUs.
func (e *Engine) resize(t *Task, to []work.Slice, why work.Reason) {
	e.emit(Resizing{t.lease.owner(0), to, why})
	e.command(e.resizeCmd(t.lease, 0))
}

func (e *Engine) resizeCmd(l *Lease, i int) ResizeCmd {
	c := e.carveCmd(l, i)
	c.Slices = l.Parts[i].To
	return ResizeCmd{c}
}

func (e *Engine) resizeDone(ev ResizeDone) {
	if l, p := e.part(ev.Owner); l != nil && p.To != nil {
		e.emit(Resized{ev.Owner})
	}
}

func (e *Engine) resizeFailed(ev ResizeFailed) {
	if l, p := e.part(ev.Owner); l != nil && p.To != nil {
		e.emit(MoveFailed{l.Task, work.MoveResize, ev.Err})
	}
}

func (e *Engine) applyResizing(f Resizing) {
	l, p := e.mustPart(f.Owner)
	p.To, p.Back = f.Slices, p.Slices
	t := l.of
	t.Moved, t.Moves = e.now, t.Moves+1
	if milli(f.Slices) > p.Milli() {
		e.rehold(l, f.Owner, p.To)
	}
}

func (e *Engine) applyResized(o work.Owner) {
	l, p := e.mustPart(o)
	e.rehold(l, o, p.To)
	p.To, p.Back, l.of.Stuck = nil, nil, 0
	e.capped(p)
	l.of.neighbours = neighbours{}
	e.wakeFor(l.of, p)
}

// undoResize takes back what a resize that failed had taken.
func (e *Engine) undoResize(t *Task) {
	if t.lease == nil {
		return
	}
	for i, p := range t.lease.Parts {
		if p.To != nil {
			e.rehold(t.lease, t.lease.owner(i), p.Back)
			p.To, p.Back = nil, nil
			e.wakeFor(t, p)
		}
	}
}

// rehold makes a part hold other slices of the same GPUs.
func (e *Engine) rehold(l *Lease, o work.Owner, s []work.Slice) {
	_, p := e.mustPart(o)
	t := l.of
	e.count(t, p, -1)
	e.cluster.Free(o, p.Part)
	p.Slices = s
	e.cluster.Take(placement.Holder{Owner: o, Tenant: t.Spec.Tenant, Priority: t.Spec.Priority}, p.Part)
	e.count(t, p, 1)
}

func milli(s []work.Slice) int { return work.Part{Slices: s}.Milli() }

// onlySlice is the only slice of the only part of a task, if it has no more.
func (t *Task) onlySlice() (work.Slice, bool) {
	if t.lease == nil || len(t.lease.Parts) != 1 || len(t.lease.Parts[0].Slices) != 1 {
		return work.Slice{}, false
	}
	return t.lease.Parts[0].Slices[0], true
}

// shareOf is the slices with which a task that shares its GPU would have another size, if
// it can have that in place, now.
func (e *Engine) shareOf(t *Task, size int) ([]work.Slice, bool) {
	s, ok := t.onlySlice()
	if !ok || s.Mode != gpu.ModeShared || size > 999 || t.lease.Parts[0].Phase != PhaseRunning || t.lease.Parts[0].To != nil {
		return nil, false
	}
	g := e.cluster.GPUs[s.GPU]
	mem := s.Share.MemMiB
	if size > s.Milli { // a larger one gets its part of what is free of the memory, as far as it asked for it
		mem = max(mem, min(e.askedMem(t, g.Number)*int64(size)/int64(max(e.askedMilli(t), 1)), mem+e.cluster.Geometry(s.GPU).Model.MemoryMiB-g.MemMiB))
	}
	if g.Milli-s.Milli+size > 1000 || g.Kept {
		return nil, false
	}
	s.Milli, s.Share = size, &work.Share{Milli: size, MemMiB: mem}
	return []work.Slice{s}, true
}

// askedMilli is what each member of a task was submitted to have, in thousandths.
func (e *Engine) askedMilli(t *Task) int {
	r := t.Spec.Request
	if r.GPUs > 0 {
		return 1000 * r.GPUs
	}
	if s, ok := t.onlySlice(); ok && r.Milli == 0 && r.GPUMemMiB > 0 {
		m := e.cluster.Geometry(s.GPU).Model.MemoryMiB
		return int(min((r.GPUMemMiB*1000+m-1)/m, 1000))
	}
	return r.Milli
}

// askedMem is the memory of a GPU that it was submitted to have there.
func (e *Engine) askedMem(t *Task, g int) int64 {
	if m := t.Spec.Request.GPUMemMiB; m > 0 {
		return m
	}
	return e.cluster.Geometry(g).Model.MemoryMiB * int64(min(e.askedMilli(t), 1000)) / 1000
}

// alone reports whether a task shares its GPU with nobody.
func (e *Engine) alone(t *Task) bool {
	s, ok := t.onlySlice()
	return ok && len(e.cluster.GPUs[s.GPU].Held) == 1
}

// heldBeside lists the tasks that stand on the same GPU as a task, in order.
func (e *Engine) heldBeside(t *Task) []*Task {
	s, ok := t.onlySlice()
	if !ok {
		return nil
	}
	var out []*Task
	for _, h := range e.cluster.GPUs[s.GPU].Held {
		if h.Owner.Task != t.ID && !slices.ContainsFunc(out, func(x *Task) bool { return x.ID == h.Owner.Task }) {
			out = append(out, e.tasks[h.Owner.Task])
		}
	}
	return out
}
