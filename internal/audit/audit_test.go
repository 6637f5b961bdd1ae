package audit

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

var start = time.Date(2026, 12, 3, 8, 0, 0, 0, time.UTC)

func read(t *testing.T, l *Log, q Query) (out []Entry) {
	t.Helper()
	if err := l.Each(t.Context(), q, func(e Entry) error {
		out = append(out, e)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func open(t *testing.T, dir string, o Options) *Log {
	t.Helper()
	l, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestAppendOnly: what was written stays over a restart and over a line that a crash tore.
func TestAppendOnly(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{})
	for i := range 10 {
		l.Add(Entry{At: start.Add(time.Duration(i) * time.Minute), Request: fmt.Sprint(i), Tenant: []string{"a", "b"}[i%2], By: fmt.Sprint("t", i%5)})
	}
	f, err := os.OpenFile(filepath.Join(dir, fileName), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("{\"at\":\"2026-\nnot json\n"); err != nil { // torn, then written on
		t.Fatal(err)
	}
	f.Close() //nolint:errcheck // of a test
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = open(t, dir, Options{})
	l.Add(Entry{At: start.Add(time.Hour), Request: "last"})
	if got := read(t, l, Query{}); len(got) != 11 || got[0].Request != "0" || got[10].Request != "last" {
		t.Errorf("got %+v, want all 11 in their order", got)
	}
	for want, q := range map[int]Query{
		5: {Tenant: "a"}, 2: {By: "t3"}, 6: {Since: start.Add(5 * time.Minute)}, 3: {Until: start.Add(3 * time.Minute)},
		1: {Since: start.Add(2 * time.Minute), Until: start.Add(6 * time.Minute), By: "t4"},
	} {
		if got := read(t, l, q); len(got) != want {
			t.Errorf("%+v: got %d, want %d", q, len(got), want)
		}
	}
	info, err := os.Stat(filepath.Join(dir, fileName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, %v, want that only its owner reads it", info.Mode(), err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRotation: files that are put aside are read too, those that are too old are not
// opened, and no more are kept than was asked.
func TestRotation(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{MaxMiB: 1, Files: 100})
	wide := strings.Repeat("x", 1000)
	const n = 3000
	var all sync.WaitGroup
	for k := range 3 {
		all.Go(func() {
			for i := range n / 3 {
				l.Add(Entry{At: time.Now(), Request: fmt.Sprint(k, "-", i), Path: wide})
			}
		})
	}
	all.Wait()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) < 2 {
		t.Fatalf("there are %v, %v, want several files", names, err)
	}
	if got := read(t, l, Query{}); len(got) != n {
		t.Errorf("got %d entries of %d", len(got), n)
	}
	files, err := l.files(fileName, Query{Since: time.Now().Add(time.Hour)})
	if err != nil || len(files) != 0 {
		t.Errorf("for what is to come it would read %v, %v", files, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestServersOfOneFolder: servers that share a folder lose nothing of each other's when they
// begin new files, and each reads all, in order.
func TestServersOfOneFolder(t *testing.T) {
	dir := t.TempDir()
	a := open(t, dir, Options{MaxMiB: 1, Files: 100})
	wide := strings.Repeat("x", 1000)
	var b *Log
	const n = 6000
	for i := range n {
		l := a
		if i == n/2 { // begins when the first has turned its files over
			b = open(t, dir, Options{MaxMiB: 1, Files: 100})
		}
		if b != nil && i%2 == 1 {
			l = b
		}
		l.Add(Entry{At: start.Add(time.Duration(i) * time.Second), Request: fmt.Sprint(i), Path: wide})
	}
	for _, l := range []*Log{a, b} {
		got := read(t, l, Query{})
		if len(got) != n {
			t.Fatalf("%d of %d entries are there", len(got), n)
		}
		for i, e := range got {
			if e.Request != fmt.Sprint(i) {
				t.Fatalf("entry %d is %s", i, e.Request)
			}
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, dir, Options{})
	if filepath.Base(again.out.Filename) != fileName {
		t.Errorf("the next server writes %s", again.out.Filename)
	}
	for _, l := range []*Log{b, again} {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCannotWrite: a log that cannot be written says so once, and goes on when it can.
func TestCannotWrite(t *testing.T) {
	if _, err := Open(filepath.Join(os.DevNull, "x"), Options{}); err == nil {
		t.Error("a folder that cannot be was opened")
	}
	dir := filepath.Join(t.TempDir(), "audit")
	var said bytes.Buffer
	l := open(t, dir, Options{Log: slog.New(slog.NewTextHandler(&said, nil))})
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l.Add(Entry{Request: "lost"})
	l.Add(Entry{Request: "lost"})
	if n := strings.Count(said.String(), "cannot be written"); n != 1 {
		t.Errorf("it was said %d times: %s", n, said.String())
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	l.Add(Entry{Request: "kept"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.Run(ctx)
	if got := read(t, l, Query{}); len(got) != 1 || got[0].Request != "kept" {
		t.Errorf("got %+v", got)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
