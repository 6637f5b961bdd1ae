package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/work"
)

// op is an operation before it has a handler.
type op struct {
	id, method, path string
	says             string // summary
	more             string // description
	tag              string
	status           int    // of success; 0 = 200
	streams          string // content type of an answer that is a stream
}

// register adds an operation to the API and its document.
func register[I, O any](s *server, o op, handle func(context.Context, *I) (*O, error)) {
	h := huma.Operation{
		OperationID: o.id, Method: o.method, Path: o.path, Summary: o.says, Tags: []string{o.tag}, DefaultStatus: o.status,
		MaxBodyBytes: maxBody, BodyReadTimeout: bodyWithin,
	}
	h.Description = strings.TrimSpace(ruleOf(o.id).words() + " " + o.more)
	h.Middlewares = huma.Middlewares{s.noteOperation(o.id), s.permit(o.id, o.method)}
	if o.streams != "" {
		h.Responses = map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{o.streams: {Schema: &huma.Schema{Type: huma.TypeString}}}}}
	}
	huma.Register(s.api, h, func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, in)
		if err != nil {
			return nil, s.refusal(ctx, err)
		}
		return out, nil
	})
}

// answer is a body, and where it stands from now on when it was just made.
type answer[T any] struct {
	Location string `header:"Location" hidden:"true"`
	Body     T
}

func answerOf[T any](x T, err error) (*answer[T], error) {
	if err != nil {
		return nil, err
	}
	return &answer[T]{Body: x}, nil
}

// The inputs that others embed are exported because huma passes over what is not.

// PageQuery says which page of a list to send.
type PageQuery struct {
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Items of a page at most"`
	After string `query:"after" maxLength:"256" doc:"next of the page before"`
}

// first is the number that a page begins with, for lists whose cursor is the number
// of the last item.
func (q PageQuery) first() (uint64, error) {
	if q.After == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(q.After, 10, 63)
	if err != nil {
		return 0, work.Errorf(work.CodeInvalid, "after %q is not understood: expected the next of the page before", q.After)
	}
	return n + 1, nil
}

// pageOf cuts a page from items, of which there may be one more than the limit.
func pageOf[T any](items []T, limit int, cursor func(T) string) *answer[apitype.Page[T]] {
	out := &answer[apitype.Page[T]]{}
	out.Body.Items = items
	if items == nil {
		out.Body.Items = []T{}
	}
	if len(items) > limit {
		out.Body.Items = items[:limit]
		out.Body.Next = cursor(items[limit-1])
	}
	return out
}

// maxWait bounds a wait: some proxies cut what is silent for longer.
const maxWait = time.Minute

// WaitQuery asks to wait until something has changed.
type WaitQuery struct {
	Wait string `query:"wait" maxLength:"32" example:"30s" doc:"Answer when it has happened, or after this time with what there is; more than 1m counts as 1m"`
}

func (q WaitQuery) duration() (time.Duration, error) {
	if q.Wait == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(q.Wait)
	if err != nil || d < 0 {
		return 0, work.Errorf(work.CodeInvalid, "wait %q is not understood: expected a duration such as 30s", q.Wait)
	}
	return min(d, maxWait), nil
}

// IDPath names a task, or the lease that it is.
type IDPath struct {
	ID uint64 `path:"id" minimum:"1" doc:"Number of the task"`
}

const (
	get  = http.MethodGet
	post = http.MethodPost
	put  = http.MethodPut
	del  = http.MethodDelete
)
