package proxier

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/rules"
)

// labelServiceProxyName on a Service gives it to another proxy, whatever the
// value.
const labelServiceProxyName = "service.kubernetes.io/service-proxy-name"

// NewService takes over what the proxy uses of a Service.
//
// A Service that is not for this proxy, because it is headless, an ExternalName
// or another proxy's, is nil without an error. A non-nil Service with a non-nil
// error is usable without what the error names; a nil Service with an error has
// nothing left that could be used. The error joins one error a field.
func NewService(s *corev1.Service) (*Service, error) {
	_, otherProxy := s.Labels[labelServiceProxyName]
	if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone ||
		s.Spec.Type == corev1.ServiceTypeExternalName || otherProxy {
		return nil, nil
	}
	if s.Name == "" {
		return nil, errNoName
	}
	addrs, errs := clusterIPs(&s.Spec)
	addrs, externalErrs := appendExternal(addrs, s)
	errs = append(errs, externalErrs...)
	sources, sourceErrs := sourceRanges(s.Spec.LoadBalancerSourceRanges)
	errs = append(errs, sourceErrs...)
	ports, portErrs := servicePorts(s.Spec.Ports)
	errs = append(errs, portErrs...)
	if len(errs) > 0 && (len(addrs) == 0 || len(ports) == 0) {
		return nil, errors.Join(errs...)
	}
	timeout, affinityErr := affinity(&s.Spec)
	weights, weightsErr := serviceWeights(s.Annotations)
	return &Service{
		Name:          namespacedName(s),
		UID:           s.UID,
		Created:       s.CreationTimestamp.Time,
		Addrs:         addrs,
		Ports:         ports,
		InternalLocal: s.Spec.InternalTrafficPolicy != nil && *s.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal,
		ExternalLocal: s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal && externallyAccessible(&s.Spec),
		Restricted:    len(s.Spec.LoadBalancerSourceRanges) > 0,
		SourceRanges:  sources,
		Affinity:      timeout,
		Weights:       weights,

		HealthCheckNodePort: healthCheckNodePort(&s.Spec),
	}, errors.Join(append(errs, affinityErr, weightsErr)...)
}

// healthCheckNodePort returns the port on which load balancers ask for local endpoints,
// 0 if they have no reason to.
func healthCheckNodePort(spec *corev1.ServiceSpec) uint16 {
	if spec.Type != corev1.ServiceTypeLoadBalancer || spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal ||
		spec.HealthCheckNodePort < 0 || spec.HealthCheckNodePort > math.MaxUint16 {
		return 0
	}
	return uint16(spec.HealthCheckNodePort)
}

// clusterIPs returns the cluster IPs of the families that the Service has. An
// old Service without spec.ipFamilies has the one of spec.clusterIP.
func clusterIPs(spec *corev1.ServiceSpec) (addrs []ServiceAddr, errs []error) {
	if len(spec.IPFamilies) == 0 {
		addr, err := parseAddr(spec.ClusterIP)
		if err != nil {
			return nil, []error{fmt.Errorf("spec.clusterIP: %w", err)}
		}
		return []ServiceAddr{{rules.ClusterIP, addr}}, nil
	}
	seen := make(map[rules.Family]bool, 2)
	for i, name := range spec.IPFamilies {
		if i >= len(spec.ClusterIPs) {
			break // not allocated yet
		}
		family, ok := familyOf(string(name))
		if !ok || seen[family] {
			errs = append(errs, fmt.Errorf("spec.ipFamilies[%d]: %q is not IPv4 or IPv6, each once", i, name))
			continue
		}
		seen[family] = true
		addr, err := parseAddrOf(family, spec.ClusterIPs[i])
		if err != nil {
			errs = append(errs, fmt.Errorf("spec.clusterIPs[%d]: %w", i, err))
			continue
		}
		addrs = append(addrs, ServiceAddr{rules.ClusterIP, addr})
	}
	return addrs, errs
}

// externallyAccessible reports whether the external traffic policy counts, which
// depends on the Service's type.
func externallyAccessible(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeLoadBalancer || spec.Type == corev1.ServiceTypeNodePort || len(spec.ExternalIPs) > 0
}

// appendExternal appends the external addresses of the families that have a
// ClusterIP. A Service without one in a family does not exist there.
func appendExternal(addrs []ServiceAddr, s *corev1.Service) (all []ServiceAddr, errs []error) {
	families := len(addrs)
	add := func(kind rules.FrontendKind, field, text string) {
		addr, err := parseAddr(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", field, err))
			return
		}
		known := slices.ContainsFunc(addrs, func(a ServiceAddr) bool { return a.Addr == addr })
		exists := slices.ContainsFunc(addrs[:families], func(a ServiceAddr) bool {
			return rules.FamilyOf(a.Addr) == rules.FamilyOf(addr)
		})
		if exists && !known {
			addrs = append(addrs, ServiceAddr{kind, addr})
		}
	}
	for i, ingress := range s.Status.LoadBalancer.Ingress {
		// An address of mode Proxy is served by the load balancer, which sends to
		// NodePorts or pods; one without an IP is a host name.
		if ingress.IP != "" && (ingress.IPMode == nil || *ingress.IPMode == corev1.LoadBalancerIPModeVIP) {
			add(rules.LoadBalancerIP, fmt.Sprintf("status.loadBalancer.ingress[%d].ip", i), ingress.IP)
		}
	}
	for i, ip := range s.Spec.ExternalIPs {
		if ip != "" {
			add(rules.ExternalIP, fmt.Sprintf("spec.externalIPs[%d]", i), ip)
		}
	}
	return addrs, errs
}

// sourceRanges returns the ranges of spec.loadBalancerSourceRanges, around which
// spaces are allowed. One that cannot be parsed lets nobody in.
func sourceRanges(all []string) ([]netip.Prefix, []error) {
	trimmed := make([]string, len(all))
	for i, text := range all {
		trimmed[i] = strings.TrimSpace(text)
	}
	return parseRanges("spec.loadBalancerSourceRanges", trimmed)
}

// The timeouts of session affinity that an API server accepts, and the one that it
// fills in, in seconds.
const (
	defaultAffinity = 10800
	maxAffinity     = 86400
)

// affinity returns for how long a client is remembered, 0 for no session affinity.
func affinity(spec *corev1.ServiceSpec) (time.Duration, error) {
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone, "":
		return 0, nil
	case corev1.ServiceAffinityClientIP:
	default:
		return 0, fmt.Errorf("spec.sessionAffinity: %q is not None or ClientIP", spec.SessionAffinity)
	}
	config := spec.SessionAffinityConfig
	if config == nil || config.ClientIP == nil || config.ClientIP.TimeoutSeconds == nil {
		return defaultAffinity * time.Second, nil
	}
	seconds := *config.ClientIP.TimeoutSeconds
	if seconds < 1 || seconds > maxAffinity {
		return defaultAffinity * time.Second, fmt.Errorf("spec.sessionAffinityConfig.clientIP.timeoutSeconds: %d is not in 1..%d: %d is used",
			seconds, maxAffinity, defaultAffinity)
	}
	return time.Duration(seconds) * time.Second, nil
}

// serviceWeights returns the weights of the Service's WeightsAnnotation. One with a
// mistake gives none at all: half of it would divide connections in a way that nobody
// asked for.
func serviceWeights(annotations map[string]string) ([]Weight, error) {
	text, ok := annotations[WeightsAnnotation]
	if !ok {
		return nil, nil
	}
	weights, err := parseWeights(text)
	if err != nil {
		return nil, &annotationError{WeightsAnnotation, err}
	}
	return weights, nil
}
