// Package prometheus holds the recording rules and alerts for Prometheus, so that gpupool
// can print them with a site's own times.
//
// They are one text; nothing grows with the cluster.
package prometheus

import (
	_ "embed"
	"fmt"
	"strings"
	"time"
)

//go:embed gpupool.rules.yml
var rules string

// lowFor is the line that says how long utilisation must be low, in the text of the rules.
const lowFor = "        for: 5m # alerts.for\n"

// Rules are the rules as a file. They compare with the bounds that the server tells them;
// only how long a pool's utilisation must be low stands in the text.
func Rules(low time.Duration) string {
	return strings.Replace(rules, lowFor, "        for: "+duration(low)+" # alerts.for\n", 1)
}

// duration writes whole minutes where it can, else seconds, as Prometheus reads no fractions.
func duration(d time.Duration) string {
	if d%time.Minute == 0 {
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return fmt.Sprintf("%ds", (d+time.Second-1)/time.Second)
}
