package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/gpupool/gpupool/internal/api/client"
)

func (a *App) secretsCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "secrets", Short: "Keep values that tasks get and nobody sees", Args: cobra.NoArgs,
		Long: `Keeps values such as passwords and keys for the tasks of a tenant. A task names them
(gpupool submit --secret NAME), and finds them in its environment. They are looked up when it
starts, and are in no journal, log, command line or answer.`,
		Example: `  gpupool secrets set HF_TOKEN < token.txt
  gpupool submit --secret HF_TOKEN -- python train.py`,
	}
	var tenant string
	c.PersistentFlags().StringVar(&tenant, "tenant", "", "whose; with a token that is of no tenant")
	var raw bool
	set := &cobra.Command{
		Use: "set NAME", Short: "Keep the value on standard input", Args: cobra.ExactArgs(1),
		RunE: a.ofTenant(&tenant, func(ctx context.Context, api *client.Client, tenant string, args []string) error {
			value, err := a.readSecret(raw)
			if err != nil {
				return err
			}
			if err := api.PutSecret(ctx, tenant, args[0], value); err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "secret %s of tenant %s is kept: gpupool submit --secret %s\n", args[0], tenant, args[0])
			return nil
		}),
	}
	set.Flags().BoolVar(&raw, "raw", false, "keep a line break at its end")
	c.AddCommand(set,
		&cobra.Command{
			Use: "list", Short: "List the names", Args: cobra.NoArgs,
			RunE: a.ofTenant(&tenant, func(ctx context.Context, api *client.Client, tenant string, _ []string) error {
				names, err := api.Secrets(ctx, tenant)
				if err != nil {
					return err
				}
				return a.print(listOf(names), func(w io.Writer, _ bool) {
					for _, n := range names {
						fmt.Fprintln(w, n)
					}
				})
			}),
		},
		&cobra.Command{
			Use: "rm NAME", Short: "Forget a value; tasks that run keep it", Args: cobra.ExactArgs(1),
			RunE: a.ofTenant(&tenant, func(ctx context.Context, api *client.Client, tenant string, args []string) error {
				if err := api.DeleteSecret(ctx, tenant, args[0]); err != nil {
					return err
				}
				fmt.Fprintf(a.Out, "secret %s of tenant %s is forgotten\n", args[0], tenant)
				return nil
			}),
		})
	return c
}

// ofTenant runs a command about a tenant: the one named, the caller's, or the only one.
func (a *App) ofTenant(named *string, f func(ctx context.Context, api *client.Client, tenant string, args []string) error) func(*cobra.Command, []string) error {
	return a.call(func(ctx context.Context, api *client.Client, args []string) error {
		tenant := *named
		if tenant == "" {
			all, err := api.Tenants(ctx)
			switch {
			case err != nil:
				return err
			case len(all) != 1:
				return usagef("say which of %d tenants it is for: --tenant", len(all))
			}
			tenant = all[0].Name
		}
		return f(ctx, api, tenant, args)
	})
}

// readSecret reads a value from standard input, on a terminal without showing it.
func (a *App) readSecret(raw bool) (string, error) {
	if f, ok := a.In.(*os.File); ok && isTerminal(f) {
		fmt.Fprint(a.Err, "value (not shown): ")
		b, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(a.Err)
		return string(b), err
	}
	const most = 64 << 10
	b, err := io.ReadAll(io.LimitReader(a.In, most+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("the value cannot be read: %w", err)
	case len(b) > most:
		return "", usagef("the value is longer than %d bytes, which is the most", most)
	}
	if raw {
		return string(b), nil
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"), nil
}
