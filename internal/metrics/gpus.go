package metrics

import (
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/host"
)

// The series of each GPU are most of what there is in a large pool, so they do not go
// through the registry, which checks and sorts every one of them at every scrape: their
// families are built here, in order, and once for each view.

// gpuCache is the families as of one view.
type gpuCache struct {
	of       *host.View
	readings []reading
	made     []*dto.MetricFamily
}

func (c *gpuCache) read(v *host.View, rs []reading) {
	if c.of != v {
		c.of, c.readings, c.made = v, rs, nil
	}
}

// gpuFamily is one of the metrics that each GPU has.
type gpuFamily struct {
	name, help string
	labels     []string // beside those that all have
	value      func(v *host.View, g *host.GPUView, r reading) (float64, bool)
}

// gpuLabels are in the order of their names, as the formats want them.
func gpuLabels() []string { return []string{"gpu", "host", "model", "pool"} }

func gpuFamilies() []gpuFamily {
	return []gpuFamily{
		{"gpupool_gpu_held_ratio", "How much of a GPU is given out.", nil,
			func(_ *host.View, g *host.GPUView, _ reading) (float64, bool) { return float64(g.Milli) / 1000, true }},
		{"gpupool_gpu_info", "Always 1; its uuid is the one that NVIDIA's tools name the GPU by.", []string{"uuid"},
			func(*host.View, *host.GPUView, reading) (float64, bool) { return 1, true }},
		{"gpupool_gpu_memory_used_bytes", "Measured use of a GPU's memory.", nil,
			func(_ *host.View, _ *host.GPUView, r reading) (float64, bool) {
				return float64(r.memMiB) * mib, r.compute >= 0
			}},
		{"gpupool_gpu_usable", "1 while a GPU may be given out, 0 while it is suspect, broken or unreachable.", nil,
			func(v *host.View, g *host.GPUView, _ reading) (float64, bool) {
				return truth(v.Hosts[g.Host].Up && g.Health == gpu.HealthOK), true
			}},
		{"gpupool_gpu_utilisation_ratio", "Measured use of a GPU's compute; 0 when it is not given out, missing when nobody measured it.", nil,
			func(_ *host.View, _ *host.GPUView, r reading) (float64, bool) { return r.compute, r.compute >= 0 }},
	}
}

func (m *Metrics) defineGPUs() {
	for _, f := range gpuFamilies() {
		m.define("gauge", f.name, f.help, slices.Concat(gpuLabels(), f.labels))
	}
}

// Gather implements prometheus.Gatherer.
func (m *Metrics) Gather() ([]*dto.MetricFamily, error) {
	m.drain() // first, as the registry asks for everything at once
	out, err := m.registry.Gather()
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gpus.made == nil && m.gpus.of != nil {
		m.gpus.made = buildGPUs(m.gpus.of, m.gpus.readings, m.opts.GPUs)
	}
	out = append(out, m.gpus.made...)
	slices.SortFunc(out, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out, nil
}

// buildGPUs makes the families of the first so many GPUs. The rest of a kind is one series:
// the mean of what is a share, the sum of bytes.
func buildGPUs(v *host.View, rs []reading, most int) []*dto.MetricFamily {
	shown := min(most, len(v.GPUs))
	labels := make([][]*dto.LabelPair, shown)
	for i := range labels {
		g := &v.GPUs[i]
		labels[i] = pairs(gpuLabels(), strconv.Itoa(i), v.Hosts[g.Host].Name, g.Model, v.Hosts[g.Host].Pool)
	}
	var out []*dto.MetricFamily
	for _, f := range gpuFamilies() {
		metrics, gauges, values := make([]dto.Metric, shown), make([]dto.Gauge, shown), make([]float64, shown)
		list := make([]*dto.Metric, 0, shown)
		for i := range shown {
			x, known := f.value(v, &v.GPUs[i], rs[i])
			if !known {
				continue
			}
			values[i] = x
			gauges[i].Value = &values[i]
			metrics[i].Gauge, metrics[i].Label = &gauges[i], labels[i]
			if len(f.labels) > 0 {
				metrics[i].Label = append(slices.Clip(labels[i]), pairs(f.labels, v.GPUs[i].ID)...)
			}
			list = append(list, &metrics[i])
		}
		if len(f.labels) == 0 {
			list = append(list, restOfGPUs(f, v, rs, shown)...)
		}
		if len(list) > 0 {
			out = append(out, &dto.MetricFamily{Name: &f.name, Help: &f.help, Type: dto.MetricType_GAUGE.Enum(), Metric: list})
		}
	}
	return out
}

func restOfGPUs(f gpuFamily, v *host.View, rs []reading, from int) (list []*dto.Metric) {
	sums, counts := map[kind]float64{}, map[kind]float64{}
	for i := from; i < len(v.GPUs); i++ {
		g := &v.GPUs[i]
		if x, known := f.value(v, g, rs[i]); known {
			k := kind{v.Hosts[g.Host].Pool, g.Model}
			sums[k] += x
			counts[k]++
		}
	}
	for k, x := range sums { // order: of no account within a family
		if !strings.HasSuffix(f.name, "_bytes") {
			x /= counts[k]
		}
		list = append(list, &dto.Metric{Gauge: &dto.Gauge{Value: &x}, Label: pairs(gpuLabels(), other, other, k.model, k.pool)})
	}
	return list
}

func pairs(names []string, values ...string) (out []*dto.LabelPair) {
	for i, v := range values {
		out = append(out, &dto.LabelPair{Name: &names[i], Value: &v})
	}
	return out
}
