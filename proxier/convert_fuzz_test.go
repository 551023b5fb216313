package proxier

import (
	"encoding/json"
	"net/netip"
	"path"
	"testing"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/rules"
)

func FuzzNewService(f *testing.F) {
	for _, s := range []*corev1.Service{
		kubeService(nil), kubeService(dualStack()), kubeService(dualStack(corev1.IPv6Protocol, corev1.IPv4Protocol)),
		kubeService(func(s *corev1.Service) {
			affinityOf(corev1.ServiceAffinityClientIP, ptr.To(int32(7)))(s)
			s.Annotations = map[string]string{WeightsAnnotation: "zone:a=1,pod:b-*=2,addr:10.0.0.0/8=3,*=4"}
			s.Spec.Ports[0].NodePort = 30080
		}),
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
	checkWeights(t, s.Weights)
	same := *s
	if s.Name.Name == "" || !s.Equal(&same) || s.Affinity < 0 || s.Affinity > 24*time.Hour || s.Affinity%time.Second != 0 {
		t.Errorf("%+v", s)
	}
}

// checkWeights makes sure that each selector has what it selects by, and nothing else.
func checkWeights(t *testing.T, weights []Weight) {
	t.Helper()
	for _, w := range weights {
		byName := w.By == SelectByZone || w.By == SelectByNode || w.By == SelectByPod
		if w.By < SelectAll || w.By > SelectByAddr || w.Weight > rules.MaxWeight ||
			byName != (w.Pattern != "") || (w.By == SelectByAddr) != w.CIDR.IsValid() || w.CIDR != w.CIDR.Masked() {
			t.Errorf("weight %+v", w)
		}
		if _, err := path.Match(w.Pattern, "web-0"); w.By == SelectByPod && err != nil {
			t.Errorf("pattern %q", w.Pattern)
		}
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
		kubeSlice(hints([]string{"b", "a"}, []string{"node-1"})), typicalSlice(3),
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
		for _, h := range []unique.Handle[string]{e.ZoneHints, e.Zone, e.Node} {
			if h != (unique.Handle[string]{}) && h.Value() == "" {
				t.Errorf("a handle of an empty text: %+v", e)
			}
		}
		if e.HintsHere && !e.NodeHinted {
			t.Errorf("hints %+v", e)
		}
	}
	checkPorts(t, s.Ports)
	same := *s
	if s.Name.Name == "" || s.Service == "" || s.Weight > rules.MaxWeight || !s.Equal(&same) {
		t.Errorf("%+v", s)
	}
}

func FuzzNewNode(f *testing.F) {
	addJSON(f, kubeNode(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		var in corev1.Node
		if json.Unmarshal(data, &in) != nil {
			return
		}
		if n, err := NewNode(&in); n != nil {
			checkUsableNode(t, n)
		} else if err == nil {
			t.Error("neither a Node nor an error")
		}
	})
}

func checkUsableNode(t *testing.T, n *Node) {
	t.Helper()
	seen := map[netip.Addr]bool{}
	for _, a := range n.Addrs {
		if !a.IsValid() || a.IsUnspecified() || a.Zone() != "" || a.Is4In6() || seen[a] {
			t.Errorf("addresses %v", n.Addrs)
		}
		seen[a] = true
	}
	checkRanges(t, n.PodCIDRs)
	same := *n
	if n.Name == "" || !n.Equal(&same) {
		t.Errorf("%+v", n)
	}
}

func FuzzNewServiceCIDR(f *testing.F) {
	addJSON(f, kubeServiceCIDR("kubernetes", "10.96.0.0/16", "fd00:10:96::/112", "::ffff:10.0.0.0/104"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var in networkingv1.ServiceCIDR
		if json.Unmarshal(data, &in) != nil {
			return
		}
		cidrs, err := NewServiceCIDR(&in)
		if in.Name != "" && err == nil && len(cidrs) != len(in.Spec.CIDRs) {
			t.Errorf("%v of %v, without an error", cidrs, in.Spec.CIDRs)
		}
		checkRanges(t, cidrs)
	})
}

func checkRanges(t *testing.T, ranges []netip.Prefix) {
	t.Helper()
	for _, r := range ranges {
		if !r.IsValid() || r != r.Masked() || r.Addr().Is4In6() && r.Bits() >= 96 {
			t.Errorf("range %v", r)
		}
	}
}

func addJSON(f *testing.F, object any) {
	data, err := json.Marshal(object)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
}
