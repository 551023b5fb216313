package bench

import (
	"fmt"
	"net/netip"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/rules"
)

// NodeName is the node of the synthetic clusters that is measured, NodeAddr its
// address.
const (
	NodeName = "node-0"
	nodeAddr = "192.0.2.1"
)

const (
	numNamespaces   = 50
	numZones        = 3
	servicePort     = 80
	metricsPort     = 9090
	endpointPort    = 8080
	endpointMetrics = 9100
)

// The networks of the cluster. Each is large enough for what Spec allows.
func clusterIPs(f rules.Family) netip.Prefix {
	if f == rules.IPv4 {
		return netip.MustParsePrefix("10.64.0.0/10")
	}
	return netip.MustParsePrefix("fd00:10:96::/104")
}

// PodRanges are the addresses of the endpoints, as for --cluster-cidr.
func PodRanges() []netip.Prefix {
	return []netip.Prefix{podAddrs(rules.IPv4), podAddrs(rules.IPv6)}
}

func podAddrs(f rules.Family) netip.Prefix {
	if f == rules.IPv4 {
		return netip.MustParsePrefix("10.128.0.0/9")
	}
	return netip.MustParsePrefix("fd00:10:244::/104")
}

func loadBalancerIPs(f rules.Family) netip.Prefix {
	if f == rules.IPv4 {
		return netip.MustParsePrefix("100.64.0.0/10")
	}
	return netip.MustParsePrefix("fd00:10:198::/104")
}

// nth returns an address of a network, the first after its own for 0.
func nth(p netip.Prefix, n int) netip.Addr {
	b := p.Addr().AsSlice()
	for i, v := len(b)-1, n+1; v > 0; i, v = i-1, v>>8 {
		b[i] |= byte(v)
	}
	addr, _ := netip.AddrFromSlice(b) // of 4 or 16 bytes, as it was
	return addr
}

// families returns those of a Service, as the API names them.
func (c *Cluster) families(n int) []rules.Family {
	if c.services[n].dualStack {
		return rules.Families()
	}
	return []rules.Family{rules.IPv4}
}

// nameOf returns the name of a Service.
func nameOf(n int) types.NamespacedName {
	return types.NamespacedName{Namespace: fmt.Sprintf("team-%02d", n%numNamespaces), Name: fmt.Sprintf("service-%06d", n)}
}

// created is when every object was made. Two never have the same address, so that no
// order is needed.
func created() metav1.Time { return metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) }

// Service returns a Service by its number.
func (c *Cluster) Service(n int) *corev1.Service {
	s, name := c.services[n], nameOf(n)
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: name.Namespace, Name: name.Name, CreationTimestamp: created(),
			UID:        types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012x", n)),
			Labels:     map[string]string{"app.kubernetes.io/name": name.Name},
			Generation: int64(s.version) + 1,
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, Ports: s.ports(), SessionAffinity: corev1.ServiceAffinityNone,
			Selector:              map[string]string{"app.kubernetes.io/name": name.Name},
			IPFamilyPolicy:        ptr.To(corev1.IPFamilyPolicySingleStack),
			InternalTrafficPolicy: ptr.To(corev1.ServiceInternalTrafficPolicyCluster),
		},
	}
	for _, f := range c.families(n) {
		svc.Spec.IPFamilies = append(svc.Spec.IPFamilies, corev1.IPFamily(f.String()))
		svc.Spec.ClusterIPs = append(svc.Spec.ClusterIPs, nth(clusterIPs(f), n).String())
	}
	svc.Spec.ClusterIP = svc.Spec.ClusterIPs[0]
	if s.dualStack {
		svc.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
	}
	if s.internalLocal {
		svc.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
	}
	if s.affinity {
		svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		svc.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(corev1.DefaultClientIPServiceAffinitySeconds)},
		}
	}
	c.expose(svc, n)
	return svc
}

// expose adds what a Service has that can be reached from outside.
func (c *Cluster) expose(svc *corev1.Service, n int) {
	s := c.services[n]
	if s.nodePort == 0 && !s.loadBalancer {
		return
	}
	svc.Spec.Type = corev1.ServiceTypeNodePort
	svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	if s.externalLocal {
		svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	if !s.loadBalancer {
		return
	}
	svc.Spec.Type = corev1.ServiceTypeLoadBalancer
	svc.Spec.AllocateLoadBalancerNodePorts = ptr.To(s.nodePort != 0)
	if s.restricted {
		svc.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24", "203.0.113.0/25"}
	}
	for _, f := range c.families(n) {
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{
			IP: nth(loadBalancerIPs(f), n).String(), IPMode: ptr.To(corev1.LoadBalancerIPModeVIP),
		})
	}
}

func (s service) ports() []corev1.ServicePort {
	protocol := corev1.ProtocolTCP
	if s.udp {
		protocol = corev1.ProtocolUDP
	}
	ports := []corev1.ServicePort{{Protocol: protocol, Port: servicePort, TargetPort: intstr.FromInt32(endpointPort), NodePort: int32(s.nodePort)}}
	if s.twoPorts {
		second := corev1.ServicePort{Name: "metrics", Protocol: corev1.ProtocolTCP, Port: metricsPort, TargetPort: intstr.FromInt32(endpointMetrics)}
		if s.nodePort != 0 {
			second.NodePort = int32(s.nodePort) + 1
		}
		ports[0].Name = "main"
		ports = append(ports, second)
	}
	return ports
}

// Slices returns the EndpointSlices of a Service by its number.
func (c *Cluster) Slices(n int) []*discoveryv1.EndpointSlice {
	var all []*discoveryv1.EndpointSlice
	for i := range c.slices(n) {
		for _, f := range c.families(n) {
			all = append(all, c.slice(n, i, f))
		}
	}
	return all
}

// slice returns one EndpointSlice of a Service.
func (c *Cluster) slice(n, i int, f rules.Family) *discoveryv1.EndpointSlice {
	service := nameOf(n)
	name := fmt.Sprintf("%s-%s-%d", service.Name, f.Keyword(), i)
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: service.Namespace, Name: name, CreationTimestamp: created(),
			UID: types.UID(fmt.Sprintf("00000000-0000-4000-%d000-%06x%06x", 8+f%2, n, i)),
			Labels: map[string]string{
				discoveryv1.LabelServiceName: service.Name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
			},
		},
		AddressType: discoveryv1.AddressType(f.String()),
	}
	for _, p := range c.services[n].ports() {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{
			Name: ptr.To(p.Name), Protocol: ptr.To(p.Protocol), Port: ptr.To(p.TargetPort.IntVal),
		})
	}
	endpoints := c.slices(n)[i]
	s.Endpoints = make([]discoveryv1.Endpoint, 0, len(endpoints))
	for _, e := range endpoints {
		s.Endpoints = append(s.Endpoints, c.endpoint(service, e, f))
	}
	return s
}

// endpoint returns a ready endpoint by its number.
func (c *Cluster) endpoint(service types.NamespacedName, e int, f rules.Family) discoveryv1.Endpoint {
	node := int(mix(c.spec.Seed, e) % uint64(c.nodes)) //nolint:gosec // there are few nodes
	return discoveryv1.Endpoint{
		Addresses:  []string{nth(podAddrs(f), e).String()},
		Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
		NodeName:   ptr.To("node-" + strconv.Itoa(node)),
		Zone:       ptr.To("zone-" + strconv.Itoa(node%numZones)),
		TargetRef: &corev1.ObjectReference{
			Kind: "Pod", Namespace: service.Namespace, Name: fmt.Sprintf("%s-%016x", service.Name, mix(c.spec.Seed, e)),
		},
	}
}

// mix returns the n-th number of a sequence that looks random: the finalizer of
// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators).
func mix(seed uint64, n int) uint64 {
	z := seed + (uint64(n)+1)*0x9e3779b97f4a7c15 //nolint:gosec // n is not negative
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Node returns the node that is measured.
func (c *Cluster) Node() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: NodeName, UID: "00000000-0000-4000-a000-000000000000", CreationTimestamp: created(),
			Labels: map[string]string{corev1.LabelHostname: NodeName, corev1.LabelTopologyZone: "zone-0"},
		},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodeAddr}}},
	}
}
