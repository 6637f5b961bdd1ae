package tracing

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// batchMost is the most spans of one request.
const batchMost = 512

// export sends spans until it is told that no more come.
func (t *Tracer) export() {
	defer close(t.sent)
	client := &http.Client{Timeout: t.o.timeout}
	defer client.CloseIdleConnections()
	for {
		batch, more := t.gather()
		if len(batch) > 0 {
			if err := t.send(client, batch); err != nil {
				t.drop(len(batch), err.Error())
			} else {
				t.recovered()
			}
		}
		if !more && len(t.spans) == 0 {
			return
		}
	}
}

// gather waits for a span and then a little for others; without more none is waited for.
func (t *Tracer) gather() (batch []*tracepb.Span, more bool) {
	select {
	case s := <-t.spans:
		batch = append(batch, s)
	case <-t.last:
	}
	wait := time.NewTimer(t.o.batch)
	defer wait.Stop()
	for len(batch) < batchMost {
		select {
		case s := <-t.spans:
			batch = append(batch, s)
			continue
		default:
		}
		select {
		case s := <-t.spans:
			batch = append(batch, s)
		case <-wait.C:
			return batch, true
		case <-t.last:
			return batch, false
		}
	}
	return batch, true
}

// send hands a batch to the collector, and tries again for a while where that may help.
func (t *Tracer) send(client *http.Client, batch []*tracepb.Span) error {
	body, err := t.encode(batch)
	if err != nil {
		return err
	}
	try := func() (struct{}, error) { return struct{}{}, t.post(client, body) }
	_, err = backoff.Retry(t.sending, try, backoff.WithMaxElapsedTime(t.o.retry))
	return err
}

// encode writes what OTLP calls an ExportTraceServiceRequest, whose only field is that
// of TracesData.
func (t *Tracer) encode(batch []*tracepb.Span) ([]byte, error) {
	var who []*commonpb.KeyValue
	for _, k := range slices.Sorted(maps.Keys(t.o.Resource)) {
		who = append(who, text(k, t.o.Resource[k]))
	}
	raw, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource:   &resourcepb.Resource{Attributes: who},
		ScopeSpans: []*tracepb.ScopeSpans{{Scope: &commonpb.InstrumentationScope{Name: "github.com/gpupool/gpupool"}, Spans: batch}},
	}}})
	if err != nil {
		return nil, fmt.Errorf("spans cannot be written: %w", err)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err = z.Write(raw); err == nil {
		err = z.Close()
	}
	return b.Bytes(), err
}

func (t *Tracer) post(client *http.Client, body []byte) error {
	req, err := http.NewRequestWithContext(t.sending, http.MethodPost, t.o.Endpoint, bytes.NewReader(body))
	if err != nil {
		return backoff.Permanent(err)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("Content-Encoding", "gzip")
	req.Header.Set("User-Agent", "gpupool")
	for k, v := range t.o.Headers {
		req.Header.Set(k, v)
	}
	resp, err := client.Do(req)
	if err != nil {
		if errors.Is(t.sending.Err(), context.Canceled) {
			return backoff.Permanent(errors.New("the server ended before the collector answered"))
		}
		return err
	}
	defer resp.Body.Close()
	says, _ := io.ReadAll(io.LimitReader(resp.Body, 512)) // and the connection can be used again
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return nil
	}
	err = fmt.Errorf("the collector answered %s: %q", resp.Status, says)
	switch resp.StatusCode { // as OTLP has it
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if n, bad := strconv.Atoi(resp.Header.Get("Retry-After")); bad == nil && n > 0 {
			return backoff.RetryAfter(n)
		}
		return err
	}
	return backoff.Permanent(err)
}
