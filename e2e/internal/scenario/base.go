package scenario

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nftproxy/nftproxy/e2e/internal/object"
	"github.com/nftproxy/nftproxy/e2e/internal/testnet"
)

// baseObjects returns what is in the cluster of every case: the Nodes, as their
// kubelets would register them, and the range of service addresses.
func baseObjects(network *testnet.Network) ([]*object.Object, error) {
	var all []*object.Object
	for _, typed := range []runtime.Object{
		newNode(network.Host(testnet.Node1), "zone-a", "10.244.1.0/24", "fd00:10:244:1::/64"),
		newNode(network.Host(testnet.Node2), "zone-b", "10.244.2.0/24", "fd00:10:244:2::/64"),
		&networkingv1.ServiceCIDR{
			TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: object.ServiceCIDR},
			ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
			Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16", "fd00:10:96::/112"}},
		},
	} {
		o, err := object.Encode(typed)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

func newNode(host *testnet.Host, zone string, podCIDRs ...string) *corev1.Node {
	name := host.Name()
	return &corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: object.Node},
		ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelTopologyZone: zone},
		},
		Spec: corev1.NodeSpec{PodCIDR: podCIDRs[0], PodCIDRs: podCIDRs},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: host.IPv4.String()},
				{Type: corev1.NodeInternalIP, Address: host.IPv6.String()},
				{Type: corev1.NodeHostName, Address: name},
			},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}
