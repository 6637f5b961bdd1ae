package nvidia

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// dcgm is a dcgm-exporter, for what NVML does not tell: how busy MIG instances of an
// A100 are.
type dcgm struct {
	url    string
	client *http.Client
}

const (
	dcgmWait = 2 * time.Second
	dcgmMax  = 16 << 20
)

func newDCGM(url string) *dcgm {
	if url == "" {
		return nil
	}
	return &dcgm{url, &http.Client{Timeout: dcgmWait}}
}

// reading is what a number is of: an instance of a GPU, or everywhere.
type reading struct {
	gpu string
	gi  int
}

type readings map[reading]float64

// read asks the exporter. What it does not say stays unknown.
func (x *dcgm) read(ctx context.Context, log *slog.Logger) readings {
	if x == nil {
		return nil
	}
	got, err := x.get(ctx)
	if err != nil && ctx.Err() == nil {
		log.Warn("dcgm-exporter does not say how busy GPUs are", "url", x.url, "err", err)
	}
	return got
}

func (x *dcgm) get(ctx context.Context) (readings, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, x.url, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := x.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("expected 200 OK, got %s", resp.Status)
	}
	return parseDCGM(io.LimitReader(resp.Body, dcgmMax))
}

// parseDCGM takes how busy GPUs and instances are from Prometheus text. The share of
// time in which something ran is the same as NVML's for a whole GPU; the newer name of
// a field is read as well.
func parseDCGM(r io.Reader) (readings, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return nil, err
	}
	out := readings{}
	for _, f := range []struct {
		name  string
		scale float64
	}{{"DCGM_FI_DEV_GPU_UTIL", 100}, {"DCGM_FI_PROF_GR_ENGINE_ACTIVE", 1}, {"DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", 1}} {
		for _, m := range families[f.name].GetMetric() {
			key, v := readingOf(m), valueOf(m)
			if key.gpu != "" && v >= 0 && !math.IsInf(v, 0) { // NaN is not
				out[key] = min(v/f.scale, 1)
			}
		}
	}
	return out, nil
}

func readingOf(m *dto.Metric) reading {
	key := reading{gi: everywhere}
	for _, l := range m.GetLabel() {
		switch l.GetName() {
		case "UUID":
			key.gpu = l.GetValue()
		case "GPU_I_ID":
			if n, err := strconv.Atoi(l.GetValue()); err == nil {
				key.gi = n
			}
		}
	}
	return key
}

func valueOf(m *dto.Metric) float64 {
	switch {
	case m.GetGauge() != nil:
		return m.GetGauge().GetValue()
	case m.GetUntyped() != nil:
		return m.GetUntyped().GetValue()
	case m.GetCounter() != nil:
		return m.GetCounter().GetValue()
	}
	return -1
}
