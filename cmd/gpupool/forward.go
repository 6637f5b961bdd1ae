package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/host"
	"github.com/gpupool/gpupool/internal/work"
)

// Headers between servers that share a journal, and for whoever wants to know.
const (
	headerRole      = "Gpupool-Role"      // leader or follower: who answered
	headerFact      = "Gpupool-Fact"      // the newest fact that an answer to a write can stand on
	headerForwarded = "Gpupool-Forwarded" // by a follower; never passed on twice
)

// ServeHTTP lets whatever this server is now answer.
func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*c.handles.Load()).ServeHTTP(w, r)
}

func (c *cluster) handle(h http.Handler) { c.handles.Store(&h) }

// serveAs answers from the host of now on, as one that follows and has heard so much, or with
// nil as the one that leads. Streams end with ctx.
func (c *cluster) serveAs(ctx context.Context, follows *heard) error {
	local, err := c.handler()
	if err != nil {
		return err
	}
	h := c.host
	bound := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			here, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(ctx, cancel)()
			next.ServeHTTP(w, r.WithContext(here))
		})
	}
	if follows == nil {
		c.handle(bound(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(headerRole, "leader")
			if r.Header.Get(headerForwarded) != "" && !reads(r) {
				w = &stamped{ResponseWriter: w, host: h}
			}
			local.ServeHTTP(w, r)
		})))
		return nil
	}
	pass := c.proxy(h)
	c.handle(bound(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(headerRole, "follower")
		if since := follows.since(time.Now()); since > c.staleAfter() && strings.HasPrefix(r.URL.Path, "/v1/") {
			unavailable(fmt.Sprintf("this server follows, and has not heard from the journal for %s: what it knows, and who may come in, may have changed; try again, ask another server, or look at its connection to Redis", since.Round(time.Second))).ServeHTTP(w, r)
			return
		}
		if reads(r) && !(c.foreign.Load() && strings.HasSuffix(r.URL.Path, "/logs")) {
			local.ServeHTTP(w, r)
			return
		}
		pass.ServeHTTP(w, r)
	})))
	return nil
}

func reads(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// stamped says in an answer which fact it can stand on.
type stamped struct {
	http.ResponseWriter
	host *host.Host
	said bool
}

// WriteHeader is http.ResponseWriter's.
func (s *stamped) WriteHeader(status int) {
	if !s.said {
		s.said = true
		s.Header().Set(headerFact, strconv.FormatUint(s.host.Durable(), 10))
	}
	s.ResponseWriter.WriteHeader(status)
}

func (s *stamped) Write(b []byte) (int, error) {
	if !s.said {
		s.WriteHeader(http.StatusOK)
	}
	return s.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (s *stamped) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// catchUp is how long an answer of the leader is held back until this server knows what
// it stands on, so that whoever wrote through here can read it here.
const catchUp = 2 * time.Second

// proxy passes calls on to whoever leads.
func (c *cluster) proxy(h *host.Host) http.Handler {
	between := &http.Transport{
		DialContext:    (&net.Dialer{Timeout: time.Second}).DialContext,
		DialTLSContext: c.dialTLS, ResponseHeaderTimeout: answerWait, MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leader := c.leader.Load()
		switch {
		case r.Header.Get(headerForwarded) != "":
			unavailable("this server does not lead any more: try again in a moment").ServeHTTP(w, r)
			return
		case leader == nil:
			unavailable("no server leads now: try again in a moment").ServeHTTP(w, r)
			return
		}
		to, err := url.Parse(*leader)
		if err != nil {
			unavailable("the address of the server that leads is not usable: set journal.advertise there").ServeHTTP(w, r)
			return
		}
		if c.foreign.Load() && loopback(to.Hostname()) {
			unavailable(fmt.Sprintf("the server that leads is on another machine and says that it is at %s, which here is this one: set journal.advertise there to an address that others reach", to.Host)).ServeHTTP(w, r)
			return
		}
		if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 && r.Header.Get("Authorization") == "" {
			// Who has shown a certificate here shows it there too: nobody can pass that on.
			there := url.URL{Scheme: to.Scheme, Host: to.Host, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
			http.Redirect(w, r, there.String(), http.StatusTemporaryRedirect) // whatever r says
			return
		}
		pass := &httputil.ReverseProxy{
			FlushInterval: -1, Transport: between, ErrorLog: slog.NewLogLogger(c.log.Handler(), slog.LevelDebug),
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(to)
				r.Out.Host = r.In.Host
				r.SetXForwarded()
				r.Out.Header.Set(headerForwarded, c.url)
			},
			ModifyResponse: func(r *http.Response) error {
				if fact, err := strconv.ParseUint(r.Header.Get(headerFact), 10, 64); err == nil {
					awaitFact(r.Request.Context(), h, fact)
				}
				r.Header.Del(headerRole) // it is set here
				return nil
			},
			ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
				unavailable(fmt.Sprintf("the server that leads does not answer (%s): whether this call took effect is not known; try again with the same Idempotency-Key", err)).ServeHTTP(w, r)
			},
		}
		pass.ServeHTTP(w, r)
	})
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip.IsLoopback() || ip.IsUnspecified()
}

// dialTLS reaches a server that leads. It is trusted when someone signed its certificate whom
// this machine trusts, or who is in the file of this server's own certificate; that is read
// at each call, as it changes.
func (c *cluster) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	config, err := client.TLS{CA: c.o.Config.Server.TLS.Cert}.Config()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialWait)
	defer cancel()
	return (&tls.Dialer{Config: config}).DialContext(ctx, network, addr)
}

// dialWait is how long a connection to the one that leads may take.
const dialWait = 3 * time.Second

// answerWait is how long the one that leads may think about a write.
const answerWait = 30 * time.Second

// awaitFact waits until a follower has heard a fact, for a while.
func awaitFact(ctx context.Context, h *host.Host, fact uint64) {
	bound, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	for h.LastEvent() < fact {
		_, next, stop := h.Subscribe(h.LastEvent())
		open := true
		for h.LastEvent() < fact && open && bound.Err() == nil {
			select {
			case _, open = <-next:
			case <-bound.Done():
			}
		}
		stop()
		if bound.Err() != nil || !open {
			return
		}
	}
}

// unavailable answers everything but a question about health with 503 and when to come back.
func unavailable(why string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			fmt.Fprintln(w, "ok")
			return
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		_ = json.NewEncoder(w).Encode(&apitype.Problem{ // a client that left is no fault
			Title: http.StatusText(http.StatusServiceUnavailable), Status: http.StatusServiceUnavailable, Code: string(work.CodeUnavailable), Detail: why, Retry: 1,
		})
	})
}
