package demo

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/stats"
	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/terminal"
)

// results are what the demo has found out.
type results struct {
	targets   []target // with endpoints
	spread    []tally  // by target
	refused   []refusal
	stages    []stageResult
	scaled    string // the name of the Service that was scaled
	rollout   tally
	latencies latencies
	listed    target
	listing   []section
	listError error // why the listing is not nft's
}

// refusal is what became of connections to a target without endpoints.
type refusal struct {
	target  target
	tried   int
	refused int
	slowest time.Duration
	wrong   string // what the first other connection met
}

// write writes the report and returns what was not as it must be.
func (r *results) write(out io.Writer) (faults []string, err error) {
	var text strings.Builder
	for _, part := range []func(io.Writer) []string{
		r.writeShares, r.writeRefusals, r.writeStages, r.writeLatencies, r.writeListing,
	} {
		faults = append(faults, part(&text)...)
		text.WriteByte('\n')
	}
	writeVerdict(&text, faults)
	if _, err := io.WriteString(out, text.String()); err != nil {
		return faults, fmt.Errorf("write the report: %w", err)
	}
	return faults, nil
}

// printf prints into a strings.Builder, which takes everything.
func printf(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) }

func (r *results) writeShares(out io.Writer) (faults []string) {
	made, failed, slowest := 0, 0, time.Duration(0)
	t := terminal.NewTable("SERVICE", "ENDPOINT", ">CONNECTIONS", ">EXPECTED", ">MEASURED", "SHARES")
	for i, target := range r.targets {
		counted := &r.spread[i]
		made += counted.answered() + counted.failed
		failed += counted.failed
		slowest = max(slowest, counted.slowest)
		faults = append(faults, addShares(t, target, counted)...)
	}
	printf(out, `%s connections through the ClusterIPs, %s failed, the slowest took %s

%s
  Shares fit if chance explains the difference (chi-squared test, p >= %.0e).
`, terminal.Thousands(made), terminal.Thousands(failed), inMilliseconds(slowest), t, unlikely)
	return faults
}

// addShares adds the rows of one target.
func addShares(t *terminal.Table, target target, counted *tally) (faults []string) {
	name := target.ServicePortName.String()
	if counted.failed > 0 {
		faults = append(faults, fmt.Sprintf("%s: %s connections failed: %s",
			name, terminal.Thousands(counted.failed), strings.Join(counted.reasons, "; ")))
	}
	counts := make([]int, len(target.endpoints))
	known := 0
	for i, e := range target.endpoints {
		counts[i] = counted.answers[e.Addr]
		known += counts[i]
	}
	answered := counted.answered()
	if known != answered {
		faults = append(faults, fmt.Sprintf("%s: %s connections reached what is no ready endpoint of it: %v",
			name, terminal.Thousands(answered-known), counted.sortedAddrs()))
	}
	shares := target.shares()
	verdict := "fit"
	if p := fit(counts, shares); answered == 0 || p < unlikely {
		verdict = "DO NOT FIT"
		faults = append(faults, fmt.Sprintf("%s: the shares of %s connections do not fit (p = %.1g)", name, terminal.Thousands(answered), p))
	}
	// The name and the address stand below each other.
	first := []string{name, "  " + target.Protocol.String() + " " + target.addr.String()}
	for i, e := range target.endpoints {
		measured := 0.0
		if answered > 0 {
			measured = float64(counts[i]) / float64(answered)
		}
		label := ""
		if i < len(first) {
			label = first[i]
		}
		t.Add(label, e.Addr.String(), terminal.Thousands(counts[i]), terminal.Percent(shares[i]), terminal.Percent(measured), verdict)
		verdict = ""
	}
	for _, label := range first[min(len(first), len(target.endpoints)):] {
		t.Add(label)
	}
	return faults
}

func (r *results) writeRefusals(out io.Writer) (faults []string) {
	for _, f := range r.refused {
		name := f.target.ServicePortName.String()
		printf(out, "%s has no ready endpoint: %d of %d connections refused, the slowest in %s\n",
			name, f.refused, f.tried, inMilliseconds(f.slowest))
		if f.refused < f.tried {
			faults = append(faults, fmt.Sprintf("%s: %d of %d connections were not refused: %s",
				name, f.tried-f.refused, f.tried, f.wrong))
		}
	}
	return faults
}

func (r *results) writeStages(out io.Writer) (faults []string) {
	changes, made, failed := 0, int64(0), int64(0)
	t := terminal.NewTable("MEANWHILE", ">CHANGES", ">CONNECTIONS", ">FAILED")
	for _, s := range r.stages {
		t.Add(s.title, strconv.Itoa(s.changes), terminal.Thousands(s.made), terminal.Thousands(s.failed))
		changes += s.changes
		made += s.made
		failed += s.failed
	}
	t.Add("together", strconv.Itoa(changes), terminal.Thousands(made), terminal.Thousands(failed))
	printf(out, "%s connections to %s while its endpoints changed, %s failed\n\n%s\n"+
		"  %d different endpoints answered, the slowest connection took %s.\n",
		terminal.Thousands(made), r.scaled, terminal.Thousands(failed), t, len(r.rollout.answers), inMilliseconds(r.rollout.slowest))
	if failed > 0 {
		faults = append(faults, fmt.Sprintf("%s: %s connections failed during the changes: %s",
			r.scaled, terminal.Thousands(failed), strings.Join(r.rollout.reasons, "; ")))
	}
	if made == 0 {
		faults = append(faults, r.scaled+": no connection was made during the changes")
	}
	return faults
}

func (r *results) writeLatencies(out io.Writer) []string {
	l := r.latencies
	updates := slices.Sorted(slices.Values(l.updates))
	t := terminal.NewTable("", ">UPDATES", ">P50", ">P99", ">SLOWEST")
	t.Add("from the changed object to the kernel's answer", strconv.Itoa(len(updates)),
		inMilliseconds(stats.Percentile(updates, 50)), inMilliseconds(stats.Percentile(updates, 99)),
		inMilliseconds(stats.Percentile(updates, 100)))
	printf(out, `Latency of the rule updates

%s
  The clients and the endpoints were busy on the same CPUs. An update sent %.1f elements on
  average, for all IP families; %d of all %d carried a verdict. Writing the whole ruleset at the
  start took %s. Noticing a changed file takes 30 ms more: the daemon waits until the files
  are quiet. With an API server there is no such wait.
`, t, float64(l.elements)/float64(max(len(l.updates), 1)), l.verdicts, l.elements, inMilliseconds(l.first))
	return nil
}

func (r *results) writeListing(out io.Writer) []string {
	if r.listError != nil {
		printf(out, "The rules of %s, as nftproxy wrote them (%s):\n", r.listed.ServicePortName, r.listError)
	} else {
		printf(out, "The rules of %s, as nft lists them (other Services' elements left out):\n", r.listed.ServicePortName)
	}
	for _, s := range r.listing {
		printf(out, "\n  %s\n", s.title)
		for _, line := range s.lines {
			printf(out, "      %s\n", line)
		}
	}
	return nil
}

func writeVerdict(out io.Writer, faults []string) {
	if len(faults) > 0 {
		printf(out, "FAILED:\n")
		for _, f := range faults {
			printf(out, "  %s\n", f)
		}
		return
	}
	printf(out, `OK: no connection failed, and every share fits.

What to try next:
  nftproxy dump --manifests deploy/examples      the whole ruleset of these manifests
  nftproxy run --manifests FOLDER --dry-run      what the daemon sends when you change a file
  nftproxy run --help                            in a cluster, in place of kube-proxy
`)
}

// inMilliseconds returns a duration in milliseconds.
func inMilliseconds(d time.Duration) string {
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 2, 64) + " ms"
}
