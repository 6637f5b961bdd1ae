package auth_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/auth"
	"github.com/gpupool/gpupool/internal/work"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t}
	a.cert, a.key = a.make(&x509.Certificate{Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// make signs a certificate; the first one signs itself.
func (a *authority) make(c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<60))
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber = serial
	if c.NotAfter.IsZero() {
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

// write puts a certificate and its key into files.
func (a *authority) write(certFile, keyFile string, c *x509.Certificate) {
	a.t.Helper()
	cert, key := a.make(c)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	writePEM(a.t, keyFile, "PRIVATE KEY", der)
	writePEM(a.t, certFile, "CERTIFICATE", cert.Raw)
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// shake makes a handshake with what serves, and returns the name of the certificate.
func shake(t *testing.T, server *auth.TLS, client *tls.Config) (string, error) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			defer conn.Close()
			s := tls.Server(conn, server.Config())
			if err = s.Handshake(); err == nil {
				_, err = s.Write([]byte("x")) // with TLS 1.3 a client hears of its certificate only when it reads
			}
		}
		served <- err
	}()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	conn := tls.Client(c, client)
	if err = conn.Handshake(); err == nil {
		_, err = io.ReadFull(conn, make([]byte, 1))
	}
	if e := <-served; err == nil {
		err = e
	}
	name := ""
	if certs := conn.ConnectionState().PeerCertificates; len(certs) > 0 {
		name = certs[0].Subject.CommonName
	}
	return name, err
}

// TestTLSReload: new files are served without a restart, and bad ones change nothing.
func TestTLSReload(t *testing.T) {
	ca, dir := newAuthority(t), t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	of := func(name string) *x509.Certificate {
		return &x509.Certificate{Subject: pkix.Name{CommonName: name}, DNSNames: []string{"gpupool.example.org"}}
	}
	if _, err := auth.NewTLS(auth.TLSOptions{Cert: cert, Key: key}); err == nil {
		t.Error("files that are not there were taken")
	}
	ca.write(cert, key, of("one"))
	var log bytes.Buffer
	s, err := auth.NewTLS(auth.TLSOptions{Cert: cert, Key: key, Min: tls.VersionTLS12, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	client := &tls.Config{RootCAs: ca.pool(), ServerName: "gpupool.example.org", MinVersion: tls.VersionTLS12}
	want := func(name string) {
		t.Helper()
		if got, err := shake(t, s, client); err != nil || got != name {
			t.Errorf("got certificate %q, %v, want %q", got, err, name)
		}
	}
	want("one")
	if s.Name() != "gpupool.example.org" {
		t.Errorf("it is said to be for %q", s.Name())
	}
	ca.write(cert, key, of("two"))
	want("two")
	if err := os.WriteFile(cert, []byte("half a fi"), 0o600); err != nil {
		t.Fatal(err)
	}
	want("two")
	want("two")
	if n := strings.Count(log.String(), "level=WARN"); n != 1 {
		t.Errorf("it was warned %d times, want once: %s", n, log.String())
	}
	ca.write(cert, filepath.Join(dir, "elsewhere.pem"), of("three")) // a key that does not fit
	want("two")
	old := of("four")
	old.NotBefore, old.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	ca.write(cert, key, old)
	want("two")
	ca.write(cert, key, of("five"))
	want("five")
	if _, err := shake(t, s, &tls.Config{RootCAs: ca.pool(), ServerName: "gpupool.example.org", MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}); err == nil {
		t.Error("TLS 1.1 was taken")
	}
}

// TestTLSClients: a certificate of a stranger is refused, none is fine, and who is no
// longer signed for is out with the next file.
func TestTLSClients(t *testing.T) {
	ca, other, dir := newAuthority(t), newAuthority(t), t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	ca.write(file("cert"), file("key"), &x509.Certificate{DNSNames: []string{"x"}})
	ca.write(file("ann"), file("ann.key"), &x509.Certificate{Subject: pkix.Name{CommonName: "ann"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	other.write(file("eve"), file("eve.key"), &x509.Certificate{Subject: pkix.Name{CommonName: "ann"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	late := &x509.Certificate{Subject: pkix.Name{CommonName: "ann"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}
	ca.write(file("late"), file("late.key"), late)
	writePEM(t, file("ca"), "CERTIFICATE", ca.cert.Raw)
	s, err := auth.NewTLS(auth.TLSOptions{Cert: file("cert"), Key: file("key"), ClientCA: file("ca"), Min: tls.VersionTLS12, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	try := func(who string) error {
		client := &tls.Config{RootCAs: ca.pool(), ServerName: "x", MinVersion: tls.VersionTLS12}
		if who != "" {
			pair, err := tls.LoadX509KeyPair(file(who), file(who+".key"))
			if err != nil {
				t.Fatal(err)
			}
			client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		_, err := shake(t, s, client)
		return err
	}
	for who, good := range map[string]bool{"": true, "ann": true, "eve": false, "late": false} {
		if err := try(who); (err == nil) != good {
			t.Errorf("%q: got %v, want it let in: %v", who, err, good)
		}
	}
	writePEM(t, file("ca"), "CERTIFICATE", other.cert.Raw)
	for who, good := range map[string]bool{"ann": false, "eve": true} {
		if err := try(who); (err == nil) != good {
			t.Errorf("%q after the file has changed: got %v, want it let in: %v", who, err, good)
		}
	}
}

// TestCertificates: what the fields of a client certificate mean.
func TestCertificates(t *testing.T) {
	ca := newAuthority(t)
	c := auth.Certificates{TenantFrom: "ou", Groups: auth.Groups{Admins: []string{"cn=root"}, Operators: []string{"san=ops.example.org"}, Viewers: []string{"ou=guests"}}}
	client := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	for _, x := range []struct {
		cert x509.Certificate
		role work.Role
		of   string
	}{
		{x509.Certificate{Subject: pkix.Name{CommonName: "root"}, ExtKeyUsage: client}, work.RoleAdmin, ""},
		{x509.Certificate{Subject: pkix.Name{CommonName: "x"}, DNSNames: []string{"ops.example.org"}, ExtKeyUsage: client}, work.RoleOperator, ""},
		{x509.Certificate{Subject: pkix.Name{CommonName: "x", OrganizationalUnit: []string{"alice"}}, ExtKeyUsage: client}, work.RoleTenant, "alice"},
		{x509.Certificate{Subject: pkix.Name{CommonName: "x", OrganizationalUnit: []string{"guests"}}, ExtKeyUsage: client}, work.RoleTenant, "guests"},
		{x509.Certificate{Subject: pkix.Name{CommonName: "x"}, ExtKeyUsage: client}, "", ""},
		{x509.Certificate{Subject: pkix.Name{CommonName: "root"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, "", ""}, // one of a server is none of a client
		{x509.Certificate{Subject: pkix.Name{CommonName: "root"}}, "", ""},
	} {
		cert, _ := ca.make(&x.cert)
		id, err := c.Identify(cert)
		if id.Role != x.role || id.Tenant != x.of || (err == nil) != (x.role != "") {
			t.Errorf("%s %v: got %+v, %v, want role %q of %q", cert.Subject, cert.DNSNames, id, err, x.role, x.of)
		}
		if err == nil && !id.Expires.Equal(cert.NotAfter) {
			t.Errorf("it counts until %s, the certificate until %s", id.Expires, cert.NotAfter)
		}
	}
}
