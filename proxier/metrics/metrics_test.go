package metrics_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/proxier/metrics"
	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
)

func newMetrics() *metrics.Metrics {
	return metrics.New(rules.Families(), metrics.BuildInfo{Version: "v1.2.3-rc.1", Commit: "abc", TreeState: "clean", Date: "2026-01-02T03:04:05Z"})
}

// useAll gives a series to the metrics that have none from the start.
func useAll(t *testing.T, m *metrics.Metrics) {
	t.Helper()
	m.ObjectSkipped("InvalidAddress")
	hooks := m.RESTClientHooks()
	hooks.RequestLatency.Observe(t.Context(), "GET", url.URL{Host: "api:6443"}, time.Second)
	hooks.RateLimiterLatency.Observe(t.Context(), "GET", url.URL{Host: "api:6443"}, time.Second)
	hooks.RequestSize.Observe(t.Context(), "GET", "api:6443", 100)
	hooks.ResponseSize.Observe(t.Context(), "GET", "api:6443", 100)
	hooks.RequestResult.Increment(t.Context(), "200", "GET", "api:6443")
	hooks.RequestRetry.IncrementRetry(t.Context(), "429", "GET", "api:6443")
	hooks.TransportCacheEntries.Observe(1)
	hooks.TransportCreateCalls.Increment("hit")
	hooks.TransportCacheGCCalls.Increment("deleted")
	hooks.TransportCAReloads.Increment("success", "changed")
	hooks.TransportCertRotationGCCalls.Increment()
}

// scrape returns the lines of all series whose name starts with a prefix, without
// buckets and without zeros.
func scrape(t *testing.T, m *metrics.Metrics, prefixes ...string) []string {
	t.Helper()
	response := httptest.NewRecorder()
	m.Handler().ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if response.Code != http.StatusOK {
		t.Fatalf("status %d: %s", response.Code, response.Body)
	}
	var lines []string
	for line := range strings.Lines(response.Body.String()) {
		line = strings.TrimSpace(line)
		ours := slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(line, p) })
		if ours && !strings.Contains(line, "_bucket{") && !strings.HasSuffix(line, " 0") {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestValues(t *testing.T) {
	both, v4 := rules.Families(), []rules.Family{rules.IPv4}
	end := time.Unix(1_700_000_000, 500_000_000)
	tests := []struct {
		name string
		do   func(*metrics.Metrics)
		want []string
	}{
		{"nothing has happened", func(*metrics.Metrics) {}, nil},
		{"a partial sync of one family", func(m *metrics.Metrics) {
			m.Synced(metrics.Sync{Families: v4, Queued: 250 * time.Millisecond, Took: 500 * time.Millisecond, End: end})
		}, []string{
			`kubeproxy_sync_partial_proxy_rules_duration_seconds_sum{ip_family="IPv4"} 0.5`,
			`kubeproxy_sync_partial_proxy_rules_duration_seconds_count{ip_family="IPv4"} 1`,
			`kubeproxy_sync_proxy_rules_duration_seconds_sum{ip_family="IPv4"} 0.5`,
			`kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family="IPv4"} 1`,
			`kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} 1.7000000005e+09`,
			`nftproxy_queue_duration_seconds_sum 0.25`,
			`nftproxy_queue_duration_seconds_count 1`,
		}},
		{"a full sync of both families fails", func(m *metrics.Metrics) {
			m.Synced(metrics.Sync{Families: both, Full: true, Failed: true, Took: 2 * time.Second, End: end})
		}, []string{
			`kubeproxy_sync_full_proxy_rules_duration_seconds_sum{ip_family="IPv4"} 2`,
			`kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family="IPv4"} 1`,
			`kubeproxy_sync_full_proxy_rules_duration_seconds_sum{ip_family="IPv6"} 2`,
			`kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family="IPv6"} 1`,
			`kubeproxy_sync_proxy_rules_duration_seconds_sum{ip_family="IPv4"} 2`,
			`kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family="IPv4"} 1`,
			`kubeproxy_sync_proxy_rules_duration_seconds_sum{ip_family="IPv6"} 2`,
			`kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family="IPv6"} 1`,
			`kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family="IPv4"} 1`,
			`kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family="IPv6"} 1`,
		}},
		{"a sync is asked for", func(m *metrics.Metrics) { m.SyncQueued(rules.IPv6, end) }, []string{
			`kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family="IPv6"} 1.7000000005e+09`,
		}},
		{"leftovers stay", func(m *metrics.Metrics) { m.CleanupFailed(rules.IPv6) }, []string{
			`kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total{ip_family="IPv6"} 1`,
		}},
		{"reasons of resyncs", func(m *metrics.Metrics) {
			for range 3 {
				m.Resynced(metrics.ResyncStart)
			}
			m.Resynced(metrics.ResyncPeriodic)
			m.Resynced(metrics.ResyncFailure)
			m.Resynced(metrics.ResyncForeignChange)
			m.ForeignChangeRepaired()
		}, []string{
			`nftproxy_foreign_changes_repaired_total 1`,
			`nftproxy_resyncs_total{reason="failure"} 1`,
			`nftproxy_resyncs_total{reason="foreign_change"} 1`,
			`nftproxy_resyncs_total{reason="periodic"} 1`,
			`nftproxy_resyncs_total{reason="start"} 3`,
		}},
		{"changes", func(m *metrics.Metrics) {
			m.ServiceChanges(2, 1)
			m.ServiceChanges(1, 2)
			m.EndpointChanges(7, 5)
		}, []string{
			`kubeproxy_sync_proxy_rules_endpoint_changes_pending 5`,
			`kubeproxy_sync_proxy_rules_endpoint_changes_total 7`,
			`kubeproxy_sync_proxy_rules_service_changes_pending 2`,
			`kubeproxy_sync_proxy_rules_service_changes_total 3`,
		}},
		{"changes that are in force", func(m *metrics.Metrics) {
			m.NetworkProgrammed(rules.IPv4, 1500*time.Millisecond)
			m.NetworkProgrammed(rules.IPv4, -time.Hour) // the other clock is ahead
		}, []string{
			`kubeproxy_network_programming_duration_seconds_sum{ip_family="IPv4"} 1.5`,
			`kubeproxy_network_programming_duration_seconds_count{ip_family="IPv4"} 2`,
		}},
		{"local endpoints are missing", func(m *metrics.Metrics) { m.NoLocalEndpoints(rules.IPv4, 1, 2) }, []string{
			`kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family="IPv4",traffic_policy="external"} 2`,
			`kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family="IPv4",traffic_policy="internal"} 1`,
		}},
		{"what is installed", func(m *metrics.Metrics) { m.Installed(rules.IPv6, 3, 40) }, []string{
			`nftproxy_installed_elements{ip_family="IPv6"} 40`,
			`nftproxy_installed_service_ports{ip_family="IPv6"} 3`,
		}},
		{"conntrack", func(m *metrics.Metrics) { m.ConntrackPass(rules.IPv4, time.Second, 12) }, []string{
			`kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family="IPv4"} 12`,
			`kubeproxy_conntrack_reconciler_sync_duration_seconds_sum{ip_family="IPv4"} 1`,
			`kubeproxy_conntrack_reconciler_sync_duration_seconds_count{ip_family="IPv4"} 1`,
		}},
		{"objects that cannot be used", func(m *metrics.Metrics) {
			m.ObjectSkipped("InvalidAddress")
			m.ObjectSkipped("AddressConflict")
			m.AnnotationIgnored()
		}, []string{
			`nftproxy_bad_annotations_total 1`,
			`nftproxy_skipped_objects_total{reason="AddressConflict"} 1`,
			`nftproxy_skipped_objects_total{reason="InvalidAddress"} 1`,
		}},
		{"health checks", func(m *metrics.Metrics) {
			m.HealthzAnswered(http.StatusServiceUnavailable)
			m.LivezAnswered(http.StatusOK)
		}, []string{
			`kubeproxy_proxy_healthz_total{code="503"} 1`,
			`kubeproxy_proxy_livez_total{code="200"} 1`,
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := newMetrics()
			test.do(m)
			if diff := cmp.Diff(test.want, scrape(t, m, "kubeproxy_", "nftproxy_")); diff != "" {
				t.Errorf("want -, got +\n%s", diff)
			}
		})
	}
}

// TestSingleStack: there are no series of a family that the proxy does not program,
// whatever is said about it.
func TestSingleStack(t *testing.T) {
	m := metrics.New([]rules.Family{rules.IPv4}, metrics.BuildInfo{})
	m.Synced(metrics.Sync{Families: rules.Families(), Took: time.Second, End: time.Unix(1, 0)})
	m.SyncQueued(rules.IPv6, time.Unix(1, 0))
	m.CleanupFailed(rules.IPv6)
	m.NetworkProgrammed(rules.IPv6, time.Second)
	m.NoLocalEndpoints(rules.IPv6, 1, 1)
	m.Installed(rules.IPv6, 1, 1)
	m.ConntrackPass(rules.IPv6, time.Second, 1)
	lines := scrape(t, m, "kubeproxy_", "nftproxy_")
	if len(lines) == 0 {
		t.Error("nothing of IPv4")
	}
	for _, line := range lines {
		if strings.Contains(line, "IPv6") {
			t.Errorf("IPv6: %s", line)
		}
	}
}

// TestNoAllocations: what is called for every sync and batch allocates nothing.
func TestNoAllocations(t *testing.T) {
	m := newMetrics()
	sync := metrics.Sync{Families: rules.Families(), Queued: time.Millisecond, Took: time.Millisecond, End: time.Unix(1, 0)}
	allocations := testing.AllocsPerRun(100, func() {
		m.Synced(sync)
		m.SyncQueued(rules.IPv6, sync.End)
		m.ServiceChanges(1, 1)
		m.EndpointChanges(1, 1)
		m.NetworkProgrammed(rules.IPv4, time.Second)
		m.NoLocalEndpoints(rules.IPv4, 1, 1)
		m.Installed(rules.IPv4, 1, 1)
		m.Committed(time.Millisecond, syncer.Counts{Elements: 2, Verdicts: 1})
	})
	if allocations != 0 {
		t.Errorf("%v allocations", allocations)
	}
}
