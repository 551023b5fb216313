package proxier

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/rules"
)

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
		Triggered: triggered(s.Annotations),
	}, errors.Join(errs...)
}

// triggered returns when the controller of a slice says that it has learned of the
// change, the zero Time if it does not say a time.
func triggered(annotations map[string]string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, annotations[corev1.EndpointsLastChangeTriggerTime])
	if err != nil {
		return time.Time{}
	}
	return t
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
		node := ptr.Deref(e.NodeName, "")
		hinted, here := nodeHints(e.Hints, nodeName)
		endpoints = append(endpoints, SliceEndpoint{
			Addr:        addr,
			Local:       node == nodeName && nodeName != "",
			NodeHinted:  hinted,
			HintsHere:   here,
			ZoneHints:   zoneHints(e.Hints),
			Zone:        intern(ptr.Deref(e.Zone, "")),
			Node:        intern(node),
			Pod:         podOf(e.TargetRef),
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
	weight, err := parseWeight(text)
	if err != nil {
		return DefaultWeight, &annotationError{WeightAnnotation, err}
	}
	return weight, nil
}

// podOf returns the name of the Pod that the endpoint is, empty if it is none.
func podOf(target *corev1.ObjectReference) string {
	if target == nil || target.Kind != "Pod" {
		return ""
	}
	return target.Name
}

// nodeHints reports whether there are hints for nodes, and whether one is for the node
// of that name.
func nodeHints(hints *discoveryv1.EndpointHints, nodeName string) (hinted, here bool) {
	if hints == nil {
		return false, false
	}
	return len(hints.ForNodes) > 0, nodeName != "" && slices.ContainsFunc(hints.ForNodes, func(n discoveryv1.ForNode) bool {
		return n.Name == nodeName
	})
}

// zoneHints returns the zones that the endpoint is for, as SliceEndpoint has them.
func zoneHints(hints *discoveryv1.EndpointHints) unique.Handle[string] {
	switch {
	case hints == nil || len(hints.ForZones) == 0:
		return unique.Handle[string]{}
	case len(hints.ForZones) == 1:
		return intern(hints.ForZones[0].Name)
	}
	zones := make([]string, len(hints.ForZones))
	for i, zone := range hints.ForZones {
		zones[i] = zone.Name
	}
	slices.Sort(zones)
	return intern(strings.Join(slices.Compact(zones), ","))
}

// intern returns the handle of a text that many objects have, the zero one if it is
// empty.
func intern(text string) unique.Handle[string] {
	if text == "" {
		return unique.Handle[string]{}
	}
	return unique.Make(text)
}
