package secrets

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestStore(t *testing.T) {
	s := Store{Dir: filepath.Join(t.TempDir(), "secrets"), Credentials: t.TempDir()}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.Set("alice", "KEY", "one"))
	must(s.Set("alice", "KEY", "two"))
	must(s.Set("alice", "a.b", "dotted"))
	must(os.WriteFile(filepath.Join(s.Credentials, "DB@alice"), []byte("of systemd"), 0o400))
	must(os.WriteFile(filepath.Join(s.Credentials, "KEY@alice"), []byte("hidden by the folder's"), 0o400))
	must(os.WriteFile(filepath.Join(s.Credentials, "server-only"), []byte("not for tenants"), 0o400))
	names, err := s.List("alice")
	must(err)
	if want := []string{"DB", "KEY", "a.b"}; !slices.Equal(names, want) {
		t.Errorf("alice has %v, want %v", names, want)
	}
	env, err := s.Env("alice", []string{"KEY", "OTHER=a.b", "DB"})
	must(err)
	if want := []string{"KEY=two", "OTHER=dotted", "DB=of systemd"}; !slices.Equal(env, want) {
		t.Errorf("got %v, want %v", env, want)
	}
	info, err := os.Stat(filepath.Join(s.Dir, "alice", "KEY"))
	must(err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("a value has mode %v", info.Mode())
	}
	must(s.Remove("alice", "KEY"))
	if got, err := s.value("alice", "KEY"); err != nil || got != "hidden by the folder's" {
		t.Errorf("got %q, %v", got, err)
	}
	for what, err := range map[string]error{
		"removed twice":  s.Remove("alice", "KEY"),
		"never was":      s.Remove("alice", "NOPE"),
		"empty":          s.Set("alice", "E", ""),
		"zero byte":      s.Set("alice", "E", "a\x00b"),
		"too long":       s.Set("alice", "E", strings.Repeat("x", MaxValue+1)),
		"no store":       Store{}.Set("alice", "E", "x"),
		"a name too odd": s.Set("alice", "a b", "x"),
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	must(s.RemoveAll("alice"))
	if s.Has("alice", "a.b") {
		t.Error("a tenant that is gone has a secret")
	}
}

// TestStoreIsolation: no name leads a tenant to what is not its own.
func TestStoreIsolation(t *testing.T) {
	top := t.TempDir()
	s := Store{Dir: filepath.Join(top, "secrets"), Credentials: filepath.Join(top, "credentials")}
	for name, content := range map[string]string{"secrets/bob/KEY": "bob's", "secrets/alice/own": "x", "admin.token": "admin's", "credentials/KEY@bob": "bob's", "credentials/tls.key": "server's"} {
		file := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../../admin.token", filepath.Join(s.Dir, "alice", "link")); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []string{"alice", "..", ".", "", "alice/../bob", "../secrets/bob"} {
		for _, name := range []string{"../bob/KEY", "..", ".", "", "KEY@bob", "tls.key", "link", "../../admin.token", "/etc/passwd", "bob/KEY", "KEY\x00"} {
			if v, err := s.value(tenant, name); err == nil {
				t.Errorf("%q as %q got %q", name, tenant, v)
			}
			if s.Set(tenant, name, "planted") == nil && (tenant != "alice" || name != "tls.key" && name != "link") {
				t.Errorf("%q could be set as %q", name, tenant)
			}
		}
	}
	for name, want := range map[string]string{"admin.token": "admin's", "secrets/bob/KEY": "bob's"} {
		if b, err := os.ReadFile(filepath.Join(top, name)); err != nil || string(b) != want {
			t.Errorf("%s is %q now, %v", name, b, err)
		}
	}
}
