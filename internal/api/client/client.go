// Package client is the Go side of the HTTP API, used by every edge that is not
// the server: one method for each operation, lists as iterators that fetch page
// by page, and the event stream as one that reconnects.
//
// A Client is safe for concurrent use and keeps connections open. A call costs
// one request, a list one for each 200 items; calls that may be repeated without
// harm are, for a bounded time.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/work"
)

const (
	// defaultRetry bounds the retries of one call: short, as a person may be waiting
	// to hear that no server runs.
	defaultRetry = 2 * time.Second
	// headerTimeout is longer than any wait that the server grants.
	headerTimeout = 2 * time.Minute
	pageSize      = "200"
	maxAnswer     = 64 << 20 // bytes of one answer that is not a stream
)

// CodeUnreachable is the code of an Error when there was no answer from a server.
const CodeUnreachable work.Code = "unreachable"

// codeUnexpected is the code of an answer that gpupool would not give.
const codeUnexpected work.Code = "unexpected"

// Client calls one server with one token.
type Client struct {
	base  string // without a slash at the end
	token string
	http  *http.Client
	retry time.Duration
	trace string // W3C traceparent; "" = none

	certified bool // it shows a certificate: a token is not needed
}

// Option changes how a Client works.
type Option func(*Client)

// WithRetry sets for how long a call that may be repeated is; default 2 s, 0 = never.
func WithRetry(d time.Duration) Option { return func(c *Client) { c.retry = d } }

// WithHTTPClient sets the client underneath, for proxies and certificates. It must
// have no overall timeout, as logs and events last.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// New makes a client for a server such as http://127.0.0.1:8470. Nothing is sent yet.
func New(server, token string, o ...Option) (*Client, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("server address %q is not usable: expected something like http://127.0.0.1:8470", server)
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 16,
		IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: headerTimeout,
		DialContext: (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
	}
	c := &Client{base: strings.TrimRight(server, "/"), token: token, retry: defaultRetry, http: &http.Client{
		Transport: transport,
	}}
	c.http.CheckRedirect = c.redirect
	for _, f := range o {
		f(c)
	}
	if token == "" && !c.certified || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return nil, errors.New("the token is empty or holds spaces: expected one word such as gpt_name_…")
	}
	return c, nil
}

// redirect follows a server that follows another to the one that leads, where this client
// has a certificate to show and no token that would get into other hands. The API does not
// redirect otherwise; whoever does is something else.
func (c *Client) redirect(to *http.Request, via []*http.Request) error {
	if len(via) < 3 && c.certified && c.token == "" && to.Response.StatusCode == http.StatusTemporaryRedirect && to.URL.Scheme == "https" && to.URL.Path == via[0].URL.Path {
		return nil
	}
	return http.ErrUseLastResponse
}

// Server is the address of the server, without a slash at the end.
func (c *Client) Server() string { return c.base }

// Error is a call that failed: refused by the server, or without an answer.
type Error struct {
	Status int       // of HTTP; 0 without an answer
	Code   work.Code // for programs
	Title  string
	Detail string // one sentence for people
	// RetryAfter is when trying again may help; 0 = not by waiting.
	RetryAfter time.Duration
	cause      error
}

func (e *Error) Error() string { return e.Detail }

// Unwrap returns what lies beneath an unreachable server.
func (e *Error) Unwrap() error { return e.cause }

// call is one request.
type call struct {
	method string
	path   string // escaped
	query  url.Values
	header http.Header
	body   any
	again  bool // repeating it does no harm, even if it took effect already
	accept string
}

// do makes a call and reads the answer into out, unless that is nil.
func (c *Client) do(ctx context.Context, k call, out any) error {
	resp, err := c.open(ctx, k)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(out); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &Error{Status: resp.StatusCode, Code: codeUnexpected, Title: "unreadable answer", cause: err,
			Detail: fmt.Sprintf("the answer of %s cannot be read: %s; is that gpupool, and of this version?", c.base, err)}
	}
	return nil
}

// open makes a call, again where that does no harm, and returns a good answer.
func (c *Client) open(ctx context.Context, k call) (*http.Response, error) {
	var body []byte
	if k.body != nil {
		var err error
		if body, err = json.Marshal(k.body); err != nil {
			return nil, fmt.Errorf("the request cannot be written as JSON: %w", err)
		}
	}
	once := func() (*http.Response, error) { return c.once(ctx, k, body) }
	limit := backoff.WithMaxElapsedTime(c.retry)
	if c.retry <= 0 {
		limit = backoff.WithMaxTries(1)
	}
	resp, err := backoff.Retry(ctx, once, backoff.WithBackOff(newBackoff()), limit)
	switch {
	case err == nil:
		return resp, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	if permanent, is := errors.AsType[*backoff.PermanentError](err); is {
		err = permanent.Err
	}
	return nil, err
}

func newBackoff() *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{InitialInterval: 100 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: 5 * time.Second}
}

func (c *Client) once(ctx context.Context, k call, body []byte) (*http.Response, error) {
	target := c.base + k.path
	if len(k.query) > 0 {
		target += "?" + k.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, k.method, target, bytes.NewReader(body))
	if err != nil {
		return nil, backoff.Permanent(err)
	}
	maps.Copy(req.Header, k.header)
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.trace != "" {
		req.Header.Set("Traceparent", c.trace)
	}
	if k.accept != "" {
		req.Header.Set("Accept", k.accept)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unanswered(err, k.again)
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	refused := c.refusal(resp)
	if resp.StatusCode == http.StatusServiceUnavailable && k.again || refused.Code == work.CodeRate { // the latter was not looked at
		return nil, refused
	}
	return nil, backoff.Permanent(refused)
}

// unanswered puts a failed request into words and says whether to try again.
func (c *Client) unanswered(err error, again bool) error {
	e := &Error{Code: CodeUnreachable, Title: "unreachable", cause: err}
	why := err
	var op *net.OpError
	if errors.As(err, &op) {
		why = op.Err
	} else if u := (*url.Error)(nil); errors.As(err, &u) {
		why = u.Err
	}
	text := strings.TrimPrefix(why.Error(), "connect: ")
	if op != nil && op.Op == "dial" { // nothing was sent
		e.Detail = fmt.Sprintf("cannot reach gpupool at %s: %s; is gpupool serve running? Another address goes into --server or $GPUPOOL_SERVER", c.base, text)
		return e
	}
	e.Detail = fmt.Sprintf("no answer from gpupool at %s: %s", c.base, text)
	if again {
		return e
	}
	e.Detail += "; whether the call took effect is not known"
	return backoff.Permanent(e)
}

// refusal reads a problem.
func (c *Client) refusal(resp *http.Response) *Error {
	e := &Error{Status: resp.StatusCode, Title: http.StatusText(resp.StatusCode)}
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var p apitype.Problem
	if err != nil || json.Unmarshal(b, &p) != nil || p.Code == "" || p.Detail == "" {
		e.Code = codeUnexpected
		e.Detail = fmt.Sprintf("%s answered %s, and not as gpupool does: is the address right?", c.base, resp.Status)
		return e
	}
	e.Code, e.Title, e.Detail, e.RetryAfter = work.Code(p.Code), p.Title, p.Detail, time.Duration(p.Retry)*time.Second
	return e
}

func get(path string, q url.Values) call {
	return call{method: http.MethodGet, path: path, query: q, again: true}
}

// list walks a list, page by page. It ends with the first error.
func list[T any](ctx context.Context, c *Client, path string, q url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		q := maps.Clone(q)
		if q == nil {
			q = url.Values{}
		}
		q.Set("limit", pageSize)
		for {
			var page apitype.Page[T]
			if err := c.do(ctx, get(path, q), &page); err != nil {
				var zero T
				yield(zero, err)
				return
			}
			for _, x := range page.Items {
				if !yield(x, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			q.Set("after", page.Next)
		}
	}
}

// collect walks a short list to its end.
func collect[T any](seq iter.Seq2[T, error]) ([]T, error) {
	var out []T
	for x, err := range seq {
		if err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	return out, nil
}

// values makes a query of names and values, leaving out what is empty.
func values(pairs ...string) url.Values {
	q := url.Values{}
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			q.Set(pair[0], pair[1])
		}
	}
	return q
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }
