package bench

import (
	"bytes"
	"fmt"

	"gonum.org/v1/plot/plotter"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/stats"
	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/terminal"
)

// cdfPoints is how many points of a distribution are drawn: more cannot be told apart.
const cdfPoints = 400

// WriteReport writes an HTML page and plots into a folder.
func (r *UpdateResult) WriteReport(folder string) error {
	var table bytes.Buffer
	if err := r.WriteTable(&table); err != nil {
		return err
	}
	cdf, err := r.cdf().draw()
	if err != nil {
		return err
	}
	return page{
		title: "nftproxy bench update: " + describe(r.Services, r.Endpoints), machine: r.Machine.String(), tables: table.String(),
		figures: []figure{cdf}, result: r,
	}.write(folder)
}

func describe(services, endpoints int) string {
	return fmt.Sprintf("%s Services, %s endpoints", terminal.Thousands(services), terminal.Thousands(endpoints))
}

// cdf is the distribution of the latencies by kind.
func (r *UpdateResult) cdf() chart {
	c := chart{
		name: "update-latency-cdf", title: "From the changed object to the kernel's answer, " + describe(r.Services, r.Endpoints),
		caption: "Share of the changes that were in the kernel after so long, by kind of change.",
		x:       logAxis("latency", durationTick), y: axis{label: "changes", unit: percentTick},
	}
	for _, kind := range Kinds() {
		if samples := r.samples[kind]; len(samples) > 0 {
			c.lines = append(c.lines, line{name: string(kind), points: distribution(samples)})
		}
	}
	return c
}

// distribution returns the points of a distribution: latency in microseconds, percent.
func distribution(samples []sample) plotter.XYs {
	latencies := sortedLatencies(samples)
	n := min(len(latencies), cdfPoints)
	points := make(plotter.XYs, 0, n)
	for i := 1; i <= n; i++ {
		p := 100 * float64(i) / float64(n)
		points = append(points, plotter.XY{X: microseconds(stats.Percentile(latencies, p)), Y: p})
	}
	return points
}
