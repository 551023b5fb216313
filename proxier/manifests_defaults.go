package proxier

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// setDefaults fills in what an API server fills in when it gets the object.
func setDefaults(obj metav1.Object) {
	switch obj.(type) {
	case *corev1.Node, *networkingv1.ServiceCIDR:
		obj.SetNamespace("") // the kind has none
	default:
		if obj.GetNamespace() == "" {
			obj.SetNamespace(metav1.NamespaceDefault)
		}
	}
	switch o := obj.(type) {
	case *corev1.Service:
		setServiceDefaults(&o.Spec)
	case *discoveryv1.EndpointSlice:
		for i := range o.Ports {
			if o.Ports[i].Name == nil {
				o.Ports[i].Name = new(string)
			}
		}
	}
}

func setServiceDefaults(spec *corev1.ServiceSpec) {
	switch {
	case len(spec.ClusterIPs) == 0 && spec.ClusterIP != "":
		spec.ClusterIPs = []string{spec.ClusterIP}
	case len(spec.ClusterIPs) > 0 && spec.ClusterIP == "":
		spec.ClusterIP = spec.ClusterIPs[0]
	}
	if len(spec.IPFamilies) > 0 || spec.ClusterIP == corev1.ClusterIPNone {
		return
	}
	for _, text := range spec.ClusterIPs {
		family := corev1.IPv4Protocol // that of a bad address does not matter
		if addr, err := parseAddr(text); err == nil && addr.Is6() {
			family = corev1.IPv6Protocol
		}
		spec.IPFamilies = append(spec.IPFamilies, family)
	}
}
