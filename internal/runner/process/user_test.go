package process_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpupool/gpupool/internal/runner"
	"github.com/gpupool/gpupool/internal/runner/process"
)

// TestUsers: each tenant's programs run as its own user, in a folder of their own, and
// read nothing that is another tenant's or the server's.
func TestUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, which alone may become another user")
	}
	ctx, open := bound(t), t.TempDir() // others may pass through it
	dir := filepath.Join(open, "run")
	for _, d := range []string{open, filepath.Dir(open)} {
		if err := os.Chmod(d, 0o755); err != nil && d == open {
			t.Fatal(err)
		}
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	nobody, err := process.ParseUser("nobody")
	if err != nil {
		t.Fatal(err)
	}
	r, err := process.New(dir, process.Options{ShimCommand: []string{exe, "__shim"}, Work: filepath.Join(open, "work"),
		Users: map[string]process.User{"a": {UID: 2001, GID: 3001}, "b": {UID: 2002, GID: 3002}}, DefaultUser: &nobody})
	if err != nil {
		t.Fatal(err)
	}
	next := uint64(0)
	run := func(tenant, script string) string {
		t.Helper()
		next++
		id := runner.ID{Task: next, Epoch: 1}
		if err := r.Start(ctx, runner.Spec{ID: id, Tenant: tenant, Command: []string{"/bin/sh", "-c", script}}); err != nil {
			t.Fatal(err)
		}
		if st, err := r.Wait(ctx, id); err != nil || st.Exit.Lost != "" {
			t.Fatalf("%+v, %v", st, err)
		}
		l, err := r.Logs(ctx, id, runner.LogOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		b, err := io.ReadAll(l)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	first := run("a", "umask 022; id -u; id -g; id -G; echo mine > file; cat file; ls -ld . | cut -c1-10; [ $HOME = $PWD ] && echo home; grep NoNewPrivs /proc/self/status; pwd")
	want := "2001\n3001\n3001\nmine\ndrwx------\nhome\nNoNewPrivs:\t1\n"
	if !strings.HasPrefix(first, want) {
		t.Fatalf("a's task said %q, want %q", first, want)
	}
	lines := strings.Split(first, "\n")
	theirs := lines[len(lines)-1]
	if got := run("b", "id -u; cat "+theirs+"/file; ls "+theirs); !strings.HasPrefix(got, "2002\n") || strings.Contains(got, "mine") || strings.Count(got, "ermission denied") != 2 {
		t.Errorf("b reads what is a's: %q", got)
	}
	if got := run("b", "cat "+dir+"/1.1.0/spec.json; ls "+dir+"; kill -9 $PPID; echo alive"); strings.Count(got, "ermission denied") != 2 || !strings.HasSuffix(got, "alive") || !strings.Contains(got, "not permitted") {
		t.Errorf("b reads what is the server's, or reaches its shim: %q", got)
	}
	if got := run("c", "id -un"); got != "nobody" {
		t.Errorf("a tenant without a user of its own runs as %q", got)
	}
	for id := range next { // what is forgotten leaves no empty folder
		if err := r.Forget(ctx, runner.ID{Task: id + 1, Epoch: 1}); err != nil {
			t.Fatal(err)
		}
	}
	left, _ := filepath.Glob(filepath.Join(open, "work", "*", "*"))
	if len(left) != 1 || left[0] != theirs {
		t.Errorf("left are %v, want %s alone, which has a file", left, theirs)
	}
}

func TestParseUser(t *testing.T) {
	for text, want := range map[string]string{"12:34": "12:34", "root": "0:0"} {
		if u, err := process.ParseUser(text); err != nil || u.String() != want {
			t.Errorf("%s: got %s, %v", text, u, err)
		}
	}
	for _, text := range []string{"", "12", "a:b", "12:", "-1:2", "4294967296:1", "no-such-user"} {
		if u, err := process.ParseUser(text); err == nil {
			t.Errorf("%q was read as %s", text, u)
		}
	}
}
