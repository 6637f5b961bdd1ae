package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
)

func (a *App) tenantsCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "tenants", Short: "List tenants; make, change and remove them", Args: cobra.NoArgs,
		RunE: a.call(func(ctx context.Context, api *client.Client, _ []string) error {
			tenants, err := api.Tenants(ctx)
			if err != nil {
				return err
			}
			return a.print(listOf(tenants), func(w io.Writer, _ bool) {
				if len(tenants) == 0 {
					fmt.Fprintln(a.Err, "no tenants yet: gpupool tenants create NAME")
					return
				}
				var rows [][]string
				for _, t := range tenants {
					limit := "none"
					if t.LimitGPUs > 0 {
						limit = gpuCount(t.LimitGPUs)
					}
					rows = append(rows, []string{t.Name, gpuCount(t.HeldGPUs), limit, gpuCount(t.Guarantee), gpuCount(t.Weight),
						ofMost(t.Running, t.MaxRunning), ofMost(t.Waiting, t.MaxWaiting), fmt.Sprint(t.Tokens)})
				}
				tabs(w, []string{"TENANT", "HELD GPUS", "LIMIT", "GUARANTEE", "WEIGHT", "RUNNING", "WAITING", "TOKENS"}, rows)
			})
		}),
	}
	c.AddCommand(a.tenantSet("create", "Make a tenant and its first token", true), a.tenantSet("set", "Change a tenant's limits, guarantee or weight", false),
		a.tenantRemove(), a.tenantToken(), a.tenantRevoke())
	return c
}

func (a *App) tenantSet(name, short string, create bool) *cobra.Command {
	var spec apitype.TenantSpec
	var c *cobra.Command
	c = &cobra.Command{
		Use: name + " NAME", Short: short, Args: cobra.ExactArgs(1),
		RunE: a.call(func(ctx context.Context, api *client.Client, args []string) error {
			was, err := api.Tenant(ctx, args[0])
			known := err == nil
			switch {
			case err != nil && !missing(err):
				return err
			case known && create:
				return fmt.Errorf("tenant %s exists already: gpupool tenants set changes it, gpupool tenants token makes another token", args[0])
			case !known && !create:
				return fmt.Errorf("tenant %s is not known: gpupool tenants create %s", args[0], args[0])
			}
			if known {
				keep(c, &spec, was)
			}
			t, err := api.PutTenant(ctx, args[0], spec)
			if err != nil {
				return err
			}
			if create {
				return a.newToken(ctx, api, args[0])
			}
			return a.print(t, func(w io.Writer, _ bool) { fmt.Fprintf(w, "tenant %s changed\n", t.Name) })
		}),
	}
	c.Flags().Float64Var(&spec.LimitGPUs, "limit", 0, "GPUs held at once at most; 0 = no limit")
	c.Flags().Float64Var(&spec.Guarantee, "guarantee", 0, "GPUs it gets whenever it asks; others borrow what it leaves, and yield")
	c.Flags().IntVar(&spec.MaxWaiting, "max-waiting", 0, "tasks that wait at once at most; 0 = no limit")
	c.Flags().IntVar(&spec.MaxRunning, "max-running", 0, "tasks that hold something at once at most; 0 = no limit")
	c.Flags().Float64Var(&spec.Weight, "weight", 0, "share in fair sharing; 0 = 1")
	return c
}

// keep leaves as it was what no flag names.
func keep(c *cobra.Command, spec *apitype.TenantSpec, was apitype.Tenant) {
	for flag, leave := range map[string]func(){
		"limit": func() { spec.LimitGPUs = was.LimitGPUs }, "guarantee": func() { spec.Guarantee = was.Guarantee },
		"max-waiting": func() { spec.MaxWaiting = was.MaxWaiting }, "max-running": func() { spec.MaxRunning = was.MaxRunning },
		"weight": func() { spec.Weight = was.Weight },
	} {
		if !c.Flags().Changed(flag) {
			leave()
		}
	}
}

// missing reports whether the server does not know what was asked for.
func missing(err error) bool {
	e, is := errors.AsType[*client.Error](err)
	return is && e.Status == http.StatusNotFound
}

// ofMost writes a number, and what it may be at most where there is such a limit.
func ofMost(n, most int) string {
	if most == 0 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d of %d", n, most)
}

func (a *App) newToken(ctx context.Context, api *client.Client, tenant string) error {
	t, err := api.CreateToken(ctx, tenant)
	if err != nil {
		return err
	}
	return a.print(t, func(w io.Writer, _ bool) {
		fmt.Fprintln(w, t.Token)
		fmt.Fprintf(a.Err, "the token of %s; it is not shown again. Use: export GPUPOOL_TOKEN=…\n", tenant)
	})
}

func (a *App) tenantToken() *cobra.Command {
	return &cobra.Command{
		Use: "token NAME", Short: "Make another token for a tenant", Args: cobra.ExactArgs(1),
		RunE: a.call(func(ctx context.Context, api *client.Client, args []string) error {
			return a.newToken(ctx, api, args[0])
		}),
	}
}

func (a *App) tenantRevoke() *cobra.Command {
	return &cobra.Command{
		Use: "revoke NAME", Short: "Make all tokens of a tenant worthless", Args: cobra.ExactArgs(1),
		RunE: a.call(func(ctx context.Context, api *client.Client, args []string) error {
			if err := api.RevokeTokens(ctx, args[0]); err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "tenant %s has no token any more: gpupool tenants token %s makes one\n", args[0], args[0])
			return nil
		}),
	}
}

func (a *App) tenantRemove() *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "Remove a tenant without unfinished tasks", Args: cobra.ExactArgs(1),
		RunE: a.call(func(ctx context.Context, api *client.Client, args []string) error {
			if err := api.DeleteTenant(ctx, args[0]); err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "tenant %s removed\n", args[0])
			return nil
		}),
	}
}
