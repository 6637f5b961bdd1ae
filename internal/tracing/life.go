package tracing

import (
	"cmp"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/gpupool/gpupool/internal/work"
)

// maxEvents of one span; more are counted.
const maxEvents = 64

// phase is a span that goes on.
type phase struct {
	name    string
	id      []byte
	begun   work.Time
	epoch   uint32
	attrs   []*commonpb.KeyValue
	events  []*tracepb.Span_Event
	dropped uint32
	err     string // why it went wrong; "" = it did not
}

func (p *phase) event(at work.Time, name string, attrs ...*commonpb.KeyValue) {
	if len(p.events) == maxEvents {
		p.dropped++
		return
	}
	p.events = append(p.events, &tracepb.Span_Event{TimeUnixNano: uint64(at), Name: name, Attributes: kept(attrs)})
}

// life is a task that has not ended, or still holds something.
type life struct {
	t    *Tracer
	id   work.TaskID
	spec *work.Spec
	trace

	root  phase
	now   *phase // what it goes through; nil once it has ended
	size  *phase // a resize beside it
	epoch uint32
	parts int                 // of the newest lease
	uncut map[int]bool        // members of it whose slices are not made yet
	again bool                // the newest lease is of a suspended task
	awake bool                // it is suspended and wants to go on
	ran   map[uint32]bool     // epochs that have a run already
	frees map[uint32]*freeing // leases that are taken apart
}

// freeing is a lease that is taken apart.
type freeing struct {
	left  int // parts that still hold something
	phase *phase
}

func (t *Tracer) newLife(id work.TaskID, spec *work.Spec, at work.Time) *life {
	l := &life{t: t, id: id, spec: spec, trace: t.ids.of(id, spec.Trace), ran: map[uint32]bool{}, frees: map[uint32]*freeing{}}
	l.root = phase{name: "task", id: t.ids.span(id, 0, "task", 0), begun: at, attrs: []*commonpb.KeyValue{
		text("gpupool.name", spec.Name), text("gpupool.request", spec.Request.String()), text("gpupool.priority", spec.Priority.String()),
		text("gpupool.class", string(spec.Class)), number("gpupool.members", int64(spec.Request.Count()))}}
	return l
}

// begin ends what goes on, and begins something else.
func (l *life) begin(at work.Time, name string, attrs ...*commonpb.KeyValue) {
	l.end(at)
	salt := at
	if name == "run" && !l.ran[l.epoch] { // the one that the process was told of
		l.ran[l.epoch], salt = true, 0
	}
	l.now = &phase{name: name, id: l.t.ids.span(l.id, l.epoch, name, salt), begun: at, epoch: l.epoch, attrs: attrs}
}

// end ends what goes on.
func (l *life) end(at work.Time, attrs ...*commonpb.KeyValue) {
	if l.now == nil {
		return
	}
	l.now.attrs = append(l.now.attrs, attrs...)
	l.send(l.now, at)
	l.now = nil
}

// is reports whether it goes through one of these.
func (l *life) is(names ...string) bool {
	for _, n := range names {
		if l.now != nil && l.now.name == n {
			return true
		}
	}
	return false
}

// note adds an event to what goes on, or to the whole.
func (l *life) note(at work.Time, name string, attrs ...*commonpb.KeyValue) {
	p := l.now
	if p == nil {
		p = &l.root
	}
	p.event(at, name, attrs...)
}

// over reports whether nothing is left to be told of it.
func (l *life) over() bool { return l.root.id == nil && len(l.frees) == 0 }

// finish ends the whole.
func (l *life) finish(at work.Time, state work.State, why work.Reason) {
	l.end(at)
	if l.size != nil {
		l.send(l.size, at)
		l.size = nil
	}
	l.root.attrs = append(l.root.attrs, text("gpupool.state", string(state)), text("gpupool.reason.code", string(why.Code)), text("gpupool.reason", why.Msg))
	if state == work.Failed || state == work.Expired {
		l.root.err = why.Msg
	}
	l.root.epoch = l.epoch
	l.send(&l.root, at)
	l.root.id = nil
}

// send hands over a span that has ended.
func (l *life) send(p *phase, at work.Time) {
	s := &tracepb.Span{TraceId: l.trace.trace[:], SpanId: p.id, ParentSpanId: l.rootID(), Name: p.name, Kind: tracepb.Span_SPAN_KIND_INTERNAL,
		StartTimeUnixNano: uint64(p.begun), EndTimeUnixNano: uint64(max(at, p.begun)), Events: p.events, DroppedEventsCount: p.dropped,
		Attributes: kept(append([]*commonpb.KeyValue{number("gpupool.task", int64(l.id)), text("gpupool.tenant", l.spec.Tenant), text("gpupool.pool", l.spec.Pool),
			number("gpupool.epoch", int64(p.epoch))}, p.attrs...)), Status: &tracepb.Status{}}
	if p == &l.root {
		s.ParentSpanId = l.parent
		s.Name = cmp.Or(l.spec.Name, "task")
		s.Kind = tracepb.Span_SPAN_KIND_SERVER
	}
	if p.err != "" {
		s.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: p.err}
	}
	l.t.put(s)
}

// rootID is the span of the whole, also when that was sent already.
func (l *life) rootID() []byte { return l.t.ids.span(l.id, 0, "task", 0) }

func text(key, value string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: value}}}
}

func number(key string, n int64) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: n}}}
}

// kept leaves out what says nothing.
func kept(in []*commonpb.KeyValue) (out []*commonpb.KeyValue) {
	for _, kv := range in {
		if s, is := kv.GetValue().GetValue().(*commonpb.AnyValue_StringValue); !is || s.StringValue != "" {
			out = append(out, kv)
		}
	}
	return out
}

// reason is why something is so, for programs and for people.
func reason(r work.Reason) []*commonpb.KeyValue {
	return []*commonpb.KeyValue{text("gpupool.reason.code", string(r.Code)), text("gpupool.reason", r.Msg)}
}
