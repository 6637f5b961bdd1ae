// Package tracing tells an OpenTelemetry collector what became of each task: one trace a
// task, with a span for each thing that it went through. It is made of the facts that the
// host has published, so nothing waits for it and the core knows nothing of it.
//
// What it keeps is one small record for each unfinished task that is sampled, and a
// bounded number of spans that wait to be sent; beyond that they are dropped and counted.
// A fact costs a lookup and at most a span.
package tracing

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/host"
	"github.com/gpupool/gpupool/internal/work"
)

// Options say where traces go. The zero values but for Endpoint and Installation are good.
type Options struct {
	Endpoint     string            // that takes OTLP over HTTP, with its path: http://127.0.0.1:4318/v1/traces
	Headers      map[string]string // of each request
	Sample       float64           // share of the tasks that are traced, where the client does not say
	Installation string            // makes the traces of one installation its own, and the same after a restart
	Resource     map[string]string // who tells this
	Log          *slog.Logger

	batch   time.Duration // that spans wait for others; default 1 s
	timeout time.Duration // of one attempt to send; default 10 s
	retry   time.Duration // for how long one batch is tried; default 30 s
	queue   int           // spans that wait at most; default 4096
}

func (o Options) withDefaults() Options {
	if o.batch == 0 {
		o.batch = time.Second
	}
	if o.timeout == 0 {
		o.timeout = 10 * time.Second
	}
	if o.retry == 0 {
		o.retry = 30 * time.Second
	}
	if o.queue == 0 {
		o.queue = 4096
	}
	return o
}

// Feed is what is told: the facts, and how things stood before them. A Host is one.
type Feed interface {
	Subscribe(after uint64) (backlog []host.Event, next <-chan host.Event, stop func())
	LastEvent() uint64
	Read(f func(*engine.Engine))
}

// Tracer makes spans and sends them.
type Tracer struct {
	o       Options
	ids     ids
	spans   chan *tracepb.Span
	dropped atomic.Uint64
	failing atomic.Bool // spans are being dropped, and the log says so

	sending   context.Context //nolint:containedctx // what is being sent ends with it
	giveUp    context.CancelFunc
	following sync.WaitGroup
	last      chan struct{} // closed when what waits is to be sent, and no more
	sent      chan struct{} // closed when the exporter has ended
}

// New makes a Tracer; it sends from now on. Close ends it.
func New(o Options) *Tracer {
	o = o.withDefaults()
	t := &Tracer{o: o, ids: ids{o.Installation, o.Sample}, spans: make(chan *tracepb.Span, o.queue), last: make(chan struct{}), sent: make(chan struct{})}
	t.sending, t.giveUp = context.WithCancel(context.Background())
	go t.export()
	return t
}

// Dropped is how many spans were lost: the collector was away or refused them.
func (t *Tracer) Dropped() uint64 { return t.dropped.Load() }

// Traceparent is what the process of a task at an epoch gets, so that its own spans join
// its trace. The parent is what the client sent, or nothing.
func (t *Tracer) Traceparent(task work.TaskID, epoch uint32, parent string) string {
	x := t.ids.of(task, parent)
	return format(x.trace, t.ids.span(task, epoch, "run", 0), x.sampled)
}

// Follow turns what a host does from now on into spans, until the host has ended. It
// must be called before the host runs, so that nothing is missed.
func (t *Tracer) Follow(f Feed) {
	w := &watcher{t: t, feed: f, last: f.LastEvent()}
	backlog, next, stop := f.Subscribe(w.last)
	w.restore()
	t.following.Go(func() { w.follow(backlog, next, stop) })
}

// Close sends what is left, until ctx ends. The host must have ended.
func (t *Tracer) Close(ctx context.Context) {
	t.following.Wait()
	close(t.last)
	select {
	case <-t.sent:
	case <-ctx.Done():
	}
	t.giveUp()
	<-t.sent
}

// put hands a span over to be sent, or drops it: nobody ever waits for a collector.
func (t *Tracer) put(s *tracepb.Span) {
	select {
	case t.spans <- s:
	default:
		t.drop(1, "the collector does not take spans as fast as they are made")
	}
}

// drop counts spans that are lost, and says so when that begins.
func (t *Tracer) drop(n int, why string) {
	t.dropped.Add(uint64(n))
	if !t.failing.Swap(true) {
		t.o.Log.Warn("traces are incomplete: spans are dropped until the collector takes them again", "endpoint", t.o.Endpoint, "why", why)
	}
}

// recovered says that spans arrive again.
func (t *Tracer) recovered() {
	if t.failing.Swap(false) {
		t.o.Log.Info("the collector takes spans again", "endpoint", t.o.Endpoint, "dropped", t.Dropped())
	}
}

// watcher follows one host.
type watcher struct {
	t      *Tracer
	feed   Feed
	last   uint64    // the newest fact that was seen
	loaded work.Time // facts up to then are in what was restored
	lives  map[work.TaskID]*life
}

// follow takes facts until the host ends. Who is too slow is let go by the host, and
// comes back; what the host does not keep by then is missing in the spans.
func (w *watcher) follow(backlog []host.Event, next <-chan host.Event, stop func()) {
	for {
		seen := w.last
		if len(backlog) > 0 && backlog[0].Seq > w.last+1 {
			w.t.o.Log.Warn("traces are incomplete: facts were published faster than they were turned into spans", "facts", backlog[0].Seq-w.last-1)
			w.restore()
		}
		for _, ev := range backlog {
			w.take(ev)
		}
		for ev := range next {
			w.take(ev)
		}
		stop()
		if w.last == seen { // nothing came, and yet the channel was closed: the host has ended
			return
		}
		backlog, next, stop = w.feed.Subscribe(w.last)
	}
}

func (w *watcher) take(ev host.Event) {
	w.last = ev.Seq
	if ev.At > w.loaded {
		w.fact(ev)
	}
}
