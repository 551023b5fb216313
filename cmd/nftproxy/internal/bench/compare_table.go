package bench

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"gonum.org/v1/plot/plotter"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/terminal"
)

// WriteTable writes the result for people.
func (r *CompareResult) WriteTable(out io.Writer) error {
	costs := terminal.NewTable("PROXY", ">FIRST SYNC", ">ITS CPU", ">CPU OF A CHANGE", ">MEMORY", ">LOAD AVERAGE")
	latencies := terminal.NewTable("PROXY", "SEEN BY", ">CHANGES", ">P50", ">P90", ">P99", ">MAX")
	add := func(name, by string, l Latencies) {
		if l.Count > 0 {
			latencies.Add(name, by, terminal.Thousands(l.Count), micro(l.P50), micro(l.P90), micro(l.P99), micro(l.Max))
		}
	}
	var commands strings.Builder
	for _, p := range r.Proxies {
		costs.Add(p.Name, fmt.Sprintf("%.3f s", p.FirstSync), fmt.Sprintf("%.2f s", p.FirstSyncCPU),
			micro(p.cpuPerChange()), fmt.Sprintf("%.1f MiB", mebibytes(p.RSS)), p.Machine.Load)
		add(p.Name, "nftables", p.NFTables)
		add(p.Name, "packet", p.Packet)
		fmt.Fprintf(&commands, "%s: %s\n", p.Name, p.Command)
	}
	_, err := fmt.Fprintf(out, `%s Services with %s endpoints, shape %s, seed %d
%s
%s
From the start of the process to the first connection, and what it took; memory as the
process left it:

%s
One endpoint replaced, from the API server to the next generation of nftables, and to
the first connection that the new endpoint answers:

%s`,
		terminal.Thousands(r.Services), terminal.Thousands(r.Endpoints), r.Shape, r.Seed, r.Machine, &commands, costs, latencies)
	if err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// cpuPerChange returns the processor time of a change in microseconds.
func (p *ProxyResult) cpuPerChange() float64 { return p.CPU * 1e6 / float64(max(p.Packet.Count, 1)) }

// WriteReport writes an HTML page and plots into a folder.
func (r *CompareResult) WriteReport(folder string) error {
	var table bytes.Buffer
	if err := r.WriteTable(&table); err != nil {
		return err
	}
	f, err := r.cdf().draw()
	if err != nil {
		return err
	}
	return page{
		title: "nftproxy bench compare: " + describe(r.Services, r.Endpoints), machine: r.Machine.String(),
		tables: table.String(), figures: []figure{f}, result: r,
	}.write(folder)
}

// cdf is the distribution of the latencies of all proxies.
func (r *CompareResult) cdf() chart {
	c := chart{
		name: "compare-latency-cdf", title: "One endpoint replaced, " + describe(r.Services, r.Endpoints),
		caption: "Share of the changes that were in force after so long, from the API server, for every proxy.",
		x:       logAxis("latency", durationTick), y: axis{label: "changes", unit: percentTick},
	}
	for _, p := range r.Proxies {
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

// distribution returns the points of a distribution: latency in microseconds, percent.
func (l Latencies) distribution() plotter.XYs {
	points := make(plotter.XYs, 0, len(l.All))
	for i, us := range l.All {
		points = append(points, plotter.XY{X: us, Y: 100 * float64(i+1) / float64(len(l.All))})
	}
	return points
}
