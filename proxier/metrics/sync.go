package metrics

import (
	"time"

	"github.com/nftproxy/nftproxy/rules"
)

// Sync is what is counted about a sync.
type Sync struct {
	// Families are those whose rules the sync changed, or would have.
	Families []rules.Family
	// Full is true if the whole ruleset was written, Failed if the sync failed.
	Full, Failed bool
	// Queued is how long the oldest change waited for the sync to begin; 0 if there was
	// none.
	Queued time.Duration
	// Took is the duration of the sync, End when it was over.
	Took time.Duration
	End  time.Time
}

// Synced counts a sync.
func (m *Metrics) Synced(s Sync) {
	if s.Queued > 0 {
		m.queueDuration.Observe(s.Queued.Seconds())
	}
	for _, family := range s.Families {
		f := m.families[family]
		if f == nil {
			continue
		}
		f.syncDuration.Observe(s.Took.Seconds())
		if s.Full {
			f.fullDuration.Observe(s.Took.Seconds())
		} else {
			f.partialDuration.Observe(s.Took.Seconds())
		}
		if s.Failed {
			f.syncFailures.Inc()
		} else {
			f.lastSync.Set(unixSeconds(s.End))
		}
	}
}

// SyncQueued notes when a sync of a family was asked for.
func (m *Metrics) SyncQueued(family rules.Family, at time.Time) {
	if f := m.families[family]; f != nil {
		f.lastQueued.Set(unixSeconds(at))
	}
}

// CleanupFailed counts that what was left behind could not be removed.
func (m *Metrics) CleanupFailed(family rules.Family) {
	if f := m.families[family]; f != nil {
		f.cleanupFailures.Inc()
	}
}

// ResyncReason is why the whole ruleset was written.
type ResyncReason uint8

// The reasons.
const (
	ResyncStart         ResyncReason = iota // it is the first sync
	ResyncPeriodic                          // it was time
	ResyncFailure                           // the sync before failed
	ResyncForeignChange                     // another program has changed our tables
	numResyncReasons
)

// String returns the value of the label reason.
func (r ResyncReason) String() string {
	switch r {
	case ResyncStart:
		return "start"
	case ResyncPeriodic:
		return "periodic"
	case ResyncFailure:
		return "failure"
	default:
		return "foreign_change"
	}
}

// Resynced counts that the whole ruleset was written.
func (m *Metrics) Resynced(reason ResyncReason) { m.resyncs[reason].Inc() }

// ForeignChangeRepaired counts that a change by another program was undone.
func (m *Metrics) ForeignChangeRepaired() { m.foreignChanges.Inc() }

func (m *Metrics) registerSync(r registrar) {
	all := r.histograms(kubeProxy, "sync_proxy_rules_duration_seconds", "SyncProxyRules latency in seconds",
		syncBuckets(), labelFamily)
	full := r.histograms(kubeProxy, "sync_full_proxy_rules_duration_seconds", "SyncProxyRules latency in seconds for full resyncs",
		syncBuckets(), labelFamily)
	partial := r.histograms(kubeProxy, "sync_partial_proxy_rules_duration_seconds", "SyncProxyRules latency in seconds for partial resyncs",
		syncBuckets(), labelFamily)
	last := r.gauges(kubeProxy, "sync_proxy_rules_last_timestamp_seconds", "The last time proxy rules were successfully synced", labelFamily)
	queued := r.gauges(kubeProxy, "sync_proxy_rules_last_queued_timestamp_seconds", "The last time a sync of proxy rules was queued", labelFamily)
	failures := r.counters(kubeProxy, "sync_proxy_rules_nftables_sync_failures_total", "Cumulative proxy nftables sync failures", labelFamily)
	cleanup := r.counters(kubeProxy, "sync_proxy_rules_nftables_cleanup_failures_total", "Cumulative proxy nftables cleanup failures", labelFamily)
	for family, f := range m.families {
		name := family.String()
		f.syncDuration, f.fullDuration = all.WithLabelValues(name), full.WithLabelValues(name)
		f.partialDuration = partial.WithLabelValues(name)
		f.lastSync, f.lastQueued = last.WithLabelValues(name), queued.WithLabelValues(name)
		f.syncFailures, f.cleanupFailures = failures.WithLabelValues(name), cleanup.WithLabelValues(name)
	}
	m.queueDuration = r.histogram(nftproxy, "queue_duration_seconds",
		"How long the oldest change of a sync waited for it to begin", fineBuckets())
	resyncs := r.counters(nftproxy, "resyncs_total", "Writes of the whole ruleset", labelReason)
	for reason := range numResyncReasons {
		m.resyncs[reason] = resyncs.WithLabelValues(reason.String())
	}
	m.foreignChanges = r.counter(nftproxy, "foreign_changes_repaired_total", "Changes of our tables by other programs that were undone")
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
