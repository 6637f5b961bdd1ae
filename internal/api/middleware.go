package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/work"
)

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	status    int // 0: nothing yet
	caller    caller
	request   string // its identity
	operation string // "" = none that is known
	code      string // why it was refused
}

// WriteHeader is http.ResponseWriter's, once: a second status has nowhere to go.
func (r *recorder) WriteHeader(status int) {
	if r.status != 0 {
		return
	}
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// record is the outermost layer: it bounds the answer's time, sets the headers of
// every answer, turns a panic into a problem, and logs.
func (s *server) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		rec := &recorder{ResponseWriter: w, request: requestOf(r)}
		w.Header().Set(requestHeader, rec.request)
		setWriteDeadline(rec, start.Add(answerWithin))
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		defer func() {
			fault := recover()
			if fault != nil && fault != http.ErrAbortHandler { //nolint:errorlint // net/http compares so too
				s.log.Error("a request panicked", "method", r.Method, "path", r.URL.Path, "panic", fault, "stack", string(debug.Stack()))
				if rec.status == 0 {
					writeProblem(rec, problem(codeInternal, "the server failed at this; its log says why"))
					fault = nil
				}
			}
			s.note(r, rec, time.Since(start))
			s.log.Debug("request", "id", rec.request, "method", r.Method, "path", r.URL.Path, "status", rec.status, "took", time.Since(start), "by", rec.caller.String())
			if fault != nil { // half an answer has left: only a cut connection tells the client so
				panic(http.ErrAbortHandler)
			}
		}()
		next.ServeHTTP(rec, r.WithContext(context.WithValue(r.Context(), recorderKey{}, rec)))
	})
}

// setWriteDeadline where the connection has one; a recorder in a test has none.
func setWriteDeadline(w http.ResponseWriter, t time.Time) {
	if err := http.NewResponseController(w).SetWriteDeadline(t); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return // the connection is gone, which the next write will find
	}
}

// route serves the mux, and what it has no pattern for in our own shape.
func route(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		var no refused
		h.ServeHTTP(&no, r) // tells 404 from 405
		p := problem(work.CodeNotFound, fmt.Sprintf("there is no %s: see /openapi.yaml", r.URL.Path))
		if no.status == http.StatusMethodNotAllowed {
			allow := no.Header().Get("Allow")
			w.Header().Set("Allow", allow)
			p = &apitype.Problem{Title: http.StatusText(no.status), Status: no.status, Code: string(work.CodeInvalid),
				Detail: fmt.Sprintf("%s takes %s, not %s", r.URL.Path, allow, r.Method)}
		}
		writeProblem(w, p)
	})
}

// refused catches the status of an answer and drops the rest.
type refused struct {
	header http.Header
	status int
}

// Header is http.ResponseWriter's.
func (r *refused) Header() http.Header {
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}

// WriteHeader is http.ResponseWriter's.
func (r *refused) WriteHeader(status int) { r.status = status }

func (r *refused) Write(b []byte) (int, error) { return len(b), nil }

// stream writes to a client for as long as both live: each write is sent at once
// and must be taken in time.
type stream struct{ w http.ResponseWriter }

// streamTo answers with a stream that f writes. When f fails, the connection is
// cut, so that a stream that stops never looks like one that came to its end.
func streamTo(contentType string, f func(stream) error) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(ctx huma.Context) {
		r, w := humago.Unwrap(ctx)
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(http.StatusOK)
		s := stream{w}
		err := s.flush()
		if err == nil && r.Method != http.MethodHead { // a HEAD has no stream to wait for
			err = f(s)
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}}
}

func (s stream) Write(b []byte) (int, error) {
	setWriteDeadline(s.w, time.Now().Add(writeTimeout))
	n, err := s.w.Write(b)
	if err != nil {
		return n, err
	}
	return n, s.flush()
}

func (s stream) flush() error {
	err := http.NewResponseController(s.w).Flush()
	setWriteDeadline(s.w, time.Time{}) // silence is no fault
	return err
}
