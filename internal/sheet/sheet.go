// Package sheet is the frame of the HTML reports: one self-contained page with tables and
// plots, and the colours that mean the same in all of them.
//
// Its cost is that of drawing: it grows with the points that a report puts into its plots.
package sheet

import (
	"bytes"
	_ "embed" // the frame
	"html/template"
	"image/color"
	"io"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

//go:embed frame.html
var frame string

// One colour for each side of a comparison in all plots; they differ in lightness too, and
// lines in dashes, so that no one needs to see colours to tell them apart.
var (
	Static = color.RGBA{R: 0xb4, G: 0x53, B: 0x09, A: 0xff} // what there would be without gpupool, or was published
	Pooled = color.RGBA{R: 0x1d, G: 0x4e, B: 0x89, A: 0xff} // what gpupool does
)

// StaticDashes are those of lines in Static; lines in Pooled have none.
func StaticDashes() []vg.Length { return []vg.Length{vg.Points(5), vg.Points(2)} }

// LineWidth is that of all lines.
const LineWidth = vg.Length(1.4)

// Height is that of most plots, in centimetres.
const Height = 9

// Chart is a plot with its title.
type Chart struct {
	Title string
	SVG   template.HTML // empty: there is nothing to draw
}

// Write writes a page. Its template defines "title" and "body" of the frame, and "style" for
// what it has beyond the frame's own; it may use "table", which takes a value with Head and Rows.
func Write(w io.Writer, body string, data any) error {
	t, err := template.New("frame").Parse(frame)
	if err == nil {
		t, err = t.Parse(body)
	}
	if err != nil {
		return err
	}
	return t.Execute(w, data)
}

// Draw draws a plot, so many centimetres high; title is read out where it cannot be seen.
func Draw(title string, p *plot.Plot, height float64) (Chart, error) {
	canvas := vgsvg.New(24*vg.Centimeter, vg.Length(height)*vg.Centimeter)
	edge := vg.Millimeter * 2
	p.Draw(draw.Crop(draw.New(canvas), edge, -edge, edge, -edge))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return Chart{}, err
	}
	_, svg, _ := strings.Cut(b.String(), "<svg") // without the XML prolog, which HTML does not know
	svg = "<svg role=\"img\" aria-label=\"" + template.HTMLEscapeString(title) + "\"" + svg
	return Chart{title, template.HTML(svg)}, nil //nolint:gosec // drawn here; the library escapes the words in it
}

// Line adds a line to a plot and to its legend.
func Line(p *plot.Plot, name string, points plotter.XYs, colour color.Color, dashes []vg.Length) (*plotter.Line, error) {
	line, err := plotter.NewLine(points)
	if err != nil {
		return nil, err
	}
	line.Color, line.Dashes, line.Width = colour, dashes, LineWidth
	p.Add(line)
	p.Legend.Add(name, line)
	return line, nil
}
