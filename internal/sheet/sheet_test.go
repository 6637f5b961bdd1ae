package sheet_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"github.com/gpupool/gpupool/internal/sheet"
)

// TestPage writes a page with everything in it: it is whole, what others wrote stays text,
// and nothing is fetched.
func TestPage(t *testing.T) {
	p := plot.New()
	if _, err := sheet.Line(p, "static <b>", plotter.XYs{{X: 0, Y: 0}, {X: 1, Y: 2}}, sheet.Static, sheet.StaticDashes()); err != nil {
		t.Fatal(err)
	}
	chart, err := sheet.Draw(`GPUs "over" time`, p, sheet.Height)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	err = sheet.Write(&b, `{{define "title"}}of {{.Who}}{{end}}{{define "style"}}  p { color: red; }
{{end}}{{define "body"}}<p>{{.Who}}</p>{{.Chart.SVG}}{{template "table" .}}{{end}}`, struct {
		Who   string
		Chart sheet.Chart
		Head  []string
		Rows  [][]string
	}{"<script>", chart, []string{"a"}, [][]string{{"1 < 2"}}})
	if err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, want := range []string{"<title>of &lt;script&gt;</title>", "p { color: red; }", "<p>&lt;script&gt;</p>", `<svg role="img" aria-label="GPUs &#34;over&#34; time"`, "<td>1 &lt; 2</td>", "</html>"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in the page", want)
		}
	}
	for _, not := range []string{"<?xml", "<script", "src=", "<link", "@import", "static <b>"} {
		if strings.Contains(page, not) {
			t.Errorf("%q in the page", not)
		}
	}
	balanced(t, string(chart.SVG))
}

// balanced wants every element closed.
func balanced(t *testing.T, svg string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("the plot is not whole: %s", err)
		}
	}
}

func TestBadTemplate(t *testing.T) {
	for _, body := range []string{`{{define "title"}}x{{end}}`, `{{define "body"}}{{.Nothing}}{{end}}{{define "title"}}{{end}}`, `{{`} {
		if err := sheet.Write(io.Discard, body, struct{}{}); err == nil {
			t.Errorf("%q is taken", body)
		}
	}
}
