package proxier

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/rules"
)

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

// hints gives the endpoint hints for zones and nodes.
func hints(zones, nodes []string) func(*discoveryv1.EndpointSlice) {
	return func(s *discoveryv1.EndpointSlice) {
		h := &discoveryv1.EndpointHints{}
		for _, name := range zones {
			h.ForZones = append(h.ForZones, discoveryv1.ForZone{Name: name})
		}
		for _, name := range nodes {
			h.ForNodes = append(h.ForNodes, discoveryv1.ForNode{Name: name})
		}
		s.Endpoints[0].Hints = h
	}
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
			want: with(func(s *EndpointSlice) { s.Endpoints[0].Local, s.Endpoints[0].Node = true, unique.Make("node-1") }),
		},
		{
			name: "on another node", change: func(s *slice) { s.Endpoints[0].NodeName = ptr.To("node-2") },
			want: with(func(s *EndpointSlice) { s.Endpoints[0].Node = unique.Make("node-2") }),
		},
		{
			name: "of a Pod in a zone",
			change: func(s *slice) {
				s.Endpoints[0].Zone = ptr.To("zone-a")
				s.Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: "web-0"}
			},
			want: with(func(s *EndpointSlice) { s.Endpoints[0].Zone, s.Endpoints[0].Pod = unique.Make("zone-a"), "web-0" }),
		},
		{
			name: "of something else, and of no zone",
			change: func(s *slice) {
				s.Endpoints[0].Zone, s.Endpoints[0].NodeName = ptr.To(""), ptr.To("")
				s.Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: "VirtualMachine", Name: "web-0"}
			},
			want: good(),
		},
		{name: "no hints", change: hints(nil, nil), want: good()},
		{
			name: "hints for this node", change: hints(nil, []string{"node-2", "node-1"}),
			want: with(func(s *EndpointSlice) { s.Endpoints[0].NodeHinted, s.Endpoints[0].HintsHere = true, true }),
		},
		{
			name: "hints for another node", change: hints(nil, []string{"node-2"}),
			want: with(func(s *EndpointSlice) { s.Endpoints[0].NodeHinted = true }),
		},
		{
			name: "a hint for a zone", change: hints([]string{"zone-a"}, nil),
			want: with(func(s *EndpointSlice) { s.Endpoints[0].ZoneHints = unique.Make("zone-a") }),
		},
		{
			name: "hints for zones, in any order and more than once", change: hints([]string{"zone-b", "zone-a", "zone-b"}, []string{"node-1"}),
			want: with(func(s *EndpointSlice) {
				s.Endpoints[0].NodeHinted, s.Endpoints[0].HintsHere, s.Endpoints[0].ZoneHints = true, true, unique.Make("zone-a,zone-b")
			}),
		},
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
	got, err := NewEndpointSlice(kubeSlice(func(s *discoveryv1.EndpointSlice) {
		hints(nil, []string{""})(s)
		s.Endpoints[0].NodeName = ptr.To("")
	}), "")
	if err != nil || got.Endpoints[0].Local || got.Endpoints[0].HintsHere {
		t.Errorf("got %+v, %v", got, err)
	}
}

// typicalSlice is a slice as the control plane writes it for n Pods of a Deployment, on
// as many nodes.
func typicalSlice(n int) *discoveryv1.EndpointSlice {
	return kubeSlice(func(s *discoveryv1.EndpointSlice) {
		hints([]string{"zone-a"}, nil)(s)
		hint := s.Endpoints[0].Hints
		s.Endpoints = nil
		for i := range n {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{addrOf(128, i+1).String()}, NodeName: ptr.To(fmt.Sprintf("node-%d", i)), Zone: ptr.To("zone-a"), Hints: hint,
				TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: fmt.Sprintf("web-%d", i)},
			})
		}
	})
}

// What a slice costs to take over does not grow with its endpoints, but for their
// array.
func TestNewEndpointSliceAllocations(t *testing.T) {
	allocations := func(n int) float64 {
		in := typicalSlice(n)
		kept, err := NewEndpointSlice(in, "node-1") // keeps the names of nodes interned
		must(t, err)
		allocated := testing.AllocsPerRun(10, func() { _, _ = NewEndpointSlice(in, "node-1") })
		runtime.KeepAlive(kept)
		return allocated
	}
	if few, many := allocations(1), allocations(100); many > few {
		t.Errorf("%v allocations for 1 endpoint, %v for 100", few, many)
	}
}

func BenchmarkConvertEndpointSlice(b *testing.B) {
	in := typicalSlice(100)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := NewEndpointSlice(in, "node-1"); err != nil {
			b.Fatal(err)
		}
	}
}
