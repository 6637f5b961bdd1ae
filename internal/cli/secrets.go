package cli

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/gpupool/gpupool/internal/api/apitype"
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

func (a *App) auditCmd() *cobra.Command {
	c := &cobra.Command{Use: "audit", Short: "Export who did what"}
	var q client.AuditQuery
	var asCSV bool
	var asJSON bool
	export := &cobra.Command{
		Use: "export", Short: "Print the audit log, a JSON object a line", Args: cobra.NoArgs,
		Example: `  gpupool audit export --since 24h
  gpupool audit export --since 2026-12-01T00:00:00Z --tenant ann --csv > ann.csv`,
		RunE: a.call(func(ctx context.Context, api *client.Client, _ []string) error {
			if asCSV && asJSON {
				return usagef("--csv and --json contradict each other: choose one")
			}
			query := q
			var err error
			if query.Since, err = days(q.Since); err != nil {
				return err
			}
			if query.Until, err = days(q.Until); err != nil {
				return err
			}
			if asCSV {
				return auditCSV(a.Out, api.Audit(ctx, query))
			}
			return auditJSON(a.Out, api.Audit(ctx, query))
		}),
	}
	f := export.Flags()
	f.StringVar(&q.Since, "since", "", "from then on: how long ago (24h, 30d), or RFC 3339")
	f.StringVar(&q.Until, "until", "", "before then, likewise")
	f.StringVar(&q.Tenant, "tenant", "", "only calls from this tenant")
	f.StringVar(&q.By, "by", "", "only calls from who has this ID (see gpupool tokens list)")
	f.BoolVar(&asCSV, "csv", false, "as CSV, with a head")
	f.BoolVar(&asJSON, "json", false, "as JSON lines, which is the default")
	c.AddCommand(export)
	return c
}

func auditCSV(out io.Writer, entries func(func(apitype.AuditEntry, error) bool)) error {
	w := csv.NewWriter(out)
	if err := w.Write([]string{"at", "request", "operation", "method", "path", "by", "name", "how", "role", "tenant", "from", "forwarded", "status", "code", "took_ms"}); err != nil {
		return err
	}
	for e, err := range entries {
		if err != nil {
			w.Flush()
			return err
		}
		row := []string{e.At.Format(time.RFC3339Nano), e.Request, e.Operation, e.Method, e.Path, e.By, e.Name, e.How, e.Role, e.Tenant, e.From, e.Forwarded, fmt.Sprint(e.Status), e.Code, fmt.Sprint(e.TookMS)}
		for i, cell := range row {
			row[i] = plain(cell)
		}
		if err := w.Write(row); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

// plain keeps a spreadsheet from taking what a stranger wrote for a formula.
func plain(cell string) string {
	if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
		return "'" + cell
	}
	return cell
}

func auditJSON(out io.Writer, entries func(func(apitype.AuditEntry, error) bool)) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	for e, err := range entries {
		if err != nil {
			return err
		}
		if err := enc.Encode(e); err != nil {
			return err
		}
	}
	return nil
}
