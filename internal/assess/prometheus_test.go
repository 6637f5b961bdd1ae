package assess

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// fakeProm answers as a Prometheus does that has some series with one value each minute.
type fakeProm struct {
	labels []string
	series map[string][]fakeSeries // by metric
	refuse func(r *http.Request, points int) (code int, said string)
	asked  int
}

type fakeSeries struct {
	labels map[string]string
	value  func(minute int) (float64, bool)
}

func always(v float64) func(int) (float64, bool) {
	return func(int) (float64, bool) { return v, true }
}

func (f *fakeProm) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	f.asked++
	num := func(name string) float64 { v, _ := strconv.ParseFloat(r.Form.Get(name), 64); return v }
	from, to, step := num("start"), num("end"), num("step")
	if f.refuse != nil {
		if code, said := f.refuse(r, int((to-from)/max(step, 1))+1); code != 0 {
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(map[string]string{"status": "error", "error": said})
			return
		}
	}
	var data any
	switch {
	case strings.HasSuffix(r.URL.Path, "/values"):
		names := []string{}
		for name := range f.series {
			names = append(names, name)
		}
		data = names
	case strings.HasSuffix(r.URL.Path, "/labels"):
		data = f.labels
	case strings.HasSuffix(r.URL.Path, "/query"):
		data = map[string]any{"result": []any{map[string]any{"value": []any{0, "60"}}}}
	default:
		_, metric, _ := strings.Cut(r.Form.Get("query"), "(")
		metric, _, _ = strings.Cut(metric, "[")
		result := []any{}
		for _, s := range f.series[metric] {
			values := [][2]any{}
			for at := from; at <= to; at += step {
				if v, ok := s.value(int(at-float64(midnight.Unix()))/60 - 1); ok {
					values = append(values, [2]any{at, fmt.Sprint(v)})
				}
			}
			if len(values) > 0 {
				result = append(result, map[string]any{"metric": s.labels, "values": values})
			}
		}
		data = map[string]any{"resultType": "matrix", "result": result}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": data})
}

func dayOptions() Options {
	o := Defaults()
	o.From, o.To = midnight, midnight.AddDate(0, 0, 1)
	return o
}

func labels(pairs ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

func (f *fakeProm) assess(t *testing.T, o Options) (*Result, error) {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return FromPrometheus(t.Context(), Access{URL: s.URL}, o, nil)
}

// TestLabels: both spellings of pods, and the exporter's own pod, which holds nothing.
func TestLabels(t *testing.T) {
	for name, x := range map[string]struct {
		labels []string
		a      map[string]string
		free   map[string]string
	}{
		"exported": {[]string{"pod", "exported_pod"}, labels("UUID", "a", "pod", "exporter-1", "namespace", "mon", "exported_pod", "p", "exported_namespace", "vision"), labels("UUID", "b", "pod", "exporter-1", "namespace", "mon")},
		"plain":    {[]string{"pod"}, labels("UUID", "a", "pod", "p", "namespace", "vision"), labels("UUID", "b", "pod", "nvidia-dcgm-exporter-x", "namespace", "mon")},
		"empty":    {[]string{"pod"}, labels("UUID", "a", "pod", "p", "namespace", "vision"), labels("UUID", "b", "pod", "")},
		"index":    {[]string{"pod"}, labels("gpu", "0", "Hostname", "n", "pod", "p", "namespace", "vision"), labels("gpu", "1", "Hostname", "n")},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeProm{labels: x.labels, series: map[string][]fakeSeries{gpuUtil: {{x.a, always(50)}, {x.free, always(0)}}}}
			r, err := f.assess(t, dayOptions())
			if err != nil {
				t.Fatal(err)
			}
			near(t, "free", r.Hours.Free, 24)
			near(t, "busy", r.Hours.Busy, 24)
			if len(r.Namespaces) != 1 || r.Namespaces[0].Name != "vision" {
				t.Errorf("namespaces: %+v", r.Namespaces)
			}
		})
	}
}

// TestMIG: instances count with their share, the board's own series not at all, and are
// packed anew by the geometry: two boards with a 3g and a 2g instance each, all held, fit
// no better; with only the two 3g held one board is enough.
func TestMIG(t *testing.T) {
	mig := func(gpu, id, profile, pod string) map[string]string {
		return labels("UUID", gpu, "Hostname", "n", "modelName", h100, "GPU_I_ID", id, "GPU_I_PROFILE", profile, "pod", pod, "namespace", "v")
	}
	f := &fakeProm{labels: []string{"pod"}, series: map[string][]fakeSeries{engineActive: {
		{labels("UUID", "a", "Hostname", "n", "modelName", h100), always(0.4)},
		{mig("a", "1", "3g.40gb", "p"), always(0.8)}, {mig("a", "2", "2g.20gb", ""), always(0)},
		{mig("b", "1", "3g.40gb", "q"), always(0)}, {mig("b", "2", "2g.20gb", ""), always(0)},
	}}}
	r, err := f.assess(t, dayOptions())
	if err != nil {
		t.Fatal(err)
	}
	near(t, "busy", r.Hours.Busy, 24*3.0/7)
	near(t, "idle", r.Hours.Idle, 24*3.0/7)
	near(t, "free", r.Hours.Free, 24*4.0/7)
	if r.GPUs != 2 || r.by("held now").Soon.Most != 2 || r.by("slices").Soon.Most != 1 {
		t.Errorf("%d GPUs, %+v", r.GPUs, r.Means)
	}
}

// TestPrefersProfiling: where both are there, the profiling metric counts, by GPU.
func TestPrefersProfiling(t *testing.T) {
	a, b := labels("UUID", "a", "pod", "p", "namespace", "v"), labels("UUID", "b", "pod", "q", "namespace", "v")
	f := &fakeProm{labels: []string{"pod"}, series: map[string][]fakeSeries{engineActive: {{a, always(0.01)}}, gpuUtil: {{a, always(100)}, {b, always(100)}}, smActive: {{a, always(0.01)}}}}
	r, err := f.assess(t, dayOptions())
	if err != nil {
		t.Fatal(err)
	}
	near(t, "idle", r.Hours.Idle, 24)
	near(t, "busy", r.Hours.Busy, 24)
	if r.Models[0].Profiled != 1 || !strings.Contains(strings.Join(r.Notes, " "), "1 devices have "+gpuUtil+" only") {
		t.Errorf("%+v, %q", r.Models, r.Notes)
	}
}

// TestPartial: what has no sample is not idle and not free; a pod whose use was not
// measured is not idle.
func TestPartial(t *testing.T) {
	half := func(v float64) func(int) (float64, bool) { return func(m int) (float64, bool) { return v, m < 720 } }
	a := labels("UUID", "a", "pod", "p", "namespace", "v", "modelName", h100)
	f := &fakeProm{labels: []string{"pod"}, series: map[string][]fakeSeries{gpuUtil: {{a, half(0)}, {labels("UUID", "b"), half(0)}}, memoryUsed: {{a, always(100)}}}}
	r, err := f.assess(t, dayOptions())
	if err != nil {
		t.Fatal(err)
	}
	near(t, "idle", r.Hours.Idle, 12)
	near(t, "unknown", r.Hours.Unknown, 12)
	near(t, "free", r.Hours.Free, 12)
	near(t, "no data", r.Hours.NoData, 12)
}

// TestTooMuch: a server that answers less at once is asked for less.
func TestTooMuch(t *testing.T) {
	f := &fakeProm{labels: []string{"pod"}, series: map[string][]fakeSeries{gpuUtil: {{labels("UUID", "a", "pod", "p"), always(50)}}}}
	f.refuse = func(r *http.Request, points int) (int, string) {
		if strings.HasSuffix(r.URL.Path, "query_range") && points > 100 {
			return 422, "query processing would load too many samples into memory in query execution"
		}
		return 0, ""
	}
	r, err := f.assess(t, dayOptions())
	if err != nil {
		t.Fatal(err)
	}
	near(t, "busy", r.Hours.Busy, 24)
}

// TestPoints: no answer has as many points as Prometheus refuses.
func TestPoints(t *testing.T) {
	f := &fakeProm{labels: []string{"pod"}, series: map[string][]fakeSeries{gpuUtil: {{labels("UUID", "a", "pod", "p"), always(50)}}}}
	most := 0
	f.refuse = func(r *http.Request, points int) (int, string) {
		if strings.HasSuffix(r.URL.Path, "query_range") {
			most = max(most, points)
		}
		return 0, ""
	}
	o := dayOptions()
	o.From = o.To.AddDate(0, 0, -30)
	r, err := f.assess(t, o)
	if err != nil || most > 11_000 || most < 5_000 {
		t.Fatalf("%v, up to %d points", err, most)
	}
	near(t, "busy", r.Hours.Busy, 30*24)
}

// TestRetries: what may pass is tried again, with back-off.
func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &prometheus{auth: func(*http.Request) {}, tries: 5}
		p.base, _ = url.Parse("http://prometheus")
		tried := 0
		p.client = &http.Client{Transport: roundTrip(func(r *http.Request) *http.Response {
			w := httptest.NewRecorder()
			if tried++; tried < 4 {
				w.WriteHeader(http.StatusServiceUnavailable)
			} else {
				fmt.Fprint(w, `{"data":["a"]}`)
			}
			return w.Result()
		})}
		began := time.Now()
		got, err := p.strings(t.Context(), "api/v1/labels", nil)
		if err != nil || !slices.Equal(got, []string{"a"}) || tried != 4 || time.Since(began) < 300*time.Millisecond {
			t.Errorf("%v, %v after %d tries and %s", got, err, tried, time.Since(began))
		}
	})
}

type roundTrip func(*http.Request) *http.Response

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

func TestRefusals(t *testing.T) {
	one := map[string][]fakeSeries{gpuUtil: {{labels("UUID", "a"), always(0)}}}
	answer := func(code int, said string) func(*http.Request, int) (int, string) {
		return func(*http.Request, int) (int, string) { return code, said }
	}
	for name, x := range map[string]struct {
		f    *fakeProm
		want string
	}{
		"401":     {&fakeProm{series: one, refuse: answer(401, "")}, "give --token-file or --basic-auth-file"},
		"404":     {&fakeProm{series: one, refuse: answer(404, "")}, "there is no Prometheus at"},
		"400":     {&fakeProm{series: one, refuse: answer(400, "parse error")}, `refuses the question (400 Bad Request): "parse error"`},
		"none":    {&fakeProm{series: map[string][]fakeSeries{}}, "has nothing of dcgm-exporter"},
		"memory":  {&fakeProm{series: map[string][]fakeSeries{memoryUsed: nil}}, "has only " + memoryUsed},
		"samples": {&fakeProm{series: map[string][]fakeSeries{gpuUtil: nil}}, "has no sample of them"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := x.f.assess(t, dayOptions()); err == nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("got %v, want %q", err, x.want)
			}
		})
	}
}

func TestAccess(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, x := range []struct {
		a    Access
		want string
	}{
		{Access{URL: "prometheus:9090"}, "is not the address of a Prometheus"},
		{Access{URL: "http://p", TokenFile: file("a"), BasicFile: file("a:b")}, "not both"},
		{Access{URL: "http://p", TokenFile: file("a\nb")}, "one line with the credentials"},
		{Access{URL: "http://p", BasicFile: file("a")}, "user:password"},
		{Access{URL: "http://p", CAFile: file("a")}, "holds no certificate"},
		{Access{URL: "http://p", TokenFile: "/nowhere/token"}, "cannot be read"},
	} {
		if _, err := x.a.connect(); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%+v: got %v, want %q", x.a, err, x.want)
		}
	}
	var got string
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Get("Authorization") }))
	defer s.Close()
	for want, a := range map[string]Access{"Bearer abc": {URL: s.URL, TokenFile: file("abc\n")}, "Basic dTpw": {URL: s.URL, BasicFile: file("u:p\n")}} {
		p, err := a.connect()
		if err != nil {
			t.Fatal(err)
		}
		p.tries = 1
		if _, _ = p.strings(t.Context(), "api/v1/labels", nil); got != want {
			t.Errorf("authorization %q, want %q", got, want)
		}
	}
}

func TestUnreachable(t *testing.T) {
	s := httptest.NewServer(nil)
	s.Close()
	p, err := Access{URL: s.URL}.connect()
	if err != nil {
		t.Fatal(err)
	}
	p.tries = 1
	if _, err := p.strings(t.Context(), "api/v1/labels", nil); err == nil || !strings.Contains(err.Error(), "does not answer") || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v", err)
	}
	p.tries = 5
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.strings(ctx, "api/v1/labels", nil); err == nil {
		t.Error("goes on although it was interrupted")
	}
}
