package cli

import (
	"strings"
	"testing"

	"github.com/gpupool/gpupool/internal/loadtest"
)

func TestLoadtestRefuses(t *testing.T) {
	for _, args := range []string{"--scenario burst", "--shapes odd", "--clients 0", "--clients 1000000", "--duration 0s", "--duration -1s", "--bound 0s", "--qps 0", "--qps NaN",
		"--queries 0", "--soak -1", "--soak 10 --keep", "--soak 10 --run", "more"} {
		if code, _, errs := runApp(t.Context(), append([]string{"loadtest"}, strings.Fields(args)...)...); code != exitUsage {
			t.Errorf("loadtest %s: exit code %d, %s", args, code, errs)
		}
	}
	if code, _, errs := runApp(t.Context(), "loadtest", "--server", "http://127.0.0.1:1", "--token", "x", "--duration", "1s"); code != exitFailure || !strings.Contains(errs, "127.0.0.1:1") {
		t.Errorf("without a server: exit code %d, %s", code, errs)
	}
}

func TestLoadPage(t *testing.T) {
	var b strings.Builder
	pageText(&b, loadPage(&loadtest.Result{Scenario: loadtest.Server, PerS: 1234.5, Acked: 10, Refused: 2, QPS: 100, BoundMS: 50, Late: 3, FirstNo: "the queue is full", Scaled: 4,
		Latency: loadtest.Latency{P50: 1, P99: 2.5}, Verdict: loadtest.Verdict{Why: []string{"too slow", "too short"}},
		Soak: &loadtest.Soak{Tasks: 100, Points: []loadtest.Point{{Tasks: 50, S: 1, RSSMiB: 64}}, Growth: 0.02, Flat: true}}, false))
	for _, want := range []string{"1234", "2.50 ms", "INVALID: too slow; too short", "over the bound of 50.00 ms", "the queue is full", "4 shapes were cut", "64 MiB", "memory is flat", "MLPerf's rules"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("nothing of %q in\n%s", want, b.String())
		}
	}
}
