package cli

import (
	_ "embed" // the page's template
	"fmt"
	"image/color"
	"io"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/sheet"
)

//go:embed report.html
var savingsHTML string

// curve is a figure day by day; a day without one is left out.
type curve struct {
	name   string
	colour color.Color
	dashes []vg.Length
	of     func(apitype.ReportRow) (float64, bool)
}

// savingsPage writes one self-contained page.
func savingsPage(w io.Writer, s *savings) error {
	page := struct {
		Sentences, Head []string
		Rows            [][]string
		Charts          []sheet.Chart
	}{Sentences: s.sentences()}
	if !s.nothing() {
		page.Head = s.head(false)
		for _, x := range s.all() {
			page.Rows = append(page.Rows, s.cells(x, false))
		}
		for _, c := range savingsCurves() {
			chart, err := dayChart(c.title, c.y, s.days, c.curves)
			if err != nil {
				return fmt.Errorf("draw the report: %w", err)
			}
			if chart.SVG != "" {
				page.Charts = append(page.Charts, chart)
			}
		}
	}
	return sheet.Write(w, savingsHTML, page)
}

type savingsPlot struct {
	title, y string
	curves   []curve
}

func savingsCurves() []savingsPlot {
	share := func(x, of float64) (float64, bool) {
		if of <= 0 {
			return 0, false
		}
		return 100 * x / of, true
	}
	return []savingsPlot{
		{"GPUs, mean of each day", "GPUs", []curve{
			{"static", sheet.Static, sheet.StaticDashes(), func(x apitype.ReportRow) (float64, bool) { return x.StaticMean, true }},
			{"held", sheet.Pooled, nil, func(x apitype.ReportRow) (float64, bool) { return x.HeldHours / max(x.Hours, 1e-9), x.Hours > 0 }},
		}},
		{"GPUs, most at once on each day", "GPUs", []curve{
			{"static", sheet.Static, sheet.StaticDashes(), func(x apitype.ReportRow) (float64, bool) { return float64(x.StaticPeak), true }},
			{"in use", sheet.Pooled, nil, func(x apitype.ReportRow) (float64, bool) {
				if x.InUsePeak == nil {
					return 0, false
				}
				return float64(*x.InUsePeak), true
			}},
		}},
		{"Idle share of the time that was measured", "%", []curve{
			{"static", sheet.Static, sheet.StaticDashes(), func(x apitype.ReportRow) (float64, bool) {
				return share(x.StaticIdle, x.StaticHours-x.StaticUnknown)
			}},
			{"held", sheet.Pooled, nil, func(x apitype.ReportRow) (float64, bool) { return share(x.HeldIdle, x.HeldHours-x.HeldUnknown) }},
		}},
	}
}

// dayChart draws figures over days: a step for each day. Without any figure it draws nothing.
func dayChart(title, y string, days []apitype.ReportRow, curves []curve) (sheet.Chart, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "day (UTC)", y
	p.X.Tick.Marker = dayTicks(days)
	p.Y.Min = 0
	p.Legend.Top = true
	drawn := false
	for _, c := range curves {
		var points plotter.XYs
		for _, x := range days {
			at, err := time.Parse(time.DateOnly, x.Day)
			if err != nil {
				return sheet.Chart{}, fmt.Errorf("the server names a day %q: expected one such as 2026-11-30", x.Day)
			}
			if v, known := c.of(x); known {
				points = append(points, plotter.XY{X: float64(at.Unix()), Y: v})
				points = append(points, plotter.XY{X: float64(at.AddDate(0, 0, 1).Unix()), Y: v})
			}
		}
		if len(points) == 0 {
			continue
		}
		if _, err := sheet.Line(p, c.name, points, c.colour, c.dashes); err != nil {
			return sheet.Chart{}, err
		}
		drawn = true
	}
	if !drawn {
		return sheet.Chart{}, nil
	}
	p.Y.Max *= 1.15 // room for the legend
	p.Add(plotter.NewGrid())
	return sheet.Draw(title, p, sheet.Height)
}

// dayTicks are at the beginning of days, as many as there is room for.
func dayTicks(days []apitype.ReportRow) plot.ConstantTicks {
	const room = 8
	var out plot.ConstantTicks
	every := (len(days) + room - 1) / room
	for i, x := range days {
		if at, err := time.Parse(time.DateOnly, x.Day); err == nil && i%every == 0 {
			out = append(out, plot.Tick{Value: float64(at.Unix()), Label: x.Day})
		}
	}
	return out
}
