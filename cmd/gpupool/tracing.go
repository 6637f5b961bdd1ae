package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpupool/gpupool/internal/cli"
	"github.com/gpupool/gpupool/internal/tracing"
	"github.com/gpupool/gpupool/internal/work"
)

// traceFlush bounds the end of a server whose collector does not answer.
const traceFlush = 2 * time.Second

// tracer is where traces go, as settings or else the environment say; nil for nowhere.
func tracer(o cli.ServeOptions, log *slog.Logger) (*tracing.Tracer, error) {
	set := o.Config.Tracing
	endpoint, err := traceEndpoint(set.Endpoint)
	if err != nil || endpoint == "" {
		return nil, err
	}
	headers, err := traceHeaders(set.Headers)
	if err != nil {
		return nil, err
	}
	id, err := installation(filepath.Join(o.Config.Server.Data, "installation"))
	if err != nil {
		return nil, err
	}
	who := pairs(os.Getenv("OTEL_RESOURCE_ATTRIBUTES"), ",")
	who["service.name"] = cmp.Or(os.Getenv("OTEL_SERVICE_NAME"), who["service.name"], "gpupool")
	who["service.version"], who["service.instance.id"] = o.Version, id
	return tracing.New(tracing.Options{Endpoint: endpoint, Headers: headers, Sample: float64(set.Sample), Installation: id, Resource: who, Log: log}), nil
}

// traceEndpoint is the whole address. That of the environment for all signals gets the
// path of traces, as OpenTelemetry has it, and so does a setting without a path.
func traceEndpoint(set string) (string, error) {
	if os.Getenv("OTEL_SDK_DISABLED") == "true" && set == "" {
		return "", nil
	}
	from, base := set, true
	if from == "" {
		from, base = os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), false
	}
	if from == "" {
		from, base = os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), true
	}
	if from == "" {
		return "", nil
	}
	u, err := url.Parse(from)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", errors.New("the address of the trace collector is not usable: expected something like http://127.0.0.1:4318 in tracing.endpoint or $OTEL_EXPORTER_OTLP_ENDPOINT")
	}
	if base && (set == "" || strings.Trim(u.Path, "/") == "") {
		u = u.JoinPath("v1", "traces")
	}
	return u.String(), nil
}

// traceHeaders are those of the file, else of the environment.
func traceHeaders(file string) (map[string]string, error) {
	if file == "" {
		return pairs(cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS"), os.Getenv("OTEL_EXPORTER_OTLP_HEADERS")), ","), nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("the headers for the trace collector cannot be read: %w; give a file with lines of name=value in tracing.headers_file", err)
	}
	return pairs(string(b), "\n"), nil
}

// pairs reads name=value, the values escaped as in a URL where they come from the
// environment; what is neither is left out.
func pairs(s, between string) map[string]string {
	out := map[string]string{}
	for kv := range strings.SplitSeq(s, between) {
		name, value, ok := strings.Cut(kv, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || name == "" || strings.HasPrefix(name, "#") {
			continue
		}
		if plain, err := url.PathUnescape(value); err == nil && between == "," {
			value = plain
		}
		out[name] = value
	}
	return out
}

// installation is a name that no other data folder has, made once.
func installation(path string) (string, error) {
	b, err := os.ReadFile(path)
	if id := strings.TrimSpace(string(b)); err == nil && id != "" {
		return id, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the name of this installation cannot be read: %w", err)
	}
	raw := make([]byte, 16)
	rand.Read(raw) // never fails
	id := hex.EncodeToString(raw)
	return id, writeFile(path, []byte(id+"\n"))
}

// traceOf is what the processes of tasks are told; nil for just what their clients said.
func traceOf(t *tracing.Tracer) func(work.TaskID, uint32, string) string {
	if t == nil {
		return nil
	}
	return t.Traceparent
}

// traced adds the spans of calls that make tasks.
func traced(t *tracing.Tracer, next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return t.Handler(next)
}

// closeTracer sends what is left.
func closeTracer(t *tracing.Tracer) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), traceFlush)
	defer cancel()
	t.Close(ctx)
}
