// Package secrets keeps values that tasks need and nobody else should see: passwords and
// keys, by tenant and name, each in a file of its own. A task names them; what goes into
// its environment is looked up when it starts, by who starts it, so that no value is in
// the journal, the API, a log or a command line.
//
// It costs a file a value.
package secrets

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpupool/gpupool/internal/work"
)

// Store is a folder with a folder for each tenant, and beside it what systemd hands to the
// server (LoadCredential=, $CREDENTIALS_DIRECTORY) under names NAME@TENANT: a tenant gets
// at no other, as no name holds an @. A value of the folder wins. The zero value has none.
type Store struct {
	Dir         string
	Credentials string // folder; "" = none
}

// MaxValue is the largest value, in bytes: it has to fit into an environment.
const MaxValue = 64 << 10

// maxSecrets of one tenant.
const maxSecrets = 1000

// List names the secrets of a tenant.
func (s Store) List(tenant string) ([]string, error) {
	out := []string{}
	for dir, suffix := range map[string]string{s.folder(tenant): "", s.Credentials: "@" + tenant} { // order: sorted below
		if dir == "" || !work.SecretName(tenant) {
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("secrets cannot be listed: %w", err)
		}
		for _, e := range entries {
			if name, is := strings.CutSuffix(e.Name(), suffix); is && e.Type().IsRegular() && work.SecretName(name) {
				out = append(out, name)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Has reports whether a tenant has a secret.
func (s Store) Has(tenant, name string) bool {
	_, err := s.value(tenant, name)
	return err == nil
}

// Set keeps a value, whole or not at all.
func (s Store) Set(tenant, name, value string) error {
	switch {
	case s.Dir == "":
		return work.Errorf(work.CodeConflict, "this server keeps no secrets")
	case !work.SecretName(tenant) || !work.SecretName(name):
		return invalidName(name)
	case value == "" || len(value) > MaxValue || strings.ContainsRune(value, 0):
		return work.Errorf(work.CodeInvalid, "the value of secret %s is not usable: expected 1 to %d bytes, none of them zero", name, MaxValue)
	}
	if all, err := s.List(tenant); err != nil || len(all) >= maxSecrets && !slices.Contains(all, name) {
		return cmp.Or(err, error(work.Errorf(work.CodeConflict, "tenant %s has %d secrets, which is the most: remove some", tenant, maxSecrets)))
	}
	dir := s.folder(tenant)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("the secret cannot be kept: %w", err)
	}
	f, err := os.CreateTemp(dir, ".new-*") // mode 0600
	if err != nil {
		return fmt.Errorf("the secret cannot be kept: %w", err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // renamed already when all went well
	if _, err = f.WriteString(value); err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		return fmt.Errorf("the secret cannot be kept: %w", err)
	}
	return nil
}

// Remove forgets a value.
func (s Store) Remove(tenant, name string) error {
	if s.Dir == "" || !work.SecretName(tenant) || !work.SecretName(name) {
		return unknownSecret(tenant, name)
	}
	err := os.Remove(filepath.Join(s.folder(tenant), name))
	switch {
	case errors.Is(err, fs.ErrNotExist) && s.Has(tenant, name):
		return work.Errorf(work.CodeConflict, "secret %s comes from the server's own credentials (systemd): it is removed there", name)
	case errors.Is(err, fs.ErrNotExist):
		return unknownSecret(tenant, name)
	case err != nil:
		return fmt.Errorf("the secret cannot be removed: %w", err)
	}
	return nil
}

// RemoveAll forgets all values of a tenant.
func (s Store) RemoveAll(tenant string) error {
	if s.Dir == "" || !work.SecretName(tenant) {
		return nil
	}
	if err := os.RemoveAll(s.folder(tenant)); err != nil {
		return fmt.Errorf("the secrets of tenant %s cannot be removed: %w", tenant, err)
	}
	return nil
}

// Env looks up what a task names (NAME=REF, or NAME alone), and returns NAME=VALUE.
func (s Store) Env(tenant string, wanted []string) ([]string, error) {
	var out []string
	for _, x := range wanted {
		name, ref := work.SplitSecret(x)
		value, err := s.value(tenant, ref)
		if err != nil {
			return nil, err
		}
		out = append(out, name+"="+value)
	}
	return out, nil
}

func (s Store) folder(tenant string) string {
	if s.Dir == "" {
		return ""
	}
	return filepath.Join(s.Dir, tenant)
}

// value reads one. Names hold no slash and do not begin with a dot, and a link that leads
// out of the folder is not followed.
func (s Store) value(tenant, name string) (string, error) {
	if !work.SecretName(tenant) || !work.SecretName(name) {
		return "", unknownSecret(tenant, name)
	}
	for _, at := range []struct{ dir, file string }{{s.Dir, filepath.Join(tenant, name)}, {s.Credentials, name + "@" + tenant}} {
		if at.dir == "" {
			continue
		}
		switch b, err := readIn(at.dir, at.file); {
		case err == nil:
			return string(b), nil
		case !errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("secret %s of tenant %s cannot be read: %w", name, tenant, err)
		}
	}
	return "", unknownSecret(tenant, name)
}

func readIn(dir, file string) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxValue))
}

func unknownSecret(tenant, name string) error {
	return work.Errorf(work.CodeNotFound, "tenant %s has no secret %q: gpupool secrets set %s", tenant, name, name)
}

func invalidName(name string) error {
	return work.Errorf(work.CodeInvalid, "%q is no name of a secret: expected letters, digits and . _ -, beginning with a letter, a digit or _", name)
}
