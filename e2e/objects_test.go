package e2e

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
)

// node returns a Node as its kubelet would register it.
func (c *cluster) node(name, zone string) *corev1.Node {
	host := c.network.Host(name)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelTopologyZone: zone, corev1.LabelOSStable: "linux"},
		},
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

func (c *cluster) createService(t *testing.T) {
	t.Helper()
	policy := corev1.IPFamilyPolicyRequireDualStack
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: serviceName},
		Spec: corev1.ServiceSpec{
			IPFamilyPolicy: &policy,
			Ports: []corev1.ServicePort{
				{Name: "stream", Protocol: corev1.ProtocolTCP, Port: servicePort},
				{Name: "datagram", Protocol: corev1.ProtocolUDP, Port: servicePort},
			},
		},
	}
	for _, address := range serviceAddresses() {
		service.Spec.ClusterIPs = append(service.Spec.ClusterIPs, address.String())
	}
	service.Spec.ClusterIP = service.Spec.ClusterIPs[0]
	if _, err := c.client.CoreV1().Services(metav1.NamespaceDefault).Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, address := range serviceAddresses() {
		if _, err := c.slices().Create(t.Context(), c.slice(address, nil), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func (c *cluster) deleteService(t *testing.T) {
	t.Helper()
	if err := c.client.CoreV1().Services(metav1.NamespaceDefault).Delete(t.Context(), serviceName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, address := range serviceAddresses() {
		if err := c.slices().Delete(t.Context(), c.slice(address, nil).Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// setEndpoints makes the pods the endpoints of the Service, in both families.
func (c *cluster) setEndpoints(t *testing.T, pods ...string) {
	t.Helper()
	for _, address := range serviceAddresses() {
		if _, err := c.slices().Update(t.Context(), c.slice(address, pods), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// annotateEndpoints changes what no proxy needs to know of the endpoints.
func (c *cluster) annotateEndpoints(t *testing.T) {
	t.Helper()
	patch := []byte(`{"metadata": {"annotations": {"example.com/note": "hello"}, "labels": {"example.com/note": "hello"}}}`)
	for _, address := range serviceAddresses() {
		name := c.slice(address, nil).Name
		if _, err := c.slices().Patch(t.Context(), name, "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// slices is the API of EndpointSlices.
func (c *cluster) slices() discoveryclient.EndpointSliceInterface {
	return c.client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
}

// slice returns the Service's EndpointSlice of a family with the pods as its
// endpoints.
func (c *cluster) slice(like netip.Addr, pods []string) *discoveryv1.EndpointSlice {
	family := discoveryv1.AddressTypeIPv6
	if like.Is4() {
		family = discoveryv1.AddressTypeIPv4
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name:   serviceName + "-" + strings.ToLower(string(family)),
			Labels: map[string]string{discoveryv1.LabelServiceName: serviceName},
		},
		AddressType: family,
		Ports: []discoveryv1.EndpointPort{
			{Name: new("stream"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(endpointPort))},
			{Name: new("datagram"), Protocol: new(corev1.ProtocolUDP), Port: new(int32(endpointPort))},
		},
	}
	for _, pod := range pods {
		host := c.network.Host(pod)
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{host.Address(like).String()},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
			NodeName:   new(host.Node),
		})
	}
	return slice
}
