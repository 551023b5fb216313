package e2e

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"
)

// printFigures prints what was measured of nftproxy and kube-proxy, and what nftproxy is
// meant to reach with 10,000 Services of 10 endpoints.
func printFigures(w io.Writer, f figures, results [2]result) {
	fmt.Fprintf(w, "%d Services, %d endpoints, %d changes of an endpoint at %d/s, then %d at up to %d/s\n",
		f.services, f.services*f.endpoints, f.changes, f.rate, f.all-f.changes, f.bulkRate)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, target string, value func(result) string) {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", name, value(results[0]), value(results[1]), target)
	}
	fmt.Fprintf(table, "\t%s\t%s\ttarget\n", nftProxy, kubeProxy)
	row("start to the end of the first sync, in the kernel", "< 3 s", func(r result) string { return seconds(r.synced) })
	row("start to /healthz 200 (kube-proxy's comes before its first sync)", "", func(r result) string { return seconds(r.healthy) })
	row("processor time for it", "", func(r result) string { return seconds(r.syncedCPU) })
	row("resident memory after it", "<= 100 MB", func(r result) string { return megabytes(r.afterSync.now) })
	row("at its peak", "", func(r result) string { return megabytes(r.afterSync.peak) })
	row("processor time for 1,000 changes", "<= 1 s", func(r result) string {
		return seconds(r.cpu * 1000 / time.Duration(f.changes))
	})
	row("processor time for 1,000 changes, of the others", "<= 1 s", func(r result) string {
		return seconds(r.bulkCPU * 1000 / time.Duration(max(1, f.all-f.changes)))
	})
	row("transactions for the timed changes", "", func(r result) string { return strconv.Itoa(r.commits) })
	row(fmt.Sprintf("load average meanwhile, of %d CPUs", runtime.NumCPU()), "", func(r result) string { return r.load })
	for _, p := range []struct {
		percent int
		target  string
	}{{50, "<= 5 ms"}, {99, ""}} {
		row(fmt.Sprintf("API server's answer to commit, p%d", p.percent), p.target, func(r result) string {
			return milliseconds(percentile(r.changes, p.percent, func(c change) time.Duration { return c.committed.Sub(c.answered) }))
		})
		row(fmt.Sprintf("request to commit, p%d", p.percent), "", func(r result) string {
			return milliseconds(percentile(r.changes, p.percent, func(c change) time.Duration { return c.committed.Sub(c.asked) }))
		})
	}
	row("resident memory after all changes", "<= 100 MB", func(r result) string { return megabytes(r.afterAll.now) })
	row("at its peak", "", func(r result) string { return megabytes(r.afterAll.peak) })
	row("size of the program", "<= 50 MB", func(r result) string { return megabytes(r.binary) })
	_ = table.Flush() // a table that is not seen is no failure
}

// percentile returns the smallest value that so many percent of the changes do not
// exceed.
func percentile(changes []change, percent int, value func(change) time.Duration) time.Duration {
	values := make([]time.Duration, 0, len(changes))
	for _, c := range changes {
		values = append(values, value(c))
	}
	slices.Sort(values)
	return values[(len(values)*percent+99)/100-1]
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
