package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// TLS is the server's certificate.
type TLS struct {
	Cert     string `yaml:"cert" default:"" doc:"File (PEM) with the certificate, and the chain to it. Empty: no TLS."`
	Key      string `yaml:"key" default:"" doc:"File (PEM) with its key. Both are read again when they change; what cannot be used is warned of, and the last good ones stay."`
	ClientCA string `yaml:"client_ca" default:"" doc:"File (PEM) with the certificates that sign clients'. Who shows one needs no token (section auth.certificates). Empty: none is asked for."`
	Min      string `yaml:"min" default:"1.2" enum:"1.2,1.3" doc:"Lowest version of TLS."`
}

// On reports whether there is a certificate.
func (t TLS) On() bool { return t.Cert != "" || t.Key != "" }

// Auth is who may come in beside those with a token of gpupool.
type Auth struct {
	OIDC         OIDC         `yaml:"oidc" doc:"Tokens (JWTs) of an OIDC issuer."`
	Certificates Certificates `yaml:"certificates" doc:"What client certificates mean (server.tls.client_ca). A word is cn=NAME, ou=UNIT, or san=NAME: a DNS name, an e-mail address or a URI."`
}

// OIDC is whose tokens count, and what they mean.
type OIDC struct {
	Issuer   string `yaml:"issuer" default:"" doc:"Address of the issuer, as in the claim iss. Empty: none."`
	Audience string `yaml:"audience" default:"gpupool" doc:"That a token must be made for: the claim aud."`
	CA       string `yaml:"ca" default:"" doc:"File (PEM) with the certificates that sign the issuer's. Empty: those of the system."`
	Tenant   string `yaml:"tenant_claim" default:"gpupool_tenant" doc:"Claim with the tenant of whoever is neither admin nor operator."`
	Groups   string `yaml:"groups_claim" default:"groups" doc:"Claim with the groups: a list, or words with spaces between."`
	Name     string `yaml:"name_claim" default:"email" doc:"Claim with a name for people, shown beside the subject."`

	Admins    []string `yaml:"admins,omitempty" example:"[gpu-admins]" doc:"Groups that are admins."`
	Operators []string `yaml:"operators,omitempty" example:"[gpu-operators]" doc:"Groups that are operators."`
	Viewers   []string `yaml:"viewers,omitempty" example:"[everyone]" doc:"Groups that may read everything, unless a tenant is named: then that is what they have."`
}

// Certificates is what client certificates mean.
type Certificates struct {
	Tenant    string   `yaml:"tenant_from" default:"" enum:",cn,ou,san" doc:"What names the tenant of whoever is neither admin nor operator: cn, ou or san. Empty: nothing does."`
	Admins    []string `yaml:"admins,omitempty" example:"[\"cn=root.example.org\"]" doc:"Words that make an admin."`
	Operators []string `yaml:"operators,omitempty" example:"[\"ou=operations\"]" doc:"Words that make an operator."`
	Viewers   []string `yaml:"viewers,omitempty" example:"[\"san=grafana.example.org\"]" doc:"Words that make a viewer."`
}

// Limits bound what callers may ask of the API. 0 is no bound.
type Limits struct {
	Calls  float64 `yaml:"calls_per_second" default:"500" doc:"Of one token of a tenant or viewer: a script that has run wild must not hold up the others. Operators and admins have no bound. 0: none."`
	Burst  int     `yaml:"burst" default:"1000" doc:"Calls that may come at once."`
	AtOnce int     `yaml:"open_calls" default:"256" doc:"Calls of such a token that are open at once; waits and streams are among them. 0: no bound."`
	Failed float64 `yaml:"unknown_per_minute" default:"120" doc:"Calls of one address that show nobody who is known. Those who are known are never held up by it. 0: no bound."`
}

// Audit is the log of who did what.
type Audit struct {
	Keep  bool `yaml:"keep" default:"true" doc:"Keep one, in the folder audit of the data folder."`
	Size  Size `yaml:"file_size" default:"64MiB" doc:"Of a file, before the next is begun."`
	Files int  `yaml:"files" default:"30" doc:"Full files that are kept; the oldest are removed beyond it."`
}

// Tasks bounds what tasks may ask of a host.
type Tasks struct {
	Dirs []string `yaml:"dirs,omitempty" example:"[/home, /data]" doc:"Working directories that tasks may name, and all below them. Empty: any. A program that runs as a user can go wherever that user can."`
}

func (t TLS) check() error {
	switch {
	case (t.Cert == "") != (t.Key == ""):
		return errors.New("server.tls: expected cert and key, or neither")
	case t.ClientCA != "" && !t.On():
		return errors.New("server.tls.client_ca: client certificates need TLS: give cert and key too")
	case t.Min != "1.2" && t.Min != "1.3":
		return fmt.Errorf("server.tls.min: expected 1.2 or 1.3, got %q", t.Min)
	}
	return nil
}

func (a Auth) check() error {
	o := a.OIDC
	if o.Issuer != "" {
		u, err := url.Parse(o.Issuer)
		switch {
		case err != nil || u.Host == "" || u.Scheme != "https" && !(u.Scheme == "http" && (u.Hostname() == "127.0.0.1" || u.Hostname() == "localhost" || u.Hostname() == "::1")):
			return fmt.Errorf("auth.oidc.issuer: expected an address such as https://login.example.org (http on this machine only), got %q", o.Issuer)
		case o.Audience == "":
			return errors.New("auth.oidc.audience: expected a name: without one tokens that were made for others would count")
		case len(o.Admins)+len(o.Operators)+len(o.Viewers) == 0 && o.Tenant == "":
			return errors.New("auth.oidc: neither a tenant's claim nor a group with a role is named: no token would give a right")
		}
	}
	c := a.Certificates
	if !slices.Contains([]string{"", "cn", "ou", "san"}, c.Tenant) {
		return fmt.Errorf("auth.certificates.tenant_from: expected cn, ou or san, got %q", c.Tenant)
	}
	for _, x := range slices.Concat(c.Admins, c.Operators, c.Viewers) {
		if field, value, ok := strings.Cut(x, "="); !ok || value == "" || !slices.Contains([]string{"cn", "ou", "san"}, field) {
			return fmt.Errorf("auth.certificates: expected words such as cn=NAME, ou=UNIT or san=NAME, got %q", x)
		}
	}
	return nil
}

func (t Tasks) check() error {
	for i, d := range t.Dirs {
		if !filepath.IsAbs(d) || filepath.Clean(d) != d {
			return fmt.Errorf("tasks.dirs[%d]: expected the whole path of a folder, without . or .. or a slash at its end, got %q", i, d)
		}
	}
	return nil
}

// checkAccess checks who may come in, and what they may ask for.
func (c Config) checkAccess() error {
	return cmp.Or(c.Server.TLS.check(), c.Auth.check(), c.Tasks.check())
}
