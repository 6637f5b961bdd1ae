package sim

import (
	"fmt"
	"math"
	"time"
)

// Row is one line of the two columns, in people's words.
type Row struct{ Name, Static, Pooled string }

// Rows lists the numbers that a reader looks for, in order.
func (c *Comparison) Rows() []Row {
	var out []Row
	add := func(name string, f func(Column) string) { out = append(out, Row{name, f(c.Static), f(c.Pooled)}) }
	count := func(n int) string { return fmt.Sprint(n) }
	add("tasks", func(x Column) string { return count(x.Tasks) })
	add("finished", func(x Column) string { return count(x.Finished) })
	for _, some := range []struct {
		name string
		get  func(Column) int
	}{
		{"rejected", func(x Column) int { return x.Rejected }}, {"expired", func(x Column) int { return x.Expired }},
		{"failed", func(x Column) int { return x.Failed }}, {"still waiting", func(x Column) int { return x.Waiting }},
		{"still running", func(x Column) int { return x.Running }}, {"preemptions", func(x Column) int { return x.Preemptions }},
		{"resizes", func(x Column) int { return x.Resizes }},
	} {
		if some.get(c.Static)+some.get(c.Pooled) > 0 {
			add(some.name, func(x Column) string { return count(some.get(x)) })
		}
	}
	add("GPUs in the cluster", func(x Column) string { return count(x.GPUs) })
	add("GPUs in use, peak", func(x Column) string { return count(x.GPUsPeak) })
	add("GPUs in use, mean", func(x Column) string { return fmt.Sprintf("%.1f", x.GPUsMean) })
	add("GPU hours held", func(x Column) string { return fmt.Sprintf("%.0f", x.HoursHeld) })
	add("GPU hours used by requests", func(x Column) string { return fmt.Sprintf("%.0f", x.HoursUsed) })
	add("idle share of held", func(x Column) string { return fmt.Sprintf("%.1f %%", 100*x.IdleFraction) })
	add("wait, mean", func(x Column) string { return Seconds(x.WaitMean) })
	add("wait, median", func(x Column) string { return Seconds(x.WaitP50) })
	add("wait, 95th percentile", func(x Column) string { return Seconds(x.WaitP95) })
	add("wait, 99th percentile", func(x Column) string { return Seconds(x.WaitP99) })
	add("start-up, mean", func(x Column) string { return Seconds(x.StartupMean) })
	add("submission to end, mean", func(x Column) string { return Seconds(x.JCTMean) })
	return out
}

// Seconds writes a number of seconds as people read it.
func Seconds(s float64) string {
	switch {
	case s == 0:
		return "0 s"
	case s < 10:
		return fmt.Sprintf("%.2g s", s)
	case s < 600:
		return fmt.Sprintf("%.0f s", s)
	case s < 5400:
		return fmt.Sprintf("%.0f min", s/60)
	}
	d := time.Duration(math.Round(s)) * time.Second
	switch {
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
	}
}
