package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/syncer/nstest"
)

// startWithAPI runs the daemon of "node1" in a new namespace that has some addresses, with
// an API server that knows the Node with the first one.
func startWithAPI(t *testing.T, addrs ...string) (*nstest.NS, *fakeAPI, *process) {
	t.Helper()
	ns := nstest.New(t)
	err := ns.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return fmt.Errorf("find lo: %w", err)
		}
		for _, a := range addrs {
			addr, err := netlink.ParseAddr(a + "/32")
			if err != nil {
				return fmt.Errorf("address %s: %w", a, err)
			}
			if err := netlink.AddrAdd(lo, addr); err != nil {
				return fmt.Errorf("add %s: %w", a, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	api := newFakeAPI(t, ns)
	api.putNode(t, withAddress(addrs[0]))
	d := startDaemon(t, ns, "--kubeconfig", api.kubeconfig(t), "--hostname-override", "node1")
	awaitHealthy(t, ns)
	return ns, api, d
}

func withAddress(addr string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: addr}}
	}
}

// TestNodeEligible: a load balancer sends a node nothing more, by what /healthz says, as
// soon as the node is about to go, and for as long. The process itself is alive.
func TestNodeEligible(t *testing.T) {
	ns, api, _ := startWithAPI(t, "192.0.2.1")
	tainted := func(effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler", Effect: effect}}
		}
	}
	for _, step := range []struct {
		what     string
		do       func()
		eligible bool
	}{
		{"the autoscaler is going to remove it", func() { api.putNode(t, tainted(corev1.TaintEffectNoSchedule)) }, false},
		{"it has thought better of it", func() { api.putNode(t) }, true},
		{"another effect is the same", func() { api.putNode(t, tainted(corev1.TaintEffectPreferNoSchedule)) }, false},
		{"another taint", func() {
			api.putNode(t, func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
			})
		}, true},
		{"it is being deleted", func() {
			api.putNode(t, func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} })
		}, false},
		{"it is back", func() { api.putNode(t) }, true},
		{"it is gone", func() { api.remove(nodesPath, "node1") }, false},
		{"it is registered again", func() { api.putNode(t) }, true},
	} {
		step.do()
		want := http.StatusServiceUnavailable
		if step.eligible {
			want = http.StatusOK
		}
		eventually(t, step.what, func() bool {
			status, body, err := get(t.Context(), ns, healthzURL)
			return err == nil && status == want && strings.Contains(body, fmt.Sprintf(`"nodeEligible":%t`, step.eligible))
		})
		live, _, err := get(t.Context(), ns, strings.Replace(healthzURL, "/healthz", "/livez", 1))
		if err != nil || live != http.StatusOK {
			t.Errorf("%s: /livez answers %d, %v", step.what, live, err)
		}
	}
}

// TestNodeAddressChanges: NodePorts move to the new address, without a restart.
func TestNodeAddressChanges(t *testing.T) {
	ns, api, d := startWithAPI(t, "192.0.2.1", "192.0.2.2")
	openOn := func(want string) func() bool {
		return func() bool {
			set := ns.MustNFT(t, "", "list", "set", "ip", "nftproxy", "nodeport-ips")
			elements := regexp.MustCompile(`elements = \{ (.*) \}`).FindStringSubmatch(set + "elements = {  }")
			return elements[1] == want
		}
	}
	eventually(t, "NodePorts on the address of the Node", openOn("192.0.2.1"))
	api.putNode(t, withAddress("192.0.2.2"))
	eventually(t, "NodePorts on the new one", openOn("192.0.2.2"))
	api.putNode(t, withAddress("192.0.2.3"))
	eventually(t, "NodePorts on none that the machine does not have", openOn(""))
	api.remove(nodesPath, "node1")
	api.putNode(t, withAddress("192.0.2.1"))
	eventually(t, "NodePorts on the first one again", openOn("192.0.2.1"))
	if starts := metric(t, ns, `nftproxy_resyncs_total{reason="start"}`); starts != 1 {
		t.Errorf("%v starts", starts)
	}
	if status := d.stop(t, syscall.SIGTERM); status != exitOK {
		t.Errorf("exit status: %d", status)
	}
}

// balanced is a load balancer that wants local endpoints, and its slice.
func balanced(port int32, policy corev1.ServiceExternalTrafficPolicy) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lb"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"},
			ExternalTrafficPolicy: policy, HealthCheckNodePort: port,
			Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 30080}},
		},
	}
}

func localSlice(annotations map[string]string, addrs ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "lb-1", Labels: map[string]string{discoveryv1.LabelServiceName: "lb"}, Annotations: annotations,
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)}},
	}
	for _, a := range addrs {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, NodeName: new("node1")})
	}
	return s
}

// TestServiceHealthPorts asks the health-check ports of a Service while it and its
// endpoints change, by HTTP at the address where NodePorts are open.
func TestServiceHealthPorts(t *testing.T) {
	const local, cluster = corev1.ServiceExternalTrafficPolicyLocal, corev1.ServiceExternalTrafficPolicyCluster
	ns, api, _ := startWithAPI(t, "192.0.2.1")
	answer := func(port, weight int) func() bool {
		return func() bool {
			status, body, err := get(t.Context(), ns, fmt.Sprintf("http://192.0.2.1:%d/", port))
			if weight < 0 {
				return err != nil
			}
			var got struct {
				Service             struct{ Namespace, Name string }
				LocalEndpoints      int
				ServiceProxyHealthy bool
			}
			if err != nil || json.Unmarshal([]byte(body), &got) != nil {
				return false
			}
			return (status == http.StatusOK) == (weight > 0) && got.LocalEndpoints == weight &&
				got.Service.Namespace == "default" && got.Service.Name == "lb" && got.ServiceProxyHealthy
		}
	}
	const closed = -1
	for _, step := range []struct {
		what      string
		do        func()
		port      int
		endpoints int
	}{
		{"no endpoint yet", func() { api.put(t, servicesPath, "lb", balanced(31000, local)) }, 31000, 0},
		{"two here", func() { api.put(t, slicesPath, "lb-1", localSlice(nil, "10.244.0.1", "10.244.0.2")) }, 31000, 2},
		{"one of them goes", func() { api.put(t, slicesPath, "lb-1", localSlice(nil, "10.244.0.1")) }, 31000, 1},
		{"another port", func() { api.put(t, servicesPath, "lb", balanced(31001, local)) }, 31001, 1},
		{"not the first one", func() {}, 31000, closed},
		{"all endpoints go", func() { api.remove(slicesPath, "lb-1") }, 31001, 0},
		{"another policy", func() { api.put(t, servicesPath, "lb", balanced(31001, cluster)) }, 31001, closed},
		{"back again", func() { api.put(t, servicesPath, "lb", balanced(31001, local)) }, 31001, 0},
		{"the Service goes", func() { api.remove(servicesPath, "lb") }, 31001, closed},
	} {
		step.do()
		eventually(t, step.what, answer(step.port, step.endpoints))
	}
}

// TestProgrammingLatency: what the annotation of a slice says ends in the metric.
func TestProgrammingLatency(t *testing.T) {
	ns, api, _ := startWithAPI(t, "192.0.2.1")
	count := func() float64 {
		return metric(t, ns, `kubeproxy_network_programming_duration_seconds_count{ip_family="IPv4"}`)
	}
	at := func(when time.Time) map[string]string {
		return map[string]string{corev1.EndpointsLastChangeTriggerTime: when.Format(time.RFC3339Nano)}
	}
	api.put(t, servicesPath, "lb", balanced(0, corev1.ServiceExternalTrafficPolicyCluster))
	api.put(t, slicesPath, "lb-1", localSlice(at(time.Now().Add(-time.Hour)), "10.244.0.1"))
	installed := func(addr netip.Addr) func() bool {
		return func() bool {
			return strings.Contains(ns.MustNFT(t, "", "list", "map", "ip", "nftproxy", "endpoints"), addr.String())
		}
	}
	eventually(t, "an endpoint from before", installed(netip.MustParseAddr("10.244.0.1")))
	if n := count(); n != 0 {
		t.Errorf("%v latencies of a change that was before the daemon", n)
	}
	api.put(t, slicesPath, "lb-1", localSlice(at(time.Now()), "10.244.0.2"))
	eventually(t, "its latency", func() bool { return count() == 1 })
	if sum := metric(t, ns, `kubeproxy_network_programming_duration_seconds_sum{ip_family="IPv4"}`); sum <= 0 {
		t.Errorf("it is %v s", sum)
	}
}
