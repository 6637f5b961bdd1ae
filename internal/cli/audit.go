package cli

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
)

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
	if err := w.Write([]string{"at", "request", "operation", "method", "path", "object", "by", "name", "how", "role", "tenant", "from", "forwarded", "status", "code", "took_ms", "omitted"}); err != nil {
		return err
	}
	for e, err := range entries {
		if err != nil {
			w.Flush()
			return err
		}
		row := []string{e.At.Format(time.RFC3339Nano), e.Request, e.Operation, e.Method, e.Path, e.Object, e.By, e.Name, e.How, e.Role, e.Tenant, e.From, e.Forwarded, fmt.Sprint(e.Status), e.Code, fmt.Sprint(e.TookMS), fmt.Sprint(e.Omitted)}
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
