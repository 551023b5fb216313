package proxier

import (
	"encoding/json"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/rules"
)

func FuzzNewService(f *testing.F) {
	for _, s := range []*corev1.Service{
		kubeService(nil), kubeService(dualStack()), kubeService(dualStack(corev1.IPv6Protocol, corev1.IPv4Protocol)),
	} {
		addJSON(f, s)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var in corev1.Service
		if json.Unmarshal(data, &in) != nil {
			return
		}
		s, err := NewService(&in)
		if s == nil {
			return
		}
		if err != nil && (len(s.Addrs) == 0 || len(s.Ports) == 0) {
			t.Errorf("nothing usable, but not nil: %+v", s)
		}
		checkService(t, s)
	})
}

func checkService(t *testing.T, s *Service) {
	t.Helper()
	families := map[rules.Family]bool{}
	seen := map[netip.Addr]bool{}
	for _, a := range s.Addrs {
		family := rules.FamilyOf(a.Addr)
		if !a.Addr.IsValid() || a.Addr.IsUnspecified() || a.Addr.Zone() != "" || a.Addr.Is4In6() || seen[a.Addr] ||
			families[family] != (a.Kind != rules.ClusterIP) {
			t.Errorf("addresses %v", s.Addrs)
		}
		families[family], seen[a.Addr] = true, true
	}
	checkPorts(t, s.Ports)
	same := *s
	if s.Name.Name == "" || !s.Equal(&same) {
		t.Errorf("%+v", s)
	}
}

func checkPorts(t *testing.T, ports []Port) {
	t.Helper()
	for _, p := range ports {
		if p.Number == 0 || p.Protocol != rules.TCP && p.Protocol != rules.UDP && p.Protocol != rules.SCTP {
			t.Errorf("port %+v", p)
		}
	}
}

func FuzzNewEndpointSlice(f *testing.F) {
	for _, s := range []*discoveryv1.EndpointSlice{
		kubeSlice(nil),
		kubeSlice(func(s *discoveryv1.EndpointSlice) {
			s.AddressType = discoveryv1.AddressTypeIPv6
			s.Annotations = map[string]string{WeightAnnotation: "7"}
			s.Endpoints[0].NodeName = ptr.To("node-1")
		}),
	} {
		addJSON(f, s)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var in discoveryv1.EndpointSlice
		if json.Unmarshal(data, &in) != nil {
			return
		}
		if s, _ := NewEndpointSlice(&in, "node-1"); s != nil {
			checkSlice(t, s)
		}
	})
}

func checkSlice(t *testing.T, s *EndpointSlice) {
	t.Helper()
	for _, e := range s.Endpoints {
		if !e.Addr.IsValid() || e.Addr.IsUnspecified() || e.Addr.Zone() != "" || rules.FamilyOf(e.Addr) != s.Family || e.Addr.Is4In6() {
			t.Errorf("endpoint %v", e.Addr)
		}
	}
	checkPorts(t, s.Ports)
	same := *s
	if s.Name.Name == "" || s.Service == "" || s.Weight > rules.MaxWeight || !s.Equal(&same) {
		t.Errorf("%+v", s)
	}
}

func addJSON(f *testing.F, object any) {
	data, err := json.Marshal(object)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
}
