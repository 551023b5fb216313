package bench

import (
	"fmt"
	"io"
	"strconv"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/terminal"
)

// WriteTable writes the result for people.
func (r *UpdateResult) WriteTable(out io.Writer) error {
	t := terminal.NewTable("CHANGE", ">COUNT", ">P50", ">P90", ">P99", ">MAX", ">OPERATIONS", ">VERDICTS", ">BYTES")
	for _, kind := range Kinds() {
		c, ok := r.Changes[kind]
		if !ok {
			continue
		}
		t.Add(string(kind), terminal.Thousands(c.Count), micro(c.P50), micro(c.P90), micro(c.P99), micro(c.Max),
			terminal.Thousands(c.OperationsP50), terminal.Thousands(c.VerdictsP50), terminal.Thousands(c.BytesP50))
	}
	pace := "each as soon as the kernel had taken the one before"
	if r.Rate > 0 {
		pace = fmt.Sprintf("%s a second asked for, %.1f reached", strconv.FormatFloat(r.Rate, 'g', -1, 64), r.Reached)
	}
	_, err := fmt.Fprintf(out, `%s Services with %s endpoints, shape %s, seed %d
%s

First sync: %.3f s, %.2f s of CPU, %s operations in %d batches of %.1f MiB together
Changes: %s; %.2f s, %d syncs
CPU for the changes: %.3f s (user %.3f s, kernel %.3f s), %.1f %% of a core
Memory: %.1f MiB resident, of which %.1f MiB the program without a cluster

From the changed object to the kernel's answer; operations, verdicts and bytes are medians:

%s`,
		terminal.Thousands(r.Services), terminal.Thousands(r.Endpoints), r.Shape, r.Seed, r.Machine,
		r.FirstSync, r.FirstSyncCPU, terminal.Thousands(r.FirstSyncOperations), r.FirstSyncBatches, mebibytes(r.FirstSyncBytes),
		pace, r.Elapsed, r.Syncs, r.CPU, r.CPUUser, r.CPUKernel, 100*r.CPU/max(r.Elapsed, 1e-9),
		mebibytes(r.RSS), mebibytes(r.RSSEmpty), t)
	if err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// micro returns a number of microseconds with a unit that fits.
func micro(us float64) string {
	switch {
	case us < 1000:
		return strconv.FormatFloat(us, 'f', 1, 64) + " µs"
	case us < 1e6:
		return strconv.FormatFloat(us/1e3, 'f', 2, 64) + " ms"
	default:
		return strconv.FormatFloat(us/1e6, 'f', 2, 64) + " s"
	}
}

func mebibytes(bytes int) float64 { return float64(bytes) / (1 << 20) }
