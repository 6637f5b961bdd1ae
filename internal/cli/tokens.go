package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
)

func (a *App) tokensCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "tokens", Short: "List, make, rotate and revoke tokens", Args: cobra.NoArgs,
		Example: `  gpupool tokens create --role tenant --tenant ann --name ci --expires 30d
  gpupool tokens create --role viewer --name dashboards
  gpupool tokens rotate 3f0a9c21d4 --overlap 2h
  gpupool tokens rotate admin`,
	}
	list := &cobra.Command{Use: "list", Short: "List tokens by age", Args: cobra.NoArgs, RunE: a.call(a.listTokens)}
	c.RunE = list.RunE
	c.AddCommand(list, a.tokenCreate(), a.tokenRotate(), &cobra.Command{
		Use: "revoke ID", Short: "Make a token worthless", Args: cobra.ExactArgs(1),
		RunE: a.call(func(ctx context.Context, api *client.Client, args []string) error {
			if err := api.RevokeToken(ctx, args[0]); err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "token %s is worthless now\n", args[0])
			return nil
		}),
	})
	return c
}

func (a *App) listTokens(ctx context.Context, api *client.Client, _ []string) error {
	tokens, err := api.Tokens(ctx)
	if err != nil {
		return err
	}
	return a.print(listOf(tokens), func(w io.Writer, _ bool) {
		if len(tokens) == 0 {
			fmt.Fprintln(a.Err, "no token has a name yet: gpupool tokens create --role tenant --tenant NAME")
			return
		}
		var rows [][]string
		for _, t := range tokens {
			rows = append(rows, []string{t.ID, t.Name, roleOf(t), t.Tenant, ago(t.Created) + " ago", ends(t), used(t.LastUsed)})
		}
		tabs(w, []string{"TOKEN", "NAME", "ROLE", "TENANT", "MADE", "EXPIRES", "LAST USED"}, rows)
	})
}

func roleOf(t apitype.TokenInfo) string {
	if t.ReadOnly {
		return t.Role + ", reads only"
	}
	return t.Role
}

func ends(t apitype.TokenInfo) string {
	switch {
	case t.Expires == nil:
		return "never"
	case t.Expired:
		return "expired " + ago(*t.Expires) + " ago"
	}
	return "in " + span(time.Until(*t.Expires))
}

func used(at *time.Time) string {
	if at == nil {
		return ""
	}
	return ago(*at) + " ago"
}

func (a *App) tokenCreate() *cobra.Command {
	var spec apitype.TokenSpec
	c := &cobra.Command{
		Use: "create", Short: "Make a token; it is shown this once", Args: cobra.NoArgs,
		RunE: a.call(func(ctx context.Context, api *client.Client, _ []string) error {
			s := spec
			var err error
			if s.ExpiresIn, err = days(s.ExpiresIn); err != nil {
				return err
			}
			t, err := api.MakeToken(ctx, s)
			if err != nil {
				return err
			}
			return a.showToken(t)
		}),
	}
	f := c.Flags()
	f.StringVar(&spec.Role, "role", "tenant", "viewer (reads), tenant (also submits), operator (acts for all tenants and on pools) or admin")
	f.StringVar(&spec.Tenant, "tenant", "", "whose; a viewer without one sees every tenant")
	f.StringVar(&spec.Name, "name", "", "what it is for")
	f.BoolVar(&spec.ReadOnly, "read-only", false, "it may write nothing")
	f.StringVar(&spec.ExpiresIn, "expires", "90d", "when it becomes worthless: 90d, 12h or never")
	_ = c.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]string{"viewer", "tenant", "operator", "admin"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (a *App) tokenRotate() *cobra.Command {
	var r apitype.Rotation
	c := &cobra.Command{
		Use: "rotate ID", Short: "Replace a token; the one before counts for a while", Args: cobra.ExactArgs(1),
		Long: `Replaces what a token is shown as, and keeps its ID, rights and name. The ID admin is the
admin token in the server's data folder, whose file is written anew.`,
		RunE: a.call(func(ctx context.Context, api *client.Client, args []string) error {
			s := r
			var err error
			if s.ExpiresIn, err = days(s.ExpiresIn); err != nil {
				return err
			}
			if s.Overlap, err = days(s.Overlap); err != nil {
				return err
			}
			t, err := api.RotateToken(ctx, args[0], s)
			if err != nil {
				return err
			}
			return a.showToken(t)
		}),
	}
	c.Flags().StringVar(&r.Overlap, "overlap", "24h", "how long the one before still counts")
	c.Flags().StringVar(&r.ExpiresIn, "expires", "", "when the new one becomes worthless (default: after as long as it had at first)")
	return c
}

func (a *App) showToken(t apitype.NewToken) error {
	return a.print(t, func(w io.Writer, _ bool) {
		fmt.Fprintln(w, t.Token)
		fmt.Fprintf(a.Err, "%s, which expires %s; it is not shown again. Use: export GPUPOOL_TOKEN=…\n", tokenWords(t.TokenInfo), ends(t.TokenInfo))
		if t.OldUntil != nil {
			fmt.Fprintf(a.Err, "the one before counts until %s\n", t.OldUntil.Format(time.RFC3339))
		}
	})
}

// days reads 90d, and leaves the rest to the server.
func days(text string) (string, error) {
	n, is := strings.CutSuffix(text, "d")
	if !is {
		return text, nil
	}
	d, err := strconv.ParseFloat(n, 64)
	if err != nil || d < 0 || d > 3650 {
		return "", usagef("%q is not understood: expected a time such as 90d, 12h or never", text)
	}
	return (time.Duration(d * 24 * float64(time.Hour))).String(), nil
}

// tokenFact is the fact that a token is set, as far as it is told.
type tokenFact struct {
	Token apitype.TokenInfo `json:"token"`
}

// tokenWords names a token.
func tokenWords(t apitype.TokenInfo) string {
	s := "token " + t.ID
	if t.Name != "" {
		s += " (" + t.Name + ")"
	}
	switch {
	case t.Role == "tenant":
		return s + " of tenant " + t.Tenant
	case t.Tenant != "":
		return s + " of a " + t.Role + " of tenant " + t.Tenant
	case t.Role == "viewer":
		return s + " of a viewer"
	}
	return s + " of an " + t.Role
}
