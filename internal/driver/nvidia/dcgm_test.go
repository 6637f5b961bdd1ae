package nvidia

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const exported = `# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",device="nvidia0",modelName="NVIDIA A100-SXM4-40GB"} 42
# TYPE DCGM_FI_PROF_GR_ENGINE_ACTIVE gauge
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="1",UUID="GPU-b",GPU_I_PROFILE="1g.5gb",GPU_I_ID="7"} 0.125
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="1",UUID="GPU-b",GPU_I_PROFILE="1g.5gb",GPU_I_ID="8"} NaN
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="1",UUID="GPU-b",GPU_I_PROFILE="1g.5gb",GPU_I_ID="9"} 1.01
`

func TestParseDCGM(t *testing.T) {
	got, err := parseDCGM(strings.NewReader(exported))
	if err != nil || len(got) != 3 || got[reading{"GPU-a", everywhere}] != 0.42 || got[reading{"GPU-b", 7}] != 0.125 || got[reading{"GPU-b", 9}] != 1 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := parseDCGM(strings.NewReader("<html>")); err == nil {
		t.Error("a page is no metrics")
	}
}

func FuzzParseDCGM(f *testing.F) {
	f.Add(exported)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseDCGM(strings.NewReader(text))
		for k, v := range got {
			if err == nil && !(v >= 0 && v <= 1) {
				t.Errorf("%v is %v", k, v)
			}
		}
	})
}

// TestDCGMFillsIn: what NVML does not know of an instance of an A100, the exporter does.
func TestDCGMFillsIn(t *testing.T) {
	s := newSim("A100-40GB", 1)
	s.gpus[0].MIG = true
	silent := func(r request) (bool, error) {
		if r.Op == opUse {
			return true, no(r.Op, nvmlNotSupported)
		}
		return false, nil
	}
	s.breaks = silent
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(strings.NewReplacer("GPU-b", s.gpus[0].UUID, `GPU_I_ID="7"`, `GPU_I_ID="1"`).Replace(exported))) //nolint:errcheck // a test
	}))
	defer srv.Close()
	for url, want := range map[string]float64{"": -1, srv.URL: 0.125} {
		o := options(t, "one")
		o.DCGM = url
		d := openSim(t, s, o)
		p := simPart(d, 1, simMIG(d, 0, "1g.5gb", 0))
		s.gpus[0].nextGI = 0
		if _, err := d.Carve(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		got, err := d.Usage(t.Context())
		if err != nil || len(got) != 1 || got[0].Compute != want {
			t.Errorf("with %q the instance is %+v, %v, want %v", url, got, err, want)
		}
		if err := d.Free(t.Context(), "one", p.Owner); err != nil {
			t.Error(err)
		}
	}
}
