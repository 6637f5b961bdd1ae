package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/work"
)

// codeInternal is the code of a fault of the server.
const codeInternal work.Code = "internal"

// retryAfter is when to come back to a server that cannot serve now.
const retryAfter = time.Second

// statusOf is the HTTP status of a refusal.
func statusOf(c work.Code) int {
	switch c {
	case work.CodeInvalid, work.CodeImpossible:
		return http.StatusUnprocessableEntity
	case work.CodeNotFound:
		return http.StatusNotFound
	case work.CodeConflict, work.CodeStale:
		return http.StatusConflict
	case work.CodeForbidden, work.CodeLimit:
		return http.StatusForbidden
	case work.CodeUnauthed:
		return http.StatusUnauthorized
	case work.CodeBusy, work.CodeRate:
		return http.StatusTooManyRequests
	case work.CodeUnavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// codeOf is the code of a status that did not come from a refusal of our own.
func codeOf(status int) work.Code {
	switch status {
	case http.StatusNotFound:
		return work.CodeNotFound
	case http.StatusServiceUnavailable:
		return work.CodeUnavailable
	case http.StatusUnauthorized:
		return work.CodeUnauthed
	case http.StatusForbidden:
		return work.CodeForbidden
	case http.StatusTooManyRequests:
		return work.CodeRate
	}
	if status >= 500 {
		return codeInternal
	}
	return work.CodeInvalid
}

func problem(c work.Code, detail string) *apitype.Problem {
	status := statusOf(c)
	return &apitype.Problem{Title: http.StatusText(status), Status: status, Code: string(c), Detail: detail}
}

// refusal puts an error of an operation into the shape that goes out.
func (s *server) refusal(ctx context.Context, err error) error {
	var p *apitype.Problem
	refused, ours := errors.AsType[*work.Error](err)
	switch {
	case ours:
		p = ofError(refused)
	case ctx.Err() != nil: // the client left, or its time is over: hardly anyone reads this
		p = problem(work.CodeUnavailable, "the call was given up before it was done: "+ctx.Err().Error())
	default:
		s.log.Error("an operation failed", "err", err)
		p = problem(codeInternal, "the server failed at this; its log says why")
	}
	noteCode(ctx, p.Code)
	if p.Status == http.StatusServiceUnavailable {
		p.Retry = seconds(retryAfter)
	}
	if p.Retry > 0 {
		return huma.ErrorWithHeaders(p, http.Header{"Retry-After": {strconv.Itoa(p.Retry)}})
	}
	return p
}

// ofError is the problem of a refusal of our own. A queue that is full for what could
// never fit is not worth another try: that is a fault of what was asked.
func ofError(e *work.Error) *apitype.Problem {
	p := problem(e.Code, e.Msg)
	p.Retry = seconds(e.Retry)
	if e.Code == work.CodeBusy && e.Retry <= 0 {
		p.Status = http.StatusUnprocessableEntity
		p.Title = http.StatusText(p.Status)
	}
	return p
}

// seconds rounds up, as whoever comes too early is refused again.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// humaProblem turns what huma itself finds wrong with a request into our shape.
// Values are left out: they may be secrets, and the client has them.
func humaProblem(_ huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	p := &apitype.Problem{Title: http.StatusText(m.Status), Status: m.Status, Code: string(codeOf(m.Status)), Detail: m.Detail}
	var says []string
	for _, e := range m.Errors {
		p.Errors = append(p.Errors, apitype.Fault{Where: e.Location, Message: e.Message})
		says = append(says, strings.TrimSpace(e.Location+" "+e.Message))
	}
	if len(says) > 0 {
		p.Detail = "the request is not usable: " + strings.Join(says[:min(len(says), 3)], "; ")
	}
	if len(says) > 3 {
		p.Detail += "; and " + strconv.Itoa(len(says)-3) + " more"
	}
	return p, nil
}

// writeRetry answers outside of an operation, and says when to try again.
func writeRetry(w http.ResponseWriter, p *apitype.Problem) {
	if p.Retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.Retry))
	}
	writeProblem(w, p)
}

// writeRefusal answers outside of an operation with a refusal of our own.
func writeRefusal(w http.ResponseWriter, err error) {
	if refused, ours := errors.AsType[*work.Error](err); ours {
		writeRetry(w, ofError(refused))
		return
	}
	writeProblem(w, problem(codeInternal, "the server failed at this; its log says why"))
}

// writeProblem answers outside of an operation.
func writeProblem(w http.ResponseWriter, p *apitype.Problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // a client that left is no fault
}
