package runnertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

// signals: whichever signal a task asked for reaches it, and it is given to it as to any
// program: a signal that is ignored when a shell begins can never be trapped by it.
func signals(t *testing.T, s *suite) {
	for _, name := range work.Signals() {
		dir := filepath.Join(s.dir, name)
		must(t, os.Mkdir(dir, 0o700))
		traps := "trap 'exit 8' TERM INT HUP USR1 USR2; trap 'exit 7' " + name
		id := s.start(t, traps+"; echo $$ > "+dir+"/ready; while :; do sleep 0.05; done")
		s.file(t, filepath.Join(name, "ready"))
		must(t, s.r.Stop(s.ctx, id, time.Hour, name))
		if x := s.wait(t, id); x.Code != 7 {
			t.Errorf("told by %s it ended with %+v, want what it does on that", name, x)
		}
	}
	id := s.start(t, "exec sleep 1000")
	if err := s.r.Stop(s.ctx, id, 0, "NONSENSE"); err == nil || !strings.Contains(err.Error(), "NONSENSE") {
		t.Errorf("an unknown signal got %v", err)
	}
}

// signalOnly: within the grace nothing but the signal comes, and at its end the kill; a
// stop without a signal, as when its user cancels it meanwhile, is told by TERM.
func signalOnly(t *testing.T, s *suite) {
	heard := filepath.Join(s.dir, "heard")
	script := func(onTerm string) string {
		return "trap 'echo USR1 >> " + heard + "' USR1; trap 'echo TERM >> " + heard + "; " + onTerm + "' TERM; echo $$ > " +
			filepath.Join(s.dir, "ready") + "; while :; do sleep 0.05; done"
	}
	id := s.start(t, script("true"))
	s.file(t, "ready")
	must(t, s.r.Stop(s.ctx, id, 300*time.Millisecond, "USR1"))
	s.expect(t, id, 137, "SIGKILL")
	if got := s.file(t, "heard"); got != "USR1" {
		t.Errorf("it heard %q, want USR1 alone before the kill", got)
	}
	must(t, os.Remove(filepath.Join(s.dir, "ready")))
	must(t, os.Remove(heard))
	id = s.start(t, script("exit 9"))
	s.file(t, "ready")
	must(t, s.r.Stop(s.ctx, id, time.Hour, "USR1"))
	s.until(t, "it hears the signal", func() bool { b, _ := os.ReadFile(heard); return len(b) > 0 })
	must(t, s.open().Stop(s.ctx, id, time.Hour, ""))
	s.expect(t, id, 9, "")
}

// signalLater: a stop that comes from another runner over the same place, as after a
// restart of the server, or while the member is suspended, is told by its signal too.
func signalLater(t *testing.T, s *suite) {
	id := s.start(t, s.sleeper("trap 'exit 7' USR1; trap 'exit 8' TERM"))
	s.file(t, "ready")
	must(t, s.open().Stop(s.ctx, id, time.Hour, "USR1"))
	s.expect(t, id, 7, "")
	r := s.suspender(t)
	must(t, os.Remove(filepath.Join(s.dir, "ready")))
	id = s.start(t, s.sleeper("trap 'exit 7' USR1; trap 'exit 8' TERM"))
	s.file(t, "ready")
	must(t, r.Suspend(s.ctx, id))
	must(t, s.r.Stop(s.ctx, id, time.Hour, "USR1"))
	s.expect(t, id, 7, "")
}
