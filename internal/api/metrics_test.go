package api

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestScrapes(t *testing.T) {
	admin, scraper, tenant := NewAdminToken(), NewMetricsToken(), NewTenantToken("alice")
	for _, x := range []struct {
		name, from, host, header, token string
		scrapes                         Scrapes
		want                            int
	}{
		{"this machine", "127.0.0.1:5", "127.0.0.1:8470", "", "", ScrapesLoopback, 200},
		{"this machine, v6", "[::1]:5", "[::1]:8470", "", "", ScrapesLoopback, 200},
		{"this machine by name", "127.0.0.1:5", "localhost:8470", "", "", ScrapesLoopback, 200},
		{"another machine", "10.0.0.7:5", "10.0.0.1:8470", "", "", ScrapesLoopback, 401},
		{"another machine that claims to be this one", "10.0.0.7:5", "localhost", "", "", ScrapesLoopback, 401},
		{"a proxy here", "127.0.0.1:5", "127.0.0.1:8470", "X-Forwarded-For", "", ScrapesLoopback, 401},
		{"a proxy here that keeps the name", "127.0.0.1:5", "gpupool.example.com", "", "", ScrapesLoopback, 401},
		{"a page led here", "127.0.0.1:5", "evil.example.com:8470", "", "", ScrapesLoopback, 401},
		{"another machine with the token", "10.0.0.7:5", "10.0.0.1:8470", "", scraper, ScrapesLoopback, 200},
		{"an admin", "10.0.0.7:5", "10.0.0.1:8470", "", admin, ScrapesLoopback, 200},
		{"a tenant", "10.0.0.7:5", "10.0.0.1:8470", "", tenant, ScrapesLoopback, 403},
		{"a guess", "10.0.0.7:5", "10.0.0.1:8470", "", "gpm_0", ScrapesLoopback, 403},
		{"this machine, closed", "127.0.0.1:5", "127.0.0.1:8470", "", "", ScrapesToken, 401},
		{"the token, closed", "127.0.0.1:5", "127.0.0.1:8470", "", scraper, ScrapesToken, 200},
		{"nothing was set", "127.0.0.1:5", "127.0.0.1:8470", "", "", "", 401},
		{"everyone", "10.0.0.7:5", "10.0.0.1:8470", "", "", ScrapesAll, 200},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := &server{cfg: Config{AdminToken: HashToken(admin), MetricsToken: HashToken(scraper), Scrapes: x.scrapes}}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
			r.RemoteAddr, r.Host = x.from, x.host
			if x.header != "" {
				r.Header.Set(x.header, "10.0.0.7")
			}
			if x.token != "" {
				r.Header.Set("Authorization", "Bearer "+x.token)
			}
			rec := httptest.NewRecorder()
			s.scrapes(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(rec, r)
			if rec.Code != x.want {
				t.Errorf("status %d, want %d: %s", rec.Code, x.want, rec.Body)
			}
		})
	}
}
