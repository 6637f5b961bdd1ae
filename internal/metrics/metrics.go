// Package metrics shows what the pool does to Prometheus: an observer of the host's facts
// (counters, histograms and who waits) and of the view that it publishes (what there is).
//
// Facts cost the writer an append to a list; a goroutine of the package's own counts
// them. A scrape asks neither engine nor journal: it walks the newest view, the tasks that
// wait and the parts that stand, so it grows with the GPUs and with those. How many
// series there are never grows with tasks. docs/metrics.md lists what there is.
package metrics

import (
	"compress/gzip"
	"context"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/host"
)

// Options are what a Metrics needs to know. Zero values mean the defaults.
type Options struct {
	Version string
	Tenants int                // names of tenants that are shown; the rest is counted as other. Default 500
	GPUs    int                // GPUs with series of their own; the rest is one of each pool and model. Default 20,000
	Bounds  map[string]float64 // what alerts compare with, by name
}

// Bounds of what is shown by name, unless set otherwise.
const (
	DefaultTenants = 500
	DefaultGPUs    = 20_000
)

// other stands for all tenants or GPUs beyond the bound.
const other = "other"

// Metrics is a host.Watcher and an HTTP handler. It has a registry of its own.
type Metrics struct {
	opts     Options
	registry *prometheus.Registry
	defs     []Def
	vecs     vecs
	state    stateDescs
	role     role

	pending struct {
		mu      sync.Mutex
		commits []host.Commit
		views   []*host.View
		wake    chan struct{}
	}

	dropped atomic.Pointer[func() uint64] // spans; nil: there are no traces

	mu      sync.Mutex // of what follows
	tracker *tracker
	tenants bounded
	view    *host.View
	gone    integrals
	gpus    gpuCache
}

// New makes a Metrics that shows nothing yet: give it to host.Open as Watch, then Seed
// it, then let it Run beside the host.
func New(o Options) *Metrics {
	if o.Tenants == 0 {
		o.Tenants = DefaultTenants
	}
	if o.GPUs == 0 {
		o.GPUs = DefaultGPUs
	}
	m := &Metrics{opts: o, registry: prometheus.NewRegistry(), tenants: bounded{most: o.Tenants}, view: &host.View{}}
	m.pending.wake = make(chan struct{}, 1)
	m.vecs = m.newVecs()
	m.state = m.newState()
	m.tracker = newTracker(m)
	m.role = m.newRole()
	build := m.gauge("gpupool_build_info", "Always 1; its labels say which version runs, and by which Go it was built.", "version", "goversion")
	build.WithLabelValues(o.Version, runtime.Version()).Set(1)
	bound := m.gauge("gpupool_alert_bound", "What the alert rules compare with, as set in the sections alerts and agent of the settings.", "bound")
	for name, x := range o.Bounds { // order: each is set alone
		bound.WithLabelValues(name).Set(x)
	}
	m.counterFunc("gpupool_trace_spans_dropped_total", "Spans of traces that the collector did not take in time; 0 without a collector.", func() float64 {
		if dropped := m.dropped.Load(); dropped != nil {
			return float64((*dropped)())
		}
		return 0
	})
	m.registry.MustRegister(m, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Traces says whom to ask how many spans were lost.
func (m *Metrics) Traces(dropped func() uint64) { m.dropped.Store(&dropped) }

// Seed tells what was there before the first fact, and forgets what another host told
// before. The host must not run yet.
func (m *Metrics) Seed(h *host.Host) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending.mu.Lock()
	m.pending.commits, m.pending.views = nil, nil
	m.pending.mu.Unlock()
	m.tracker = newTracker(m)
	m.view = h.View()
	for _, t := range m.view.Tenants {
		m.tenants.name(t.Name)
	}
	h.Read(func(e *engine.Engine) { m.tracker.seed(e) })
}

// Commit implements host.Watcher.
func (m *Metrics) Commit(c host.Commit) {
	m.pending.mu.Lock()
	m.pending.commits = append(m.pending.commits, c)
	m.pending.mu.Unlock()
	m.wake()
}

// Published implements host.Watcher.
func (m *Metrics) Published(v *host.View) {
	m.pending.mu.Lock()
	m.pending.views = append(m.pending.views, v)
	m.pending.mu.Unlock()
	m.wake()
}

func (m *Metrics) wake() {
	select {
	case m.pending.wake <- struct{}{}:
	default:
	}
}

// Run counts what it is told until ctx ends.
func (m *Metrics) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.pending.wake:
			m.drain()
		}
	}
}

// drain counts what has come so far.
func (m *Metrics) drain() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending.mu.Lock()
	commits, views := m.pending.commits, m.pending.views
	m.pending.commits, m.pending.views = nil, nil
	m.pending.mu.Unlock()
	for _, v := range views {
		m.gone.upTo(m.view, v.At, &m.tenants)
		m.view = v
	}
	for i := range commits {
		m.tracker.commit(&commits[i])
	}
}

// Handler answers scrapes, in the text format, in OpenMetrics with exemplars, and in
// protobuf with native histograms, as the scraper asks.
func (m *Metrics) Handler() http.Handler {
	return zipped(promhttp.HandlerFor(m, promhttp.HandlerOpts{EnableOpenMetrics: true, ErrorHandling: promhttp.HTTPErrorOnError, DisableCompression: true}))
}

// zipped compresses for those who can read it, as fast as can be: promhttp's own way takes
// half as long again as all the rest, and gains little more on text that repeats itself.
func zipped(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept-Encoding")
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			next.ServeHTTP(w, r)
			return
		}
		z := &zipper{ResponseWriter: w}
		defer z.end()
		next.ServeHTTP(z, r)
	})
}

// zipper compresses an answer, unless it turns out to be an error.
type zipper struct {
	http.ResponseWriter
	zip  *gzip.Writer
	said bool
}

// WriteHeader is http.ResponseWriter's.
func (z *zipper) WriteHeader(status int) {
	if z.said {
		return
	}
	z.said = true
	if status == http.StatusOK {
		z.Header().Set("Content-Encoding", "gzip")
		z.Header().Del("Content-Length")
		z.zip, _ = gzip.NewWriterLevel(z.ResponseWriter, gzip.BestSpeed) // it only fails for levels that do not exist
	}
	z.ResponseWriter.WriteHeader(status)
}

func (z *zipper) Write(b []byte) (int, error) {
	z.WriteHeader(http.StatusOK)
	if z.zip == nil {
		return z.ResponseWriter.Write(b)
	}
	return z.zip.Write(b)
}

func (z *zipper) end() {
	if z.zip != nil {
		z.zip.Close() //nolint:errcheck // a client that left is no fault
	}
}
