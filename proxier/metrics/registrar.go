package metrics

import "github.com/prometheus/client_golang/prometheus"

// registrar makes metrics and registers them. Two of the same name are a mistake in
// this package, and a panic.
type registrar struct{ registry *prometheus.Registry }

// Kubernetes' settings of native histograms.
const (
	nativeBucketFactor = 1.1
	nativeMaxBuckets   = 160
)

func (r registrar) counters(namespace, name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	r.registry.MustRegister(v)
	return v
}

func (r registrar) gauges(namespace, name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	r.registry.MustRegister(v)
	return v
}

func (r registrar) histograms(namespace, name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor:    nativeBucketFactor,
		NativeHistogramMaxBucketNumber: nativeMaxBuckets,
	}, labels)
	r.registry.MustRegister(v)
	return v
}

func (r registrar) counter(namespace, name, help string) prometheus.Counter {
	return r.counters(namespace, name, help).WithLabelValues()
}

func (r registrar) gauge(namespace, name, help string) prometheus.Gauge {
	return r.gauges(namespace, name, help).WithLabelValues()
}

func (r registrar) histogram(namespace, name, help string, buckets []float64) prometheus.Observer {
	return r.histograms(namespace, name, help, buckets).WithLabelValues()
}
