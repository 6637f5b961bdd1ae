package auth

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// TLSOptions are the files of a server's certificate.
type TLSOptions struct {
	Cert, Key string // PEM; Cert may hold the chain too
	ClientCA  string // PEM: who signs client certificates; "" = none is asked for
	Min       uint16 // lowest version of TLS
	Log       *slog.Logger
	Every     time.Duration // between two looks whether files have changed, at the least; 0 = at every handshake
}

// TLS serves a certificate and loads it again when its files change. Files that cannot be
// used are warned of, and the last good ones stay.
type TLS struct {
	o TLSOptions

	mu     sync.Mutex
	config *tls.Config
	stamp  string // of the files as they were read last
	looked time.Time
}

// NewTLS loads the files for the first time, when they must be good.
func NewTLS(o TLSOptions) (*TLS, error) {
	t := &TLS{o: o}
	t.stamp = t.look()
	config, err := t.load()
	if err != nil {
		return nil, err
	}
	t.config, t.looked = config, time.Now()
	return t, nil
}

// Config is for a server; each handshake gets what counts then.
func (t *TLS) Config() *tls.Config {
	return &tls.Config{MinVersion: t.o.Min, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return t.current(), nil },
		// Not used, but net/http wants to see where a certificate comes from.
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &t.current().Certificates[0], nil }}
}

// Name is what the certificate that is served now is made for, so that a client on this
// machine knows what to expect: the first name, else the first address.
func (t *TLS) Name() string {
	leaf := t.current().Certificates[0].Leaf
	switch {
	case len(leaf.DNSNames) > 0:
		return leaf.DNSNames[0]
	case len(leaf.IPAddresses) > 0:
		return leaf.IPAddresses[0].String()
	}
	return leaf.Subject.CommonName
}

func (t *TLS) current() *tls.Config {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); now.Sub(t.looked) >= t.o.Every {
		t.looked = now
		if stamp := t.look(); stamp != t.stamp {
			t.stamp = stamp
			config, err := t.load()
			if err != nil {
				t.o.Log.Warn("the certificate's files have changed and cannot be used: the last good ones go on to be served", "err", err)
			} else {
				t.config = config
				t.o.Log.Info("the certificate's files have changed and are served now", "expires", config.Certificates[0].Leaf.NotAfter)
			}
		}
	}
	return t.config
}

// look says what the files are like; links are followed, as those of a secret in
// Kubernetes change by them.
func (t *TLS) look() string {
	var stamp strings.Builder
	for _, f := range []string{t.o.Cert, t.o.Key, t.o.ClientCA} {
		if f == "" {
			continue
		}
		info, err := os.Stat(f)
		if err != nil {
			stamp.WriteString("|" + err.Error())
			continue
		}
		fmt.Fprintf(&stamp, "|%d %d %v", info.ModTime().UnixNano(), info.Size(), inode(info))
	}
	return stamp.String()
}

func (t *TLS) load() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(t.o.Cert, t.o.Key)
	if err != nil {
		return nil, fmt.Errorf("the certificate %s with the key %s cannot be used: %w", t.o.Cert, t.o.Key, err)
	}
	if pair.Leaf == nil {
		return nil, errors.New("the certificate cannot be read")
	}
	if time.Now().After(pair.Leaf.NotAfter) {
		return nil, fmt.Errorf("the certificate %s expired at %s: renew it", t.o.Cert, pair.Leaf.NotAfter.Format(time.RFC3339))
	}
	config := &tls.Config{MinVersion: t.o.Min, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}
	if t.o.ClientCA != "" {
		if config.ClientCAs, err = certPool(t.o.ClientCA); err != nil {
			return nil, fmt.Errorf("server.tls.client_ca: %w", err)
		}
		// One who shows none still has a token; one that is shown must be good.
		config.ClientAuth = tls.VerifyClientCertIfGiven
		// A ticket would let a client whose certificate has been withdrawn from the file go on.
		config.SessionTicketsDisabled = true
	}
	return config, nil
}
