package runnertest

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpupool/gpupool/internal/runner"
)

func read(t *testing.T, s *suite, l runner.LogReader, id runner.ID, o runner.LogOptions) string {
	t.Helper()
	r, err := l.Logs(s.ctx, id, o)
	must(t, err)
	defer r.Close()
	b, err := io.ReadAll(r)
	must(t, err)
	return string(b)
}

func logs(t *testing.T, s *suite) {
	l, ok := s.r.(runner.LogReader)
	if !ok {
		t.Skip("keeps no logs")
	}
	id := s.start(t, "for i in 1 2 3 4 5; do echo line $i; done; echo oops >&2")
	s.wait(t, id)
	must(t, s.r.Forget(s.ctx, id))
	for _, x := range []struct {
		o    runner.LogOptions
		want string
	}{{runner.LogOptions{}, "line 1\nline 2\nline 3\nline 4\nline 5\noops\n"}, {runner.LogOptions{Tail: 2}, "line 5\noops\n"},
		{runner.LogOptions{Tail: 100}, "line 1\nline 2\nline 3\nline 4\nline 5\noops\n"}, {runner.LogOptions{Follow: true, Tail: 1}, "oops\n"}} {
		if got := read(t, s, l, id, x.o); got != x.want {
			t.Errorf("%+v: got %q, want %q", x.o, got, x.want)
		}
	}
	id = s.start(t, "true")
	s.wait(t, id)
	if got := read(t, s, l, id, runner.LogOptions{Follow: true}); got != "" {
		t.Errorf("a silent member said %q", got)
	}
}

func follow(t *testing.T, s *suite) {
	l, ok := s.r.(runner.LogReader)
	if !ok {
		t.Skip("keeps no logs")
	}
	gate := filepath.Join(s.dir, "gate")
	id := s.start(t, "echo first; while [ ! -e "+gate+" ]; do sleep 0.02; done; echo last; exit 2")
	r, err := l.Logs(s.ctx, id, runner.LogOptions{Follow: true})
	must(t, err)
	defer r.Close()
	buf := make([]byte, len("first\n"))
	_, err = io.ReadFull(r, buf)
	must(t, err)
	must(t, os.WriteFile(gate, nil, 0o600))
	rest, err := io.ReadAll(r)
	must(t, err)
	if string(buf)+string(rest) != "first\nlast\n" {
		t.Fatalf("followed %q and %q", buf, rest)
	}
	s.expect(t, id, 2, "")
	// closing ends a follow
	id = s.start(t, "echo here; sleep 1000")
	r, err = l.Logs(s.ctx, id, runner.LogOptions{Follow: true})
	must(t, err)
	_, err = io.ReadFull(r, buf[:5])
	must(t, err)
	must(t, r.Close())
	if _, err := r.Read(buf); err == nil {
		t.Fatal("a closed follow still reads")
	}
}

func talkative(t *testing.T, s *suite) {
	id := s.start(t, "i=0; while [ $i -lt 40 ]; do head -c 100000 /dev/zero; i=$((i+1)); done; exit 6")
	s.expect(t, id, 6, "")
}
