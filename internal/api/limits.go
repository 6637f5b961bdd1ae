package api

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/gpupool/gpupool/internal/work"
)

// Limits bound what one caller, and one address, may ask of the API. 0 is no bound.
// Operators and admins are not bounded: they are who puts things right.
type Limits struct {
	Calls  float64 // of one tenant's or viewer's token in a second
	Burst  int     // calls that may come at once; 0 = one second's
	AtOnce int     // calls of one token that are open at once: waits, logs and event streams are among them
	Failed float64 // calls of one address in a minute that show nobody who is known
}

// limits keeps count. It costs a look-up a call, and a walk over all that it knows once
// there are too many.
type limits struct {
	Limits
	mu     sync.Mutex
	calls  map[string]*bucket // by caller
	unsure map[string]*bucket // by address
	noted  map[string]*bucket // refused calls in the audit log, by caller
}

// bucket is what one of them has left.
type bucket struct {
	left *rate.Limiter
	open int // calls

	omitted int // refused calls that the audit log does not have
}

// maxBuckets are kept; beyond that the full ones, which say nothing, are dropped.
const maxBuckets = 10_000

func newLimits(l Limits) *limits {
	if l.Burst <= 0 {
		l.Burst = max(1, int(l.Calls))
	}
	return &limits{Limits: l, calls: map[string]*bucket{}, unsure: map[string]*bucket{}, noted: map[string]*bucket{}}
}

func nothing() {}

// Refused calls of one tenant's or viewer's token that are written into the audit log: so
// many at once, and so many a second after that. A script that has run wild, or someone
// who means it, must not push out what was there.
const (
	notedAtOnce    = 100
	notedPerSecond = 0.5
)

// note says whether a refused call is to be written, and how many before it were not.
func (l *limits) note(c caller, now time.Time) (omitted int, written bool) {
	if c.Kind == "" || c.Role.AtLeast(asOperator) {
		return 0, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := of(l.noted, c.key(), notedPerSecond, notedAtOnce, now)
	if _, ok := b.take(now); !ok {
		b.omitted++
		return 0, false
	}
	omitted, b.omitted = b.omitted, 0
	return omitted, true
}

// enter counts a call, and returns what is to be called at its end, or why it may not be.
func (l *limits) enter(c caller, now time.Time) (done func(), err error) {
	if c.Role.AtLeast(asOperator) || l.Calls <= 0 && l.AtOnce <= 0 {
		return nothing, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := of(l.calls, c.key(), l.Calls, l.Burst, now)
	if l.AtOnce > 0 && b.open >= l.AtOnce {
		e := work.Errorf(work.CodeRate, "%d calls of yours are open, which is the most: end some, streams and waits among them", b.open)
		e.Retry = time.Second
		return nil, e
	}
	if wait, ok := b.take(now); !ok {
		e := work.Errorf(work.CodeRate, "more than %g calls a second: go slower, and wait for events in place of asking again and again", l.Calls)
		e.Retry = wait
		return nil, e
	}
	b.open++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		b.open--
	}, nil
}

// failed counts a call that showed nobody who is known, and says when there were too many.
func (l *limits) failed(addr string, now time.Time) error {
	if l.Failed <= 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	wait, ok := of(l.unsure, network(addr), l.Failed/60, int(l.Failed), now).take(now)
	if ok {
		return nil
	}
	e := work.Errorf(work.CodeRate, "too many calls from your address without a token that is known: check the token, and wait")
	e.Retry = wait
	return e
}

// of finds or makes a bucket.
func of(all map[string]*bucket, key string, perSecond float64, burst int, now time.Time) *bucket {
	if b := all[key]; b != nil {
		return b
	}
	if len(all) >= maxBuckets {
		for k, b := range all {
			if b.open == 0 && b.left.TokensAt(now) >= float64(burst) {
				delete(all, k)
			}
		}
		if len(all) >= maxBuckets { // a flood of addresses: better to forget than to grow
			clear(all)
		}
	}
	limit := rate.Limit(perSecond)
	if perSecond <= 0 {
		limit = rate.Inf
	}
	b := &bucket{left: rate.NewLimiter(limit, max(burst, 1))}
	all[key] = b
	return b
}

// take takes one, or says when there will be one.
func (b *bucket) take(now time.Time) (wait time.Duration, ok bool) {
	r := b.left.ReserveN(now, 1)
	if wait = r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
		return wait, false
	}
	return 0, true
}

// network is the part of an address that one party holds: of IPv6 it holds a /64.
func network(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.Unmap().Is4() {
		return host
	}
	p, err := ip.WithZone("").Prefix(64)
	if err != nil {
		return host
	}
	return p.String()
}
