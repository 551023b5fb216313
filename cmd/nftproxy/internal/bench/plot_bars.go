package bench

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// barChart shows costs of several things side by side, each relative to that of the first
// one: costs of different units fit on one logarithmic axis so.
type barChart struct {
	name, title, caption string
	label                string // of the axis
	things               []string
	costs                []cost
}

// cost is a cost of every thing.
type cost struct {
	name   string
	values []float64
	format func(float64) string
}

// barsShare is how much of the room of a cost its bars fill.
const barsShare = 0.8

// draw draws the chart. Costs that one of the things has not are left out.
func (c barChart) draw() (figure, error) {
	p := newPlot(c.title)
	p.Y.Label.Text = c.label
	var ticks plot.ConstantTicks
	low, high := 1.0, 1.0
	width := barsShare / float64(max(len(c.things), 1))
	var labels plotter.XYLabels
	for _, cost := range c.costs {
		if !cost.complete(len(c.things)) {
			continue
		}
		group := float64(len(ticks))
		ticks = append(ticks, plot.Tick{Value: group, Label: cost.name})
		for i, value := range cost.values {
			relative := value / cost.values[0]
			low, high = min(low, relative), max(high, relative)
			left := group - barsShare/2 + float64(i)*width
			labels.XYs = append(labels.XYs, plotter.XY{X: left + width/2, Y: relative})
			labels.Labels = append(labels.Labels, cost.format(value))
		}
	}
	// Bars need a foot, and the labels room above them.
	p.Y.Min, p.Y.Max = low/2, 2*high
	p.X.Min, p.X.Max = -0.5, max(float64(len(ticks))-0.5, 0.5)
	axis{log: true, unit: func(v float64) string { return number(v) + " ×" }}.ticks(&p.Y)
	p.X.Tick.Marker, p.X.Tick.Length = ticks, 0
	for i, thing := range c.things {
		if err := c.add(p, thing, i, labels.XYs, width); err != nil {
			return figure{}, err
		}
	}
	if err := addLabels(p, labels); err != nil {
		return figure{}, fmt.Errorf("plot %s: %w", c.name, err)
	}
	return drawn(p, c.name, c.title, c.caption)
}

// complete reports whether there is a cost of every thing.
func (c cost) complete(things int) bool {
	if len(c.values) != things {
		return false
	}
	for _, value := range c.values {
		if !(value > 0) {
			return false
		}
	}
	return true
}

// add adds the bars of one thing: of the tops every n-th, beginning with its own.
func (c barChart) add(p *plot.Plot, thing string, i int, tops plotter.XYs, width float64) error {
	var bar *plotter.Polygon
	for n := i; n < len(tops); n += len(c.things) {
		left, right := tops[n].X-width/2, tops[n].X+width/2
		var err error
		bar, err = plotter.NewPolygon(plotter.XYs{{X: left, Y: p.Y.Min}, {X: left, Y: tops[n].Y}, {X: right, Y: tops[n].Y}, {X: right, Y: p.Y.Min}})
		if err != nil {
			return fmt.Errorf("plot %s: %w", c.name, err)
		}
		bar.Color, bar.LineStyle = palette(i), draw.LineStyle{Color: color.White, Width: vg.Points(1)}
		low, high := p.Y.Min, p.Y.Max
		p.Add(bar) // which makes the axis fit
		p.Y.Min, p.Y.Max = low, high
	}
	if bar != nil {
		p.Legend.Add(thing, bar)
	}
	return nil
}

// addLabels writes above the bars.
func addLabels(p *plot.Plot, labels plotter.XYLabels) error {
	if len(labels.XYs) == 0 {
		return nil
	}
	texts, err := plotter.NewLabels(labels)
	if err != nil {
		return err //nolint:wrapcheck // the caller says what
	}
	for i := range texts.TextStyle {
		texts.TextStyle[i].XAlign = draw.XCenter
		texts.TextStyle[i].Font.Variant, texts.TextStyle[i].Font.Size = "Sans", font.Length(8)
	}
	texts.Offset.Y = vg.Points(2)
	low, high := p.Y.Min, p.Y.Max
	p.Add(texts)
	p.Y.Min, p.Y.Max = low, high
	return nil
}
