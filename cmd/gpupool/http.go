package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Bounds on what a connection may hold of the server before anything is known of who is
// there. Answers have their own (package api); streams may last.
const (
	headersWithin = 10 * time.Second
	bodyWithin    = 30 * time.Second
	idleWithin    = 2 * time.Minute
	maxHeaders    = 64 << 10 // bytes
)

// newHTTPServer makes the server of a handler. ctx ends the streams at shutdown.
func newHTTPServer(ctx context.Context, h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{Handler: boundBody(h), ReadHeaderTimeout: headersWithin, IdleTimeout: idleWithin, MaxHeaderBytes: maxHeaders,
		BaseContext: func(net.Listener) context.Context { return ctx }, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
}

// boundBody gives every body a time within which it must have come, also where nobody
// reads it: the server does then, to find the next request behind it.
func boundBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			until := func(t time.Time) {
				_ = http.NewResponseController(w).SetReadDeadline(t) // one without a deadline is a test's
			}
			until(time.Now().Add(bodyWithin))
			r.Body = &endingBody{ReadCloser: r.Body, ended: func() { until(time.Time{}) }}
		}
		next.ServeHTTP(w, r)
	})
}

// endingBody tells when it has come to its end.
type endingBody struct {
	io.ReadCloser
	ended func()
}

func (b *endingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.ended()
	}
	return n, err
}

// serveOn serves with TLS where there is a configuration for it.
func serveOn(srv *http.Server, l net.Listener, a *access) error {
	if a.tls == nil {
		return srv.Serve(l)
	}
	srv.TLSConfig = a.tls.Config()
	return srv.ServeTLS(l, "", "")
}
