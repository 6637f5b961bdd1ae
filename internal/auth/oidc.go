package auth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

// OIDC checks tokens (JWTs) of one issuer. Nothing is asked of the issuer until the first
// token comes, so that a server starts without it.
type OIDC struct {
	o      OIDCOptions
	client *http.Client

	mu       sync.Mutex
	verifier *oidc.IDTokenVerifier // nil: the issuer has not been asked yet
	failed   time.Time             // when it did not answer
	why      error
}

// OIDCOptions say which tokens count, and what they mean.
type OIDCOptions struct {
	Issuer      string
	Audience    string
	CA          string // file with certificates that sign the issuer's; "" = the system's
	TenantClaim string // names the tenant; "" = none does
	GroupsClaim string // a list, or words with spaces between
	NameClaim   string // for people; "" = none
	Groups      Groups
	Now         func() time.Time // default time.Now
}

const (
	issuerWithin = 10 * time.Second // of an answer of the issuer
	issuerAgain  = 5 * time.Second  // before it is asked again after it has failed, or for keys that nobody may have
	keysFor      = time.Hour        // that keys are used without asking whether they still count
)

// algorithms that a signature may have: never none, nor one whose key would be shared.
var algorithms = []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA}

// NewOIDC makes a checker.
func NewOIDC(o OIDCOptions) (*OIDC, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	client := &http.Client{Timeout: issuerWithin}
	if o.CA != "" {
		pool, err := certPool(o.CA)
		if err != nil {
			return nil, fmt.Errorf("auth.oidc.ca: %w", err)
		}
		client.Transport = &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	}
	return &OIDC{o: o, client: client}, nil
}

// certPool reads a file of certificates.
func certPool(file string) (*x509.CertPool, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("%s holds no certificate: expected PEM", file)
	}
	return pool, nil
}

// ready returns what checks tokens, and asks the issuer where it stands the first time.
func (o *OIDC) ready(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.verifier != nil {
		return o.verifier, nil
	}
	now := o.o.Now()
	if !o.failed.IsZero() && now.Sub(o.failed) < issuerAgain {
		return nil, o.why
	}
	// Whoever asks first may leave: the answer is for all.
	p, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), o.client), o.o.Issuer)
	var found struct {
		Keys string `json:"jwks_uri"`
	}
	if err == nil {
		err = p.Claims(&found)
	}
	if err != nil {
		o.failed, o.why = now, o.down(err)
		return nil, o.why
	}
	asks := *o.client
	asks.Transport = &seldom{next: asks.Transport, now: o.o.Now}
	keys := &keySet{url: found.Keys, client: &asks, now: o.o.Now}
	o.verifier = oidc.NewVerifier(o.o.Issuer, keys, &oidc.Config{ClientID: o.o.Audience, SupportedSigningAlgs: algorithms, Now: o.o.Now})
	return o.verifier, nil
}

func (o *OIDC) down(err error) error {
	return &unavailable{fmt.Errorf("the OIDC issuer %s cannot be asked about your token now: try again, or use a token of gpupool (%w)", o.o.Issuer, err)}
}

// Verify finds out whose a token is.
func (o *OIDC) Verify(ctx context.Context, token string) (Identity, error) {
	v, err := o.ready(ctx)
	if err != nil {
		return Identity{}, err
	}
	var fetch error
	t, err := v.Verify(context.WithValue(ctx, fetchKey{}, &fetch), token)
	switch {
	case fetch != nil:
		return Identity{}, o.down(fetch)
	case err != nil:
		return Identity{}, fmt.Errorf("the OIDC token is not accepted: %s", strings.TrimPrefix(err.Error(), "oidc: "))
	}
	var claims map[string]any
	if err := t.Claims(&claims); err != nil {
		return Identity{}, fmt.Errorf("the claims of the OIDC token cannot be read: %w", err)
	}
	if t.Subject == "" {
		return Identity{}, errors.New("the OIDC token names nobody: expected the claim sub")
	}
	tenant, _ := claims[o.o.TenantClaim].(string)
	name, _ := claims[o.o.NameClaim].(string)
	id := Identity{Kind: KindOIDC, ID: t.Subject, Name: name, Expires: t.Expiry}
	if id.Role, id.Tenant, err = o.o.Groups.role(words(claims[o.o.GroupsClaim]), tenant); err != nil {
		return Identity{}, fmt.Errorf("the OIDC token of %s is valid and gives no right here: %w", t.Subject, err)
	}
	return id, nil
}

// words are the strings of a claim that is a list, or a text with spaces.
func words(claim any) (out []string) {
	switch c := claim.(type) {
	case string:
		return strings.Fields(c)
	case []any:
		for _, x := range c {
			if s, ok := x.(string); ok {
				out = append(out, s)
			}
		}
	}
	return out
}

// fetchKey is where keySet leaves, for one check, that the issuer did not answer: the
// library hands only words on.
type fetchKey struct{}

// keySet are the keys of an issuer. They go on to count while it cannot be reached; while
// it can, keys that it has withdrawn count for an hour at most.
type keySet struct {
	url    string
	client *http.Client
	now    func() time.Time

	mu    sync.Mutex
	keys  *oidc.RemoteKeySet
	since time.Time // when they were made, or it was last tried in vain to make others
}

func (k *keySet) fresh() *oidc.RemoteKeySet {
	return oidc.NewRemoteKeySet(oidc.ClientContext(context.Background(), k.client), k.url)
}

// VerifySignature implements oidc.KeySet.
func (k *keySet) VerifySignature(ctx context.Context, jwt string) ([]byte, error) {
	k.mu.Lock()
	now := k.now()
	old := k.keys
	if old == nil || now.Sub(k.since) >= keysFor {
		k.keys, k.since = k.fresh(), now
	}
	keys := k.keys
	k.mu.Unlock()
	payload, err := keys.VerifySignature(ctx, jwt)
	if !unreachable(err) {
		return payload, err
	}
	if old != nil && old != keys { // the issuer is away: what it said last still counts
		k.mu.Lock()
		k.keys, k.since = old, now.Add(issuerAgain-keysFor)
		k.mu.Unlock()
		if payload, again := old.VerifySignature(ctx, jwt); again == nil {
			return payload, nil
		}
	}
	if to, ok := ctx.Value(fetchKey{}).(*error); ok {
		*to = errors.Unwrap(err)
	}
	return nil, err
}

// seldom asks for keys every few seconds at most. A token with a key that nobody has makes
// the library ask, and strangers must not make gpupool flood the issuer; who has a good
// token is not held up, as its key is known already.
type seldom struct {
	next http.RoundTripper // nil: the usual one
	now  func() time.Time

	mu   sync.Mutex
	last time.Time
}

// RoundTrip implements http.RoundTripper.
func (s *seldom) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	now := s.now()
	soon := !s.last.IsZero() && now.Sub(s.last) < issuerAgain
	if !soon {
		s.last = now
	}
	s.mu.Unlock()
	if soon {
		return nil, errors.New("it was asked for its keys a moment ago")
	}
	if s.next == nil {
		return http.DefaultTransport.RoundTrip(r)
	}
	return s.next.RoundTrip(r)
}

// unreachable reports whether keys could not be fetched.
func unreachable(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "fetching keys ")
}
