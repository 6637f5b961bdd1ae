package storm

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gpupool/gpupool/internal/work"
)

// specLine says a submission.
func specLine(s work.Spec, now work.Time) string {
	r := s.Request
	line := s.Tenant + given("gpus", gpusWord(r)) + given("isolation", string(r.Isolation)) + number("members", float64(r.Members)) +
		number("cpu", float64(r.CPUMilli)/1000) + given("pool", s.Pool) + given("priority", s.Priority.String()) +
		lasting("ttl", s.TTL) + lasting("lease", s.LeaseTTL) + given("key", s.Key) + given("name", s.Name) + given("class", string(s.Class)) +
		lasting("max-runtime", s.MaxRuntime) + lasting("estimate", s.Estimate) + lasting("checkpoint", s.Checkpoint) +
		list("after", s.After) + list("after-any", s.AfterAny) + arg("hold", s.Hold) + given("on-idle", string(s.OnIdle)) +
		given("on-resize", string(s.OnResize)) + given("signal", s.Signal) + number("min", float64(s.MinMilli)) + number("max", float64(s.MaxMilli)) +
		arg("no-share", s.NoShare) + arg("no-preempt", s.NoPreempt)
	if s.Array != nil {
		line += " array=" + s.Array.String()
	}
	if s.Deadline != 0 {
		line += " deadline=" + s.Deadline.Sub(now).String()
	}
	return line
}

// gpusWord is a request as people write it; work.ParseGPUs reads it.
func gpusWord(r work.Request) string {
	var w string
	switch {
	case r.GPUs > 0:
		w = strconv.Itoa(r.GPUs)
	case r.Milli > 0:
		w = strconv.FormatFloat(float64(r.Milli)/1000, 'g', -1, 64)
	case r.GPUMemMiB > 0:
		w = work.FormatMiB(r.GPUMemMiB)
	default:
		w = r.Profile
	}
	if len(r.Models) > 0 {
		w += ":" + strings.Join(r.Models, "|")
	}
	return w
}

func tenantLine(t work.Tenant) string {
	return "tenant " + t.Name + number("limit", t.LimitGPUs) + number("guarantee", t.GuaranteeGPUs) + number("weight", t.Weight) +
		number("max-waiting", float64(t.MaxWaiting)) + number("max-running", float64(t.MaxRunning))
}

// poolLine says a pool with its rules.
func poolLine(p work.Pool) string {
	line := p.Name + list("hosts", p.Hosts) + given("mode", string(p.Mode)) + lasting("ttl", p.TTL)
	if p.Weight != nil {
		line += fmt.Sprintf(" weight=%g", *p.Weight)
	}
	line += number("capacity", float64(p.Capacity)) + number("back-pressure", p.BackPressure) + number("ask-at", float64(p.AskAt)) +
		list("borrow-from", p.BorrowFrom) + lasting("scale-out-every", p.ScaleOutEvery) + number("reserve", p.ReserveGPUs) +
		lasting("min-runtime", p.MinRuntime) + number("preempt-per-hour", float64(p.PreemptPerHour))
	x := p.Elastic
	var onIdle, after []string
	for _, c := range slices.Sorted(maps.Keys(x.OnIdle)) {
		onIdle = append(onIdle, fmt.Sprint(c, ":", x.OnIdle[c]))
	}
	for _, c := range slices.Sorted(maps.Keys(x.After)) {
		after = append(after, fmt.Sprint(c, ":", x.After[c]))
	}
	line += list("on-idle", onIdle) + list("after", after) + lasting("cooldown", x.Cooldown) + lasting("warn", x.Warn) + number("per-task", float64(x.PerTask))
	return line + list("guard", guardWords(x.Guard))
}

func guardWords(g work.Guard) (out []string) {
	if g.Window != 0 {
		out = append(out, "window:"+g.Window.String())
	}
	for _, x := range []struct {
		name string
		v    float64
	}{{"moves", g.Moves}, {"failed", g.FailedMoves}, {"carves", float64(g.Carves)}, {"slowdown", g.Slowdown}} {
		if x.v != 0 {
			out = append(out, fmt.Sprintf("%s:%g", x.name, x.v))
		}
	}
	return out
}
