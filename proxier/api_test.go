package proxier

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

// namedService is a Service ns/name with that cluster IP.
func namedService(name, ip string) *corev1.Service {
	return kubeService(func(s *corev1.Service) {
		s.Name, s.Spec.ClusterIP, s.Spec.ClusterIPs = name, ip, []string{ip}
	})
}

func namedSlice(name string, addrs ...string) *discoveryv1.EndpointSlice {
	return kubeSlice(func(s *discoveryv1.EndpointSlice) {
		s.Name, s.Endpoints = name, nil
		for _, a := range addrs {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, NodeName: ptr.To("node-1")})
		}
	})
}

func TestAPIDeliversEverythingThenSynced(t *testing.T) {
	client := fake.NewClientset(namedService("a", "10.96.0.1"), namedService("b", "10.96.0.2"),
		namedSlice("a-1", "10.244.1.1"), namedSlice("a-2"), kubeService(func(s *corev1.Service) {
			s.Name, s.Spec.ClusterIP = "headless", "None"
		}), kubeNode(nil), kubeNode(func(n *corev1.Node) { n.Name = "node-2" }),
		kubeServiceCIDR("kubernetes", "10.96.0.0/16"), kubeServiceCIDR("empty"))
	r := newSourceRecorder(t)
	r.start(NewAPI(client, "node-1", zap.NewNop()))
	r.waitSynced()
	r.get(func() {
		if r.names() != "ns/a ns/b ns/a-1 ns/a-2 node-1 kubernetes" || len(r.problems) > 0 || r.applies != 4 {
			t.Errorf("%s, problems %q, %d applies", r.names(), r.problems, r.applies)
		}
		if !r.slices["ns/a-1"].Endpoints[0].Local {
			t.Error("the endpoint is not local")
		}
	})
}

// Whichever list is late, nothing is synced before both have arrived.
func TestAPISyncedOnlyAfterBothLists(t *testing.T) {
	for _, late := range []string{"services", "endpointslices"} {
		t.Run(late+" late", func(t *testing.T) {
			client := fake.NewClientset(namedService("a", "10.96.0.1"), namedSlice("a-1", "10.244.1.1"))
			r := newSourceRecorder(t)
			refused := 0
			client.PrependReactor("list", late, func(kubetesting.Action) (bool, runtime.Object, error) {
				r.get(func() {
					if r.synced > 0 {
						t.Error("synced before both lists")
					}
				})
				refused++
				return refused == 1, nil, errors.New("not yet")
			})
			r.start(NewAPI(client, "node-1", zap.NewNop()))
			r.waitSynced()
			r.get(func() {
				if r.names() != "ns/a ns/a-1" || refused != 2 {
					t.Errorf("%s after %d lists", r.names(), refused)
				}
			})
		})
	}
}

func TestAPIFollowsChanges(t *testing.T) {
	ctx := context.Background()
	client := fake.NewClientset(namedService("a", "10.96.0.1"))
	services, slices := client.CoreV1().Services("ns"), client.DiscoveryV1().EndpointSlices("ns")
	nodes, cidrs := client.CoreV1().Nodes(), client.NetworkingV1().ServiceCIDRs()
	begun := watches(client)
	r := newSourceRecorder(t)
	r.start(NewAPI(client, "node-1", zap.NewNop()))
	r.waitSynced()
	for range 4 {
		<-begun
	}

	do := func(_ any, err error) { t.Helper(); must(t, err) }
	do(services.Create(ctx, namedService("b", "10.96.0.2"), metav1.CreateOptions{}))
	do(slices.Create(ctx, namedSlice("a-1", "10.244.1.1"), metav1.CreateOptions{}))
	r.waitNames("ns/a ns/b ns/a-1")

	before := 0
	r.get(func() { before = r.objects })
	changed := namedService("b", "10.96.0.2")
	changed.Annotations = map[string]string{"seen": "true"}
	do(services.Update(ctx, changed, metav1.UpdateOptions{})) // makes no difference
	for i := range 50 {
		do(slices.Update(ctx, namedSlice("a-1", fmt.Sprintf("10.244.2.%d", i)), metav1.UpdateOptions{}))
	}
	r.wait("the last state", func() bool { return r.slices["ns/a-1"].Endpoints[0].Addr.String() == "10.244.2.49" })
	r.get(func() {
		if got := r.objects - before; got != 50 {
			t.Errorf("%d objects were delivered", got)
		}
	})

	another := namedService("a", "10.96.0.1")
	another.Labels = map[string]string{labelServiceProxyName: "other"}
	do(services.Update(ctx, another, metav1.UpdateOptions{})) // now another proxy's
	must(t, slices.Delete(ctx, "a-1", metav1.DeleteOptions{}))
	r.waitNames("ns/b")

	do(nodes.Create(ctx, kubeNode(func(n *corev1.Node) { n.Name = "node-2" }), metav1.CreateOptions{})) // not this one
	do(nodes.Create(ctx, kubeNode(nil), metav1.CreateOptions{}))
	do(cidrs.Create(ctx, kubeServiceCIDR("kubernetes", "10.96.0.0/16"), metav1.CreateOptions{}))
	r.waitNames("ns/b node-1 kubernetes")
	r.get(func() { before = r.objects })
	heartbeat := kubeNode(func(n *corev1.Node) { n.Status.Conditions = []corev1.NodeCondition{{Type: "Ready"}} })
	do(nodes.Update(ctx, heartbeat, metav1.UpdateOptions{})) // makes no difference
	do(nodes.Update(ctx, kubeNode(func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "zone-b" }), metav1.UpdateOptions{}))
	r.wait("the zone", func() bool { return r.node.Zone == "zone-b" })
	must(t, nodes.Delete(ctx, "node-1", metav1.DeleteOptions{}))
	must(t, nodes.Delete(ctx, "node-2", metav1.DeleteOptions{}))
	deleting := kubeServiceCIDR("kubernetes", "10.96.0.0/16")
	deleting.DeletionTimestamp = ptr.To(metav1.Unix(2000, 0))
	do(cidrs.Update(ctx, deleting, metav1.UpdateOptions{})) // it still counts
	must(t, cidrs.Delete(ctx, "kubernetes", metav1.DeleteOptions{}))
	r.waitNames("ns/b")
	r.get(func() {
		if got := r.objects - before; got != 3 {
			t.Errorf("%d objects were delivered", got)
		}
	})
}

// watches returns a channel that gets a value for each watch that has begun. The
// fake client loses what changes between a list and its watch.
func watches(client *fake.Clientset) <-chan struct{} {
	begun := make(chan struct{}, 10)
	client.PrependWatchReactor("*", func(action kubetesting.Action) (bool, watch.Interface, error) {
		w, err := client.Tracker().Watch(action.GetResource(), action.GetNamespace())
		begun <- struct{}{}
		return true, w, err
	})
	return begun
}

func TestAPIReportsBadObjects(t *testing.T) {
	bad := namedService("b", "10.96.0.2")
	bad.Spec.Ports = append(bad.Spec.Ports, corev1.ServicePort{Name: "big", Port: 70000})
	client := fake.NewClientset(namedService("a", "10.96.0.300"), bad)
	r := newSourceRecorder(t)
	r.start(NewAPI(client, "node-1", zap.NewNop()))
	r.waitSynced()
	r.get(func() {
		if r.names() != "ns/b" ||
			!r.hasProblem(`Service ns/a: spec.clusterIPs[0]: "10.96.0.300" is not an IP address`) ||
			!r.hasProblem(`Service ns/b: spec.ports[1].port: 70000 is not in 1..65535`) {
			t.Errorf("%s, problems %q", r.names(), r.problems)
		}
		for _, p := range r.told {
			if p.Reason != ReasonUnusableField || p.Object.Kind != "Service" || p.Object.Name.Namespace != "ns" || p.Object.UID != "uid-web" {
				t.Errorf("problem %+v", p)
			}
		}
	})
}

func newTestStore(t *testing.T, kind string) (*apiStore, *sourceRecorder) {
	t.Helper()
	r := newSourceRecorder(t)
	required := []string{kindService, kindSlice}
	out := newAPIOutput(r, required, nil)
	a := NewAPI(fake.NewClientset(), "node-1", zap.NewNop())
	return newAPIStore(kind, "node-1", out, newAPIHealth(a.log, a.clock, "", required, nil)), r
}

// A new list after an outage says what was deleted meanwhile, and it says it
// together with everything else.
func TestAPIStoreReplace(t *testing.T) {
	s, r := newTestStore(t, kindService)
	steps := []struct {
		name    string
		do      func() error
		names   string
		objects int // that the step delivers
	}{
		{"first list", func() error {
			return s.Replace([]any{namedService("a", "10.96.0.1"), namedService("b", "10.96.0.2")}, "1")
		}, "ns/a ns/b", 2},
		{"the same list", func() error {
			return s.Replace([]any{namedService("a", "10.96.0.1"), namedService("b", "10.96.0.2")}, "1")
		}, "ns/a ns/b", 0},
		{"one is missing, one is new", func() error {
			return s.Replace([]any{namedService("b", "10.96.0.2"), namedService("c", "10.96.0.3")}, "2")
		}, "ns/b ns/c", 2},
		{"one is unusable", func() error { return s.Replace([]any{namedService("b", "x"), namedService("c", "10.96.0.3")}, "3") }, "ns/b ns/c", 0},
		{"one is deleted", func() error { return s.Delete(namedService("b", "x")) }, "ns/c", 1},
		{"an unknown one is deleted", func() error { return s.Delete(namedService("b", "10.96.0.2")) }, "ns/c", 0},
		{"one becomes headless", func() error { return s.Update(namedService("c", "None")) }, "", 1},
		{
			"collected from a watch",
			func() error {
				o, err := s.Transformer()(namedService("d", "10.96.0.4"))
				if err != nil {
					return err
				}
				return s.Replace([]any{o}, "4")
			},
			"ns/d", 1,
		},
	}
	for _, step := range steps {
		before, applies := r.objects, r.applies
		must(t, step.do())
		if r.names() != step.names || r.objects-before != step.objects || r.applies-applies != min(1, step.objects) {
			t.Errorf("%s: %s, %d objects in %d applies", step.name, r.names(), r.objects-before, r.applies-applies)
		}
	}
	if r.synced > 0 {
		t.Error("synced after one kind")
	}
}

// Relisting does not say Synced again.
func TestAPISyncedOnce(t *testing.T) {
	s, r := newTestStore(t, kindService)
	slices := newAPIStore(kindSlice, "node-1", s.out, s.health)
	must(t, slices.Replace(nil, "1"))
	must(t, slices.Replace(nil, "2"))
	if r.synced != 0 {
		t.Error("synced after one kind")
	}
	must(t, s.Replace(nil, "1"))
	must(t, s.Replace(nil, "2"))
	if r.synced != 1 {
		t.Errorf("synced %d times", r.synced)
	}
}

func TestServerOfFakeClient(t *testing.T) {
	if got := serverOf(fake.NewClientset()); !strings.Contains(got, "API server") {
		t.Errorf("got %q", got)
	}
}
