package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gpupool/gpupool/internal/cli"
	"github.com/gpupool/gpupool/internal/config"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/host"
	"github.com/gpupool/gpupool/internal/journal"
	"github.com/gpupool/gpupool/internal/journal/bolt"
	"github.com/gpupool/gpupool/internal/journal/redis"
)

// Files of the data folder.
const (
	journalFile = "journal.db"
	seenFile    = "journal-seen.json" // how far a shared journal is known to have been
)

// openJournal opens the journal that the settings name. The second is nil for a file.
func openJournal(ctx context.Context, o cli.ServeOptions, log *slog.Logger) (journal.Journal, *redis.Journal, error) {
	data, c := o.Config.Server.Data, o.Config.Journal
	file, seen := filepath.Join(data, journalFile), filepath.Join(data, seenFile)
	if !c.Shared() {
		if exists(seen) && !exists(file) {
			return nil, nil, fmt.Errorf("the state of this data folder is in a shared journal (%s is there): give its address with --journal, or move the journal here with gpupool journal import and remove that file", seen)
		}
		j, err := bolt.Open(file, bolt.Options{})
		return j, nil, err
	}
	if exists(file) {
		return nil, nil, fmt.Errorf("this data folder has a journal of its own, %s, which a shared journal would leave behind: move it with gpupool journal export and import (docs/operations.md), then move the file away", file)
	}
	site, err := siteOf(data)
	if err != nil {
		return nil, nil, err
	}
	ro := redisOptions(c)
	ro.Site, ro.Seen, ro.Log = site, seen, log
	j, err := redis.Open(ctx, ro)
	if err != nil {
		return nil, nil, err
	}
	risks, err := j.Risks(ctx)
	if err != nil {
		log.Warn("it is not known whether Redis can lose acknowledged work", "err", err)
	}
	for _, r := range risks {
		log.Warn("Redis can lose acknowledged work: " + r)
	}
	return j, j, nil
}

// redisOptions are the settings of a shared journal.
func redisOptions(c config.Journal) redis.Options {
	return redis.Options{
		URL: c.URL, PasswordFile: c.PasswordFile, SentinelPasswordFile: c.SentinelPassword, MinReplicas: c.MinReplicas,
		Fsync: c.WaitFor == "disk", Lease: time.Duration(c.Lease),
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// siteOf names where the tasks of this server run: this machine and this data folder. Only
// servers of one site can see each other's tasks.
func siteOf(data string) (string, error) {
	id, err := keptToken(filepath.Join(data, "installation"), "installation", rand.Text)
	if err != nil {
		return "", err
	}
	machine, _ := os.ReadFile("/etc/machine-id") // else the host's name
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("the name of this machine cannot be found: %w", err)
	}
	return cmp.Or(strings.TrimSpace(string(machine)), name) + ":" + id, nil
}

// cluster is one server among several that share a journal: it follows whoever leads,
// answers reads, passes writes on, and leads when nobody else does.
type cluster struct {
	server
	cfg     host.Config
	journal *redis.Journal
	url     string // where others reach it

	handles atomic.Pointer[http.Handler]
	leader  atomic.Pointer[string] // its URL; nil while none is known
	decides atomic.Pointer[host.Host]
	foreign atomic.Bool // the tasks run where this server cannot see them
}

func newCluster(s server, cfg host.Config, j *redis.Journal) *cluster {
	return &cluster{server: s, cfg: cfg, journal: j, url: cmp.Or(s.o.Config.Journal.Advertise, s.info().URL)}
}

// run serves until ctx ends, or the journal cannot be used any more.
func (c *cluster) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.handle(unavailable("this server has just started: try again in a moment"))
	srv := newHTTPServer(ctx, c, c.log)
	go func() {
		defer cancel()
		if err := serveOn(srv, c.listener, c.in); err != nil && !errors.Is(err, http.ErrServerClosed) {
			c.log.Error("the API stopped", "err", err)
		}
	}()
	go c.watch.Run(ctx)
	go c.in.run(ctx)
	c.o.Ready(c.url, c.o.Config.Server.Data, c.hardware)
	stopping := tellSystemd(ctx, c.alive, c.url, c.log)
	err := c.turns(ctx)
	stopping()
	bound, done := context.WithTimeout(context.WithoutCancel(ctx), shutdownWait)
	defer done()
	if e := srv.Shutdown(bound); e != nil {
		srv.Close() //nolint:errcheck // nothing is left to do about it
	}
	return err
}

// alive asks the host that decides, if there is one: a lead that ends is no fault, and one
// who follows waits through whatever the store does.
func (c *cluster) alive(ctx context.Context) error {
	h := c.decides.Load()
	if h == nil {
		return nil
	}
	err := turning(h)(ctx)
	if c.decides.Load() != h {
		err = nil
	}
	return err
}

// turns follows and leads in turn.
func (c *cluster) turns(ctx context.Context) error {
	for {
		lost, err := c.follow(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end was asked for
		}
		if err != nil {
			return err
		}
		failed := c.lead(ctx, lost)
		if failed != nil && ctx.Err() == nil {
			c.log.Error("this server stops leading", "err", failed)
		}
		bound, done := context.WithTimeout(context.WithoutCancel(ctx), shutdownWait)
		if err := c.journal.Resign(bound); err != nil {
			c.log.Debug("the lead could not be given back; it runs out", "err", err)
		}
		done()
		c.leader.Store(nil)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end was asked for
		}
		if no, is := errors.AsType[*refusal](failed); is {
			return no.error
		}
	}
}

// follow keeps up with whoever leads until this server does.
func (c *cluster) follow(ctx context.Context) (lost <-chan struct{}, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		lost <-chan struct{}
		err  error
	}
	won := make(chan result, 1)
	go func() {
		lost, err := c.journal.Lead(ctx, c.url)
		won <- result{lost, err}
	}()
	for {
		know := newHeard(time.Now())
		h, err := c.open(ctx)
		if err != nil {
			return nil, err
		}
		c.host = h
		c.watch.Role(false, 0, 0)
		followed := make(chan error, 1)
		here, stop := context.WithCancel(ctx)
		go func() { followed <- h.Follow(here, c.journal) }()
		go c.lag(here, h, know)
		if err := c.serveAs(ctx, know); err != nil {
			stop()
			return nil, errors.Join(err, <-followed)
		}
		for waiting := true; waiting; {
			select {
			case r := <-won:
				if e, ours := errors.AsType[*journal.Error](r.err); ours && e.Code == journal.ErrSite {
					c.log.Warn("this server follows only", "why", r.err)
					continue
				}
				stop()
				err := <-followed
				if r.err != nil {
					err = r.err
				} else if errors.Is(err, host.ErrFarBehind) || err == nil {
					return r.lost, nil
				}
				return nil, err
			case err := <-followed:
				waiting = false
				if !errors.Is(err, host.ErrFarBehind) {
					stop()
					return nil, err
				}
				c.log.Warn("this server reads the state again", "why", err)
			}
		}
		stop()
	}
}

// open recovers the state, and waits through failures of the store that may pass.
func (c *cluster) open(ctx context.Context) (*host.Host, error) {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		h, err := host.Open(ctx, c.cfg)
		if err == nil {
			c.watch.Seed(h)
			return h, nil
		}
		e, ours := errors.AsType[*journal.Error](err)
		if !ours || e.Code != journal.ErrFailed && e.Code != journal.ErrCorrupt || e.Code == journal.ErrCorrupt && pause > time.Second {
			return nil, err // one that was trimmed while it was read looks damaged, once
		}
		c.log.Warn("the state cannot be read yet", "err", err)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// refusal ends a server that must not lead, as only a person can put that right.
type refusal struct{ error }

// lead decides, until the lead is lost or ctx ends.
func (c *cluster) lead(ctx context.Context, lost <-chan struct{}) error {
	began := time.Now()
	c.handle(unavailable("this server takes over: try again in a moment"))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-lost:
			cancel()
		case <-ctx.Done():
		}
	}()
	h, err := c.open(ctx)
	if err != nil {
		return err
	}
	c.host = h
	if err := notOlder(h, filepath.Join(c.o.Config.Server.Data, "run")); err != nil {
		return &refusal{err}
	}
	if c.traces != nil {
		c.traces.Follow(h)
	}
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- h.Run(ctx)
	}()
	err = c.begin(ctx)
	if err == nil {
		c.decides.Store(h)
		c.log.Info("this server leads", "url", c.url, "after", time.Since(began).Round(time.Millisecond), "facts", h.LastEvent())
		<-ctx.Done()
		c.decides.Store(nil)
	}
	cancel()
	c.handle(unavailable("this server leads no more: try again in a moment"))
	c.watch.Role(false, 0, 0)
	select {
	case e := <-ended:
		return errors.Join(err, e)
	case <-time.After(stuckWait):
		// A call of a driver that hangs must not keep this server from following again.
		return fmt.Errorf("something hangs, and was left behind after %s", stuckWait)
	}
}

// stuckWait is how long the end of a host is waited for.
const stuckWait = 10 * time.Second

// begin does what a server does before it answers.
func (c *cluster) begin(ctx context.Context) error {
	if _, err := c.host.Do(ctx, engine.SetPools{Pools: c.o.Config.WorkPools()}); err != nil {
		return err
	}
	if err := firstTenant(ctx, c.host); err != nil {
		return err
	}
	firstHosts(ctx, c.host)
	if err := writeServerFile(c.o.Config.Server.Data, c.info()); err != nil {
		c.log.Warn("clients will not find the server by themselves", "err", err)
	}
	c.watch.Role(true, 0, 0)
	return c.serveAs(ctx, nil)
}

// lagEvery is how often a follower looks where the others are.
const lagEvery = 500 * time.Millisecond

// lag looks who leads and how far this follower is behind, until ctx ends.
func (c *cluster) lag(ctx context.Context, h *host.Host, know *heard) {
	tick := time.NewTicker(lagEvery)
	defer tick.Stop()
	for {
		asked := time.Now()
		s, err := c.journal.Status(ctx)
		if ctx.Err() != nil {
			return
		}
		behind := uint64(0)
		if err == nil {
			c.leader.Store(nil)
			c.foreign.Store(s.Elsewhere) // before the address, as it says what that means here
			if s.Leader != "" && !s.Self {
				c.leader.Store(&s.Leader)
			}
			have := h.LastEvent()
			behind = s.Last - min(s.Last, have)
			know.look(asked, s.Last, have)
		}
		c.watch.Role(false, behind, know.since(time.Now()).Seconds())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// heard is when a server that follows surely knew all that was stored. What it shows, and
// whom it lets in, is as of then: a token that was revoked since still counts here.
type heard struct {
	at     atomic.Pointer[time.Time]
	marked time.Time // a look whose last fact is waited for
	last   uint64
}

func newHeard(at time.Time) *heard {
	k := &heard{marked: at}
	k.at.Store(&at)
	return k
}

// look takes what was stored when the journal was asked, and what this server has by now.
// Under a stream of writes it is never level with the newest look, but with one before.
func (k *heard) look(asked time.Time, stored, have uint64) {
	if have >= k.last {
		level := k.marked
		if k.marked, k.last = asked, stored; have >= stored {
			level = asked
		}
		k.at.Store(&level)
	}
}

func (k *heard) since(now time.Time) time.Duration { return now.Sub(*k.at.Load()) }

// staleAfter is how long a server may have heard nothing and still answer: long enough for
// another to lead, or another Redis to be the primary.
func (c *cluster) staleAfter() time.Duration {
	return max(5*time.Duration(c.o.Config.Journal.Lease), 5*time.Second)
}
