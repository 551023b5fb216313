package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/nftproxy/nftproxy/rules"
)

// Metrics are the metrics of the process, in a registry of their own. All methods may
// be called from any goroutine. Values about a family that New was not given are
// dropped.
type Metrics struct {
	registry *prometheus.Registry
	families map[rules.Family]*familyMetrics

	serviceChanges, endpointChanges               prometheus.Counter
	servicesPending, endpointsPending             prometheus.Gauge
	healthz, livez                                *prometheus.CounterVec
	elementOperations, verdicts, objectOperations prometheus.Counter
	commitDuration, queueDuration                 prometheus.Observer
	kernelErrors                                  *prometheus.CounterVec
	resyncs                                       [numResyncReasons]prometheus.Counter
	foreignChanges, badAnnotations                prometheus.Counter
	skippedObjects                                *prometheus.CounterVec
	restClient                                    restClientMetrics
}

// familyMetrics are the series of one family.
type familyMetrics struct {
	syncDuration, fullDuration, partialDuration prometheus.Observer
	lastSync, lastQueued                        prometheus.Gauge
	syncFailures, cleanupFailures               prometheus.Counter
	networkProgramming                          prometheus.Observer
	noLocalInternal, noLocalExternal            prometheus.Gauge
	conntrackDuration                           prometheus.Observer
	conntrackDeleted                            prometheus.Counter
	servicePorts, elements                      prometheus.Gauge
}

// New returns metrics with series for the families that the proxy programs.
func New(families []rules.Family, build BuildInfo) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), families: map[rules.Family]*familyMetrics{}}
	for _, f := range families {
		m.families[f] = &familyMetrics{}
	}
	r := registrar{m.registry}
	m.registerSync(r)
	m.registerChanges(r)
	m.registerEndpoints(r)
	m.registerKernel(r)
	m.registerObjects(r)
	m.restClient = newRESTClientMetrics(r)
	registerBuildInfo(r, build)
	m.registry.MustRegister(
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsAll)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// Gatherer returns where the metrics are collected from.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// Handler returns what answers a scrape. Metrics that cannot be collected do not keep
// the others from being served.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

// The names before a metric's own.
const (
	kubeProxy = "kubeproxy"
	nftproxy  = "nftproxy"
)

// Labels.
const (
	labelFamily = "ip_family" // "IPv4" or "IPv6"
	labelPolicy = "traffic_policy"
	labelCode   = "code"
	labelKind   = "kind"
	labelCause  = "cause"
	labelReason = "reason"
)

// syncBuckets are kube-proxy's buckets of durations: 1 ms to 16 s.
func syncBuckets() []float64 { return prometheus.ExponentialBuckets(0.001, 2, 15) }

// fineBuckets are the buckets of our own durations: 10 µs to 21 s. A commit of one
// element takes some ten microseconds.
func fineBuckets() []float64 { return prometheus.ExponentialBuckets(10e-6, 2, 22) }

// programmingBuckets are kube-proxy's buckets of the network programming latency:
// 0.25 s to 5 minutes.
func programmingBuckets() []float64 {
	buckets := prometheus.LinearBuckets(0.25, 0.25, 2)
	buckets = append(buckets, prometheus.LinearBuckets(1, 1, 59)...)
	buckets = append(buckets, prometheus.LinearBuckets(60, 5, 12)...)
	return append(buckets, prometheus.LinearBuckets(120, 30, 7)...)
}
