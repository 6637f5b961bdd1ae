// Package redis keeps a journal in Redis 7 or Valkey, for several servers at once:
// records in a stream, the newest snapshot beside it, and a lease that says who
// leads. All keys carry one hash tag, so that a Cluster keeps them together.
//
// Who takes the lease gets a token, and the script that appends checks it: a leader that
// another has replaced can write nothing more. An append names the record that it
// follows, so one that is repeated after a lost reply is recognised. Each record
// carries a chain over all before it, so a store that was put back to older data, or went
// another way, is recognised too.
//
// An Append costs one round trip however many records it carries (two waits in one when
// replicas are asked for); a snapshot costs its size; what a server that looks on costs
// is the records it reads. Each server keeps the newest 32 MiB of records in memory.
package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gpupool/gpupool/internal/journal"
)

// formatVersion changes when an older gpupool could not read the keys any more.
const formatVersion = "1"

// Journal is an open connection to the store.
type Journal struct {
	o      Options
	client redis.UniversalClient
	name   string // for messages, without secrets
	server string // tells this opening from all others
	keys   keys

	writing sync.Mutex // held by whoever appends or stores a snapshot

	mu     sync.Mutex
	closed bool
	term   *term // nil: this server does not lead
	seen   window
	acked  place // the newest record that is known to be acknowledged
	saved  place // what the file of o.Seen says
}

type keys struct{ meta, facts, lease, snap string }

func keysOf(name string) keys {
	tag := "gpupool:{" + name + "}:"
	return keys{meta: tag + "meta", facts: tag + "facts", lease: tag + "lease", snap: tag + "snap:"}
}

// node is the server that holds the keys: what goes in one pipeline must go to one.
func (j *Journal) node(ctx context.Context) (*redis.Client, error) {
	switch c := j.client.(type) {
	case *redis.Client:
		return c, nil
	case *redis.ClusterClient:
		return c.MasterForKey(ctx, j.keys.meta)
	}
	return nil, fmt.Errorf("client %T is not known here", j.client)
}

// enter checks what every call checks.
func (j *Journal) enter(ctx context.Context) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return &journal.Error{Code: journal.ErrClosed, Msg: fmt.Sprintf("journal %s was closed: open it again", j.name)}
	}
	return ctx.Err()
}

// leading returns the term in which this server leads.
func (j *Journal) leading(ctx context.Context) (*term, error) {
	if err := j.enter(ctx); err != nil {
		return nil, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.term == nil || !j.term.holds() {
		return nil, j.deposed("this server does not lead", nil)
	}
	return j.term, nil
}

// Append implements journal.Journal. It waits through failures of the store for as long
// as the lease lasts, and where the lease is renewed and nothing is stored, for some leases.
func (j *Journal) Append(ctx context.Context, records [][]byte) (uint64, error) {
	j.writing.Lock()
	defer j.writing.Unlock()
	t, err := j.leading(ctx)
	if err != nil {
		return 0, err
	}
	if len(records) == 0 {
		return t.at.seq, nil
	}
	if err := j.add(ctx, t, records); err != nil {
		return 0, err
	}
	return t.at.seq, nil
}

// add appends in a term, and moves the term on; the caller holds writing.
func (j *Journal) add(ctx context.Context, t *term, records [][]byte) error {
	args := []any{t.holder, t.token, number(t.at.seq), string(t.at.chain), ""}
	chains, c := make([]chain, len(records)), t.at.chain
	for i, r := range records {
		c = c.next(r)
		chains[i] = c
		args = append(args, string(c), r)
	}
	args[4] = string(c)
	said, err := j.run(ctx, t, func(ctx context.Context) ([]string, error) { return j.durably(ctx, add, args) })
	if err == nil && said[0] == "sequence" {
		err = &journal.Error{Code: journal.ErrBehind, Msg: fmt.Sprintf("journal %s ends at record %s, and this server, which leads, has written up to %d: "+
			"the store was put back to older data. Nothing more is written in this term", j.name, said[1], t.at.seq)}
	}
	if err != nil {
		j.end(t) // whether it was kept is only known to whoever leads next
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.seen.end() != t.at {
		j.seen.reset(t.at)
	}
	for i, r := range records {
		j.seen.push(chains[i], r)
	}
	t.at = place{t.at.seq + uint64(len(records)), c}
	j.acked = t.at
	return nil
}

// durably runs a script, and waits until what it wrote is where it was asked to be.
func (j *Journal) durably(ctx context.Context, s *redis.Script, args []any) ([]string, error) {
	node, err := j.node(ctx)
	if err != nil {
		return nil, err
	}
	if j.o.MinReplicas == 0 && !j.o.Fsync {
		return words(s.Eval(ctx, node, []string{j.keys.meta, j.keys.facts}, args...))
	}
	var done, waited *redis.Cmd
	_, err = node.Pipelined(ctx, func(p redis.Pipeliner) error {
		done = s.Eval(ctx, p, []string{j.keys.meta, j.keys.facts}, args...)
		if j.o.Fsync {
			waited = p.Do(ctx, "waitaof", 1, j.o.MinReplicas, replicaWait.Milliseconds())
		} else {
			waited = p.Do(ctx, "wait", j.o.MinReplicas, replicaWait.Milliseconds())
		}
		return nil
	})
	said, failed := words(done)
	if failed != nil || said[0] != "ok" {
		return said, failed
	}
	if err != nil {
		return nil, err
	}
	replicas, onDisk, err := answers(waited)
	if err != nil {
		return nil, err
	}
	if !onDisk || replicas < int64(j.o.MinReplicas) {
		return nil, &transient{fmt.Errorf("%d of %d replicas had it within %s, on disk here: %t", replicas, j.o.MinReplicas, replicaWait, onDisk)}
	}
	return said, nil
}

// answers reads what WAIT or WAITAOF said.
func answers(c *redis.Cmd) (replicas int64, onDisk bool, err error) {
	switch x := c.Val().(type) {
	case int64: // WAIT does not speak of disks
		return x, true, nil
	case []any:
		both, err := c.Int64Slice()
		if err != nil || len(both) != 2 {
			return 0, false, fmt.Errorf("WAITAOF answered %v", x)
		}
		return both[1], both[0] >= 1, nil
	}
	return 0, false, fmt.Errorf("waiting for replicas was answered %v", c.Val())
}

// run calls f until it is done, refused, or the term is over.
func (j *Journal) run(ctx context.Context, t *term, f func(context.Context) ([]string, error)) ([]string, error) {
	began := time.Now()
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		left := t.left()
		if waited := time.Since(began); waited > patience*j.o.Lease {
			return nil, &journal.Error{Code: journal.ErrFailed, Err: &transient{t.trouble()}, Msg: fmt.Sprintf("journal %s could not store for %s: %v. Whether it did in the end, whoever leads next finds out",
				j.name, waited.Round(time.Second), t.trouble())}
		}
		if left <= 0 {
			return nil, j.deposed("its lease ran out while the store did not answer", t.trouble())
		}
		bound, cancel := context.WithTimeout(ctx, min(left, callTimeout))
		said, err := f(bound)
		cancel()
		switch {
		case err == nil && said[0] == "deposed":
			return nil, j.deposed("another server leads now ("+said[1]+")", nil)
		case err == nil:
			return said, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !passes(err):
			return nil, j.translate("write to", err)
		}
		t.troubled(err)
		select {
		case <-time.After(pause):
		case <-t.lost:
		case <-ctx.Done():
		}
	}
}

// How long things are waited for.
const (
	callTimeout = 2 * time.Second // one call; the lease may end it earlier
	replicaWait = 500 * time.Millisecond
	patience    = 4 // leases

	behindLeases = 3 // until nobody else will bring back what a store has lost
	firstPause   = 10 * time.Millisecond
	maxPause     = 250 * time.Millisecond
)

// Close implements journal.Journal. It gives up the lead.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return nil
	}
	j.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = j.Resign(ctx) // else the lease runs out by itself
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	j.remember()
	return j.client.Close()
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }

// words reads what a script answered.
func words(c *redis.Cmd) ([]string, error) {
	said, err := c.StringSlice()
	if err == nil && len(said) == 0 {
		err = errors.New("a script answered nothing")
	}
	return said, err
}
