package sim

import (
	_ "embed" // the page's template
	"fmt"
	"image/color"
	"io"
	"math"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/gpupool/gpupool/internal/sheet"
)

//go:embed report.html
var reportHTML string

// WriteReport writes one self-contained HTML page about a comparison.
func (c *Comparison) WriteReport(w io.Writer) error {
	if c.static == nil || c.pooled == nil {
		return fmt.Errorf("a report needs a comparison that was run here")
	}
	page := struct {
		*Comparison
		Rows   []Row
		Charts []sheet.Chart
		Made   string
	}{Comparison: c, Rows: c.Rows(), Made: time.Now().UTC().Format("2006-01-02 15:04 MST")}
	for _, chartOf := range []func() (sheet.Chart, error){c.chartInUse, c.chartInLine, c.chartWaits} {
		x, err := chartOf()
		if err != nil {
			return fmt.Errorf("draw the report: %w", err)
		}
		page.Charts = append(page.Charts, x)
	}
	return sheet.Write(w, reportHTML, page)
}

func (c *Comparison) chartInUse() (sheet.Chart, error) {
	return c.overTime("GPUs in use over time", "GPUs with anything on them", c.static.InUse, c.pooled.InUse)
}

func (c *Comparison) chartInLine() (sheet.Chart, error) {
	return c.overTime("Tasks waiting over time", "tasks in line", c.static.InLine, c.pooled.InLine)
}

func (c *Comparison) overTime(title, y string, static, pooled []Point) (sheet.Chart, error) {
	unit, name := 24*time.Hour, "days"
	if c.VirtualS < 3*86400 {
		unit, name = time.Hour, "hours"
	}
	total := time.Duration(c.VirtualS * float64(time.Second))
	curve := func(ps []Point) plotter.XYs {
		thin := thinned(ps, total, 600)
		out := make(plotter.XYs, 0, len(thin)+1)
		for _, p := range thin {
			out = append(out, plotter.XY{X: float64(p.At) / float64(unit), Y: p.Value})
		}
		if n := len(out); n > 0 { // as it stayed
			out = append(out, plotter.XY{X: float64(total) / float64(unit), Y: out[n-1].Y})
		}
		return out
	}
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = name, y
	p.X.Min, p.X.Max, p.Y.Min = 0, float64(total)/float64(unit), 0
	p.Legend.Top = true
	return drawn(title, p, curve(static), curve(pooled), plotter.PostStep)
}

func (c *Comparison) chartWaits() (sheet.Chart, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "wait (a second at least)", "share of tasks that waited no longer"
	p.X.Scale = plot.LogScale{}
	p.X.Tick.Marker = plot.ConstantTicks{{Value: 1, Label: "1 s"}, {Value: 10, Label: "10 s"}, {Value: 60, Label: "1 min"},
		{Value: 600, Label: "10 min"}, {Value: 3600, Label: "1 h"}, {Value: 21600, Label: "6 h"}, {Value: 86400, Label: "1 d"}, {Value: 604800, Label: "7 d"}}
	p.X.Min, p.X.Max = 1, 10 // where nobody waited: an axis without length would begin at 0, which has no logarithm
	p.Y.Min, p.Y.Max = 0, 1
	return drawn("Distribution of waits", p, waitCurve(c.static.Waits), waitCurve(c.pooled.Waits), plotter.PostStep)
}

// waitCurve is the cumulative distribution at 200 quantiles.
func waitCurve(sorted []float64) plotter.XYs {
	const n = 200
	out := make(plotter.XYs, 0, n+1)
	for i := range n + 1 {
		q := float64(i) / n
		out = append(out, plotter.XY{X: math.Max(quantile(sorted, q), 1), Y: q})
	}
	return out
}

func drawn(title string, p *plot.Plot, static, pooled plotter.XYs, step plotter.StepKind) (sheet.Chart, error) {
	for _, l := range []struct {
		name   string
		points plotter.XYs
		colour color.Color
		dashes []vg.Length
	}{{"static", static, sheet.Static, sheet.StaticDashes()}, {"pooled", pooled, sheet.Pooled, nil}} {
		line, err := sheet.Line(p, l.name, l.points, l.colour, l.dashes)
		if err != nil {
			return sheet.Chart{}, err
		}
		line.StepStyle = step
	}
	p.Add(plotter.NewGrid())
	return sheet.Draw(title, p, sheet.Height)
}

// thinned keeps at most n steps of a curve, each the greatest value of its share
// of the time, so that no peak is lost.
func thinned(ps []Point, total time.Duration, n int) []Point {
	if len(ps) <= n || total <= 0 {
		return ps
	}
	out := make([]Point, 0, n+1)
	value := ps[0].Value
	next := 0
	for i := range n {
		from, to := total*time.Duration(i)/time.Duration(n), total*time.Duration(i+1)/time.Duration(n)
		peak := value
		for next < len(ps) && ps[next].At < to {
			value = ps[next].Value
			peak = max(peak, value)
			next++
		}
		out = append(out, Point{from, peak})
	}
	return append(out, Point{total, ps[len(ps)-1].Value})
}
