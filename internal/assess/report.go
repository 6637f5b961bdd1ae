package assess

import (
	"bytes"
	"cmp"
	_ "embed" // the page's template
	"encoding/base64"
	"fmt"
	"html/template"
	"image"
	"image/color"
	"image/png"
	"io"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

//go:embed report.html
var reportHTML string

// The colours of internal/sim, and lighter ones between them.
var (
	staticColour = color.RGBA{R: 0xb4, G: 0x53, B: 0x09, A: 0xff}
	pooledColour = color.RGBA{R: 0x1d, G: 0x4e, B: 0x89, A: 0xff}
	middleColour = color.RGBA{R: 0x6b, G: 0x72, B: 0x80, A: 0xff}
	noDataColour = color.RGBA{R: 0xd4, G: 0xd4, B: 0xd8, A: 0xff}
	freeColour   = color.RGBA{R: 0xff, G: 0xff, B: 0xff, A: 0xff}
	idleColour   = color.RGBA{R: 0xf5, G: 0xc0, B: 0x7a, A: 0xff}
	lightColour  = color.RGBA{R: 0xc6, G: 0xdb, B: 0xef, A: 0xff}
	blindColour  = color.RGBA{R: 0xa1, G: 0xa1, B: 0xaa, A: 0xff}
)

// chart is a plot with its title, as SVG.
type chart struct {
	Title string
	SVG   template.HTML
}

// key is a colour of the map.
type key struct {
	Colour template.CSS
	Name   string
}

// WriteReport writes one self-contained HTML page.
func (x *Result) WriteReport(w io.Writer) error {
	page := struct {
		*Result
		Charts []chart
		Map    template.URL
		Height int
		Key    []key
	}{Result: x, Height: min(max(len(x.record.boards)*8, 60), 800)}
	for _, of := range []func() (chart, error){x.waterfall, x.overTime, x.distribution} {
		c, err := of()
		if err != nil {
			return fmt.Errorf("draw the report: %w", err)
		}
		page.Charts = append(page.Charts, c)
	}
	var err error
	if page.Map, err = x.heat(); err != nil {
		return fmt.Errorf("draw the report: %w", err)
	}
	for _, k := range []struct {
		c    color.RGBA
		name string
	}{{noDataColour, "no data"}, {freeColour, "unallocated"}, {idleColour, "allocated, idle"}, {lightColour, "little used"}, {pooledColour, "fully used"}, {blindColour, "use unknown"}} {
		page.Key = append(page.Key, key{template.CSS(fmt.Sprintf("#%02x%02x%02x", k.c.R, k.c.G, k.c.B)), k.name}) //nolint:gosec // made here from numbers
	}
	t, err := template.New("report").Parse(reportHTML)
	if err != nil {
		return err
	}
	return t.Execute(w, page)
}

// waterfall shows what each means leaves.
func (x *Result) waterfall() (chart, error) {
	p := plot.New()
	p.Y.Label.Text, p.Y.Min = "GPUs", 0
	p.Legend.Top = true
	var soon, cautious plotter.Values
	var names []string
	for _, m := range x.Means {
		soon, cautious = append(soon, float64(m.Soon.P99)), append(cautious, float64(m.Cautious.Most))
		names = append(names, m.Name)
	}
	for i, b := range []struct {
		name   string
		values plotter.Values
		colour color.Color
	}{{"parked as soon as it pays; enough for 99 % of the time", soon, pooledColour}, {"cautious; the most at any time", cautious, staticColour}} {
		bars, err := plotter.NewBarChart(b.values, vg.Points(40))
		if err != nil {
			return chart{}, err
		}
		bars.Color, bars.LineStyle.Width, bars.Offset = b.colour, 0, vg.Points(float64(42*i-21))
		p.Add(bars)
		p.Legend.Add(b.name, bars)
	}
	p.NominalX(names...)
	p.Y.Max *= 1.2 // room for the legend
	return drawn("GPUs needed, by each means and all before it", p)
}

// overTime shows what was held and what was needed.
func (x *Result) overTime() (chart, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text, p.Y.Min = "UTC", "GPUs, the most at once", 0
	p.X.Tick.Marker = plot.TimeTicks{Format: "2 Jan 15:04", Time: plot.UTCUnixTime}
	p.Legend.Top = true
	held, last := x.Means[1].Soon.over, x.Means[len(x.Means)-1]
	for _, c := range []struct {
		name   string
		over   []int32
		colour color.Color
		dashes []vg.Length
	}{
		{"held", held, staticColour, []vg.Length{vg.Points(5), vg.Points(2)}},
		{"needed, cautious", last.Cautious.over, middleColour, []vg.Length{vg.Points(2), vg.Points(2)}},
		{"needed, parked as soon as it pays", last.Soon.over, pooledColour, nil},
	} {
		var points plotter.XYs
		for i, n := range c.over {
			points = append(points, plotter.XY{X: float64(x.record.at(i * x.record.n / len(c.over)).Unix()), Y: float64(n)})
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return chart{}, err
		}
		line.StepStyle, line.Color, line.Dashes, line.Width = plotter.PostStep, c.colour, c.dashes, vg.Points(1.4)
		p.Add(line)
		p.Legend.Add(c.name, line)
	}
	p.Y.Max = float64(x.GPUs) * 1.2
	return drawn("GPUs held and needed over time", p)
}

// distribution shows use and memory while held.
func (x *Result) distribution() (chart, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "%", "share of the allocated time at or below"
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 100, 0, 1
	p.Legend.Left, p.Legend.Top = false, false
	for _, c := range []struct {
		name   string
		bins   [101]uint32
		colour color.Color
		dashes []vg.Length
	}{{"compute", x.use, pooledColour, nil}, {"memory", x.mem, staticColour, []vg.Length{vg.Points(5), vg.Points(2)}}} {
		sum, all := 0.0, 0.0
		for _, n := range c.bins {
			all += float64(n)
		}
		var points plotter.XYs
		for i, n := range c.bins {
			sum += float64(n)
			points = append(points, plotter.XY{X: float64(i), Y: sum / max(all, 1)})
		}
		if all == 0 {
			continue // not known
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return chart{}, err
		}
		line.Color, line.Dashes, line.Width = c.colour, c.dashes, vg.Points(1.4)
		p.Add(line)
		p.Legend.Add(c.name, line)
	}
	return drawn("Distribution of use and memory while allocated", p)
}

func drawn(title string, p *plot.Plot) (chart, error) {
	p.Add(plotter.NewGrid())
	canvas := vgsvg.New(24*vg.Centimeter, 9*vg.Centimeter)
	p.Draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return chart{}, err
	}
	_, svg, _ := strings.Cut(b.String(), "<svg") // without the XML prolog, which HTML does not know
	svg = "<svg role=\"img\" aria-label=\"" + template.HTMLEscapeString(title) + "\"" + svg
	return chart{title, template.HTML(svg)}, nil //nolint:gosec // drawn here from numbers and fixed words
}

// mapRows is how many GPUs the map shows; of more it leaves some out evenly.
const mapRows = 800

// heat is the map of all GPUs over time, as a picture in the page.
func (x *Result) heat() (template.URL, error) {
	boards := slices.Clone(x.record.boards)
	slices.SortFunc(boards, func(a, b *board) int { return cmp.Or(cmp.Compare(a.host, b.host), cmp.Compare(a.uuid, b.uuid)) })
	rows := min(len(boards), mapRows)
	img := image.NewRGBA(image.Rect(0, 0, len(boards[0].cells), rows))
	for y := range rows {
		for i, c := range boards[y*len(boards)/rows].cells {
			img.SetRGBA(i, y, c.colour())
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		return "", err
	}
	return template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(b.Bytes())), nil //nolint:gosec // drawn here
}

// colour is that of what was most of the time.
func (c cell) colour() color.RGBA {
	switch {
	case c.any == 0:
		return noDataColour
	case 2*c.none >= c.any:
		return freeColour
	case 2*(c.none+c.idle) >= c.any:
		return idleColour
	case c.known == 0:
		return blindColour
	}
	share := min(max(float64(c.sum)/float64(c.known), 0), 1)
	mix := func(a, b uint8) uint8 { return uint8(float64(a) + share*(float64(b)-float64(a))) }
	return color.RGBA{mix(lightColour.R, pooledColour.R), mix(lightColour.G, pooledColour.G), mix(lightColour.B, pooledColour.B), 0xff}
}
