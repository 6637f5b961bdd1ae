package web_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/web"
)

func taskQuery(tenant string) client.TaskQuery { return client.TaskQuery{Tenant: tenant} }

func TestPaths(t *testing.T) {
	api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	h, err := web.New(api)
	ok(t, err)
	for path, want := range map[string]string{
		"/": "text/html", "/queue": "text/html", "/tasks": "text/html", "/tasks/12": "text/html", "/page/main.js": "text/javascript", "/page/style.css": "text/css", "/page/icon.svg": "image/svg+xml",
		"/v1/tasks": "", "/healthz": "", "/openapi.yaml": "", "/nothing": "", "/tasks/": "", "/tasks/x": "", "/queue/1": "", "/page/": "", "/page/../web.go": "", "/page/index": "",
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if want == "" {
			if w.Code != http.StatusTeapot {
				t.Errorf("GET %s: got %d, want it to be the API's", path, w.Code)
			}
			continue
		}
		if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), want) || w.Body.Len() == 0 {
			t.Errorf("GET %s: got %d %s, want %s", path, w.Code, w.Header().Get("Content-Type"), want)
		}
	}
}

// TestWords wants every kind of fact in words: a new one is added to facts.js too.
func TestWords(t *testing.T) {
	known, err := os.ReadFile("page/facts.js")
	ok(t, err)
	sources, err := filepath.Glob("../engine/*.go")
	ok(t, err)
	kinds := 0
	for _, file := range sources {
		text, err := os.ReadFile(file)
		ok(t, err)
		for _, m := range regexp.MustCompile(`\) Kind\(\) string +\{ return "([^"]+)" \}`).FindAllStringSubmatch(string(text), -1) {
			kinds++
			if !strings.Contains(string(known), "'"+m[1]+"':") {
				t.Errorf("page/facts.js has no words for %s (%s)", m[1], file)
			}
		}
	}
	if kinds < 30 {
		t.Errorf("found %d kinds of facts in the engine: is this test looking at the right place?", kinds)
	}
}

func TestHeaders(t *testing.T) {
	h, err := web.New(http.NotFoundHandler())
	ok(t, err)
	srv := httptest.NewServer(h)
	defer srv.Close()
	get := func(method, path string, header ...string) (*http.Response, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path, nil)
		ok(t, err)
		req.Header.Set("Accept-Encoding", "identity")
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		ok(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		ok(t, err)
		return resp, string(body)
	}
	resp, body := get("GET", "/") //nolint:bodyclose // get has closed it
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY", "Cross-Origin-Opener-Policy": "same-origin", "Cache-Control": "no-cache"} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	policy := resp.Header.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy %q lacks %q", policy, want)
		}
	}
	if strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") {
		t.Errorf("the policy %q allows what it should not", policy)
	}
	if strings.Contains(body, "://") || strings.Contains(body, "<style") || strings.Contains(body, "onclick") {
		t.Errorf("the document loads from elsewhere, or has something inline:\n%s", body)
	}
	if r, _ := get("GET", "/", "If-None-Match", resp.Header.Get("ETag")); r.StatusCode != http.StatusNotModified { //nolint:bodyclose // get has closed it
		t.Errorf("with its own tag: got %d, want 304", r.StatusCode)
	}
	if r, _ := get("GET", "/page/main.js", "Accept-Encoding", "gzip"); r.Header.Get("Content-Encoding") != "gzip" { //nolint:bodyclose // get has closed it
		t.Error("the page is not sent in gzip to whoever takes it")
	}
	if r, _ := get("POST", "/"); r.StatusCode != http.StatusMethodNotAllowed || r.Header.Get("Allow") == "" { //nolint:bodyclose // get has closed it
		t.Errorf("POST /: got %d, want 405", r.StatusCode)
	}
	if r, _ := get("HEAD", "/"); r.StatusCode != 200 || r.ContentLength <= 0 { //nolint:bodyclose // get has closed it
		t.Errorf("HEAD /: got %d and length %d", r.StatusCode, r.ContentLength)
	}
}
