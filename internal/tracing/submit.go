package tracing

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

// Handler adds the span of the call that made a task: what of a wait was the API's.
func (t *Tracer) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/v1/tasks" && r.URL.Path != "/v1/leases" {
			next.ServeHTTP(w, r)
			return
		}
		begun := time.Now()
		answer := &watched{ResponseWriter: w}
		next.ServeHTTP(answer, r)
		_, number, _ := strings.Cut(strings.TrimPrefix(w.Header().Get("Location"), "/v1/"), "/")
		id, err := strconv.ParseUint(number, 10, 64)
		if answer.status != http.StatusCreated || err != nil {
			return
		}
		l := t.newLife(work.TaskID(id), &work.Spec{Trace: r.Header.Get("Traceparent")}, work.TimeOf(begun))
		if !l.sampled {
			return
		}
		at := work.TimeOf(begun)
		l.send(&phase{name: "submit", id: t.ids.span(l.id, 0, "submit", at), begun: at}, work.TimeOf(time.Now()))
	})
}

// watched remembers the status.
type watched struct {
	http.ResponseWriter
	status int
}

// WriteHeader is http.ResponseWriter's.
func (w *watched) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }
