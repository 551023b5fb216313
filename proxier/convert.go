package proxier

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	netutils "k8s.io/utils/net"

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
	return &Service{
		Name:          namespacedName(s),
		Created:       s.CreationTimestamp.Time,
		Addrs:         addrs,
		Ports:         ports,
		InternalLocal: s.Spec.InternalTrafficPolicy != nil && *s.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal,
		ExternalLocal: s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal && externallyAccessible(&s.Spec),
		Restricted:    len(s.Spec.LoadBalancerSourceRanges) > 0,
		SourceRanges:  sources,
	}, errors.Join(errs...)
}

// NewEndpointSlice takes over what the proxy uses of an EndpointSlice, on the
// node of that name.
//
// A slice that is not for this proxy, because it belongs to no Service or to a
// headless one, or holds host names, is nil without an error. A non-nil slice
// with a non-nil error is usable without what the error names; a nil slice with
// an error has nothing left that could be used. The error joins one error a
// field.
func NewEndpointSlice(s *discoveryv1.EndpointSlice, nodeName string) (*EndpointSlice, error) {
	_, headless := s.Labels[corev1.IsHeadlessService]
	service := s.Labels[discoveryv1.LabelServiceName]
	if headless || service == "" || s.AddressType == discoveryv1.AddressTypeFQDN {
		return nil, nil
	}
	if s.Name == "" {
		return nil, errNoName
	}
	family, ok := familyOf(string(s.AddressType))
	if !ok {
		return nil, fmt.Errorf("addressType: %q is not IPv4, IPv6 or FQDN", s.AddressType)
	}
	ports, errs := slicePorts(s.Ports)
	endpoints, endpointErrs := sliceEndpoints(s.Endpoints, family, nodeName)
	errs = append(errs, endpointErrs...)
	if len(errs) > 0 && (len(ports) == 0 || len(endpoints) == 0) {
		return nil, errors.Join(errs...)
	}
	weight, err := sliceWeight(s.Annotations)
	if err != nil {
		errs = append(errs, err)
	}
	return &EndpointSlice{
		Name:      namespacedName(s),
		Service:   service,
		Family:    family,
		Ports:     ports,
		Endpoints: endpoints,
		Weight:    weight,
	}, errors.Join(errs...)
}

// The two kinds of objects, as users know them.
const (
	kindService = "Service"
	kindSlice   = "EndpointSlice"
)

// objectKey names an object.
type objectKey struct {
	kind string
	name types.NamespacedName
}

// String returns the kind and the name.
func (k objectKey) String() string { return k.kind + " " + k.name.String() }

// compare orders keys by kind, namespace and name.
func (k objectKey) compare(l objectKey) int {
	return cmp.Or(strings.Compare(k.kind, l.kind),
		strings.Compare(k.name.Namespace, l.name.Namespace), strings.Compare(k.name.Name, l.name.Name))
}

// object is a converted Service or EndpointSlice. The zero value is none.
type object struct {
	service *Service
	slice   *EndpointSlice
}

// convert converts a Service or an EndpointSlice of Kubernetes; an object that is
// neither has no kind.
func convert(obj any, nodeName string) (key objectKey, o object, err error) {
	switch k := obj.(type) {
	case *corev1.Service:
		key = objectKey{kindService, namespacedName(k)}
		o.service, err = NewService(k)
	case *discoveryv1.EndpointSlice:
		key = objectKey{kindSlice, namespacedName(k)}
		o.slice, err = NewEndpointSlice(k, nodeName)
	}
	return key, o, err
}

// exists reports whether there is an object.
func (o object) exists() bool { return o.service != nil || o.slice != nil }

// equal reports whether both are the same for the proxy.
func (o object) equal(p object) bool {
	switch {
	case o.service != nil && p.service != nil:
		return o.service.Equal(p.service)
	case o.slice != nil && p.slice != nil:
		return o.slice.Equal(p.slice)
	default:
		return o == p
	}
}

// add adds the newest state of an object.
func (c *Changes) add(key objectKey, o object) {
	if key.kind == kindService {
		c.Services = append(c.Services, ServiceChange{Name: key.name, Service: o.service})
		return
	}
	c.Slices = append(c.Slices, SliceChange{Name: key.name, Slice: o.slice})
}

// each returns the errors that errors.Join joined.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

func namespacedName(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// errNoName is the error of an object without a name.
var errNoName = errors.New("metadata.name: is missing")

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

// sourceRanges returns the ranges of spec.loadBalancerSourceRanges. One that cannot
// be parsed lets nobody in.
func sourceRanges(all []string) (ranges []netip.Prefix, errs []error) {
	for i, text := range all {
		_, network, err := netutils.ParseCIDRSloppy(strings.TrimSpace(text))
		if err != nil {
			errs = append(errs, fmt.Errorf("spec.loadBalancerSourceRanges[%d]: %q is not a range of addresses", i, text))
			continue
		}
		addr, _ := netip.AddrFromSlice(network.IP)
		bits, _ := network.Mask.Size()
		if addr.Is4In6() && bits >= 96 {
			addr, bits = addr.Unmap(), bits-96
		}
		ranges = append(ranges, netip.PrefixFrom(addr, bits))
	}
	return ranges, errs
}

// servicePorts leaves out ports that are not possible, and those that an earlier
// port of the same Service makes ambiguous.
func servicePorts(all []corev1.ServicePort) (ports []Port, errs []error) {
	for i, p := range all {
		port, err := newPort(p.Name, p.Protocol, p.Port)
		if err == nil {
			err = ambiguous(port, ports)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("spec.ports[%d].%w", i, err))
			continue
		}
		ports = append(ports, port)
	}
	return ports, errs
}

// ambiguous returns an error if one of the ports has the name or the number of
// the given one, for the same protocol.
func ambiguous(port Port, ports []Port) error {
	for _, p := range ports {
		switch {
		case p.Protocol != port.Protocol:
		case p.Name == port.Name:
			return fmt.Errorf("name: %q is the name of an earlier port too", port.Name)
		case p.Number == port.Number:
			return fmt.Errorf("port: %d is an earlier port too", port.Number)
		}
	}
	return nil
}

// slicePorts leaves out ports without a name or a number, as kube-proxy does.
func slicePorts(all []discoveryv1.EndpointPort) (ports []Port, errs []error) {
	for i, p := range all {
		if p.Name == nil || p.Port == nil || *p.Port == 0 {
			continue
		}
		var protocol corev1.Protocol
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		port, err := newPort(*p.Name, protocol, *p.Port)
		if err != nil {
			errs = append(errs, fmt.Errorf("ports[%d].%w", i, err))
			continue
		}
		ports = append(ports, port)
	}
	return ports, errs
}

// newPort returns an error that begins with the name of the field.
func newPort(name string, protocol corev1.Protocol, number int32) (Port, error) {
	port := Port{Name: name}
	switch protocol {
	case corev1.ProtocolTCP, "":
		port.Protocol = rules.TCP
	case corev1.ProtocolUDP:
		port.Protocol = rules.UDP
	case corev1.ProtocolSCTP:
		port.Protocol = rules.SCTP
	default:
		return Port{}, fmt.Errorf("protocol: %q is not TCP, UDP or SCTP", protocol)
	}
	if number < 1 || number > math.MaxUint16 {
		return Port{}, fmt.Errorf("port: %d is not in 1..65535", number)
	}
	port.Number = uint16(number)
	return port, nil
}

// sliceEndpoints uses the first address of each endpoint, the only one that has
// a meaning in Kubernetes.
func sliceEndpoints(all []discoveryv1.Endpoint, family rules.Family, nodeName string) (endpoints []SliceEndpoint, errs []error) {
	endpoints = make([]SliceEndpoint, 0, len(all))
	for i := range all {
		e := &all[i]
		if len(e.Addresses) == 0 {
			continue
		}
		addr, err := parseAddrOf(family, e.Addresses[0])
		if err != nil {
			errs = append(errs, fmt.Errorf("endpoints[%d].addresses[0]: %w", i, err))
			continue
		}
		endpoints = append(endpoints, SliceEndpoint{
			Addr:        addr,
			Local:       e.NodeName != nil && *e.NodeName == nodeName && nodeName != "",
			Ready:       e.Conditions.Ready == nil || *e.Conditions.Ready,
			Serving:     e.Conditions.Serving == nil || *e.Conditions.Serving,
			Terminating: e.Conditions.Terminating != nil && *e.Conditions.Terminating,
		})
	}
	return endpoints, errs
}

func sliceWeight(annotations map[string]string) (uint16, error) {
	text, ok := annotations[WeightAnnotation]
	if !ok {
		return DefaultWeight, nil
	}
	weight, err := strconv.ParseUint(text, 10, 16)
	if err != nil || weight > rules.MaxWeight {
		return DefaultWeight, fmt.Errorf("metadata.annotations[%s]: %q is not an integer from 0 to %d",
			WeightAnnotation, text, rules.MaxWeight)
	}
	return uint16(weight), nil
}

// parseAddr parses an address as Kubernetes has always done: leading zeros are
// allowed and mean nothing, an IPv4-mapped IPv6 address is the IPv4 address.
func parseAddr(text string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		addr, _ = netip.AddrFromSlice(netutils.ParseIPSloppy(text))
	}
	addr = addr.Unmap()
	switch {
	case !addr.IsValid():
		return netip.Addr{}, fmt.Errorf("%q is not an IP address", text)
	case addr.IsUnspecified():
		return netip.Addr{}, fmt.Errorf("%q is not the address of anything", text)
	}
	return addr, nil
}

func parseAddrOf(family rules.Family, text string) (netip.Addr, error) {
	addr, err := parseAddr(text)
	if err == nil && rules.FamilyOf(addr) != family {
		return netip.Addr{}, fmt.Errorf("%q is not an %s address", text, family)
	}
	return addr, err
}

func familyOf(name string) (rules.Family, bool) {
	for _, f := range rules.Families() {
		if f.String() == name {
			return f, true
		}
	}
	return 0, false
}
