package runnertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/runner"
)

func (s *suite) suspender(t *testing.T) runner.Suspender {
	t.Helper()
	r, can := s.r.(runner.Suspender)
	if !can {
		t.Skip("this runner cannot suspend what it runs")
	}
	return r
}

// counter starts a member that counts in a file, in a child of a child.
func (s *suite) counter(t *testing.T) (id runner.ID, count func() string) {
	file := filepath.Join(s.dir, "count")
	os.Remove(file) //nolint:errcheck // of one before
	id = s.start(t, "trap 'echo saved > "+s.dir+"/saved; kill $!; exit 0' TERM; (sh -c 'n=0; while :; do n=$((n+1)); echo $n > "+file+".new; mv "+file+".new "+file+"; done' & wait) & wait")
	count = func() string {
		b, _ := os.ReadFile(file)
		return strings.TrimSpace(string(b))
	}
	s.until(t, "the member counts", func() bool { return count() != "" })
	return id, count
}

// until polls for something that must come true.
func (s *suite) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for !is() {
		if s.ctx.Err() != nil {
			t.Fatalf("never came true: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func suspends(t *testing.T, s *suite) {
	r := s.suspender(t)
	id, count := s.counter(t)
	for range 2 { // twice is as good as once
		must(t, r.Suspend(s.ctx, id))
	}
	was := count()
	time.Sleep(50 * time.Millisecond) // thousands of its turns; too short a pause could only hide a fault
	if now := count(); now != was {
		t.Fatalf("it counted from %s to %s while it was suspended", was, now)
	}
	other, ok := s.open().(runner.Suspender) // as after a restart of the server
	if !ok {
		t.Fatal("another one over the same place cannot resume")
	}
	for range 2 {
		must(t, other.Resume(s.ctx, id, nil))
	}
	s.until(t, "it counts again", func() bool { return count() != was && count() != "" })
}

func stopSuspended(t *testing.T, s *suite) {
	r := s.suspender(t)
	id, _ := s.counter(t)
	must(t, r.Suspend(s.ctx, id))
	must(t, s.r.Stop(s.ctx, id, time.Minute, ""))
	s.expect(t, id, 0, "")
	if _, err := os.Stat(filepath.Join(s.dir, "saved")); err != nil {
		t.Errorf("it did not get to use its grace: %v", err)
	}
	id, _ = s.counter(t)
	must(t, r.Suspend(s.ctx, id))
	must(t, s.r.Stop(s.ctx, id, 0, ""))
	s.wait(t, id)
}

func suspendEnded(t *testing.T, s *suite) {
	r := s.suspender(t)
	id := s.start(t, "true")
	s.wait(t, id)
	if err := r.Suspend(s.ctx, id); err == nil {
		t.Error("a member that ended was suspended")
	}
	if err := r.Resume(s.ctx, runner.ID{Task: 99, Epoch: 1}, nil); err == nil {
		t.Error("a member that is not known was resumed")
	}
}

// suspendForking: one that starts programs all the time is caught at any moment of that,
// also while it waits for a child to have begun, when it cannot stop.
func suspendForking(t *testing.T, s *suite) {
	r := s.suspender(t)
	id, count := s.counter(t)
	for range 40 {
		must(t, r.Suspend(s.ctx, id))
		was := count()
		must(t, r.Resume(s.ctx, id, nil))
		s.until(t, "it counts again", func() bool { return count() != was && count() != "" })
	}
}
