package bench

import (
	"bytes"
	"fmt"
	"io"

	"gonum.org/v1/plot/plotter"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/terminal"
)

// ScaleResult is what `bench scale` has measured: the same as `bench update`, for
// clusters of several sizes.
type ScaleResult struct {
	Sizes []*UpdateResult `json:"sizes"`
}

// Scale measures clusters of several sizes with update, which should do each in a
// process of its own: the memory of one would be in that of the next.
func Scale(sizes []int, update func(services int) (*UpdateResult, error), progress io.Writer) (*ScaleResult, error) {
	r := &ScaleResult{}
	for i, n := range sizes {
		if _, err := fmt.Fprintf(progress, "size %d of %d: %s Services\n", i+1, len(sizes), terminal.Thousands(n)); err != nil {
			return nil, fmt.Errorf("show the progress: %w", err)
		}
		result, err := update(n)
		if err != nil {
			return nil, err
		}
		r.Sizes = append(r.Sizes, result)
	}
	return r, nil
}

// WriteTable writes the result for people.
func (r *ScaleResult) WriteTable(out io.Writer) error {
	sizes := terminal.NewTable(">SERVICES", ">ENDPOINTS", ">FIRST SYNC", ">ITS CPU", ">MEMORY", ">CPU FOR 1,000 CHANGES", ">LOAD AVERAGE")
	kinds := terminal.NewTable("CHANGE", ">SERVICES", ">COUNT", ">P50", ">P90", ">P99", ">MAX", ">OPERATIONS", ">VERDICTS")
	for _, s := range r.Sizes {
		sizes.Add(terminal.Thousands(s.Services), terminal.Thousands(s.Endpoints), fmt.Sprintf("%.3f s", s.FirstSync),
			fmt.Sprintf("%.3f s", s.FirstSyncCPU), fmt.Sprintf("%.1f MiB", mebibytes(s.RSS)),
			fmt.Sprintf("%.3f s", s.cpuPerChange()*1000), s.Machine.Load)
	}
	for _, kind := range Kinds() {
		for _, s := range r.Sizes {
			c, ok := s.Changes[kind]
			if !ok {
				continue
			}
			kinds.Add(string(kind), terminal.Thousands(s.Services), terminal.Thousands(c.Count), micro(c.P50), micro(c.P90),
				micro(c.P99), micro(c.Max), terminal.Thousands(c.OperationsP50), terminal.Thousands(c.VerdictsP50))
		}
	}
	if _, err := fmt.Fprintf(out, "%s\n\n%s\nFrom the changed object to the kernel's answer; operations and verdicts are medians:\n\n%s", r.machine(), sizes, kinds); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// machine describes where it was measured; the sizes differ in the load average alone.
func (r *ScaleResult) machine() string {
	if len(r.Sizes) == 0 {
		return ""
	}
	return r.Sizes[0].Machine.String()
}

// cpuPerChange returns the processor time of a change in seconds.
func (r *UpdateResult) cpuPerChange() float64 {
	count := 0
	for _, c := range r.Changes {
		count += c.Count
	}
	return r.CPU / float64(max(count, 1))
}

// WriteReport writes an HTML page and plots into a folder.
func (r *ScaleResult) WriteReport(folder string) error {
	var table bytes.Buffer
	if err := r.WriteTable(&table); err != nil {
		return err
	}
	p := page{title: "nftproxy bench scale: cost by size of the cluster", machine: r.machine(), tables: table.String(), result: r}
	for _, c := range r.charts() {
		f, err := c.draw()
		if err != nil {
			return err
		}
		p.figures = append(p.figures, f)
	}
	return p.write(folder)
}

// charts show how costs grow with the number of Services.
func (r *ScaleResult) charts() []chart {
	x := logAxis("Services in the cluster", countTick)
	latency := func(name, title, caption string, value func(ChangeResult) float64) chart {
		c := chart{name: name, title: title, caption: caption, x: x, y: logAxis("latency", durationTick)}
		for _, kind := range Kinds() {
			of := func(u *UpdateResult) float64 { return value(u.Changes[kind]) }
			c.lines = append(c.lines, r.growth(string(kind), of))
		}
		return c
	}
	return []chart{
		latency("scale-latency-p50", "From the changed object to the kernel's answer, median",
			"A flat line is a cost that does not depend on the size of the cluster.", func(c ChangeResult) float64 { return c.P50 }),
		latency("scale-latency-p99", "From the changed object to the kernel's answer, 99th percentile",
			"The same for the slowest change of a hundred.", func(c ChangeResult) float64 { return c.P99 }),
		{
			name: "scale-first-sync", title: "First sync: all objects into the kernel", caption: "It has to grow with the cluster.",
			x: x, y: logAxis("time", secondsTick), lines: []line{
				r.growth("elapsed", func(u *UpdateResult) float64 { return u.FirstSync }),
				r.growth("CPU", func(u *UpdateResult) float64 { return u.FirstSyncCPU }),
			},
		},
		{
			name: "scale-memory", title: "Resident memory", caption: "All of the process, without garbage.",
			x: x, y: logAxis("memory", mebibyteTick), lines: []line{
				r.growth("with the cluster", func(u *UpdateResult) float64 { return mebibytes(u.RSS) }),
				r.growth("the program alone", func(u *UpdateResult) float64 { return mebibytes(u.RSSEmpty) }),
			},
		},
	}
}

// growth is a value by number of Services.
func (r *ScaleResult) growth(name string, value func(*UpdateResult) float64) line {
	l := line{name: name, marked: true, points: make(plotter.XYs, 0, len(r.Sizes))}
	for _, s := range r.Sizes {
		l.points = append(l.points, plotter.XY{X: float64(s.Services), Y: value(s)})
	}
	return l
}
