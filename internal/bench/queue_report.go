package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/gpupool/gpupool/internal/sheet"
	"github.com/gpupool/gpupool/internal/sim"
)

// Page shows the runs and which targets were met; wide, with more columns.
func (r *QueueResult) Page(wide bool) Page {
	p := Page{
		Title: "Waiting under six policies",
		Intro: fmt.Sprintf("The same tasks on the same cluster, through the same engine and start-up costs, under six orders of the queue. Clusters have hosts of %s, as many as bring the demand for GPUs to a share of them. Nothing is dropped. Trace: %s, seed %d.",
			strings.Replace(queueHostType, "x", " × ", 1), r.Trace, r.Seed),
		Head:  []string{"trace", "demand", "GPUs"},
		Notes: r.Notes, WallS: r.WallS,
	}
	goals := queueGoals()
	wanted := []string{"wanted", "", ""}
	for i := range goals {
		p.Head = append(p.Head, goals[i].head)
		wanted = append(wanted, goals[i].wanted())
	}
	p.Rows = append(p.Rows, wanted)
	of := 0
	var missed, order []string
	for i := range r.Runs {
		run := &r.Runs[i]
		row := []string{run.Trace, fmt.Sprintf("%g", run.Demand), fmt.Sprint(run.GPUs)}
		for _, g := range goals {
			cell := "-"
			if x := g.value(run); x != nil {
				if cell = g.text(*x); g.short(*x) > 0 {
					cell += " missed"
				}
			}
			row = append(row, cell)
		}
		p.Rows = append(p.Rows, row)
		missed = append(missed, run.misses()...)
		if x := run.MeanBelowBackfill; x != nil {
			order = append(order, fmt.Sprintf("%s at %g: %.1f %%", run.Trace, run.Demand, 100**x))
		}
		of += len(run.Met)
		p.Sections = append(p.Sections, run.section(wide))
	}
	last := append([]string{fmt.Sprintf("targets met: %d of %d", of-len(missed), of)}, missed...)
	if len(order) > 0 {
		last = append(last, "what the order alone gains, mean below fifo-backfill (less than 0: it loses):")
		for chunk := range slices.Chunk(order, 3) {
			last = append(last, "  "+strings.Join(chunk, ", "))
		}
	}
	p.Last = strings.Join(last, "\n")
	return p
}

// section shows a run.
func (r *QueueRun) section(wide bool) Section {
	demand := fmt.Sprintf("%g", r.Demand)
	if math.Abs(r.Offered-r.Demand) > 0.005 {
		demand += fmt.Sprintf(" (%.3f with whole hosts)", r.Offered)
	}
	s := Section{
		Title: fmt.Sprintf("%s at demand %s: %d GPUs, %d hosts of %s, %d tasks", r.Trace, demand, r.GPUs, r.Hosts, queueHostType, r.Tasks),
		Draw:  r.chart,
	}
	for _, c := range queueColumns() {
		if c.wide && !wide {
			continue
		}
		s.Head = append(s.Head, c.name)
		for i := range r.Policies {
			if len(s.Rows) <= i {
				s.Rows = append(s.Rows, nil)
			}
			s.Rows[i] = append(s.Rows[i], c.cell(&r.Policies[i]))
		}
	}
	return s
}

// queueColumn is a column of a run's table; a wide one is shown only on demand.
type queueColumn struct {
	name string
	wide bool
	cell func(p *QueuePolicy) string
}

func queueColumns() []queueColumn {
	return []queueColumn{
		{"policy", false, func(p *QueuePolicy) string { return p.Name }},
		{"mean wait", false, func(p *QueuePolicy) string { return sim.Seconds(p.WaitMean) }},
		{"median", false, func(p *QueuePolicy) string { return sim.Seconds(p.WaitP50) }},
		{"p99", false, func(p *QueuePolicy) string { return sim.Seconds(p.WaitP99) }},
		{"longest", false, func(p *QueuePolicy) string { return sim.Seconds(p.WaitMax) }},
		{"slowdown", false, func(p *QueuePolicy) string { return fmt.Sprintf("%.1f", p.SlowdownMean) }},
		{"its p99", true, func(p *QueuePolicy) string { return fmt.Sprintf("%.1f", p.SlowdownP99) }},
		{"mean to end", true, func(p *QueuePolicy) string { return sim.Seconds(p.JCTMean) }},
		{"starved", false, func(p *QueuePolicy) string { return fmt.Sprint(p.Starved) }},
		{"within p90", false, func(p *QueuePolicy) string {
			if p.Coverage == nil {
				return "-"
			}
			return fmt.Sprintf("%.1f %%", 100**p.Coverage)
		}},
		{"preempted", false, func(p *QueuePolicy) string { return fmt.Sprint(p.Preemptions) }},
		{"ran", true, func(p *QueuePolicy) string { return fmt.Sprintf("%.1f s", p.WallS) }},
	}
}

// chart draws the distribution of waits under each policy, by colour and dashes.
func (r *QueueRun) chart() (sheet.Chart, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "wait (a second at least)", "share of tasks that waited no longer"
	p.X.Scale = plot.LogScale{}
	p.X.Tick.Marker = plot.ConstantTicks{{Value: 1, Label: "1 s"}, {Value: 10, Label: "10 s"}, {Value: 60, Label: "1 min"}, {Value: 600, Label: "10 min"},
		{Value: 3600, Label: "1 h"}, {Value: 21600, Label: "6 h"}, {Value: 86400, Label: "1 d"}, {Value: 604800, Label: "7 d"}, {Value: 2592000, Label: "30 d"}}
	p.Add(plotter.NewGrid())
	for i, x := range r.Policies {
		line, err := plotter.NewLine(waitCurve(x.waits))
		if err != nil {
			return sheet.Chart{}, err
		}
		line.StepStyle, line.Color, line.Dashes, line.Width = plotter.PostStep, plotutil.Color(i), plotutil.Dashes(i), vg.Points(1.4)
		if x.Name == policyOurs {
			line.Width *= 2
		}
		p.Add(line)
		p.Legend.Add(x.Name, line)
	}
	p.X.Min, p.X.Max = 1, max(p.X.Max, 60)
	p.Y.Min, p.Y.Max = 0, 1
	return sheet.Draw("Distribution of waits: "+r.Trace+fmt.Sprintf(" at a demand of %g", r.Demand), p, sheet.Height)
}

// waitCurve is the cumulative distribution of sorted waits, the last hundredth in finer steps.
func waitCurve(sorted []float64) plotter.XYs {
	var out plotter.XYs
	add := func(q float64) {
		if n := len(sorted); n > 0 {
			out = append(out, plotter.XY{X: max(sorted[min(max(int(math.Ceil(q*float64(n)))-1, 0), n-1)], 1), Y: q})
		}
	}
	for i := range 198 {
		add(float64(i) / 200)
	}
	for i := range 101 {
		add(0.99 + float64(i)/10000)
	}
	return out
}

// queueNotes says what a reader must know to take the numbers for what they are.
func queueNotes(plans []*queuePlan) []string {
	out := []string{
		"demand: GPUs asked for times how long they are asked for, over the time from the first submission to the last, as a share of the cluster's GPUs; work is not even, so a line forms below a demand of 1, and what is left after the last submission is run to its end",
		"a wait is all the time that a task is in line, also after a preemption; slowdown is the time from submission to the end over what the task runs, or over 10 s where that is more",
		fmt.Sprintf("starved: waited more than %d times fifo's 99th percentile of the same run", starvedAfter),
		"within p90: of the finished tasks whose length was predicted when they came, the share that ended within the 90th percentile that was said; 90 % is right",
		"TTL, back-pressure and limits are off: every task finishes under every policy; all run pooled",
	}
	for _, p := range queuePolicies() {
		out = append(out, p.name+": "+p.what)
	}
	said := map[string]bool{}
	once := func(s string) {
		if s != "" && !said[s] {
			said[s] = true
			out = append(out, s)
		}
	}
	for _, p := range plans {
		name := p.trace.Name
		if p.trace.Synthetic != "" {
			once(name + ": synthetic: " + p.trace.Synthetic)
		}
		switch {
		case strings.HasPrefix(p.trace.Source, "Microsoft ITP"):
			once(name + ": ITP has no users; its clusters are the tenants")
		case strings.HasPrefix(p.trace.Source, "Microsoft Philly"):
			once(name + ": its virtual clusters are the tenants")
		}
		for _, x := range p.trace.Skipped {
			once(name + ": " + x.String())
		}
	}
	return out
}
