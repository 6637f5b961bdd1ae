package api

import (
	"fmt"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/auth"
	"github.com/gpupool/gpupool/internal/work"
)

func limited(role work.Role, id string) caller {
	return caller{Identity: auth.Identity{Kind: auth.KindToken, ID: id, Role: role, Tenant: "a"}}
}

// TestLimits: each token has its own share, operators have no bound, and whoever waits as
// long as told is let in.
func TestLimits(t *testing.T) {
	now := time.Unix(1e9, 0)
	l := newLimits(Limits{Calls: 10, Burst: 20})
	enter := func(c caller) (int, time.Duration) {
		for n := 0; ; n++ {
			done, err := l.enter(c, now)
			if err != nil {
				e, ours := err.(*work.Error) //nolint:errorlint // made there
				if !ours || e.Code != work.CodeRate || e.Retry <= 0 {
					t.Fatalf("refused with %#v", err)
				}
				return n, e.Retry
			}
			done()
			if n == 1000 {
				return n, 0
			}
		}
	}
	n, wait := enter(limited(work.RoleTenant, "1"))
	if n != 20 || wait > 100*time.Millisecond {
		t.Errorf("%d calls got in, then it waits %s, want 20 and a tenth of a second", n, wait)
	}
	if n, _ := enter(limited(work.RoleViewer, "2")); n != 20 {
		t.Errorf("another token gets %d calls in, want 20", n)
	}
	now = now.Add(wait)
	if n, _ := enter(limited(work.RoleTenant, "1")); n != 1 {
		t.Errorf("after the wait %d calls got in, want 1", n)
	}
	now = now.Add(time.Hour)
	if n, _ := enter(limited(work.RoleTenant, "1")); n != 20 {
		t.Errorf("after an hour %d calls got in, want 20", n)
	}
	for _, r := range []work.Role{work.RoleOperator, work.RoleAdmin} {
		if n, _ := enter(limited(r, "3")); n != 1000 {
			t.Errorf("%s gets %d calls in", r, n)
		}
	}
	if l = newLimits(Limits{}); l != nil {
		if n, _ := enter(limited(work.RoleTenant, "1")); n != 1000 {
			t.Errorf("without bounds %d calls got in", n)
		}
	}
}

func TestLimitsAtOnce(t *testing.T) {
	l := newLimits(Limits{AtOnce: 2})
	c, now := limited(work.RoleTenant, "1"), time.Unix(1e9, 0)
	var open []func()
	for range 2 {
		done, err := l.enter(c, now)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, done)
	}
	if _, err := l.enter(c, now); err == nil {
		t.Error("a third call is open")
	}
	if _, err := l.enter(limited(work.RoleTenant, "2"), now); err != nil {
		t.Errorf("another's: %s", err)
	}
	open[0]()
	if _, err := l.enter(c, now); err != nil {
		t.Errorf("one has ended, and the next is refused: %s", err)
	}
}

// TestLimitsUnknown: by address, of which one party holds many in IPv6; and a flood of
// addresses does not make the server grow.
func TestLimitsUnknown(t *testing.T) {
	l, now := newLimits(Limits{Failed: 60}), time.Unix(1e9, 0)
	failed := func(addr string) (n int) {
		for ; n < 1000; n++ {
			if l.failed(addr, now) != nil {
				return n
			}
		}
		return n
	}
	if n := failed("10.0.0.1:5"); n != 60 {
		t.Errorf("%d calls of one address were answered, want 60", n)
	}
	for addr, want := range map[string]int{"10.0.0.1:6": 0, "10.0.0.2:5": 60, "[2001:db8::1]:5": 60, "[::ffff:10.0.0.1]:1": 60} {
		if n := failed(addr); n != want {
			t.Errorf("%s: %d, want %d", addr, n, want)
		}
	}
	if n := failed("[2001:db8::ffff:1]:7"); n != 0 {
		t.Errorf("a neighbour in the same /64: %d, want 0", n)
	}
	if now = now.Add(2 * time.Second); failed("10.0.0.1:5") != 2 {
		t.Error("after two seconds there are not two more")
	}
	for i := range 3 * maxBuckets {
		if l.failed(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255), now); len(l.unsure) > maxBuckets { //nolint:errcheck // only counted
			t.Fatalf("%d addresses are kept", len(l.unsure))
		}
	}
}
