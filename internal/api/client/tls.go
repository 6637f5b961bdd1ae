package client

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
)

// TLS is what a client needs beside what its system knows. CA is who signs the server's
// certificate; Cert and Key are shown to the server.
type TLS struct {
	CA, Cert, Key string // files; "" = none
	Name          string // that the server's certificate must have; "" = that of its address
}

// Config loads the files.
func (c TLS) Config() (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.Name}
	if c.CA != "" {
		b, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("the CA's certificate cannot be read: %w", err)
		}
		if out.RootCAs, err = x509.SystemCertPool(); err != nil {
			out.RootCAs = x509.NewCertPool()
		}
		if !out.RootCAs.AppendCertsFromPEM(b) {
			return nil, fmt.Errorf("%s holds no certificate: expected PEM", c.CA)
		}
	}
	if c.Cert != "" || c.Key != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, fmt.Errorf("the client's certificate %q with the key %q cannot be used: %w", c.Cert, c.Key, err)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

// WithTLS makes a client use a configuration of TLS. It replaces nothing else of the
// transport, and is of no use beside WithHTTPClient.
func WithTLS(config *tls.Config) Option {
	return func(c *Client) {
		if t, ours := c.http.Transport.(*http.Transport); ours {
			t.TLSClientConfig = config.Clone() // a transport changes it
		}
		c.certified = len(config.Certificates) > 0
	}
}
