package tracing

import (
	"strings"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/host"
	"github.com/gpupool/gpupool/internal/work"
)

// maxSlices is the length of the list of slices in a span.
const maxSlices = 512

// fact turns a fact into what it means for its task.
func (w *watcher) fact(ev host.Event) {
	switch f := ev.Fact.(type) {
	case engine.Submitted:
		l := w.t.newLife(f.Task, f.Spec, ev.At)
		if !l.sampled {
			return
		}
		w.lives[f.Task] = l
		if f.Array != 0 {
			l.root.attrs = append(l.root.attrs, number("gpupool.array", int64(f.Array)), number("gpupool.array.index", int64(f.Index)))
		}
		l.begin(ev.At, "queue")
		if f.Spec.Hold {
			l.note(ev.At, "held")
		}
		return
	case engine.Forgotten:
		for _, id := range f.Tasks {
			delete(w.lives, id)
		}
		return
	}
	l := w.lives[ev.Task]
	if l == nil {
		return
	}
	if !l.lease(ev.At, ev.Fact) && !l.moved(ev.At, ev.Fact) {
		l.remark(ev.At, ev.Fact)
	}
	if l.over() {
		delete(w.lives, ev.Task)
	}
}

// lease takes the facts about what a task holds and how it stands.
func (l *life) lease(at work.Time, fact engine.Fact) bool {
	switch f := fact.(type) {
	case engine.Placed:
		l.placed(at, f)
	case engine.Carved:
		l.note(at, "slices made", number("gpupool.member", int64(f.Owner.Member)))
		delete(l.uncut, f.Owner.Member)
		l.cut(at)
	case engine.Started:
		l.note(at, "started", number("gpupool.member", int64(f.Owner.Member)))
	case engine.Exited:
		attrs := append(reason(f.Exit.Reason()), number("gpupool.member", int64(f.Owner.Member)), number("process.exit.code", int64(f.Exit.Code)))
		l.note(at, "exited", attrs...)
		if !f.Exit.OK() && l.is("run") {
			l.now.err = f.Exit.Reason().Msg
		}
	case engine.Became:
		l.became(at, f)
	case engine.Closing:
		l.closing(at, f)
	case engine.FreeRetry:
		l.note(at, "slices could not be freed", text("gpupool.reason", f.Why))
	case engine.Freed:
		l.freed(at, f.Owner)
	default:
		return false
	}
	return true
}

func (l *life) placed(at work.Time, f engine.Placed) {
	l.end(at)
	l.epoch, l.parts, l.uncut, l.again = f.Epoch, len(f.Parts), map[int]bool{}, f.Runs != 0
	var slices []string
	length := 0
	for i, p := range f.Parts {
		if len(p.Slices) > 0 {
			l.uncut[i] = true
		}
		for _, s := range p.Slices {
			if length < maxSlices {
				slices = append(slices, s.String())
				length += len(slices[len(slices)-1]) + 2
			}
		}
	}
	// The decision takes no time in the books of the engine: a span all the same, as
	// it is what is looked for by place and epoch.
	l.begin(at, "placement", text("gpupool.slices", strings.Join(slices, ", ")), number("gpupool.parts", int64(len(f.Parts))))
	l.begin(at, "carve")
	l.cut(at)
}

// cut goes on once all slices are made.
func (l *life) cut(at work.Time) {
	if len(l.uncut) > 0 || !l.is("carve") {
		return
	}
	switch {
	case l.again:
		l.begin(at, "resume")
	case !l.spec.External():
		l.begin(at, "start")
	}
}

func (l *life) became(at work.Time, f engine.Became) {
	if free := l.frees[l.epoch]; free != nil && free.phase == nil { // nothing of it runs any more
		free.phase = &phase{name: "free", id: l.t.ids.span(l.id, l.epoch, "free", 0), begun: at, epoch: l.epoch}
		l.freeDone(at, l.epoch)
	}
	switch f.State {
	case work.Queued:
		l.begin(at, "queue", reason(f.Reason)...)
	case work.Starting: // told by the placement
	case work.StateRunning:
		if !l.is("run") {
			l.begin(at, "run")
		}
		l.awake = false
	case work.Yielding:
		l.begin(at, "yield", reason(f.Reason)...)
	case work.Parked:
		l.asleep(at)
	default:
		l.finish(at, f.State, f.Reason)
	}
}

// closing begins the end of a lease.
func (l *life) closing(at work.Time, f engine.Closing) {
	l.frees[f.Epoch] = &freeing{left: l.parts}
	if l.is("carve", "start", "resume") && f.Then != work.StateCancel {
		l.now.err = f.Reason.Msg
	}
	if l.is("run") && f.Then == work.Failed {
		l.now.err = f.Reason.Msg
	}
	if !l.is("yield") {
		l.begin(at, "stop", append(reason(f.Reason), text("gpupool.then", string(f.Then)))...)
	}
}

func (l *life) freed(at work.Time, o work.Owner) {
	free := l.frees[o.Epoch]
	if free == nil { // it is suspended: others may have them
		l.note(at, "slices freed", number("gpupool.member", int64(o.Member)))
		return
	}
	free.left--
	l.freeDone(at, o.Epoch)
}

// freeDone ends the span of a lease of which nothing is left.
func (l *life) freeDone(at work.Time, epoch uint32) {
	free := l.frees[epoch]
	if free.left > 0 || free.phase == nil {
		return
	}
	l.send(free.phase, at)
	delete(l.frees, epoch)
}

// moved takes the facts about tasks that are suspended, woken and resized.
func (l *life) moved(at work.Time, fact engine.Fact) bool {
	switch f := fact.(type) {
	case engine.Suspending:
		l.begin(at, "suspend", reason(f.Reason)...)
	case engine.Suspended:
		l.asleep(at, number("gpupool.gpu_memory_mib", f.MemMiB))
	case engine.Woken:
		l.awake = true
		if l.is("parked") {
			l.begin(at, "wake")
		}
		l.note(at, "woken", text("gpupool.by", f.By))
	case engine.Resuming:
		l.begin(at, "resume")
	case engine.Resumed:
		if l.is("suspend", "resume") {
			l.begin(at, "run")
		}
	case engine.MoveFailed:
		l.failed(at, f)
	case engine.Resizing:
		var to []string
		for _, s := range f.Slices {
			to = append(to, s.String())
		}
		l.size = &phase{name: "resize", id: l.t.ids.span(l.id, l.epoch, "resize", at), begun: at, epoch: l.epoch, attrs: append(reason(f.Reason), text("gpupool.to", strings.Join(to, ", ")))}
	case engine.Resized:
		l.resized(at, "")
	default:
		return false
	}
	return true
}

// asleep begins the time without GPUs, once: of a task that could not go on, again.
func (l *life) asleep(at work.Time, attrs ...*commonpb.KeyValue) {
	switch {
	case l.is("parked", "wake"):
	case l.awake:
		l.begin(at, "wake", attrs...)
	default:
		l.begin(at, "parked", attrs...)
	}
}

func (l *life) failed(at work.Time, f engine.MoveFailed) {
	l.note(at, "move failed", text("gpupool.move", string(f.Move)), text("gpupool.reason", f.Why))
	if f.Move == work.MoveResize {
		l.resized(at, f.Why)
	} else if l.is("suspend", "resume", "carve") {
		l.now.err = f.Why
	}
}

func (l *life) resized(at work.Time, why string) {
	if l.size == nil {
		return
	}
	l.size.err = why
	l.send(l.size, at)
	l.size = nil
}

// remark notes what is said about a task while it goes through something.
func (l *life) remark(at work.Time, fact engine.Fact) {
	switch f := fact.(type) {
	case engine.Held:
		l.note(at, map[bool]string{true: "held", false: "released"}[f.On], text("gpupool.by", f.By))
	case engine.Checkpointed:
		l.note(at, "checkpoint")
	case engine.Reserved:
		l.note(at, "reserved", number("gpupool.parts", int64(len(f.Parts))), number("gpupool.victims", int64(len(f.Victims))))
	case engine.Judged:
		l.note(at, "use", text("gpupool.use", string(f.Use.Kind)))
	case engine.Sized:
		size := l.spec.Request.String()
		if f.Request != nil {
			size = f.Request.String()
		}
		l.note(at, "sized", text("gpupool.request", size), text("gpupool.by", f.By))
	case engine.Planned:
		l.note(at, "planned", append(reason(f.Plan.Reason), text("gpupool.move", string(f.Plan.Move)))...)
	case engine.Dropped:
		l.note(at, "plan dropped", text("gpupool.reason", f.Why))
	case engine.Shadowed:
		l.note(at, "would be moved", append(reason(f.Reason), text("gpupool.move", string(f.Move)))...)
	}
}
