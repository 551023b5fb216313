package bench

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/terminal"
)

// The size of a plot, and the room at its right for half of the last tick's label.
const (
	plotWidth  = 7 * vg.Inch
	plotHeight = 4.3 * vg.Inch
	plotRight  = 24
	// legendLine is the height of a line of the legend, as a share of that of the data.
	legendLine = 0.065
)

// figure is a plot.
type figure struct {
	name    string // of its file, without ".svg"
	title   string
	caption string // what is to be seen, in a sentence
	svg     []byte
}

// chart is what is plotted.
type chart struct {
	name, title, caption string
	x, y                 axis
	lines                []line
}

// axis is an axis of a chart.
type axis struct {
	label string
	// log makes it logarithmic: from one power of ten to another. Values that are not
	// positive are left out.
	log bool
	// unit formats the value of a tick.
	unit func(float64) string
}

// line is a series of points.
type line struct {
	name   string
	points plotter.XYs
	marked bool // show each point
}

// palette are colours that people with any colour vision can tell apart (Okabe, Ito:
// Color Universal Design), without yellow, which is hard to see on white.
func palette(i int) color.Color {
	colors := []color.RGBA{
		{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255}, {86, 180, 233, 255}, {230, 159, 0, 255},
	}
	return colors[i%len(colors)]
}

// newPlot returns a plot in the style of all.
func newPlot(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.Padding = vg.Points(8)
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.Padding, p.Legend.YOffs, p.Legend.XOffs = vg.Points(2), -vg.Points(4), vg.Points(8)
	for _, style := range []*font.Font{
		&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font,
	} {
		style.Variant = "Sans"
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{225}, color.Gray{225}
	p.Add(grid)
	return p
}

// drawn returns a plot as a figure.
func drawn(p *plot.Plot, name, title, caption string) (figure, error) {
	canvas := vgsvg.New(plotWidth, plotHeight)
	p.Draw(draw.Crop(draw.New(canvas), 0, -plotRight, 0, 0))
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return figure{}, fmt.Errorf("plot %s: %w", name, err)
	}
	// Where that font is not installed, one of the same widths.
	text := bytes.ReplaceAll(svg.Bytes(), []byte("font-family:Liberation Sans"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif"))
	return figure{name, title, caption, text}, nil
}

// draw draws a chart.
func (c chart) draw() (figure, error) {
	p := newPlot(c.title)
	p.X.Label.Text, p.Y.Label.Text = c.x.label, c.y.label
	for i, l := range c.lines {
		points := c.drawable(l.points)
		if len(points) == 0 {
			continue
		}
		curve, markers, err := plotter.NewLinePoints(points)
		if err != nil {
			return figure{}, fmt.Errorf("plot %s: %w", c.name, err)
		}
		curve.Color, curve.Width = palette(i), vg.Points(1.8)
		markers.Color, markers.Shape, markers.Radius = palette(i), draw.CircleGlyph{}, vg.Points(3)
		p.Add(curve)
		p.Legend.Add(l.name, curve)
		if l.marked {
			p.Add(markers)
		}
	}
	c.x.scale(&p.X)
	c.y.scale(&p.Y)
	if !c.y.log { // there the lines end at the top, where the legend is
		p.Y.Max *= 1 + legendLine*float64(len(c.lines))
	}
	return drawn(p, c.name, c.title, c.caption)
}

// drawable returns the points that the axes can show.
func (c chart) drawable(points plotter.XYs) plotter.XYs {
	kept := make(plotter.XYs, 0, len(points))
	for _, p := range points {
		if (!c.x.log || p.X > 0) && (!c.y.log || p.Y > 0) {
			kept = append(kept, p)
		}
	}
	return kept
}

// scale sets scale, range and ticks of an axis that knows its data.
func (a axis) scale(of *plot.Axis) {
	// Without data the range is empty, or infinite.
	if !a.log {
		if of.Min = min(of.Min, 0); !(of.Max > of.Min) || math.IsInf(of.Max, 0) || math.IsInf(of.Min, 0) {
			of.Min, of.Max = 0, 1
		}
		a.ticks(of)
		return
	}
	if !(of.Min > 0) || math.IsInf(of.Max, 0) || math.IsInf(of.Min, 0) {
		of.Min, of.Max = 1, 10
	}
	of.Min, of.Max = math.Pow10(int(math.Floor(math.Log10(of.Min)))), math.Pow10(int(math.Ceil(math.Log10(of.Max))))
	if of.Min == of.Max {
		of.Max *= 10
	}
	a.ticks(of)
}

// ticks sets scale and ticks of an axis whose range is set.
func (a axis) ticks(of *plot.Axis) {
	var ticker plot.Ticker = plot.DefaultTicks{}
	if a.log {
		of.Scale, ticker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	low, high := of.Min, of.Max // of the data: the axis may get longer
	of.Tick.Marker = plot.TickerFunc(func(float64, float64) []plot.Tick { return a.labelled(ticker.Ticks(low, high)) })
}

// labelled formats the values of the major ticks.
func (a axis) labelled(ticks []plot.Tick) []plot.Tick {
	for i := range ticks {
		if !ticks[i].IsMinor() {
			ticks[i].Label = a.unit(ticks[i].Value)
		}
	}
	return ticks
}

// The units of ticks.

// durationTick formats microseconds.
func durationTick(us float64) string {
	switch {
	case us < 1000:
		return number(us) + " µs"
	case us < 1e6:
		return number(us/1e3) + " ms"
	default:
		return number(us/1e6) + " s"
	}
}

func secondsTick(s float64) string { return durationTick(s * 1e6) }

func countTick(n float64) string { return terminal.Thousands(int64(math.Round(n))) }

func percentTick(p float64) string { return number(p) + " %" }

func mebibyteTick(m float64) string { return countTick(m) + " MiB" }

// number formats a value without the noise of its last digits.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// logAxis makes a logarithmic axis.
func logAxis(label string, unit func(float64) string) axis {
	return axis{label: label, log: true, unit: unit}
}
