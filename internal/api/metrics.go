package api

import (
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/gpupool/gpupool/internal/work"
)

// Scrapes is who may read /metrics without an admin's token.
type Scrapes string

// Who may scrape. Metrics name tenants and show what all of them do, so no tenant's token
// is enough.
const (
	ScrapesLoopback Scrapes = "loopback" // programs on this machine, and who has the metrics token
	ScrapesAll      Scrapes = "always"   // everyone who reaches the server
	ScrapesToken    Scrapes = "never"    // only who has the metrics token
)

// metricsPrefix marks a token that is good for /metrics and nothing else, so that a
// scraper need not hold an admin's.
const metricsPrefix = "gpm_"

// NewMetricsToken makes a token for scrapers.
func NewMetricsToken() string { return metricsPrefix + chance(32) }

// scrapes lets requests for metrics pass. It asks neither host nor engine.
func (s *server) scrapes(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		switch {
		case s.cfg.Scrapes == ScrapesAll || s.cfg.Scrapes == ScrapesLoopback && local(r):
		case !strings.EqualFold(scheme, "Bearer") || token == "":
			unauthorized(w, "no token: send Authorization: Bearer TOKEN with the one in the file metrics-token of the data folder, or an admin's")
			return
		case !s.mayScrape(token):
			writeProblem(w, problem(work.CodeForbidden, "metrics show all tenants: use the token in the file metrics-token of the data folder, or an admin's"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *server) mayScrape(token string) bool {
	hash, found := []byte(HashToken(token)), 0
	for _, known := range append(s.adminHashes(), s.cfg.MetricsToken) {
		found |= subtle.ConstantTimeCompare([]byte(known), hash)
	}
	return found == 1
}

// local reports whether a program on this machine asks for itself. A proxy on this machine
// asks for others, and a page in a browser may be led here by a name that it controls: what
// either sends gives it away.
func local(r *http.Request) bool {
	for _, h := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via", "Origin"} {
		if r.Header.Get(h) != "" {
			return false
		}
	}
	return loopback(r.RemoteAddr) && loopback(r.Host)
}

func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.Unmap().IsLoopback()
}
