package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gpupool/gpupool/internal/api"
	"github.com/gpupool/gpupool/internal/audit"
	"github.com/gpupool/gpupool/internal/auth"
	"github.com/gpupool/gpupool/internal/cli"
	"github.com/gpupool/gpupool/internal/config"
	"github.com/gpupool/gpupool/internal/secrets"
	"github.com/gpupool/gpupool/internal/work"
)

// access is who may come in, and what is kept of it.
type access struct {
	admin *adminFile
	oidc  *auth.OIDC // nil: none
	certs auth.Certificates
	tls   *auth.TLS  // nil: none
	audit *audit.Log // nil: none

	secrets secrets.Store
	limits  api.Limits
	dirs    []string
}

// tlsLook is the least time between two looks whether the certificate's files have changed.
const tlsLook = time.Second

// newAccess reads everything that must be there before anyone is let in.
func newAccess(c config.Config, log *slog.Logger) (*access, error) {
	a := &access{
		secrets: secretStore(c), dirs: c.Tasks.Dirs,
		limits: api.Limits{Calls: c.Limits.Calls, Burst: c.Limits.Burst, AtOnce: c.Limits.AtOnce, Failed: c.Limits.Failed},
		certs:  auth.Certificates{TenantFrom: c.Auth.Certificates.Tenant, Groups: auth.Groups{Admins: c.Auth.Certificates.Admins, Operators: c.Auth.Certificates.Operators, Viewers: c.Auth.Certificates.Viewers}},
	}
	var err error
	if a.admin, err = openAdminFile(filepath.Join(c.Server.Data, cli.AdminTokenFile)); err != nil {
		return nil, err
	}
	if o := c.Auth.OIDC; o.Issuer != "" {
		a.oidc, err = auth.NewOIDC(auth.OIDCOptions{Issuer: o.Issuer, Audience: o.Audience, CA: o.CA, TenantClaim: o.Tenant, GroupsClaim: o.Groups, NameClaim: o.Name,
			Groups: auth.Groups{Admins: o.Admins, Operators: o.Operators, Viewers: o.Viewers}})
		if err != nil {
			return nil, err
		}
	}
	if t := c.Server.TLS; t.On() {
		least := map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}[t.Min]
		if a.tls, err = auth.NewTLS(auth.TLSOptions{Cert: t.Cert, Key: t.Key, ClientCA: t.ClientCA, Min: least, Log: log, Every: tlsLook}); err != nil {
			return nil, err
		}
	}
	if c.Audit.Keep {
		a.audit, err = audit.Open(filepath.Join(c.Server.Data, "audit"), audit.Options{MaxMiB: int(c.Audit.Size), Files: c.Audit.Files, Log: log})
	}
	return a, err
}

// secretStore is where values that tasks name are.
func secretStore(c config.Config) secrets.Store {
	return secrets.Store{Dir: filepath.Join(c.Server.Data, "secrets"), Credentials: os.Getenv("CREDENTIALS_DIRECTORY")}
}

// into wires it into the API.
func (a *access) into(c api.Config) api.Config {
	c.Admin, c.Limits, c.Audit, c.Secrets, c.Dirs = a.admin, a.limits, a.audit, a.secrets, a.dirs
	if a.oidc != nil {
		c.OIDC = a.oidc
	}
	if a.tls != nil {
		c.Certificate = a.certs.Identify
	}
	return c
}

// run keeps the audit log on the disk until ctx ends.
func (a *access) run(ctx context.Context) {
	if a.audit != nil {
		a.audit.Run(ctx)
	}
}

func (a *access) close() {
	if a.audit != nil {
		a.audit.Close() //nolint:errcheck // what was written is synced; nothing is left to do
	}
}

// mayServe refuses an address that other machines reach when what crosses the network
// would be readable, unless that is said to be wanted.
func (a *access) mayServe(addr net.Addr, insecure bool, log *slog.Logger) error {
	tcp, is := addr.(*net.TCPAddr)
	switch {
	case !is || tcp.IP.IsLoopback() || a.tls != nil:
		return nil
	case !insecure:
		return fmt.Errorf("%s can be reached from other machines, and without TLS tokens would cross the network readable: set server.tls.cert and server.tls.key, "+
			"or listen on 127.0.0.1 behind a proxy that ends TLS, or say --insecure (server.insecure) where the network is to be trusted", addr)
	}
	log.Warn("the API can be reached from other machines without TLS: tokens cross the network readable, unless a proxy in front ends TLS", "address", addr.String())
	return nil
}

// info is what clients on this machine need to find the server.
func (a *access) info(addr net.Addr, cert string) cli.ServerInfo {
	info := cli.ServerInfo{URL: urlOf(addr), PID: os.Getpid()}
	if a.tls != nil {
		info.URL = "https://" + strings.TrimPrefix(info.URL, "http://")
		info.Name = a.tls.Name()
		if abs, err := filepath.Abs(cert); err == nil {
			info.CA = abs // whoever can read the folder trusts what it serves
		}
	}
	return info
}

// adminFile is the admin token in the data folder, and for a while the one before, of
// which only the hash is kept. A file that someone writes anew counts at once.
type adminFile struct {
	path  string
	given bool // by systemd: the file does not count

	mu    sync.Mutex
	stamp time.Time // of the file as it was read last
	hash  string
	old   oldAdmin
}

// oldAdmin is the content of the file beside it.
type oldAdmin struct {
	Hash string    `json:"hash"`
	Ends time.Time `json:"ends"`
}

func openAdminFile(path string) (*adminFile, error) {
	token, err := keptToken(path, "admin", api.NewAdminToken)
	if err != nil {
		return nil, err
	}
	a := &adminFile{path: path, hash: api.HashToken(token)}
	if a.given = credential(filepath.Base(path)) != ""; a.given {
		return a, nil
	}
	if info, err := os.Stat(path); err == nil {
		a.stamp = info.ModTime()
	}
	if err := a.readOld(); err != nil {
		return nil, err
	}
	return a, nil
}

// readOld reads which token was rotated out.
func (a *adminFile) readOld() error {
	b, err := os.ReadFile(a.oldPath())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("the admin token before the last rotation cannot be read: %w", err)
	}
	var old oldAdmin
	if err := json.Unmarshal(b, &old); err != nil {
		return fmt.Errorf("%s is damaged: remove it; only a token that was rotated out is lost: %w", a.oldPath(), err)
	}
	a.old = old
	return nil
}

func (a *adminFile) oldPath() string { return a.path + ".old" }

// Hashes implements api.AdminFile.
func (a *adminFile) Hashes(now time.Time) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.given {
		return []string{a.hash}
	}
	if info, err := os.Stat(a.path); err == nil && !info.ModTime().Equal(a.stamp) {
		if b, err := os.ReadFile(a.path); err == nil && strings.TrimSpace(string(b)) != "" {
			a.hash, a.stamp = api.HashToken(strings.TrimSpace(string(b))), info.ModTime()
			_ = a.readOld() // another server of this folder may have rotated it; else nothing but the new one counts
		}
	}
	if a.old.Hash != "" && now.Before(a.old.Ends) {
		return []string{a.hash, a.old.Hash}
	}
	return []string{a.hash}
}

// Rotate implements api.AdminFile. The old one is put down first: a crash between leaves
// the file as it was.
func (a *adminFile) Rotate(oldEnds time.Time) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.given {
		return "", work.Errorf(work.CodeConflict, "the admin token is a credential of systemd (LoadCredential=%s): write another into its file and restart the server", filepath.Base(a.path))
	}
	old := oldAdmin{Hash: a.hash, Ends: oldEnds}
	b, err := json.Marshal(old)
	if err == nil {
		err = writeFile(a.oldPath(), append(b, '\n'))
	}
	token := api.NewAdminToken()
	if err == nil {
		err = writeFile(a.path, []byte(token+"\n"))
	}
	if err != nil {
		return "", fmt.Errorf("the admin token was not rotated: %w", err)
	}
	a.hash, a.old = api.HashToken(token), old
	if info, err := os.Stat(a.path); err == nil {
		a.stamp = info.ModTime()
	}
	return token, nil
}
