package bolt_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/gpupool/gpupool/internal/journal"
	"github.com/gpupool/gpupool/internal/journal/bolt"
)

// TestUnwritable opens a journal as a user who may not write it.
func TestUnwritable(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "journal.db")
	mustOpen(t, path).Close() //nolint:errcheck // a test
	if err := errors.Join(os.Chmod(path, 0o444), os.Chmod(dir, 0o555), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o755) //nolint:errcheck // so that it can be removed
	for _, p := range []string{path, filepath.Join(dir, "new.db")} {
		if err := asNobody(t, func() error {
			_, err := bolt.Open(p, bolt.Options{})
			return err
		}); code(err) != journal.ErrReadOnly || !strings.Contains(err.Error(), "not writable here") {
			t.Fatalf("%s: got %v, want %s", p, err, journal.ErrReadOnly)
		}
	}
	if err := asNobody(t, func() error {
		j, err := bolt.Open(path, bolt.Options{ReadOnly: true})
		if err == nil {
			err = j.Close()
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// asNobody runs f without root's rights, if the test has them.
func asNobody(t *testing.T, f func() error) error {
	t.Helper()
	if os.Getuid() != 0 {
		return f()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := syscall.Setfsuid(65534); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// fullEnv makes the test binary the process that TestFull runs.
const fullEnv = "GPUPOOL_TEST_FULL"

// TestFull fills a small disk: the error says so, and what was acknowledged is safe.
func TestFull(t *testing.T) {
	if dir := os.Getenv(fullEnv); dir != "" {
		fill(t, dir)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestFull$", "-test.v")
	cmd.Env = append(os.Environ(), fullEnv+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || strings.Contains(string(out), "no mounts here") {
		t.Skip("a small disk needs a user namespace, and there is none here")
	}
	if err != nil || !strings.Contains(string(out), "filled") {
		t.Fatalf("%v\n%s", err, out)
	}
}

func fill(t *testing.T, dir string) {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=512k"); err != nil {
		t.Skip("no mounts here:", err)
	}
	path := filepath.Join(dir, "journal.db")
	j := mustOpen(t, path)
	rec, acked := make([]byte, 1000), uint64(0)
	for {
		last, err := j.Append(context.Background(), [][]byte{rec, rec, rec})
		if err != nil {
			if code(err) != journal.ErrFull {
				t.Fatalf("got %v, want %s", err, journal.ErrFull)
			}
			break
		}
		acked = last
	}
	if _, err := j.Append(context.Background(), [][]byte{rec}); code(err) != journal.ErrFull {
		t.Fatalf("once more: got %v, want %s", err, journal.ErrFull)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = mustOpen(t, path)
	if n := count(t, j); n != int(acked) || n < 100 {
		t.Fatalf("%d records are there, %d were acknowledged", n, acked)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	fmt.Println("filled")
}
