// Package api is the HTTP API: it asks the host, shows the engine's view of the
// state, and says no in one shape (RFC 9457) and in the engine's own words.
//
// A call that changes something costs one commit of the host, shared with others.
// A list of tasks costs a sort of all that are kept, whatever its page; GPUs and
// hosts cost their page, pools and tenants a walk over all GPUs or tasks. A wait
// and an event stream are woken by every fact, so facts cost the number of those.
package api

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/audit"
	"github.com/gpupool/gpupool/internal/auth"
	"github.com/gpupool/gpupool/internal/host"
	"github.com/gpupool/gpupool/internal/runner"
	"github.com/gpupool/gpupool/internal/secrets"
	"github.com/gpupool/gpupool/internal/work"
)

// Config wires the API.
type Config struct {
	Host        *host.Host
	Logs        runner.LogReader // nil: no output is kept
	AdminToken  string           // HashToken of the admin token
	Metrics     http.Handler     // serves /metrics; nil: none
	Scrapes     Scrapes          // who may read it without a token; "" = nobody
	DefaultPool string           // of submissions that name none; "" = the first pool
	Version     string
	Hardware    string // a remark for whoami, such as that the GPUs are fake
	Log         *slog.Logger

	MetricsToken string // HashToken of one that is for /metrics alone; "" = none

	Admin       AdminFile                                      // the admin token, where it can be rotated; nil: AdminToken
	OIDC        Verifier                                       // who checks tokens of an OIDC issuer; nil: nobody
	Certificate func(*x509.Certificate) (auth.Identity, error) // whose a verified client certificate is; nil: nobody's
	Limits      Limits
	Audit       *audit.Log                 // nil: none
	Secrets     secrets.Store              // values that tasks name
	Dirs        []string                   // working directories that tasks may name, and what is below them; empty: any
	Refuses     func(work.Container) error // why a task that asks for this may not run here; nil: nothing is refused
	Now         func() time.Time
}

// Verifier checks tokens that someone else has made.
type Verifier interface {
	// Verify says whose a token is. An error is for whoever showed it; auth.IsUnavailable
	// tells one that says nothing of the token.
	Verify(ctx context.Context, token string) (auth.Identity, error)
}

const (
	heartbeat    = 15 * time.Second // between signs of life on a quiet event stream
	writeTimeout = 30 * time.Second // of one write to a client that may have stalled
	answerWithin = 2 * time.Minute  // a whole answer that is no stream, longest wait and all
	bodyWithin   = 30 * time.Second // of reading a body
	maxBody      = 1 << 20          // bytes
)

// server is what the operations share.
type server struct {
	cfg  Config
	host *host.Host
	log  *slog.Logger
	api  huma.API

	limits      *limits
	crossOrigin *http.CrossOriginProtection
	used        sync.Map // when a named token was last shown: string -> work.Time

	// tenants is held while one is read, changed and written back, so that of two
	// changes at once none is lost.
	tenants sync.Mutex
}

// New makes the handler of the API. It serves /v1, /openapi.json, /openapi.yaml,
// /metrics and /healthz. Event streams and waits end when the host does.
func New(cfg Config) (http.Handler, error) {
	s, err := newServer(cfg)
	if err != nil {
		return nil, err
	}
	return s.handler()
}

func newServer(cfg Config) (*server, error) {
	switch {
	case cfg.Host == nil:
		return nil, fmt.Errorf("the API needs a host")
	case cfg.Admin == nil && len(cfg.AdminToken) != len(HashToken("")):
		return nil, fmt.Errorf("the API needs the hash of the admin token: %d hexadecimal digits, got %d bytes", len(HashToken("")), len(cfg.AdminToken))
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &server{cfg: cfg, host: cfg.Host, log: cfg.Log, limits: newLimits(cfg.Limits), crossOrigin: http.NewCrossOriginProtection()}, nil
}

func (s *server) handler() (http.Handler, error) {
	mux := http.NewServeMux()
	s.api = humago.New(mux, document())
	s.taskRoutes()
	s.leaseRoutes()
	s.poolRoutes()
	s.modeRoutes()
	s.reportRoutes()
	s.tenantRoutes()
	s.tokenRoutes()
	s.secretRoutes()
	s.auditRoutes()
	s.eventRoutes()
	asJSON, err := json.Marshal(s.api.OpenAPI())
	if err != nil {
		return nil, fmt.Errorf("the OpenAPI document cannot be written: %w", err)
	}
	asYAML, err := s.api.OpenAPI().YAML()
	if err != nil {
		return nil, fmt.Errorf("the OpenAPI document cannot be written: %w", err)
	}
	fixed(mux, "/openapi.json", "application/openapi+json", asJSON)
	fixed(mux, "/openapi.yaml", "application/openapi+yaml", asYAML)
	fixed(mux, "/healthz", "text/plain; charset=utf-8", []byte("ok\n"))
	if s.cfg.Metrics != nil {
		mux.Handle("GET /metrics", s.scrapes(s.cfg.Metrics))
	}
	return s.record(s.authenticate(compress(route(mux)))), nil
}

// fixed serves bytes that never change.
func fixed(mux *http.ServeMux, path, contentType string, b []byte) {
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(b) // a client that left is no fault
	})
}

// document is the OpenAPI document before its operations. Huma's own pages are
// off: its documentation loads from elsewhere, and its schemas are in the document.
func document() huma.Config {
	schemas := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	schemas.RegisterTypeAlias(reflect.TypeFor[huma.ErrorModel](), reflect.TypeFor[apitype.Problem]())
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{Title: "gpupool", Version: "1", Description: "Turns GPUs into a pool that tenants share. " +
				"Every call needs a token, of gpupool's own or of an OIDC issuer, or a client certificate. Its role says what it may do: a viewer reads, a tenant submits and acts on what is its own, " +
				"an operator acts for all tenants and on pools, an admin makes tenants and tokens. Who is of a tenant sees only what is that tenant's. " +
				"Refusals are RFC 9457 problems with a code for programs. Lists come in pages: give next as after."},
			Components: &huma.Components{
				Schemas:         schemas,
				SecuritySchemes: map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer"}},
			},
			Security: []map[string][]string{{"token": {}}},
		},
		Formats:                      map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{humaProblem},
	}
}
