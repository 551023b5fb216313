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
		pace = fmt.Sprintf("%s a second asked for, %.1f reached: %s", strconv.FormatFloat(r.Rate, 'f', -1, 64), r.Reached, r.verdict())
	}
	batches := "a batch"
	if r.FirstSyncBatches != 1 {
		batches = strconv.Itoa(r.FirstSyncBatches) + " batches"
	}
	_, err := fmt.Fprintf(out, `%s Services with %s endpoints, shape %s, seed %d
%s

First sync: %.3f s (%s a Service), %.2f s of CPU, %s operations in %s of %.1f MiB
Changes: %s; %.2f s, %d syncs
CPU for the changes: %.3f s (user %.3f s, kernel %.3f s), %.3f s for 1,000, %.1f %% of a core
Memory: %.1f MiB resident, of which %.1f MiB the program without a cluster; heap in use
after the first sync %.1f MiB, %s bytes a Service

From the changed object to the kernel's answer; operations, verdicts and bytes are medians:

%s`,
		terminal.Thousands(r.Services), terminal.Thousands(r.Endpoints), r.Shape, r.Seed, r.Machine,
		r.FirstSync, micro(r.FirstSyncPerService), r.FirstSyncCPU, terminal.Thousands(r.FirstSyncOperations), batches, mebibytes(r.FirstSyncBytes),
		pace, r.Elapsed, r.Syncs, r.CPU, r.CPUUser, r.CPUKernel, r.CPUPerThousand, 100*r.CoreShare,
		mebibytes(r.RSS), mebibytes(r.RSSEmpty), mebibytes(r.Heap), terminal.Thousands(r.HeapPerService), t)
	if err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// verdict says whether the rate was kept.
func (r *UpdateResult) verdict() string {
	if r.KeptUp {
		return "it kept up"
	}
	return "it did not keep up"
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
