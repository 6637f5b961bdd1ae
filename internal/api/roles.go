package api

import (
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/gpupool/gpupool/internal/work"
)

// rule is who may call an operation.
type rule struct {
	least work.Role
	all   bool // only who sees every tenant: the answer names them all
}

const (
	asViewer   = work.RoleViewer
	asTenant   = work.RoleTenant
	asOperator = work.RoleOperator
	asAdmin    = work.RoleAdmin
)

// rules is who may call what. Within an operation a caller of a tenant still sees and
// touches only what is of that tenant. What has no row is for admins.
var rules = map[string]rule{
	"whoami": {asViewer, false}, "report": {asViewer, false}, "events": {asViewer, false},
	"list-hosts": {asViewer, false}, "list-gpus": {asViewer, false}, "get-gpu": {asViewer, false}, "get-map": {asViewer, false},
	"list-pools": {asViewer, false}, "pool-shadow": {asViewer, false}, "get-rollout": {asViewer, true},
	"list-tasks": {asViewer, false}, "get-task": {asViewer, false}, "explain-task": {asViewer, false}, "task-logs": {asViewer, false},
	"list-leases": {asViewer, false}, "get-lease": {asViewer, false},
	"list-tenants": {asViewer, false}, "get-tenant": {asViewer, false}, "list-secrets": {asViewer, false},

	"submit-task": {asTenant, false}, "cancel-task": {asTenant, false}, "hold-task": {asTenant, false}, "release-task": {asTenant, false},
	"checkpoint-task": {asTenant, false}, "park-task": {asTenant, false}, "wake-task": {asTenant, false}, "resize-task": {asTenant, false},
	"preempt-task": {asTenant, false},
	"create-lease": {asTenant, false}, "renew-lease": {asTenant, false}, "release-lease": {asTenant, false},
	"put-secret": {asTenant, false}, "delete-secret": {asTenant, false},

	"cordon-gpu": {asOperator, true}, "drain-gpu": {asOperator, true}, "uncordon-gpu": {asOperator, true},
	"set-pool-mode": {asOperator, true}, "start-rollout": {asOperator, true}, "stop-rollout": {asOperator, true},

	"put-tenant": {asAdmin, true}, "delete-tenant": {asAdmin, true}, "create-token": {asAdmin, true}, "revoke-tokens": {asAdmin, true},
	"list-tokens": {asAdmin, true}, "make-token": {asAdmin, true}, "rotate-token": {asAdmin, true}, "revoke-token": {asAdmin, true},
	"get-audit": {asAdmin, true},
}

// ruleOf is the rule of an operation: what nobody thought of is for admins.
func ruleOf(id string) rule {
	if r, known := rules[id]; known {
		return r
	}
	return rule{asAdmin, true}
}

// words say in the document whom the operation is for.
func (r rule) words() string {
	switch {
	case r.least == asAdmin:
		return "For admins only."
	case r.least == asOperator:
		return "For operators and admins."
	case r.least == asTenant:
		return "For tenants, operators and admins."
	case r.all:
		return "For who sees every tenant."
	}
	return ""
}

// permit refuses callers before their input is looked at.
func (s *server) permit(id, method string) func(huma.Context, func(huma.Context)) {
	r, writes := ruleOf(id), method != http.MethodGet
	return func(ctx huma.Context, next func(huma.Context)) {
		if err := r.permits(who(ctx.Context()), writes); err != nil {
			_, w := humago.Unwrap(ctx)
			writeProblem(w, problem(work.CodeForbidden, err.Error()))
			return
		}
		next(ctx)
	}
}

func (r rule) permits(c caller, writes bool) error {
	switch {
	case !c.Role.AtLeast(r.least):
		return fmt.Errorf("only %s may do that; you are %s", atLeast(r.least), c)
	case r.all && !c.all():
		return fmt.Errorf("only who sees every tenant may do that; you are %s", c)
	case writes && c.readOnly:
		return fmt.Errorf("this token may only read; you are %s", c)
	}
	return nil
}

func atLeast(r work.Role) string {
	switch r {
	case asAdmin:
		return "an admin"
	case asOperator:
		return "an operator or an admin"
	case asTenant:
		return "a tenant, an operator or an admin"
	}
	return "someone with a role"
}
