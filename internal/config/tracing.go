package config

import (
	"errors"
	"net/url"
)

// Tracing says where the traces of tasks go.
type Tracing struct {
	Endpoint string  `yaml:"endpoint" default:"" doc:"Collector that takes OTLP over HTTP, such as http://127.0.0.1:4318; /v1/traces is added where there is no path. Empty: $OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, else $OTEL_EXPORTER_OTLP_ENDPOINT, else none."`
	Sample   Percent `yaml:"sample" default:"100%" doc:"Share of the tasks that are traced, where the client's traceparent does not say."`
	Headers  string  `yaml:"headers_file" default:"" doc:"File with the headers of each request, a line each: name=value. A file, as they hold secrets. Empty: $OTEL_EXPORTER_OTLP_HEADERS."`
}

func (t Tracing) check() error {
	if u, err := url.Parse(t.Endpoint); t.Endpoint != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		return errors.New("tracing.endpoint: expected an address such as http://127.0.0.1:4318") // it may hold a secret: not shown
	}
	return nil
}
