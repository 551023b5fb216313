package proxier

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/rules"
)

func kubeService(change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "web", CreationTimestamp: metav1.Unix(1000, 0),
		},
		Spec: corev1.ServiceSpec{
			Type:       corev1.ServiceTypeClusterIP,
			ClusterIP:  "10.96.0.10",
			ClusterIPs: []string{"10.96.0.10"},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:      []corev1.ServicePort{{Name: "http", Port: 80}},
		},
	}
	if change != nil {
		change(s)
	}
	return s
}

func dualStack(families ...corev1.IPFamily) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Spec.IPFamilies = families
		s.Spec.ClusterIPs = []string{"10.96.0.10", "fd00:96::a"}
		if len(families) > 0 && families[0] == corev1.IPv6Protocol {
			s.Spec.ClusterIPs = []string{"fd00:96::a", "10.96.0.10"}
		}
		s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	}
}

// policies makes both traffic policies Local, for a type of Service.
func policies(serviceType corev1.ServiceType) func(*corev1.Service) {
	return func(s *corev1.Service) {
		local := corev1.ServiceInternalTrafficPolicyLocal
		s.Spec.Type, s.Spec.InternalTrafficPolicy = serviceType, &local
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
}

func TestNewService(t *testing.T) {
	tests := []struct {
		name   string
		change func(*corev1.Service)
		// The result: its addresses and policies, as newService reads them, and its
		// ports; none if both are empty.
		addrs string
		ports []Port
		errs  []string
	}{
		{
			name:  "ClusterIP",
			addrs: "10.96.0.10", ports: []Port{{"http", rules.TCP, 80, 0}},
		},
		{name: "headless", change: func(s *corev1.Service) { s.Spec.ClusterIP = "None" }},
		{name: "without a cluster IP yet", change: func(s *corev1.Service) { s.Spec.ClusterIP = "" }},
		{name: "ExternalName, even with a cluster IP", change: func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }},
		{
			name:   "of another proxy",
			change: func(s *corev1.Service) { s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": ""} },
		},
		{
			name: "dual stack", change: dualStack(corev1.IPv4Protocol, corev1.IPv6Protocol),
			addrs: "10.96.0.10 fd00:96::a", ports: []Port{{"http", rules.TCP, 80, 0}},
		},
		{
			name: "dual stack, IPv6 first", change: dualStack(corev1.IPv6Protocol, corev1.IPv4Protocol),
			addrs: "fd00:96::a 10.96.0.10", ports: []Port{{"http", rules.TCP, 80, 0}},
		},
		{
			name: "one family of two addresses", change: dualStack(corev1.IPv4Protocol),
			addrs: "10.96.0.10", ports: []Port{{"http", rules.TCP, 80, 0}},
		},
		{
			name: "no families: that of the cluster IP", change: dualStack(),
			addrs: "10.96.0.10", ports: []Port{{"http", rules.TCP, 80, 0}},
		},
		{
			name: "a family without an address yet",
			change: func(s *corev1.Service) {
				s.Spec.IPFamilies = append(s.Spec.IPFamilies, corev1.IPv6Protocol)
			},
			addrs: "10.96.0.10", ports: []Port{{"http", rules.TCP, 80, 0}},
		},
		{
			name: "leading zeros", change: func(s *corev1.Service) { s.Spec.ClusterIPs[0] = "172.30.0.041" },
			addrs: "172.30.0.41", ports: []Port{{"http", rules.TCP, 80, 0}},
		},
		{
			name: "IPv4-mapped", change: func(s *corev1.Service) { s.Spec.ClusterIPs[0] = "::ffff:10.96.0.10" },
			addrs: "10.96.0.10", ports: []Port{{"http", rules.TCP, 80, 0}},
		},
		{
			name: "external addresses",
			change: func(s *corev1.Service) {
				s.Spec.Type = corev1.ServiceTypeLoadBalancer
				s.Spec.ExternalIPs = []string{"203.0.113.099", "", "2001:db8::1", "203.0.113.1"}
				vip, proxy := corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy
				s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{
					{IP: "203.0.113.1"}, {Hostname: "lb.example"}, {IP: "203.0.113.2", IPMode: &proxy}, {IP: "203.0.113.3", IPMode: &vip},
				}
			},
			addrs: "10.96.0.10 lb=203.0.113.1 lb=203.0.113.3 external=203.0.113.99", ports: []Port{{"http", rules.TCP, 80, 0}},
		},
		{
			name: "external addresses of both families",
			change: func(s *corev1.Service) {
				dualStack(corev1.IPv4Protocol, corev1.IPv6Protocol)(s)
				s.Spec.ExternalIPs = []string{"2001:db8::1", "203.0.113.1", "10.96.0.10"}
			},
			addrs: "10.96.0.10 fd00:96::a external=2001:db8::1 external=203.0.113.1", ports: []Port{{"http", rules.TCP, 80, 0}},
		},
		{
			name: "bad external addresses",
			change: func(s *corev1.Service) {
				s.Spec.ExternalIPs = []string{"203.0.113", "203.0.113.1"}
				s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "x"}}
			},
			addrs: "10.96.0.10 external=203.0.113.1", ports: []Port{{"http", rules.TCP, 80, 0}},
			errs: []string{
				`status.loadBalancer.ingress[0].ip: "x" is not an IP address`,
				`spec.externalIPs[0]: "203.0.113" is not an IP address`,
			},
		},
		{
			name: "source ranges",
			change: func(s *corev1.Service) {
				s.Spec.LoadBalancerSourceRanges = []string{" 203.0.113.000/025", "10.1.2.3/8", "2001:db8::/32", "::ffff:10.0.0.0/104"}
			},
			addrs: "10.96.0.10 from=203.0.113.0/25 from=10.0.0.0/8 from=2001:db8::/32 from=10.0.0.0/8", ports: []Port{{"http", rules.TCP, 80, 0}},
		},
		{
			name: "bad source ranges let nobody in",
			change: func(s *corev1.Service) {
				s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.1", "", "x/8"}
			},
			addrs: "10.96.0.10 from=", ports: []Port{{"http", rules.TCP, 80, 0}},
			errs: []string{
				`spec.loadBalancerSourceRanges[0]: "203.0.113.1" is not a range of addresses`,
				`spec.loadBalancerSourceRanges[1]: "" is not a range of addresses`,
				`spec.loadBalancerSourceRanges[2]: "x/8" is not a range of addresses`,
			},
		},
		{
			name:   "policies of a load balancer",
			change: policies(corev1.ServiceTypeLoadBalancer), addrs: "10.96.0.10 internal-local external-local", ports: []Port{{"http", rules.TCP, 80, 0}},
		},
		{
			name:   "policies of a NodePort",
			change: policies(corev1.ServiceTypeNodePort), addrs: "10.96.0.10 internal-local external-local", ports: []Port{{"http", rules.TCP, 80, 0}},
		},
		{
			name:   "an external policy without a way in",
			change: policies(corev1.ServiceTypeClusterIP), addrs: "10.96.0.10 internal-local", ports: []Port{{"http", rules.TCP, 80, 0}},
		},
		{
			name: "an external policy of external IPs",
			change: func(s *corev1.Service) {
				policies(corev1.ServiceTypeClusterIP)(s)
				s.Spec.ExternalIPs = []string{"203.0.113.1"}
			},
			addrs: "10.96.0.10 external=203.0.113.1 internal-local external-local", ports: []Port{{"http", rules.TCP, 80, 0}},
		},
		{
			name: "protocols",
			change: func(s *corev1.Service) {
				s.Spec.Ports = []corev1.ServicePort{
					{Name: "a", Protocol: "TCP", Port: 53}, {Name: "b", Protocol: "UDP", Port: 53}, {Name: "c", Protocol: "SCTP", Port: 65535},
				}
			},
			addrs: "10.96.0.10", ports: []Port{{"a", rules.TCP, 53, 0}, {"b", rules.UDP, 53, 0}, {"c", rules.SCTP, 65535, 0}},
		},
		{
			name: "one bad address of two",
			change: func(s *corev1.Service) {
				dualStack(corev1.IPv4Protocol, corev1.IPv6Protocol)(s)
				s.Spec.ClusterIPs[0] = "10.96.0.300"
			},
			addrs: "fd00:96::a", ports: []Port{{"http", rules.TCP, 80, 0}},
			errs: []string{`spec.clusterIPs[0]: "10.96.0.300" is not an IP address`},
		},
		{
			name: "no good address", change: func(s *corev1.Service) { s.Spec.ClusterIPs[0] = "fe80::1%eth0" },
			errs: []string{`spec.clusterIPs[0]: "fe80::1%eth0" is not an IP address`},
		},
		{
			name: "no good address, without families",
			change: func(s *corev1.Service) {
				s.Spec.IPFamilies, s.Spec.ClusterIP = nil, "0.0.0.0"
			},
			errs: []string{`spec.clusterIP: "0.0.0.0" is not the address of anything`},
		},
		{
			name: "another family than it says",
			change: func(s *corev1.Service) {
				s.Spec.IPFamilies[0] = corev1.IPv6Protocol
			},
			errs: []string{`spec.clusterIPs[0]: "10.96.0.10" is not an IPv6 address`},
		},
		{
			name: "unknown and repeated families",
			change: func(s *corev1.Service) {
				s.Spec.IPFamilies = []corev1.IPFamily{"IPv4", "IPv5", "IPv4"}
				s.Spec.ClusterIPs = []string{"10.96.0.10", "10.96.0.11", "10.96.0.12"}
			},
			addrs: "10.96.0.10", ports: []Port{{"http", rules.TCP, 80, 0}},
			errs: []string{
				`spec.ipFamilies[1]: "IPv5" is not IPv4 or IPv6, each once`,
				`spec.ipFamilies[2]: "IPv4" is not IPv4 or IPv6, each once`,
			},
		},
		{
			name: "bad ports",
			change: func(s *corev1.Service) {
				s.Spec.Ports = append(s.Spec.Ports,
					corev1.ServicePort{Name: "big", Port: 70000},
					corev1.ServicePort{Name: "zero"},
					corev1.ServicePort{Name: "icmp", Protocol: "ICMP", Port: 1},
					corev1.ServicePort{Name: "http", Port: 81},
					corev1.ServicePort{Name: "again", Port: 80},
				)
			},
			addrs: "10.96.0.10", ports: []Port{{"http", rules.TCP, 80, 0}},
			errs: []string{
				`spec.ports[1].port: 70000 is not in 1..65535`,
				`spec.ports[2].port: 0 is not in 1..65535`,
				`spec.ports[3].protocol: "ICMP" is not TCP, UDP or SCTP`,
				`spec.ports[4].name: "http" is the name of an earlier port too`,
				`spec.ports[5].port: 80 is an earlier port too`,
			},
		},
		{
			name: "no good port", change: func(s *corev1.Service) { s.Spec.Ports[0].Port = -1 },
			errs: []string{`spec.ports[0].port: -1 is not in 1..65535`},
		},
		{name: "no name", change: func(s *corev1.Service) { s.Name = "" }, errs: []string{`metadata.name: is missing`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := NewService(kubeService(test.change))
			checkErrors(t, err, test.errs)
			var want *Service
			if test.addrs != "" {
				want = newService(t, "ns/web", test.addrs).at(1000)
				want.Ports = test.ports
			}
			if !(object{service: want}).equal(object{service: got}) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

func checkErrors(t *testing.T, err error, want []string) {
	t.Helper()
	var got []string
	for _, e := range each(err) {
		got = append(got, e.Error())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("errors: want -, got +\n%s", diff)
	}
}

func kubeSlice(change func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "web-abc", Labels: map[string]string{"kubernetes.io/service-name": "web"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(int32(8080))}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.244.1.10"}}},
	}
	if change != nil {
		change(s)
	}
	return s
}

func TestNewEndpointSlice(t *testing.T) {
	type slice = discoveryv1.EndpointSlice
	good := func() *EndpointSlice {
		return &EndpointSlice{
			Name:    types.NamespacedName{Namespace: "ns", Name: "web-abc"},
			Service: "web", Family: rules.IPv4, Weight: DefaultWeight,
			Ports:     []Port{{"http", rules.TCP, 8080, 0}},
			Endpoints: []SliceEndpoint{{Addr: netip.MustParseAddr("10.244.1.10"), Ready: true, Serving: true}},
		}
	}
	with := func(change func(*EndpointSlice)) *EndpointSlice {
		s := good()
		change(s)
		return s
	}
	tests := []struct {
		name   string
		change func(*slice)
		want   *EndpointSlice
		errs   []string
	}{
		{name: "defaults", want: good()},
		{name: "of a headless Service", change: func(s *slice) { s.Labels["service.kubernetes.io/headless"] = "" }},
		{name: "of no Service", change: func(s *slice) { delete(s.Labels, "kubernetes.io/service-name") }},
		{name: "host names", change: func(s *slice) { s.AddressType = discoveryv1.AddressTypeFQDN }},
		{
			name: "unknown address type", change: func(s *slice) { s.AddressType = "IPX" },
			errs: []string{`addressType: "IPX" is not IPv4, IPv6 or FQDN`},
		},
		{name: "no name", change: func(s *slice) { s.Name = "" }, errs: []string{`metadata.name: is missing`}},
		{
			name: "IPv6",
			change: func(s *slice) {
				s.AddressType = discoveryv1.AddressTypeIPv6
				s.Endpoints[0].Addresses = []string{"fd00:10::1"}
			},
			want: with(func(s *EndpointSlice) {
				s.Family = rules.IPv6
				s.Endpoints[0].Addr = netip.MustParseAddr("fd00:10::1")
			}),
		},
		{
			name: "conditions",
			change: func(s *slice) {
				s.Endpoints[0].Conditions = discoveryv1.EndpointConditions{
					Ready: ptr.To(false), Serving: ptr.To(false), Terminating: ptr.To(true),
				}
			},
			want: with(func(s *EndpointSlice) {
				s.Endpoints[0].Ready, s.Endpoints[0].Serving, s.Endpoints[0].Terminating = false, false, true
			}),
		},
		{
			name: "on this node", change: func(s *slice) { s.Endpoints[0].NodeName = ptr.To("node-1") },
			want: with(func(s *EndpointSlice) { s.Endpoints[0].Local = true }),
		},
		{name: "on another node", change: func(s *slice) { s.Endpoints[0].NodeName = ptr.To("node-2") }, want: good()},
		{
			name: "only the first address, without leading zeros",
			change: func(s *slice) {
				s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{})
				s.Endpoints[0].Addresses = []string{"010.244.001.010", "10.244.1.99"}
			},
			want: good(),
		},
		{
			name: "ports without a name or number",
			change: func(s *slice) {
				s.Ports = append(s.Ports,
					discoveryv1.EndpointPort{Port: ptr.To(int32(1))},
					discoveryv1.EndpointPort{Name: ptr.To("any")},
					discoveryv1.EndpointPort{Name: ptr.To("zero"), Port: ptr.To(int32(0))},
					discoveryv1.EndpointPort{Name: ptr.To(""), Port: ptr.To(int32(53)), Protocol: ptr.To(corev1.ProtocolUDP)})
			},
			want: with(func(s *EndpointSlice) { s.Ports = append(s.Ports, Port{"", rules.UDP, 53, 0}) }),
		},
		{
			name: "bad ports",
			change: func(s *slice) {
				s.Ports = append(s.Ports,
					discoveryv1.EndpointPort{Name: ptr.To("big"), Port: ptr.To(int32(65536))},
					discoveryv1.EndpointPort{Name: ptr.To("icmp"), Port: ptr.To(int32(1)), Protocol: ptr.To(corev1.Protocol("ICMP"))})
			},
			want: good(),
			errs: []string{`ports[1].port: 65536 is not in 1..65535`, `ports[2].protocol: "ICMP" is not TCP, UDP or SCTP`},
		},
		{
			name: "bad endpoints",
			change: func(s *slice) {
				s.Endpoints = append(s.Endpoints,
					discoveryv1.Endpoint{Addresses: []string{"10.244.1.300"}},
					discoveryv1.Endpoint{Addresses: []string{"fd00:10::1"}})
			},
			want: good(),
			errs: []string{
				`endpoints[1].addresses[0]: "10.244.1.300" is not an IP address`,
				`endpoints[2].addresses[0]: "fd00:10::1" is not an IPv4 address`,
			},
		},
		{
			name: "no good endpoint", change: func(s *slice) { s.Endpoints[0].Addresses[0] = "web-0" },
			errs: []string{`endpoints[0].addresses[0]: "web-0" is not an IP address`},
		},
		{
			name: "no endpoints", change: func(s *slice) { s.Endpoints = nil },
			want: with(func(s *EndpointSlice) { s.Endpoints = nil }),
		},
		{
			name: "weight", change: func(s *slice) { s.Annotations = map[string]string{"nftproxy.dev/weight": "1000"} },
			want: with(func(s *EndpointSlice) { s.Weight = 1000 }),
		},
		{
			name: "weight 0", change: func(s *slice) { s.Annotations = map[string]string{"nftproxy.dev/weight": "0"} },
			want: with(func(s *EndpointSlice) { s.Weight = 0 }),
		},
		{
			name: "weight too large", change: func(s *slice) { s.Annotations = map[string]string{"nftproxy.dev/weight": "1001"} },
			want: good(), errs: []string{`metadata.annotations[nftproxy.dev/weight]: "1001" is not an integer from 0 to 1000`},
		},
		{
			name: "weight no integer", change: func(s *slice) { s.Annotations = map[string]string{"nftproxy.dev/weight": "x"} },
			want: good(), errs: []string{`metadata.annotations[nftproxy.dev/weight]: "x" is not an integer from 0 to 1000`},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := NewEndpointSlice(kubeSlice(test.change), "node-1")
			checkErrors(t, err, test.errs)
			if !(object{slice: test.want}).equal(object{slice: got}) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestNoEndpointIsLocalWithoutNodeName(t *testing.T) {
	got, err := NewEndpointSlice(kubeSlice(func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].NodeName = ptr.To("") }), "")
	if err != nil || got.Endpoints[0].Local {
		t.Errorf("got %+v, %v", got, err)
	}
}

// What the proxy does not use makes no difference.
func TestMetadataMakesNoDifference(t *testing.T) {
	meta := func(m *metav1.ObjectMeta) {
		m.ResourceVersion = "2"
		m.Annotations = map[string]string{"a": "b"}
		m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	}
	service, _ := NewService(kubeService(nil))
	again, _ := NewService(kubeService(func(s *corev1.Service) {
		meta(&s.ObjectMeta)
		s.Spec.Selector = map[string]string{"a": "b"}
		s.Status.Conditions = []metav1.Condition{{Type: "Ready"}}
	}))
	if !service.Equal(again) {
		t.Error("Services differ")
	}
	slice, _ := NewEndpointSlice(kubeSlice(nil), "node-1")
	sliceAgain, _ := NewEndpointSlice(kubeSlice(func(s *discoveryv1.EndpointSlice) {
		meta(&s.ObjectMeta)
		s.Endpoints[0].TargetRef = &corev1.ObjectReference{Name: "web-0"}
		s.Endpoints[0].NodeName = ptr.To("node-2")
	}), "node-1")
	if !slice.Equal(sliceAgain) {
		t.Error("slices differ")
	}
}
