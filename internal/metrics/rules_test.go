package metrics

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/gpupool/gpupool/internal/engine"
)

const rulesDir = "../../deploy/prometheus/"

// promtool runs Debian's promtool, where there is one; with CI set it must be there.
func promtool(t *testing.T, stdin string, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	switch {
	case err != nil && os.Getenv("CI") != "":
		t.Fatal("promtool is missing: make prometheus installs it")
	case err != nil:
		t.Skip("promtool is missing: make prometheus installs it")
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Dir = rulesDir
	if out, err := cmd.CombinedOutput(); err != nil || bytes.Contains(out, []byte("FAILED")) {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestPromtool(t *testing.T) {
	t.Run("config", func(t *testing.T) { promtool(t, "", "check", "config", "prometheus.example.yml") })
	t.Run("check rules", func(t *testing.T) { promtool(t, "", "check", "rules", "gpupool.rules.yml") })
	t.Run("test rules", func(t *testing.T) { promtool(t, "", "test", "rules", "gpupool.rules.test.yml") })
	t.Run("metrics", func(t *testing.T) {
		w := newWorld(t, 8, 8, 1)
		w.submit(spec(0, "1"))
		w.answer(all)
		w.exit(1, 0)
		w.tell(engine.Cancel{Task: 1, By: "ann"})
		w.show(0.5)
		promtool(t, w.m.scrape(t, ""), "check", "metrics")
	})
}

// Every alert has a runbook and a test that sees it fire, and rules name no metric that is not there.
func TestRulesAreWhole(t *testing.T) {
	rules, tests, books := read(t, rulesDir+"gpupool.rules.yml"), read(t, rulesDir+"gpupool.rules.test.yml"), read(t, "../../docs/runbooks.md")
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(rules, -1)
	if len(alerts) < 10 {
		t.Errorf("only %d alerts were found", len(alerts))
	}
	for _, a := range alerts {
		if !strings.Contains(books, "\n## "+a[1]+"\n") {
			t.Errorf("docs/runbooks.md says nothing about %s", a[1])
		}
		if !strings.Contains(rules, "docs/runbooks.md#"+strings.ToLower(a[1])+"\n") {
			t.Errorf("%s does not lead to its runbook", a[1])
		}
		if !regexp.MustCompile(`alertname: `+a[1]+`\n\s+eval_time: \w+\n\s+exp_alerts:\n`).MatchString(tests) || !regexp.MustCompile(`alertname: `+a[1]+`, eval_time: \w+, exp_alerts: \[\]`).MatchString(tests) {
			t.Errorf("no test sees %s fire and be quiet", a[1])
		}
	}
	known := map[string]bool{}
	for _, d := range New(Options{}).Defs() {
		known[d.Name] = true
	}
	for _, text := range []string{rules, books} {
		for _, name := range regexp.MustCompile(`\bgpupool_[a-z0-9_]+\b`).FindAllString(text, -1) {
			base := name
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				base = strings.TrimSuffix(base, suffix)
			}
			if !known[name] && !known[base] {
				t.Errorf("there is no metric %s", name)
			}
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
