package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/assess"
)

// startPrometheus serves what a file holds from a real Prometheus, and returns its address.
func startPrometheus(t *testing.T, openMetrics string) string {
	t.Helper()
	server, err := exec.LookPath("prometheus")
	tool, err2 := exec.LookPath("promtool")
	if err != nil || err2 != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("prometheus and promtool are missing: make prometheus installs them")
		}
		t.Skip("prometheus and promtool are missing: make prometheus installs them")
	}
	dir := t.TempDir()
	data, settings := filepath.Join(dir, "data"), filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(settings, []byte("global: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// One block for the week: promtool reads the whole file again for each.
	load := exec.CommandContext(t.Context(), tool, "tsdb", "create-blocks-from", "--max-block-duration=168h", "openmetrics", "--quiet", openMetrics, data)
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("promtool: %v: %s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	var log bytes.Buffer
	run := exec.CommandContext(t.Context(), server, "--config.file="+settings, "--storage.tsdb.path="+data, "--storage.tsdb.retention.time=100y", "--web.listen-address="+address)
	run.Stderr = &log
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = run.Process.Kill()
		_ = run.Wait()
		if t.Failed() {
			t.Logf("Prometheus said:\n%s", log.String())
		}
	})
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) { // a process of its own: there is nothing to wait on
		resp, err := http.Get("http://" + address + "/-/ready")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return "http://" + address
			}
		}
	}
	t.Fatal("Prometheus was not ready within a minute")
	return ""
}

func assessed(t *testing.T, args ...string) (out, errs string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	a := &App{Version: "v1", Out: &o, Err: &e, In: strings.NewReader("")}
	code = a.Main(t.Context(), append([]string{"assess"}, args...))
	return o.String(), e.String(), code
}

// TestAssessPrometheus assesses a week of a site whose figures are known, in a real Prometheus.
func TestAssessPrometheus(t *testing.T) {
	if testing.Short() {
		t.Skip("it loads a week of samples")
	}
	s := makeSite(1)
	url := startPrometheus(t, s.openMetrics(t))
	page := filepath.Join(t.TempDir(), "assess.html")
	args := []string{"--prometheus", url, "--end", s.from.Add(siteMinutes * time.Minute).Format(time.RFC3339), "--price", "2.50"}
	began := time.Now()
	out, errs, code := assessed(t, append(args, "-o", "json", "--html", page)...)
	t.Logf("assessed in %s", time.Since(began))
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	var r assess.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	compareSite(t, s.truth(), &r)
	if text, _, _ := assessed(t, args...); true {
		t.Logf("\n%s", text)
	}
	b, err := os.ReadFile(page)
	if err != nil || bytes.Count(b, []byte("<svg")) != 3 || !bytes.Contains(b, []byte("data:image/png;base64,")) || bytes.Contains(b, []byte(`src="http`)) {
		t.Errorf("the page has not three plots and a map, or is not self-contained: %v, %d bytes", err, len(b))
	}
	if keep := os.Getenv("ASSESS_PAGE"); keep != "" {
		_ = os.WriteFile(keep, b, 0o600)
	}
	// A time of which it has nothing.
	if _, errs, code := assessed(t, "--prometheus", url, "--end", "2020-01-01T00:00:00Z"); code != exitFailure || !strings.Contains(errs, "nothing of dcgm-exporter") || !strings.Contains(errs, "install dcgm-exporter") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// compareSite holds what was found against what is known.
func compareSite(t *testing.T, want truth, r *assess.Result) {
	t.Helper()
	for _, x := range []struct {
		what      string
		got, want float64
	}{
		{"GPUs", float64(r.GPUs), siteGPUs},
		{"hosts", float64(r.Hosts), 8},
		{"unallocated", r.Hours.Free, float64(want.free) / 60},
		{"idle", r.Hours.Idle, float64(want.idle) / 60},
		{"in use", r.Hours.Busy, float64(want.busy) / 60},
		{"no data", r.Hours.NoData, float64(want.missing) / 60},
		{"unknown", r.Hours.Unknown, 0},
		{"profiled GPUs", float64(r.Models[0].Profiled), 56},
		{"held, most", float64(r.Means[1].Soon.Most), float64(slices.Max(want.held))},
		{"held, 99 %", float64(r.Means[1].Soon.P99), float64(p99(want.held))},
		{"needed, most", float64(r.Means[4].Soon.Most), float64(slices.Max(want.needed))},
		{"needed, 99 %", float64(r.Means[4].Soon.P99), float64(p99(want.needed))},
		{"pods parked", float64(r.Means[2].Soon.Pods), 16 + 8},
		{"pods on slices", float64(r.Means[3].Soon.Pods), 16},
		{"pods that share", float64(r.Means[4].Soon.Pods), 0},
	} {
		if math.Abs(x.got-x.want) > 1e-6 {
			t.Errorf("%s: got %g, want %g", x.what, x.got, x.want)
		}
	}
	if n := r.Namespaces[0]; n.Name != "vision" {
		t.Errorf("the namespace with most idle hours: %+v", n)
	}
	if h := r.Longest[0]; h.Namespace != "old" || h.For != "7d" || h.MemoryMiB != 1024 {
		t.Errorf("longest idle: %+v", h)
	}
	if got := fmt.Sprint(r.Metrics); !strings.HasPrefix(got, "[DCGM_FI_PROF_GR_ENGINE_ACTIVE DCGM_FI_DEV_GPU_UTIL") {
		t.Errorf("metrics read: %s", got)
	}
}

func p99(xs []int) int {
	sorted := slices.Sorted(slices.Values(xs))
	return sorted[int(math.Ceil(0.99*float64(len(sorted))))-1]
}
