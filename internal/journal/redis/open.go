package redis

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/gpupool/gpupool/internal/journal"
)

// Options say where the store is. Zero values mean the defaults.
type Options struct {
	// URL is redis://[USER@]HOST:PORT[/DB], rediss:// with TLS, unix:///PATH of a socket,
	// redis+sentinel://HOST:PORT,HOST:PORT/PRIMARY, or redis+cluster://HOST:PORT,HOST:PORT;
	// rediss+ for TLS. After ? it may have name (of the journal; default "gpupool"), db, ca,
	// cert and key (files in PEM), sentinel_user.
	URL string

	PasswordFile         string        // holds the password of the user
	SentinelPasswordFile string        // holds the one for the sentinels; empty: none
	MinReplicas          int           // replicas that must have a record before it counts as stored
	Fsync                bool          // and on disk, here and there: needs Redis 7.2 or Valkey
	Lease                time.Duration // how long a leader that says nothing leads; default 3 s
	Site                 string        // where this server's tasks run; only servers of one site may lead. Empty: anywhere
	Seen                 string        // file that keeps what is known to be acknowledged, so that older data is noticed after a restart; empty: none
	Log                  *slog.Logger
}

// DefaultLease is how long a leader that says nothing leads.
const DefaultLease = 3 * time.Second

// Is reports whether a text is an address that Open takes, and not a path.
func Is(address string) bool {
	scheme, _, ok := strings.Cut(address, "://")
	return ok && (scheme == "unix" || strings.HasPrefix(scheme, "redis"))
}

// Open connects to the store and looks at what is there; nothing is written before Lead.
func Open(ctx context.Context, o Options) (*Journal, error) {
	if o.Lease == 0 {
		o.Lease = DefaultLease
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	quiet()
	u, err := parse(o)
	if err != nil {
		return nil, err
	}
	server := make([]byte, 8)
	rand.Read(server) // never fails
	j := &Journal{o: o, client: redis.NewUniversalClient(u.client), name: u.shown, server: hex.EncodeToString(server), keys: keysOf(u.journal)}
	if err := j.recall(); err != nil {
		j.client.Close() //nolint:errcheck // the first fault is the one to tell
		return nil, err
	}
	if err := j.hello(ctx); err != nil {
		j.client.Close() //nolint:errcheck // the first fault is the one to tell
		return nil, err
	}
	return j, nil
}

// quiet keeps the client library from writing to the standard error by itself: what it
// says there comes back as errors too.
var quiet = sync.OnceFunc(logging.Disable)

// hello asks for what is there, for a while: a store that starts or fails over is no fault.
func (j *Journal) hello(ctx context.Context) error {
	bound, cancel := context.WithTimeout(ctx, helloWait)
	defer cancel()
	for {
		m, err := j.meta(bound)
		if err == nil {
			j.mu.Lock()
			j.seen.reset(place{m.last, m.chain})
			j.mu.Unlock()
			return j.able(bound)
		}
		if !passes(err) || bound.Err() != nil {
			return j.translate("open", err)
		}
		select {
		case <-bound.Done():
			return j.translate("open", err)
		case <-time.After(maxPause):
		}
	}
}

const helloWait = 10 * time.Second

// able refuses settings that the store cannot fulfil.
func (j *Journal) able(ctx context.Context) error {
	if !j.o.Fsync {
		return nil
	}
	node, err := j.node(ctx)
	if err == nil {
		err = node.WaitAOF(ctx, 0, 0, time.Millisecond).Err()
	}
	if err != nil && !passes(err) {
		return &journal.Error{Code: journal.ErrFailed, Err: err, Msg: fmt.Sprintf("journal %s cannot wait for the disk, which journal.fsync asks for (%s): "+
			"it takes Redis 7.2 or Valkey with appendonly yes. Or leave it out, and set appendfsync always in Redis", j.name, err)}
	}
	return nil
}

// address is a URL that was understood.
type address struct {
	client  *redis.UniversalOptions
	journal string
	shown   string
}

func parse(o Options) (a address, err error) {
	bad := func(why string) (address, error) {
		return address{}, &journal.Error{Code: journal.ErrFailed, Msg: "the address of the journal is not usable: " + why +
			"; expected something like redis://127.0.0.1:6379/0, rediss://gpupool@redis.example.org:6379, redis+sentinel://10.0.0.1:26379,10.0.0.2:26379/primary or redis+cluster://10.0.0.1:6379"}
	}
	u, err := url.Parse(o.URL)
	if err != nil {
		return bad("it is no URL") // the cause would show a password
	}
	kind, _ := strings.CutPrefix(u.Scheme, "rediss")
	secure := kind != u.Scheme
	if !secure {
		kind = strings.TrimPrefix(u.Scheme, "redis")
	}
	c := &redis.UniversalOptions{
		ClientName: "gpupool", Protocol: 2, Username: u.User.Username(), MaxRetries: -1, ContextTimeoutEnabled: true, DisableIdentity: true,
		DialTimeout: time.Second, DialerRetries: 1, ReadTimeout: callTimeout, WriteTimeout: callTimeout, PoolTimeout: callTimeout,
	}
	c.Password, _ = u.User.Password()
	q := u.Query()
	for name := range q { // order: any unknown one is refused
		switch name {
		case "name", "db", "ca", "cert", "key", "sentinel_user":
		default:
			return bad(fmt.Sprintf("%q after its ? is not known", name))
		}
	}
	path := strings.Trim(u.Path, "/")
	c.Addrs = strings.Split(u.Host, ",")
	for i, h := range c.Addrs {
		if h == "" && u.Scheme != "unix" {
			return bad("it names no host")
		}
		if !strings.Contains(h[strings.LastIndexByte(h, ']')+1:], ":") && u.Scheme != "unix" {
			c.Addrs[i] += map[bool]string{true: ":26379", false: ":6379"}[kind == "+sentinel"]
		}
	}
	db := q.Get("db")
	switch {
	case u.Scheme == "unix":
		c.Addrs = []string{u.Path}
	case kind == "":
		if path != "" {
			db = path
		}
		if len(c.Addrs) > 1 {
			return bad("it names several hosts, which only redis+sentinel:// and redis+cluster:// do")
		}
	case kind == "+sentinel":
		if c.MasterName = path; path == "" {
			return bad("it does not name the primary after the hosts")
		}
		c.SentinelUsername = q.Get("sentinel_user")
	case kind == "+cluster":
		c.IsClusterMode = true
		if path != "" || db != "" {
			return bad("a Cluster has no databases to choose from")
		}
	default:
		return bad(fmt.Sprintf("scheme %s is not known", u.Scheme))
	}
	if db != "" {
		if c.DB, err = strconv.Atoi(db); err != nil || c.DB < 0 {
			return bad(fmt.Sprintf("database %q is no number", db))
		}
	}
	a = address{client: c, journal: cmp.Or(q.Get("name"), "gpupool"), shown: Shown(o.URL)}
	if strings.ContainsAny(a.journal, "{}\n ") {
		return bad(fmt.Sprintf("the name %q of the journal has a space or a brace", a.journal))
	}
	if secure {
		if c.TLSConfig, err = tlsOf(q); err != nil {
			return bad(err.Error())
		}
	}
	for _, f := range []struct {
		path string
		into *string
	}{{o.PasswordFile, &c.Password}, {o.SentinelPasswordFile, &c.SentinelPassword}} {
		if f.path == "" {
			continue
		}
		b, err := os.ReadFile(f.path)
		if err != nil {
			return bad(fmt.Sprintf("the password cannot be read: %s", err))
		}
		*f.into = strings.TrimSpace(string(b))
	}
	if c.Username != "" && c.Password == "" { // it would be someone else there
		return bad("it names a user, and there is no password: give its file")
	}
	return a, nil
}

// tlsOf is how to speak TLS: the system's roots, or those of ca alone.
func tlsOf(q url.Values) (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca := q.Get("ca"); ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, err
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate", ca)
		}
	}
	cert, key := q.Get("cert"), q.Get("key")
	if (cert == "") != (key == "") {
		return nil, errors.New("cert and key go together")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, err
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

// Shown is an address without what is secret in it.
func Shown(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "(not a URL)"
	}
	shown := u.Scheme + "://" + u.Host + u.Path
	if name := u.Query().Get("name"); name != "" {
		shown += "?name=" + name
	}
	return shown
}
