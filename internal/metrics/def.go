package metrics

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Def is a metric as docs/metrics.md shows it.
type Def struct {
	Name, Kind, Help string
	Labels           []string
}

// Defs lists all metrics of gpupool's own, by name.
func (m *Metrics) Defs() []Def {
	out := slices.Clone(m.defs)
	slices.SortFunc(out, func(a, b Def) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (m *Metrics) define(kind, name, help string, labels []string) {
	m.defs = append(m.defs, Def{name, kind, help, labels})
}

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	m.define("counter", name, help, labels)
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

// counterFunc is a counter that another keeps, without labels.
func (m *Metrics) counterFunc(name, help string, value func() float64) {
	m.define("counter", name, help, nil)
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, value))
}

func (m *Metrics) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	m.define("gauge", name, help, labels)
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

// histogram is a native one, and one with these buckets for those who cannot read that:
// Prometheus 2.42 of Debian reads native ones only behind a flag.
func (m *Metrics) histogram(buckets []float64, name, help string, labels ...string) *prometheus.HistogramVec {
	m.define("histogram", name, help, labels)
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour}, labels)
	m.registry.MustRegister(v)
	return v
}

// desc is of a metric that is made anew from the view for each scrape.
func (m *Metrics) desc(kind, name, help string, labels ...string) *prometheus.Desc {
	m.define(kind, name, help, labels)
	return prometheus.NewDesc(name, help, labels, nil)
}

// Doc is the text of docs/metrics.md below its introduction.
func (m *Metrics) Doc() string {
	var b strings.Builder
	b.WriteString("| metric | type | labels | what it says |\n| --- | --- | --- | --- |\n")
	for _, d := range m.Defs() {
		labels := "–"
		if len(d.Labels) > 0 {
			labels = "`" + strings.Join(d.Labels, "` `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", d.Name, d.Kind, labels, d.Help)
	}
	return b.String()
}
