package api

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/work"
)

func (s *server) secretRoutes() {
	const tag, all = "secrets", "/v1/tenants/{name}/secrets"
	register(s, op{id: "list-secrets", method: get, path: all, says: "Name the secrets of a tenant; nothing shows their values", tag: tag}, s.listSecrets)
	register(s, op{id: "put-secret", method: put, path: all + "/{secret}", says: "Keep a value that tasks of the tenant can name", tag: tag, status: 204}, s.putSecret)
	register(s, op{id: "delete-secret", method: del, path: all + "/{secret}", says: "Forget a secret; tasks that run keep what they were given", tag: tag, status: 204}, s.deleteSecret)
}

// SecretPath names a secret.
type SecretPath struct {
	NamePath
	Secret string `path:"secret" maxLength:"128" doc:"Name of the secret: letters, digits and . _ -"`
}

// ownTenant refuses tenants that are not the caller's: they are as unknown as those that
// never were.
func (s *server) ownTenant(ctx context.Context, name string) error {
	if _, known := s.host.Known().Tenant(name); !known || !who(ctx).owns(name) {
		return unknownTenant(name)
	}
	return nil
}

func (s *server) listSecrets(ctx context.Context, in *NamePath) (*answer[apitype.Page[string]], error) {
	if err := s.ownTenant(ctx, in.Name); err != nil {
		return nil, err
	}
	names, err := s.cfg.Secrets.List(in.Name)
	out := &answer[apitype.Page[string]]{}
	out.Body.Items = names
	return out, err
}

func (s *server) putSecret(ctx context.Context, in *struct {
	SecretPath
	Body apitype.SecretValue
}) (*struct{}, error) {
	s.tenants.Lock() // or one that is removed meanwhile would leave it to the next of that name
	defer s.tenants.Unlock()
	if err := s.ownTenant(ctx, in.Name); err != nil {
		return nil, err
	}
	return nil, s.cfg.Secrets.Set(in.Name, in.Secret, in.Body.Value)
}

func (s *server) deleteSecret(ctx context.Context, in *SecretPath) (*struct{}, error) {
	if err := s.ownTenant(ctx, in.Name); err != nil {
		return nil, err
	}
	return nil, s.cfg.Secrets.Remove(in.Name, in.Secret)
}

// allowed refuses a task that names a secret that is not there, or a folder, image, volume
// or network that it may not. All are looked at again when it starts, which may be later.
func (s *server) allowed(spec *work.Spec) error {
	for _, x := range spec.Secrets {
		if _, ref := work.SplitSecret(x); !s.cfg.Secrets.Has(spec.Tenant, ref) {
			return work.Errorf(work.CodeInvalid, "tenant %s has no secret %q: gpupool secrets set %s", spec.Tenant, ref, ref)
		}
	}
	if s.cfg.Refuses != nil {
		if err := s.cfg.Refuses(spec.Container); err != nil {
			return work.Errorf(work.CodeForbidden, "%s", err)
		}
	}
	if spec.Dir == "" || spec.Image != "" || len(s.cfg.Dirs) == 0 {
		return nil // a folder of an image is not one of the host's
	}
	for _, d := range s.cfg.Dirs {
		if rel, err := filepath.Rel(d, spec.Dir); err == nil && filepath.IsAbs(spec.Dir) && filepath.IsLocal(rel) {
			return nil
		}
	}
	return work.Errorf(work.CodeForbidden, "the working directory %s is not one that tasks may name here: expected it in or below %s", spec.Dir, strings.Join(s.cfg.Dirs, ", "))
}
