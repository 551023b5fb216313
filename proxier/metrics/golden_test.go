package metrics_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/nftproxy/nftproxy/proxier/metrics"
)

// update is set by `go test ./proxier/metrics -run TestGolden -update`.
var update = flag.Bool("update", false, "rewrite testdata/metrics.txt")

const goldenFile = "testdata/metrics.txt"

// TestGolden compares names, types, labels and buckets of all metrics but those of the
// Go runtime and the process, which are not ours to choose.
func TestGolden(t *testing.T) {
	m := newMetrics()
	useAll(t, m)
	got := strings.Join(described(t, m), "\n") + "\n"
	if *update {
		if err := os.WriteFile(goldenFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("metrics (+) are not the expected (-), see -update:\n%s", diff)
	}
}

// described returns a line for each family of metrics: name, type, labels and, for
// histograms, the bounds of the buckets.
func described(t *testing.T, m *metrics.Metrics) []string {
	t.Helper()
	var lines []string
	for name, family := range gather(t, m) {
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue
		}
		words := []string{name, strings.ToLower(family.GetType().String())}
		for _, label := range family.GetMetric()[0].GetLabel() {
			words = append(words, label.GetName())
		}
		for _, b := range family.GetMetric()[0].GetHistogram().GetBucket() {
			words = append(words, fmt.Sprintf("%g", b.GetUpperBound()))
		}
		lines = append(lines, strings.Join(words, " "))
	}
	slices.Sort(lines)
	return lines
}

func gather(t *testing.T, m *metrics.Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	all, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	families := map[string]*dto.MetricFamily{}
	for _, family := range all {
		families[family.GetName()] = family
	}
	return families
}

// TestDocumentation compares the table in doc.go with the golden file.
func TestDocumentation(t *testing.T) {
	source, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	golden, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^//\t((?:kubeproxy|nftproxy|rest_client)_\w+) +(\w+)((?: +[a-z_]+)*)$`)
	documented := map[string]string{}
	for _, match := range row.FindAllStringSubmatch(string(source), -1) {
		documented[match[1]] = strings.TrimSpace(match[2] + " " + strings.Join(strings.Fields(match[3]), " "))
	}
	bounds := regexp.MustCompile(` [0-9].*`)
	actual := map[string]string{}
	for line := range strings.Lines(string(golden)) {
		name, rest, _ := strings.Cut(strings.TrimSpace(bounds.ReplaceAllString(line, "")), " ")
		actual[name] = rest
	}
	delete(actual, "kubernetes_build_info") // has too many labels for the table
	if diff := cmp.Diff(actual, documented); diff != "" {
		t.Errorf("the table (+) is not what there is (-):\n%s", diff)
	}
}

// TestLint finds nothing to object to but names that kube-proxy and client-go have
// chosen.
func TestLint(t *testing.T) {
	m := newMetrics()
	useAll(t, m)
	problems, err := testutil.GatherAndLint(m.Gatherer())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, p := range problems {
		if !strings.HasPrefix(p.Metric, "go_") {
			got[p.Metric] = p.Text
		}
	}
	want := map[string]string{
		"kubeproxy_sync_proxy_rules_no_local_endpoints_total": `non-counter metrics should not have "_total" suffix`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
}

// TestUsualCollectors checks that a scrape tells about the process too, and that it
// does so from the start.
func TestUsualCollectors(t *testing.T) {
	all := gather(t, newMetrics())
	for _, name := range []string{
		"go_goroutines", "go_memstats_heap_inuse_bytes", "go_sched_latencies_seconds",
		"process_cpu_seconds_total", "process_resident_memory_bytes", "process_start_time_seconds",
		"kubernetes_build_info",
	} {
		if all[name] == nil {
			t.Errorf("%s is missing; there are %v", name, slices.Sorted(maps.Keys(all)))
		}
	}
}
