package bench

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot/plotter"
)

// WriteReport writes an HTML page and plots into a folder.
func (r *CompareResult) WriteReport(folder string) error {
	var table bytes.Buffer
	if err := r.WriteTable(&table); err != nil {
		return err
	}
	p := page{title: "nftproxy bench compare: " + r.clusters(), machine: r.Machine.String(), tables: table.String(), result: r}
	largest := r.largest()
	charts := []interface{ draw() (figure, error) }{costs(largest), cdf(largest)}
	if len(largest) < len(r.Proxies) {
		for _, c := range r.growth() {
			charts = append(charts, c)
		}
	}
	for _, c := range charts {
		f, err := c.draw()
		if err != nil {
			return err
		}
		p.figures = append(p.figures, f)
	}
	return p.write(folder)
}

// largest returns the results of the largest cluster: that with the most endpoints.
func (r *CompareResult) largest() (of []*ProxyResult) {
	for _, p := range r.Proxies {
		if len(of) > 0 && p.Endpoints > of[0].Endpoints {
			of = nil
		}
		if len(of) == 0 || p.Endpoints == of[0].Endpoints {
			of = append(of, p)
		}
	}
	return of
}

// describeAll describes the cluster that all results are of.
func describeAll(of []*ProxyResult) string {
	if len(of) == 0 {
		return "nothing"
	}
	return describe(of[0].Services, of[0].Endpoints)
}

// costs compares everything that was measured in one cluster.
func costs(of []*ProxyResult) barChart {
	c := barChart{
		name: "compare-costs", title: "Costs beside each other, " + describeAll(of), label: "relative to the first proxy, logarithmic",
		caption: "How many times the cost of the first proxy; above each bar what it is.",
	}
	add := func(name string, format func(float64) string, value func(*ProxyResult) float64) {
		values := make([]float64, len(of))
		for i, p := range of {
			values[i] = value(p)
		}
		c.costs = append(c.costs, cost{name, values, format})
	}
	for _, p := range of {
		c.things = append(c.things, p.Name)
	}
	inSeconds := func(s float64) string { return short(s * 1e6) }
	add("change, p50", short, func(p *ProxyResult) float64 { return p.Packet.P50 })
	add("change, p99", short, func(p *ProxyResult) float64 { return p.Packet.P99 })
	add("change, CPU", short, (*ProxyResult).cpuPerChange)
	add("first sync", inSeconds, func(p *ProxyResult) float64 { return p.FirstSync })
	add("sync, CPU", inSeconds, func(p *ProxyResult) float64 { return p.FirstSyncCPU })
	add("memory", func(m float64) string { return fmt.Sprintf("%.0f MiB", m) }, func(p *ProxyResult) float64 { return mebibytes(p.RSS) })
	return c
}

// short returns a number of microseconds with three digits.
func short(us float64) string {
	if us > 0 {
		digit := math.Pow10(int(math.Floor(math.Log10(us))) - 2)
		us = math.Round(us/digit) * digit
	}
	return durationTick(us)
}

// cdf is the distribution of the latencies of all proxies in one cluster.
func cdf(of []*ProxyResult) chart {
	c := chart{
		name: "compare-latency-cdf", title: "One endpoint replaced, " + describeAll(of),
		caption: "Share of the changes that were in force after so long, from the API server, for every proxy.",
		x:       logAxis("latency", durationTick), y: axis{label: "changes", unit: percentTick},
	}
	for _, p := range of {
		for _, by := range []struct {
			name string
			Latencies
		}{{"nftables", p.NFTables}, {"packet", p.Packet}} {
			if by.Count > 0 {
				c.lines = append(c.lines, line{name: p.Name + ", seen by " + by.name, points: by.distribution()})
			}
		}
	}
	return c
}

// growth shows how costs grow with the number of Services, or with that of the endpoints of
// the only one.
func (r *CompareResult) growth() []chart {
	size, label := func(p *ProxyResult) int { return p.Services }, "Services in the cluster"
	if r.Shape == OneBig {
		size, label = func(p *ProxyResult) int { return p.Endpoints }, "endpoints of the Service"
	}
	of := func(name, title, caption string, y axis, value func(*ProxyResult) float64) chart {
		c := chart{name: name, title: title, caption: caption, x: logAxis(label, countTick), y: y}
		for _, p := range r.Proxies {
			i := slices.IndexFunc(c.lines, func(l line) bool { return l.name == p.Name })
			if i < 0 {
				i = len(c.lines)
				c.lines = append(c.lines, line{name: p.Name, marked: true})
			}
			c.lines[i].points = append(c.lines[i].points, plotter.XY{X: float64(size(p)), Y: value(p)})
		}
		return c
	}
	const flat = "A flat line is a cost that does not depend on the size of the cluster."
	return []chart{
		of("compare-growth-latency", "One endpoint replaced, until a connection reaches the new one, median", flat,
			logAxis("latency", durationTick), func(p *ProxyResult) float64 { return p.Packet.P50 }),
		of("compare-growth-cpu", "Processor time of one replaced endpoint", flat,
			logAxis("CPU", durationTick), (*ProxyResult).cpuPerChange),
		of("compare-growth-first-sync", "From the start of the process to the first connection", "It has to grow with the cluster.",
			logAxis("time", secondsTick), func(p *ProxyResult) float64 { return p.FirstSync }),
		of("compare-growth-memory", "Resident memory", "As the process left it.",
			logAxis("memory", mebibyteTick), func(p *ProxyResult) float64 { return mebibytes(p.RSS) }),
	}
}

// distribution returns the points of a distribution: latency in microseconds, percent.
func (l Latencies) distribution() plotter.XYs {
	points := make(plotter.XYs, 0, len(l.All))
	for i, us := range l.All {
		points = append(points, plotter.XY{X: us, Y: 100 * float64(i+1) / float64(len(l.All))})
	}
	return points
}
