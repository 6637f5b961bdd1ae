package bench

import (
	_ "embed" // the page's template
	"fmt"
	"image/color"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/gpupool/gpupool/internal/baseline"
	"github.com/gpupool/gpupool/internal/sheet"
)

//go:embed packing_report.html
var pageHTML string

// summary turns the runs of a workload, one for each seed, into what is shown.
func (w *packingWorkload) summary(rules []baseline.Rule, runs []packingRun) PackingWorkload {
	out := PackingWorkload{Name: w.name, Published: map[string]float64{}, Baselines: map[string]Spread{}}
	maps.Copy(out.Published, w.published)
	of := func(runs []packingRun, value func(r *packingRun) float64) (all []float64, s Spread) {
		for i := range runs {
			all = append(all, value(&runs[i]))
		}
		return all, spread(all)
	}
	beside := runs[:min(len(runs), besideSeeds)]
	for i, rule := range rules {
		_, out.Baselines[string(rule)] = of(beside, func(r *packingRun) float64 { return r.rules[i] })
	}
	_, offered := of(runs, func(r *packingRun) float64 { return float64(r.offered) })
	_, bound := of(beside, func(r *packingRun) float64 { return r.bound })
	seeds, ours := of(runs, func(r *packingRun) float64 { return r.gpupool })
	for i := range seeds {
		seeds[i] = round4(seeds[i])
	}
	out.TasksOffered, out.UpperBound = int(math.Round(offered.Mean)), bound.Mean
	out.Gpupool, out.GpupoolSD, out.GpupoolSeeds = ours.Mean, ours.SD, seeds
	if fgd, ok := w.published[policyFGD]; ok {
		above := round4(ours.Mean - fgd)
		out.Above = &above
	}
	return out
}

// spread is the mean and the standard deviation, to four decimals: further ones say nothing and differ between machines.
func spread(xs []float64) Spread {
	sum, squares := 0.0, 0.0
	for _, x := range xs {
		sum += x
	}
	mean := sum / float64(len(xs))
	for _, x := range xs {
		squares += (x - mean) * (x - mean)
	}
	return Spread{round4(mean), round4(math.Sqrt(squares / float64(max(len(xs)-1, 1))))}
}

func round4(x float64) float64 { return math.Round(x*1e4) / 1e4 }

// compare fills in how far above the published figures all workloads together are.
func (r *PackingResult) compare() {
	var above []float64
	for _, w := range r.Workloads {
		if w.Above != nil {
			above = append(above, *w.Above)
		}
	}
	if len(above) > 0 {
		mean, least := spread(above).Mean, slices.Min(above)
		r.AboveMean, r.AboveMin = &mean, &least
	}
}

// packingNotes says what a reader must know to take the numbers for what they are.
func packingNotes(r *PackingResult, rules []baseline.Rule) []string {
	out := []string{
		"offered: every pod of the list once, in random order, then pods drawn at random until all ask for 1.3 times the GPUs (a list that asks for more is cut); nothing ends, and what does not fit is left out",
		"the figures are GPU thousandths given out, in percent of all hosts' GPUs; CPU, memory and the GPU models that a pod names count, GPU memory does not: the lists have none. Hosts without a GPU are left out",
		"gpupool: one pool, one tenant, parts of a GPU as shares, and any number of tasks on one GPU as in the published experiment, where a pool sets a limit (4 unless set otherwise)",
		"gpupool learns what is asked for from the tasks it has seen so far; the rule fgd is told the whole list beforehand, as published",
		fmt.Sprintf("the published rules as run here, and the bound, are means over the first %d seeds at most", besideSeeds),
		"the upper bound: no rule that places whatever fits can pass it, even one that knew what comes; whether it can be reached is not known",
	}
	var without []string
	for _, w := range r.Workloads {
		if _, ok := w.Published[policyFGD]; !ok {
			without = append(without, w.Name)
		}
	}
	if len(without) > 0 {
		out = append(out, "no published figure for FGD: "+strings.Join(without, ", "))
	}
	if len(rules) < len(baseline.Rules()) {
		out = append(out, "published rules that were not run here can be: --rules all, or some of "+strings.Join(PackingRules(), ","))
	}
	return out
}

// Page shows the result; wide adds columns that are seldom of interest. Columns in which nothing stands are left out.
func (r *PackingResult) Page(wide bool) Page {
	p := Page{
		Title: fmt.Sprintf("Packing %d GPUs of %d hosts", r.GPUs, r.Hosts),
		Intro: fmt.Sprintf("The experiment of Weng et al., “Beware of Fragmentation” (USENIX ATC '23): percent of the GPUs allocated once tasks that ask for %g times as many were offered; the mean over seeds (%d). Data and published figures: %s.",
			r.Arrival, r.Seeds, r.Trace),
		Rows:  make([][]string, len(r.Workloads)),
		Last:  "above published FGD: nothing was published for these workloads",
		Notes: r.Notes, WallS: r.WallS, Draw: r.chart,
	}
	if r.AboveMean != nil {
		p.Last = fmt.Sprintf("above published FGD: %+.2f points in the mean, %+.2f at the least (%s)", *r.AboveMean, *r.AboveMin, r.least())
	}
	for _, c := range packingColumns() {
		cells := make([]string, len(r.Workloads))
		for i := range r.Workloads {
			cells[i] = c.cell(&r.Workloads[i])
		}
		if c.wide && !wide || strings.Join(cells, "") == "" {
			continue
		}
		p.Head = append(p.Head, c.name)
		for i, cell := range cells {
			p.Rows[i] = append(p.Rows[i], cell)
		}
	}
	return p
}

// packingColumn is a column of the table; a wide one is shown only on demand.
type packingColumn struct {
	name string
	wide bool
	cell func(w *PackingWorkload) string
}

func packingColumns() []packingColumn {
	return []packingColumn{
		{"workload", false, func(w *PackingWorkload) string { return w.Name }},
		{"tasks offered", true, func(w *PackingWorkload) string { return fmt.Sprint(w.TasksOffered) }},
		{"published FGD", false, func(w *PackingWorkload) string { return percentOf(w.Published, policyFGD) }},
		{"our FGD", false, func(w *PackingWorkload) string { return meanOf(w.Baselines, baseline.FGD) }},
		{"best other", false, func(w *PackingWorkload) string { return bestOther(w.Baselines) }},
		{"gpupool", false, func(w *PackingWorkload) string { return fmt.Sprintf("%.2f", w.Gpupool) }},
		{"sd", true, func(w *PackingWorkload) string { return fmt.Sprintf("%.2f", w.GpupoolSD) }},
		{"upper bound", false, func(w *PackingWorkload) string { return fmt.Sprintf("%.2f", w.UpperBound) }},
		{"above published FGD", false, func(w *PackingWorkload) string {
			if w.Above == nil {
				return ""
			}
			return fmt.Sprintf("%+.2f", *w.Above)
		}},
	}
}

// least is the workload that is the least above the published figure.
func (r *PackingResult) least() string {
	for _, w := range r.Workloads {
		if w.Above != nil && *w.Above == *r.AboveMin {
			return w.Name
		}
	}
	return ""
}

func percentOf(m map[string]float64, key string) string {
	if x, ok := m[key]; ok {
		return fmt.Sprintf("%.2f", x)
	}
	return ""
}

func meanOf(m map[string]Spread, rule baseline.Rule) string {
	if x, ok := m[string(rule)]; ok {
		return fmt.Sprintf("%.2f", x.Mean)
	}
	return ""
}

// bestOther is the best of the rules that ran, FGD apart.
func bestOther(m map[string]Spread) (out string) {
	best := math.Inf(-1)
	for _, rule := range baseline.Rules() {
		if x, ok := m[string(rule)]; ok && rule != baseline.FGD && x.Mean > best {
			best, out = x.Mean, fmt.Sprintf("%.2f (%s)", x.Mean, rule)
		}
	}
	return out
}

// chart draws a row of dots for each workload. They differ in shape and lightness too, so that no one needs to see
// colours to tell them apart.
func (r *PackingResult) chart() (sheet.Chart, error) {
	n := len(r.Workloads)
	names := make([]string, n)
	var published, ours, bound plotter.XYs
	for i, w := range r.Workloads {
		y := float64(n - 1 - i) // the first on top
		names[n-1-i] = w.Name
		if x, ok := w.Published[policyFGD]; ok {
			published = append(published, plotter.XY{X: x, Y: y})
		}
		ours = append(ours, plotter.XY{X: w.Gpupool, Y: y})
		bound = append(bound, plotter.XY{X: w.UpperBound, Y: y})
	}
	p := plot.New()
	p.X.Label.Text = "GPUs allocated, percent"
	p.NominalY(names...)
	p.Add(plotter.NewGrid())
	for _, x := range []struct {
		name   string
		points plotter.XYs
		colour color.Color
		shape  draw.GlyphDrawer
	}{
		{"FGD, published", published, sheet.Static, draw.TriangleGlyph{}},
		{"gpupool", ours, sheet.Pooled, draw.CircleGlyph{}},
		{"upper bound", bound, color.RGBA{R: 0x55, G: 0x55, B: 0x55, A: 0xff}, draw.PlusGlyph{}},
	} {
		if len(x.points) == 0 {
			continue
		}
		dots, err := plotter.NewScatter(x.points)
		if err != nil {
			return sheet.Chart{}, err
		}
		dots.GlyphStyle = draw.GlyphStyle{Color: x.colour, Radius: vg.Points(3.5), Shape: x.shape}
		p.Add(dots)
		p.Legend.Add(x.name, dots)
	}
	p.X.Min, p.X.Max = math.Floor(p.X.Min-0.5), 100.5 // an allocation ends at 100
	p.Y.Min, p.Y.Max = -0.6, float64(n)+1.2           // the legend's room
	p.X.Tick.Marker = plot.TickerFunc(evenTicks)
	p.Legend.Top, p.Legend.Left = true, true
	return sheet.Draw("GPUs allocated, percent, by workload", p, 3+0.7*float64(n))
}

// evenTicks marks even percentages, or tens where those are too many.
func evenTicks(from, to float64) (out []plot.Tick) {
	step := 2.0
	if to-from > 30 {
		step = 10
	}
	for x := math.Ceil(from/step) * step; x <= to; x += step {
		out = append(out, plot.Tick{Value: x, Label: fmt.Sprintf("%.0f", x)})
	}
	return out
}

// Page is the outcome of an experiment for people: its table and notes on a terminal, all of it in a browser.
type Page struct {
	Title string
	Intro string
	Head  []string
	Rows  [][]string
	Last  string // below the table
	Notes []string
	WallS float64                     // seconds that the experiment took
	Draw  func() (sheet.Chart, error) // its plot; nil = none

	Sections []Section // more tables; none in most
}

// Section is a part of the outcome with a table of its own.
type Section struct {
	Title string
	Head  []string
	Rows  [][]string
	Draw  func() (sheet.Chart, error) // its plot; nil = none
}

// Chart is the section's plot.
func (s Section) Chart() (sheet.Chart, error) {
	if s.Draw == nil {
		return sheet.Chart{}, nil
	}
	return s.Draw()
}

// Write writes one self-contained HTML page.
func (p Page) Write(w io.Writer) error {
	var chart sheet.Chart
	if p.Draw != nil {
		var err error
		if chart, err = p.Draw(); err != nil {
			return fmt.Errorf("draw the report: %w", err)
		}
	}
	return sheet.Write(w, pageHTML, struct {
		Page
		Chart sheet.Chart
		Made  string
	}{p, chart, time.Now().UTC().Format("2006-01-02 15:04 MST")})
}

// Series is one line of a plot.
type Series struct {
	Name   string
	Points []Point
}

// Point is a point of a line.
type Point = plotter.XY

// Lines draws series by colour and dashes, for Page.Draw.
func Lines(x, y string, series []Series) func() (sheet.Chart, error) {
	return func() (sheet.Chart, error) {
		p := plot.New()
		p.X.Label.Text, p.Y.Label.Text = x, y
		p.Legend.Top, p.Legend.Left = true, true
		p.Add(plotter.NewGrid())
		for i, s := range series {
			line, dots, err := plotter.NewLinePoints(plotter.XYs(s.Points))
			if err != nil {
				return sheet.Chart{}, err
			}
			line.Color, line.Dashes, line.Width = plotutil.Color(i), plotutil.Dashes(i), sheet.LineWidth
			dots.Color, dots.Shape = plotutil.Color(i), plotutil.Shape(i)
			p.Add(line, dots)
			p.Legend.Add(s.Name, line, dots)
		}
		p.Y.Min = 0
		return sheet.Draw(y+" by "+x, p, sheet.Height)
	}
}
