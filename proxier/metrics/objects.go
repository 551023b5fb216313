package metrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/nftproxy/nftproxy/rules"
)

// ServiceChanges counts changes of Services that have come since the last call, and
// notes how many Services wait for a sync now.
func (m *Metrics) ServiceChanges(came, pending int) {
	m.serviceChanges.Add(float64(came))
	m.servicesPending.Set(float64(pending))
}

// EndpointChanges counts changes of EndpointSlices that have come since the last call,
// and notes how many EndpointSlices wait for a sync now.
func (m *Metrics) EndpointChanges(came, pending int) {
	m.endpointChanges.Add(float64(came))
	m.endpointsPending.Set(float64(pending))
}

// NetworkProgrammed observes how long a change took from the API object that caused it
// to the rules in force. It is observed once for each time that an EndpointSlice of
// the family gave. A time in the future, from a clock that is ahead, counts as now.
func (m *Metrics) NetworkProgrammed(family rules.Family, took time.Duration) {
	if f := m.families[family]; f != nil {
		f.networkProgramming.Observe(max(took, 0).Seconds())
	}
}

// NoLocalEndpoints notes how many service ports of the family have usable endpoints,
// but none on this node, where their internal or external traffic policy wants one.
func (m *Metrics) NoLocalEndpoints(family rules.Family, internal, external int) {
	if f := m.families[family]; f != nil {
		f.noLocalInternal.Set(float64(internal))
		f.noLocalExternal.Set(float64(external))
	}
}

// Installed notes what the kernel holds of a family.
func (m *Metrics) Installed(family rules.Family, servicePorts, elements int) {
	if f := m.families[family]; f != nil {
		f.servicePorts.Set(float64(servicePorts))
		f.elements.Set(float64(elements))
	}
}

// ObjectSkipped counts an object that cannot be used, by the reason of its Event. There
// must be few reasons: each is a series for good.
func (m *Metrics) ObjectSkipped(reason string) { m.skippedObjects.WithLabelValues(reason).Inc() }

// AnnotationIgnored counts an annotation of ours that cannot be read.
func (m *Metrics) AnnotationIgnored() { m.badAnnotations.Inc() }

// HealthzAnswered counts an answer to /healthz with this status code.
func (m *Metrics) HealthzAnswered(code int) { m.healthz.WithLabelValues(strconv.Itoa(code)).Inc() }

// LivezAnswered counts an answer to /livez with this status code.
func (m *Metrics) LivezAnswered(code int) { m.livez.WithLabelValues(strconv.Itoa(code)).Inc() }

func (m *Metrics) registerChanges(r registrar) {
	m.endpointsPending = r.gauge(kubeProxy, "sync_proxy_rules_endpoint_changes_pending", "Pending proxy rules Endpoint changes")
	m.endpointChanges = r.counter(kubeProxy, "sync_proxy_rules_endpoint_changes_total", "Cumulative proxy rules Endpoint changes")
	m.servicesPending = r.gauge(kubeProxy, "sync_proxy_rules_service_changes_pending", "Pending proxy rules Service changes")
	m.serviceChanges = r.counter(kubeProxy, "sync_proxy_rules_service_changes_total", "Cumulative proxy rules Service changes")
	m.skippedObjects = r.counters(nftproxy, "skipped_objects_total", "Objects, or parts of them, that cannot be used", labelReason)
	m.badAnnotations = r.counter(nftproxy, "bad_annotations_total", "Annotations of nftproxy that cannot be read")
}

func (m *Metrics) registerEndpoints(r registrar) {
	m.healthz = r.counters(kubeProxy, "proxy_healthz_total", "Cumulative proxy healthz HTTP status", labelCode)
	m.livez = r.counters(kubeProxy, "proxy_livez_total", "Cumulative proxy livez HTTP status", labelCode)
	for _, code := range []int{http.StatusOK, http.StatusServiceUnavailable} {
		m.healthz.WithLabelValues(strconv.Itoa(code))
		m.livez.WithLabelValues(strconv.Itoa(code))
	}
}

func (m *Metrics) registerObjects(r registrar) {
	programming := r.histograms(kubeProxy, "network_programming_duration_seconds", "In Cluster Network Programming Latency in seconds",
		programmingBuckets(), labelFamily)
	noLocal := r.gauges(kubeProxy, "sync_proxy_rules_no_local_endpoints_total",
		"Number of services with a Local traffic policy and no endpoints", labelPolicy, labelFamily)
	servicePorts := r.gauges(nftproxy, "installed_service_ports", "Service ports in the kernel", labelFamily)
	elements := r.gauges(nftproxy, "installed_elements", "Elements of sets and maps in the kernel", labelFamily)
	for family, f := range m.families {
		name := family.String()
		f.networkProgramming = programming.WithLabelValues(name)
		f.noLocalInternal = noLocal.WithLabelValues("internal", name)
		f.noLocalExternal = noLocal.WithLabelValues("external", name)
		f.servicePorts, f.elements = servicePorts.WithLabelValues(name), elements.WithLabelValues(name)
	}
}
