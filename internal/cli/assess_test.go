package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/assess"
)

// readings is a file of two GPUs: a notebook idles for an hour and works for one; a GPU is free.
func readings(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("time,gpu,utilisation,memory_used_mib,model,host,pod,namespace\n")
	at := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	for i := range 24 {
		use := 0
		if i >= 12 {
			use = 90
		}
		when := at.Add(time.Duration(i) * 5 * time.Minute).Format(time.RFC3339)
		fmt.Fprintf(&b, "%s,a,%d,40000,H100-80GB,n1,nb,vision\n%s,b,0,0,H100-80GB,n1,,\n", when, use, when)
	}
	path := filepath.Join(t.TempDir(), "readings.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAssessCSV(t *testing.T) {
	path := readings(t)
	page := filepath.Join(t.TempDir(), "page.html")
	out, errs, code := assessed(t, "--csv", path, "--price", "2", "--html", page)
	if code != 0 {
		t.Fatal(errs)
	}
	for _, want := range []string{"2 GPUs on one host", "a reading every 5m", "50.0 % was unallocated, 25.0 % was allocated and idle, 25.0 % was in use", "vision", "note: "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if b, err := os.ReadFile(page); err != nil || !strings.Contains(string(b), "GPUs needed, by each means") {
		t.Errorf("the page: %v", err)
	}
	out, _, _ = assessed(t, "--csv", path, "-o", "json", "--step", "10m")
	var r assess.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Step != "10m" || r.Hours.All != 4 || r.Hours.Idle != 1 {
		t.Errorf("%v: %+v", err, r)
	}
}

func TestAssessUsage(t *testing.T) {
	path := readings(t)
	for _, x := range []struct {
		args string
		want string
	}{
		{"", "nothing to read"},
		{"--prometheus http://p --csv " + path, "not both"},
		{"--csv " + path + " --token-file x", "are for a Prometheus"},
		{"--csv " + path + " --days 0", "0 days is out of range"},
		{"--prometheus http://p --step 0s", "a step of 0s is out of range"},
		{"--prometheus http://p --idle-below 100", "idle below 100 % is out of range"},
		{"--prometheus http://p --price -1", "a price of -1 is out of range"},
		{"--prometheus http://p --end yesterday", "--end: expected a time"},
	} {
		if _, errs, code := assessed(t, strings.Fields(x.args)...); code != exitUsage || !strings.Contains(errs, x.want) {
			t.Errorf("%q: exit code %d, %s; want %q", x.args, code, errs, x.want)
		}
	}
	if _, errs, code := assessed(t, "--csv", "/nowhere/readings.csv"); code != exitFailure || !strings.Contains(errs, "cannot be read") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}
