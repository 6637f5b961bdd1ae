package api

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/gpupool/gpupool/internal/audit"
	"github.com/gpupool/gpupool/internal/work"
)

// requestHeader carries the identity of a request, from a client or proxy that has given it
// one, and back with every answer.
const requestHeader = "X-Request-Id"

var requestID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// requestOf is the identity of a request: the client's, where it can be one.
func requestOf(r *http.Request) string {
	if id := r.Header.Get(requestHeader); requestID.MatchString(id) {
		return id
	}
	return chance(8)
}

type recorderKey struct{}

// noteOperation tells the audit log which operation a call is of.
func (s *server) noteOperation(id string) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		if rec, ok := ctx.Context().Value(recorderKey{}).(*recorder); ok {
			rec.operation = id
		}
		next(ctx)
	}
}

// noteCode tells the audit log why a call was refused.
func noteCode(ctx context.Context, code string) {
	if rec, ok := ctx.Value(recorderKey{}).(*recorder); ok {
		rec.code = code
	}
}

// note writes a call into the audit log: all that could change something, and those that
// were refused. Of refused ones it writes no more than a bound for each caller and address:
// a flood must neither fill the disk nor push out what was there.
func (s *server) note(r *http.Request, rec *recorder, took time.Duration) {
	api := r.URL.Path == "/v1" || len(r.URL.Path) > 3 && r.URL.Path[:4] == "/v1/"
	writes := r.Method != http.MethodGet && r.Method != http.MethodHead
	if s.cfg.Audit == nil || !api || !writes && rec.status < 400 || rec.caller.Kind == "" && rec.status == http.StatusTooManyRequests {
		return
	}
	c, omitted := rec.caller, 0
	if rec.status >= 400 {
		var written bool
		if omitted, written = s.limits.note(c, s.now()); !written {
			return
		}
	}
	e := audit.Entry{
		Omitted: omitted, At: s.now().UTC(), Request: rec.request, Operation: rec.operation, Method: r.Method, Path: short(r.URL.Path, 512), Object: rec.Header().Get("Location"), Name: c.Name, By: c.ID, How: string(c.Kind), Role: string(c.Role),
		Tenant: c.Tenant, From: r.RemoteAddr, Forwarded: short(r.Header.Get("X-Forwarded-For"), 256), Status: rec.status, TookMS: float64(took.Microseconds()) / 1000,
	}
	if c.ID == "" && c.token != "" { // a token without a name: so much of its hash that it can be told from others
		e.By = "gpt:" + c.token[:8]
	}
	if rec.status >= 400 {
		if e.Code = rec.code; e.Code == "" {
			e.Code = string(codeOf(rec.status))
		}
	}
	s.cfg.Audit.Add(e)
}

func short(s string, most int) string { return s[:min(len(s), most)] }

func (s *server) auditRoutes() {
	register(s, op{id: "get-audit", method: get, path: "/v1/audit", tag: "audit", streams: "application/x-ndjson", says: "Export the audit log",
		more: "A JSON object a line, the oldest first: every call that could change something, and every one that was refused. The entries of this server alone."}, s.getAudit)
}

func (s *server) getAudit(ctx context.Context, in *struct {
	Since  string `query:"since" maxLength:"64" example:"24h" doc:"From then on: a time in RFC 3339, or how long ago"`
	Until  string `query:"until" maxLength:"64" doc:"Before then, likewise"`
	Tenant string `query:"tenant" maxLength:"128" doc:"Only calls from this tenant"`
	By     string `query:"by" maxLength:"256" doc:"Only calls from who has this ID"`
}) (*huma.StreamResponse, error) {
	q := audit.Query{Tenant: in.Tenant, By: in.By}
	for _, x := range []struct {
		name, text string
		to         *time.Time
	}{{"since", in.Since, &q.Since}, {"until", in.Until, &q.Until}} {
		var err error
		if *x.to, err = s.instant(x.name, x.text); err != nil {
			return nil, err
		}
	}
	if s.cfg.Audit == nil {
		return nil, work.Errorf(work.CodeNotFound, "this server keeps no audit log: audit.keep is false in its settings")
	}
	return streamTo("application/x-ndjson", func(w stream) error {
		enc := json.NewEncoder(w)
		return s.cfg.Audit.Each(ctx, q, func(e audit.Entry) error { return enc.Encode(e) })
	}), nil
}

// instant reads a time, or how long ago it was.
func (s *server) instant(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return s.now().Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, work.Errorf(work.CodeInvalid, "%s %q is not understood: expected a time in RFC 3339, such as 2026-12-03T08:00:00Z, or how long ago, such as 24h", name, text)
	}
	return t, nil
}
