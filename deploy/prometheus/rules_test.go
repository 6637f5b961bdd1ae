package prometheus

import (
	"strings"
	"testing"
	"time"
)

// TestRules changes the one line, and no other.
func TestRules(t *testing.T) {
	if strings.Count(rules, lowFor) != 1 {
		t.Fatalf("the line %q does not stand in gpupool.rules.yml once: alerts.for would change nothing", lowFor)
	}
	if Rules(5*time.Minute) != rules {
		t.Error("with the default the rules are not those of the file")
	}
	for d, want := range map[time.Duration]string{7 * time.Minute: "7m", 90 * time.Minute: "90m", 1500 * time.Millisecond: "2s", 0: "0m", time.Minute + time.Second: "61s"} {
		head, _, _ := strings.Cut(rules, lowFor)
		if got := Rules(d); !strings.HasPrefix(got, head+"        for: "+want+" # alerts.for\n") || len(got)-len(want) != len(rules)-len("5m") {
			t.Errorf("%s is not written as %s", d, want)
		}
	}
}
