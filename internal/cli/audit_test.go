package cli

import (
	"encoding/csv"
	"strings"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/api/apitype"
)

// TestAuditCSV: what a stranger wrote comes back as text, and to a spreadsheet is no formula.
func TestAuditCSV(t *testing.T) {
	var b strings.Builder
	e := apitype.AuditEntry{At: time.Unix(1e9, 0).UTC(), Path: `/v1/"a",b`, Name: "=cmd|' /C calc'!A0", Forwarded: "@x", Status: 403}
	if err := auditCSV(&b, func(yield func(apitype.AuditEntry, error) bool) { yield(e, nil) }); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
	if err != nil || len(rows) != 2 {
		t.Fatalf("%v in %q", err, b.String())
	}
	got := map[string]string{}
	for i, name := range rows[0] {
		got[name] = rows[1][i]
	}
	for name, want := range map[string]string{"path": e.Path, "name": "'" + e.Name, "forwarded": "'@x", "status": "403", "at": "2001-09-09T01:46:40Z"} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
}
