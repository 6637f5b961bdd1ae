package main

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/gpupool/gpupool/internal/cli"
	"github.com/gpupool/gpupool/internal/config"
)

// TestTracing follows one task of a real server over OTLP, with a crash in between: it is
// one trace, below the span of who submitted it, and the process knows where it belongs.
func TestTracing(t *testing.T) {
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	var mu sync.Mutex
	spans := map[string][]*tracepb.Span{}
	ids := map[string]bool{}
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var data tracepb.TracesData
		z, err := gzip.NewReader(r.Body)
		if err == nil {
			var raw []byte
			if raw, err = io.ReadAll(z); err == nil {
				err = proto.Unmarshal(raw, &data)
			}
		}
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("X-Key") != "a b" {
			http.Error(w, fmt.Sprint(err, r.URL, r.Header), http.StatusBadRequest)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, s := range data.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans() {
			if ids[string(s.GetSpanId())] {
				t.Errorf("the id of a span %s is used twice", s.GetName())
			}
			ids[string(s.GetSpanId())] = true
			spans[s.GetName()] = append(spans[s.GetName()], s)
		}
	}))
	defer collector.Close()
	arrives := func(name string) []*tracepb.Span {
		t.Helper()
		for range 2000 {
			mu.Lock()
			got := slices.Clone(spans[name])
			mu.Unlock()
			if len(got) > 0 {
				return got
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("no span %s arrived", name)
		return nil
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b")
	s := &testServer{t: t, data: t.TempDir(), shape: "2xH100-80GB"}
	s.start()
	defer func() { s.end(syscall.SIGTERM) }()
	s.up(t.Context())
	cmd := exec.Command(binary(t), "submit", "--data", s.data, "--name", "train", "--", "sh", "-c", "echo told $TRACEPARENT; exec sleep 1000")
	cmd.Env = append(os.Environ(), "TRACEPARENT=00-"+trace+"-"+parent+"-01")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	arrives("start")
	arrives("submit")
	s.end(syscall.SIGKILL)
	s.start()
	api := s.up(t.Context())
	if _, err := api.Park(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	run := arrives("run")[0]
	said, err := exec.Command(binary(t), "logs", "--data", s.data, "1").Output()
	if want := fmt.Sprintf("told 00-%s-%x-01", trace, run.GetSpanId()); err != nil || !strings.Contains(string(said), want) {
		t.Errorf("the task said %q (%v), want %q", said, err, want)
	}
	arrives("suspend")
	if _, err := api.Wake(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	arrives("resume")
	if _, err := api.Cancel(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	arrives("free")
	s.end(syscall.SIGTERM)

	mu.Lock()
	defer mu.Unlock()
	for name, all := range spans {
		for _, x := range all {
			if got := fmt.Sprintf("%x", x.GetTraceId()); got != trace {
				t.Errorf("span %s is of trace %s, want %s", name, got, trace)
			}
		}
	}
	for name, n := range map[string]int{"train": 1, "submit": 1, "queue": 1, "placement": 2, "carve": 2, "start": 1, "run": 2, "suspend": 1, "parked": 1, "wake": 1, "resume": 1, "stop": 1, "free": 1} {
		if len(spans[name]) != n {
			t.Errorf("%d spans %s, want %d", len(spans[name]), name, n)
		}
	}
	if root := spans["train"]; len(root) == 1 && (fmt.Sprintf("%x", root[0].GetParentSpanId()) != parent || root[0].GetStartTimeUnixNano() > spans["run"][0].GetStartTimeUnixNano()) {
		t.Errorf("the task is not below who submitted it, or began too late: %v", root[0])
	}
}

// TestTraceSettings says where traces go: settings win over the environment.
func TestTraceSettings(t *testing.T) {
	for _, x := range []struct{ set, traces, all, off, want string }{
		{},
		{set: "http://c:4318", want: "http://c:4318/v1/traces"},
		{set: "http://c:4318/", want: "http://c:4318/v1/traces"},
		{set: "https://c/in/take", all: "http://other", off: "true", want: "https://c/in/take"},
		{all: "http://c:4318/in", want: "http://c:4318/in/v1/traces"},
		{all: "http://other", traces: "http://c/here", want: "http://c/here"},
		{all: "http://c", off: "true"},
		{all: "c:4318", want: "error"},
	} {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", x.all)
		t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", x.traces)
		t.Setenv("OTEL_SDK_DISABLED", x.off)
		if got, err := traceEndpoint(x.set); got != x.want && (x.want != "error" || err == nil) {
			t.Errorf("%+v: got %q, %v", x, got, err)
		}
	}
	file := filepath.Join(t.TempDir(), "headers")
	if err := os.WriteFile(file, []byte("# secret\nAuthorization=Bearer a=b%20\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if h, err := traceHeaders(file); err != nil || len(h) != 1 || h["Authorization"] != "Bearer a=b%20" {
		t.Errorf("headers of the file: %v, %v", h, err)
	}
	set := config.Default()
	set.Tracing.Endpoint, set.Tracing.Headers = "http://c", filepath.Join(t.TempDir(), "none")
	if _, err := tracer(cli.ServeOptions{Config: set}, nil); err == nil || !strings.Contains(err.Error(), "tracing.headers_file") {
		t.Errorf("a missing file of headers: %v", err)
	}
	path := filepath.Join(t.TempDir(), "installation")
	a, err := installation(path)
	b, again := installation(path)
	if err != nil || again != nil || a != b || len(a) != 32 {
		t.Errorf("the installation is %q, then %q: %v, %v", a, b, err, again)
	}
}
