package assess

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"
)

// The metrics of dcgm-exporter that are read. Those of the profiling module say how much
// of a time the GPU computed; GPU_UTIL is coarser, and MIG instances do not have it.
const (
	engineActive = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
	gpuUtil      = "DCGM_FI_DEV_GPU_UTIL"
	smActive     = "DCGM_FI_PROF_SM_ACTIVE"
	memoryUsed   = "DCGM_FI_DEV_FB_USED"
	memoryFree   = "DCGM_FI_DEV_FB_FREE"
)

// slot is where the answer to a question goes.
type slot int

const (
	engineMean slot = iota
	enginePeak
	utilMean
	utilPeak
	smPeak
	used
	unused
	slots
)

// question is what is asked of a metric.
type question struct {
	metric, over string
	slot         slot
	scale        float64
}

var questions = []question{
	{engineActive, "avg_over_time", engineMean, 1},
	{engineActive, "max_over_time", enginePeak, 1},
	{gpuUtil, "avg_over_time", utilMean, 0.01},
	{gpuUtil, "max_over_time", utilPeak, 0.01},
	{smActive, "max_over_time", smPeak, 1},
	{memoryUsed, "max_over_time", used, 1},
	{memoryFree, "max_over_time", unused, 1},
}

// source is a Prometheus that has dcgm-exporter's metrics.
type source struct {
	*prometheus
	record    *record
	questions []question
	pods      string // the label that holds a pod: exported_pod or pod
	rows      map[rowKey]*row
	progress  func(done, total int)
}

type rowKey struct {
	device deviceKey
	pod    podKey
}

// row is what a chunk holds of one device under one pod.
type row struct {
	device, pod int
	values      [slots][]float32 // NaN = not known
}

// FromPrometheus reads the metrics of dcgm-exporter and says what they mean.
func FromPrometheus(ctx context.Context, a Access, o Options, progress func(done, total int)) (*Result, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	p, err := a.connect()
	if err != nil {
		return nil, err
	}
	s := &source{prometheus: p, progress: progress}
	if err := s.look(ctx, o); err != nil {
		return nil, err
	}
	note, err := s.fitStep(ctx, &o)
	if err != nil {
		return nil, err
	}
	w, err := o.window()
	if err != nil {
		return nil, err
	}
	s.record = newRecord(w, o.IdleBelow)
	if err := s.read(ctx); err != nil {
		return nil, err
	}
	from := "Prometheus at " + p.base.Redacted()
	return analyse(s.record, o, from, s.metrics(), note)
}

// look finds out which of the metrics there are, and which labels hold pods.
func (s *source) look(ctx context.Context, o Options) error {
	wanted := []string{engineActive, gpuUtil, smActive, memoryUsed, memoryFree}
	q := url.Values{"match[]": {`{__name__=~"` + strings.Join(wanted, "|") + `"}`}, "start": {seconds(o.From)}, "end": {seconds(o.To)}}
	names, err := s.strings(ctx, "api/v1/label/__name__/values", q)
	if err != nil {
		return err
	}
	for _, x := range questions {
		if slices.Contains(names, x.metric) {
			s.questions = append(s.questions, x)
		}
	}
	if !slices.Contains(names, engineActive) && !slices.Contains(names, gpuUtil) {
		has := "nothing of dcgm-exporter"
		if len(names) > 0 {
			has = "only " + strings.Join(names, ", ")
		}
		return fmt.Errorf("the Prometheus at %s has %s between %s and %s: expected %s or %s; install dcgm-exporter (github.com/NVIDIA/dcgm-exporter, or the GPU operator) on the GPU hosts and let Prometheus scrape it, "+
			"or give readings of another kind with --csv", s.base.Redacted(), has, o.From.UTC().Format(time.RFC3339), o.To.UTC().Format(time.RFC3339), engineActive, gpuUtil)
	}
	labels, err := s.strings(ctx, "api/v1/labels", q)
	if err != nil {
		return err
	}
	s.pods = "pod"
	if slices.Contains(labels, "exported_pod") { // then pod is the exporter's own
		s.pods = "exported_pod"
	}
	return nil
}

func (s *source) metrics() (out []string) {
	for _, q := range s.questions {
		if !slices.Contains(out, q.metric) {
			out = append(out, q.metric)
		}
	}
	return out
}

// fitStep makes the step no shorter than the time between two samples: else steps
// without one would look as if nobody had measured.
func (s *source) fitStep(ctx context.Context, o *Options) (note string, err error) {
	const look = time.Hour
	n, found, err := s.scalar(ctx, fmt.Sprintf("max(count_over_time(%s[%s]))", s.questions[0].metric, promTime(look)), o.To)
	if err != nil || !found || n < 1 {
		return "", err
	}
	every := look / time.Duration(n)
	if every*9/10 <= o.Step {
		return "", nil
	}
	asked := o.Step
	for _, o.Step = range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour} {
		if o.Step >= every*9/10 {
			break
		}
	}
	return fmt.Sprintf("There is a sample every %s only: readings are of %s, not of %s. Idle times shorter than that cannot be seen.", every.Round(time.Second), o.Step, asked), nil
}

// chunkCells is how many readings of one metric a chunk has, about; and first is how
// long the first one is, when nobody knows yet how many series there are.
const (
	chunkCells = 400_000
	first      = time.Hour
	mostPoints = 10_000 // of a series in one answer: Prometheus refuses more than 11,000
)

// read goes through the time chunk by chunk.
func (s *source) read(ctx context.Context) error {
	size := max(1, int(first/s.record.step))
	for at := 0; at < s.record.n; {
		s.rows = map[rowKey]*row{}
		end := min(at+min(size, mostPoints), s.record.n)
		err := s.chunk(ctx, at, end)
		if errors.Is(err, errTooMuch) && size > 1 {
			size /= 2
			continue
		}
		if err != nil {
			return err
		}
		s.fold(at, end)
		size = max(1, min(2*size, chunkCells/max(1, len(s.rows))))
		at = end
		if s.progress != nil {
			s.progress(at, s.record.n)
		}
	}
	if len(s.record.devices) == 0 {
		return fmt.Errorf("the Prometheus at %s knows the metrics and has no sample of them between %s and %s: is it another time, or is dcgm-exporter no longer scraped?",
			s.base.Redacted(), s.record.from.UTC().Format(time.RFC3339), s.record.at(s.record.n).UTC().Format(time.RFC3339))
	}
	return nil
}

// chunk asks every question about some steps.
func (s *source) chunk(ctx context.Context, from, to int) error {
	r := s.record
	for _, q := range s.questions {
		// A millisecond less than the step, so that no sample counts in two.
		query := fmt.Sprintf("%s(%s[%s])", q.over, q.metric, promTime(r.step-time.Millisecond))
		err := s.matrix(ctx, query, r.at(from+1), r.at(to), r.step, func(x series) error {
			into, ok := s.row(x.Metric)
			if !ok {
				return nil
			}
			cells := into.cells(q.slot, to-from)
			return x.Values.each(func(at, v float64) {
				i := int(math.Round((at-float64(r.from.UnixMilli())/1000)/r.step.Seconds())) - 1 - from
				if i >= 0 && i < len(cells) && v >= 0 && v < 1e12 { // DCGM says "blank" by a number that is none, too
					cells[i] = float32(max(v*q.scale, notBelow(cells[i])))
				}
			})
		})
		if err != nil {
			return fmt.Errorf("%s, at %s: %w", q.metric, r.at(from).UTC().Format("2006-01-02 15:04"), err)
		}
	}
	return nil
}

// notBelow is what was read before of the same, from another replica: the larger counts.
func notBelow(x float32) float64 {
	if math.IsNaN(float64(x)) {
		return 0
	}
	return float64(x)
}

func promTime(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }

func (r *row) cells(s slot, n int) []float32 {
	if r.values[s] == nil {
		r.values[s] = make([]float32, n)
		for i := range r.values[s] {
			r.values[s][i] = float32(math.NaN())
		}
	}
	return r.values[s]
}

// row finds the device and the holder that labels name.
func (s *source) row(m map[string]string) (*row, bool) {
	host := m["Hostname"]
	gpu := m["UUID"]
	if gpu == "" && m["gpu"] != "" {
		gpu = cmp.Or(host, m["instance"]) + "/" + m["gpu"]
	}
	if gpu == "" {
		return nil, false
	}
	k := rowKey{device: deviceKey{gpu: gpu}}
	if id := m["GPU_I_ID"]; id != "" {
		k.device.instance = "/" + id
	}
	k.pod = s.holder(m)
	x, ok := s.rows[k]
	if !ok {
		x = &row{pod: -1}
		x.device = s.record.device(about{k.device, host, m["modelName"], m["GPU_I_PROFILE"]})
		if k.pod != (podKey{}) {
			x.pod = s.record.pod(k.pod)
		}
		s.rows[k] = x
	}
	return x, true
}

// holder is who has the GPU by the labels; none when nobody has. The exporter's own pod,
// which Prometheus adds as the target, holds none.
func (s *source) holder(m map[string]string) podKey {
	name, namespace := m[s.pods], m[strings.TrimSuffix(s.pods, "pod")+"namespace"]
	if job := m["hpc_job"]; name == "" && job != "" { // of Slurm and the like
		name, namespace = "job "+job, ""
	}
	if name == "" || s.pods == "pod" && strings.Contains(name, "dcgm-exporter") {
		return podKey{}
	}
	return podKey{m["cluster"], namespace, name}
}

// fold takes the chunk into the record, device by device and step by step.
func (s *source) fold(from, to int) {
	of := make([][]*row, len(s.record.devices))
	for _, x := range s.rows { // order: choose sorts the pods, and of one pod there is one row
		of[x.device] = append(of[x.device], x)
	}
	var pods []int
	for dev, rows := range of {
		d := s.record.devices[dev]
		for i := range to - from {
			pods = pods[:0]
			seen := false
			for _, x := range rows {
				if x.any(i) {
					seen = true
					if x.pod >= 0 {
						pods = append(pods, x.pod)
					}
				}
			}
			if !seen {
				continue
			}
			pod := d.choose(pods)
			at := slices.IndexFunc(rows, func(x *row) bool { return x.pod == pod && x.any(i) })
			s.record.put(dev, from+i, pod, s.reading(d, rows[at], i))
		}
	}
}

func (r *row) any(i int) bool {
	for s := range slots {
		if r.known(s, i) {
			return true
		}
	}
	return false
}

func (r *row) known(s slot, i int) bool {
	return i < len(r.values[s]) && !math.IsNaN(float64(r.values[s][i]))
}

// get is a value, or -1 when it is not known.
func (r *row) get(s slot, i int) float64 {
	if !r.known(s, i) {
		return -1
	}
	return float64(r.values[s][i])
}

// reading prefers the profiling metrics.
func (s *source) reading(d *device, r *row, i int) reading {
	x := reading{mean: r.get(engineMean, i), peak: r.get(enginePeak, i), prof: r.known(enginePeak, i), memMiB: r.get(used, i)}
	if !x.prof {
		x.mean, x.peak = r.get(utilMean, i), r.get(utilPeak, i)
	}
	x.fit = r.get(smPeak, i)
	if x.fit < 0 {
		x.fit = x.peak
	}
	if unused := r.get(unused, i); unused >= 0 && x.memMiB >= 0 && d.instance == "" {
		b := s.record.boards[d.board]
		b.memMiB = max(b.memMiB, unused+x.memMiB)
	}
	return x
}
