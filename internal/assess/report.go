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

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/gpupool/gpupool/internal/sheet"
)

//go:embed report.html
var reportHTML string

// Beside the colours of all reports, lighter ones between them.
var (
	middleColour = color.RGBA{R: 0x6b, G: 0x72, B: 0x80, A: 0xff}
	noDataColour = color.RGBA{R: 0xd4, G: 0xd4, B: 0xd8, A: 0xff}
	freeColour   = color.RGBA{R: 0xff, G: 0xff, B: 0xff, A: 0xff}
	idleColour   = color.RGBA{R: 0xf5, G: 0xc0, B: 0x7a, A: 0xff}
	lightColour  = color.RGBA{R: 0xc6, G: 0xdb, B: 0xef, A: 0xff}
	blindColour  = color.RGBA{R: 0xa1, G: 0xa1, B: 0xaa, A: 0xff}
)

// key is a colour of the map.
type key struct {
	Colour template.CSS
	Name   string
}

// WriteReport writes one self-contained HTML page.
func (x *Result) WriteReport(w io.Writer) error {
	page := struct {
		*Result
		Charts []sheet.Chart
		Map    template.URL
		Height int
		Key    []key
	}{Result: x, Height: min(max(len(x.record.boards)*8, 60), 800)}
	for _, of := range []func() (sheet.Chart, error){x.waterfall, x.overTime, x.distribution} {
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
	}{{noDataColour, "no data"}, {freeColour, "unallocated"}, {idleColour, "allocated, idle"}, {lightColour, "little used"}, {sheet.Pooled, "fully used"}, {blindColour, "use unknown"}} {
		page.Key = append(page.Key, key{template.CSS(fmt.Sprintf("#%02x%02x%02x", k.c.R, k.c.G, k.c.B)), k.name}) //nolint:gosec // made here from numbers
	}
	return sheet.Write(w, reportHTML, page)
}

// waterfall shows what each means leaves.
func (x *Result) waterfall() (sheet.Chart, error) {
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
	}{{"parked as soon as it pays; enough for 99 % of the time", soon, sheet.Pooled}, {"cautious; the most at any time", cautious, sheet.Static}} {
		bars, err := plotter.NewBarChart(b.values, vg.Points(40))
		if err != nil {
			return sheet.Chart{}, err
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
func (x *Result) overTime() (sheet.Chart, error) {
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
		{"held", held, sheet.Static, sheet.StaticDashes()},
		{"needed, cautious", last.Cautious.over, middleColour, []vg.Length{vg.Points(2), vg.Points(2)}},
		{"needed, parked as soon as it pays", last.Soon.over, sheet.Pooled, nil},
	} {
		var points plotter.XYs
		for i, n := range c.over {
			points = append(points, plotter.XY{X: float64(x.record.at(i * x.record.n / len(c.over)).Unix()), Y: float64(n)})
		}
		line, err := sheet.Line(p, c.name, points, c.colour, c.dashes)
		if err != nil {
			return sheet.Chart{}, err
		}
		line.StepStyle = plotter.PostStep
	}
	p.Y.Max = float64(x.GPUs) * 1.2
	return drawn("GPUs held and needed over time", p)
}

// distribution shows use and memory while held.
func (x *Result) distribution() (sheet.Chart, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "%", "share of the allocated time at or below"
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 100, 0, 1
	p.Legend.Left, p.Legend.Top = false, false
	for _, c := range []struct {
		name   string
		bins   [101]uint32
		colour color.Color
		dashes []vg.Length
	}{{"compute", x.use, sheet.Pooled, nil}, {"memory", x.mem, sheet.Static, sheet.StaticDashes()}} {
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
		if _, err := sheet.Line(p, c.name, points, c.colour, c.dashes); err != nil {
			return sheet.Chart{}, err
		}
	}
	return drawn("Distribution of use and memory while allocated", p)
}

func drawn(title string, p *plot.Plot) (sheet.Chart, error) {
	p.Add(plotter.NewGrid())
	return sheet.Draw(title, p, sheet.Height)
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
	return color.RGBA{mix(lightColour.R, sheet.Pooled.R), mix(lightColour.G, sheet.Pooled.G), mix(lightColour.B, sheet.Pooled.B), 0xff}
}
