package proxier

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func kubeNode(change func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "uid-node", Labels: map[string]string{
			"topology.kubernetes.io/zone": "zone-a", "topology.kubernetes.io/region": "region-1",
		}},
		Spec: corev1.NodeSpec{PodCIDR: "10.244.1.0/24", PodCIDRs: []string{"10.244.1.0/24", "fd00:10:244:1::/64"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeExternalIP, Address: "203.0.113.7"},
			{Type: corev1.NodeInternalIP, Address: "192.0.2.7"},
			{Type: corev1.NodeHostName, Address: "node-1"},
			{Type: corev1.NodeInternalIP, Address: "2001:db8::7"},
		}},
	}
	if change != nil {
		change(n)
	}
	return n
}

func addresses(all ...string) (addrs []netip.Addr) {
	for _, text := range all {
		addrs = append(addrs, netip.MustParseAddr(text))
	}
	return addrs
}

func prefixes(all ...string) (ranges []netip.Prefix) {
	for _, text := range all {
		ranges = append(ranges, netip.MustParsePrefix(text))
	}
	return ranges
}

func TestNewNode(t *testing.T) {
	good := func(change func(*Node)) *Node {
		n := &Node{
			Name: "node-1", Zone: "zone-a", Addrs: addresses("192.0.2.7", "2001:db8::7", "203.0.113.7"),
			PodCIDRs: prefixes("10.244.1.0/24", "fd00:10:244:1::/64"),
		}
		if change != nil {
			change(n)
		}
		return n
	}
	internal := func(all ...string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Addresses = nil
			for _, text := range all {
				n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: text})
			}
		}
	}
	tests := []struct {
		name   string
		change func(*corev1.Node)
		want   *Node
		errs   []string
	}{
		{name: "InternalIPs before ExternalIPs", want: good(nil)},
		{name: "without anything", change: func(n *corev1.Node) { *n = corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "x"}} }, want: &Node{Name: "x"}},
		{name: "no name", change: func(n *corev1.Node) { n.Name = "" }, errs: []string{`metadata.name: is missing`}},
		{
			name:   "an address twice, with leading zeros, and IPv4-mapped",
			change: internal("192.0.2.9", "192.000.002.009", "::ffff:192.0.2.9", "192.0.2.8"),
			want:   good(func(n *Node) { n.Addrs = addresses("192.0.2.9", "192.0.2.8") }),
		},
		{
			name:   "bad addresses",
			change: internal("192.0.2.300", "192.0.2.7", "::"),
			want:   good(func(n *Node) { n.Addrs = addresses("192.0.2.7") }),
			errs: []string{
				`status.addresses[0].address: "192.0.2.300" is not an IP address`,
				`status.addresses[2].address: "::" is not the address of anything`,
			},
		},
		{
			name:   "the older field alone",
			change: func(n *corev1.Node) { n.Spec.PodCIDRs, n.Spec.PodCIDR = nil, "10.244.9.1/24" },
			want:   good(func(n *Node) { n.PodCIDRs = prefixes("10.244.9.0/24") }),
		},
		{
			name:   "bad pod CIDRs",
			change: func(n *corev1.Node) { n.Spec.PodCIDRs[0] = "10.244.1.0" },
			want:   good(func(n *Node) { n.PodCIDRs = prefixes("fd00:10:244:1::/64") }),
			errs:   []string{`spec.podCIDRs[0]: "10.244.1.0" is not a range of addresses`},
		},
		{
			name:   "a bad older field",
			change: func(n *corev1.Node) { n.Spec.PodCIDRs, n.Spec.PodCIDR = nil, "x" },
			want:   good(func(n *Node) { n.PodCIDRs = nil }),
			errs:   []string{`spec.podCIDR: "x" is not a range of addresses`},
		},
		{
			name:   "without a zone",
			change: func(n *corev1.Node) { delete(n.Labels, "topology.kubernetes.io/zone") },
			want:   good(func(n *Node) { n.Zone = "" }),
		},
		{
			name:   "being deleted",
			change: func(n *corev1.Node) { n.DeletionTimestamp = ptr.To(metav1.Unix(2000, 0)) },
			want:   good(func(n *Node) { n.Deleting = true }),
		},
		{
			name: "about to be removed by the cluster autoscaler",
			change: func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: "a"}, {Key: "ToBeDeletedByClusterAutoscaler", Value: "1", Effect: corev1.TaintEffectNoSchedule}}
			},
			want: good(func(n *Node) { n.ToBeDeleted = true }),
		},
		{
			name:   "other taints",
			change: func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "DeletionCandidateOfClusterAutoscaler"}} },
			want:   good(nil),
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := NewNode(kubeNode(test.change))
			checkErrors(t, err, test.errs)
			if !(object{node: test.want}).equal(object{node: got}) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func kubeServiceCIDR(name string, cidrs ...string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-cidr"},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: cidrs},
	}
}

func TestNewServiceCIDR(t *testing.T) {
	deleted := kubeServiceCIDR("extra", "10.112.0.0/16")
	deleted.DeletionTimestamp = ptr.To(metav1.Unix(2000, 0))
	tests := []struct {
		name string
		in   *networkingv1.ServiceCIDR
		want []netip.Prefix
		errs []string
	}{
		{name: "both families", in: kubeServiceCIDR("kubernetes", "10.96.0.0/16", "fd00:10:96::/112"), want: prefixes("10.96.0.0/16", "fd00:10:96::/112")},
		{name: "bits beyond the prefix", in: kubeServiceCIDR("kubernetes", "10.096.0.1/16"), want: prefixes("10.96.0.0/16")},
		{name: "none", in: kubeServiceCIDR("kubernetes")},
		{name: "being deleted", in: deleted, want: prefixes("10.112.0.0/16")},
		{name: "no name", in: kubeServiceCIDR("", "10.96.0.0/16"), errs: []string{`metadata.name: is missing`}},
		{
			name: "one that is bad", in: kubeServiceCIDR("kubernetes", "10.96.0.0/33", "fd00:10:96::/112"), want: prefixes("fd00:10:96::/112"),
			errs: []string{`spec.cidrs[0]: "10.96.0.0/33" is not a range of addresses`},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := NewServiceCIDR(test.in)
			checkErrors(t, err, test.errs)
			if !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
