package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/cli"
)

// signer signs certificates, into files of a folder.
type signer struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newSigner(t *testing.T, dir string) *signer {
	s := &signer{t: t, dir: dir}
	s.cert, s.key = s.sign("ca", x509.Certificate{Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return s
}

// sign makes NAME.crt and NAME.key; the first signs itself.
func (s *signer) sign(name string, c x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(s.t, err)
	c.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<60))
	must(s.t, err)
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, by := s.cert, s.key
	if parent == nil {
		parent, by = &c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, &c, parent, key.Public(), by)
	must(s.t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	must(s.t, err)
	for file, block := range map[string]*pem.Block{".key": {Type: "PRIVATE KEY", Bytes: pkcs8}, ".crt": {Type: "CERTIFICATE", Bytes: der}} {
		must(s.t, os.WriteFile(s.file(name+".new"), pem.EncodeToMemory(block), 0o600))
		must(s.t, os.Rename(s.file(name+".new"), s.file(name+file)))
	}
	cert, err := x509.ParseCertificate(der)
	must(s.t, err)
	return cert, key
}

func (s *signer) file(name string) string { return filepath.Join(s.dir, name) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newIssuer is an OIDC issuer on this machine; sign makes a token of claims.
func newIssuer(t *testing.T) (url string, sign func(claims map[string]any) string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	var srv *httptest.Server
	srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/keys" {
			json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "1", Algorithm: "ES256", Use: "sig"}}}) //nolint:errcheck // the caller sees it
			return
		}
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q,"authorization_endpoint":"x","token_endpoint":"x","id_token_signing_alg_values_supported":["ES256"]}`, srv.URL, srv.URL+"/keys")
	}))
	t.Cleanup(srv.Close)
	by, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "1"}}, nil)
	must(t, err)
	return srv.URL, func(claims map[string]any) string {
		all := map[string]any{"iss": srv.URL, "aud": "gpupool", "sub": "ann-17", "exp": time.Now().Add(time.Hour).Unix()}
		maps.Copy(all, claims)
		text, err := jwt.Signed(by).Claims(all).Serialize()
		must(t, err)
		return text
	}
}

// cmdline runs the real binary as whoever holds a token, and returns what it printed.
func (s *testServer) cmdline(stdin string, env []string, args ...string) (string, error) {
	cmd := exec.Command(binary(s.t), args...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = append(append(os.Environ(), "GPUPOOL_DATA="+s.data, "HOME="+s.data), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s *testServer) good(stdin string, env []string, args ...string) string {
	s.t.Helper()
	out, err := s.cmdline(stdin, env, args...)
	if err != nil {
		s.t.Fatalf("gpupool %s: %s\n%s\nthe server said:\n%s", strings.Join(args, " "), err, out, s.log.String())
	}
	return out
}

// ended waits for a task's end.
func (s *testServer) ended(id string) (x apitype.Task) {
	s.t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		must(s.t, json.Unmarshal([]byte(s.good("", nil, "get", id, "-o", "json")), &x))
		if x.Ended != nil {
			return x
		}
	}
	s.t.Fatalf("task %s does not end: %+v", id, x)
	return x
}

// secure starts a server with TLS, client certificates and an issuer.
func secure(t *testing.T) (s *testServer, ca *signer, sign func(map[string]any) string) {
	dir := t.TempDir()
	ca = newSigner(t, dir)
	ca.sign("server", x509.Certificate{Subject: pkix.Name{CommonName: "gpupool"}, DNSNames: []string{"gpupool.example.org"}})
	issuer, sign := newIssuer(t)
	config := filepath.Join(dir, "gpupool.yaml")
	must(t, os.WriteFile(config, fmt.Appendf(nil, `server:
  tls: {cert: %[1]s/server.crt, key: %[1]s/server.key, client_ca: %[1]s/ca.crt}
auth:
  oidc: {issuer: %[2]s, operators: [gpu-ops]}
  certificates: {tenant_from: cn, viewers: ["ou=boards"]}
tasks:
  dirs: [%[1]s/allowed]
`, dir, issuer), 0o600))
	must(t, os.Mkdir(filepath.Join(dir, "allowed"), 0o700))
	s = &testServer{t: t, data: filepath.Join(dir, "data"), flags: []string{"--fake", "1x2xH100-80GB", "--config", config}}
	s.start()
	t.Cleanup(func() {
		s.end(syscall.SIGKILL)
		for _, p := range processes(s.data) {
			var pid int
			if _, err := fmt.Sscan(p, &pid); err == nil {
				syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck // gone already, then
			}
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s.url(ctx)
	s.good("", nil, "tenants", "create", "ann")
	return s, ca, sign
}

// TestSecureServer: the command line finds a server with TLS by its data folder, and comes
// in by a token, an OIDC token and a client certificate; a new certificate is served
// without a restart; nothing crosses without TLS.
func TestSecureServer(t *testing.T) {
	s, ca, sign := secure(t)
	if out := s.good("", nil, "tokens", "list"); !strings.Contains(out, "no token has a name yet") {
		t.Errorf("the admin token over TLS: %s", out)
	}
	for who, claims := range map[string]map[string]any{"tenant ann": {"gpupool_tenant": "ann"}, "an operator": {"groups": []string{"gpu-ops"}}} {
		token := "GPUPOOL_TOKEN=" + sign(claims)
		s.good("", []string{token}, "ps")
		if out, err := s.cmdline("", []string{token}, "tokens", "list"); err == nil || !strings.Contains(out, who) {
			t.Errorf("%s by OIDC lists tokens: %s", who, out)
		}
	}
	if out, err := s.cmdline("", []string{"GPUPOOL_TOKEN=" + sign(map[string]any{"gpupool_tenant": "nobody"})}, "ps"); err == nil || !strings.Contains(out, "no such tenant") {
		t.Errorf("a tenant that is not there: %s", out)
	}
	if out, err := s.cmdline("", []string{"GPUPOOL_TOKEN=" + sign(map[string]any{"gpupool_tenant": "ann", "aud": "other"})}, "ps"); err == nil || !strings.Contains(out, "audience") {
		t.Errorf("a token for another: %s", out)
	}
	for name, c := range map[string]pkix.Name{"ann": {CommonName: "ann"}, "boards": {CommonName: "", OrganizationalUnit: []string{"boards"}}} {
		ca.sign(name, x509.Certificate{Subject: c, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		env := []string{"GPUPOOL_CERT=" + ca.file(name+".crt"), "GPUPOOL_KEY=" + ca.file(name+".key")}
		s.good("", env, "ps")
		if out, err := s.cmdline("", env, "gpus", "cordon", "0"); err == nil || !strings.Contains(out, "only an operator") {
			t.Errorf("the certificate of %s may cordon a GPU: %s", name, out)
		}
	}
	stranger := newSigner(t, t.TempDir())
	stranger.sign("ann", x509.Certificate{Subject: pkix.Name{CommonName: "ann"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if out, err := s.cmdline("", []string{"GPUPOOL_CERT=" + stranger.file("ann.crt"), "GPUPOOL_KEY=" + stranger.file("ann.key")}, "ps"); err == nil {
		t.Errorf("a certificate that a stranger signed counts: %s", out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	address := strings.TrimPrefix(s.url(ctx), "https://")
	if resp, err := http.Get("http://" + address + "/healthz"); err == nil {
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			t.Error("it answers without TLS")
		}
	}
	serial := func() string {
		c, err := tls.Dial("tcp", address, &tls.Config{RootCAs: pool(ca), ServerName: "gpupool.example.org"})
		must(t, err)
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	before := serial()
	ca.sign("server", x509.Certificate{Subject: pkix.Name{CommonName: "gpupool"}, DNSNames: []string{"gpupool.example.org"}})
	for end := time.Now().Add(30 * time.Second); serial() == before; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the new certificate is never served")
		}
	}
	s.good("", nil, "ps")
	if out, err := s.cmdline("", nil, "doctor", "-o", "json"); !strings.Contains(out, "https://") || strings.Contains(out, "x509") {
		t.Errorf("doctor does not reach a server with TLS: %v\n%s", err, out)
	}
}

func pool(s *signer) *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(s.cert)
	return p
}

// TestSecretsOnTheMachine: the value of a secret reaches the program's environment, and is
// in no command line, log, or file of the data folder but its own.
func TestSecretsOnTheMachine(t *testing.T) {
	s, ca, _ := secure(t)
	const value = "correct-horse-battery-staple"
	s.good(value+"\n", nil, "secrets", "set", "--tenant", "ann", "KEY")
	if out := s.good("", nil, "secrets", "list", "--tenant", "ann"); strings.TrimSpace(out) != "KEY" {
		t.Errorf("listed: %s", out)
	}
	// It waits for the file, so that it is there to be looked at, and writes what it was given backwards.
	s.good("", nil, "submit", "--tenant", "ann", "--secret", "KEY", "--gpus", "1/7", "--dir", ca.file("allowed"), "--", "sh", "-c", `printf %s "$KEY" | rev; echo; while ! test -e go; do sleep 0.05; done`)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if out, _ := s.cmdline("", nil, "logs", "1"); strings.Contains(out, "elpats-yrettab") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the task never saw the secret: %s", s.good("", nil, "explain", "1"))
		}
	}
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	for _, p := range all {
		if b, err := os.ReadFile(p); err == nil && bytes.Contains(b, []byte(value)) {
			t.Errorf("ps shows it: %q", b)
		}
	}
	must(t, os.WriteFile(filepath.Join(ca.file("allowed"), "go"), nil, 0o600))
	if x := s.ended("1"); x.State != "succeeded" {
		t.Errorf("task 1 %s: %s", x.State, x.Reason.Message)
	}
	token := strings.TrimSpace(s.good("", nil, "tokens", "create", "--tenant", "ann", "-o", "json"))
	var made apitype.NewToken
	must(t, json.Unmarshal([]byte(token), &made))
	s.good("", []string{"GPUPOOL_TOKEN=" + made.Token}, "ps")
	found := map[string]bool{}
	must(t, filepath.WalkDir(s.data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(value)) || bytes.Contains(b, []byte(made.Token)) {
			rel, _ := filepath.Rel(s.data, path)
			found[rel] = true
		}
		if info, err := d.Info(); err == nil && info.Mode().Perm()&0o077 != 0 {
			if rel, _ := filepath.Rel(s.data, path); strings.HasPrefix(rel, "secrets") || strings.HasPrefix(rel, "audit") || strings.HasSuffix(rel, ".token") {
				t.Errorf("others may read %s: %s", rel, info.Mode())
			}
		}
		return err
	}))
	if !found["secrets/ann/KEY"] || len(found) != 1 {
		t.Errorf("the value, or a token, is in %v, want it in secrets/ann/KEY alone", found)
	}
	if out := s.log.String() + s.good("", nil, "audit", "export"); strings.Contains(out, value) || strings.Contains(out, made.Token) {
		t.Errorf("it is in the log, the audit log or the events: %s", out)
	}
	// A folder that only looks as if it were allowed: the runner follows the link.
	must(t, os.Symlink("/", ca.file("allowed/out")))
	s.cmdline("", nil, "submit", "--tenant", "ann", "--gpus", "1/7", "--dir", ca.file("allowed/out"), "--", "true") //nolint:errcheck // refused or not: it must not run
	if x := s.ended("2"); x.State != "failed" {
		t.Errorf("a task ran outside of the folders that are allowed: it %s", x.State)
	}
	if out := s.good("", nil, "logs", "2"); !strings.Contains(out, "not one that tasks may have here") {
		t.Errorf("it failed for another reason: %s", out)
	}
}

// TestAdminTokenRotates: the one in the data folder is written anew, the one before counts
// for as long as said, and after a restart it is the same.
func TestAdminTokenRotates(t *testing.T) {
	s, _, _ := secure(t)
	read := func() string {
		b, err := os.ReadFile(filepath.Join(s.data, cli.AdminTokenFile))
		must(t, err)
		return strings.TrimSpace(string(b))
	}
	first := read()
	s.good("", nil, "tokens", "rotate", "admin", "--overlap", "1h")
	second := read()
	s.good("", nil, "tokens", "list")
	s.good("", []string{"GPUPOOL_TOKEN=" + first}, "tokens", "list")
	s.end(syscall.SIGKILL)
	must(t, os.Remove(filepath.Join(s.data, cli.ServerFile)))
	s.start()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s.url(ctx)
	s.good("", []string{"GPUPOOL_TOKEN=" + first}, "tokens", "list")
	s.good("", nil, "tokens", "rotate", "admin", "--overlap", "0s")
	for _, old := range []string{first, second} {
		if out, err := s.cmdline("", []string{"GPUPOOL_TOKEN=" + old}, "ps"); err == nil {
			t.Errorf("a token that was rotated out counts: %s", out)
		}
	}
	s.good("", nil, "ps")
	if out := s.good("", nil, "audit", "export"); !strings.Contains(out, `"operation":"rotate-token"`) || strings.Contains(out, read()) {
		t.Errorf("the audit log: %s", out)
	}
}

// TestNotInTheOpen: without TLS other machines are served only where that is said.
func TestNotInTheOpen(t *testing.T) {
	data := t.TempDir()
	s := &testServer{t: t, data: data, shape: "1x1xH100-80GB", addr: "0.0.0.0:0"}
	if out, err := s.cmdline("", nil, "serve", "--fake", s.shape, "--listen", s.addr); err == nil || !strings.Contains(out, "--insecure") {
		t.Errorf("it serves in the open: %v\n%s", err, out)
	}
	s.flags = []string{"--fake", s.shape, "--insecure"}
	s.start()
	defer s.end(syscall.SIGKILL)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s.url(ctx)
}

// TestSlowClients: who sends its headers, or its body, a byte now and then does not hold a
// connection for ever.
func TestSlowClients(t *testing.T) {
	for what, send := range map[string]string{"headers": "GET / HTTP/1.1\r\nHost: x\r\n", "a body": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, end := net.Pipe()
				defer end.Close()
				l := &oneConn{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
				l.conns <- server
				h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					http.Error(w, fmt.Sprint(r.Body.Read(make([]byte, 100))), 400)
				})
				srv := newHTTPServer(t.Context(), h, slog.New(slog.DiscardHandler))
				go srv.Serve(l) //nolint:errcheck // ends when it is closed
				defer srv.Close()
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					end.Write([]byte(send)) //nolint:errcheck // it may be cut
					for {
						if time.Sleep(5 * time.Second); what == "headers" {
							if _, err := end.Write([]byte("X")); err != nil {
								return
							}
						} else {
							return
						}
					}
				}()
				began := time.Now()
				buf := make([]byte, 4096)
				for {
					if _, err := end.Read(buf); err != nil {
						break
					}
				}
				if took := time.Since(began); took < 5*time.Second || took > time.Minute {
					t.Errorf("it was cut after %s", took)
				}
				<-sent // a bubble ends only when everything in it has
			})
		})
	}
}

// oneConn listens for connections that are handed to it.
type oneConn struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return nil
}

func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }
