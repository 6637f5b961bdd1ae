package assess

import (
	"fmt"
	"strconv"
	"time"
)

// Table is a table for people, with what its figures mean.
type Table struct {
	Title string
	Head  []string
	Rows  [][]string
	Means string
}

// Title says what was looked at.
func (x *Result) Title() string {
	hosts := ""
	switch {
	case x.Hosts == 1:
		hosts = " on one host"
	case x.Hosts > 1:
		hosts = fmt.Sprintf(" on %d hosts", x.Hosts)
	}
	return fmt.Sprintf("%d GPUs%s, %s to %s UTC (%s), a reading every %s, from %s", x.GPUs, hosts,
		x.From.Format("2006-01-02 15:04"), x.To.Format("2006-01-02 15:04"), lengthOf(x.To.Sub(x.From)), x.Step, x.Source)
}

// Sentences say what was found.
func (x *Result) Sentences() []string {
	h := x.Hours
	known := h.All - h.NoData
	var out []string
	if x.Holders {
		out = append(out, fmt.Sprintf("Of the GPU time with samples %s was unallocated, %s was allocated and idle, %s was in use%s.", percent(h.Free, known), percent(h.Idle, known), percent(h.Busy+h.Stray, known), also(h.Unknown, known, "allocated with an unknown use")))
	} else {
		out = append(out, fmt.Sprintf("Of the GPU time with samples %s was idle and %s in use%s. Who held the GPUs is not known.", percent(h.Idle, known), percent(h.Busy, known), also(h.Unknown, known, "unknown")))
	}
	if known := h.Idle + h.Busy; x.Holders && known > 0 {
		out = append(out, fmt.Sprintf("While a GPU was allocated and its use known, it was idle for %s of the time.", percent(h.Idle, known)))
	}
	least, most := x.Needed()
	out = append(out, fmt.Sprintf("The same work would have needed %s of the %d GPUs%s. The lower figure parks what idles as soon as that pays and is enough for 99 %% of the time; the upper one waits for the longer idle time and is the most at any time.",
		between(least, most), x.GPUs, fewer(least, most, x.GPUs)))
	if p := x.Parking; p != nil {
		out = append(out, fmt.Sprintf("By parking alone gpupool's own shadow (docs/modes.md) would have said %d GPUs, so that 90 %% of %d wakes find one at once on their host, in %d moves; a resume takes %s in the mean. "+
			"No class of a task is known here, so every pod counts as one that may be parked.", p.GPUs, p.Wakes, p.Parks, p.Wait))
	}
	if m := x.Money; m != nil {
		out = append(out, fmt.Sprintf("At %.2f %s a GPU hour, what was allocated and idle cost %.2f %s in this time, and what nobody had %.2f %s. As many GPUs fewer are worth %.0f to %.0f %s a month.",
			m.Price, m.Currency, m.Idle, m.Currency, m.Free, m.Currency, m.Monthly[0], m.Monthly[1], m.Currency))
	}
	return out
}

func also(part, all float64, what string) string {
	if part == 0 {
		return ""
	}
	return fmt.Sprintf(", %s was %s", percent(part, all), what)
}

func between(a, b int) string {
	if a == b {
		return strconv.Itoa(a)
	}
	return fmt.Sprintf("%d to %d", a, b)
}

func fewer(least, most, of int) string {
	low, high := percent(float64(of-most), float64(of)), percent(float64(of-least), float64(of))
	if low == high {
		return ": " + low + " fewer"
	}
	return fmt.Sprintf(": %s to %s fewer", low, high)
}

func percent(x, of float64) string {
	if of <= 0 {
		return "unknown"
	}
	return fmt.Sprintf("%.1f %%", 100*x/of)
}

func hours(h float64) string { return strconv.FormatFloat(h, 'f', 1, 64) }

// Tables are the figures.
func (x *Result) Tables() []Table {
	out := []Table{x.needTable(), x.hourTable()}
	if len(x.Namespaces) > 0 && x.Holders {
		out = append(out, x.namespaceTable())
	}
	if len(x.Longest) > 0 {
		out = append(out, x.longestTable())
	}
	return append(out, x.useTable(), x.modelTable())
}

func (x *Result) needTable() Table {
	t := Table{Title: "GPUs that the same work needs, by each means and all above it",
		Head: []string{"MEANS", "99 % OF THE TIME", "MOST", "MEAN", "PODS", "CAUTIOUS: 99 %", "MOST", "MEAN", "PODS"},
		Means: "A pod is under one means at most, so nothing counts twice. Pods are packed by the real geometry: whole GPUs of one pod on one host, MIG slices where they are legal, the largest first; a better packing may do with less. " +
			"Models are apart and their figures added up. Parked: after suspend and resume have been paid for by idling (1 s and the GPU memory at 9.6 GiB/s, each way), or cautiously after the longer idle time; it holds its GPUs while it is suspended and resumed. " +
			"Slices and shares: its use (the most of a reading, in 95 % of those in which it used the GPU) stays under 70 % of what it gets, with a quarter more memory than it ever had; what would be parked for most of the time stays whole. A means that would need more is not used."}
	for _, m := range x.Means {
		row := []string{m.Name}
		for _, n := range []Needed{m.Soon, m.Cautious} {
			pods := ""
			if m.Name != "installed" && m.Name != "held now" {
				pods = strconv.Itoa(n.Pods)
			}
			row = append(row, strconv.Itoa(n.P99), strconv.Itoa(n.Most), hours(n.Mean), pods)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func (x *Result) hourTable() Table {
	h := x.Hours
	t := Table{Title: "GPU hours", Head: []string{"", "GPU HOURS", "SHARE"},
		Means: fmt.Sprintf("Allocated: a pod or job had the GPU. Idle: no sample of its use at or over %.3g %% for %s. No data: no sample at all, which is neither idle nor free. A MIG instance counts with its share of the compute.", 100*x.IdleBelow, x.IdleFor)}
	for _, r := range []struct {
		name string
		h    float64
		show bool
	}{
		{"in all", h.All, true}, {"no data", h.NoData, h.NoData > 0}, {"unallocated", h.Free, x.Holders}, {"used, and held by no pod", h.Stray, h.Stray > 0}, {"allocated", h.Held, x.Holders},
		{"  idle", h.Idle, true}, {"  in use", h.Busy, true}, {"  use unknown", h.Unknown, h.Unknown > 0},
	} {
		if r.show {
			t.Rows = append(t.Rows, []string{r.name, hours(r.h), percent(r.h, h.All)})
		}
	}
	for _, s := range x.IdleSpans {
		if s.Spans > 0 {
			t.Rows = append(t.Rows, []string{"  idle, at a stretch of " + s.Least + " or more", hours(s.Hours), percent(s.Hours, h.All)})
		}
	}
	t.Means += " Stretches are counted under the longest bound that they reach."
	return t
}

func (x *Result) namespaceTable() Table {
	t := Table{Title: "Who holds idle GPUs", Head: []string{"NAMESPACE", "ALLOCATED GPU-H", "IDLE GPU-H", "IDLE", "USE UNKNOWN", "LONGEST IDLE"},
		Means: "Idle shares are of the time that was measured."}
	for _, n := range x.Namespaces {
		name := n.Name
		if name == "" {
			name = "(none)"
		}
		t.Rows = append(t.Rows, []string{name, hours(n.Held), hours(n.Idle), percent(n.Idle, n.Held-n.Unknown), percent(n.Unknown, n.Held), n.Longest})
	}
	return t
}

func (x *Result) longestTable() Table {
	t := Table{Title: "Longest idle", Head: []string{"POD", "NAMESPACE", "GPUS", "IDLE FOR", "SINCE (UTC)", "MEMORY"}, Means: "The longest stretch of each on one of its GPUs. Memory: the most it was seen to have on one."}
	for _, h := range x.Longest {
		mem := "unknown"
		if h.MemoryMiB >= 0 {
			mem = fmt.Sprintf("%.1f GiB", float64(h.MemoryMiB)/1024)
		}
		t.Rows = append(t.Rows, []string{h.Pod, h.Namespace, strconv.Itoa(h.GPUs), h.For, h.Since.Format("2006-01-02 15:04"), mem})
	}
	return t
}

func (x *Result) useTable() Table {
	t := Table{Title: "Use while allocated", Head: []string{"", "MEAN", "MEDIAN", "P90", "P95", "P99"},
		Means: "Over all readings of GPUs that someone held, in whole per cent, rounded up. Memory is a share of the GPU's, where both are known."}
	for _, r := range []struct {
		name string
		q    *Quantiles
	}{{"compute", x.Use}, {"memory", x.Memory}} {
		row := []string{r.name, "unknown", "unknown", "unknown", "unknown", "unknown"}
		if q := r.q; q != nil {
			row = []string{r.name, percent(q.Mean, 1), percent(q.P50, 1), percent(q.P90, 1), percent(q.P95, 1), percent(q.P99, 1)}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func (x *Result) modelTable() Table {
	t := Table{Title: "Models", Head: []string{"MODEL", "GPUS", "IN A HOST", "MIG", "WITH PROFILING METRICS"}, Means: "Metrics read: " + join(x.Metrics) + ". Where there are profiling metrics they count, else the coarser GPU_UTIL."}
	for _, m := range x.Models {
		mig := "no"
		if m.MIG {
			mig = "yes"
		}
		t.Rows = append(t.Rows, []string{m.Name, strconv.Itoa(m.GPUs), strconv.Itoa(m.PerHost), mig, strconv.Itoa(m.Profiled)})
	}
	return t
}

func join(names []string) (s string) {
	for i, n := range names {
		if i > 0 {
			s += ", "
		}
		s += n
	}
	return s
}

// lengthOf writes a time with the units it needs.
func lengthOf(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d > day && d%day > 0:
		return fmt.Sprintf("%dd%02dh", d/day, d%day/time.Hour)
	case d >= day:
		return fmt.Sprintf("%dd", d/day)
	case d > time.Hour && d%time.Hour > 0:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= time.Minute && d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}
