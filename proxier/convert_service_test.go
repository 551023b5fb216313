package proxier

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/rules"
)

func kubeService(change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "web", UID: "uid-web", CreationTimestamp: metav1.Unix(1000, 0),
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

func affinityOf(kind corev1.ServiceAffinity, seconds *int32) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Spec.SessionAffinity = kind
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: seconds}}
	}
}

func TestNewService(t *testing.T) {
	tests := []struct {
		name   string
		change func(*corev1.Service)
		// The result: its addresses and policies, as newService reads them, and its
		// ports; none if both are empty.
		addrs    string
		ports    []Port
		affinity time.Duration
		weights  []Weight
		errs     []string
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
			name: "NodePorts, whatever the type",
			change: func(s *corev1.Service) {
				s.Spec.Ports = []corev1.ServicePort{
					{Name: "a", Protocol: "TCP", Port: 53, NodePort: 30053}, {Name: "b", Protocol: "UDP", Port: 53, NodePort: 30053},
					{Name: "c", Port: 80}, {Name: "d", Port: 81},
				}
			},
			addrs: "10.96.0.10", ports: []Port{{"a", rules.TCP, 53, 30053}, {"b", rules.UDP, 53, 30053}, {"c", rules.TCP, 80, 0}, {"d", rules.TCP, 81, 0}},
		},
		{
			name: "bad NodePorts: the ports stay",
			change: func(s *corev1.Service) {
				s.Spec.Ports = []corev1.ServicePort{
					{Name: "a", Port: 80, NodePort: 30080}, {Name: "b", Port: 81, NodePort: 30080},
					{Name: "c", Port: 82, NodePort: 65536}, {Name: "d", Port: 83, NodePort: -1},
				}
			},
			addrs: "10.96.0.10", ports: []Port{{"a", rules.TCP, 80, 30080}, {"b", rules.TCP, 81, 0}, {"c", rules.TCP, 82, 0}, {"d", rules.TCP, 83, 0}},
			errs: []string{
				`spec.ports[1].nodePort: 30080 is that of an earlier port too`,
				`spec.ports[2].nodePort: 65536 is not in 0..65535`,
				`spec.ports[3].nodePort: -1 is not in 0..65535`,
			},
		},
		{
			name: "no affinity, but a timeout", change: affinityOf("None", ptr.To(int32(60))),
			addrs: "10.96.0.10", ports: []Port{{"http", rules.TCP, 80, 0}},
		},
		{
			name: "affinity", change: affinityOf("ClientIP", ptr.To(int32(60))),
			addrs: "10.96.0.10", ports: []Port{{"http", rules.TCP, 80, 0}}, affinity: time.Minute,
		},
		{
			name: "the longest affinity", change: affinityOf("ClientIP", ptr.To(int32(86400))),
			addrs: "10.96.0.10", ports: []Port{{"http", rules.TCP, 80, 0}}, affinity: 24 * time.Hour,
		},
		{
			name: "affinity without a timeout", change: affinityOf("ClientIP", nil),
			addrs: "10.96.0.10", ports: []Port{{"http", rules.TCP, 80, 0}}, affinity: 3 * time.Hour,
		},
		{
			name: "affinity without anything else", change: func(s *corev1.Service) { s.Spec.SessionAffinity = "ClientIP" },
			addrs: "10.96.0.10", ports: []Port{{"http", rules.TCP, 80, 0}}, affinity: 3 * time.Hour,
		},
		{
			name: "affinity for too long", change: affinityOf("ClientIP", ptr.To(int32(86401))),
			addrs: "10.96.0.10", ports: []Port{{"http", rules.TCP, 80, 0}}, affinity: 3 * time.Hour,
			errs: []string{`spec.sessionAffinityConfig.clientIP.timeoutSeconds: 86401 is not in 1..86400: 10800 is used`},
		},
		{
			name: "affinity for no time", change: affinityOf("ClientIP", ptr.To(int32(0))),
			addrs: "10.96.0.10", ports: []Port{{"http", rules.TCP, 80, 0}}, affinity: 3 * time.Hour,
			errs: []string{`spec.sessionAffinityConfig.clientIP.timeoutSeconds: 0 is not in 1..86400: 10800 is used`},
		},
		{
			name: "unknown affinity", change: affinityOf("Cookie", ptr.To(int32(60))),
			addrs: "10.96.0.10", ports: []Port{{"http", rules.TCP, 80, 0}},
			errs: []string{`spec.sessionAffinity: "Cookie" is not None or ClientIP`},
		},
		{
			name: "weights",
			change: func(s *corev1.Service) {
				s.Annotations = map[string]string{"nftproxy.dev/weights": "pod:canary-*=5, *=95"}
			},
			addrs: "10.96.0.10", ports: []Port{{"http", rules.TCP, 80, 0}},
			weights: []Weight{{By: SelectByPod, Pattern: "canary-*", Weight: 5}, {By: SelectAll, Weight: 95}},
		},
		{
			name:   "a mistake in the weights: none at all",
			change: func(s *corev1.Service) { s.Annotations = map[string]string{"nftproxy.dev/weights": "*=5,pod:a=x"} },
			addrs:  "10.96.0.10", ports: []Port{{"http", rules.TCP, 80, 0}},
			errs: []string{`metadata.annotations[nftproxy.dev/weights]: "pod:a=x": the weight "x" is not an integer from 0 to 1000`},
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
				want.UID, want.Ports, want.Affinity, want.Weights = "uid-web", test.ports, test.affinity, test.weights
			}
			if !(object{service: want}).equal(object{service: got}) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}
