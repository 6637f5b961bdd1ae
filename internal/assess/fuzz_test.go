package assess

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzCSV: no file panics, and hours add up whatever it says.
func FuzzCSV(f *testing.F) {
	f.Add("time,gpu,utilisation\n2026-11-30T00:00:00Z,a,5\n2026-11-30T00:01:00Z,a,\n")
	f.Add("time,gpu,utilization,memory_used_mib,model,host,job,tenant\n1796040000,a,0,20,NVIDIA L4,n,p,t\n1796040060.5,a,100%,20,NVIDIA L4,n,q,t\n")
	f.Add("\xef\xbb\xbftime,gpu,utilisation,pod\n2026-11-30 00:00:00,a,5,x\n2026-11-30 00:00:10,a,7,y\n")
	f.Add("time,gpu,utilisation\n2026-11-30T00:01:00Z,a,5\n2026-11-30T00:00:00Z,a,5\n")
	f.Add("time,gpu\n1,2\n")
	f.Add("time,gpu,utilisation,time\n")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "f.csv")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o := Defaults()
		o.Step = 0
		x, err := FromCSV(path, o)
		if err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Error("an error without words")
			}
			return
		}
		h := x.Hours
		if sum := h.NoData + h.Free + h.Stray + h.Idle + h.Busy + h.Unknown; sum < h.All-1e-6 || sum > h.All+1e-6 {
			t.Errorf("the parts are %g of %g hours: %+v", sum, h.All, h)
		}
		for i, m := range x.Means[1:] {
			if m.Soon.P99 > x.Means[i].Soon.P99 || m.Soon.P99 > m.Soon.Most {
				t.Errorf("%s needs more than without it: %+v", m.Name, x.Means)
			}
		}
	})
}

// FuzzMatrix: no answer panics.
func FuzzMatrix(f *testing.F) {
	f.Add(`{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"UUID":"a"},"values":[[1796040000,"0.5"],[1796040060.5,"NaN"]]}]}}`)
	f.Add(`{"status":"error","error":"no"}`)
	f.Add(`{"data":{"result":[{"metric":{},"values":[[1,2],[]]}]}}`)
	f.Fuzz(func(_ *testing.T, text string) {
		_ = readMatrix(strings.NewReader(text), func(s series) error { return s.Values.each(func(_, _ float64) {}) })
	})
}

func TestCSVErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "it is empty",
		"time,gpu\n":                        `column "utilisation" is missing`,
		"time,gpu,utilisation,gpu\n":        `column "gpu" stands there twice`,
		"time,gpu,utilisation\n":            "it has no row",
		"time,gpu,utilisation\nnow,a,1\n":   ":2: time: expected one such as",
		"time,gpu,utilisation\n1e9,,1\n":    ":2: gpu: expected a name",
		"time,gpu,utilisation\n1e9,a,101\n": ":2: utilisation: expected a number from 0 to 100",
		"time,gpu,utilisation\n1e9,a\n":     ":2: not a row of CSV",
		"time,gpu,utilisation\n2026-11-30T01:00:00Z,a,1\n2026-11-30T00:00:00Z,a,1\n2026-11-30T02:00:00Z,a,1\n": "sort the rows by time",
	} {
		path := filepath.Join(t.TempDir(), "f.csv")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := FromCSV(path, Defaults()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}
