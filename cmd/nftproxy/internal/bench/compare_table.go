package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/terminal"
)

// WriteTable writes the result for people.
func (r *CompareResult) WriteTable(out io.Writer) error {
	costs := terminal.NewTable("PROXY", ">SERVICES", ">FIRST SYNC", ">ITS CPU", ">CPU OF A CHANGE", ">MEMORY", ">LOAD AVERAGE")
	latencies := terminal.NewTable("PROXY", ">SERVICES", "SEEN BY", ">CHANGES", ">P50", ">P90", ">P99", ">MAX")
	add := func(p *ProxyResult, by string, l Latencies) {
		if l.Count > 0 {
			latencies.Add(p.Name, terminal.Thousands(p.Services), by, terminal.Thousands(l.Count), micro(l.P50), micro(l.P90), micro(l.P99), micro(l.Max))
		}
	}
	var commands strings.Builder
	for _, p := range r.Proxies {
		costs.Add(p.Name, terminal.Thousands(p.Services), fmt.Sprintf("%.3f s", p.FirstSync), fmt.Sprintf("%.2f s", p.FirstSyncCPU),
			micro(p.cpuPerChange()), fmt.Sprintf("%.1f MiB", mebibytes(p.RSS)), p.Machine.Load)
		add(p, "nftables", p.NFTables)
		add(p, "packet", p.Packet)
	}
	for _, p := range r.largest() {
		fmt.Fprintf(&commands, "%s: %s\n", p.Name, p.Command)
	}
	_, err := fmt.Fprintf(out, `%s, shape %s, seed %d
%s
%s
From the start of the process to the first connection, and what it took; memory as the
process left it:

%s
One endpoint replaced, from the API server to the next generation of nftables, and to
the first connection that the new endpoint answers:

%s`,
		r.clusters(), r.Shape, r.Seed, r.Machine, &commands, costs, latencies)
	if err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// clusters lists the clusters that were measured.
func (r *CompareResult) clusters() string {
	var texts []string
	for _, p := range r.Proxies {
		if text := describe(p.Services, p.Endpoints); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "; ")
}

// cpuPerChange returns the processor time of a change in microseconds.
func (p *ProxyResult) cpuPerChange() float64 { return p.CPU * 1e6 / float64(max(p.Packet.Count, 1)) }
