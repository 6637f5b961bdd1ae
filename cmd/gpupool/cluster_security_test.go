package main

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/journal/redis/redistest"
)

// TestSecureCluster: servers that share a journal trust each other by the CA beside their
// own certificate; a write by token is passed on, one by client certificate is sent to the
// leader; a token that is revoked at one server is refused at all, and whoever rotates the
// admin token at one comes in at all. Their audit log is one.
func TestSecureCluster(t *testing.T) {
	r := redistest.Start(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	ca := newSigner(t, dir)
	ca.sign("server", x509.Certificate{Subject: pkix.Name{CommonName: "gpupool"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	chain, err := os.ReadFile(ca.file("server.crt"))
	must(t, err)
	root, err := os.ReadFile(ca.file("ca.crt"))
	must(t, err)
	must(t, os.WriteFile(ca.file("server.crt"), append(chain, root...), 0o600))
	config := ca.file("gpupool.yaml")
	must(t, os.WriteFile(config, fmt.Appendf(nil, "server:\n  tls: {cert: %[1]s/server.crt, key: %[1]s/server.key, client_ca: %[1]s/ca.crt}\nauth:\n  certificates: {tenant_from: cn}\n", dir), 0o600))
	data := filepath.Join(dir, "data")
	t.Cleanup(func() { killAll(data) })
	trust, err := client.TLS{CA: ca.file("ca.crt")}.Config()
	must(t, err)
	var all []*member
	for range 2 {
		m := newMember(t, data, r.URL(), "--config", config)
		m.url = "https" + strings.TrimPrefix(m.url, "http")
		m.http = &http.Client{Transport: &http.Transport{TLSClientConfig: trust.Clone()}}
		m.start()
		all = append(all, m)
	}
	leader := leaderOf(ctx, t, all)
	follower := others(all, leader)[0]
	as := func(m *member, token string) *client.Client {
		c, err := client.New(m.url, token, client.WithTLS(trust))
		must(t, err)
		return c
	}
	admin, err := os.ReadFile(filepath.Join(data, "admin.token"))
	must(t, err)
	boss := as(follower, strings.TrimSpace(string(admin)))
	made, err := boss.MakeToken(ctx, apitype.TokenSpec{Name: "ann's laptop", Role: "tenant", Tenant: "default"})
	if err != nil {
		t.Fatalf("a write through a follower with TLS: %v", err)
	}
	spec := apitype.TaskSpec{GPUs: "1/7", Command: []string{"true"}}
	for _, m := range all {
		if _, err := as(m, made.Token).Submit(ctx, spec, ""); err != nil {
			t.Errorf("a token that was made through a follower, at %s: %v", m.url, err)
		}
	}

	ca.sign("default", x509.Certificate{Subject: pkix.Name{CommonName: "default"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	shown, err := client.TLS{CA: ca.file("ca.crt"), Cert: ca.file("default.crt"), Key: ca.file("default.key")}.Config()
	must(t, err)
	certified, err := client.New(follower.url, "", client.WithTLS(shown))
	must(t, err)
	if task, err := certified.Submit(ctx, spec, ""); err != nil || task.Tenant != "default" {
		t.Errorf("a write by certificate through a follower: %+v, %v", task, err)
	}

	must(t, as(leader, strings.TrimSpace(string(admin))).RevokeToken(ctx, made.ID))
	for refused := false; !refused; time.Sleep(10 * time.Millisecond) {
		_, err := as(follower, made.Token).Whoami(ctx)
		refused = err != nil
		if ctx.Err() != nil {
			t.Fatal("a follower lets a revoked token in")
		}
	}

	rotated, err := boss.RotateToken(ctx, "admin", apitype.Rotation{Overlap: "1h"})
	must(t, err)
	for _, m := range all {
		for _, token := range []string{rotated.Token, strings.TrimSpace(string(admin))} {
			if _, err := as(m, token).Tokens(ctx); err != nil {
				t.Errorf("after the rotation, at %s: %v", m.url, err)
			}
		}
	}

	leader.end(syscall.SIGKILL)
	leaderOf(ctx, t, []*member{follower})
	entries := 0
	for e, err := range as(follower, rotated.Token).Audit(ctx, client.AuditQuery{}) {
		must(t, err)
		if e.Operation == "submit-task" && e.Status < 300 {
			entries++
		}
	}
	if entries != 3 {
		t.Errorf("the audit log has %d submissions, want 3", entries)
	}
}
