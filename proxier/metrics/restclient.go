package metrics

import (
	"context"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientmetrics "k8s.io/client-go/tools/metrics"
)

// RegisterRESTClient makes the clients of the API server, all of the process, report
// to these metrics. client-go keeps the one receiver of its reports in package-level
// variables, without a lock: RegisterRESTClient must come before the first client is
// made, and only the first call in a process has an effect.
func (m *Metrics) RegisterRESTClient() { clientmetrics.Register(m.restClient.hooks()) }

// restClientMetrics are the metrics of client-go, as component-base names them.
type restClientMetrics struct {
	requestDuration, rateLimiterDuration            *prometheus.HistogramVec
	requestSize, responseSize                       *prometheus.HistogramVec
	requests, retries                               *prometheus.CounterVec
	transportEntries                                prometheus.Gauge
	transportCreate, transportGC, transportCAReload *prometheus.CounterVec
	transportCertGC                                 prometheus.Counter
}

func newRESTClientMetrics(r registrar) restClientMetrics {
	const client = "rest_client"
	durations := []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}
	sizes := []float64{64, 256, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20}
	return restClientMetrics{
		requestDuration: r.histograms(client, "request_duration_seconds",
			"Request latency in seconds. Broken down by verb, and host.", durations, "verb", "host"),
		rateLimiterDuration: r.histograms(client, "rate_limiter_duration_seconds",
			"Client side rate limiter latency in seconds. Broken down by verb, and host.", durations, "verb", "host"),
		requestSize: r.histograms(client, "request_size_bytes",
			"Request size in bytes. Broken down by verb and host.", sizes, "verb", "host"),
		responseSize: r.histograms(client, "response_size_bytes",
			"Response size in bytes. Broken down by verb and host.", sizes, "verb", "host"),
		requests: r.counters(client, "requests_total",
			"Number of HTTP requests, partitioned by status code, method, and host.", "code", "method", "host"),
		retries: r.counters(client, "request_retries_total",
			"Number of request retries, partitioned by status code, verb, and host.", "code", "verb", "host"),
		transportEntries: r.gauge(client, "transport_cache_entries", "Number of transport entries in the internal cache."),
		transportCreate: r.counters(client, "transport_create_calls_total",
			"Number of calls to get a new transport, partitioned by the result: hit, miss, miss-gc, uncacheable", "result"),
		transportGC: r.counters(client, "transport_cache_gc_calls_total",
			"Number of times a GC cleanup attempts to delete a transport cache entry, partitioned by the result: deleted, skipped", "result"),
		transportCAReload: r.counters(client, "transport_ca_reload_total",
			"Number of times a CA reload is attempted, partitioned by the result and reason for the reload attempt", "result", "reason"),
		transportCertGC: r.counter(client, "transport_cert_rotation_gc_calls_total",
			"Number of times a cert rotation goroutine cancel func is called via GC cleanup of the associated transport"),
	}
}

func (m restClientMetrics) hooks() clientmetrics.RegisterOpts {
	return clientmetrics.RegisterOpts{
		RequestLatency:               latencyHook{m.requestDuration},
		RateLimiterLatency:           latencyHook{m.rateLimiterDuration},
		RequestSize:                  sizeHook{m.requestSize},
		ResponseSize:                 sizeHook{m.responseSize},
		RequestResult:                requestHook{m.requests},
		RequestRetry:                 requestHook{m.retries},
		TransportCacheEntries:        entriesHook{m.transportEntries},
		TransportCreateCalls:         resultHook{m.transportCreate},
		TransportCacheGCCalls:        resultHook{m.transportGC},
		TransportCAReloads:           reloadHook{m.transportCAReload},
		TransportCertRotationGCCalls: callHook{m.transportCertGC},
	}
}

// The hooks turn client-go's calls into observations.
type (
	latencyHook struct{ vec *prometheus.HistogramVec }
	sizeHook    struct{ vec *prometheus.HistogramVec }
	requestHook struct{ vec *prometheus.CounterVec }
	entriesHook struct{ gauge prometheus.Gauge }
	resultHook  struct{ vec *prometheus.CounterVec }
	reloadHook  struct{ vec *prometheus.CounterVec }
	callHook    struct{ counter prometheus.Counter }
)

func (h latencyHook) Observe(_ context.Context, verb string, u url.URL, latency time.Duration) {
	h.vec.WithLabelValues(verb, u.Host).Observe(latency.Seconds())
}

func (h sizeHook) Observe(_ context.Context, verb, host string, bytes float64) {
	h.vec.WithLabelValues(verb, host).Observe(bytes)
}

func (h requestHook) Increment(_ context.Context, code, method, host string) {
	h.vec.WithLabelValues(code, method, host).Inc()
}

func (h requestHook) IncrementRetry(_ context.Context, code, verb, host string) {
	h.vec.WithLabelValues(code, verb, host).Inc()
}

func (h entriesHook) Observe(entries int) { h.gauge.Set(float64(entries)) }

func (h resultHook) Increment(result string) { h.vec.WithLabelValues(result).Inc() }

func (h reloadHook) Increment(result, reason string) { h.vec.WithLabelValues(result, reason).Inc() }

func (h callHook) Increment() { h.counter.Inc() }
