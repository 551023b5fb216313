package proxier

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nftproxy/nftproxy/proxier/healthcheck"
	"github.com/nftproxy/nftproxy/rules"
)

// healthPort gives a Service a health-check port.
func (s *Service) healthPort(port uint16) *Service {
	s.HealthCheckNodePort = port
	return s
}

// TestServiceHealthFollows: health-check ports come and go with their Services, and count
// the addresses on this node that are ready, each once over all ports and slices.
func TestServiceHealthFollows(t *testing.T) {
	lb := func(port uint16) *Service {
		return newService(t, "default/lb", "10.96.0.1 lb=192.0.2.9", "http:80").healthPort(port)
	}
	slice := func(name string, endpoints ...string) *EndpointSlice {
		return newSlice(t, "default/"+name, "lb", "http:8080", endpoints...)
	}
	gone := func(name string) Changes {
		return Changes{Slices: []SliceChange{{Name: objectName("default/" + name)}}}
	}
	moved := slice("lb-2", "10.244.0.4 l")
	moved.Service = "other"
	wants := func(port uint16, endpoints int) map[types.NamespacedName]healthcheck.Service {
		return map[types.NamespacedName]healthcheck.Service{objectName("default/lb"): {Port: port, LocalEndpoints: endpoints}}
	}
	none := map[types.NamespacedName]healthcheck.Service{}

	tracker := NewTracker(rules.Families())
	for _, step := range []struct {
		what    string
		changes Changes
		want    map[types.NamespacedName]healthcheck.Service // nil: nothing has changed
	}{
		{"endpoints come before the Service", endpointSlices(slice("lb-1", "10.244.0.1 l", "10.244.0.2")), nil},
		{"a Service without a port", services(lb(0)), nil},
		{"it gets one", services(lb(31000)), wants(31000, 1)},
		{"the same again", services(lb(31000)), nil},
		{"one more here", endpointSlices(slice("lb-1", "10.244.0.1 l", "10.244.0.2", "10.244.0.3 l")), wants(31000, 2)},
		{"not ready, ending, elsewhere", endpointSlices(slice("lb-1", "10.244.0.1 l", "10.244.0.2 n", "10.244.0.3 lt", "10.244.0.5 ln")), wants(31000, 1)},
		{"another slice has one of them too", endpointSlices(slice("lb-2", "10.244.0.1 l", "10.244.0.4 l")), wants(31000, 2)},
		{"of another family", endpointSlices(slice("lb-6", "fd00::1 l")), wants(31000, 3)},
		{"its slice goes", gone("lb-6"), wants(31000, 2)},
		{"a slice goes to another Service", endpointSlices(moved), wants(31000, 1)},
		{"where nobody asks", endpointSlices(moved), nil},
		{"all go", gone("lb-1"), wants(31000, 0)},
		{"another port", services(lb(31001)), wants(31001, 0)},
		{"another Service's endpoints", endpointSlices(newSlice(t, "default/x", "x", "http:1", "10.244.0.9 l")), nil},
		{"no port", services(lb(0)), none},
		{"a port again", services(lb(31001)), wants(31001, 0)},
		{"the Service goes", Changes{Services: []ServiceChange{{Name: objectName("default/lb")}}}, none},
	} {
		pending := tracker.Apply(step.changes)
		if step.want != nil && !pending {
			t.Errorf("%s: there is nothing to do", step.what)
		}
		got := tracker.takeHealth()
		if (got == nil) != (step.want == nil) || !maps.Equal(got, step.want) {
			t.Errorf("%s: %v, want %v", step.what, got, step.want)
		}
		tracker.TakeChanges()
	}
}

// TestHealthCheckNodePort counts with a load balancer that must find local endpoints, and
// with nothing else.
func TestHealthCheckNodePort(t *testing.T) {
	for name, test := range map[string]struct {
		kind   corev1.ServiceType
		policy corev1.ServiceExternalTrafficPolicy
		port   int32
		want   uint16
	}{
		"load balancer, policy Local":     {corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal, 31000, 31000},
		"no port":                         {corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal, 0, 0},
		"load balancer, policy Cluster":   {corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyCluster, 31000, 0},
		"load balancer, policy not given": {corev1.ServiceTypeLoadBalancer, "", 31000, 0},
		"NodePort, policy Local":          {corev1.ServiceTypeNodePort, corev1.ServiceExternalTrafficPolicyLocal, 31000, 0},
		"out of range":                    {corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal, 1 << 16, 0},
		"negative":                        {corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal, -1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := NewService(&corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lb"},
				Spec: corev1.ServiceSpec{
					Type: test.kind, ExternalTrafficPolicy: test.policy, HealthCheckNodePort: test.port,
					ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{{Port: 80}},
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			if s.HealthCheckNodePort != test.want {
				t.Errorf("port %d, want %d", s.HealthCheckNodePort, test.want)
			}
		})
	}
}
