package redis_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/journal"
	"github.com/gpupool/gpupool/internal/journal/redis"
	"github.com/gpupool/gpupool/internal/journal/redis/redistest"
)

// The suite on a Cluster, of one node with all slots: keys must share one.
func TestOnCluster(t *testing.T) {
	s := redistest.Start(t, "cluster-enabled", "yes", "appendfsync", "everysec")
	s.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	for !strings.Contains(s.Do("CLUSTER", "INFO"), "cluster_state:ok") {
		time.Sleep(10 * time.Millisecond)
	}
	conformance(t, strings.Replace(s.URL(), "redis:", "redis+cluster:", 1), nil)
}

// The suite over a socket, with replicas that are waited for.
func TestOnSocketWithReplica(t *testing.T) {
	s := redistest.Start(t, "appendfsync", "everysec")
	r := redistest.Start(t, "appendfsync", "everysec", "replicaof", fmt.Sprintf("127.0.0.1 %d", s.Port))
	linked(r)
	conformance(t, "unix://"+s.Sock, func(o *redis.Options) { o.MinReplicas = 1 })
}

func linked(replica *redistest.Server) {
	for !strings.Contains(replica.Do("INFO", "replication"), "master_link_status:up") {
		time.Sleep(10 * time.Millisecond)
	}
}

// TLS, and a user who may do no more than docs/high-availability.md says.
func TestOnTLSWithUser(t *testing.T) {
	dir := t.TempDir()
	ca, cert, key := certificate(t, dir)
	s := redistest.Start(t, "tls-port", fmt.Sprint(redistest.FreePort(t)), "tls-cert-file", cert, "tls-key-file", key, "tls-ca-cert-file", ca,
		"tls-auth-clients", "yes", "appendfsync", "everysec", "user", "pool on >secret ~gpupool:{*}:* "+leastRights(t))
	port := strings.Fields(s.Do("CONFIG", "GET", "tls-port"))[1]
	password := filepath.Join(dir, "password")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprintf("rediss://pool@127.0.0.1:%s?ca=%s&cert=%s&key=%s", port, ca, cert, key)
	o := redis.Options{URL: url, PasswordFile: password}
	j := lead(t, o)
	if _, err := j.Append(ctx, [][]byte{[]byte("one")}); err != nil {
		t.Fatal(err)
	}
	if err := j.Snapshot(ctx, 1, []byte("state")); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Risks(ctx); err != nil {
		t.Fatal(err)
	}
	for what, bad := range map[string]redis.Options{
		"no password":                {URL: url},
		"unknown authority":          {URL: strings.Replace(url, "ca="+ca, "", 1), PasswordFile: password},
		"no certificate of our own":  {URL: fmt.Sprintf("rediss://pool@127.0.0.1:%s?ca=%s", port, ca), PasswordFile: password},
		"no TLS":                     {URL: fmt.Sprintf("redis://pool@127.0.0.1:%s", port), PasswordFile: password},
		"a certificate, and no file": {URL: strings.Replace(url, ca, ca+".no", 1), PasswordFile: password},
	} {
		bound, cancel := context.WithTimeout(ctx, time.Second)
		j, err := redis.Open(bound, bad)
		cancel()
		if err == nil {
			j.Close() //nolint:errcheck // it should not have opened
			t.Errorf("%s: the journal opened", what)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the password is in %q", what, err)
		}
	}
}

// leastRights are the commands that the page about high availability gives to the user.
func leastRights(t *testing.T) string {
	b, err := os.ReadFile("../../../docs/high-availability.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(b), "~gpupool:{*}:* ")
	line, _, _ := strings.Cut(after, "\n")
	if !ok || line == "" {
		t.Fatal("docs/high-availability.md does not say what the user needs")
	}
	return strings.TrimSpace(line)
}

func certificate(t *testing.T, dir string) (ca, cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	x := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redis"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, x, x, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "EC PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, cert, key
}

// A primary that dies is replaced by Sentinel; nothing acknowledged is lost, and the
// journal goes on by itself.
func TestSentinelFailover(t *testing.T) {
	redistest.Need(t, "redis-sentinel")
	servers := []*redistest.Server{redistest.Start(t)}
	for range 2 {
		s := redistest.Start(t, "replicaof", fmt.Sprintf("127.0.0.1 %d", servers[0].Port))
		linked(s)
		servers = append(servers, s)
	}
	var hosts []string
	for range 3 {
		hosts = append(hosts, sentinel(t, servers[0].Port))
	}
	for _, h := range hosts { // else they cannot agree
		_, port, _ := strings.Cut(h, ":")
		for !strings.Contains(cli(port, "sentinel", "master", "primary"), "num-other-sentinels\n2\n") {
			time.Sleep(50 * time.Millisecond)
		}
	}
	url := "redis+sentinel://" + strings.Join(hosts, ",") + "/primary"
	j := lead(t, redis.Options{URL: url, MinReplicas: 1, Lease: 2 * time.Second})
	var want []string
	write := func(rec string) {
		for {
			last, err := j.Append(ctx, [][]byte{[]byte(rec)})
			if err == nil {
				want = append(want, rec)
				if last != uint64(len(want)) {
					t.Fatalf("record %q is number %d, want %d", rec, last, len(want))
				}
				return
			}
			if c := code(err); c != journal.ErrDeposed && c != journal.ErrFailed {
				t.Fatal(err)
			}
			leads(t, j)
			if got := recordsOf(t, j); len(got) > len(want) { // it was kept after all
				want = append(want, rec)
				return
			}
		}
	}
	for n := range 50 {
		write(fmt.Sprint("before ", n))
	}
	killed := time.Now()
	servers[0].End(syscall.SIGKILL)
	for n := range 50 {
		write(fmt.Sprint("after ", n))
		if n == 0 {
			t.Logf("the first record after the primary died was stored %s later", time.Since(killed).Round(time.Millisecond))
		}
	}
	if got := recordsOf(t, j); !slices.Equal(got, want) {
		t.Fatalf("the journal holds %d records %q, want %d %q", len(got), got, len(want), want)
	}
}

// sentinel starts one that watches a primary, and returns where it is.
func sentinel(t *testing.T, primary int) string {
	t.Helper()
	dir, port := t.TempDir(), redistest.FreePort(t)
	conf := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nlogfile %s/log\nsentinel monitor primary 127.0.0.1 %d 2\nsentinel down-after-milliseconds primary 800\nsentinel failover-timeout primary 3000\n",
		port, dir, dir, primary)
	file := filepath.Join(dir, "sentinel.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("redis-sentinel", file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // gone already, then
		cmd.Wait()         //nolint:errcheck // killed
	})
	for strings.Count(cli(fmt.Sprint(port), "sentinel", "replicas", "primary"), "slave-priority") < 2 {
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

func cli(port string, args ...string) string {
	out, _ := exec.Command("redis-cli", append([]string{"-p", port}, args...)...).Output()
	return string(out)
}
