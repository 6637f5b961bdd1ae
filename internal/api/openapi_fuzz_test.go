package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/work"
)

// The fuzz reads docs/openapi.yaml as a client would, makes requests of it for every
// operation and every role, good ones and bad ones, and holds the answers against it: no
// 5xx, a status and a body that are documented, nothing of another tenant, and no panic.

// document is what the fuzz needs of the OpenAPI document.
type document struct {
	ops     []docOp
	schemas *jsonschema.Compiler
	raw     map[string]any
	ids     []any // of tasks
	tokens  []any // their IDs
}

type docOp struct {
	id, method, path string
	params           []docParam
	body             map[string]any // its schema; nil: none
	answers          map[string]map[string]any
}

type docParam struct {
	name, in string
	schema   map[string]any
}

func readDocument(t testing.TB) *document {
	b, err := os.ReadFile(kept)
	ok(t, err)
	text, err := yaml.YAMLToJSON(b)
	ok(t, err)
	raw, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	ok(t, err)
	d := &document{schemas: jsonschema.NewCompiler(), raw: raw.(map[string]any)}
	ok(t, d.schemas.AddResource("openapi.json", raw))
	paths := d.raw["paths"].(map[string]any)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		methods := paths[path].(map[string]any)
		for _, method := range slices.Sorted(maps.Keys(methods)) {
			d.ops = append(d.ops, d.op(path, method, methods[method].(map[string]any)))
		}
	}
	return d
}

func (d *document) op(path, method string, o map[string]any) docOp {
	op := docOp{id: o["operationId"].(string), method: strings.ToUpper(method), path: path, answers: map[string]map[string]any{}}
	params, _ := o["parameters"].([]any)
	for _, p := range params {
		p := p.(map[string]any)
		op.params = append(op.params, docParam{p["name"].(string), p["in"].(string), p["schema"].(map[string]any)})
	}
	if body, has := o["requestBody"].(map[string]any); has {
		op.body = body["content"].(map[string]any)["application/json"].(map[string]any)["schema"].(map[string]any)
	}
	for status, a := range o["responses"].(map[string]any) {
		content, _ := a.(map[string]any)["content"].(map[string]any)
		op.answers[status] = content
	}
	return op
}

// resolve follows references.
func (d *document) resolve(s map[string]any) map[string]any {
	for {
		ref, is := s["$ref"].(string)
		if !is {
			return s
		}
		s = d.raw["components"].(map[string]any)["schemas"].(map[string]any)[strings.TrimPrefix(ref, "#/components/schemas/")].(map[string]any)
	}
}

// edges are values that have broken programs before.
var edges = []any{"", "x", " ", "0", "-1", "99999999999999999999", "1e308", "null", "true", "../../etc/passwd", "a\x00b", "\u202e", strings.Repeat("a", 5000), "%00", "'; --", "{}", "１", "nan", "1h", "9999999h", "0-9999%3", "2..8", "1/7", "7/7", "1/0",
	-1, 0, 1, 2, 1 << 31, int64(1) << 62, 1.5, -0.5, 1e300, true, false, nil, []any{}, map[string]any{}, []any{nil}, []any{"x", "x"}, map[string]any{"": ""}}

// fitting are good values by the name of what they are for, where the schema alone says
// too little. ids are those of tasks and tokens that there are.
var fitting = map[string][]any{
	"tenant": {"alice", "bob"}, "pool": {"main"}, "name": {"alice", "bob", "spare", "main"}, "gpus": {"1", "2", "1/7", "0.3", "0", "3g.40gb", "20GiB", "1..2"}, "gpu_memory": {"10GiB"}, "memory": {"1GiB"},
	"command": {"cmd"}, "env": {"A=1"}, "secrets": {"KEY", "V=KEY"}, "secret": {"KEY", "OTHER"}, "grace": {"1s"}, "ttl": {"1h", "none"}, "lease_ttl": {"1m", "2s"}, "max_runtime": {"1h"}, "estimate": {"10m"}, "checkpoint_every": {"5m"},
	"deadline": {"2126-12-03T08:00:00Z"}, "after_any": {1, 2}, "array": {"0-2", "1-5:2%2"}, "min": {"1"}, "max": {"2"}, "wait": {"1ms", "0s"}, "state": {"active", "queued", "running,queued"}, "epoch": {1, 2}, "members": {1, 2},
	"from": {"2026-11-01"}, "to": {"2126-11-30"}, "since": {"1h"}, "until": {"1h", "running", "ended"}, "expires_in": {"1h", "never"}, "overlap": {"1h", "0s"}, "pools": {"main"}, "tenants": {"bob"}, "step": {"1h"},
	"Last-Event-ID": {"1"}, "Idempotency-Key": {"a", "b", "c"}, "limit": {1, 10, 1000}, "cpus": {1, 0.5}, "wait_ratio": {1.5}, "failures": {0.5}, "dir": {"/tmp"}, "value": {"v"}, "tail": {1}, "member": {0},
}

// value draws a value for a schema: mostly one that fits, at times anything.
func (d *document) value(t *rapid.T, name string, s map[string]any, depth int) any {
	s = d.resolve(s)
	if rapid.IntRange(0, 29).Draw(t, "odd") == 0 || depth > 4 {
		return rapid.SampledFrom(edges).Draw(t, "edge")
	}
	if enum, has := s["enum"].([]any); has {
		return rapid.SampledFrom(enum).Draw(t, "enum")
	}
	kind, _ := s["type"].(string)
	if kinds, several := s["type"].([]any); several {
		kind = kinds[0].(string)
	}
	if good := d.good(name); len(good) > 0 && kind != "array" && kind != "object" && rapid.IntRange(0, 9).Draw(t, "fits") > 0 {
		return rapid.SampledFrom(good).Draw(t, name)
	}
	switch kind {
	case "integer", "number":
		return rapid.SampledFrom([]any{0, 1, 2, 3, 4, 7, 16, 100, 1000, 0.5, -1}).Draw(t, "number")
	case "boolean":
		return rapid.Bool().Draw(t, "bool")
	case "array":
		items, _ := s["items"].(map[string]any)
		out := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			out = append(out, d.value(t, name, items, depth+1))
		}
		return out
	case "object":
		return d.object(t, s, depth)
	}
	if x, has := s["examples"].([]any); has && rapid.Bool().Draw(t, "example") {
		return rapid.SampledFrom(x).Draw(t, "of examples")
	}
	return rapid.SampledFrom([]string{"", "x", "1", "main", "alice"}).Draw(t, "word")
}

// good are values that fit a name.
func (d *document) good(name string) []any {
	switch name {
	case "id", "task", "after":
		return d.ids
	case "token":
		return d.tokens
	}
	return fitting[name]
}

func (d *document) object(t *rapid.T, s map[string]any, depth int) any {
	out := map[string]any{}
	props, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	for _, name := range slices.Sorted(maps.Keys(props)) {
		often := 3
		if slices.Contains(required, any(name)) || name == "tenant" || name == "command" {
			often = 20
		}
		if rapid.IntRange(0, 20).Draw(t, "has "+name) < often {
			out[name] = d.value(t, name, props[name].(map[string]any), depth+1)
		}
	}
	if rapid.IntRange(0, 30).Draw(t, "unknown") == 0 {
		out["unheard_of"] = rapid.SampledFrom(edges).Draw(t, "edge")
	}
	return out
}

// request draws a request of an operation.
func (d *document) request(t *rapid.T, o docOp) *http.Request {
	path, query := o.path, url.Values{}
	header := http.Header{}
	for _, p := range o.params {
		name := p.name
		if name == "id" && strings.HasPrefix(o.path, "/v1/tokens/") {
			name = "token"
		}
		text := func() string {
			switch v := d.value(t, name, p.schema, 0).(type) {
			case nil:
				return ""
			case string:
				return v
			case float64:
				return strconv.FormatFloat(v, 'g', -1, 64)
			default:
				return fmt.Sprint(v)
			}
		}
		switch p.in {
		case "path":
			v := text()
			if v == "" || v == "." || v == ".." {
				v = "x"
			}
			path = strings.ReplaceAll(path, "{"+p.name+"}", url.PathEscape(v))
		case "query":
			for range rapid.SampledFrom([]int{0, 0, 0, 1, 1, 2}).Draw(t, "times") {
				query.Add(p.name, text())
			}
		case "header":
			if rapid.IntRange(0, 4).Draw(t, "header") == 0 {
				header.Set(p.name, strings.Map(func(r rune) rune {
					if r < ' ' || r > '~' {
						return 'x'
					}
					return r
				}, text()))
			}
		}
	}
	if rapid.IntRange(0, 20).Draw(t, "unknown query") == 0 {
		query.Add("unheard_of", "1")
	}
	var body []byte
	if o.body != nil || rapid.IntRange(0, 10).Draw(t, "needless body") == 0 {
		body = d.bodyOf(t, o)
		header.Set("Content-Type", "application/json")
		if rapid.IntRange(0, 15).Draw(t, "other type") == 0 {
			header.Set("Content-Type", rapid.SampledFrom([]string{"text/plain", "application/yaml", "", "application/json; charset=utf-16"}).Draw(t, "type"))
		}
	}
	r := httptest.NewRequestWithContext(context.Background(), o.method, path+"?"+query.Encode(), bytes.NewReader(body))
	maps.Copy(r.Header, header)
	return r
}

func (d *document) bodyOf(t *rapid.T, o docOp) []byte {
	switch rapid.IntRange(0, 24).Draw(t, "broken body") {
	case 0:
		return rapid.SampledFrom([][]byte{nil, []byte("{"), []byte("null"), []byte("[]"), []byte(`"x"`), []byte("{\"a\":"), {0xff, 0xfe}, []byte(strings.Repeat("[", 100_000)), bytes.Repeat([]byte("x"), 2<<20)}).Draw(t, "bytes")
	case 1:
		return rapid.SliceOf(rapid.Byte()).Draw(t, "noise")
	}
	if o.body == nil {
		return []byte("{}")
	}
	b, err := json.Marshal(d.value(t, "", o.body, 0))
	if err != nil {
		t.Fatalf("a body cannot be written: %s", err)
	}
	return b
}

// fuzzWorld is a world whose callers stay, whatever a request has done.
type fuzzWorld struct {
	*world
	doc    *document
	tokens map[string]string // by who it is of
	seen   map[string]map[int]int
}

// marker is in everything of alice's, and in no request.
const marker = "m4rker-of-alice"

func newFuzzWorld(t testing.TB) *fuzzWorld {
	w := &fuzzWorld{world: start(t, options{shape: "2x8xH100-80GB", pools: []work.Pool{{Name: "main", Mode: work.Dynamic, Capacity: 200, BackPressure: 0.8}}}), doc: readDocument(t), seen: map[string]map[int]int{}}
	w.restore()
	return w
}

// restore makes again what a request may have removed.
func (w *fuzzWorld) restore() {
	for _, name := range []string{"alice", "bob"} {
		w.plain(http.MethodPut, "/v1/tenants/"+name, "{}", nil)
	}
	if w.tokens == nil || w.served(w.tokens["alice"]) != 200 || w.served(w.tokens["bob"]) != 200 || w.served(w.tokens["reader"]) != 200 || w.served(w.tokens["viewer"]) != 200 || w.served(w.tokens["operator"]) != 200 {
		w.tokens = map[string]string{"nobody": "", "admin": w.adminToken, "stranger": "gpk_0123456789_x"}
		w.plain(http.MethodDelete, "/v1/tenants/alice/tokens", "", nil)
		w.plain(http.MethodDelete, "/v1/tenants/bob/tokens", "", nil)
		for who, spec := range map[string]string{"alice": `{"role":"tenant","tenant":"alice"}`, "bob": `{"role":"tenant","tenant":"bob"}`, "reader": `{"role":"viewer","tenant":"bob"}`, "viewer": `{"role":"viewer"}`, "operator": `{"role":"operator"}`} {
			var made apitype.NewToken
			w.plain(http.MethodPost, "/v1/tokens", spec, &made)
			w.tokens[who] = made.Token
		}
	}
	if len(w.secretNames()) == 0 {
		w.plain(http.MethodPut, "/v1/tenants/alice/secrets/KEY", `{"value":"`+marker+`"}`, nil)
		w.plain(http.MethodPut, "/v1/tenants/bob/secrets/KEY", `{"value":"x"}`, nil)
	}
	var tasks apitype.Page[apitype.Task]
	w.plain(http.MethodGet, "/v1/tasks?state=active&name="+marker, "", &tasks)
	if len(tasks.Items) == 0 { // where the queue is full there is none for a while
		w.plain(http.MethodPost, "/v1/tasks", `{"tenant":"alice","name":"`+marker+`","priority":"high","command":["`+marker+`"],"gpus":"1/7"}`, nil)
	}
}

func (w *fuzzWorld) secretNames() []string {
	var page apitype.Page[string]
	w.plain(http.MethodGet, "/v1/tenants/alice/secrets", "", &page)
	return page.Items
}

// look finds what there is to ask about.
func (w *fuzzWorld) look() {
	w.doc.ids, w.doc.tokens = []any{1}, []any{"admin"}
	w.host.Read(func(e *engine.Engine) {
		for _, t := range e.Tokens() {
			w.doc.tokens = append(w.doc.tokens, t.ID)
		}
		for _, t := range e.Tasks() {
			if !t.State.Terminal() && len(w.doc.ids) < 12 {
				w.doc.ids = append(w.doc.ids, uint64(t.ID))
			}
			if t.Spec.External() {
				w.doc.ids = append(w.doc.ids, uint64(t.ID), uint64(t.ID))
			}
		}
	})
}

// plain is a call of the admin that is not part of the fuzz.
func (w *fuzzWorld) plain(method, path, body string, out any) {
	rec := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(w.t.Context(), method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+w.adminToken)
	r.Header.Set("Content-Type", "application/json")
	w.handler.ServeHTTP(rec, r)
	if out != nil && rec.Code < 300 {
		ok(w.t, json.Unmarshal(rec.Body.Bytes(), out))
	}
}

// patienceOfFuzz is how long one call of the fuzz may wait; streams end by it.
const patienceOfFuzz = 30 * time.Millisecond

// one draws a call, makes it and holds the answer against the document.
func (w *fuzzWorld) one(t *rapid.T) {
	if fault := w.try(t); fault != "" {
		t.Fatal(fault)
	}
}

// try does, and says what is wrong with the answer.
func (w *fuzzWorld) try(t *rapid.T) (fault string) {
	w.restore()
	w.look()
	o := rapid.SampledFrom(w.doc.ops).Draw(t, "operation")
	who := rapid.SampledFrom(append(slices.Sorted(maps.Keys(w.tokens)), "admin", "admin", "alice", "operator")).Draw(t, "who")
	r := w.doc.request(t, o)
	if token := w.tokens[who]; token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	ctx, cancel := context.WithTimeout(r.Context(), patienceOfFuzz)
	defer cancel()
	rec := httptest.NewRecorder()
	cut := serve(w.handler, rec, r.WithContext(ctx))
	what := fmt.Sprintf("%s: %s %s as %s: %d %.600s", o.id, r.Method, r.URL, who, rec.Code, rec.Body)
	if w.seen[o.id] == nil {
		w.seen[o.id] = map[int]int{}
	}
	w.seen[o.id][rec.Code]++
	content, documented := o.answers[strconv.Itoa(rec.Code)]
	switch {
	case rec.Code == http.StatusServiceUnavailable && ctx.Err() != nil: // it was given up: documented
	case rec.Code >= 500:
		return "the server failed at it: " + what
	case cut && !isStream(content):
		return "half an answer: " + what
	}
	if rec.Code >= 400 {
		content = o.answers["default"]
	} else if !documented {
		return "the status is not documented: " + what
	}
	if who != "alice" && who != "admin" && who != "viewer" && who != "operator" && strings.Contains(rec.Body.String(), marker) {
		return "it shows what is alice's: " + what
	}
	return w.checkBody(o, rec, content, what)
}

func isStream(content map[string]any) bool {
	for ct := range content {
		return ct != "application/json"
	}
	return false
}

// serve runs a handler; cut says that it ended an answer in its midst, as streams do.
func serve(h http.Handler, rec *httptest.ResponseRecorder, r *http.Request) (cut bool) {
	defer func() {
		switch fault := recover(); fault {
		case nil:
		case http.ErrAbortHandler:
			cut = true
		default:
			panic(fault)
		}
	}()
	h.ServeHTTP(rec, r)
	return false
}

// checkBody holds a body against the schema of its status.
func (w *fuzzWorld) checkBody(o docOp, rec *httptest.ResponseRecorder, content map[string]any, what string) (fault string) {
	if len(content) == 0 {
		if rec.Body.Len() > 0 {
			return "a body that is not documented: " + what
		}
		return ""
	}
	ct, _, _ := strings.Cut(rec.Header().Get("Content-Type"), ";")
	if _, has := content[ct]; !has {
		return fmt.Sprintf("content type %q is not documented: %s", ct, what)
	}
	if !strings.HasSuffix(ct, "json") || ct == "application/x-ndjson" {
		return ""
	}
	status := strconv.Itoa(rec.Code)
	if rec.Code >= 400 {
		status = "default"
	}
	at := fmt.Sprintf("openapi.json#/paths/%s/%s/responses/%s/content/%s/schema", escaped(o.path), strings.ToLower(o.method), status, escaped(ct))
	schema, err := w.doc.schemas.Compile(at)
	if err != nil {
		return fmt.Sprintf("%s: %s", at, err)
	}
	got, err := jsonschema.UnmarshalJSON(rec.Body)
	if err == nil {
		err = schema.Validate(got)
	}
	if err != nil {
		return fmt.Sprintf("the body is not as documented: %s: %s", err, what)
	}
	if p, is := got.(map[string]any); rec.Code >= 400 && (!is || fmt.Sprint(p["status"]) != strconv.Itoa(rec.Code)) {
		return "the problem has another status: " + what
	}
	return ""
}

// escaped writes a word into a JSON pointer in a URL.
func escaped(s string) string {
	return url.PathEscape(strings.ReplaceAll(strings.ReplaceAll(s, "~", "~0"), "/", "~1"))
}

// TestOpenAPIFuzz is the short form of the fuzz.
func TestOpenAPIFuzz(t *testing.T) {
	w := newFuzzWorld(t)
	calls := 100 // of each of the 100 checks, or 20 with -short
	rapid.Check(t, func(t *rapid.T) {
		for range calls {
			w.one(t)
		}
	})
	// It is worth something only if it gets far.
	var never []string
	for _, o := range w.doc.ops {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(w.seen[o.id])), func(status int) bool { return status < 300 }) {
			never = append(never, o.id)
		}
	}
	if len(never) > len(w.doc.ops)/4 {
		t.Errorf("of %d operations these were never answered well: %v; %v", len(w.doc.ops), never, w.seen)
	}
	t.Logf("never answered well: %v", never)
}

// FuzzOpenAPI is the long form: make fuzz PKG=./internal/api.
func FuzzOpenAPI(f *testing.F) {
	w := newFuzzWorld(f)
	f.Fuzz(rapid.MakeFuzz(w.one))
}

// TestOpenAPIFuzzBites plants faults that show only on some requests, and wants the fuzz to
// find each.
func TestOpenAPIFuzzBites(t *testing.T) {
	answer := func(rw http.ResponseWriter, status int, kind, body string) {
		rw.Header().Set("Content-Type", kind)
		rw.WriteHeader(status)
		_, _ = rw.Write([]byte(body))
	}
	for what, x := range map[string]struct {
		fault func(rw http.ResponseWriter, r *http.Request) bool
		says  string
	}{
		"a 500": {func(rw http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPost || r.URL.Path != "/v1/leases" || r.Header.Get("Idempotency-Key") == "" {
				return false
			}
			answer(rw, 500, "application/problem+json", `{"title":"x","status":500,"code":"internal","detail":"x"}`)
			return true
		}, "the server failed at it"},
		"a body that is not as documented": {func(rw http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/v1/pools" {
				return false
			}
			answer(rw, 200, "application/json", `{"items":[{"name":7}]}`)
			return true
		}, "the body is not as documented"},
		"what is another's": {func(rw http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/v1/tasks" || r.URL.Query().Get("name") == "" || r.Method != http.MethodGet || strings.Contains(r.URL.RawQuery, marker) {
				return false
			}
			answer(rw, 404, "application/problem+json", `{"title":"x","status":404,"code":"not_found","detail":"`+marker+`"}`)
			return true
		}, "it shows what is alice's"},
	} {
		t.Run(what, func(t *testing.T) {
			w := newFuzzWorld(t)
			sound := w.handler
			w.handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if !x.fault(rw, r) {
					sound.ServeHTTP(rw, r)
				}
			})
			said, calls := "", 0
			rapid.Check(t, func(t *rapid.T) {
				for range 200 {
					if said == "" {
						calls++
						said = w.try(t)
					}
				}
			})
			if !strings.Contains(said, x.says) {
				t.Errorf("after %d calls the fuzz says %q, want %q", calls, said, x.says)
			}
		})
	}
}
