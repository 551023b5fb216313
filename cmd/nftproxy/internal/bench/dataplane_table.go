package bench

import (
	"bytes"
	"fmt"
	"io"
	"slices"

	"gonum.org/v1/plot/plotter"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/terminal"
)

// WriteTable writes the result for people.
func (r *DataplaneResult) WriteTable(out io.Writer) error {
	t := terminal.NewTable("PROXY", ">SERVICES", ">DIRECT", ">P50", ">P99", ">CLUSTERIP", ">P50", ">P99", ">RELATIVE", ">FAILED", ">LOAD AVERAGE")
	for _, run := range r.Runs {
		t.Add(run.Name, terminal.Thousands(run.Services),
			terminal.Thousands(int(run.Direct.PerSecond))+"/s", micro(run.Direct.P50), micro(run.Direct.P99),
			terminal.Thousands(int(run.ClusterIP.PerSecond))+"/s", micro(run.ClusterIP.P50), micro(run.ClusterIP.P99),
			terminal.Percent(run.Relative), terminal.Thousands(run.Direct.Failed+run.ClusterIP.Failed), run.Machine.Load)
	}
	if _, err := fmt.Fprintf(out, "%s\n\nNew connections to one listener, direct and through a ClusterIP, in turn; relative is the\nmedian of %d rounds:\n\n%s", r.machine(), DataplaneRounds, t); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

func (r *DataplaneResult) machine() string {
	if len(r.Runs) == 0 {
		return ""
	}
	return r.Runs[0].Machine.String()
}

// WriteReport writes an HTML page and plots into a folder.
func (r *DataplaneResult) WriteReport(folder string) error {
	var table bytes.Buffer
	if err := r.WriteTable(&table); err != nil {
		return err
	}
	f, err := r.chart().draw()
	if err != nil {
		return err
	}
	return page{
		title: "nftproxy bench dataplane: new connections through a ClusterIP", machine: r.machine(),
		tables: table.String(), figures: []figure{f}, result: r,
	}.write(folder)
}

// chart shows the connections a second by number of Services.
func (r *DataplaneResult) chart() chart {
	c := chart{
		name: "dataplane-relative", title: "New connections a second through a ClusterIP, relative to direct",
		caption: "100 % is as many as direct to the endpoint. A flat line is a cost that does not depend on the size of the cluster.",
		x:       logAxis("Services in the cluster", countTick), y: axis{label: "relative to direct", unit: percentTick},
	}
	for _, run := range r.Runs {
		i := slices.IndexFunc(c.lines, func(l line) bool { return l.name == run.Name })
		if i < 0 {
			i = len(c.lines)
			c.lines = append(c.lines, line{name: run.Name, marked: true})
		}
		c.lines[i].points = append(c.lines[i].points, plotter.XY{X: float64(run.Services), Y: 100 * run.Relative})
	}
	return c
}
