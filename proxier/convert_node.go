package proxier

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// taintToBeDeleted is the key of the taint with which the cluster autoscaler announces
// that it is going to remove the node, whatever its value and effect.
const taintToBeDeleted = "ToBeDeletedByClusterAutoscaler"

// NewNode takes over what the proxy uses of the Node that it runs on. A non-nil Node
// with a non-nil error is usable without what the error names; only one without a
// name is nil. The error joins one error a field.
func NewNode(n *corev1.Node) (*Node, error) {
	if n.Name == "" {
		return nil, errNoName
	}
	addrs, errs := nodeAddrs(n.Status.Addresses)
	podCIDRs, podErrs := podCIDRs(&n.Spec)
	return &Node{
		Name:     n.Name,
		Addrs:    addrs,
		PodCIDRs: podCIDRs,
		Zone:     n.Labels[corev1.LabelTopologyZone],
		Deleting: n.DeletionTimestamp != nil,
		ToBeDeleted: slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == taintToBeDeleted
		}),
	}, errors.Join(append(errs, podErrs...)...)
}

// nodeAddrs returns the InternalIPs, then the ExternalIPs, each once. Their order says
// which is the node's primary one.
func nodeAddrs(all []corev1.NodeAddress) (addrs []netip.Addr, errs []error) {
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for i, a := range all {
			if a.Type != kind {
				continue
			}
			addr, err := parseAddr(a.Address)
			if err != nil {
				errs = append(errs, fmt.Errorf("status.addresses[%d].address: %w", i, err))
				continue
			}
			if !slices.Contains(addrs, addr) {
				addrs = append(addrs, addr)
			}
		}
	}
	return addrs, errs
}

// podCIDRs returns the ranges of spec.podCIDRs, or that of spec.podCIDR, the older
// field, if there are none.
func podCIDRs(spec *corev1.NodeSpec) (ranges []netip.Prefix, errs []error) {
	if len(spec.PodCIDRs) > 0 || spec.PodCIDR == "" {
		return parseRanges("spec.podCIDRs", spec.PodCIDRs)
	}
	prefix, err := parseRange(spec.PodCIDR)
	if err != nil {
		return nil, []error{fmt.Errorf("spec.podCIDR: %w", err)}
	}
	return []netip.Prefix{prefix}, nil
}

// NewServiceCIDR returns the ranges of a ServiceCIDR. They count until it is gone, not
// until it is being deleted: meanwhile Services still have addresses of them. The
// error joins one error for each range that cannot be used.
func NewServiceCIDR(s *networkingv1.ServiceCIDR) ([]netip.Prefix, error) {
	if s.Name == "" {
		return nil, errNoName
	}
	cidrs, errs := parseRanges("spec.cidrs", s.Spec.CIDRs)
	return cidrs, errors.Join(errs...)
}
