package metrics

import (
	"context"
	"errors"
	"time"

	"k8s.io/utils/clock"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
)

// Kernel returns a Kernel that does what the given one does, and counts it. Checks of
// batches are not counted: they look for the cause of an error that was.
func (m *Metrics) Kernel(kernel syncer.Kernel, c clock.PassiveClock) syncer.Kernel {
	return &countedKernel{Kernel: kernel, metrics: m, clock: c}
}

type countedKernel struct {
	syncer.Kernel
	metrics *Metrics
	clock   clock.PassiveClock
}

// State implements [syncer.Kernel].
func (k *countedKernel) State(ctx context.Context, families []rules.Family) (syncer.State, error) {
	state, err := k.Kernel.State(ctx, families)
	k.metrics.kernelFailed(err)
	return state, err
}

// Apply implements [syncer.Kernel].
func (k *countedKernel) Apply(ctx context.Context, b *syncer.Batch) error {
	start := k.clock.Now()
	err := k.Kernel.Apply(ctx, b)
	if err != nil {
		k.metrics.kernelFailed(err)
		return err
	}
	k.metrics.committed(k.clock.Since(start), b.Counts())
	return nil
}

func (m *Metrics) committed(took time.Duration, c syncer.Counts) {
	m.commitDuration.Observe(took.Seconds())
	m.elementOperations.Add(float64(c.Elements - c.Verdicts))
	m.verdicts.Add(float64(c.Verdicts))
	m.objectOperations.Add(float64(c.Objects))
}

// kernelFailed counts an error, if it is one.
func (m *Metrics) kernelFailed(err error) {
	if err == nil {
		return
	}
	cause := syncer.Unknown
	if e, ok := errors.AsType[*syncer.Error](err); ok {
		cause = e.Cause
	}
	m.kernelErrors.WithLabelValues(causeLabel(cause)).Inc()
}

// causeLabel returns the value of the label cause.
func causeLabel(c syncer.Cause) string {
	switch c {
	case syncer.Refused:
		return "refused"
	case syncer.Forbidden:
		return "forbidden"
	case syncer.TooLarge:
		return "too_large"
	default:
		return "unknown"
	}
}

// ConntrackPass counts a pass over the conntrack table that was completed, and the
// entries of the family that it deleted.
func (m *Metrics) ConntrackPass(family rules.Family, took time.Duration, deleted int) {
	if f := m.families[family]; f != nil {
		f.conntrackDuration.Observe(took.Seconds())
		f.conntrackDeleted.Add(float64(deleted))
	}
}

func (m *Metrics) registerKernel(r registrar) {
	operations := r.counters(nftproxy, "batch_operations_total", "Operations of committed batches", labelKind)
	m.elementOperations = operations.WithLabelValues("element")
	m.verdicts = operations.WithLabelValues("verdict")
	m.objectOperations = operations.WithLabelValues("object")
	m.commitDuration = r.histogram(nftproxy, "commit_duration_seconds",
		"Time from handing a batch to the kernel to its last answer", fineBuckets())
	m.kernelErrors = r.counters(nftproxy, "kernel_errors_total", "Requests to the kernel that failed", labelCause)
	for _, cause := range []syncer.Cause{syncer.Refused, syncer.Forbidden, syncer.TooLarge, syncer.Unknown} {
		m.kernelErrors.WithLabelValues(causeLabel(cause))
	}
	conntrack := r.histograms(kubeProxy, "conntrack_reconciler_sync_duration_seconds", "ReconcileConntrackFlowsLatency latency in seconds",
		syncBuckets(), labelFamily)
	deleted := r.counters(kubeProxy, "conntrack_reconciler_deleted_entries_total",
		"Cumulative conntrack flows deleted by conntrack reconciler", labelFamily)
	for family, f := range m.families {
		f.conntrackDuration = conntrack.WithLabelValues(family.String())
		f.conntrackDeleted = deleted.WithLabelValues(family.String())
	}
}
